//! A new policy in force: what it still covers goes on untouched, the rest ends.

use std::sync::Arc;

use carrack_base::{InstanceId, Now, Proto, Reason, VrfId, WorkerId};
use carrack_tables::{ArenaError, Slab};

use crate::directory::{Directory, is_exempt, one_to_one_of};
use crate::engine::{InstanceState, Nat};
use crate::flow::{Direction, Inside};
use crate::line::{FORWARD, INDEPENDENT, Mapping, NO_ADDRESS, NONE, SIX, Session};
use crate::nat64::Nat64;
use crate::policy::{Assignment, Filtering, Instance, NatPolicy, Pooling, StaticRule};
use crate::pool::held_ports_max;

/// What becomes of one old instance.
struct Change {
    /// Its number in the new policy; `None` when it is gone.
    to: Option<usize>,
    /// Do sessions have to be looked at one by one? No when only timers, limits and the like changed.
    reach_changed: bool,
}

impl Nat {
    /// Takes a new policy into force. Sessions that it still covers go on untouched; the others end. Returns how many
    /// ended. Instances are known by name. On error nothing has changed.
    ///
    /// # Errors
    /// When memory for a changed pool cannot be had.
    pub fn configure(&mut self, policy: Arc<NatPolicy>, now: Now) -> Result<u64, ArenaError> {
        let old = self.policy.clone();
        if *old == *policy && self.states.len() == policy.instances.len() {
            self.policy = policy;
            return Ok(0);
        }
        let changes = changes(&old, &policy);
        let mut fresh: Vec<Option<InstanceState>> = Vec::with_capacity(policy.instances.len());
        for (to, instance) in policy.instances.iter().enumerate() {
            let before = changes.iter().position(|change| change.to == Some(to));
            let before = before.and_then(|at| old.instances.get(at));
            fresh.push(if before.is_some_and(|before| same_ports(before, instance)) {
                None
            } else {
                Some(InstanceState::new(instance, self.worker, &self.group, self.pages)?)
            });
        }
        if policy.instances.iter().any(|i| i.filtering.contains(&Filtering::AddressDependent)) {
            self.tables.need_permissions()?;
        }
        if policy.instances.iter().any(|i| i.nat64.is_some()) {
            self.tables.need_hosts()?;
        }
        // Timers, limits and the like look at no session here: a table of millions must not keep packets waiting.
        let mut ended = 0;
        if changes.iter().any(|change| change.reach_changed) {
            ended = self.end_uncovered(&policy, &changes, &fresh, now.s());
            self.end_changed_forwards(&policy, &changes);
            self.leave_pools(&policy, &changes, &fresh, now.s());
        }
        self.directory = Directory::new(&policy, &self.group);
        self.policy = policy;
        self.take_states(&changes, fresh, now.s());
        self.add_forwards(now.s());
        let timeouts = old.instances.iter().map(|i| &i.timeouts);
        self.renewal.start(timeouts.ne(self.policy.instances.iter().map(|i| &i.timeouts)));
        self.renew_some(now.s());
        Ok(ended)
    }

    /// Ends sessions that the new policy does not cover, by the old policy's states (which still hold their ports).
    fn end_uncovered(
        &mut self,
        policy: &NatPolicy,
        changes: &[Change],
        fresh: &[Option<InstanceState>],
        now_s: u32,
    ) -> u64 {
        let old = self.policy.clone();
        let (mut cursor, mut ended) = (0, 0);
        while let Some((id, session)) = next_live(&self.tables.sessions, cursor) {
            cursor = id + 1;
            let at = usize::from(session.instance);
            let (Some(change), Some(before)) = (changes.get(at), old.instances.get(at)) else { continue };
            if !change.reach_changed {
                continue;
            }
            let covered = change.to.is_some_and(|to| {
                let (Some(instance), Some(state)) = (policy.instances.get(to), fresh.get(to)) else {
                    return false;
                };
                let endpoint_kept = match (state, self.states.get(at)) {
                    (None, _) => true,
                    (Some(new), Some(old)) => {
                        let subscriber =
                            self.directory.subscriber_of(InstanceId(session.instance), session.inside());
                        new.ports.could_have_given(&session, subscriber, &old.ports)
                    }
                    (Some(_), None) => false,
                };
                covers(instance, &session, endpoint_kept, before)
            });
            if !covered {
                self.end_session(id, now_s);
                ended += 1;
            }
        }
        ended
    }

