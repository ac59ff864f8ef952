//! Port blocks: a subscriber gets whole ranges of ports, so that one log line tells about many mappings
//! (RFC 6888 REQ-14), and gives them back when they are idle.

use std::ops::RangeInclusive;

use carrack_base::Reason;
use carrack_tables::{Arena, ArenaArray, ArenaError};

use crate::claims::Claims;
use crate::line::{BlockRef, NO_ADDRESS, NONE, Subscriber};
use crate::policy::{Instance, Pooling};
use crate::pool::{Address, Allocated, Ports, Wish};
use crate::rng::Rng;
use crate::row::{BLOCKS_MAX, BlockRow, NatEvent};
use crate::waits::{NOWHERE, Waiting, Waits};

/// Blocks given to everybody on the way, their hold time being over, by whoever takes or gives back one: more than one, so
/// that they cannot pile up, and few, for a whole second's blocks come due at once.
const ENDS_BY_THE_WAY: usize = 2;
/// Those between two bursts.
const ENDS_BETWEEN_BURSTS: usize = 8;
/// Those at a time when no other block is free.
const ENDS_IN_NEED: usize = 8;
/// All those of one burst in need.
pub(crate) const ENDS_IN_NEED_MAX: usize = 256;

/// One port block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    /// Subscriber line, or [`NONE`].
    pub(crate) owner: u32,
    /// Mappings in it, all protocols.
    pub(crate) used: u32,
    /// When it became empty, seconds.
    pub(crate) empty_since_s: u32,
    /// Its mark in the queue of blocks that may be idle.
    pub(crate) idle_mark: u8,
    /// Its mark in the queue of those in their hold time.
    pub(crate) hold_mark: u8,
}

impl Default for Block {
    fn default() -> Self {
        Self { owner: NONE, used: 0, empty_since_s: 0, idle_mark: NOWHERE, hold_mark: NOWHERE }
    }
}

impl Block {
    /// Counts mappings that came or went. An empty block waits among those that may be idle.
    #[inline(always)]
    pub(crate) fn count(&mut self, at: BlockRef, change: i32, now_s: u32, idle: &mut Waits) {
        self.used = self.used.saturating_add_signed(change);
        if self.used != 0 {
            return;
        }
        self.empty_since_s = now_s;
        if self.idle_mark == NOWHERE && self.owner != NONE {
            self.idle_mark = idle.push(Waiting { due_s: now_s, at });
        }
    }
}

/// The blocks of an address by number. They lie with its ports, on pages as large.
#[derive(Debug, Default)]
pub(crate) struct BlockList(Option<ArenaArray<Block>>);

impl BlockList {
    /// Bytes that an address's take at most, by the ports of one; none without blocks.
    pub(crate) fn bytes_for(size: u16) -> usize {
        (usize::from(u16::MAX) + 1).checked_div(usize::from(size)).map_or(0, Arena::bytes_for::<Block>)
    }

    /// So many, nobody's.
    pub(crate) fn new(arena: &mut Arena, blocks: usize) -> Result<Self, ArenaError> {
        Ok(Self(Some(arena.array_default(blocks)?)))
    }

    #[inline(always)]
    pub(crate) fn get(&self, block: u16) -> Option<&Block> {
        self.0.as_ref()?.get(usize::from(block))
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, block: u16) -> Option<&mut Block> {
        self.0.as_mut()?.get_mut(usize::from(block))
    }
}

impl Ports {
    #[allow(clippy::too_many_arguments, reason = "the engine's parts are borrowed apart")]
    pub(crate) fn allocate_in_blocks(
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
        if let Some((address, port)) = wish.exactly {
            let mine = self.block_at(address, port).filter(|at| subscriber.blocks().contains(at));
            if let Some(at) = mine
                && let Some(allocated) = self.take(address, port..=port, wish, now_s, rng)
            {
                self.count_in_block(at, 1, now_s);
                return Ok(allocated);
            }
        }
        // All blocks are asked for the right parity before any is for the wrong one.
        let passes = if wish.parity { &[true, false][..] } else { &[false] };
        for strict in passes {
            for at in subscriber.blocks().iter().rev() {
                let Some(range) = self.block_range(*at) else { continue };
                if let Some(allocated) =
                    self.take(at.address, range, Wish { strict: *strict, ..wish }, now_s, rng)
                {
                    self.count_in_block(*at, 1, now_s);
                    return Ok(allocated);
                }
            }
        }
        if subscriber.block_count >= per_subscriber_max.min(BLOCKS_MAX as u8) {
            return Err(Reason::NatBlockLimit);
        }
        let at = self.new_block(instance, line, subscriber, wish.home, now_s, rng, events)?;
        let range = self.block_range(at).ok_or(Reason::NatPoolExhausted)?;
        let allocated = self.take(at.address, range, wish, now_s, rng).ok_or(Reason::NatPortsExhausted)?;
        self.count_in_block(at, 1, now_s);
        Ok(allocated)
    }

