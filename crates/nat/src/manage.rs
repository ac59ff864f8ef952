//! What management does: walks, deletions, memory, reconfiguration.

use std::sync::Arc;

use carrack_base::{InstanceId, Now, Proto, VrfId, WorkerId};
use carrack_tables::{ArenaError, Slab};

use crate::directory::{Directory, one_to_one_of};
use crate::engine::{InstanceState, Nat, idle_timeout_s};
use crate::flow::{Direction, session_key};
use crate::line::{FORWARD, INBOUND, INDEPENDENT, Mapping, NO_ADDRESS, NONE, Session};
use crate::policy::{Filtering, Instance, NatPolicy, StaticRule};
use crate::row::{
    BLOCKS_MAX, BlockRow, Filter, MappingRow, MemoryRow, PoolRow, SessionKey, SessionRow, SubscriberRow,
};

/// A place in a walk over a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor(pub u32);

impl Nat {
    fn session_row(&self, session: &Session, now_s: u32) -> SessionRow {
        let timeout = self
            .policy
            .instances
            .get(usize::from(session.instance))
            .map_or(0, |i| idle_timeout_s(i, session));
        let idle_s = now_s.saturating_sub(session.seen_s);
        SessionRow {
            instance: InstanceId(session.instance),
            proto: session.proto(),
            ip_proto: session.ip_proto,
            tcp: session.tcp(),
            inbound: session.flags & INBOUND != 0,
            inside: session.inside(),
            outside: session.outside(),
            remote: session.remote(),
            idle_s,
            expires_s: timeout.saturating_sub(idle_s),
            packets_out: session.packets_out,
            packets_in: session.packets_in,
        }
    }

    /// Walks at most `lines` live sessions from the cursor: calls back with each that matches, deletes it when
    /// `delete` is set. The callback says whether to go on. True when the end was reached.
    pub fn walk_sessions(
        &mut self,
        cursor: &mut Cursor,
        lines: usize,
        filter: &Filter,
        delete: bool,
        now: Now,
        mut each: impl FnMut(SessionRow) -> bool,
    ) -> bool {
        for _ in 0..lines {
            let Some((id, session)) = self.tables.sessions.iter_from(cursor.0).next() else { return true };
            let row = self.session_row(session, now.s());
            if filter.session(&row) {
                if !each(row) {
                    return false;
                }
                if delete {
                    self.end_session(id, now.s());
                }
            }
            cursor.0 = id + 1;
        }
        false
    }

    /// The same for mappings, which are only shown.
    pub fn walk_mappings(
        &self,
        cursor: &mut Cursor,
        lines: usize,
        filter: &Filter,
        mut each: impl FnMut(MappingRow) -> bool,
    ) -> bool {
        let mut walk = self.tables.mappings.iter_from(cursor.0);
        for _ in 0..lines {
            let Some((id, mapping)) = walk.next() else { return true };
            let row = MappingRow {
                instance: InstanceId(mapping.instance),
                proto: mapping.proto(),
                inside: mapping.inside(),
                outside: mapping.outside(),
                sessions: mapping.sessions,
                is_static: mapping.is_static(),
            };
            if filter.mapping(&row) && !each(row) {
                return false;
            }
            cursor.0 = id + 1;
        }
        false
    }

    /// The same for subscribers.
    pub fn walk_subscribers(
        &self,
        cursor: &mut Cursor,
        lines: usize,
        filter: &Filter,
        mut each: impl FnMut(SubscriberRow) -> bool,
    ) -> bool {
        let mut walk = self.tables.subscribers.iter_from(cursor.0);
        for _ in 0..lines {
            let Some((id, subscriber)) = walk.next() else { return true };
            let ports = self.states.get(usize::from(subscriber.instance)).map(|s| &s.ports);
            let mut blocks = [BlockRow::default(); BLOCKS_MAX];
            for (row, block) in blocks.iter_mut().zip(subscriber.blocks()) {
                *row = ports.map_or_else(BlockRow::default, |p| p.block_row(*block));
            }
            let row = SubscriberRow {
                instance: subscriber.instance(),
                inside: subscriber.inside_ip,
                outside: ports.and_then(|p| p.ip_of(subscriber.address)),
                sessions: subscriber.sessions,
                mappings: subscriber.mappings,
                block_count: subscriber.block_count,
                blocks,
            };
            if filter.subscriber(&row) && !each(row) {
                return false;
            }
            cursor.0 = id + 1;
        }
        false
    }

