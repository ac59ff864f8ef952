//! Was what the engine gave, or refused, within the rules?

use std::net::IpAddr;

use carrack_base::{Proto, Reason};
use carrack_nat::policy::{Assignment, Pooling};
use carrack_nat::row::Endpoint;

use super::policy::{block, in_overflow, in_pool, one_to_one, ports_of_blocks, share};
use super::state::Life;
use super::{Flow, Kind, Local, Reference};

/// Is it a reason that names a shortage (RFC 6888 REQ-11)?
#[must_use]
pub fn is_shortage(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NatPoolExhausted
            | Reason::NatPoolChanging
            | Reason::NatPortsExhausted
            | Reason::NatBlockLimit
            | Reason::NatPortLimit
            | Reason::NatSessionLimit
            | Reason::NatMappingSessionLimit
            | Reason::NatRateLimit
            | Reason::NatSessionTableFull
            | Reason::NatMappingTableFull
            | Reason::NatSubscriberTableFull
            | Reason::NatHostTableFull
            | Reason::NatIndexFull
    )
}

impl Reference {
    /// RFC 4787 REQ-2, REQ-3, RFC 6888 REQ-8, RFC 7422: an endpoint of the pool that nobody else has or just had.
    pub(super) fn judge_endpoint(
        &self,
        proto: Proto,
        inside: Local,
        outside: Endpoint,
        own: Option<u32>,
    ) -> Result<(), String> {
        if !in_pool(&self.policy, outside) {
            return Err(format!("{outside} is in no pool"));
        }
        if self.is_forwarded(proto, outside) {
            return Err(format!("{outside} is forwarded to somebody else"));
        }
        let subscriber = self.subscriber(inside.ip);
        if matches!(self.policy.assignment, Assignment::Deterministic { .. }) {
            let (ip, first, last) = share(&self.policy, subscriber).ok_or("he has no share (RFC 7422)")?;
            let is_own = (first..=last).contains(&outside.port);
            if outside.ip != ip || !(is_own || in_overflow(&self.policy, outside)) {
                return Err(format!(
                    "RFC 7422: {outside} is neither in his share nor beyond it on its address"
                ));
            }
        }
        let lives = self.mapping_lives();
        let block_of = |at| block(&self.policy, at);
        for (id, mapping) in &self.mappings {
            let Some(theirs) = mapping.outside else { continue };
            if own == Some(*id) || lives.get(id) != Some(&Life::Yes) {
                continue;
            }
            if mapping.proto == proto && theirs == outside {
                return Err(format!("RFC 4787 REQ-3: {outside} is {}'s already", mapping.inside));
            }
            if mapping.kind != Kind::Dynamic || mapping.epoch != self.epoch {
                continue;
            }
            let same_host = self.subscriber(mapping.inside.ip) == subscriber;
            if self.policy.pooling == Pooling::Paired && same_host && theirs.ip != outside.ip {
                return Err(format!("RFC 4787 REQ-2: paired with {} before", theirs));
            }
            if !same_host && block_of(theirs).is_some() && block_of(theirs) == block_of(outside) {
                return Err(format!("{outside} is in a block of {}", mapping.inside));
            }
        }
        if let Some((ended_s, host)) = self.freed.get(&(proto, outside))
            && proto != Proto::Tcp
            && *host != subscriber
            && self.now_s < ended_s + self.policy.port_hold_s
        {
            return Err(format!("RFC 6888 REQ-8: {outside} was another's until {ended_s} s"));
        }
        Ok(())
    }

    /// May this inside endpoint have one more mapping, there?
    pub(super) fn judge_new_mapping(
        &self,
        proto: Proto,
        inside: Local,
        outside: Endpoint,
    ) -> Result<(), String> {
        self.judge_endpoint(proto, inside, outside, None)?;
        if in_overflow(&self.policy, outside) && !self.share_may_be_full(proto, self.subscriber(inside.ip)) {
            return Err(format!("RFC 7422 §2: {outside} though he has ports of his own left"));
        }
        let limits = &self.policy.limits;
        let by_proto = limits.ports_by_proto_max.get(proto.index()).copied().unwrap_or(0);
        let subscriber = self.subscriber(inside.ip);
        let (all, of_proto) =
            (self.ports(subscriber, None, Life::Yes), self.ports(subscriber, Some(proto), Life::Yes));
        if limits.ports_max != 0 && all >= limits.ports_max as usize {
            return Err(format!("RFC 6888 REQ-4: {all} ports already"));
        }
        if by_proto != 0 && of_proto >= by_proto as usize {
            return Err(format!("RFC 6888 REQ-4: {of_proto} ports of the protocol already"));
        }
        if limits.creations_per_s != 0
            && let Some(creations) = self.creations.get(&subscriber)
        {
            let mut times = creations.sure.clone();
            times.push(self.now_s);
            if self.exceeds_rate(&times, 0) {
                return Err("RFC 6888 REQ-4c: faster than he may".into());
            }
        }
        Ok(())
    }

