//! Fragments: later ones have no ports, so they take those of their first fragment, and wait for it when they
//! come before it (RFC 4787 REQ-14). Nothing is reassembled here: every fragment goes on by itself (but see
//! `together` and `pieces`).
//!
//! All is bounded: datagrams, fragments waiting, time. A flood fills its table and hurts other fragments only
//! (RFC 4787 REQ-14a).

mod together;

use std::collections::VecDeque;

use carrack_base::{Family, Now, Proto, Reason};
use carrack_frame::Frame;
use carrack_nat::row::MemoryRow;
use carrack_nat::{Direction, Kind, Rng};
use carrack_tables::{Arena, ArenaError, Backing, Index, KeyedHasher, PagePreference, Slab};

use carrack_wire::ipv6;

use crate::burst::Meta;

const NONE: u32 = u32::MAX;
/// Fragments of one datagram that may wait: a datagram of 64 KiB in 1,500-byte pieces has 45.
const WAITING_PER_DATAGRAM_MAX: u8 = 64;
/// Datagrams forgotten in one call: more than a burst can begin.
const OVERDUE_LINES_A_CALL: usize = 256;

/// One datagram in pieces.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
struct Datagram {
    key: [u64; 2],
    due_ms: u64,
    sport: u16,
    dport: u16,
    /// Identification the fragments leave with (RFC 6864 §5.3.1).
    new_id: u16,
    bits: u8,
    /// Ports are known.
    known: bool,
    /// UDP without a checksum, as its first fragment says.
    unsummed: bool,
    waiting: u8,
    /// All of it is dropped, what is still to come too.
    ended: Option<Reason>,
    first_waiting: u32,
    last_waiting: u32,
    /// Bytes of payload seen, and in all once the last fragment came.
    seen: u32,
    total: u32,
    /// All places where fragments begin and end, exclusive-ored: inner ones come twice in a complete datagram.
    edges: u32,
}

impl Datagram {
    /// Every byte came, and came once. A doubled fragment cannot stand in for a missing one.
    fn is_complete(&self) -> bool {
        self.total != 0 && self.seen == self.total && self.edges == self.total && self.waiting == 0
    }
}

/// What became of a fragment.
pub(crate) enum Outcome {
    /// Has its ports: goes on.
    Ready,
    /// Waits for its first fragment; the table has the frame.
    Waits,
    /// The table of datagrams is full.
    TableFull,
    /// Too many wait.
    QueueFull,
    /// A first fragment that contradicts the one seen before (RFC 1858 §4).
    Overlap,
}

struct Slot {
    held: Option<(Frame, Meta)>,
    next: u32,
}

pub(crate) struct Fragments {
    lines: Slab<Datagram>,
    index: Index,
    hasher: KeyedHasher,
    order: VecDeque<(u32, u64)>,
    order_max: usize,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    held: u64,
    /// Datagrams whose fragments found no room behind their first one.
    ready: VecDeque<u32>,
    /// Places of fragments whose datagrams became whole, in order.
    whole: VecDeque<u32>,
    rng: Rng,
    backing: Backing,
}

/// Fields of the header that a fragment is told apart by.
fn key_of(hasher: &KeyedHasher, meta: &Meta, frame: &[u8]) -> Option<[u64; 2]> {
    if meta.family == Family::V6 {
        return key_of_six(hasher, meta, frame);
    }
    let id = frame.get(usize::from(meta.flow.l3) + 4..)?.first_chunk::<2>()?;
    Some([
        u64::from(meta.flow.src) << 32 | u64::from(meta.flow.dst),
        u64::from(u16::from_be_bytes(*id)) << 48
            | u64::from(meta.flow.ip_proto) << 40
            | u64::from(meta.flow.vrf.0) << 16
            | 10,
    ])
}

/// RFC 6146 §3.4, RFC 8200 §4.5: source, destination and identification, and here what the first header behind is.
fn key_of_six(hasher: &KeyedHasher, meta: &Meta, frame: &[u8]) -> Option<[u64; 2]> {
    let header = frame.get(usize::from(meta.fragment_at)..)?.first_chunk::<8>()?;
    let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
    let half = |address: u128| hasher.hash2((address >> 64) as u64, address as u64);
    let addresses = half(meta.flow.src6) ^ half(meta.flow.dst6).rotate_left(1);
    let rest = u64::from(meta.flow.ip_proto) << 24 | u64::from(meta.flow.vrf.0) << 8 | 11;
    Some([addresses, u64::from(id) << 32 | rest])
}

