//! Outside addresses and ports of one instance, this worker's share of them.
//!
//! With several workers, no two ever give out the same port, and a packet from outside tells its owner by its port:
//! port blocks are claimed by workers one by one (`ownership`); without blocks, each pool address's port range is cut
//! into as many slices, and a worker gives out ports of its slice only.

use std::ops::RangeInclusive;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use carrack_base::{PoolId, Proto, Reason, WorkerId};
use carrack_tables::{Arena, ArenaError, Backing, PagePreference, Parity, PortMap};

use crate::blocks::{BlockList, ENDS_IN_NEED_MAX};
use crate::claims::Claims;
use crate::deterministic::Deterministic;
use crate::draws::{Draw, Draws};
use crate::line::{BlockRef, NO_ADDRESS, Subscriber};
use crate::ownership::{BlockMap, WorkerGroup};
use crate::policy::{Assignment, Instance, Pool, Pooling};
use crate::rng::Rng;
use crate::row::{Endpoint, MemoryRow, NatEvent, PoolRow};
use crate::slices::Slices;
use crate::waits::Waits;

/// Addresses tried for one allocation before the pool counts as exhausted in `Arbitrary` mode. Bounds the work of a
/// burst; the address is chosen at random, so a pool that fails so many tries is full for all practical purposes.
const ADDRESS_TRIES_MAX: usize = 64;

/// Addresses looked at again in one call after a reload.
const REFRESHED_AT_ONCE: usize = 64;

/// What mappings mostly are of: the ports of these are fetched before it is known.
const PORTED: [Proto; 2] = [Proto::Tcp, Proto::Udp];

/// Ports below this are "well known" (RFC 4787 REQ-3a).
const WELL_KNOWN_END: u16 = 1_024;

/// One outside address. What each allocation looks at comes first, on a line of its own; the map of each protocol is one
/// as well.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Address {
    pub(crate) ip: u32,
    /// Ports before block 0, if it were in the range: fewer than a block has.
    pub(crate) phase: u16,
    /// Number of the first block in the range. So a block has the same number whatever the range is.
    pub(crate) first_block: u16,
    /// Number behind that of the last.
    pub(crate) end_block: u16,
    /// First port of this worker's slice, or of the first block.
    pub(crate) first: u16,
    /// Number of this worker's ports, those of the blocks at home here.
    pub(crate) ports: u32,
    /// All blocks that an address can have, whoever has them: as many whatever the range is.
    pub(crate) blocks: BlockList,
    /// Its number in the block map: its place among the pools' addresses.
    pub(crate) in_map: u16,
    pub(crate) pool: PoolId,
    /// Subscribers paired to it.
    pub(crate) subscribers: u32,
    /// Of the claimed blocks, those in their hold time.
    pub(crate) held_blocks: u32,
    /// Blocks at home with this worker.
    home_blocks: u32,
    /// Those that this worker has claimed: its subscribers' and those in their hold time.
    pub(crate) claims: Claims,
    /// By protocol; none of a number that stands for no address, see [`Address::hole`].
    pub(crate) maps: [Option<PortMap>; 3],
}

const _: () = assert!(size_of::<Option<PortMap>>() == 64 && core::mem::offset_of!(Address, claims) <= 64);

impl Address {
    /// Stands for no address: its number is free.
    pub(crate) fn hole() -> Self {
        Self {
            ip: 0,
            pool: PoolId::default(),
            maps: [const { None }; 3],
            in_map: NO_ADDRESS,
            first: 0,
            ports: 0,
            subscribers: 0,
            phase: 0,
            first_block: 0,
            end_block: 0,
            blocks: BlockList::default(),
            claims: Claims::default(),
            home_blocks: 0,
            held_blocks: 0,
        }
    }

    /// Ports of a block of that size.
    #[inline(always)]
    pub(crate) fn block_range(&self, block: u16, size: u16) -> Option<RangeInclusive<u16>> {
        let first = u32::from(self.phase) + u32::from(block) * u32::from(size);
        let first = u16::try_from(first).ok()?;
        Some(first..=first + (size.max(1) - 1))
    }

