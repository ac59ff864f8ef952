//! Who owns which port block, kept where all workers of a daemon see it.
//!
//! One byte a block names the worker that answers for its ports, one bit says whether the block is free. A worker that
//! needs a block claims a free one by clearing its bit: its own home blocks first, then anybody's. So a subscriber never
//! sees his worker's shortage while a block is free anywhere, nobody waits for anybody, and two workers can never
//! have claimed the same block. A block given back is its home worker's again.
//!
//! Owner bytes are read for each packet from outside and written only when a block changes hands or comes home; they
//! lie apart from the free bits, which change with every block given out.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use carrack_base::WorkerId;

use crate::draws::{Draw, Draws};
use crate::policy::{Assignment, Instance, Pool};
use crate::rng::Rng;
use crate::slices::Slices;
use crate::spis::Spis;
use crate::steering::Steering;

/// Addresses whose home blocks are tried before any other worker's: keeps blocks at home, where the network card delivers
/// their packets, unless a pool runs short.
const HOME_TRIES: usize = 4;
/// Addresses that are looked at in each try, if all before have no free block.
const HOMES_SEEN: usize = 64;

/// What all workers of a daemon share: their number, the secret of their hashes, and who owns which port block.
#[derive(Debug)]
pub struct WorkerGroup {
    workers: u8,
    seed: [u64; 4],
    steering: Steering,
    /// Taken at start and at reload only.
    maps: Mutex<Vec<Weak<BlockMap>>>,
    /// Whose ESP is.
    pub(crate) spis: Arc<Spis>,
}

impl WorkerGroup {
    /// A group of so many workers. `seed` is secret.
    #[must_use]
    pub fn new(workers: u8, seed: [u64; 4]) -> Arc<Self> {
        let spis = Arc::new(Spis::new(seed));
        let steering = Steering::new(workers, seed[0]);
        Arc::new(Self { workers: workers.max(1), seed, steering, maps: Mutex::new(Vec::new()), spis })
    }

    /// How many workers.
    #[must_use]
    pub const fn workers(&self) -> u8 {
        self.workers
    }

    /// The secret of all their hashes.
    #[must_use]
    pub const fn seed(&self) -> [u64; 4] {
        self.seed
    }

    /// Which worker an address leads to.
    #[must_use]
    pub const fn steering(&self) -> &Steering {
        &self.steering
    }

    /// The map of an instance's pools; the same one for every worker that asks for the same pools.
    pub(crate) fn block_map(&self, instance: &Instance) -> Arc<BlockMap> {
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        maps.retain(|map| map.strong_count() > 0);
        let living = maps.iter().filter_map(Weak::upgrade).filter(|map| !map.is_withdrawn());
        let living: Vec<Arc<BlockMap>> = living.collect();
        let layouts = layouts_of(instance);
        let same = |map: &&Arc<BlockMap>| {
            map.vrf == instance.outside_vrf.0 && map.layouts == layouts && map.ranges == ranges_of(instance)
        };
        if let Some(found) = living.iter().find(same) {
            return Arc::clone(found);
        }
        let map = Arc::new(BlockMap::new(instance, layouts, &self.steering, self.workers, &living));
        maps.push(Arc::downgrade(&map));
        map
    }
}

/// How a pool's ports are cut: addresses keep their owners over a reload that leaves this as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Layout {
    Blocks {
        size: u16,
        first: u16,
        last: u16,
    },
    Arbitrary {
        first: u16,
        last: u16,
    },
    /// Everything that the function of RFC 7422 depends on, in words.
    Function(Arc<str>),
}

/// (first address, last address, number of the first, pool), sorted.
type RangeOfPool = (u32, u32, u32, usize);

