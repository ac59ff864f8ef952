//! Outside addresses and ports of one instance, this worker's share of them.
//!
//! With several workers, each pool address's port range is cut into as many slices; a worker gives out ports of its
//! slice only, so two workers never give out the same port and a packet from outside tells its owner by its port.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use carrack_base::{PoolId, Proto, Reason, WorkerId};
use carrack_tables::{Arena, ArenaError, PagePreference, Parity, PortMap};

use crate::deterministic::Deterministic;
use crate::line::{BlockRef, NO_ADDRESS, NONE, Subscriber};
use crate::policy::{Assignment, Instance, Pool, Pooling};
use crate::rng::Rng;
use crate::row::{BLOCKS_MAX, BlockRow, NatEvent, PoolRow};

/// Addresses tried for one allocation before the pool counts as exhausted in `Arbitrary` mode. Bounds the work of a
/// burst; the address is chosen at random, so a pool that fails so many tries is full for all practical purposes.
const ADDRESS_TRIES_MAX: usize = 64;

/// Ports below this are "well known" (RFC 4787 REQ-3a).
const WELL_KNOWN_END: u16 = 1_024;

/// Which ports of a pool belong to which worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slices {
    first: u16,
    last: u16,
    /// Ports of a slice.
    slice: u32,
    /// Ports of a block; 1 without blocks.
    unit: u32,
}

impl Slices {
    /// How the ports of a pool are cut for so many workers.
    #[must_use]
    pub fn of(pool: &Pool, assignment: Assignment, workers: u8) -> Self {
        let unit = if let Assignment::Blocks { size, .. } = assignment { u32::from(size).max(1) } else { 1 };
        let units = (u32::from(pool.port_last.saturating_sub(pool.port_first)) + 1) / unit;
        let slice = units.div_ceil(u32::from(workers).max(1)).max(1) * unit;
        Self { first: pool.port_first, last: pool.port_last, slice, unit }
    }

    /// Whose port it is; worker 0 gets all ports outside the range (static forwards are found there).
    #[inline]
    #[must_use]
    pub fn owner(&self, port: u16) -> WorkerId {
        if port < self.first || port > self.last {
            return WorkerId(0);
        }
        WorkerId((u32::from(port - self.first) / self.slice) as u8)
    }

    /// One worker's whole units, as (first port, number of units); none when there are fewer units than workers.
    fn share(&self, worker: WorkerId) -> (u16, u32) {
        let units_all = (u32::from(self.last.saturating_sub(self.first)) + 1) / self.unit;
        let units_slice = self.slice / self.unit;
        let before = units_slice * u32::from(worker.0);
        let units = units_all.saturating_sub(before).min(units_slice);
        if units == 0 {
            (self.first, 0)
        } else {
            ((u32::from(self.first) + before * self.unit) as u16, units)
        }
    }
}

/// One port block.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Subscriber line, or [`NONE`].
    owner: u32,
    /// Mappings in it, all protocols.
    used: u32,
    /// When it became empty, seconds.
    empty_since_s: u32,
    /// Is it in the idle queue?
    queued: bool,
}

/// One outside address.
#[derive(Debug)]
struct Address {
    ip: u32,
    pool: PoolId,
    maps: [PortMap; 3],
    /// This worker's ports.
    first: u16,
    /// Number of this worker's ports.
    ports: u32,
    /// Subscribers paired to it.
    subscribers: u32,
    blocks: Vec<Block>,
    free_blocks: Vec<u16>,
    /// Its place in `with_blocks`, or `usize::MAX`.
    listed: usize,
}

impl Address {
    fn last(&self) -> u16 {
        // Invariant: a share's ports lie within 16 bits.
        (u32::from(self.first) + self.ports.max(1) - 1) as u16
    }
}

/// A block waiting: released and in its hold time, or empty and perhaps soon released.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    due_s: u32,
    at: BlockRef,
}

/// What an allocation gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) address: u16,
    pub(crate) ip: u32,
    pub(crate) port: u16,
}