    /// The block that a port is in, if they are of that size.
    #[inline(always)]
    pub(crate) fn block_at(&self, port: u16, size: u16) -> Option<u16> {
        let block = port.checked_sub(self.phase)?.checked_div(size)?;
        (self.first_block..self.end_block).contains(&block).then_some(block)
    }

    /// Fetches what tells where a protocol's ports are, and blocks.
    #[inline(always)]
    fn prefetch(&self, proto: Proto) {
        carrack_tables::prefetch(&self.ip);
        self.maps.get(space(proto)).inspect(|map| carrack_tables::prefetch(*map));
    }

    fn map(&self, proto: Proto) -> Option<&PortMap> {
        self.maps.get(space(proto))?.as_ref()
    }

    /// What all but well-known inside ports are given of: no well-known ports where the share has others.
    fn mostly(&self) -> RangeInclusive<u16> {
        let last = self.last();
        if last < WELL_KNOWN_END { self.first..=last } else { self.first.max(WELL_KNOWN_END)..=last }
    }

    fn last(&self) -> u16 {
        // Invariant: a share's ports lie within 16 bits.
        (u32::from(self.first) + self.ports.max(1) - 1) as u16
    }
}

/// Ports that a forward rule leads in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ForwardPorts {
    pub(crate) ip: u32,
    pub(crate) proto: Proto,
    pub(crate) first: u16,
    pub(crate) last: u16,
}

/// What an allocation gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocated {
    pub(crate) address: u16,
    pub(crate) ip: u32,
    pub(crate) port: u16,
}

impl Allocated {
    /// The outside endpoint.
    #[inline(always)]
    pub(crate) const fn endpoint(&self) -> Endpoint {
        Endpoint { ip: self.ip, port: self.port }
    }
}

/// Outside ports of one instance.
#[derive(Debug)]
pub(crate) struct Ports {
    /// By number, which an address keeps over reloads.
    pub(crate) addresses: Vec<Address>,
    /// Numbers of addresses in the order of the pools, as the block map has them.
    pub(crate) by_map: Vec<u16>,
    pub(crate) worker: WorkerId,
    /// Which block is whose, and addresses by number.
    pub(crate) map: Arc<BlockMap>,
    /// Maps that cut one of these addresses otherwise and that some worker may still work by: until they are gone,
    /// nothing is given out.
    differing: Vec<Weak<BlockMap>>,
    /// Maps that share an address and that some worker may still work by.
    sharing: Vec<Weak<BlockMap>>,
    /// Addresses from here on are still to be looked at again after all `sharing` are gone.
    refreshed: usize,
    pub(crate) held: Waits,
    /// Blocks whose hold time may still be ended in this burst because no other is free.
    pub(crate) ends_in_need: usize,
    pub(crate) idle: Waits,
    /// Where new blocks will be looked for.
    pub(crate) draws: Draws,
    pub(crate) block_size: u16,
    /// Hold time of single ports; blocks are held whole.
    pub(crate) hold_s: u32,
    /// Most ports of an address and protocol that this worker holds.
    pub(crate) held_ports_max: u32,
    /// Ports of forward rules, sorted. Never given to a mapping.
    forwards: Vec<ForwardPorts>,
    pub(crate) deterministic: Option<Deterministic>,
    bytes: u64,
    backing: Backing,
    /// Ports in use by protocol, those of forward rules included.
    pub(crate) used: [u64; 3],
    ports_total: u64,
    pub(crate) blocks_used: u64,
}

