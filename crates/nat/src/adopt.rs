//! New port tables take over what the old ones had given out, so that a change of a pool hurts nobody it does not
//! concern.

use carrack_base::Proto;

use crate::blocks::Waiting;
use crate::flow::Inside;
use crate::line::{BlockRef, Mapping, NO_ADDRESS, NONE, Session, Subscriber};
use crate::pool::Ports;

impl Ports {
    /// Could this session have its outside endpoint from these tables, given where it has it from now?
    pub(crate) fn could_have_given(&self, session: &Session, subscriber: Inside, before: &Self) -> bool {
        let Some(address) = self.number_of(session.outside_ip) else { return false };
        let port = session.outside_port;
        if self.block_size != before.block_size
            || self.deterministic.is_some() != before.deterministic.is_some()
        {
            return false;
        }
        if let Some(function) = &self.deterministic {
            return function.share(subscriber).is_some_and(|share| {
                share.outside == session.outside_ip && (share.first..=share.last).contains(&port)
            });
        }
        let old = before.number_of(session.outside_ip).and_then(|address| before.block_at(address, port));
        self.is_mine(address, port)
            && (self.block_size == 0 || old.is_some_and(|old| self.block_like(before, old).is_some()))
    }

    /// The block here that has exactly the ports of a block there.
    pub(crate) fn block_like(&self, there: &Self, block: BlockRef) -> Option<BlockRef> {
        if self.block_size != there.block_size {
            return None;
        }
        let row = there.block_row(block);
        let found = self.block_at(self.number_of(row.ip)?, row.first)?;
        (self.block_row(found) == row).then_some(found)
    }

    /// Takes over bitmaps, hold times and pairings of addresses that both have. Then [`Ports::adopt_subscriber`] and
    /// [`Ports::adopt_mapping`] for each line, and [`Ports::settle`].
    pub(crate) fn adopt_addresses(&mut self, old: &mut Self, now_s: u32) {
        old.set_forwards(Vec::new(), now_s);
        for number in 0..self.addresses.len() {
            let Some(ip) = self.ip_of(number as u16) else { continue };
            let Some(from) = old.number_of(ip).and_then(|n| old.addresses.get_mut(usize::from(n))) else {
                continue;
            };
            // With another hold time the bitmaps cannot go on; mappings mark their ports in the new ones.
            if self.hold_s == old.hold_s
                && let Some(to) = self.addresses.get_mut(number)
            {
                std::mem::swap(&mut to.maps, &mut from.maps);
            }
        }
        for Waiting { due_s, at } in std::mem::take(&mut old.held) {
            if let Some(to) = self.block_like(old, at) {
                self.adopt_claim(old, at, to);
                self.hold(Waiting { due_s, at: to });
            }
        }
    }

    /// A block that was this worker's stays so.
    fn adopt_claim(&mut self, old: &mut Self, from: BlockRef, to: BlockRef) {
        if self.map.has_same(to.address, &old.map, from.address) {
            old.forget_claimed(from);
        } else {
            // Nobody else gives out these blocks while the old map, which has it as this worker's, is in use.
            self.map.claim_one(to.address, to.block, self.worker);
        }
        self.note_claimed(to);
    }

    /// A subscriber's blocks and pairing by their numbers here. Blocks that are not here were given back before.
    pub(crate) fn adopt_subscriber(
        &mut self,
        old: &mut Self,
        id: u32,
        subscriber: &mut Subscriber,
        paired: bool,
    ) {
        let mut blocks = subscriber.blocks;
        let mut count = 0;
        for block in subscriber.blocks() {
            let Some(at) = self.block_like(old, *block) else { continue };
            let from = old.addresses.get(usize::from(block.address));
            let used = from.and_then(|a| a.blocks.get(usize::from(block.block)));
            if let (Some(entry), Some(used)) = (self.block_mut(at), used) {
                entry.owner = id;
                entry.used = used.used;
                entry.empty_since_s = used.empty_since_s;
            }
            self.adopt_claim(old, *block, at);
            if let Some(slot) = blocks.get_mut(count) {
                *slot = at;
                count += 1;
            }
        }
        (subscriber.blocks, subscriber.block_count) = (blocks, count as u8);
        let address = old.ip_of(subscriber.address).and_then(|ip| self.number_of(ip)).filter(|_| paired);
        subscriber.address = address.unwrap_or(NO_ADDRESS);
        if self.deterministic.is_none()
            && let Some(home) = self.addresses.get_mut(usize::from(subscriber.address))
        {
            home.subscribers += 1;
        }
    }

    /// A mapping by its address's number here.
    pub(crate) fn adopt_mapping(&mut self, mapping: &mut Mapping, now_s: u32) {
        let Some(address) = self.number_of(mapping.outside_ip) else { return };
        mapping.address = address;
        if let Some(bits) = self.bits(address, mapping.proto()) {
            // Already marked where the bitmap came along.
            bits.alloc_exact(mapping.outside_port, now_s);
        }
    }

    /// Counts anew once everything is adopted.
    pub(crate) fn settle(&mut self) {
        for number in 0..self.addresses.len() {
            let address = number as u16;
            let Some(home) = self.addresses.get_mut(number) else { continue };
            for (index, entry) in home.blocks.iter_mut().enumerate() {
                if entry.owner != NONE && entry.used == 0 {
                    entry.queued = true;
                    let at = BlockRef { address, block: index as u16 };
                    self.idle.push_back(Waiting { due_s: entry.empty_since_s, at });
                }
            }
        }
        for proto in Proto::WITH_PORTS {
            let maps = self.addresses.iter().filter_map(|a| a.maps.get(proto.index()));
            if let Some(used) = self.used.get_mut(proto.index()) {
                *used = maps.map(|map| u64::from(map.used())).sum();
            }
        }
    }
}