    #[allow(clippy::too_many_arguments, reason = "the engine's parts are borrowed apart")]
    fn new_block(
        &mut self,
        instance: &Instance,
        line: u32,
        subscriber: &mut Subscriber,
        home: Option<u16>,
        now_s: u32,
        rng: &mut Rng,
        events: &mut impl FnMut(NatEvent),
    ) -> Result<BlockRef, Reason> {
        self.end_hold(now_s, ENDS_BY_THE_WAY);
        let (address, block) = loop {
            match self.claim_block(instance, subscriber, home, rng) {
                Err(_) if self.end_hold_in_need(now_s) => {}
                claimed => break claimed?,
            }
        };
        let first_block = self.addresses.get(usize::from(address)).map_or(0, |home| home.first_block);
        let at = BlockRef { address, block: first_block + block };
        self.own_block(instance, line, subscriber, at, now_s, events);
        Ok(at)
    }

    /// Claims a block, of the subscriber's own address if it has to be there: address and number in it.
    fn claim_block(
        &mut self,
        instance: &Instance,
        subscriber: &Subscriber,
        home: Option<u16>,
        rng: &mut Rng,
    ) -> Result<(u16, u16), Reason> {
        // Beyond a deterministic share, more ports are of the same address (RFC 4787 REQ-2).
        let is_tied = instance.pooling == Pooling::Paired || self.deterministic.is_some();
        let bound = is_tied && subscriber.address != NO_ADDRESS;
        if bound {
            let home = self.addresses.get(usize::from(subscriber.address));
            let block = home.and_then(|home| self.map.claim_on(home.in_map, self.worker, rng));
            Ok((subscriber.address, block.ok_or(Reason::NatPortsExhausted)?))
        } else if let Some((address, block)) = home.filter(|_| is_tied).and_then(|address| {
            let in_map = self.addresses.get(usize::from(address))?.in_map;
            Some((address, self.map.claim_on(in_map, self.worker, rng)?))
        }) {
            Ok((address, block))
        } else {
            let claimed = self.map.claim_any(self.worker, rng, &mut self.draws);
            let (in_map, block) = claimed.ok_or(Reason::NatPoolExhausted)?;
            self.prefetch_draws();
            let address = self.by_map.get(usize::from(in_map)).copied();
            Ok((address.ok_or(Reason::NatPoolExhausted)?, block))
        }
    }

    /// A block that was just claimed becomes the subscriber's.
    pub(crate) fn own_block(
        &mut self,
        instance: &Instance,
        line: u32,
        subscriber: &mut Subscriber,
        at: BlockRef,
        now_s: u32,
        events: &mut impl FnMut(NatEvent),
    ) {
        self.note_claimed(at);
        if let Some(entry) = self.block_mut(at) {
            entry.owner = line;
            entry.used = 0;
        }
        if instance.pooling == Pooling::Paired && subscriber.address == NO_ADDRESS {
            self.bind(instance, subscriber, at.address, events);
        }
        if let Some(slot) = subscriber.blocks.get_mut(usize::from(subscriber.block_count)) {
            *slot = at;
            subscriber.block_count += 1;
        }
        // Idle until something is in it, so that it finds its way back even when nothing ever is.
        self.count_in_block(at, 0, now_s);
        let event = NatEvent::BlockAllocated {
            instance: instance.id,
            inside: subscriber.inside(),
            block: self.block_row(at),
        };
        events(event);
    }

    /// Keeps count of a block that was just claimed.
    pub(crate) fn note_claimed(&mut self, at: BlockRef) {
        let home = self.addresses.get_mut(usize::from(at.address));
        if !home.is_some_and(|home| home.claims.insert(at.block)) {
            return;
        }
        self.blocks_used += 1;
        self.map.publish_claimed(self.worker, self.blocks_used);
    }

    /// No longer counts a claimed block here. False when it was none.
    pub(crate) fn forget_claimed(&mut self, at: BlockRef) -> bool {
        let home = self.addresses.get_mut(usize::from(at.address));
        if !home.is_some_and(|home| home.claims.remove(at.block)) {
            return false;
        }
        self.blocks_used -= 1;
        true
    }

    /// Gives a claimed block to everybody.
    fn give_away(&mut self, at: BlockRef) {
        if self.forget_claimed(at) {
            self.map.publish_claimed(self.worker, self.blocks_used);
            if let Some(home) = self.addresses.get(usize::from(at.address)) {
                self.map.release(home.in_map, at.block.saturating_sub(home.first_block));
            }
        }
    }

    /// The block that a port is in.
    pub(crate) fn block_at(&self, address: u16, port: u16) -> Option<BlockRef> {
        let block = self.addresses.get(usize::from(address))?.block_at(port, self.block_size)?;
        Some(BlockRef { address, block })
    }

    pub(crate) fn block_range(&self, at: BlockRef) -> Option<RangeInclusive<u16>> {
        self.addresses.get(usize::from(at.address))?.block_range(at.block, self.block_size)
    }

