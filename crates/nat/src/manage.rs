//! What management does: walks, deletions, memory, reconfiguration (RFC 6888 REQ-10).

use carrack_base::{Now, Prefix, WorkerId};

use crate::engine::{Nat, idle_timeout_s};
use crate::flow::{Direction, Flow, Inside};
use crate::line::{INBOUND, Session};
use crate::row::{
    BLOCKS_MAX, BlockRow, Endpoint, Filter, HostEndpoint, MappingRow, MemoryRow, PoolRow, SessionKey,
    SessionRow, SubscriberRow,
};

/// A place in a walk over a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor(pub u32);

/// Sessions deleted together.
const DELETED_TOGETHER: usize = 16;

impl Nat {
    fn session_row(&self, session: &Session, now_s: u32) -> SessionRow {
        let timeout =
            self.policy.instances.get(self.slots.at(session.slot)).map_or(0, |i| idle_timeout_s(i, session));
        let idle_s = now_s.saturating_sub(session.seen_s);
        SessionRow {
            instance: self.slots.id(session.slot),
            proto: session.proto(),
            ip_proto: session.ip_proto,
            tcp: session.tcp(),
            inbound: session.flags & INBOUND != 0,
            inside: HostEndpoint { ip: session.inside().into(), port: session.inside_port },
            outside: session.outside(),
            remote: session.remote(),
            remote6: session.is_six().then(|| self.way_of(session).remote6().into()),
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
                instance: self.slots.id(mapping.slot),
                proto: mapping.proto(),
                inside: HostEndpoint { ip: self.tables.inside_of(mapping).into(), port: mapping.inside_port },
                via: self.prefix_of_mapping(mapping).map(|prefix| prefix.prefix()),
                outside: mapping.outside(),
                sessions: mapping.sessions,
                is_static: mapping.is_static(),
                is_asked_for: mapping.pins > 0,
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
            let ports = self.states.get(self.slots.at(subscriber.slot)).map(|s| &s.ports);
            let mut blocks = [BlockRow::default(); BLOCKS_MAX];
            for (row, block) in blocks.iter_mut().zip(subscriber.blocks()) {
                *row = ports.map_or_else(BlockRow::default, |p| p.block_row(*block));
            }
            let inside = subscriber.inside();
            let instance = self.policy.instances.get(self.slots.at(subscriber.slot));
            let row = SubscriberRow {
                instance: self.slots.id(subscriber.slot),
                inside: instance.map_or_else(|| Prefix::of(inside, 128), |i| i.subscriber_prefix(inside)),
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
        rows.push(self.syns.memory());
        rows.extend(self.controls.iter().map(|controls| controls.memory()));
        rows.extend(self.expectations.iter().map(|expectations| expectations.memory()));
        rows.extend(self.states.iter().map(|state| state.ports.memory()));
        rows
    }

    /// Sessions now.
    #[must_use]
    pub fn session_count(&self) -> usize {
        self.tables.sessions.len()
    }

    /// Sessions that have ended since start.
    #[must_use]
    pub const fn sessions_deleted(&self) -> u64 {
        self.tables.sessions_removed
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

    /// Deletes sessions by name: how many of them this worker had. As at the end of their time, what that touches is fetched for
    /// many at once.
    pub fn delete(&mut self, keys: &[SessionKey], now: Now) -> usize {
        keys.chunks(DELETED_TOGETHER).map(|keys| self.delete_some(keys, now)).sum()
    }

    fn delete_some(&mut self, keys: &[SessionKey], now: Now) -> usize {
        let index = &self.tables.session_index;
        for (_, hash) in keys.iter().flat_map(|key| self.names_of(key)) {
            index.prefetch(hash);
        }
        for (_, hash) in keys.iter().flat_map(|key| self.names_of(key)) {
            index.candidate(hash).inspect(|id| self.tables.sessions.prefetch(*id));
        }
        let (mut found, mut count) = ([0; DELETED_TOGETHER], 0);
        for key in keys {
            let id = self
                .names_of(key)
                .find_map(|(flow, hash)| self.tables.find_session(hash, &flow, Direction::Out));
            if let Some((id, place)) = id.zip(found.get_mut(count)) {
                *place = id;
                count += 1;
            }
        }
        self.end_sessions(found.into_iter().take(count), now.s())
    }

    /// What a session may be found by: an IPv6 host's by each of the instance's prefixes.
    fn names_of(&self, key: &SessionKey) -> impl Iterator<Item = (Flow, u64)> {
        let Endpoint { ip: dst, port: dport } = key.remote;
        let flow = Flow { dst, dport, sport: key.inside.port, proto: key.proto, ..Flow::default() };
        let inside = key.inside.ip.into();
        let flows = self.instance(key.instance).into_iter().flat_map(move |instance| {
            let flow = Flow { vrf: instance.inside_vrf, ..flow };
            let (four, six) = match inside {
                Inside::V4(src) => (Some(Flow { src, ..flow }), None),
                Inside::V6(src6) => (None, Some(Flow { src6, ..flow })),
            };
            let prefixes = instance.nat64.iter().flat_map(|nat64| &nat64.prefixes);
            let six =
                six.into_iter().cycle().zip(prefixes).map(|(flow, entry)| Flow { via: entry.via, ..flow });
            four.into_iter().chain(six)
        });
        flows.map(|flow| (flow, self.tables.session_hash(&flow, Direction::Out)))
    }

    /// This worker.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }
}