/// Outside ports of one instance.
#[derive(Debug)]
pub(crate) struct Ports {
    addresses: Vec<Address>,
    /// (first address, last address, number of the first), sorted.
    by_ip: Vec<(u32, u32, u32)>,
    /// Addresses that have a free block.
    with_blocks: Vec<u16>,
    held: VecDeque<Waiting>,
    idle: VecDeque<Waiting>,
    block_size: u16,
    deterministic: Option<Deterministic>,
    bytes: u64,
    pages: &'static str,
    pub(crate) mappings: u64,
    /// Ports or blocks in use, for the threshold.
    blocks_used: u64,
    blocks_total: u64,
}

impl Ports {
    /// Builds the share of `worker`. Allocates: done at start and at reload, never on the packet path.
    pub(crate) fn new(
        instance: &Instance,
        worker: WorkerId,
        workers: u8,
        pages: PagePreference,
    ) -> Result<Self, ArenaError> {
        let count: usize = instance.pools.iter().flat_map(|p| &p.ranges).map(|r| r.count() as usize).sum();
        let block_size = if let Assignment::Blocks { size, .. } = instance.assignment { size } else { 0 };
        let arena_bytes = count.max(1) * 3 * PortMap::bytes_for();
        let mut arena = Arena::new("nat-ports", arena_bytes, pages)?;
        // A block is held back whole; ports of deterministic and block mode stay with their subscriber, who may use
        // them again at once (RFC 6888 REQ-8b).
        let hold_s = if instance.assignment == Assignment::Arbitrary { instance.port_hold_s } else { 0 };
        let mut this = Self {
            addresses: Vec::with_capacity(count),
            by_ip: Vec::new(),
            with_blocks: Vec::with_capacity(count),
            held: VecDeque::new(),
            idle: VecDeque::new(),
            block_size,
            deterministic: Deterministic::of(instance),
            bytes: arena_bytes as u64,
            pages: page_name(arena.page_kind()),
            mappings: 0,
            blocks_used: 0,
            blocks_total: 0,
        };
        for pool in &instance.pools {
            let (first, units) = if this.deterministic.is_some() {
                (pool.port_first, u32::from(pool.port_last.saturating_sub(pool.port_first)) + 1)
            } else {
                Slices::of(pool, instance.assignment, workers).share(worker)
            };
            for range in &pool.ranges {
                this.by_ip.push((range.first, range.last, this.addresses.len() as u32));
                for ip in range.first..=range.last {
                    let maps = [
                        PortMap::new(&mut arena, hold_s)?,
                        PortMap::new(&mut arena, hold_s)?,
                        PortMap::new(&mut arena, hold_s)?,
                    ];
                    this.push_address(ip, pool.id, maps, first, units);
                }
            }
        }
        this.by_ip.sort_unstable();
        let blocks: usize = this.addresses.iter().map(|a| a.blocks.len()).sum();
        this.blocks_total = blocks as u64;
        this.held.reserve_exact(blocks);
        this.idle.reserve_exact(blocks);
        Ok(this)
    }

    fn push_address(&mut self, ip: u32, pool: PoolId, maps: [PortMap; 3], first: u16, units: u32) {
        let blocks = if self.block_size > 0 { units } else { 0 };
        let ports = if self.block_size > 0 { units * u32::from(self.block_size) } else { units };
        let number = self.addresses.len();
        let listed = if blocks > 0 {
            self.with_blocks.push(number as u16);
            self.with_blocks.len() - 1
        } else {
            usize::MAX
        };
        let empty = Block { owner: NONE, used: 0, empty_since_s: 0, queued: false };
        self.addresses.push(Address {
            ip,
            pool,
            maps,
            first,
            ports,
            subscribers: 0,
            blocks: vec![empty; blocks as usize],
            free_blocks: (0..blocks as u16).collect(),
            listed,
        });
    }

    /// Number of a pool address.
    pub(crate) fn number_of(&self, ip: u32) -> Option<u16> {
        let at = self.by_ip.partition_point(|(first, ..)| *first <= ip).checked_sub(1)?;
        let (first, last, number) = *self.by_ip.get(at)?;
        (ip <= last).then(|| (number + (ip - first)) as u16)
    }

    /// The outside address of that number.
    pub(crate) fn ip_of(&self, address: u16) -> Option<u32> {
        self.addresses.get(usize::from(address)).map(|a| a.ip)
    }

