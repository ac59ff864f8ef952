//! Outside addresses and ports of one instance, this worker's share of them.
//!
//! With several workers, each pool address's port range is cut into as many slices; a worker gives out ports of its
//! slice only, so two workers never give out the same port and a packet from outside tells its owner by its port.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use carrack_base::{PoolId, Proto, Reason, WorkerId};
use carrack_tables::{Arena, ArenaError, PagePreference, Parity, PortMap};

use crate::blocks::{Block, Waiting};
use crate::deterministic::Deterministic;
use crate::line::{NO_ADDRESS, NONE, Subscriber};
use crate::policy::{Assignment, Instance, Pooling};
use crate::rng::Rng;
use crate::row::{NatEvent, PoolRow};
use crate::slices::Slices;

/// Addresses tried for one allocation before the pool counts as exhausted in `Arbitrary` mode. Bounds the work of a
/// burst; the address is chosen at random, so a pool that fails so many tries is full for all practical purposes.
const ADDRESS_TRIES_MAX: usize = 64;

/// Ports below this are "well known" (RFC 4787 REQ-3a).
const WELL_KNOWN_END: u16 = 1_024;

/// One outside address.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) ip: u32,
    pub(crate) pool: PoolId,
    pub(crate) maps: [PortMap; 3],
    /// This worker's ports.
    pub(crate) first: u16,
    /// Number of this worker's ports.
    pub(crate) ports: u32,
    /// Subscribers paired to it.
    pub(crate) subscribers: u32,
    pub(crate) blocks: Vec<Block>,
    pub(crate) free_blocks: Vec<u16>,
    /// Its place in `with_blocks`, or `usize::MAX`.
    pub(crate) listed: usize,
}

impl Address {
    fn last(&self) -> u16 {
        // Invariant: a share's ports lie within 16 bits.
        (u32::from(self.first) + self.ports.max(1) - 1) as u16
    }
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
    pub(crate) addresses: Vec<Address>,
    /// (first address, last address, number of the first), sorted.
    by_ip: Vec<(u32, u32, u32)>,
    /// Addresses that have a free block.
    pub(crate) with_blocks: Vec<u16>,
    pub(crate) held: VecDeque<Waiting>,
    pub(crate) idle: VecDeque<Waiting>,
    pub(crate) block_size: u16,
    /// Hold time of single ports; blocks are held whole.
    pub(crate) hold_s: u32,
    /// Ports of forward rules in this worker's share: (address, protocol, port), sorted. Never given to a mapping.
    forwards: Vec<(u16, u8, u16)>,
    pub(crate) deterministic: Option<Deterministic>,
    bytes: u64,
    pages: &'static str,
    /// Ports in use by protocol, those of forward rules included.
    pub(crate) used: [u64; 3],
    ports_total: u64,
    pub(crate) blocks_used: u64,
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
        // A block is held back whole; ports of deterministic and block mode stay with their subscriber, who may use
        // them again at once (RFC 6888 REQ-8b).
        let hold_s = if instance.assignment == Assignment::Arbitrary { instance.port_hold_s } else { 0 };
        let arena_bytes = count.max(1) * 3 * PortMap::bytes_for(hold_s);
        let mut arena = Arena::new("nat-ports", arena_bytes, pages)?;
        let mut this = Self {
            addresses: Vec::with_capacity(count),
            by_ip: Vec::new(),
            with_blocks: Vec::with_capacity(count),
            held: VecDeque::new(),
            idle: VecDeque::new(),
            block_size,
            hold_s,
            forwards: Vec::new(),
            deterministic: Deterministic::of(instance),
            bytes: arena_bytes as u64,
            pages: page_name(arena.page_kind()),
            used: [0; 3],
            ports_total: 0,
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
        this.ports_total = this.addresses.iter().map(|a| u64::from(a.ports)).sum();
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

    /// Tells which ports of which addresses forward rules use: (address number, protocol, port), sorted. They are
    /// kept from everybody else as soon as they are free; those that are no rule's any more are given back.
    pub(crate) fn set_forwards(&mut self, forwards: Vec<(u16, u8, u16)>, now_s: u32) {
        let before = std::mem::replace(&mut self.forwards, forwards);
        for (address, proto, port) in before {
            if !self.is_forwarded(address, proto, port) {
                let proto = Proto::from_index(proto);
                self.free_port(address, port, proto, now_s, proto != Proto::Tcp);
            }
        }
        for at in 0..self.forwards.len() {
            let Some((address, proto, port)) = self.forwards.get(at).copied() else { return };
            let taken = self
                .map(address, Proto::from_index(proto))
                .is_some_and(|map| !map.is_used(port) && map.alloc_exact(port, now_s));
            if taken && let Some(used) = self.used.get_mut(usize::from(proto)) {
                *used += 1;
            }
        }
    }

    /// Is the port in this worker's share of the address?
    pub(crate) fn is_mine(&self, address: u16, port: u16) -> bool {
        let home = self.addresses.get(usize::from(address));
        home.is_some_and(|a| a.ports > 0 && (a.first..=a.last()).contains(&port))
    }

    fn is_forwarded(&self, address: u16, proto: u8, port: u16) -> bool {
        self.forwards.binary_search(&(address, proto, port)).is_ok()
    }

    pub(crate) fn map(&mut self, address: u16, proto: Proto) -> Option<&mut PortMap> {
        self.addresses.get_mut(usize::from(address))?.maps.get_mut(proto.index())
    }

    /// Gives a port to a subscriber's inside port.
    ///
    /// Ports are chosen at random within what the subscriber may use (RFC 6056, RFC 6888 REQ-15, RFC 7857 §9). Never
    /// evicts, and never gives a port to two at once (RFC 4787 REQ-3, RFC 5382 REQ-7).
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
        match instance.assignment {
            Assignment::Blocks { per_subscriber_max, .. } => self.allocate_in_blocks(
                instance,
                per_subscriber_max,
                line,
                subscriber,
                wish,
                now_s,
                rng,
                events,
            ),
            Assignment::Arbitrary => self.allocate_anywhere(instance, subscriber, wish, now_s, rng, events),
            Assignment::Deterministic { .. } => self.allocate_in_share(subscriber, wish, now_s, rng),
        }
    }