impl Ports {
    /// Builds the share of `worker`. Allocates: done at start and at reload, never on the packet path.
    pub(crate) fn new(
        instance: &Instance,
        worker: WorkerId,
        group: &WorkerGroup,
        pages: PagePreference,
    ) -> Result<Self, ArenaError> {
        let count: usize = instance.pools.iter().flat_map(|p| &p.ranges).map(|r| r.count() as usize).sum();
        let block_size = instance.assignment.blocks().map_or(0, |blocks| blocks.size);
        // A block is held back whole; ports of deterministic and block mode stay with their subscriber, who may use
        // them again at once (RFC 6888 REQ-8b).
        let hold_s = if instance.assignment == Assignment::Arbitrary { instance.port_hold_s } else { 0 };
        // With a hold time, or such that a reload can give it one.
        let room_s = if instance.assignment == Assignment::Arbitrary { hold_s.max(1) } else { 0 };
        let arena_bytes = count.max(1) * (3 * PortMap::bytes_for(room_s) + BlockList::bytes_for(block_size));
        let mut arena = Arena::new("nat-ports", arena_bytes, pages.for_small_tables())?;
        let map = group.block_map(instance);
        let mut this = Self {
            addresses: Vec::with_capacity(count),
            by_map: (0..count as u32).map(|number| number as u16).collect(),
            worker,
            differing: map.before(true),
            sharing: map.before(false),
            refreshed: if map.before(false).is_empty() { count } else { 0 },
            map,
            held: Waits::new(0),
            ends_in_need: ENDS_IN_NEED_MAX,
            idle: Waits::new(0),
            draws: Draws::new(),
            block_size,
            hold_s,
            held_ports_max: held_ports_max(instance, group),
            forwards: Vec::new(),
            deterministic: Deterministic::of(instance),
            bytes: arena_bytes as u64,
            backing: arena.backing(),
            used: [0; 3],
            ports_total: 0,
            blocks_used: 0,
        };
        for pool in &instance.pools {
            let slices = Slices::of(pool, instance.assignment, group.workers());
            let (first, ports) = if this.deterministic.is_some() {
                (pool.port_first, u32::from(pool.port_last.saturating_sub(pool.port_first)) + 1)
            } else {
                slices.share(worker)
            };
            for range in &pool.ranges {
                for ip in range.first..=range.last {
                    // Held ports of a map are let go all at once: each map has a second of its own for that.
                    let phase = (this.addresses.len() * 3) as u16;
                    let mut maps = [
                        PortMap::new(&mut arena, room_s, phase)?,
                        PortMap::new(&mut arena, room_s, phase.wrapping_add(1))?,
                        PortMap::new(&mut arena, room_s, phase.wrapping_add(2))?,
                    ];
                    maps.iter_mut().for_each(|map| map.set_hold_s(hold_s, 0));
                    if block_size > 0 {
                        let first = instance.assignment.cut_range(pool).0;
                        this.push_blocks(&mut arena, ip, (pool, first), maps, slices.units())?;
                    } else {
                        this.push_address(ip, pool.id, maps, first, ports);
                    }
                }
            }
        }
        let blocks: usize = this.addresses.iter().map(|a| usize::from(a.end_block - a.first_block)).sum();
        this.ports_total = this.addresses.iter().map(|a| u64::from(a.ports)).sum();
        (this.held, this.idle) = (Waits::new(blocks), Waits::new(blocks));
        Ok(this)
    }

    fn push_address(&mut self, ip: u32, pool: PoolId, maps: [PortMap; 3], first: u16, ports: u32) {
        self.addresses.push(Address {
            ip,
            pool,
            maps: maps.map(Some),
            in_map: self.addresses.len() as u16,
            first,
            ports,
            subscribers: 0,
            phase: 0,
            first_block: 0,
            end_block: 0,
            blocks: BlockList::default(),
            claims: Claims::default(),
            home_blocks: 0,
            held_blocks: 0,
        });
    }

    fn push_blocks(
        &mut self,
        arena: &mut Arena,
        ip: u32,
        (pool, first): (&Pool, u16),
        maps: [PortMap; 3],
        blocks: u32,
    ) -> Result<(), ArenaError> {
        let home_blocks = self.map.home_count(self.addresses.len() as u16, self.worker);
        // Of a deterministic address all ports count, those of the shares too.
        let ports = match &self.deterministic {
            Some(_) => u32::from(pool.port_last - pool.port_first) + 1,
            None => home_blocks * u32::from(self.block_size),
        };
        self.push_address(ip, pool.id, maps, pool.port_first, ports);
        if let Some(address) = self.addresses.last_mut() {
            let size = self.block_size.max(1);
            (address.phase, address.first_block) = (first % size, first / size);
            // Invariant: there are no more blocks than ports.
            address.end_block = address.first_block + blocks as u16;
            let all = (usize::from(u16::MAX) + 1 - usize::from(address.phase)) / usize::from(size);
            (address.blocks, address.claims) = (BlockList::new(arena, all)?, Claims::of(all));
            address.home_blocks = home_blocks;
        }
        Ok(())
    }