    /// Takes a port out of the pool for a forward rule; `false` when it is in use.
    pub(crate) fn reserve(&mut self, address: u16, proto: Proto, port: u16, now_s: u32) -> bool {
        match self.map(address, proto) {
            Some(map) => map.alloc_exact(port, now_s),
            None => false,
        }
    }

    fn map(&mut self, address: u16, proto: Proto) -> Option<&mut PortMap> {
        self.addresses.get_mut(usize::from(address))?.maps.get_mut(proto.index())
    }

    /// Gives a port to a subscriber's inside port.
    ///
    /// Ports are chosen at random within what the subscriber may use (RFC 6056, RFC 6888 REQ-15). Never evicts.
    #[allow(clippy::too_many_arguments, reason = "the engine's parts are borrowed apart")]
    pub(crate) fn allocate(
        &mut self,
        instance: &Instance,
        line: u32,
        subscriber: &mut Subscriber,
        wish: Wish,
        now_s: u32,
        rng: &mut Rng,
        events: &mut impl FnMut(NatEvent),
    ) -> Result<Allocated, Reason> {
        let allocated = match instance.assignment {
            Assignment::Blocks { per_subscriber_max, .. } => {
                self.from_blocks(instance, per_subscriber_max, line, subscriber, wish, now_s, rng, events)
            }
            Assignment::Arbitrary => self.from_any(instance, subscriber, wish, now_s, rng, events),
            Assignment::Deterministic { .. } => self.from_share(subscriber, wish, now_s, rng),
        }?;
        self.mappings += 1;
        Ok(allocated)
    }

    fn from_share(
        &mut self,
        subscriber: &mut Subscriber,
        wish: Wish,
        now_s: u32,
        rng: &mut Rng,
    ) -> Result<Allocated, Reason> {
        let share = self
            .deterministic
            .as_ref()
            .and_then(|function| function.share(subscriber.inside_ip))
            .ok_or(Reason::NatPoolExhausted)?;
        let address = self.number_of(share.outside).ok_or(Reason::NatPoolExhausted)?;
        subscriber.address = address;
        self.take(address, share.first..=share.last, wish, now_s, rng).ok_or(Reason::NatPortsExhausted)
    }

    fn from_any(
        &mut self,
        instance: &Instance,
        subscriber: &mut Subscriber,
        wish: Wish,
        now_s: u32,
        rng: &mut Rng,
        events: &mut impl FnMut(NatEvent),
    ) -> Result<Allocated, Reason> {
        let paired = instance.pooling == Pooling::Paired;
        if paired && subscriber.address != NO_ADDRESS {
            // RFC 4787 REQ-2 and RFC 7857 §4: paired means paired; a full address refuses rather than splits.
            return self.take_any(subscriber.address, wish, now_s, rng).ok_or(Reason::NatPortsExhausted);
        }
        let count = self.addresses.len();
        let start = rng.below(count);
        for step in 0..count.min(ADDRESS_TRIES_MAX) {
            let address = ((start + step) % count) as u16;
            if let Some(allocated) = self.take_any(address, wish, now_s, rng) {
                if paired {
                    self.bind(instance, subscriber, address, events);
                }
                return Ok(allocated);
            }
        }
        Err(Reason::NatPoolExhausted)
    }

    /// A port of this worker's whole share of the address, well-known for well-known where the pool has such
    /// (RFC 4787 REQ-3a).
    fn take_any(&mut self, address: u16, wish: Wish, now_s: u32, rng: &mut Rng) -> Option<Allocated> {
        let line = self.addresses.get(usize::from(address)).filter(|a| a.ports > 0)?;
        let (first, last) = (line.first, line.last());
        let range = if first >= WELL_KNOWN_END || last < WELL_KNOWN_END {
            first..=last
        } else if wish.inside_port < WELL_KNOWN_END && wish.proto != Proto::Icmp {
            first..=WELL_KNOWN_END - 1
        } else {
            WELL_KNOWN_END..=last
        };
        self.take(address, range, wish, now_s, rng)
    }