fn layouts_of(instance: &Instance) -> Vec<Layout> {
    let words: Option<Arc<str>> = matches!(instance.assignment, Assignment::Deterministic { .. })
        .then(|| format!("{:?} {:?} {:?}", instance.assignment, instance.subscribers, instance.pools).into());
    let layout = |pool: &Pool| {
        let (first, last) = (pool.port_first, pool.port_last);
        match instance.assignment {
            Assignment::Blocks { size, .. } => Layout::Blocks { size, first, last },
            Assignment::Arbitrary => Layout::Arbitrary { first, last },
            Assignment::Deterministic { .. } => Layout::Function(words.clone().unwrap_or_default()),
        }
    };
    instance.pools.iter().map(layout).collect()
}

fn ranges_of(instance: &Instance) -> Vec<RangeOfPool> {
    let mut number = 0;
    let mut ranges = Vec::new();
    for (at, pool) in instance.pools.iter().enumerate() {
        for range in &pool.ranges {
            ranges.push((range.first, range.last, number, at));
            number += range.last - range.first + 1;
        }
    }
    ranges.sort_unstable();
    ranges
}

/// Where an address's free blocks are at home.
#[derive(Debug, Clone, Copy)]
enum Home {
    /// All with the worker that packets to the address reach.
    One(u8),
    /// So many with each worker, with the last one perhaps fewer: where there are too few addresses to give each some.
    Each(u16),
}

impl Home {
    fn of(self, block: u16) -> u8 {
        match self {
            Self::One(worker) => worker,
            Self::Each(blocks) => (block / blocks) as u8,
        }
    }
}

/// The blocks of one pool address.
#[derive(Debug)]
struct AddressBlocks {
    layout: Layout,
    /// First port of the first block.
    first: u16,
    /// Ports of a block are `1 << shift`.
    shift: u32,
    home: Home,
    /// One byte a block.
    owners: Box<[AtomicU8]>,
    /// One bit a block: set while it is free.
    free: Box<[AtomicU64]>,
}

impl AddressBlocks {
    /// `at_home` is the worker with whom all blocks are at home; without one each of `workers` has some.
    fn new(pool: &Pool, instance: &Instance, layout: Layout, at_home: Option<WorkerId>, workers: u8) -> Self {
        let Some(rules) = instance.assignment.blocks() else {
            let none = || Vec::new().into_boxed_slice();
            return Self {
                layout,
                first: 0,
                shift: 0,
                home: Home::Each(1),
                owners: none(),
                free: Box::new([]),
            };
        };
        let slices = Slices::of(pool, instance.assignment, workers);
        let blocks = slices.units();
        let each = slices.units_of_each().max(1) as u16;
        let home = at_home.map_or(Home::Each(each), |worker| Home::One(worker.0));
        let word = |at: u32| (0..64).filter(|bit| at * 64 + bit < blocks).fold(0, |w, bit| w | 1u64 << bit);
        Self {
            layout,
            first: instance.assignment.cut_range(pool).0,
            shift: rules.size.max(1).trailing_zeros(),
            home,
            owners: (0..blocks).map(|block| AtomicU8::new(home.of(block as u16))).collect(),
            free: (0..blocks.div_ceil(64)).map(|at| AtomicU64::new(word(at))).collect(),
        }
    }

    fn blocks(&self) -> u16 {
        // Invariant: blocks have 8 ports at least, so there are 8,192 at most.
        self.owners.len() as u16
    }

    fn home_range(&self, worker: u8) -> Range<u16> {
        match self.home {
            Home::One(home) if home == worker => 0..self.blocks(),
            Home::One(_) => 0..0,
            Home::Each(blocks) => {
                let first = (u32::from(blocks) * u32::from(worker)).min(u32::from(self.blocks())) as u16;
                first..first.saturating_add(blocks).min(self.blocks())
            }
        }
    }