    /// Subscribers of instances that serve them no more, or by other pools, give back what they cannot keep.
    fn leave_pools(
        &mut self,
        policy: &NatPolicy,
        changes: &[Change],
        fresh: &[Option<InstanceState>],
        now_s: u32,
    ) {
        let old = self.policy.clone();
        let mut cursor = 0;
        while let Some((id, subscriber)) = next_live(&self.tables.subscribers, cursor) {
            cursor = id + 1;
            let at = subscriber.instance().index();
            let (Some(change), Some(before)) = (changes.get(at), old.instances.get(at)) else { continue };
            let served = change.to.and_then(|to| policy.instances.get(to)).is_some_and(|instance| {
                instance.inside_vrf.0 == subscriber.inside_vrf && serves(instance, before, subscriber.who())
            });
            let new = change.to.and_then(|to| fresh.get(to)).and_then(Option::as_ref).filter(|_| served);
            if served && new.is_none() {
                continue;
            }
            let Self { tables, states, events, .. } = self;
            let (Some(line), Some(state)) = (tables.subscribers.get_mut(id), states.get_mut(at)) else {
                continue;
            };
            let mut send = |event| {
                events.push(event);
            };
            for block in subscriber.blocks() {
                if new.is_none_or(|new| new.ports.block_like(&state.ports, *block).is_none()) {
                    state.ports.release_block(before, line, *block, now_s, &mut send);
                }
            }
            let ip = state.ports.ip_of(line.address);
            let paired = change.to.and_then(|to| policy.instances.get(to)).map(|i| i.pooling);
            let keeps = |new: &InstanceState| ip.is_some_and(|ip| new.ports.number_of(ip).is_some());
            if paired != Some(Pooling::Paired) || !new.is_some_and(keeps) {
                state.ports.unbind(before, line, &mut send);
            }
            if line.is_unused() {
                tables.remove_subscriber(id);
            }
        }
    }

    /// Removes mappings of forward rules that are gone or changed. Their sessions have ended.
    fn end_changed_forwards(&mut self, policy: &NatPolicy, changes: &[Change]) {
        let mut cursor = 0;
        while let Some((id, mapping)) = next_live(&self.tables.mappings, cursor) {
            cursor = id + 1;
            let to = changes.get(usize::from(mapping.instance)).and_then(|change| change.to);
            let inside = self.tables.inside_of(&mapping);
            let via = self.tables.host(mapping.inside_ip).filter(|_| mapping.is_six()).map(|host| host.via);
            let kept = to
                .and_then(|to| policy.instances.get(to))
                .is_some_and(|i| is_forward_of(i, &mapping, inside) && via == via_of(i, inside));
            if mapping.flags & FORWARD != 0 && !kept && mapping.sessions == 0 {
                self.tables.remove_mapping(id);
            }
        }
    }

    /// Puts the states in the new order; new port tables take over from those they replace.
    fn take_states(&mut self, changes: &[Change], fresh: Vec<Option<InstanceState>>, now_s: u32) {
        let policy = self.policy.clone();
        let mut old: Vec<Option<InstanceState>> =
            std::mem::take(&mut self.states).into_iter().map(Some).collect();
        let from = |to: usize| changes.iter().position(|change| change.to == Some(to));
        // Old tables that were replaced, by the number of their successor.
        let mut replaced: Vec<Option<InstanceState>> = Vec::new();
        for (to, state) in fresh.into_iter().enumerate() {
            let before = from(to).and_then(|at| old.get_mut(at)).and_then(Option::take);
            match (state, before) {
                (Some(mut state), mut before) => {
                    if let Some(before) = &mut before {
                        state.ports.adopt_addresses(&mut before.ports, now_s);
                    }
                    self.states.push(state);
                    replaced.push(before);
                }
                (None, Some(before)) => {
                    self.states.push(before);
                    replaced.push(None);
                }
                // Invariant: without a new state there is an old one, of the same name.
                (None, None) => debug_assert!(false, "an instance without state"),
            }
        }
        let moved = changes.iter().enumerate().any(|(at, change)| change.to != Some(at));
        if moved || replaced.iter().any(Option::is_some) {
            self.renumber(changes, &mut replaced, &policy, now_s);
        }
        for ((state, before), instance) in self.states.iter_mut().zip(&replaced).zip(&policy.instances) {
            state.ports.held_ports_max = held_ports_max(instance, &self.group);
            if before.is_some() {
                state.ports.settle();
            }
        }
    }