    #[allow(clippy::too_many_arguments, reason = "the engine's parts are borrowed apart")]
    fn from_blocks(
        &mut self,
        instance: &Instance,
        per_subscriber_max: u8,
        line: u32,
        subscriber: &mut Subscriber,
        wish: Wish,
        now_s: u32,
        rng: &mut Rng,
        events: &mut impl FnMut(NatEvent),
    ) -> Result<Allocated, Reason> {
        for at in subscriber.blocks().iter().rev() {
            let Some(range) = self.block_range(*at) else { continue };
            if let Some(allocated) = self.take(at.address, range, wish, now_s, rng) {
                self.count_in_block(*at, 1, now_s);
                return Ok(allocated);
            }
        }
        if subscriber.block_count >= per_subscriber_max.min(BLOCKS_MAX as u8) {
            return Err(Reason::NatBlockLimit);
        }
        let at = self.new_block(instance, line, subscriber, now_s, rng, events)?;
        let range = self.block_range(at).ok_or(Reason::NatPoolExhausted)?;
        let allocated = self.take(at.address, range, wish, now_s, rng).ok_or(Reason::NatPortsExhausted)?;
        self.count_in_block(at, 1, now_s);
        Ok(allocated)
    }

    fn new_block(
        &mut self,
        instance: &Instance,
        line: u32,
        subscriber: &mut Subscriber,
        now_s: u32,
        rng: &mut Rng,
        events: &mut impl FnMut(NatEvent),
    ) -> Result<BlockRef, Reason> {
        self.end_hold(now_s);
        let bound = instance.pooling == Pooling::Paired && subscriber.address != NO_ADDRESS;
        let address = if bound {
            subscriber.address
        } else {
            *self.with_blocks.get(rng.below(self.with_blocks.len())).ok_or(Reason::NatPoolExhausted)?
        };
        let full = if bound { Reason::NatPortsExhausted } else { Reason::NatPoolExhausted };
        let home = self.addresses.get_mut(usize::from(address)).ok_or(full)?;
        if home.free_blocks.is_empty() {
            return Err(full);
        }
        let block = home.free_blocks.swap_remove(rng.below(home.free_blocks.len()));
        if let Some(entry) = home.blocks.get_mut(usize::from(block)) {
            entry.owner = line;
            entry.used = 0;
        }
        self.blocks_used += 1;
        self.relist(address);
        if instance.pooling == Pooling::Paired && !bound {
            self.bind(instance, subscriber, address, events);
        }
        let at = BlockRef { address, block };
        if let Some(slot) = subscriber.blocks.get_mut(usize::from(subscriber.block_count)) {
            *slot = at;
            subscriber.block_count += 1;
        }
        let event = NatEvent::BlockAllocated {
            instance: instance.id,
            inside: subscriber.inside_ip,
            block: self.block_row(at),
        };
        events(event);
        Ok(at)
    }

    fn bind(
        &mut self,
        instance: &Instance,
        subscriber: &mut Subscriber,
        address: u16,
        events: &mut impl FnMut(NatEvent),
    ) {
        subscriber.address = address;
        if let Some(home) = self.addresses.get_mut(usize::from(address)) {
            home.subscribers += 1;
            let (inside, outside) = (subscriber.inside_ip, home.ip);
            events(NatEvent::AddressBound { instance: instance.id, inside, outside });
        }
    }

    /// Ends a subscriber's tie to its address, when its line goes away.
    pub(crate) fn unbind(
        &mut self,
        instance: &Instance,
        subscriber: &mut Subscriber,
        events: &mut impl FnMut(NatEvent),
    ) {
        let address = std::mem::replace(&mut subscriber.address, NO_ADDRESS);
        if self.deterministic.is_some() || instance.pooling == Pooling::Arbitrary {
            return;
        }
        if let Some(home) = self.addresses.get_mut(usize::from(address)) {
            home.subscribers = home.subscribers.saturating_sub(1);
            let (inside, outside) = (subscriber.inside_ip, home.ip);
            events(NatEvent::AddressReleased { instance: instance.id, inside, outside });
        }
    }

    fn take(
        &mut self,
        address: u16,
        range: RangeInclusive<u16>,
        wish: Wish,
        now_s: u32,
        rng: &mut Rng,
    ) -> Option<Allocated> {
        let ip = self.ip_of(address)?;
        let map = self.map(address, wish.proto)?;
        let port = take_port(map, range, wish, now_s, rng)?;
        Some(Allocated { address, ip, port })
    }