    pub(crate) fn block_row(&self, at: BlockRef) -> BlockRow {
        let range = self.block_range(at).unwrap_or(0..=0);
        BlockRow { ip: self.ip_of(at.address).unwrap_or(0), first: *range.start(), last: *range.end() }
    }

    pub(crate) fn block_mut(&mut self, at: BlockRef) -> Option<&mut Block> {
        block_of(&mut self.addresses, at)
    }

    pub(crate) fn count_in_block(&mut self, at: BlockRef, change: i32, now_s: u32) {
        let Self { addresses, idle, .. } = self;
        if let Some(block) = block_of(addresses, at) {
            block.count(at, change, now_s, idle);
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
        events(NatEvent::BlockReleased { instance: instance.id, inside: subscriber.inside(), block: row });
        self.hold(at, instance.port_hold_s, now_s);
        self.end_hold(now_s, ENDS_BY_THE_WAY);
    }

    /// Keeps a block from everybody for its hold time, unless that would be more ports than may be held.
    fn hold(&mut self, at: BlockRef, hold_s: u32, now_s: u32) {
        while self.holds_all_it_may(at.address) && self.end_hold_in_need(now_s) {}
        let may = !self.holds_all_it_may(at.address);
        let home = self.addresses.get_mut(usize::from(at.address)).filter(|_| may);
        if let Some(home) = home
            && let Some(block) = home.blocks.get_mut(at.block)
        {
            home.held_blocks += 1;
            block.hold_mark = self.held.push(Waiting { due_s: now_s.saturating_add(hold_s), at });
        } else {
            self.give_away(at);
        }
    }

    /// Would a block more in its hold time be more ports of that address than may be held?
    fn holds_all_it_may(&self, address: u16) -> bool {
        let blocks = self.addresses.get(usize::from(address)).map_or(0, |home| home.held_blocks);
        (blocks + 1).saturating_mul(u32::from(self.block_size)) > self.held_ports_max
    }

    /// Gives the next blocks whose hold time is over to everybody, at most so many: how many there were.
    fn end_hold(&mut self, now_s: u32, most: usize) -> usize {
        for count in 0..most {
            let Some((Waiting { at, .. }, mark)) = self.held.take_due(now_s) else { return count };
            let Some(home) = self.addresses.get_mut(usize::from(at.address)) else { continue };
            let block = home.blocks.get_mut(at.block).filter(|block| block.hold_mark == mark);
            if let Some(block) = block {
                block.hold_mark = NOWHERE;
                home.held_blocks -= 1;
                self.give_away(at);
            }
        }
        most
    }

    /// Ends the hold time of some between two bursts. True when there are probably more.
    pub(crate) fn end_hold_between_bursts(&mut self, now_s: u32) -> bool {
        self.ends_in_need = ENDS_IN_NEED_MAX;
        self.end_hold(now_s, ENDS_BETWEEN_BURSTS) == ENDS_BETWEEN_BURSTS
    }

    /// Ends the hold time of more, because no other block is free. False when no more can be done in this burst.
    pub(crate) fn end_hold_in_need(&mut self, now_s: u32) -> bool {
        let count = self.end_hold(now_s, self.ends_in_need.min(ENDS_IN_NEED));
        self.ends_in_need -= count;
        count > 0
    }

    /// Blocks that became empty and have been so for `idle_s`: calls back with (owner line, block). A few at a time.
    pub(crate) fn next_idle(&mut self, idle_s: u32, now_s: u32) -> Option<(u32, BlockRef)> {
        let Self { addresses, idle, .. } = self;
        for _ in 0..8 {
            let (Waiting { at, .. }, mark) = idle.take_due(now_s)?;
            let Some(block) = block_of(addresses, at).filter(|block| block.idle_mark == mark) else {
                continue;
            };
            block.idle_mark = NOWHERE;
            if block.used > 0 || block.owner == NONE {
                continue;
            }
            let due_s = block.empty_since_s.saturating_add(idle_s);
            if due_s <= now_s {
                return Some((block.owner, at));
            }
            block.idle_mark = idle.push(Waiting { due_s, at });
        }
        None
    }
}

fn block_of(addresses: &mut [Address], at: BlockRef) -> Option<&mut Block> {
    addresses.get_mut(usize::from(at.address))?.blocks.get_mut(at.block)
}

impl Drop for Ports {
    /// What a reload leaves behind is everybody's again.
    fn drop(&mut self) {
        for number in 0..self.addresses.len() {
            let claims = self.addresses.get_mut(number).map(|home| std::mem::take(&mut home.claims));
            let Some((claims, home)) = claims.zip(self.addresses.get(number)) else { continue };
            for block in claims.without(&Claims::default()) {
                self.map.release(home.in_map, block.saturating_sub(home.first_block));
            }
            self.blocks_used -= u64::from(claims.count());
        }
        self.map.publish_claimed(self.worker, self.blocks_used);
    }
}