/// (offset, payload bytes, more fragments follow).
fn extent(meta: &Meta, frame: &[u8]) -> Option<(u32, u32, bool)> {
    if meta.family == Family::V6 {
        let l3 = usize::from(meta.flow.l3);
        let header = frame.get(usize::from(meta.fragment_at)..)?.first_chunk::<8>()?;
        let head = frame.get(l3..)?.first_chunk::<{ ipv6::HEADER_LEN }>()?;
        let word = u16::from_be_bytes([header[2], header[3]]);
        let end = l3 + ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([head[4], head[5]]));
        let len = end.saturating_sub(usize::from(meta.fragment_at) + ipv6::FRAGMENT_HEADER_LEN);
        return Some((u32::from(word & 0xfff8), len as u32, word & 1 != 0));
    }
    let head = frame.get(usize::from(meta.flow.l3)..)?.first_chunk::<20>()?;
    let word = u16::from_be_bytes([head[6], head[7]]);
    let header_len = u32::from(head[0] & 0x0f) * 4;
    let total = u32::from(u16::from_be_bytes([head[2], head[3]]));
    Some((u32::from(word & 0x1fff) * 8, total.saturating_sub(header_len), word & 0x2000 != 0))
}

/// Bytes of the arena of so many datagrams.
const fn arena_bytes(datagrams: usize) -> usize {
    Slab::<Datagram>::bytes_for(datagrams) + Index::bytes_for(datagrams)
}

/// Bytes that so many datagrams take, with the order of their time.
pub(crate) fn datagram_bytes(datagrams: u32) -> usize {
    let datagrams = datagrams.max(1) as usize;
    arena_bytes(datagrams) + 2 * datagrams * size_of::<(u32, u64)>()
}

/// Bytes that places for so many fragments take: their frames are the pool's.
pub(crate) const fn waiting_bytes(waiting: u32) -> usize {
    waiting as usize * (size_of::<Slot>() + 3 * size_of::<u32>())
}

impl Fragments {
    pub(crate) fn new(
        datagrams: u32,
        waiting: u32,
        hasher: KeyedHasher,
        pages: PagePreference,
        rng: Rng,
    ) -> Result<Self, ArenaError> {
        let capacity = datagrams.max(1) as usize;
        let mut arena = Arena::new("fragments", arena_bytes(capacity), pages)?;
        Ok(Self {
            backing: arena.backing(),
            lines: Slab::new(&mut arena, capacity)?,
            index: Index::new(&mut arena, capacity)?,
            hasher,
            order: VecDeque::with_capacity(capacity * 2),
            order_max: capacity * 2,
            slots: (0..waiting).map(|_| Slot { held: None, next: NONE }).collect(),
            free_slots: (0..waiting).rev().collect(),
            held: 0,
            ready: VecDeque::with_capacity(waiting as usize),
            whole: VecDeque::with_capacity(waiting as usize),
            rng,
        })
    }

    /// Datagrams in pieces, and fragments that wait.
    pub(crate) fn memory(&self) -> [MemoryRow; 2] {
        let datagrams = self.lines.capacity();
        let bytes = datagram_bytes(datagrams as u32);
        let waiting = self.slots.len();
        let places = (waiting, waiting - self.free_slots.len(), waiting_bytes(waiting as u32));
        [
            MemoryRow::new("fragments", (datagrams, self.lines.len(), bytes), self.backing),
            MemoryRow::new("held-fragments", places, self.backing),
        ]
    }

    /// The worker that brings a datagram's fragments together.
    pub(crate) fn home(&self, meta: &Meta, frame: &[u8], workers: u8) -> u8 {
        let Some(key) = key_of(&self.hasher, meta, frame) else { return 0 };
        // Not the hash of the table: a worker's datagrams would crowd into a part of their index.
        let hash = self.hasher.hash2(key[0], !key[1]);
        ((u128::from(hash) * u128::from(workers)) >> 64) as u8
    }

    fn hash(&self, key: [u64; 2]) -> u64 {
        self.hasher.hash2(key[0], key[1])
    }