    fn allocate_in_share(
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
        if let Some((at, port)) = wish.exactly
            && at == address
            && (share.first..=share.last).contains(&port)
            && let Some(allocated) = self.take(address, port..=port, wish, now_s, rng)
        {
            return Ok(allocated);
        }
        self.take(address, share.first..=share.last, wish, now_s, rng).ok_or(Reason::NatPortsExhausted)
    }

    fn allocate_anywhere(
        &mut self,
        instance: &Instance,
        subscriber: &mut Subscriber,
        wish: Wish,
        now_s: u32,
        rng: &mut Rng,
        events: &mut impl FnMut(NatEvent),
    ) -> Result<Allocated, Reason> {
        let paired = instance.pooling == Pooling::Paired;
        if let Some((address, port)) = wish.exactly
            && self.is_mine(address, port)
            && (!paired || subscriber.address == address)
            && let Some(allocated) = self.take(address, port..=port, wish, now_s, rng)
        {
            return Ok(allocated);
        }
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

    /// A port of this worker's whole share of the address. RFC 4787 REQ-3a: well-known for well-known where the pool
    /// has such, and never well-known for others.
    fn take_any(&mut self, address: u16, wish: Wish, now_s: u32, rng: &mut Rng) -> Option<Allocated> {
        let line = self.addresses.get(usize::from(address)).filter(|a| a.ports > 0)?;
        let (first, last) = (line.first, line.last());
        if first >= WELL_KNOWN_END || last < WELL_KNOWN_END {
            return self.take(address, first..=last, wish, now_s, rng);
        }
        let well_known = wish.inside_port < WELL_KNOWN_END && wish.proto != Proto::Icmp;
        let kept = well_known.then(|| self.take(address, first..=WELL_KNOWN_END - 1, wish, now_s, rng));
        kept.flatten().or_else(|| self.take(address, WELL_KNOWN_END..=last, wish, now_s, rng))
    }

    pub(crate) fn bind(
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

    pub(crate) fn take(
        &mut self,
        address: u16,
        range: RangeInclusive<u16>,
        wish: Wish,
        now_s: u32,
        rng: &mut Rng,
    ) -> Option<Allocated> {
        let proto = wish.proto.index();
        loop {
            let home = self.addresses.get_mut(usize::from(address))?;
            let port = take_port(home.maps.get_mut(proto)?, range.clone(), wish, now_s, rng)?;
            let ip = home.ip;
            *self.used.get_mut(proto)? += 1;
            // A forward rule's port that was in its hold time when the rule came: from now on it is the rule's.
            if !self.is_forwarded(address, wish.proto as u8, port) {
                return Some(Allocated { address, ip, port });
            }
        }
    }

    /// Fetches what tells where an address's ports are.
    #[inline]
    pub(crate) fn prefetch_address(&self, address: u16, proto: Proto) {
        if let Some(home) = self.addresses.get(usize::from(address)) {
            carrack_tables::prefetch(&home.first);
            home.maps.get(proto.index()).inspect(|map| carrack_tables::prefetch(*map));
        }
    }

    /// Fetches a port's bit, and its block's line.
    #[inline]
    pub(crate) fn prefetch_port(&self, address: u16, proto: Proto, port: u16) {
        if let Some(home) = self.addresses.get(usize::from(address)) {
            home.maps.get(proto.index()).inspect(|map| map.prefetch(port));
            let block = port.checked_sub(home.first).and_then(|at| at.checked_div(self.block_size));
            block
                .and_then(|at| home.blocks.get(usize::from(at)))
                .inspect(|block| carrack_tables::prefetch(*block));
        }
    }

    /// Fetches the first port's bit of a block, and the block's line.
    #[inline]
    pub(crate) fn prefetch_block(&self, at: crate::line::BlockRef, proto: Proto) {
        if let Some(range) = self.block_range(at) {
            self.prefetch_port(at.address, proto, *range.start());
        }
    }

    /// Takes a mapping's port back. `hold` keeps it from others for the hold time (RFC 6888 REQ-8).
    pub(crate) fn release(&mut self, address: u16, port: u16, proto: Proto, now_s: u32, hold: bool) {
        self.free_port(address, port, proto, now_s, hold);
        if let Some(block) = self.block_at(address, port) {
            self.count_in_block(block, -1, now_s);
        }
    }

    fn free_port(&mut self, address: u16, port: u16, proto: Proto, now_s: u32, hold: bool) {
        let freed = self.map(address, proto).is_some_and(|map| map.free(port, now_s, hold));
        if freed && let Some(used) = self.used.get_mut(proto.index()) {
            *used = used.saturating_sub(1);
        }
    }

    /// Use in percent: of blocks in block mode, else of ports of the fullest protocol.
    pub(crate) fn percent_used(&self) -> u8 {
        let (used, total) = if self.blocks_total > 0 {
            (self.blocks_used, self.blocks_total)
        } else {
            (self.used.into_iter().max().unwrap_or(0), self.ports_total)
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

    pub(crate) fn memory(&self) -> (u64, u64, u64, &'static str) {
        (self.ports_total * 3, self.used.iter().sum(), self.bytes, self.pages)
    }
}

/// What an inside endpoint would like its outside port to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) proto: Proto,
    pub(crate) inside_port: u16,
    /// Even for even, odd for odd (RFC 4787 REQ-4), if the instance says so (RFC 7857 §8).
    pub(crate) parity: bool,
    /// Leave room for the next port (RTP and RTCP).
    pub(crate) contiguity: bool,
    /// Give none rather than one of the other parity.
    pub(crate) strict: bool,
    /// This very port of this address, when the inside port's even neighbour has the one below it.
    pub(crate) exactly: Option<(u16, u16)>,
}

/// A port of the range as wished; parity and contiguity give way when the range has no such port.
fn take_port(
    map: &mut PortMap,
    range: RangeInclusive<u16>,
    wish: Wish,
    now_s: u32,
    rng: &mut Rng,
) -> Option<u16> {
    if range.start() == range.end() {
        return map.alloc_exact(*range.start(), now_s).then_some(*range.start());
    }
    let hint = rng.next_u16();
    if wish.contiguity
        && wish.inside_port.is_multiple_of(2)
        && let Some(port) = map.alloc_pair_contiguous(range.clone(), true, hint, now_s)
    {
        map.free(port + 1, now_s, false);
        return Some(port);
    }
    let parity = wish.parity.then(|| Parity::of(wish.inside_port));
    map.alloc_in(range.clone(), hint, parity, now_s)
        .or_else(|| parity.filter(|_| !wish.strict).and_then(|_| map.alloc_in(range, hint, None, now_s)))
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