    /// Takes a port back. `hold` keeps it from others for the hold time (RFC 6888 REQ-8).
    pub(crate) fn release(&mut self, address: u16, port: u16, proto: Proto, now_s: u32, hold: bool) {
        self.mappings = self.mappings.saturating_sub(1);
        if let Some(map) = self.map(address, proto) {
            map.free(port, now_s, hold);
        }
        if let Some(at) = self.block_at(address, port) {
            self.count_in_block(at, -1, now_s);
        }
    }

    fn block_at(&self, address: u16, port: u16) -> Option<BlockRef> {
        let home = self.addresses.get(usize::from(address))?;
        let block = port.checked_sub(home.first)?.checked_div(self.block_size)?;
        Some(BlockRef { address, block })
    }

    fn block_range(&self, at: BlockRef) -> Option<RangeInclusive<u16>> {
        let home = self.addresses.get(usize::from(at.address))?;
        let first = u32::from(home.first) + u32::from(at.block) * u32::from(self.block_size);
        let first = u16::try_from(first).ok()?;
        Some(first..=first + (self.block_size.max(1) - 1))
    }

    pub(crate) fn block_row(&self, at: BlockRef) -> BlockRow {
        let range = self.block_range(at).unwrap_or(0..=0);
        BlockRow { ip: self.ip_of(at.address).unwrap_or(0), first: *range.start(), last: *range.end() }
    }

    fn block_mut(&mut self, at: BlockRef) -> Option<&mut Block> {
        self.addresses.get_mut(usize::from(at.address))?.blocks.get_mut(usize::from(at.block))
    }

    fn count_in_block(&mut self, at: BlockRef, change: i32, now_s: u32) {
        let Some(block) = self.block_mut(at) else { return };
        block.used = block.used.saturating_add_signed(change);
        if block.used == 0 && !block.queued && block.owner != NONE {
            block.empty_since_s = now_s;
            block.queued = true;
            self.idle.push_back(Waiting { due_s: now_s, at });
        } else if block.used == 0 {
            block.empty_since_s = now_s;
        }
    }

    /// Gives a block back: to the hold queue, then to everybody.
    pub(crate) fn release_block(
        &mut self,
        instance: &Instance,
        subscriber: &mut Subscriber,
        at: BlockRef,
        now_s: u32,
        events: &mut impl FnMut(NatEvent),
    ) {
        let row = self.block_row(at);
        let Some(block) = self.block_mut(at) else { return };
        block.owner = NONE;
        let count = usize::from(subscriber.block_count);
        let held = subscriber.blocks.get_mut(..count).unwrap_or(&mut []);
        if let Some(place) = held.iter().position(|b| *b == at) {
            held.swap(place, count - 1);
            subscriber.block_count -= 1;
        }
        events(NatEvent::BlockReleased { instance: instance.id, inside: subscriber.inside_ip, block: row });
        self.held.push_back(Waiting { due_s: now_s.saturating_add(instance.port_hold_s), at });
        self.end_hold(now_s);
    }

    /// Returns blocks whose hold time is over to the free list.
    pub(crate) fn end_hold(&mut self, now_s: u32) {
        while self.held.front().is_some_and(|w| w.due_s <= now_s) {
            let Some(Waiting { at, .. }) = self.held.pop_front() else { return };
            if let Some(home) = self.addresses.get_mut(usize::from(at.address)) {
                home.free_blocks.push(at.block);
                self.blocks_used -= 1;
            }
            self.relist(at.address);
        }
    }

    /// Blocks that became empty and have been so for `idle_s`: calls back with (owner line, block). A few at a time.
    pub(crate) fn next_idle(&mut self, idle_s: u32, now_s: u32) -> Option<(u32, BlockRef)> {
        for _ in 0..8 {
            let waiting = *self.idle.front().filter(|w| w.due_s <= now_s)?;
            self.idle.pop_front();
            let Some(block) = self.block_mut(waiting.at) else { continue };
            block.queued = false;
            if block.used > 0 || block.owner == NONE {
                continue;
            }
            let due_s = block.empty_since_s.saturating_add(idle_s);
            let owner = block.owner;
            if due_s <= now_s {
                return Some((owner, waiting.at));
            }
            block.queued = true;
            self.idle.push_back(Waiting { due_s, at: waiting.at });
        }
        None
    }