    /// Gives subscribers and mappings the numbers of their instance and pool address in the new policy.
    fn renumber(
        &mut self,
        changes: &[Change],
        replaced: &mut [Option<InstanceState>],
        policy: &NatPolicy,
        now_s: u32,
    ) {
        let Self { tables, states, .. } = self;
        let mut cursor = 0;
        while let Some((id, line)) = next_live(&tables.subscribers, cursor) {
            cursor = id + 1;
            let to = changes.get(usize::from(line.instance)).and_then(|change| change.to);
            let (Some(to), Some(subscriber)) = (to, tables.subscribers.get_mut(id)) else { continue };
            subscriber.instance = to as u16;
            if let (Some(Some(before)), Some(state)) = (replaced.get_mut(to), states.get_mut(to)) {
                let paired = policy.instances.get(to).is_some_and(|i| i.pooling == Pooling::Paired);
                state.ports.adopt_subscriber(&mut before.ports, id, subscriber, paired);
            }
        }
        let mut cursor = 0;
        while let Some((id, line)) = next_live(&tables.mappings, cursor) {
            cursor = id + 1;
            let to = changes.get(usize::from(line.instance)).and_then(|change| change.to);
            let (Some(to), Some(mapping)) = (to, tables.mappings.get_mut(id)) else { continue };
            mapping.instance = to as u16;
            if replaced.get(to).is_some_and(Option::is_some)
                && !mapping.is_static()
                && let Some(state) = states.get_mut(to)
            {
                state.ports.adopt_mapping(mapping, now_s);
            }
        }
        let mut cursor = 0;
        while let Some((id, line)) = next_live(&tables.sessions, cursor) {
            cursor = id + 1;
            let to = changes.get(usize::from(line.instance)).and_then(|change| change.to);
            if let (Some(to), Some(session)) = (to, tables.sessions.get_mut(id)) {
                session.instance = to as u16;
            }
        }
    }