    /// Is there a time since which there were more than `less` below what the rate allows?
    fn exceeds_rate(&self, times: &[u32], less: u32) -> bool {
        let limits = &self.policy.limits;
        times.iter().any(|since| {
            let count = times.iter().filter(|t| *t >= since).count() as u32;
            let allowed = limits.creations_burst.max(1) + limits.creations_per_s * (self.now_s - since);
            count + less > allowed
        })
    }

    /// May there be one more session (RFC 6888 REQ-5)?
    pub(super) fn judge_new_session(&self, flow: &Flow, mapping: Option<u32>) -> Result<(), String> {
        let limits = &self.policy.limits;
        let subscriber = self.subscriber(flow.1.ip);
        let of_host = self.sessions_of(Life::Yes, |f, _| self.subscriber(f.1.ip) == subscriber);
        if limits.sessions_max != 0 && of_host >= limits.sessions_max as usize {
            return Err(format!("RFC 6888 REQ-5: {of_host} sessions already"));
        }
        let on_it = mapping.map_or(0, |id| self.sessions_of(Life::Yes, |_, at| at == id));
        if limits.sessions_per_mapping_max != 0 && on_it >= limits.sessions_per_mapping_max as usize {
            return Err(format!("RFC 6888 REQ-5: {on_it} sessions of the mapping already"));
        }
        Ok(())
    }

    fn sessions_of(&self, least: Life, is: impl Fn(&Flow, u32) -> bool) -> usize {
        let mine = self.sessions.iter().filter(|(flow, s)| is(flow, s.mapping));
        mine.filter(|(flow, s)| self.life_of(flow, s) >= least).count()
    }

    /// Ports that a subscriber has at least (`Life::Yes`) or at most (`Life::Maybe`).
    fn ports(&self, subscriber: IpAddr, proto: Option<Proto>, least: Life) -> usize {
        let lives = self.mapping_lives();
        let mine = self.mappings.iter().filter(|(_, m)| {
            self.subscriber(m.inside.ip) == subscriber
                && m.kind == Kind::Dynamic
                && proto.is_none_or(|proto| proto == m.proto)
        });
        mine.filter(|(id, _)| lives.get(id).is_some_and(|life| *life >= least)).count()
    }

    /// A refusal to a packet from inside: limits refuse only those who reached them.
    pub(super) fn judge_shortage_out(&mut self, flow: &Flow, reason: Reason) -> Result<(), String> {
        let (proto, inside, _) = *flow;
        let subscriber = self.subscriber(inside.ip);
        let lives = self.mapping_lives();
        let shared = self
            .mappings
            .iter()
            .find(|(id, m)| m.independent && m.is_of(proto, inside) && lives.get(id) == Some(&Life::Yes));
        let needs_mapping = shared.is_none();
        let own = shared.map(|(id, _)| *id);
        let ports_wanted = needs_mapping && one_to_one(&self.policy, inside.ip).is_none();
        let enough = match reason {
            Reason::NatSessionLimit | Reason::NatMappingSessionLimit => {
                return self.judge_session_limit(Some(*flow), own, reason);
            }
            Reason::NatSessionTableFull | Reason::NatSubscriberTableFull | Reason::NatIndexFull => true,
            Reason::NatHostTableFull => needs_mapping && inside.is_six(),
            Reason::NatMappingTableFull => needs_mapping,
            _ if !ports_wanted => false,
            Reason::NatPortLimit => {
                let limits = &self.policy.limits;
                let by_proto = limits.ports_by_proto_max.get(proto.index()).copied().unwrap_or(0);
                let reached =
                    |proto, max: u32| max != 0 && self.ports(subscriber, proto, Life::Maybe) >= max as usize;
                reached(None, limits.ports_max) || reached(Some(proto), by_proto)
            }
            Reason::NatRateLimit => self.may_exceed_rate(subscriber),
            Reason::NatBlockLimit => {
                let ports = ports_of_blocks(&self.policy);
                let own = share(&self.policy, subscriber).map_or(0, |(_, first, last)| last - first + 1);
                ports > 0 && self.may_have_filled(proto, subscriber, ports + usize::from(own))
            }
            Reason::NatPortsExhausted => match self.policy.assignment {
                Assignment::Deterministic { .. } => self.share_may_be_full(proto, subscriber),
                _ => self.policy.pooling == Pooling::Paired,
            },
            Reason::NatPoolExhausted => match self.policy.assignment {
                Assignment::Deterministic { .. } => share(&self.policy, subscriber).is_none(),
                _ => true,
            },
            _ => true,
        };
        let late =
            matches!(reason, Reason::NatPoolExhausted | Reason::NatPortsExhausted | Reason::NatBlockLimit)
                || matches!(reason, Reason::NatIndexFull | Reason::NatMappingTableFull);
        if late {
            // It may have cost a creation before it failed.
            self.creations.entry(subscriber).or_default().perhaps.push(self.now_s);
        }
        if enough { Ok(()) } else { Err(format!("{reason}, but that limit is not reached")) }
    }