    /// Keeps `with_blocks` true for one address.
    fn relist(&mut self, address: u16) {
        let Some(home) = self.addresses.get_mut(usize::from(address)) else { return };
        let (has, place) = (!home.free_blocks.is_empty(), home.listed);
        if has && place == usize::MAX {
            home.listed = self.with_blocks.len();
            self.with_blocks.push(address);
        } else if !has && place != usize::MAX {
            home.listed = usize::MAX;
            self.with_blocks.swap_remove(place);
            if let Some(moved) = self.with_blocks.get(place).copied()
                && let Some(moved) = self.addresses.get_mut(usize::from(moved))
            {
                moved.listed = place;
            }
        }
    }

    /// Use in percent: of blocks in block mode, else of ports of the fullest protocol.
    pub(crate) fn percent_used(&self) -> u8 {
        let (used, total) = if self.blocks_total > 0 {
            (self.blocks_used, self.blocks_total)
        } else {
            let ports: u64 = self.addresses.iter().map(|a| u64::from(a.ports)).sum();
            let used = |proto: usize| -> u64 {
                self.addresses.iter().filter_map(|a| a.maps.get(proto)).map(|m| u64::from(m.used())).sum()
            };
            ((0..3).map(used).max().unwrap_or(0), ports)
        };
        (used * 100).checked_div(total).unwrap_or(0).min(100) as u8
    }

    pub(crate) fn row(&self, instance: &Instance, number: usize) -> Option<PoolRow> {
        let address = self.addresses.get(number)?;
        let used = |proto: usize| address.maps.get(proto).map_or(0, PortMap::used);
        Some(PoolRow {
            instance: instance.id,
            pool: address.pool,
            ip: address.ip,
            subscribers: address.subscribers,
            ports_total: address.ports,
            ports_used: [used(0), used(1), used(2)],
            blocks_total: address.blocks.len() as u32,
            blocks_used: (address.blocks.len() - address.free_blocks.len()) as u32,
        })
    }

    pub(crate) fn address_count(&self) -> usize {
        self.addresses.len()
    }

    pub(crate) fn memory(&self) -> (u64, u64, &'static str) {
        (self.addresses.len() as u64, self.bytes, self.pages)
    }
}

/// What an inside endpoint would like its outside port to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) proto: Proto,
    pub(crate) inside_port: u16,
    /// Even for even, odd for odd (RFC 4787 REQ-4).
    pub(crate) parity: bool,
    /// Leave room for the next port (RTP and RTCP).
    pub(crate) contiguity: bool,
    /// This very port, when the inside port's even neighbour has the one below it.
    pub(crate) exactly: Option<u16>,
}

/// A port of the range as wished; parity and contiguity give way when the range has no such port.
fn take_port(
    map: &mut PortMap,
    range: RangeInclusive<u16>,
    wish: Wish,
    now_s: u32,
    rng: &mut Rng,
) -> Option<u16> {
    if let Some(port) = wish.exactly
        && range.contains(&port)
        && map.alloc_exact(port, now_s)
    {
        return Some(port);
    }
    let hint = rng.next_u16();
    if wish.contiguity
        && wish.inside_port % 2 == 0
        && let Some(port) = map.alloc_pair_contiguous(range.clone(), true, hint, now_s)
    {
        map.free(port + 1, now_s, false);
        return Some(port);
    }
    let parity = wish.parity.then(|| Parity::of(wish.inside_port));
    map.alloc_in(range.clone(), hint, parity, now_s)
        .or_else(|| parity.and_then(|_| map.alloc_in(range, hint, None, now_s)))
}

/// The short word for a page size.
pub(crate) const fn page_name(kind: carrack_tables::PageKind) -> &'static str {
    use carrack_tables::PageKind;
    match kind {
        PageKind::Huge1G => "1G",
        PageKind::Huge2M => "2M",
        PageKind::Transparent => "thp",
        PageKind::Small => "4K",
    }
}