    /// Number of a pool address.
    pub(crate) fn number_of(&self, ip: u32) -> Option<u16> {
        self.by_map.get(usize::from(self.map.number_of(ip)?)).copied()
    }

    /// May ports be given out? Not while another worker may still work by a map that cuts an address otherwise: for
    /// the moment until a reload has reached all workers.
    #[inline(always)]
    fn is_in_force(&mut self) -> bool {
        (self.differing.is_empty() && self.refreshed >= self.by_map.len()) || self.comes_in_force()
    }

    #[cold]
    fn comes_in_force(&mut self) -> bool {
        let gone = forget_gone(&mut self.differing);
        if gone && self.refreshed < self.by_map.len() {
            self.refresh();
        }
        gone
    }

    /// Looks at a few addresses again for blocks that were given back by an earlier map.
    #[cold]
    fn refresh(&mut self) {
        if !forget_gone(&mut self.sharing) {
            return;
        }
        for _ in 0..REFRESHED_AT_ONCE.min(self.by_map.len() - self.refreshed) {
            self.map.refresh(self.refreshed as u16);
            self.refreshed += 1;
        }
    }

    /// The outside address of that number.
    pub(crate) fn ip_of(&self, address: u16) -> Option<u32> {
        self.addresses.get(usize::from(address)).map(|a| a.ip)
    }

    /// Tells which ports forward rules use, sorted, none twice; what was told before comes back. They are kept from
    /// everybody else from now on; those that are no rule's any more are given back. [`Ports::take_forward`] takes them.
    pub(crate) fn set_forwards(&mut self, forwards: &mut Vec<ForwardPorts>, now_s: u32) {
        std::mem::swap(&mut self.forwards, forwards);
        for gone in forwards.iter() {
            let Some(address) = self.number_of(gone.ip) else { continue };
            for port in gone.first..=gone.last {
                if !self.is_forwarded(gone.ip, gone.proto, port) {
                    let hold = gone.proto != Proto::Tcp;
                    let freed =
                        self.bits(address, gone.proto).is_some_and(|bits| bits.free(port, now_s, hold));
                    self.count_used(gone.proto, -i64::from(freed && self.is_counted(address, port)));
                }
            }
        }
    }

    /// A forward rule's port is in use from now on, if this worker may come to give it out.
    pub(crate) fn take_forward(&mut self, ip: u32, proto: Proto, port: u16, now_s: u32) {
        let Some(address) = self.number_of(ip).filter(|address| self.is_mine(*address, port)) else { return };
        let taken = self
            .bits(address, proto)
            .is_some_and(|bits| !bits.is_used(port) && bits.alloc_exact(port, now_s));
        self.count_used(proto, i64::from(taken && self.is_counted(address, port)));
    }

    /// Does a forward rule's port count here? Blocks may be anybody's, so every worker keeps the port from its
    /// subscribers; one counts it.
    fn is_counted(&self, address: u16, port: u16) -> bool {
        let in_map = self.addresses.get(usize::from(address)).map_or(NO_ADDRESS, |home| home.in_map);
        self.block_size == 0 || self.map.is_home(in_map, port, self.worker)
    }

    fn count_used(&mut self, proto: Proto, change: i64) {
        if let Some(used) = self.used.get_mut(space(proto)) {
            *used = used.saturating_add_signed(change);
        }
    }

    /// May this worker come to give out the port?
    pub(crate) fn is_mine(&self, address: u16, port: u16) -> bool {
        if self.block_size > 0 && self.deterministic.is_none() {
            return self.block_at(address, port).is_some();
        }
        let home = self.addresses.get(usize::from(address));
        home.is_some_and(|a| a.ports > 0 && (a.first..=a.last()).contains(&port))
    }

    fn is_forwarded(&self, ip: u32, proto: Proto, port: u16) -> bool {
        let after =
            self.forwards.partition_point(|ports| (ports.ip, ports.proto, ports.first) <= (ip, proto, port));
        let found = after.checked_sub(1).and_then(|at| self.forwards.get(at));
        found.is_some_and(|ports| (ports.ip, ports.proto) == (ip, proto) && port <= ports.last)
    }

