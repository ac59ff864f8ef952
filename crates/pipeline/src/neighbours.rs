//! A worker's own copy of the neighbour table, and packets that wait for an answer to ARP or neighbour discovery.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{IfIndex, Now};
use carrack_frame::Frame;
use carrack_nat::row::MemoryRow;
use carrack_tables::{Arena, ArenaError, Backing, Index, KeyedHasher, PagePreference, Slab};
use carrack_wire::ethernet::MacAddr;

use crate::burst::Meta;

/// Packets one neighbour may keep waiting; RFC 1122 §2.3.2.2 asks for at least one.
const WAITING_PER_NEIGHBOUR_MAX: u8 = 8;
/// The control plane is asked again after so long.
const ASK_AGAIN_NS: u64 = 1_000_000_000;
/// Lines looked at in one turn for questions that nobody waits for any more.
const TIDY_LINES_A_TURN: usize = 256;
/// A packet waits so long at most; the control plane usually gives up earlier.
const WAIT_NS: u64 = 4_000_000_000;
/// How often packets are looked through for those that waited too long.
const CHECK_EVERY_NS: u64 = 10_000_000;

/// A neighbour's address of either version in host byte order: an IPv4 address as its IPv4-mapped IPv6 address
/// (RFC 4291 §2.5.5.2), which no packet on a link has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Address(u128);

impl From<u32> for Address {
    #[inline(always)]
    fn from(ip: u32) -> Self {
        Self(0xffff_0000_0000 | ip as u128)
    }
}

impl From<u128> for Address {
    #[inline(always)]
    fn from(ip: u128) -> Self {
        Self(ip)
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => u32::from(ip).into(),
            IpAddr::V6(ip) => u128::from(ip).into(),
        }
    }
}

