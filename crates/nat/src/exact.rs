//! One port and no other: what a host had before and asks for again.

use carrack_base::Reason;

use crate::line::{BlockRef, NO_ADDRESS, Subscriber};
use crate::policy::{BlockRules, Instance, Pooling};
use crate::pool::{Allocated, Ports, Wish};
use crate::rng::Rng;
use crate::row::{BLOCKS_MAX, NatEvent};

impl Ports {
    /// Gives exactly the port that is wished for, if it is free and the subscriber may have it.
    #[allow(clippy::too_many_arguments, reason = "the engine's parts are borrowed apart")]
    pub(crate) fn allocate_exactly(
        &mut self,
        instance: &Instance,
        line: u32,
        subscriber: &mut Subscriber,
        wish: Wish,
        now_s: u32,
        rng: &mut Rng,
        events: &mut impl FnMut(NatEvent),
    ) -> Result<Allocated, Reason> {
        let (address, port) = wish.exactly.ok_or(Reason::NatPortsExhausted)?;
        let paired = instance.pooling == Pooling::Paired && self.deterministic.is_none();
        if paired && subscriber.address != NO_ADDRESS && subscriber.address != address {
            return Err(Reason::NatPortsExhausted);
        }
        if let Some(function) = &self.deterministic {
            let share = function.share(subscriber.who()).ok_or(Reason::NatPoolExhausted)?;
            if self.number_of(share.outside) != Some(address) {
                return Err(Reason::NatPortsExhausted);
            }
            subscriber.address = address;
            if (share.first..=share.last).contains(&port) {
                return self.take(address, port..=port, wish, now_s, rng).ok_or(Reason::NatPortsExhausted);
            }
        }
        if let Some(BlockRules { per_subscriber_max, .. }) = instance.assignment.blocks() {
            let at = self.block_at(address, port).ok_or(Reason::NatPortsExhausted)?;
            if !subscriber.blocks().contains(&at) {
                self.claim_exactly(instance, per_subscriber_max, line, subscriber, at, now_s, events)?;
            }
            let got = self.take(address, port..=port, wish, now_s, rng).ok_or(Reason::NatPortsExhausted)?;
            self.count_in_block(at, 1, now_s);
            return Ok(got);
        }
        if self.deterministic.is_some() || !self.is_mine(address, port) {
            return Err(Reason::NatPortsExhausted);
        }
        let got = self.take(address, port..=port, wish, now_s, rng).ok_or(Reason::NatPortsExhausted)?;
        if paired && subscriber.address == NO_ADDRESS {
            self.bind(instance, subscriber, address, events);
        }
        Ok(got)
    }

    #[allow(clippy::too_many_arguments, reason = "the engine's parts are borrowed apart")]
    fn claim_exactly(
        &mut self,
        instance: &Instance,
        per_subscriber_max: u8,
        line: u32,
        subscriber: &mut Subscriber,
        at: BlockRef,
        now_s: u32,
        events: &mut impl FnMut(NatEvent),
    ) -> Result<(), Reason> {
        if subscriber.block_count >= per_subscriber_max.min(BLOCKS_MAX as u8) {
            return Err(Reason::NatBlockLimit);
        }
        let home = self.addresses.get(usize::from(at.address)).ok_or(Reason::NatPortsExhausted)?;
        let in_map = at.block.checked_sub(home.first_block).ok_or(Reason::NatPortsExhausted)?;
        let on = home.in_map;
        while !self.map.claim_one(on, in_map, self.worker) {
            // It may be one whose hold time is over.
            if !self.end_hold_in_need(now_s) {
                return Err(Reason::NatPortsExhausted);
            }
        }
        self.own_block(instance, line, subscriber, at, now_s, events);
        Ok(())
    }
}