    /// Ports of forward rules of an address and protocol.
    fn forwards_of(&self, ip: u32, proto: Proto) -> impl Iterator<Item = u16> {
        let first = self.forwards.partition_point(|ports| (ports.ip, ports.proto) < (ip, proto));
        let these = self.forwards.iter().skip(first);
        let these = these.take_while(move |ports| (ports.ip, ports.proto) == (ip, proto));
        these.flat_map(|ports| ports.first..=ports.last)
    }

    pub(crate) fn bits(&mut self, address: u16, proto: Proto) -> Option<&mut PortMap> {
        self.addresses.get_mut(usize::from(address))?.maps.get_mut(space(proto))?.as_mut()
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
        if !self.is_in_force() {
            return Err(Reason::NatPoolChanging);
        }
        if wish.only {
            return self.allocate_exactly(instance, line, subscriber, wish, now_s, rng, events);
        }
        let most = match instance.assignment {
            Assignment::Blocks { per_subscriber_max, .. } => per_subscriber_max,
            Assignment::Arbitrary => {
                return self.allocate_anywhere(instance, subscriber, wish, now_s, rng, events);
            }
            Assignment::Deterministic { overflow, .. } => {
                let got = self.allocate_in_share(subscriber, wish, now_s, rng);
                // RFC 7422 §2: only when his own ports are used up does a subscriber get a block of the dynamic range,
                // which the block's event tells to the log.
                match overflow {
                    Some(overflow) if got == Err(Reason::NatPortsExhausted) => {
                        overflow.blocks.per_subscriber_max
                    }
                    _ => return got,
                }
            }
        };
        self.allocate_in_blocks(instance, most, line, subscriber, wish, now_s, rng, events)
    }