    /// Makes the mappings of forward rules, each on the worker that owns its inside address.
    fn add_forwards(&mut self, now_s: u32) {
        self.forwards_missing = false;
        let policy = self.policy.clone();
        for instance in &policy.instances {
            let mut ports = Vec::new();
            for rule in &instance.statics {
                let StaticRule::Forward { proto, outside, outside_port, count, inside, inside_port } = *rule
                else {
                    continue;
                };
                let state = self.states.get(instance.id.index());
                let number = state.and_then(|state| state.ports.number_of(outside));
                for step in 0..count {
                    let port = outside_port.wrapping_add(step);
                    // The worker that gives out the port keeps it from its subscribers, whoever owns the mapping.
                    let state = self.states.get(instance.id.index());
                    if let (Some(number), Some(state)) = (number, state)
                        && state.ports.is_mine(number, port)
                        && self.gives_out(state, instance, (outside, port))
                    {
                        ports.push((number, proto as u8, port));
                    }
                    let to = (inside, inside_port.wrapping_add(step));
                    self.add_forward(instance, proto, (outside, port), to);
                }
            }
            ports.sort_unstable();
            if let Some(state) = self.states.get_mut(instance.id.index()) {
                state.ports.set_forwards(ports, now_s);
            }
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
        let line = Mapping {
            inside_ip,
            outside_ip: outside.0,
            inside_port: inside.1,
            outside_port: outside.1,
            inside_vrf: instance.inside_vrf.0,
            outside_vrf: instance.outside_vrf.0,
            instance: instance.id.0,
            address: NO_ADDRESS,
            subscriber: NONE,
            sessions: 0,
            proto: proto as u8,
            flags: INDEPENDENT | FORWARD | if matches!(inside.0, Inside::V6(_)) { SIX } else { 0 },
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
        match self.tables.find_host(ip, via, instance.inside_vrf) {
            Some(id) => Ok(id),
            None => self.tables.add_host(ip, via, instance.inside_vrf),
        }
    }

    /// Forward rules that found the mapping table full are tried again each second, until all have their mapping.
    pub(crate) fn retry_forwards(&mut self) {
        if !std::mem::take(&mut self.forwards_missing) {
            return;
        }
        let policy = self.policy.clone();
        for instance in &policy.instances {
            for rule in &instance.statics {
                let StaticRule::Forward { proto, outside, outside_port, count, inside, inside_port } = *rule
                else {
                    continue;
                };
                for step in 0..count {
                    let at = (outside, outside_port.wrapping_add(step));
                    self.add_forward(instance, proto, at, (inside, inside_port.wrapping_add(step)));
                }
            }
        }
    }
}

/// A copy of the first live line from the cursor on.
fn next_live<T: Copy + Default>(slab: &Slab<T>, cursor: u32) -> Option<(u32, T)> {
    slab.iter_from(cursor).next().map(|(id, line)| (id, *line))
}

/// What becomes of each old instance; every new one is the successor of one at most.
fn changes(old: &NatPolicy, policy: &NatPolicy) -> Vec<Change> {
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
        all.push(Change { to, reach_changed });
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
        || before.nat64 != after.nat64
}

/// Do the two give out the same ports, so that the port tables can stay?
fn same_ports(before: &Instance, after: &Instance) -> bool {
    before.assignment == after.assignment
        && before.port_hold_s == after.port_hold_s
        && before.pooling == after.pooling
        && before.pools.len() == after.pools.len()
        && before.pools.iter().zip(&after.pools).all(|(a, b)| {
            a.id == b.id && a.ranges == b.ranges && (a.port_first, a.port_last) == (b.port_first, b.port_last)
        })
        && (!matches!(after.assignment, Assignment::Deterministic { .. })
            || (before.subscribers == after.subscribers && before.nat64 == after.nat64))
}

/// Would the new instance let this session be as it is?
fn covers(instance: &Instance, session: &Session, endpoint_kept: bool, before: &Instance) -> bool {
    let same_vrfs =
        instance.inside_vrf.0 == session.inside_vrf && instance.outside_vrf.0 == session.outside_vrf;
    // A session with an address that was exempt before was opened from there, by the mapping; it goes on.
    let exempted = is_exempt(instance, session.remote_ip) && !is_exempt(before, session.remote_ip);
    if !same_vrfs || exempted {
        return false;
    }
    if is_forward_session(before, session) {
        return is_forward_session(instance, session);
    }
    let has_prefix = |instance: &Instance| instance.nat64.as_ref().and_then(|n| n.prefix_of(session.via()));
    if session.is_six() {
        return serves(instance, before, session.inside())
            && has_prefix(instance) == has_prefix(before)
            && !is_taken_by_forward(instance, session)
            && endpoint_kept;
    }
    serves(instance, before, session.inside())
        && !is_taken_by_forward(instance, session)
        && match one_to_one_of(instance, session.inside_ip) {
            Some(outside) => outside == session.outside_ip,
            None => endpoint_kept && one_to_one_of(before, session.inside_ip).is_none(),
        }
}

/// Does a forward rule claim the session's outside or inside endpoint for itself?
fn is_taken_by_forward(instance: &Instance, session: &Session) -> bool {
    let within = |port: u16, first: u16, count: u16| port.checked_sub(first).is_some_and(|step| step < count);
    instance.statics.iter().any(|rule| match *rule {
        StaticRule::Forward { proto, outside, outside_port, count, inside, inside_port } => {
            proto == session.proto()
                && ((outside == session.outside_ip && within(session.outside_port, outside_port, count))
                    || (inside == session.inside() && within(session.inside_port, inside_port, count)))
        }
        StaticRule::OneToOne { .. } => false,
    })
}

/// Does the instance still serve this inside address, as part of the same subscriber?
fn serves(instance: &Instance, before: &Instance, inside: Inside) -> bool {
    match inside {
        Inside::V4(ip) => instance.subscribers.iter().any(|prefix| prefix.contains(ip)),
        Inside::V6(ip) => {
            let same = |nat64: &&Nat64| {
                before.nat64.as_ref().is_some_and(|old| old.subscriber_len == nat64.subscriber_len)
            };
            instance.nat64.as_ref().filter(same).is_some_and(|nat64| nat64.serves(ip))
        }
    }
}

/// The prefix that an inside host of a forward rule sees its peers by.
fn via_of(instance: &Instance, inside: Inside) -> Option<u16> {
    match inside {
        Inside::V4(_) => None,
        Inside::V6(_) => instance.nat64.as_ref()?.prefixes.first().map(|entry| entry.via),
    }
}

fn is_forward(instance: &Instance, proto: Proto, outside: (u32, u16), inside: (Inside, u16)) -> bool {
    instance.statics.iter().any(|rule| match *rule {
        StaticRule::Forward { proto: p, outside: o, outside_port, count, inside: i, inside_port } => {
            p == proto
                && o == outside.0
                && i == inside.0
                && outside
                    .1
                    .checked_sub(outside_port)
                    .is_some_and(|step| step < count && inside_port.wrapping_add(step) == inside.1)
        }
        StaticRule::OneToOne { .. } => false,
    })
}

fn is_forward_of(instance: &Instance, mapping: &Mapping, inside: Inside) -> bool {
    instance.inside_vrf.0 == mapping.inside_vrf
        && instance.outside_vrf.0 == mapping.outside_vrf
        && is_forward(
            instance,
            mapping.proto(),
            (mapping.outside_ip, mapping.outside_port),
            (inside, mapping.inside_port),
        )
}

fn is_forward_session(instance: &Instance, session: &Session) -> bool {
    is_forward(
        instance,
        session.proto(),
        (session.outside_ip, session.outside_port),
        (session.inside(), session.inside_port),
    )
}