    /// Handles one fragment. A first fragment brings the ports; a later one takes them or waits.
    pub(crate) fn handle(
        &mut self,
        frame: &mut Option<Frame>,
        meta: &mut Meta,
        timeout_ms: u32,
        now: Now,
    ) -> Outcome {
        let Some((key, (offset, len, more))) = frame.as_ref().and_then(|frame| {
            Some((key_of(&self.hasher, meta, frame.bytes())?, extent(meta, frame.bytes())?))
        }) else {
            return Outcome::TableFull;
        };
        let Some(id) = self.find_or_add(key, timeout_ms, now) else { return Outcome::TableFull };
        let Some(line) = self.lines.get_mut(id) else { return Outcome::TableFull };
        line.seen = line.seen.saturating_add(len);
        line.edges ^= offset ^ (offset + len);
        if !more {
            line.total = offset + len;
        }
        if meta.flow.kind != Kind::LaterFragment {
            let unsummed = frame.as_ref().is_some_and(|frame| is_unsummed(meta, frame.bytes()));
            let head = (meta.flow.sport, meta.flow.dport, meta.flow.bits, unsummed);
            if line.known && head != (line.sport, line.dport, line.bits, line.unsummed) {
                return Outcome::Overlap;
            }
            (line.sport, line.dport, line.bits, line.unsummed) = head;
            line.known = true;
        }
        if !line.known {
            return self.wait(id, frame, meta);
        }
        apply(line, meta);
        Outcome::Ready
    }

    /// After a first fragment: the fragments that waited for it, one a call, in order of arrival.
    pub(crate) fn next_released(&mut self, meta: &Meta, frame: &[u8]) -> Option<(Frame, Meta)> {
        let id = self.find(key_of(&self.hasher, meta, frame)?)?;
        let (held, mut meta) = self.unchain(id)?;
        apply(self.lines.get(id)?, &mut meta);
        Some((held, meta))
    }

    /// The first fragment has gone on: what still waits for it follows by [`Fragments::next_ready`]; a complete
    /// datagram is forgotten.
    pub(crate) fn finish_first(&mut self, meta: &Meta, frame: &[u8]) {
        let Some(key) = key_of(&self.hasher, meta, frame) else { return };
        match self.find(key).and_then(|id| Some((id, self.lines.get(id)?.waiting))) {
            Some((id, waiting)) if waiting > 0 && self.ready.len() < self.slots.len() => {
                self.ready.push_back(id)
            }
            _ => self.forget_complete(meta, frame),
        }
    }