    /// Any port of one of the subscriber's own blocks, the newest block's first. `None` says that there may be none, or one
    /// of a forward rule's: [`Ports::allocate`] tells more.
    #[inline(always)]
    pub(crate) fn take_in_own_block(
        &mut self,
        subscriber: &Subscriber,
        proto: Proto,
        now_s: u32,
        rng: &mut Rng,
    ) -> Option<Allocated> {
        if !self.is_in_force() {
            return None;
        }
        let Self { addresses, forwards, used, block_size, .. } = self;
        if !forwards.is_empty() {
            return None;
        }
        for at in subscriber.blocks().iter().rev() {
            let home = addresses.get_mut(usize::from(at.address))?;
            let range = home.block_range(at.block, *block_size)?;
            let map = home.maps.get_mut(space(proto))?.as_mut()?;
            let Some(port) = map.alloc_in(range, rng.next_port(), None, now_s) else { continue };
            if let Some(block) = home.blocks.get_mut(at.block) {
                block.used = block.used.saturating_add(1);
            }
            if let Some(used) = used.get_mut(space(proto)) {
                *used += 1;
            }
            return Some(Allocated { address: at.address, ip: home.ip, port });
        }
        None
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
            .and_then(|function| function.share(subscriber.who()))
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
        if let Some(home) = wish.home.filter(|_| paired)
            && let Some(allocated) = self.take_any(home, wish, now_s, rng)
        {
            self.bind(instance, subscriber, home, events);
            return Ok(allocated);
        }
        let count = self.by_map.len();
        let start = rng.below(count);
        for step in 0..count.min(ADDRESS_TRIES_MAX) {
            let Some(address) = self.by_map.get((start + step) % count).copied() else { break };
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
        let (first, mostly) = (line.first, line.mostly());
        let well_known = wish.inside_port < WELL_KNOWN_END && wish.proto != Proto::Icmp;
        if first < *mostly.start()
            && well_known
            && let Some(kept) = self.take(address, first..=WELL_KNOWN_END - 1, wish, now_s, rng)
        {
            return Some(kept);
        }
        self.take(address, mostly, wish, now_s, rng)
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
            let (inside, outside) = (subscriber.inside(), home.ip);
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
            let (inside, outside) = (subscriber.inside(), home.ip);
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
        let proto = space(wish.proto);
        loop {
            let home = self.addresses.get_mut(usize::from(address))?;
            let port = take_port(home.maps.get_mut(proto)?.as_mut()?, range.clone(), wish, now_s, rng)?;
            let ip = home.ip;
            if !self.is_forwarded(ip, wish.proto, port) {
                self.count_used(wish.proto, 1);
                return Some(Allocated { address, ip, port });
            }
            // A forward rule's port that was in its hold time when the rule came: from now on it is the rule's.
            self.count_used(wish.proto, i64::from(self.is_counted(address, port)));
        }
    }

    /// Fetches what tells where an address's ports are.
    #[inline]
    pub(crate) fn prefetch_address(&self, address: u16, proto: Proto) {
        self.addresses.get(usize::from(address)).inspect(|home| home.prefetch(proto));
    }

    /// Fetches what the release of a port touches: its bits, and its block's line.
    #[inline]
    pub(crate) fn prefetch_release(&self, address: u16, proto: Proto, port: u16) {
        if let Some(home) = self.addresses.get(usize::from(address)) {
            home.map(proto).inspect(|map| map.prefetch_release(port));
            if let Some(block) = home.block_at(port, self.block_size) {
                home.blocks.get(block).inspect(|block| carrack_tables::prefetch(*block));
            }
        }
    }

    /// Fetches where the search for a subscriber's next port begins, and its block's line.
    #[inline(always)]
    pub(crate) fn prefetch_next(&self, subscriber: &Subscriber, proto: Proto, hint: u16) {
        if let Some(at) = subscriber.blocks().last() {
            return self.prefetch_block(*at, proto, hint);
        }
        let Some(home) = self.addresses.get(usize::from(subscriber.address)) else { return };
        let range = match &self.deterministic {
            Some(function) => function.share(subscriber.who()).map(|share| share.first..=share.last),
            None => Some(home.mostly()),
        };
        range.zip(home.map(proto)).inspect(|(range, map)| map.prefetch_alloc(range, hint));
    }

    /// Fetches where the search for a port of a block begins, and the block's line.
    #[inline(always)]
    fn prefetch_block(&self, at: BlockRef, proto: Proto, hint: u16) {
        if let Some(home) = self.addresses.get(usize::from(at.address))
            && let Some(range) = home.block_range(at.block, self.block_size)
        {
            home.map(proto).inspect(|map| map.prefetch_alloc(&range, hint));
            home.blocks.get(at.block).inspect(|block| carrack_tables::prefetch(*block));
        }
    }

    /// Fetches what the next new blocks will touch, each of them a step further.
    pub(crate) fn prefetch_draws(&self) {
        let steps = self.draws.steps();
        let home = |draw: Draw| {
            let number = *self.by_map.get(usize::from(draw.number))?;
            Some((self.addresses.get(usize::from(number))?, number))
        };
        if let Some(draw) = steps.address {
            self.map.prefetch_address(draw.number);
            home(draw).inspect(|(home, _)| {
                carrack_tables::prefetch(&home.claims);
                PORTED.into_iter().for_each(|proto| home.prefetch(proto));
            });
        }
        if let Some(draw) = steps.lists {
            let start = self.map.prefetch_free(self.worker, draw);
            start
                .zip(home(draw))
                .inspect(|(start, (home, _))| home.claims.prefetch(home.first_block + start));
        }
        if let Some((draw, (home, address))) = steps.block.and_then(|draw| Some((draw, home(draw)?)))
            && let Some(block) = self.map.prefetch_owner(self.worker, draw)
        {
            let at = BlockRef { address, block: home.first_block + block };
            PORTED.into_iter().for_each(|proto| self.prefetch_block(at, proto, 0));
        }
    }

    /// Takes a mapping's port back. `hold` keeps it from others for the hold time (RFC 6888 REQ-8).
    pub(crate) fn release(&mut self, address: u16, port: u16, proto: Proto, now_s: u32, hold: bool) {
        let Self { addresses, used, idle, block_size, held_ports_max, .. } = self;
        let Some(home) = addresses.get_mut(usize::from(address)) else { return };
        if let Some(bits) = home.maps.get_mut(space(proto)).and_then(Option::as_mut) {
            let hold = hold && bits.held_at(now_s) < *held_ports_max;
            if bits.free(port, now_s, hold)
                && let Some(used) = used.get_mut(space(proto))
            {
                *used = used.saturating_sub(1);
            }
        }
        if let Some(block) = home.block_at(port, *block_size)
            && let Some(line) = home.blocks.get_mut(block)
        {
            line.count(BlockRef { address, block }, -1, now_s, idle);
        }
    }

    /// Does this worker watch how full the pools are? Blocks are everybody's: one is enough.
    pub(crate) fn watches_use(&self) -> bool {
        self.block_size == 0 || self.deterministic.is_some() || self.worker == WorkerId(0)
    }

    /// Use in percent: of all workers' blocks in block mode, else of this worker's ports of the fullest protocol.
    pub(crate) fn percent_used(&self) -> u8 {
        let (used, total) = if self.block_size > 0 && self.deterministic.is_none() {
            (self.map.claimed(), self.map.total())
        } else {
            (self.used_most(), self.ports_total)
        };
        (used * 100).checked_div(total).unwrap_or(0).min(100) as u8
    }

    /// The row of the address at that place of the pools.
    pub(crate) fn row(&self, instance: &Instance, place: usize) -> Option<PoolRow> {
        let number = *self.by_map.get(place)?;
        let address = self.addresses.get(usize::from(number))?;
        let used = |proto: Proto| {
            let Some(map) = address.map(proto) else { return 0 };
            let elsewhere = |port: &u16| map.is_used(*port) && !self.is_counted(number, *port);
            let elsewhere = self.forwards_of(address.ip, proto).filter(elsewhere).count() as u32;
            map.used().saturating_sub(elsewhere)
        };
        Some(PoolRow {
            instance: instance.id,
            pool: address.pool,
            ip: address.ip,
            subscribers: address.subscribers,
            // Deterministic ports are no worker's more than another's: one counts them for all.
            ports_total: if self.deterministic.is_none() || self.worker == WorkerId(0) {
                address.ports
            } else {
                0
            },
            ports_used: Proto::WITH_PORTS.map(used),
            blocks_total: address.home_blocks,
            blocks_used: address.claims.count(),
        })
    }

    /// Ports in use of the protocol that has most.
    fn used_most(&self) -> u64 {
        self.used.into_iter().max().unwrap_or(0)
    }

    pub(crate) fn address_count(&self) -> usize {
        self.by_map.len()
    }

    pub(crate) fn memory(&self) -> MemoryRow {
        // Blocks borrowed from other workers are room here as well.
        let claimed = self.blocks_used * u64::from(self.block_size);
        let total =
            if self.deterministic.is_none() || self.worker == WorkerId(0) { self.ports_total } else { 0 };
        let total = total.max(claimed).max(self.used_most()) * 3;
        let used: u64 = self.used.iter().sum();
        MemoryRow::new("pool-addresses", (total as usize, used as usize, self.bytes as usize), self.backing)
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
    /// Give none rather than another.
    pub(crate) only: bool,
    /// Of this address rather than of another, if the subscriber has none yet.
    pub(crate) home: Option<u16>,
}

impl Wish {
    /// Any port will do.
    #[inline(always)]
    pub(crate) const fn any(proto: Proto, inside_port: u16) -> Self {
        Self {
            proto,
            inside_port,
            parity: false,
            contiguity: false,
            strict: false,
            exactly: None,
            only: false,
            home: None,
        }
    }
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
    let hint = rng.next_port();
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

/// Whose numbers a protocol's are: those of calls are given out with the identifiers of ICMP.
const fn space(proto: Proto) -> usize {
    match proto {
        Proto::Other => Proto::Icmp.index(),
        Proto::Tcp | Proto::Udp | Proto::Icmp => proto.index(),
    }
}

/// A worker's share of the most ports that may be held.
pub(crate) fn held_ports_max(instance: &Instance, group: &WorkerGroup) -> u32 {
    match instance.port_hold_ports_max {
        0 => u32::MAX,
        ports => ports.div_ceil(u32::from(group.workers())),
    }
}

/// Forgets maps by which nobody works any more. True when none is left.
fn forget_gone(maps: &mut Vec<Weak<BlockMap>>) -> bool {
    if maps.is_empty() {
        return true;
    }
    let is_gone = |map: &Weak<BlockMap>| map.upgrade().is_none_or(|map| map.is_withdrawn());
    while maps.last().is_some_and(is_gone) {
        maps.pop();
    }
    // What the last user did with the ports comes before what is done with them now.
    fence(Ordering::Acquire);
    maps.is_empty()
}
