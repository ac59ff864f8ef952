//! What hosts have asked of their mappings: until when, for whom. A mapping with a pin stays without sessions.

use carrack_tables::{Arena, ArenaError, Backing, Index, PagePreference, Slab};

use crate::line::{NONE, Session};
use crate::row::MemoryRow;
use crate::tables::Tables;

/// Most filters of one mapping.
pub const FILTERS_MAX: usize = 8;
/// Most pins of one worker.
const PINS_MAX: usize = 1 << 16;
/// Most pins of one mapping; fits its count.
pub(crate) const PER_MAPPING_MAX: u8 = 64;
/// How far ahead a session's timer can be set, seconds.
const TIMER_S_MAX: u32 = 30_000;

/// Who may send to a mapping from outside (RFC 6887 §13.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortFilter {
    /// Address, host byte order; only the first `len` bits count.
    pub ip: u32,
    /// Bits that count, 0 to 32.
    pub len: u8,
    /// Port; 0 is any.
    pub port: u16,
}

impl PortFilter {
    fn admits(&self, ip: u32, port: u16) -> bool {
        let mask = u32::MAX.checked_shl(32 - u32::from(self.len.min(32))).unwrap_or(0);
        (self.ip ^ ip) & mask == 0 && (self.port == 0 || self.port == port)
    }
}

/// Some filters; none admits everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortFilters {
    count: u8,
    all: [PortFilter; FILTERS_MAX],
}

impl PortFilters {
    /// The filters.
    #[must_use]
    pub fn as_slice(&self) -> &[PortFilter] {
        self.all.get(..usize::from(self.count)).unwrap_or(&[])
    }

    /// Adds one, unless it is there. False when there is no room.
    pub fn add(&mut self, filter: PortFilter) -> bool {
        if self.as_slice().contains(&filter) {
            return true;
        }
        let Some(place) = self.all.get_mut(usize::from(self.count)) else { return false };
        *place = filter;
        self.count += 1;
        true
    }

    fn admit(&self, ip: u32, port: u16) -> bool {
        self.count == 0 || self.as_slice().iter().any(|filter| filter.admits(ip, port))
    }
}

/// One thing asked of a mapping: that it be there for all peers (MAP), or for one (PEER).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pin {
    pub(crate) mapping: u32,
    /// Second at which it ends.
    pub(crate) ends_s: u32,
    /// Of a PEER; the port is 0 in a MAP.
    pub(crate) remote_ip: u32,
    pub(crate) remote_port: u16,
    /// Of a MAP.
    pub(crate) filters: PortFilters,
}

/// Whom a pin is for: everybody, or one remote endpoint.
pub(crate) type Peer = Option<(u32, u16)>;

impl Pin {
    pub(crate) fn peer(&self) -> Peer {
        (self.remote_port != 0).then_some((self.remote_ip, self.remote_port))
    }
}

/// All pins of one worker.
#[derive(Debug)]
pub(crate) struct Pins {
    pub(crate) lines: Slab<Pin>,
    index: Index,
    /// Second of the last sweep, and where it is; [`NONE`] when done.
    swept_s: u32,
    cursor: u32,
    backing: Backing,
}

impl Pins {
    /// How many there are of so many mappings.
    fn count_for(mappings: u32) -> usize {
        (mappings as usize).clamp(1, PINS_MAX)
    }

    pub(crate) fn bytes_for(mappings: u32) -> usize {
        let count = Self::count_for(mappings);
        Slab::<Pin>::bytes_for(count) + Index::bytes_for(count)
    }

    pub(crate) fn new(mappings: u32, pages: PagePreference) -> Result<Self, ArenaError> {
        let count = Self::count_for(mappings);
        let mut arena = Arena::new("nat-port-control", Self::bytes_for(mappings), pages)?;
        let backing = arena.backing();
        let (lines, index) = (Slab::new(&mut arena, count)?, Index::new(&mut arena, count)?);
        Ok(Self { lines, index, swept_s: 0, cursor: NONE, backing })
    }

    pub(crate) fn memory(&self) -> MemoryRow {
        let figures = (self.lines.capacity(), self.lines.len(), self.bytes());
        MemoryRow::new("port-control", figures, self.backing)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.bytes() + self.index.bytes()
    }

