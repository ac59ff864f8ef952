//! What a new policy leaves as it is, and what it does not; the mappings of forward rules.

use carrack_base::{Prefix6, Proto, Reason, VrfId, WorkerId};

use crate::directory::{Directory, is_exempt};
use crate::engine::{InstanceState, Nat};
use crate::flow::{Direction, Inside};
use crate::line::{FORWARD, Host, INDEPENDENT, Mapping, SIX, Session};
use crate::nat64::{Nat64, Nat64Prefix};
use crate::policy::{Assignment, Instance, NatPolicy, StaticRule};
use crate::pool::ForwardPorts;
use crate::row::Endpoint;
use crate::rules::Rules;

/// What becomes of one old instance.
#[derive(Debug)]
pub(crate) struct Fate {
    /// Its number in the new policy; `None` when it is gone.
    pub(crate) to: Option<usize>,
    /// Do sessions have to be looked at one by one? No when only timers, limits and the like changed.
    pub(crate) reach_changed: bool,
}

/// Ports of forward rules that come into force in one call: about as long as a burst takes.
const FORWARDS_AT_ONCE: u32 = 64;

/// How far the forward rules have come into force.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Laying {
    instance: usize,
    rule: usize,
    step: u16,
}

/// What forward rules keep from everybody else, for [`Ports::set_forwards`](crate::pool::Ports::set_forwards).
pub(crate) fn forward_ports(instance: &Instance) -> Vec<ForwardPorts> {
    let ports = |rule: &StaticRule| match *rule {
        StaticRule::Forward { proto, outside, outside_port, count, .. } => Some(ForwardPorts {
            ip: outside,
            proto,
            first: outside_port,
            last: outside_port.saturating_add(count.saturating_sub(1)),
        }),
        StaticRule::OneToOne { .. } => None,
    };
    let mut all: Vec<ForwardPorts> = instance.statics.iter().filter_map(ports).collect();
    all.sort_unstable();
    all
}

impl Nat {
    /// Are forward rules still to come into force after a change? [`Nat::expire`] makes some each time.
    #[must_use]
    pub const fn is_laying(&self) -> bool {
        self.laying.is_some()
    }

    /// Makes a few more mappings of forward rules, each on the worker that owns its inside address. True when all are.
    pub(crate) fn lay_some(&mut self, now_s: u32) -> bool {
        let Some(mut at) = self.laying.take() else { return true };
        let policy = self.policy.clone();
        for _ in 0..FORWARDS_AT_ONCE {
            let Some(instance) = policy.instances.get(at.instance) else { return true };
            match instance.statics.get(at.rule) {
                Some(StaticRule::Forward { proto, outside, outside_port, count, inside, inside_port })
                    if at.step < *count =>
                {
                    let outside = (*outside, outside_port.wrapping_add(at.step));
                    self.reserve_forward(instance, *proto, outside, now_s);
                    self.add_forward(instance, *proto, outside, (*inside, inside_port.wrapping_add(at.step)));
                    at.step += 1;
                }
                Some(_) => at = Laying { rule: at.rule + 1, step: 0, ..at },
                None => at = Laying { instance: at.instance + 1, rule: 0, step: 0 },
            }
        }
        self.laying = Some(at);
        false
    }

    /// The worker that gives out the port keeps it from its subscribers, whoever owns the mapping.
    fn reserve_forward(&mut self, instance: &Instance, proto: Proto, outside: (u32, u16), now_s: u32) {
        let at = instance.id.index();
        if self.states.get(at).is_some_and(|state| self.gives_out(state, instance, outside))
            && let Some(state) = self.states.get_mut(at)
        {
            state.ports.take_forward(outside.0, proto, outside.1, now_s);
        }
    }

    /// Deterministic ports are given out by the worker that owns their subscriber, which the port alone does not tell.
    fn gives_out(&self, state: &InstanceState, instance: &Instance, (ip, port): (u32, u16)) -> bool {
        let Some(function) = &state.ports.deterministic else { return true };
        let subscriber = function.inverse(ip, port);
        let owner = subscriber.map(|inside| self.directory.owner_of(instance.inside_vrf, inside));
        owner.unwrap_or(WorkerId(0)) == self.worker
    }