    /// The same for pool addresses; the cursor counts addresses through all instances.
    pub fn walk_pools(
        &self,
        cursor: &mut Cursor,
        lines: usize,
        mut each: impl FnMut(PoolRow) -> bool,
    ) -> bool {
        for _ in 0..lines {
            let mut number = cursor.0 as usize;
            let found = self.policy.instances.iter().zip(&self.states).find_map(|(instance, state)| {
                let count = state.ports.address_count();
                if number < count {
                    return state.ports.row(instance, number);
                }
                number -= count;
                None
            });
            let Some(row) = found else { return true };
            if !each(row) {
                return false;
            }
            cursor.0 += 1;
        }
        false
    }

    /// One row a table.
    #[must_use]
    pub fn memory(&self) -> Vec<MemoryRow> {
        let mut rows = Vec::new();
        self.tables.memory(&mut rows);
        for state in &self.states {
            let (total, bytes, pages) = state.ports.memory();
            let used = state.ports.mappings;
            rows.push(MemoryRow { table: "pool-addresses", total, used, bytes, pages });
        }
        rows
    }

    /// Sessions now.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.tables.sessions.len()
    }

    /// Mappings now, static ones included.
    #[must_use]
    pub fn mapping_count(&self) -> usize {
        self.tables.mappings.len()
    }

    /// Subscribers now.
    #[must_use]
    pub fn subscriber_count(&self) -> usize {
        self.tables.subscribers.len()
    }

    /// Bytes of sessions, mappings, subscribers and their indexes and timers, as reserved.
    #[must_use]
    pub const fn table_bytes(&self) -> usize {
        self.tables.bytes()
    }

    /// Deletes one session by name. False when this worker has none of it.
    pub fn delete(&mut self, key: &SessionKey, now: Now) -> bool {
        let Some(instance) = self.instance(key.instance) else { return false };
        let vrf = instance.inside_vrf;
        let hash = self.tables.hash(session_key(key.inside, key.remote, vrf, key.proto, Direction::Out));
        let found = self.tables.session_index.find(hash, |id| {
            self.tables.sessions.get(id).is_some_and(|s| {
                s.inside() == key.inside
                    && s.remote() == key.remote
                    && s.proto() == key.proto
                    && s.inside_vrf == vrf.0
            })
        });
        found.is_some_and(|id| self.end_session(id, now.s()))
    }

    /// Takes a new policy into force. Sessions that it still covers go on untouched; the others end. Returns how many
    /// ended. On error nothing has changed.
    ///
    /// # Errors
    /// When memory for a changed pool cannot be had.
    pub fn configure(&mut self, policy: Arc<NatPolicy>, now: Now) -> Result<u64, ArenaError> {
        let old = self.policy.clone();
        let mut fresh: Vec<Option<InstanceState>> = Vec::with_capacity(policy.instances.len());
        for instance in &policy.instances {
            let same =
                old.instances.get(instance.id.index()).is_some_and(|before| same_ports(before, instance));
            fresh.push(if same && self.states.len() > instance.id.index() {
                None
            } else {
                Some(InstanceState::new(instance, self.worker, self.workers, self.pages)?)
            });
        }
        if policy.instances.iter().any(|i| i.filtering.contains(&Filtering::AddressDependent)) {
            self.tables.need_permissions()?;
        }
        let ended = self.end_uncovered(&policy, &fresh, now.s());
        self.end_changed_forwards(&policy, &fresh, now.s());
        self.directory = Directory::new(&policy, self.workers, self.hasher.clone());
        self.policy = policy;
        for (at, state) in fresh.into_iter().enumerate() {
            match (state, self.states.get_mut(at)) {
                (Some(state), Some(place)) => *place = state,
                (Some(state), None) => self.states.push(state),
                (None, _) => {}
            }
        }
        self.states.truncate(self.policy.instances.len());
        self.add_forwards(now.s());
        if old.instances.iter().map(|i| &i.timeouts).ne(self.policy.instances.iter().map(|i| &i.timeouts)) {
            self.rearm(now.s());
        }
        Ok(ended)
    }

    /// Ends sessions that the new policy does not cover, by the old policy's states (which still hold their ports).
    fn end_uncovered(&mut self, policy: &NatPolicy, fresh: &[Option<InstanceState>], now_s: u32) -> u64 {
        if self.tables.sessions.is_empty() {
            return 0;
        }
        let (mut cursor, mut ended) = (0, 0);
        while let Some((id, session)) = next_live(&self.tables.sessions, cursor) {
            cursor = id + 1;
            let at = usize::from(session.instance);
            let covered = policy.instances.get(at).is_some_and(|instance| {
                let pool_kept = fresh.get(at).is_some_and(Option::is_none);
                covers(instance, &session, pool_kept, self.policy.instances.get(at))
            });
            if !covered {
                self.end_session(id, now_s);
                ended += 1;
            }
        }
        // A subscriber may keep idle blocks of a pool that goes away.
        let mut cursor = 0;
        while let Some((id, subscriber)) = next_live(&self.tables.subscribers, cursor) {
            cursor = id + 1;
            if fresh.get(subscriber.instance().index()).is_none_or(Option::is_some) {
                self.leave_pool(id, now_s);
            }
        }
        ended
    }

    /// The pool of a subscriber's instance is going away: it gives back its blocks and its address.
    fn leave_pool(&mut self, id: u32, now_s: u32) {
        let Self { tables, states, policy, events, .. } = self;
        let Some(subscriber) = tables.subscribers.get_mut(id) else { return };
        let at = subscriber.instance().index();
        let (Some(instance), Some(state)) = (policy.instances.get(at), states.get_mut(at)) else { return };
        let mut send = |event| events.push(event);
        while let Some(block) = subscriber.blocks().first().copied() {
            state.ports.release_block(instance, subscriber, block, now_s, &mut send);
        }
        state.ports.unbind(instance, subscriber, &mut send);
        if subscriber.is_unused() {
            tables.remove_subscriber(id);
        }
    }

    /// Removes mappings of forward rules that are gone or changed.
    fn end_changed_forwards(&mut self, policy: &NatPolicy, fresh: &[Option<InstanceState>], now_s: u32) {
        let mut cursor = 0;
        while let Some((id, mapping)) = next_live(&self.tables.mappings, cursor) {
            cursor = id + 1;
            if mapping.flags & FORWARD == 0 {
                continue;
            }
            let at = usize::from(mapping.instance);
            let kept = policy.instances.get(at).is_some_and(|i| is_forward_of(i, &mapping));
            if !kept && mapping.sessions == 0 {
                self.tables.remove_mapping(id);
                if mapping.address != NO_ADDRESS
                    && fresh.get(at).is_some_and(Option::is_none)
                    && let Some(state) = self.states.get_mut(at)
                {
                    let hold = mapping.proto() != Proto::Tcp;
                    state.ports.release(mapping.address, mapping.outside_port, mapping.proto(), now_s, hold);
                }
            }
        }
    }

    /// Makes the mappings of forward rules, each on the worker that owns its inside address.
    fn add_forwards(&mut self, now_s: u32) {
        let policy = self.policy.clone();
        for instance in &policy.instances {
            for rule in &instance.statics {
                let StaticRule::Forward { proto, outside, outside_port, count, inside, inside_port } = *rule
                else {
                    continue;
                };
                let state = self.states.get_mut(instance.id.index());
                let number = state.as_ref().and_then(|s| s.ports.number_of(outside));
                for step in 0..count {
                    let port = outside_port.wrapping_add(step);
                    // Every worker keeps the port from its subscribers, whoever owns the mapping.
                    if let (Some(number), Some(state)) = (number, self.states.get_mut(instance.id.index())) {
                        state.ports.reserve(number, proto, port, now_s);
                    }
                    self.add_forward(
                        instance,
                        proto,
                        (outside, port),
                        (inside, inside_port.wrapping_add(step)),
                        number,
                    );
                }
            }
        }
    }

    fn add_forward(
        &mut self,
        instance: &Instance,
        proto: Proto,
        outside: (u32, u16),
        inside: (u32, u16),
        number: Option<u16>,
    ) {
        if self.directory.owner_of_inside(instance.inside_vrf, inside.0) != self.worker {
            return;
        }
        let line = Mapping {
            inside_ip: inside.0,
            outside_ip: outside.0,
            inside_port: inside.1,
            outside_port: outside.1,
            inside_vrf: instance.inside_vrf.0,
            outside_vrf: instance.outside_vrf.0,
            instance: instance.id.0,
            address: number.unwrap_or(NO_ADDRESS),
            subscriber: NONE,
            sessions: 0,
            proto: proto as u8,
            flags: INDEPENDENT | FORWARD,
        };
        let (local, vrf) = (line.outside(), VrfId(line.outside_vrf));
        match self.tables.find_mapping(local, vrf, proto, Direction::In) {
            // The rule was there before; its pool may have been numbered anew.
            Some(id) => {
                if let Some(mapping) = self.tables.mappings.get_mut(id) {
                    mapping.address = line.address;
                }
            }
            None => {
                if let Err(reason) = self.tables.add_mapping(line) {
                    self.note_refusal(instance.id.index(), line.inside_ip, reason);
                }
            }
        }
    }

    /// Timeouts changed: every session is looked at within the next half minute and gets its new deadline.
    fn rearm(&mut self, now_s: u32) {
        let mut cursor = 0;
        while let Some((id, _)) = next_live(&self.tables.sessions, cursor) {
            cursor = id + 1;
            self.tables.deadlines.set(id, now_s + 1 + id % 32);
        }
    }

    /// This worker.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }
}