    /// The next fragment whose first fragment has gone on before it.
    pub(crate) fn next_ready(&mut self) -> Option<(Frame, Meta)> {
        loop {
            let id = *self.ready.front()?;
            // A line forgotten and taken anew may wait for ports itself.
            let line = self.lines.get(id).copied().filter(|line| line.known && self.lines.is_live(id));
            if let Some(line) = line
                && let Some((frame, mut meta)) = self.unchain(id)
            {
                apply(&line, &mut meta);
                return Some((frame, meta));
            }
            self.ready.pop_front();
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.whole.is_empty()
    }

    /// The datagram of this fragment is complete: forget it.
    pub(crate) fn forget_complete(&mut self, meta: &Meta, frame: &[u8]) {
        let Some(key) = key_of(&self.hasher, meta, frame) else { return };
        let is_complete = |id: &u32| self.lines.get(*id).is_some_and(Datagram::is_complete);
        if let Some(id) = self.find(key).filter(is_complete) {
            self.forget(id);
        }
    }

    fn find(&self, key: [u64; 2]) -> Option<u32> {
        self.index.find(self.hash(key), |id| self.lines.get(id).is_some_and(|line| line.key == key))
    }

    fn find_or_add(&mut self, key: [u64; 2], timeout_ms: u32, now: Now) -> Option<u32> {
        self.find(key).or_else(|| self.add(key, timeout_ms, now))
    }

    fn forget(&mut self, id: u32) {
        let Some(line) = self.lines.get(id) else { return };
        self.index.remove(self.hash(line.key), id);
        self.lines.free(id);
    }

    fn add(&mut self, key: [u64; 2], timeout_ms: u32, now: Now) -> Option<u32> {
        if self.order.len() >= self.order_max {
            // Complete datagrams leave their place in the order. There are at least as many of those as of live ones.
            let lines = &self.lines;
            self.order.retain(|(id, due_ms)| {
                lines.is_live(*id) && lines.get(*id).is_some_and(|line| line.due_ms == *due_ms)
            });
        }
        let due_ms = now.ms() + u64::from(timeout_ms);
        let line = Datagram {
            key,
            due_ms,
            new_id: self.rng.next_u16(),
            first_waiting: NONE,
            last_waiting: NONE,
            ..Datagram::default()
        };
        let id = self.lines.alloc(line)?;
        if self.index.insert(self.hash(key), id).is_err() {
            self.lines.free(id);
            return None;
        }
        self.order.push_back((id, due_ms));
        Some(id)
    }

    fn wait(&mut self, id: u32, frame: &mut Option<Frame>, meta: &Meta) -> Outcome {
        let last = self.lines.get(id).map_or(NONE, |line| line.last_waiting);
        if self.chain(id, frame, meta, last) { Outcome::Waits } else { Outcome::QueueFull }
    }

    /// Lets a fragment wait behind the one at `before`, first of all for `NONE`; false when too many do.
    fn chain(&mut self, id: u32, frame: &mut Option<Frame>, meta: &Meta, before: u32) -> bool {
        let Some(line) = self.lines.get_mut(id).filter(|line| line.waiting < WAITING_PER_DATAGRAM_MAX) else {
            return false;
        };
        let Some(slot) = self.free_slots.pop() else { return false };
        let next = match self.slots.get_mut(before as usize) {
            Some(before) => std::mem::replace(&mut before.next, slot),
            None => std::mem::replace(&mut line.first_waiting, slot),
        };
        if next == NONE {
            line.last_waiting = slot;
        }
        if let (Some(place), Some(frame)) = (self.slots.get_mut(slot as usize), frame.take()) {
            *place = Slot { held: Some((frame, *meta)), next };
        }
        line.waiting += 1;
        self.held += 1;
        true
    }

    fn unchain(&mut self, id: u32) -> Option<(Frame, Meta)> {
        let line = self.lines.get_mut(id)?;
        let at = line.first_waiting;
        let slot = self.slots.get_mut(at as usize)?;
        line.first_waiting = slot.next;
        if line.first_waiting == NONE {
            line.last_waiting = NONE;
        }
        line.waiting = line.waiting.saturating_sub(1);
        self.free_slots.push(at);
        self.held -= 1;
        slot.held.take()
    }

    /// The next fragment whose first fragment did not come in time; forgets datagrams whose time is over.
    pub(crate) fn next_overdue(&mut self, now: Now) -> Option<(Frame, Meta)> {
        for _ in 0..OVERDUE_LINES_A_CALL {
            let (id, due_ms) = self.order.front().copied().filter(|(_, due_ms)| *due_ms <= now.ms())?;
            let line = self.lines.get(id).copied().filter(|l| l.due_ms == due_ms && self.lines.is_live(id));
            if line.is_some()
                && let Some(overdue) = self.unchain(id)
            {
                return Some(overdue);
            }
            self.order.pop_front();
            if line.is_some() {
                self.forget(id);
            }
        }
        None
    }

    pub(crate) const fn held(&self) -> u64 {
        self.held
    }
}

/// Is a first fragment one of UDP without a checksum? One of IPv6, where it may not be so, keeps it when it is hairpinned.
fn is_unsummed(meta: &Meta, frame: &[u8]) -> bool {
    let at = usize::from(meta.flow.l4) + 6;
    meta.flow.proto == Proto::Udp && frame.get(at..at + 2) == Some(&[0, 0])
}

/// Gives a fragment its datagram's ports, and tells it what else the first one knows.
fn apply(line: &Datagram, meta: &mut Meta) {
    let flow = &mut meta.flow;
    if flow.kind == Kind::LaterFragment {
        (flow.sport, flow.dport, flow.bits) = (line.sport, line.dport, line.bits);
        if flow.proto == Proto::Tcp {
            // Control bits belong to the first fragment alone.
            flow.bits = carrack_wire::tcp::flag::ACK;
        }
    }
    meta.fragment_id = line.new_id;
    meta.is_unsummed = line.unsummed;
}

/// Writes the identification that keeps fragments of different subscribers behind one address apart
/// (RFC 6864 §5.3.1, RFC 7857 §10).
pub(crate) fn rewrite_identification(meta: &Meta, frame: &mut [u8]) {
    if meta.translated != Some(Direction::Out) {
        return;
    }
    let Some(head) =
        frame.get_mut(usize::from(meta.flow.l3)..).and_then(|bytes| bytes.first_chunk_mut::<20>())
    else {
        return;
    };
    let old = u16::from_be_bytes([head[4], head[5]]);
    let delta = carrack_wire::checksum::Delta::of_u16(old, meta.fragment_id);
    let checksum = delta.apply(u16::from_be_bytes([head[10], head[11]]));
    head[4..6].copy_from_slice(&meta.fragment_id.to_be_bytes());
    head[10..12].copy_from_slice(&checksum.to_be_bytes());
}
