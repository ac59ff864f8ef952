//! What management does: walks, deletions, memory, reconfiguration (RFC 6888 REQ-10).

use carrack_base::{Now, WorkerId};

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
            let row = SubscriberRow {
                instance: self.slots.id(subscriber.slot),
                inside: subscriber.inside(),
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
        if let (Some(controls), Some(expectations)) = (&self.controls, &self.expectations) {
            let pages = crate::pool::page_name(carrack_tables::PageKind::Small);
            let tables =
                [("gateway-connections", controls.memory()), ("gateway-expectations", expectations.memory())];
            for (table, (total, used, bytes)) in tables {
                rows.push(MemoryRow {
                    table,
                    total: total as u64,
                    used: used as u64,
                    bytes: bytes as u64,
                    pages,
                });
            }
        }
        for state in &self.states {
            let (total, used, bytes, pages) = state.ports.memory();
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
        let Endpoint { ip: dst, port: dport } = key.remote;
        let flow = Flow { dst, dport, sport: key.inside.port, vrf, proto: key.proto, ..Flow::default() };
        let find = |flow: Flow| {
            let hash = self.tables.session_hash(&flow, Direction::Out);
            self.tables.find_session(hash, &flow, Direction::Out)
        };
        let found = match key.inside.ip.into() {
            Inside::V4(src) => find(Flow { src, ..flow }),
            Inside::V6(src6) => {
                let prefixes = instance.nat64.iter().flat_map(|nat64| &nat64.prefixes);
                prefixes.into_iter().find_map(|entry| find(Flow { src6, via: entry.via, ..flow }))
            }
        };
        found.is_some_and(|id| self.end_session(id, now.s()))
    }

    /// This worker.
    #[must_use]
    pub const fn worker(&self) -> WorkerId {
        self.worker
    }
}