/// A copy of the first live line from the cursor on.
fn next_live<T: Copy + Default>(slab: &Slab<T>, cursor: u32) -> Option<(u32, T)> {
    slab.iter_from(cursor).next().map(|(id, line)| (id, *line))
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
        && (!matches!(after.assignment, crate::policy::Assignment::Deterministic { .. })
            || before.subscribers == after.subscribers)
}

/// Would the new instance let this session be as it is?
fn covers(instance: &Instance, session: &Session, pool_kept: bool, before: Option<&Instance>) -> bool {
    let same_place = instance.inside_vrf.0 == session.inside_vrf
        && instance.outside_vrf.0 == session.outside_vrf
        && instance.subscribers.iter().any(|prefix| prefix.contains(session.inside_ip))
        && !crate::directory::is_exempt(instance, session.remote_ip);
    if !same_place {
        return false;
    }
    if before.is_some_and(|b| is_forward_session(b, session)) {
        return is_forward_session(instance, session);
    }
    match one_to_one_of(instance, session.inside_ip) {
        Some(outside) => outside == session.outside_ip,
        None => pool_kept && before.is_none_or(|before| one_to_one_of(before, session.inside_ip).is_none()),
    }
}

fn is_forward(instance: &Instance, proto: Proto, outside: (u32, u16), inside: (u32, u16)) -> bool {
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

fn is_forward_of(instance: &Instance, mapping: &Mapping) -> bool {
    instance.inside_vrf.0 == mapping.inside_vrf
        && instance.outside_vrf.0 == mapping.outside_vrf
        && is_forward(
            instance,
            mapping.proto(),
            (mapping.outside_ip, mapping.outside_port),
            (mapping.inside_ip, mapping.inside_port),
        )
}

fn is_forward_session(instance: &Instance, session: &Session) -> bool {
    is_forward(
        instance,
        session.proto(),
        (session.outside_ip, session.outside_port),
        (session.inside_ip, session.inside_port),
    )
}
