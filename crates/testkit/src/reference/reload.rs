//! What a change of policy leaves standing.

use carrack_nat::policy::{Assignment, Instance};

use super::policy::{
    forward_at, forwards, in_overflow, in_pool, is_denied, is_exempt, one_to_one, seen_as, share,
    subscriber_of,
};
use super::state::Life;
use super::{Flow, Kind, Mapping, Reference};

impl Reference {
    /// A new policy is in force: what it does not cover has ended, the rest goes on.
    pub fn reload(&mut self, policy: Instance) {
        self.tidy();
        for flow in self.sessions.keys().copied().collect::<Vec<_>>() {
            let life = self.session_life(&flow);
            let Some(session) = self.sessions.get(&flow) else { continue };
            let Some(mapping) = self.mappings.get(&session.mapping) else { continue };
            match self.covers(&policy, &flow, mapping) {
                Life::No => self.end_session(&flow, true),
                Life::Yes if life == Life::Yes => {}
                _ => {
                    if let Some(session) = self.sessions.get_mut(&flow) {
                        session.in_doubt = true;
                    }
                }
            }
        }
        let kept = forwards(&policy);
        self.mappings.retain(|_, m| {
            m.kind != Kind::Forward
                || kept.iter().any(|f| (f.0, Some(f.1), f.2) == (m.proto, m.outside, m.inside))
        });
        self.policy = policy;
        self.reloaded_s = self.now_s;
        self.epoch += 1;
        self.freed.clear();
        for creations in self.creations.values_mut() {
            let sure = std::mem::take(&mut creations.sure);
            creations.perhaps.extend(sure);
        }
        self.add_forwards();
    }

    /// The instance is taken out of force; what it will be when it comes back it is already told.
    pub fn cease(&mut self) {
        self.sessions.clear();
        self.mappings.clear();
        self.creations.clear();
        self.freed.clear();
        self.epoch += 1;
    }

    /// The instance is in force (again), after a reload of whatever instance: the engine looks anew at all sessions.
    pub fn resume(&mut self) {
        self.reloaded_s = self.now_s;
        self.add_forwards();
    }

    /// Does the new policy let a session be as it is?
    fn covers(&self, policy: &Instance, flow: &Flow, mapping: &Mapping) -> Life {
        let (proto, inside, remote) = *flow;
        let sure = |is: bool| if is { Life::Yes } else { Life::No };
        // One with an address that was exempt before was opened from there.
        if is_exempt(policy, inside.ip, remote.ip) && !is_exempt(&self.policy, inside.ip, remote.ip) {
            return Life::No;
        }
        // Its remotes would have other addresses.
        let sees_anew = seen_as(policy, inside.via, remote) != seen_as(&self.policy, inside.via, remote);
        if mapping.kind == Kind::Forward {
            let kept = mapping.outside.and_then(|at| forward_at(policy, proto, at)) == Some(mapping.inside);
            return sure(
                kept && !sees_anew && subscriber_of(policy, inside.ip) == self.subscriber(inside.ip),
            );
        }
        let claimed = forwards(policy).iter().any(|(p, at, to)| {
            let same = to.endpoint() == inside.endpoint();
            *p == proto && (Some(*at) == mapping.outside || same)
        });
        let subscribes_anew = subscriber_of(policy, inside.ip) != self.subscriber(inside.ip);
        if is_denied(policy, inside.ip) || claimed || subscribes_anew || sees_anew {
            return Life::No;
        }
        if mapping.kind == Kind::OneToOne || one_to_one(policy, inside.ip).is_some() {
            let kept = mapping.kind == Kind::OneToOne
                && one_to_one(policy, inside.ip) == mapping.outside.map(|o| o.ip);
            return sure(kept);
        }
        // An endpoint nobody saw may be anywhere: whether it went shows later.
        let Some(outside) = mapping.outside else { return Life::Maybe };
        match (self.policy.assignment, policy.assignment) {
            (Assignment::Arbitrary, Assignment::Arbitrary) => {}
            (Assignment::Blocks { size: a, .. }, Assignment::Blocks { size: b, .. }) if a == b => {}
            (Assignment::Deterministic { .. }, Assignment::Deterministic { .. }) => {
                let size = |policy: &Instance| policy.assignment.blocks().map(|blocks| blocks.size);
                let beyond = in_overflow(&self.policy, outside);
                let block_kept = beyond && in_overflow(policy, outside) && size(&self.policy) == size(policy);
                let share = share(policy, self.subscriber(inside.ip));
                return sure(share.is_some_and(|(ip, first, last)| {
                    let own = !beyond && (first..=last).contains(&outside.port);
                    ip == outside.ip && (own || block_kept)
                }));
            }
            _ => return Life::No,
        }
        let ports =
            |policy: &Instance| policy.pools.iter().map(|p| (p.port_first, p.port_last)).collect::<Vec<_>>();
        match in_pool(policy, outside) {
            false => Life::No,
            // Another range of ports is shared out anew between several workers.
            true if self.workers > 1 && ports(policy) != ports(&self.policy) => Life::Maybe,
            true => Life::Yes,
        }
    }
}