    /// May a subscriber's so many ports of the protocol all be taken, by him or by forward rules?
    fn may_have_filled(&self, proto: Proto, subscriber: IpAddr, ports: usize) -> bool {
        let forwarded = super::policy::forwards(&self.policy).iter().filter(|f| f.0 == proto).count();
        self.ports(subscriber, Some(proto), Life::Maybe) + forwarded >= ports
    }

    /// May all of a deterministic subscriber's own ports of the protocol be taken, by him or by forward rules?
    fn share_may_be_full(&self, proto: Proto, subscriber: IpAddr) -> bool {
        let Some((ip, first, last)) = share(&self.policy, subscriber) else { return false };
        let is_own = |at: Endpoint| at.ip == ip && (first..=last).contains(&at.port);
        let lives = self.mapping_lives();
        let taken = self.mappings.iter().filter(|(id, m)| {
            (m.proto, m.kind, self.subscriber(m.inside.ip)) == (proto, Kind::Dynamic, subscriber)
                && m.outside.is_none_or(is_own)
                && lives.get(id).is_some_and(|life| *life != Life::No)
        });
        let rules = super::policy::forwards(&self.policy);
        let forwarded = rules.iter().filter(|f| f.0 == proto && is_own(f.1));
        taken.count() + forwarded.count() > usize::from(last - first)
    }

    fn may_exceed_rate(&self, subscriber: IpAddr) -> bool {
        let limits = &self.policy.limits;
        if limits.creations_per_s == 0 {
            return false;
        }
        // What was left of an earlier rate's allowance is not known until it would be full again.
        let full_s = limits.creations_burst.max(1) / limits.creations_per_s + 1;
        let creations = self.creations.get(&subscriber).cloned().unwrap_or_default();
        let times = [creations.sure, creations.perhaps].concat();
        self.now_s <= self.reloaded_s + full_s || self.exceeds_rate(&times, 1)
    }

    /// A refusal to a packet from outside: only its session can be too many.
    pub(super) fn judge_shortage_in(
        &self,
        flow: Option<Flow>,
        mapping: Option<u32>,
        reason: Reason,
    ) -> Result<(), String> {
        match reason {
            Reason::NatSessionLimit | Reason::NatMappingSessionLimit => {
                self.judge_session_limit(flow, mapping, reason)
            }
            Reason::NatSessionTableFull
            | Reason::NatMappingTableFull
            | Reason::NatSubscriberTableFull
            | Reason::NatIndexFull => Ok(()),
            _ => Err(format!("{reason}, but no port was wanted")),
        }
    }

    fn judge_session_limit(
        &self,
        flow: Option<Flow>,
        mapping: Option<u32>,
        reason: Reason,
    ) -> Result<(), String> {
        let limits = &self.policy.limits;
        let (max, count) = if reason == Reason::NatSessionLimit {
            let host = flow.map(|flow| self.subscriber(flow.1.ip));
            (
                limits.sessions_max,
                self.sessions_of(Life::Maybe, |f, _| host.is_none_or(|host| self.subscriber(f.1.ip) == host)),
            )
        } else {
            (
                limits.sessions_per_mapping_max,
                self.sessions_of(Life::Maybe, |_, at| mapping.is_none_or(|id| at == id)),
            )
        };
        let reached = max != 0 && count >= max as usize;
        if reached { Ok(()) } else { Err(format!("{reason}, but there are {count} of {max}")) }
    }
}