    fn has_free(&self) -> bool {
        self.free.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Claims a free block of the range, the first one from `start` on, round and round.
    fn claim(&self, range: &Range<u16>, start: u16, worker: u8) -> Option<u16> {
        [start..range.end, range.start..start].into_iter().find_map(|part| self.claim_in(&part, worker))
    }

    fn claim_in(&self, range: &Range<u16>, worker: u8) -> Option<u16> {
        // Another worker may be faster; then what he took is free no more.
        loop {
            let block = self.first_free(range)?;
            if self.claim_one(block, worker) {
                return Some(block);
            }
        }
    }

    /// The first block of the range that is free, as it looks.
    fn first_free(&self, range: &Range<u16>) -> Option<u16> {
        if range.is_empty() {
            return None;
        }
        (range.start / 64..=(range.end - 1) / 64).find_map(|at| {
            let word = self.free.get(usize::from(at))?;
            let low = range.start.saturating_sub(at * 64).min(63);
            let high = (range.end - at * 64).min(64);
            let mask = (u64::MAX << low) & (u64::MAX >> (64 - high));
            let free = word.load(Ordering::Relaxed) & mask;
            (free != 0).then(|| at * 64 + free.trailing_zeros() as u16)
        })
    }

    /// Claims this very block. False when another was faster, or has it.
    fn claim_one(&self, block: u16, worker: u8) -> bool {
        let bit = 1u64 << (block % 64);
        let Some(word) = self.free.get(usize::from(block / 64)) else { return false };
        // Only one can find the bit set; acquires what the last owner did before he released it.
        if word.fetch_and(!bit, Ordering::AcqRel) & bit == 0 {
            return false;
        }
        if let Some(owner) = self.owners.get(usize::from(block))
            && owner.load(Ordering::Relaxed) != worker
        {
            owner.store(worker, Ordering::Release);
        }
        true
    }

    /// Claims of the 64 blocks from `64 * at` on those whose bits are set, if they are free: which it got.
    fn claim_these(&self, at: u16, wanted: u64, worker: u8) -> u64 {
        let Some(word) = self.free.get(usize::from(at)) else { return 0 };
        // As for one.
        let got = word.fetch_and(!wanted, Ordering::AcqRel) & wanted;
        // A free block's owner is its home: only what is away from home changes hands.
        let (first, home) = (at * 64, self.home_range(worker));
        if home.start <= first && home.end >= (first + 64).min(self.blocks()) {
            return got;
        }
        for (bit, owner) in (0..).zip(self.owners.iter().skip(usize::from(first)).take(64)) {
            if got >> bit & 1 != 0 && !home.contains(&(first + bit)) {
                owner.store(worker, Ordering::Release);
            }
        }
        got
    }

    fn release(&self, block: u16) {
        let home = self.home.of(block);
        if let Some(owner) = self.owners.get(usize::from(block))
            && owner.load(Ordering::Relaxed) != home
        {
            owner.store(home, Ordering::Release);
        }
        if let Some(word) = self.free.get(usize::from(block / 64)) {
            word.fetch_or(1 << (block % 64), Ordering::AcqRel);
        }
    }
}

/// The blocks of one instance's pools, by number of the address. In the modes without blocks it only tells whether
/// somebody still works by another layout.
#[derive(Debug)]
pub(crate) struct BlockMap {
    vrf: u16,
    layouts: Vec<Layout>,
    ranges: Vec<RangeOfPool>,
    addresses: Vec<Arc<AddressBlocks>>,
    /// By worker, the addresses with blocks at home with it.
    homes: Vec<Vec<u16>>,
    /// One bit an address: clear when it has no free block.
    with_free: Vec<AtomicU64>,
    /// Blocks that each worker has claimed.
    claimed: Vec<AtomicU64>,
    total: u64,
    /// Maps that were in force when this one was made and share addresses with it; true when they cut an address
    /// otherwise.
    before: Vec<(Weak<BlockMap>, bool)>,
    /// [`PREPARED`], [`IN_FORCE`] or [`WITHDRAWN`].
    state: AtomicU8,
}

/// No worker gives out anything by it yet.
const PREPARED: u8 = 0;
/// Some worker does or did.
const IN_FORCE: u8 = 1;
/// No worker ever will.
const WITHDRAWN: u8 = 2;

impl BlockMap {
    fn new(
        instance: &Instance,
        layouts: Vec<Layout>,
        steering: &Steering,
        workers: u8,
        living: &[Arc<Self>],
    ) -> Self {
        let is_steered = gives_each_worker_some(instance, steering, workers);
        let vrf = instance.outside_vrf.0;
        let living: Vec<&Arc<Self>> = living.iter().filter(|map| map.vrf == vrf).collect();
        let mut shared = vec![(false, false); living.len()];
        let mut addresses = Vec::new();
        for (pool, layout) in instance.pools.iter().zip(&layouts) {
            for ip in pool.ranges.iter().flat_map(|range| range.first..=range.last) {
                let mut kept = None;
                for (other, (shares, differs)) in living.iter().zip(&mut shared) {
                    let Some(address) = other.number_of(ip).and_then(|n| other.address(n)) else { continue };
                    *shares = true;
                    if address.layout == *layout {
                        kept = Some(Arc::clone(address));
                    } else {
                        *differs = true;
                    }
                }
                let at_home = is_steered.then(|| steering.worker_of(ip));
                let fresh = || Arc::new(AddressBlocks::new(pool, instance, layout.clone(), at_home, workers));
                addresses.push(kept.unwrap_or_else(fresh));
            }
        }
        let before = living.iter().zip(shared).filter(|(_, (shares, _))| *shares);
        let homes = (0..workers).map(|worker| {
            // Not `0..`, which overflows behind the last number there is.
            let numbers = (0..=u16::MAX).zip(&addresses);
            let numbers = numbers.filter(|(_, address)| !address.home_range(worker).is_empty());
            numbers.map(|(number, _)| number).collect()
        });
        let this = Self {
            vrf,
            homes: homes.collect(),
            ranges: ranges_of(instance),
            with_free: (0..addresses.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            claimed: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            total: addresses.iter().map(|address| u64::from(address.blocks())).sum(),
            before: before.map(|(map, (_, differs))| (Arc::downgrade(map), differs)).collect(),
            layouts,
            addresses,
            state: AtomicU8::new(PREPARED),
        };
        for number in 0..this.addresses.len() {
            this.refresh(number as u16);
        }
        this
    }

    /// A worker begins to give out by it.
    pub(crate) fn put_in_force(&self) {
        let _ = self.state.compare_exchange(PREPARED, IN_FORCE, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// It will never be in force, unless it is already.
    pub(crate) fn withdraw(&self) {
        let _ = self.state.compare_exchange(PREPARED, WITHDRAWN, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.state.load(Ordering::Acquire) == WITHDRAWN
    }

    fn address(&self, number: u16) -> Option<&Arc<AddressBlocks>> {
        self.addresses.get(usize::from(number))
    }

    /// Number of a pool address.
    pub(crate) fn number_of(&self, ip: u32) -> Option<u16> {
        let at = self.ranges.partition_point(|(first, ..)| *first <= ip).checked_sub(1)?;
        let (first, last, number, _) = *self.ranges.get(at)?;
        (ip <= last).then(|| (number + (ip - first)) as u16)
    }

    /// Who answers for a port; `None` when it is in no block.
    #[inline]
    pub(crate) fn owner(&self, ip: u32, port: u16) -> Option<WorkerId> {
        let address = self.address(self.number_of(ip)?)?;
        let block = port.checked_sub(address.first)? >> address.shift;
        // Relaxed: nothing else is read by it. Whoever sees an old owner hands over a packet that came before the new
        // one's first mapping could have been answered.
        address.owners.get(usize::from(block)).map(|owner| WorkerId(owner.load(Ordering::Relaxed)))
    }

    /// All blocks of all addresses.
    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    /// Number of blocks at home with a worker on an address.
    pub(crate) fn home_count(&self, number: u16, worker: WorkerId) -> u32 {
        self.address(number).map_or(0, |address| address.home_range(worker.0).len() as u32)
    }

    /// Is the port at home with the worker?
    pub(crate) fn is_home(&self, number: u16, port: u16, worker: WorkerId) -> bool {
        let Some(address) = self.address(number) else { return false };
        let block = port.checked_sub(address.first).map(|offset| offset >> address.shift);
        block.is_some_and(|block| block < address.blocks() && address.home.of(block) == worker.0)
    }

    /// Claims a block of one address: one at home with the worker, else anybody's.
    pub(crate) fn claim_on(&self, number: u16, worker: WorkerId, rng: &mut Rng) -> Option<u16> {
        let address = self.address(number)?;
        let home = address.home_range(worker.0);
        let all = 0..address.blocks();
        [home, all].into_iter().filter(|range| !range.is_empty()).find_map(|range| {
            let start = range.start + rng.below(range.len()) as u16;
            let block = address.claim(&range, start, worker.0)?;
            self.note_claim(number, address);
            Some(block)
        })
    }

    /// Claims a block of any address; at random, so that subscribers spread over addresses. `draws` are this map's and
    /// worker's.
    pub(crate) fn claim_any(&self, worker: WorkerId, rng: &mut Rng, draws: &mut Draws) -> Option<(u16, u16)> {
        for _ in 0..HOME_TRIES {
            let Some(draw) = draws.next(|| self.draw(worker, rng)) else { break };
            let address = self.address(draw.number)?;
            let home = address.home_range(worker.0);
            if let Some(block) = address.claim(&home, draw.start(&home), worker.0) {
                self.note_claim(draw.number, address);
                return Some((draw.number, block));
            }
        }
        // Each turn ends with a block or takes an address off the list.
        for _ in 0..=self.addresses.len() {
            let number = self.next_with_free(rng.below(self.addresses.len()))?;
            if let Some(block) = self.claim_on(number, worker, rng) {
                return Some((number, block));
            }
            self.refresh(number);
        }
        None
    }

    /// Where a block at home with the worker may be free, at random.
    fn draw(&self, worker: WorkerId, rng: &mut Rng) -> Option<Draw> {
        let homes = self.homes.get(worker.index()).map_or(&[][..], Vec::as_slice);
        let number = self.home_with_free(homes, rng.below(homes.len()))?;
        Some(Draw::new(number, rng.next_u16()))
    }

    /// Fetches what tells where an address's blocks are noted.
    pub(crate) fn prefetch_address(&self, number: u16) {
        if let Some(address) = self.address(number) {
            carrack_tables::prefetch(&address.owners);
            carrack_tables::prefetch(&address.home);
        }
    }

    /// Fetches what tells which of them are free, once that is here: the number of the first to be asked for.
    pub(crate) fn prefetch_free(&self, worker: WorkerId, draw: Draw) -> Option<u16> {
        let address = self.address(draw.number)?;
        let start = draw.start(&address.home_range(worker.0));
        address.free.get(usize::from(start / 64)).inspect(|word| carrack_tables::prefetch(*word));
        Some(start)
    }

    /// Fetches whose the block is that a claim will probably find, once that is here; its number.
    pub(crate) fn prefetch_owner(&self, worker: WorkerId, draw: Draw) -> Option<u16> {
        let address = self.address(draw.number)?;
        let home = address.home_range(worker.0);
        let block = address.first_free(&(draw.start(&home)..home.end))?;
        address.owners.get(usize::from(block)).inspect(|owner| carrack_tables::prefetch(*owner));
        Some(block)
    }

    /// Claims of an address's 64 blocks from `64 * at` on those whose bits are set, for one who had their ports under an
    /// earlier map: which he got.
    pub(crate) fn claim_these(&self, number: u16, at: u16, wanted: u64, worker: WorkerId) -> u64 {
        let Some(address) = self.address(number).filter(|_| wanted != 0) else { return 0 };
        let got = address.claim_these(at, wanted, worker.0);
        self.note_claim(number, address);
        got
    }

    /// Claims this very block, for one who asks for a port of it.
    pub(crate) fn claim_one(&self, number: u16, block: u16, worker: WorkerId) -> bool {
        let Some(address) = self.address(number) else { return false };
        let claimed = block < address.blocks() && address.claim_one(block, worker.0);
        self.note_claim(number, address);
        claimed
    }

    /// Gives a claimed block back to everybody.
    pub(crate) fn release(&self, number: u16, block: u16) {
        let Some(address) = self.address(number) else { return };
        address.release(block);
        if let Some(word) = self.with_free.get(usize::from(number / 64)) {
            // Even when it is set already: who is about to clear it must see the block.
            word.fetch_or(1 << (number % 64), Ordering::AcqRel);
        }
    }

    /// Tells the others how many blocks a worker has claimed.
    pub(crate) fn publish_claimed(&self, worker: WorkerId, blocks: u64) {
        if let Some(count) = self.claimed.get(worker.index()) {
            count.store(blocks, Ordering::Relaxed);
        }
    }

    /// Blocks claimed by all workers.
    pub(crate) fn claimed(&self) -> u64 {
        self.claimed.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Do both name the same blocks of that address?
    pub(crate) fn has_same(&self, number: u16, other: &Self, other_number: u16) -> bool {
        matches!((self.address(number), other.address(other_number)), (Some(a), Some(b)) if Arc::ptr_eq(a, b))
    }

    /// Maps that some worker may still work by, with those that cut an address otherwise first asked for.
    pub(crate) fn before(&self, differing_only: bool) -> Vec<Weak<Self>> {
        let wanted = self.before.iter().filter(|(_, differs)| *differs || !differing_only);
        wanted.map(|(map, _)| map.clone()).collect()
    }

    /// Makes an address's bit true. A worker that still gives blocks back by an earlier map does not set it.
    pub(crate) fn refresh(&self, number: u16) {
        let (Some(address), Some(word)) =
            (self.address(number), self.with_free.get(usize::from(number / 64)))
        else {
            return;
        };
        let bit = 1u64 << (number % 64);
        if address.has_free() {
            word.fetch_or(bit, Ordering::AcqRel);
        } else {
            word.fetch_and(!bit, Ordering::AcqRel);
            // One given back since: its giver set the bit before it was cleared, so its block is seen now.
            if address.has_free() {
                word.fetch_or(bit, Ordering::AcqRel);
            }
        }
    }

    fn note_claim(&self, number: u16, address: &AddressBlocks) {
        if !address.has_free() {
            self.refresh(number);
        }
    }

    /// The first of these addresses from that place on, round and round, that may have a free block; not more than
    /// [`HOMES_SEEN`] are looked at.
    fn home_with_free(&self, homes: &[u16], from: usize) -> Option<u16> {
        let places = homes.iter().skip(from).chain(homes).take(HOMES_SEEN.min(homes.len()));
        let may_have = |number: &u16| {
            let word = self.with_free.get(usize::from(*number / 64));
            word.is_some_and(|word| word.load(Ordering::Relaxed) >> (*number % 64) & 1 != 0)
        };
        places.copied().find(|number| may_have(number))
    }

    /// The first address from that number on, round and round, that may have a free block.
    fn next_with_free(&self, from: usize) -> Option<u16> {
        let words = self.with_free.len();
        for step in 0..=words {
            let at = (from / 64 + step) % words.max(1);
            let mut word = self.with_free.get(at)?.load(Ordering::Relaxed);
            if step == 0 {
                word &= u64::MAX << (from % 64);
            }
            if word != 0 {
                return Some((at * 64) as u16 + word.trailing_zeros() as u16);
            }
        }
        None
    }
}

/// Has every worker a fair share of the pools' addresses, half of the mean at least, when each belongs to whom it leads to?
fn gives_each_worker_some(instance: &Instance, steering: &Steering, workers: u8) -> bool {
    let mut counts = vec![0_usize; usize::from(workers)];
    for ip in instance.pools.iter().flat_map(|pool| &pool.ranges).flat_map(|range| range.first..=range.last) {
        if let Some(count) = counts.get_mut(steering.worker_of(ip).index()) {
            *count += 1;
        }
    }
    let all: usize = counts.iter().sum();
    all > 0 && counts.iter().all(|count| count * 2 * usize::from(workers) >= all)
}

#[cfg(test)]
pub(crate) mod tests;