    fn add_forward(&mut self, instance: &Instance, proto: Proto, outside: (u32, u16), inside: (Inside, u16)) {
        let subscriber = self.directory.subscriber_of(instance.id, inside.0);
        if self.directory.owner_of(instance.inside_vrf, subscriber) != self.worker {
            return;
        }
        let number = match inside.0 {
            Inside::V4(ip) => Ok(ip),
            Inside::V6(ip) => self.host_for_forward(instance, ip),
        };
        let inside_ip = match number {
            Ok(number) => number,
            Err(reason) => {
                self.forwards_missing = true;
                self.note_refusal(instance.id.index(), inside.0.into(), reason);
                return;
            }
        };
        let [from, to] = [(inside_ip, inside.1), outside].map(|(ip, port)| Endpoint { ip, port });
        let line = Mapping {
            flags: INDEPENDENT | FORWARD | if matches!(inside.0, Inside::V6(_)) { SIX } else { 0 },
            ..Mapping::between(instance, self.slots.of(instance.id), from, to, proto)
        };
        let (local, vrf) = (line.outside(), VrfId(line.outside_vrf));
        self.tables.settle();
        if self.tables.find_mapping(local, vrf, proto, Direction::In).is_none()
            && let Err(reason) = self.tables.add_mapping(line)
        {
            self.forwards_missing = true;
            self.note_refusal(instance.id.index(), inside.0.into(), reason);
        }
        if line.is_six() {
            self.tables.remove_host_if_unused(line.inside_ip);
        }
    }

    /// The line of the IPv6 host that a forward rule leads to: RFC 6146 §3.1, configured entries.
    fn host_for_forward(&mut self, instance: &Instance, ip: u128) -> Result<u32, Reason> {
        let via = via_of(instance, Inside::V6(ip)).ok_or(Reason::NatNoInstance)?;
        let (slot, vrf) = (self.slots.of(instance.id), instance.inside_vrf);
        match self.tables.find_host(ip, slot, vrf) {
            Some(id) => Ok(id),
            None => self.tables.add_host(Host { address: ip, vrf: vrf.0, via, mappings: 0, slot }),
        }
    }

    /// Forward rules that found the mapping table full are tried again each second, until all have their mapping.
    pub(crate) fn retry_forwards(&mut self) {
        // A change under way has done away with those it has no use for.
        if self.transition.is_some() || self.laying.is_some() || !std::mem::take(&mut self.forwards_missing) {
            return;
        }
        self.laying = Some(Laying::default());
    }
}

/// What becomes of each old instance; every new one is the successor of one at most.
pub(crate) fn fates(old: &NatPolicy, policy: &NatPolicy) -> Vec<Fate> {
    let mut taken = vec![false; policy.instances.len()];
    let mut all = Vec::with_capacity(old.instances.len());
    for before in &old.instances {
        let successor = |(to, after): &(usize, &Instance)| {
            after.name == before.name && !taken.get(*to).copied().unwrap_or(true)
        };
        let found = policy.instances.iter().enumerate().find(successor);
        let reach_changed = found.is_none_or(|(_, after)| reach_changed(before, after));
        let to = found.map(|(to, _)| to);
        if let Some(place) = to.and_then(|to| taken.get_mut(to)) {
            *place = true;
        }
        all.push(Fate { to, reach_changed });
    }
    all
}

fn reach_changed(before: &Instance, after: &Instance) -> bool {
    !same_ports(before, after)
        || before.inside_vrf != after.inside_vrf
        || before.outside_vrf != after.outside_vrf
        || before.subscribers != after.subscribers
        || before.exempt != after.exempt
        || before.statics != after.statics
        || reach_of(before) != reach_of(after)
}

/// Which IPv6 hosts an instance serves, and by what.
fn reach_of(instance: &Instance) -> Option<(&[Nat64Prefix], &[Prefix6], u8)> {
    instance.nat64.as_ref().map(Nat64::reach)
}

/// Do the two give out the same ports, so that the port tables can stay?
pub(crate) fn same_ports(before: &Instance, after: &Instance) -> bool {
    before.assignment == after.assignment
        && before.port_hold_s == after.port_hold_s
        && before.pooling == after.pooling
        && before.pools.len() == after.pools.len()
        && before.pools.iter().zip(&after.pools).all(|(a, b)| {
            a.id == b.id && a.ranges == b.ranges && (a.port_first, a.port_last) == (b.port_first, b.port_last)
        })
        && (!matches!(after.assignment, Assignment::Deterministic { .. })
            || (before.subscribers == after.subscribers && reach_of(before) == reach_of(after)))
}

/// An instance with what is built for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Built<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) directory: &'a Directory,
}