impl From<Address> for IpAddr {
    fn from(address: Address) -> Self {
        if address.0 >> 32 == 0xffff {
            Ipv4Addr::from(address.0 as u32).into()
        } else {
            Ipv6Addr::from(address.0).into()
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Neighbour {
    ip: Address,
    interface: u16,
    known: bool,
    waiting: u8,
    mac: [u8; 6],
    asked_ns: u64,
}

/// A packet waiting.
pub(crate) struct Waiting {
    pub(crate) frame: Frame,
    pub(crate) meta: Meta,
    pub(crate) interface: IfIndex,
    pub(crate) ip: Address,
    due_ns: u64,
}

/// What the table says.
pub(crate) enum Answer {
    Known(MacAddr),
    /// Not known; `ask` says that the control plane must be asked now.
    Unknown {
        ask: bool,
    },
}

pub(crate) struct Neighbours {
    lines: Slab<Neighbour>,
    index: Index,
    hasher: KeyedHasher,
    waiting: Vec<Waiting>,
    waiting_max: usize,
    /// The neighbour asked for last: mostly the same for a whole burst.
    last: (u16, Address, MacAddr),
    check_ns: u64,
    /// Lines without a MAC address: at most half, so that a scan of a subnet keeps no real neighbour out.
    unknown: usize,
    tidy_cursor: u32,
    backing: Backing,
}

/// Bytes of the arena of so many neighbours.
const fn arena_bytes(neighbours: usize) -> usize {
    Slab::<Neighbour>::bytes_for(neighbours) + Index::bytes_for(neighbours)
}

/// Bytes that so many neighbours take, and places for so many packets that wait for them.
pub(crate) fn bytes_for(neighbours: u32, waiting: u32) -> usize {
    arena_bytes(neighbours.max(1) as usize) + waiting as usize * size_of::<Waiting>()
}

impl Neighbours {
    pub(crate) fn new(
        capacity: u32,
        waiting_max: u32,
        hasher: KeyedHasher,
        pages: PagePreference,
    ) -> Result<Self, ArenaError> {
        let capacity = capacity.max(1) as usize;
        let mut arena = Arena::new("neighbours", arena_bytes(capacity), pages)?;
        Ok(Self {
            backing: arena.backing(),
            lines: Slab::new(&mut arena, capacity)?,
            index: Index::new(&mut arena, capacity)?,
            hasher,
            waiting: Vec::with_capacity(waiting_max as usize),
            waiting_max: waiting_max as usize,
            last: (u16::MAX, Address::default(), MacAddr([0; 6])),
            check_ns: 0,
            unknown: 0,
            tidy_cursor: 0,
        })
    }

    pub(crate) fn memory(&self) -> MemoryRow {
        let lines = self.lines.capacity();
        let bytes = bytes_for(lines as u32, self.waiting_max as u32);
        MemoryRow::new("neighbours", (lines, self.lines.len(), bytes), self.backing)
    }

    fn hash(&self, interface: IfIndex, ip: Address) -> u64 {
        let address = self.hasher.hash2((ip.0 >> 64) as u64, ip.0 as u64);
        self.hasher.hash2(address, u64::from(interface.0) << 8 | 8)
    }

    fn find(&self, interface: IfIndex, ip: Address) -> Option<u32> {
        self.index.find(self.hash(interface, ip), |id| {
            self.lines.get(id).is_some_and(|line| line.ip == ip && line.interface == interface.0)
        })
    }

    /// The MAC address of a neighbour.
    #[inline]
    pub(crate) fn lookup(&mut self, interface: IfIndex, ip: Address, now: Now) -> Answer {
        if (self.last.0, self.last.1) == (interface.0, ip) {
            return Answer::Known(self.last.2);
        }
        self.lookup_slow(interface, ip, now)
    }

    /// The MAC address when it is known; asks nobody and remembers nothing.
    pub(crate) fn known(&self, interface: IfIndex, ip: Address) -> Option<MacAddr> {
        let line = self.find(interface, ip).and_then(|id| self.lines.get(id))?;
        line.known.then_some(MacAddr(line.mac))
    }

    fn lookup_slow(&mut self, interface: IfIndex, ip: Address, now: Now) -> Answer {
        let id = match self.find(interface, ip) {
            Some(id) => id,
            None => match self.add_unknown(interface, ip) {
                Some(id) => id,
                // A full table still resolves, it only cannot hold packets back meanwhile.
                None => return Answer::Unknown { ask: true },
            },
        };
        let Some(line) = self.lines.get_mut(id) else { return Answer::Unknown { ask: true } };
        if line.known {
            self.last = (interface.0, ip, MacAddr(line.mac));
            return Answer::Known(MacAddr(line.mac));
        }
        let ask = line.asked_ns == 0 || now.ns.saturating_sub(line.asked_ns) >= ASK_AGAIN_NS;
        if ask {
            line.asked_ns = now.ns.max(1);
        }
        Answer::Unknown { ask }
    }

    fn add_unknown(&mut self, interface: IfIndex, ip: Address) -> Option<u32> {
        let has_room = self.unknown < self.lines.capacity().div_ceil(2);
        let id = if has_room { self.add(interface, ip) } else { None }?;
        self.unknown += 1;
        Some(id)
    }

    fn add(&mut self, interface: IfIndex, ip: Address) -> Option<u32> {
        let id = self.lines.alloc(Neighbour { ip, interface: interface.0, ..Neighbour::default() })?;
        if self.index.insert(self.hash(interface, ip), id).is_err() {
            self.lines.free(id);
            return None;
        }
        Some(id)
    }

    /// Keeps a packet until the neighbour is known; gives it back when too many wait.
    pub(crate) fn hold(
        &mut self,
        frame: Frame,
        meta: Meta,
        interface: IfIndex,
        ip: Address,
        now: Now,
    ) -> Result<(), Frame> {
        if self.waiting.len() >= self.waiting_max {
            return Err(frame);
        }
        let Some(line) = self.find(interface, ip).and_then(|id| self.lines.get_mut(id)) else {
            return Err(frame);
        };
        if line.waiting >= WAITING_PER_NEIGHBOUR_MAX {
            return Err(frame);
        }
        line.waiting += 1;
        self.waiting.push(Waiting { frame, meta, interface, ip, due_ns: now.ns + WAIT_NS });
        Ok(())
    }

    /// A neighbour is known (or known anew).
    pub(crate) fn set(&mut self, interface: IfIndex, ip: Address, mac: MacAddr) {
        self.last.0 = u16::MAX;
        let found = self.find(interface, ip);
        let Some(id) = found.or_else(|| self.add(interface, ip)) else { return };
        if let Some(line) = self.lines.get_mut(id) {
            if found.is_some() && !line.known {
                self.unknown -= 1;
            }
            line.known = true;
            line.mac = mac.0;
        }
    }

    /// A neighbour is gone.
    pub(crate) fn remove(&mut self, interface: IfIndex, ip: Address) {
        self.last.0 = u16::MAX;
        let Some(id) = self.find(interface, ip) else { return };
        if self.lines.get(id).is_some_and(|line| !line.known) {
            self.unknown -= 1;
        }
        self.index.remove(self.hash(interface, ip), id);
        self.lines.free(id);
    }

    /// Forgets neighbours of interfaces for which `gone` says so (after a reload).
    pub(crate) fn forget(&mut self, gone: impl Fn(IfIndex) -> bool) {
        let mut cursor = 0;
        loop {
            let next = self.lines.iter_from(cursor).next().map(|(id, line)| (id, *line));
            let Some((id, line)) = next else { return };
            cursor = id + 1;
            if gone(IfIndex(line.interface)) {
                self.remove(IfIndex(line.interface), line.ip);
            }
        }
    }

    /// Forgets questions that the control plane never answered and nobody waits for: a bounded look at the table.
    fn tidy(&mut self, now: Now) {
        if self.unknown == 0 {
            return;
        }
        for _ in 0..TIDY_LINES_A_TURN {
            let next = self.lines.iter_from(self.tidy_cursor).next().map(|(id, line)| (id, *line));
            let Some((id, line)) = next else {
                self.tidy_cursor = 0;
                return;
            };
            self.tidy_cursor = id + 1;
            let is_old = now.ns.saturating_sub(line.asked_ns) >= WAIT_NS;
            if !line.known && line.waiting == 0 && is_old {
                self.remove(IfIndex(line.interface), line.ip);
            }
        }
    }

    /// The next packet that waited for this neighbour, in order of arrival.
    pub(crate) fn release(&mut self, interface: IfIndex, ip: Address) -> Option<Waiting> {
        let at = self.waiting.iter().position(|w| (w.interface, w.ip) == (interface, ip))?;
        Some(self.take(at))
    }

    fn take(&mut self, at: usize) -> Waiting {
        // Invariant: `at` is a place in the vector, found by its callers just before.
        let waiting = self.waiting.remove(at);
        if let Some(line) = self.find(waiting.interface, waiting.ip).and_then(|id| self.lines.get_mut(id)) {
            line.waiting = line.waiting.saturating_sub(1);
        }
        waiting
    }

    /// The next packet that has waited too long. Cheap when none has.
    pub(crate) fn next_overdue(&mut self, now: Now) -> Option<Waiting> {
        if now.ns < self.check_ns {
            return None;
        }
        let overdue = self.waiting.iter().position(|w| w.due_ns <= now.ns);
        if overdue.is_none() {
            self.check_ns = now.ns + CHECK_EVERY_NS;
            self.tidy(now);
        }
        overdue.map(|at| self.take(at))
    }

    /// The next packet that waits on an interface for which `gone` says so (after a reload).
    pub(crate) fn next_of(&mut self, gone: impl Fn(IfIndex) -> bool) -> Option<Waiting> {
        let at = self.waiting.iter().position(|w| gone(w.interface))?;
        Some(self.take(at))
    }

    pub(crate) fn held(&self) -> u64 {
        self.waiting.len() as u64
    }
}
