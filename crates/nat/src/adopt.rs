//! New port tables take over what the old ones had given out, so that a change of a pool hurts nobody it does not
//! concern.

use carrack_base::Proto;

use crate::blocks::Block;
use crate::deterministic::Deterministic;
use crate::flow::Inside;
use crate::line::{BlockRef, NONE, Session};
use crate::ownership::BlockMap;
use crate::pool::{Address, Ports};

impl Ports {
    /// Could this session have its outside endpoint from these tables, given where it has it from now?
    pub(crate) fn could_have_given(&self, session: &Session, subscriber: Inside, before: &Self) -> bool {
        let Some(address) = self.number_of(session.outside_ip) else { return false };
        let port = session.outside_port;
        let in_like_block = || {
            let old = before.number_of(session.outside_ip).and_then(|n| before.block_at(n, port));
            old.is_some_and(|old| self.block_like(before, old).is_some())
        };
        match (&self.deterministic, &before.deterministic) {
            (Some(now), Some(then)) => {
                let is_own = |function: &Deterministic| {
                    let share =
                        function.share(subscriber).filter(|share| share.outside == session.outside_ip);
                    share.map(|share| (share.first..=share.last).contains(&port))
                };
                match is_own(now) {
                    None => false,
                    Some(own) => (own && is_own(then) == Some(true)) || in_like_block(),
                }
            }
            (None, None) => {
                self.block_size == before.block_size
                    && self.is_mine(address, port)
                    && (self.block_size == 0 || in_like_block())
            }
            _ => false,
        }
    }

    /// Are single ports given out the same way, so that what one has given out may be the other's? Overflow blocks beside
    /// the shares of deterministic subscribers make no difference to the shares.
    fn is_like(&self, other: &Self) -> bool {
        match (&self.deterministic, &other.deterministic) {
            (Some(_), Some(_)) => true,
            (None, None) => self.block_size == other.block_size,
            _ => false,
        }
    }

    /// The block here that has exactly the ports of a block there, if blocks there can be taken over at all.
    pub(crate) fn block_like(&self, there: &Self, block: BlockRef) -> Option<BlockRef> {
        if !self.is_like(there) || self.block_size != there.block_size {
            return None;
        }
        let row = there.block_row(block);
        let found = self.block_at(self.number_of(row.ip)?, row.first)?;
        (self.block_row(found) == row).then_some(found)
    }

    /// Takes over all that the old tables had given out and that is here too. Addresses keep their numbers, for lines
    /// name them by it; blocks keep theirs where the two cut the address in the same places.
    pub(crate) fn adopt(&mut self, old: &mut Self, paired: bool, now_s: u32) {
        old.set_forwards(&mut Vec::new(), now_s);
        let mut fresh: Vec<Option<Address>> =
            std::mem::take(&mut self.addresses).into_iter().map(Some).collect();
        let same_kind = self.is_like(old);
        let same_blocks = same_kind && self.block_size > 0 && self.block_size == old.block_size;
        // An address that both have keeps its number; the others take what is free then.
        let mut places: Vec<Option<u16>> = Vec::new();
        places.resize(old.addresses.len(), None);
        for (in_map, to) in fresh.iter_mut().enumerate() {
            let Some(to) = to else { continue };
            let Some(number) = old.number_of(to.ip) else { continue };
            if let Some(place) = places.get_mut(usize::from(number)) {
                *place = Some(in_map as u16);
            }
            if let Some(from) = old.addresses.get_mut(usize::from(number)).filter(|_| same_kind) {
                to.subscribers = if paired { from.subscribers } else { 0 };
                old.blocks_used -= self.adopt_address(to, from, same_blocks.then_some(&*old.map), now_s);
            }
        }
        let mut known = vec![false; fresh.len()];
        for in_map in places.iter().flatten() {
            if let Some(known) = known.get_mut(usize::from(*in_map)) {
                *known = true;
            }
        }
        let mut new = (0..=u16::MAX).zip(known).filter_map(|(in_map, known)| (!known).then_some(in_map));
        for place in places.iter_mut().filter(|place| place.is_none()) {
            *place = new.next();
        }
        places.extend(new.map(Some));
        for (number, place) in places.iter().enumerate() {
            let address = place.and_then(|in_map| fresh.get_mut(usize::from(in_map))).and_then(Option::take);
            if let (Some(in_map), true) = (place, address.is_some())
                && let Some(entry) = self.by_map.get_mut(usize::from(*in_map))
            {
                *entry = number as u16;
            }
            self.addresses.push(address.unwrap_or_else(Address::hole));
        }
        if same_blocks {
            self.held.follow(&mut old.held);
            self.idle.follow(&mut old.idle);
        }
        self.blocks_used = self.addresses.iter().map(|home| u64::from(home.claims.count())).sum();
        self.map.publish_claimed(self.worker, self.blocks_used);
        for proto in Proto::WITH_PORTS {
            let maps = self.addresses.iter().filter_map(|address| address.maps.get(proto.index())?.as_ref());
            if let Some(used) = self.used.get_mut(proto.index()) {
                *used = maps.map(|map| u64::from(map.used())).sum();
            }
        }
    }

    /// Bitmaps and hold times of an address, and its blocks if they are of the old map's size. How many blocks are counted
    /// here now, and no longer there.
    fn adopt_address(
        &self,
        to: &mut Address,
        from: &mut Address,
        old_map: Option<&BlockMap>,
        now_s: u32,
    ) -> u64 {
        for (to, from) in to.maps.iter_mut().zip(&mut from.maps) {
            if let (Some(to), Some(from)) = (to, from) {
                std::mem::swap(to, from);
                to.set_hold_s(self.hold_s, now_s);
            }
        }
        let Some(old_map) = old_map else { return 0 };
        if self.map.has_same(to.in_map, old_map, from.in_map) {
            std::mem::swap(&mut to.blocks, &mut from.blocks);
            std::mem::swap(&mut to.claims, &mut from.claims);
            to.held_blocks = std::mem::take(&mut from.held_blocks);
            return u64::from(to.claims.count());
        }
        if to.phase != from.phase {
            return 0;
        }
        // Another cut of the address with blocks in the same places. Nobody else gives them out while the old map,
        // which has them as this worker's, is in use; there they are given back when it goes.
        std::mem::swap(&mut to.blocks, &mut from.blocks);
        to.held_blocks = from.held_blocks;
        for (at, first) in (0..).zip((to.first_block..to.end_block).step_by(64)) {
            let got = self.map.claim_these(to.in_map, at, from.claims.get_64(first), self.worker);
            to.claims.insert_64(first, got);
        }
        for block in from.claims.without(&to.claims) {
            if let Some(left) = to.blocks.get_mut(block) {
                to.held_blocks -= u32::from(left.owner == NONE);
                *left = Block::default();
            }
        }
        0
    }
}