    /// The next few pins to look at in this second's sweep; empty when it is done.
    pub(crate) fn sweep<const N: usize>(&mut self, now_s: u32, out: &mut [u32; N]) -> usize {
        if self.lines.is_empty() {
            return 0;
        }
        if self.swept_s != now_s && self.cursor == NONE {
            (self.swept_s, self.cursor) = (now_s, 0);
        }
        let mut count = 0;
        if self.cursor != NONE {
            let mut walk = self.lines.iter_from(self.cursor);
            for place in out.iter_mut() {
                let Some((id, _)) = walk.next() else {
                    self.cursor = NONE;
                    break;
                };
                (*place, self.cursor) = (id, id + 1);
                count += 1;
            }
        }
        count
    }
}

impl Tables {
    fn pin_hash(&self, mapping: u32, peer: Peer) -> u64 {
        let (ip, port) = peer.unwrap_or_default();
        self.hash([u64::from(mapping) << 32 | u64::from(ip), 7 | u64::from(port) << 16])
    }

    pub(crate) fn find_pin(&self, mapping: u32, peer: Peer) -> Option<u32> {
        let pins = self.pins.as_ref()?;
        pins.index.find(self.pin_hash(mapping, peer), |id| {
            pins.lines.get(id).is_some_and(|pin| pin.mapping == mapping && pin.peer() == peer)
        })
    }

    pub(crate) fn pin(&self, id: u32) -> Option<&Pin> {
        self.pins.as_ref()?.lines.get(id)
    }

    pub(crate) fn pin_mut(&mut self, id: u32) -> Option<&mut Pin> {
        self.pins.as_mut()?.lines.get_mut(id)
    }

    /// Adds a pin to a live mapping that has none of its kind. False when there is no room.
    pub(crate) fn add_pin(&mut self, pin: Pin) -> bool {
        let hash = self.pin_hash(pin.mapping, pin.peer());
        let (Some(pins), Some(mapping)) = (self.pins.as_mut(), self.mappings.get_mut(pin.mapping)) else {
            return false;
        };
        if mapping.pins >= PER_MAPPING_MAX {
            return false;
        }
        let Some(id) = pins.lines.alloc(pin) else { return false };
        if pins.index.insert(hash, id).is_err() {
            pins.lines.free(id);
            return false;
        }
        mapping.pins += 1;
        true
    }

    /// Removes a pin; how many its mapping has left.
    pub(crate) fn remove_pin(&mut self, id: u32) -> Option<(Pin, u8)> {
        let pin = *self.pin(id)?;
        let hash = self.pin_hash(pin.mapping, pin.peer());
        let pins = self.pins.as_mut().filter(|pins| pins.lines.is_live(id))?;
        pins.index.remove(hash, id);
        pins.lines.free(id);
        let mapping = self.mappings.get_mut(pin.mapping)?;
        mapping.pins = mapping.pins.saturating_sub(1);
        Some((pin, mapping.pins))
    }

    /// May this sender use the mapping, by what its host asked for? `None` when that says nothing of him.
    ///
    /// RFC 6887 §11, §13.3: a MAP admits everybody, or whom its filters name. §12: a PEER admits its peer.
    pub(crate) fn is_admitted_by_pins(&self, mapping: u32, ip: u32, port: u16) -> Option<bool> {
        if self.find_pin(mapping, Some((ip, port))).is_some() {
            return Some(true);
        }
        let map = self.find_pin(mapping, None).and_then(|id| self.pin(id))?;
        Some(map.filters.admit(ip, port))
    }

    /// Until when a session stays because its host asked for that (RFC 6887 §12.3), as far as its timer reaches.
    pub(crate) fn pinned_until_s(&self, session: &Session, now_s: u32) -> u32 {
        if self.mappings.get(session.mapping).is_none_or(|mapping| mapping.pins == 0) {
            return 0;
        }
        let pin = self.find_pin(session.mapping, Some((session.remote_ip, session.remote_port)));
        let ends_s = pin.and_then(|id| self.pin(id)).map_or(0, |pin| pin.ends_s);
        ends_s.min(now_s.saturating_add(TIMER_S_MAX))
    }
}