impl<'a> Built<'a> {
    pub(crate) fn rules(self) -> Option<&'a Rules> {
        self.directory.rules_of(self.instance.id)
    }

    pub(crate) fn one_to_one(self, ip: u32) -> Option<u32> {
        self.directory.one_to_one(self.instance.id, ip)
    }

    /// Does a static rule lead to the host?
    pub(crate) fn leads_to(self, host: Inside) -> bool {
        let one_to_one = match host {
            Inside::V4(ip) => self.one_to_one(ip),
            Inside::V6(_) => None,
        };
        one_to_one.is_some() || self.rules().is_some_and(|rules| rules.forwards_to(host))
    }

    fn is_forward(self, proto: Proto, outside: (u32, u16), inside: (Inside, u16)) -> bool {
        self.rules().is_some_and(|rules| rules.forwarded(proto, outside) == Some(inside))
    }

    fn is_forward_session(self, session: &Session) -> bool {
        let outside = (session.outside_ip, session.outside_port);
        self.is_forward(session.proto(), outside, (session.inside(), session.inside_port))
    }

    /// Does a forward rule claim the session's outside or inside endpoint for itself?
    fn takes(self, session: &Session) -> bool {
        let (proto, outside) = (session.proto(), (session.outside_ip, session.outside_port));
        self.rules().is_some_and(|rules| {
            rules.forwarded(proto, outside).is_some()
                || rules.leads_to(proto, (session.inside(), session.inside_port))
        })
    }

    /// Does the instance still serve this inside address, as part of the same subscriber?
    pub(crate) fn serves(self, before: &Instance, inside: Inside) -> bool {
        match inside {
            Inside::V4(ip) => {
                self.directory.instance_of_inside(self.instance.inside_vrf, ip) == Some(self.instance.id)
            }
            Inside::V6(ip) => {
                let same = |nat64: &&Nat64| {
                    before.nat64.as_ref().is_some_and(|old| old.subscriber_len == nat64.subscriber_len)
                };
                self.instance.nat64.as_ref().filter(same).is_some_and(|nat64| nat64.serves(ip))
            }
        }
    }
}

/// Would the new instance let this session be as it is?
pub(crate) fn covers(after: Built<'_>, session: &Session, endpoint_kept: bool, before: Built<'_>) -> bool {
    let (instance, old) = (after.instance, before.instance);
    let same_vrfs =
        instance.inside_vrf.0 == session.inside_vrf && instance.outside_vrf.0 == session.outside_vrf;
    // A session with an address that was exempt before was opened from there, by the mapping; it goes on. From IPv6
    // there is no way to IPv4 but through the NAT.
    let exempted =
        !session.is_six() && is_exempt(instance, session.remote_ip) && !is_exempt(old, session.remote_ip);
    if !same_vrfs || exempted {
        return false;
    }
    let has_prefix = |instance: &Instance| instance.nat64.as_ref().and_then(|n| n.prefix_of(session.via()));
    if before.is_forward_session(session) {
        return after.is_forward_session(session)
            && is_seen_alike(old, instance, session.inside())
            && (!session.is_six() || has_prefix(instance) == has_prefix(old));
    }
    if session.is_six() {
        return after.serves(old, session.inside())
            && has_prefix(instance) == has_prefix(old)
            && !after.takes(session)
            && endpoint_kept;
    }
    after.serves(old, session.inside())
        && !after.takes(session)
        && match after.one_to_one(session.inside_ip) {
            Some(outside) => outside == session.outside_ip,
            None => endpoint_kept && before.one_to_one(session.inside_ip).is_none(),
        }
}

/// The prefix that an inside host of a forward rule sees its peers by.
pub(crate) fn via_of(instance: &Instance, inside: Inside) -> Option<u16> {
    match inside {
        Inside::V4(_) => None,
        Inside::V6(_) => instance.nat64.as_ref()?.prefixes.first().map(|entry| entry.via),
    }
}

/// Is the inside host of a forward rule the same to both: by the same prefix, as part of the same subscriber?
pub(crate) fn is_seen_alike(before: &Instance, after: &Instance, inside: Inside) -> bool {
    let subscriber_len = |instance: &Instance| match inside {
        Inside::V4(_) => None,
        Inside::V6(_) => instance.nat64.as_ref().map(|nat64| nat64.subscriber_len),
    };
    via_of(before, inside) == via_of(after, inside) && subscriber_len(before) == subscriber_len(after)
}

pub(crate) fn is_forward_of(built: Built<'_>, mapping: &Mapping, inside: Inside) -> bool {
    built.instance.inside_vrf.0 == mapping.inside_vrf
        && built.instance.outside_vrf.0 == mapping.outside_vrf
        && built.is_forward(
            mapping.proto(),
            (mapping.outside_ip, mapping.outside_port),
            (inside, mapping.inside_port),
        )
}
