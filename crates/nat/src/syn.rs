//! Unsolicited TCP SYNs from outside, held for a while (RFC 5382 REQ-4): if the inside sends a matching SYN in that
//! time the two were a simultaneous open and the held one is silently dropped; else it is answered with an ICMP error.

use std::collections::VecDeque;

use carrack_base::{BURST_PACKETS_MAX, VrfId};
use carrack_tables::{Arena, ArenaError, Backing, Index, KeyedHasher, PagePreference, Slab};

use crate::flow::{Direction, Flow};
use crate::row::{Endpoint, MemoryRow};

/// Bytes of the packet kept for the answer: IPv4 header with options and 8 bytes more.
pub const KEPT_BYTES: usize = 68;

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Held {
    key: [u64; 2],
    due_s: u32,
    vrf: u16,
    len: u8,
    bytes: [u8; KEPT_BYTES],
}

impl Default for Held {
    fn default() -> Self {
        Self { key: [0; 2], due_s: 0, vrf: 0, len: 0, bytes: [0; KEPT_BYTES] }
    }
}

impl Held {
    fn packet(&self) -> OverdueSyn {
        OverdueSyn { vrf: VrfId(self.vrf), len: self.len, bytes: self.bytes }
    }
}

/// A SYN whose time is over: answer it.
#[derive(Debug, Clone, Copy)]
pub struct OverdueSyn {
    /// Routing instance it came in by.
    pub vrf: VrfId,
    /// Valid bytes.
    pub len: u8,
    /// From its IPv4 header on.
    pub bytes: [u8; KEPT_BYTES],
}

impl OverdueSyn {
    /// The start of the packet.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }
}

/// What became of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Held,
    AlreadyHeld,
    Full,
}

/// The table, bounded.
#[derive(Debug)]
pub(crate) struct SynTable {
    lines: Slab<Held>,
    index: Index,
    hasher: KeyedHasher,
    /// Lines in order of arrival; `true` while the line still waits.
    order: VecDeque<(u32, u32)>,
    capacity: usize,
    /// Absorbed ones that nobody has looked at yet; those beyond its room are not kept.
    pub(crate) absorbed: VecDeque<OverdueSyn>,
    backing: Backing,
}

impl SynTable {
    /// Bytes that room for so many takes.
    pub(crate) fn bytes_for(capacity: u32) -> usize {
        let capacity = capacity.max(1) as usize;
        Self::arena_bytes(capacity) + capacity * size_of::<(u32, u32)>()
    }

    fn arena_bytes(capacity: usize) -> usize {
        Slab::<Held>::bytes_for(capacity) + Index::bytes_for(capacity)
    }

    pub(crate) fn new(capacity: u32, hasher: KeyedHasher, pages: PagePreference) -> Result<Self, ArenaError> {
        let capacity = capacity.max(1) as usize;
        let mut arena = Arena::new("nat-syn", Self::arena_bytes(capacity), pages.for_small_tables())?;
        Ok(Self {
            backing: arena.backing(),
            lines: Slab::new(&mut arena, capacity)?,
            index: Index::new(&mut arena, capacity)?,
            hasher,
            order: VecDeque::with_capacity(capacity),
            capacity,
            absorbed: VecDeque::with_capacity(BURST_PACKETS_MAX),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn memory(&self) -> MemoryRow {
        let bytes = Self::bytes_for(self.capacity as u32);
        MemoryRow::new("held-syns", (self.capacity, self.len(), bytes), self.backing)
    }

    fn find(&self, key: [u64; 2]) -> Option<u32> {
        let hash = self.hasher.hash2(key[0], key[1]);
        self.index.find(hash, |id| self.lines.get(id).is_some_and(|line| line.key == key))
    }

    /// Holds a SYN until `due_s`.
    pub(crate) fn hold(&mut self, flow: &Flow, packet: &[u8], due_s: u32) -> Hold {
        let key = flow.session_key(Direction::In);
        if self.find(key).is_some() {
            return Hold::AlreadyHeld;
        }
        // The order keeps a place for each absorbed line until its time, so it bounds the table too.
        if self.order.len() >= self.capacity {
            return Hold::Full;
        }
        let mut held = Held { key, due_s, vrf: flow.vrf.0, ..Held::default() };
        let len = packet.len().min(KEPT_BYTES);
        held.bytes[..len].copy_from_slice(&packet[..len]);
        held.len = len as u8;
        let Some(id) = self.lines.alloc(held) else { return Hold::Full };
        if self.index.insert(self.hasher.hash2(key[0], key[1]), id).is_err() {
            self.lines.free(id);
            return Hold::Full;
        }
        self.order.push_back((id, due_s));
        Hold::Held
    }

    /// A session now joins these endpoints: forget a SYN held for it. True when there was one.
    pub(crate) fn absorb(&mut self, outside: Endpoint, remote: Endpoint, vrf: VrfId) -> bool {
        if self.lines.is_empty() {
            return false;
        }
        let key = crate::flow::session_key(outside, remote, vrf, carrack_base::Proto::Tcp, Direction::In);
        let Some(id) = self.find(key) else { return false };
        if let Some(held) = self.lines.get(id).filter(|_| self.absorbed.len() < self.absorbed.capacity()) {
            self.absorbed.push_back(held.packet());
        }
        self.remove(id, key);
        true
    }

    fn remove(&mut self, id: u32, key: [u64; 2]) {
        self.index.remove(self.hasher.hash2(key[0], key[1]), id);
        self.lines.free(id);
    }

    /// The next SYN whose time is over.
    pub(crate) fn next_overdue(&mut self, now_s: u32) -> Option<OverdueSyn> {
        while let Some((id, due_s)) = self.order.front().copied().filter(|(_, due_s)| *due_s <= now_s) {
            self.order.pop_front();
            // A line absorbed and taken again by another SYN has a later time; its own place in the order follows.
            let Some(held) =
                self.lines.get(id).copied().filter(|l| l.due_s == due_s && self.lines.is_live(id))
            else {
                continue;
            };
            self.remove(id, held.key);
            return Some(held.packet());
        }
        None
    }
}
