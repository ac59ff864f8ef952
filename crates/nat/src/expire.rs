//! The end of sessions, mappings, blocks and subscribers, and the small work of each second.

use core::net::IpAddr;

use carrack_base::{Now, PoolId, Proto, Reason};
use carrack_wire::ipv4::protocol::ESP;

use crate::engine::{Nat, SWEEP_LINES_MAX, idle_timeout_s};
use crate::line::{CONTROL, EXPECTED, FORWARD, Mapping, TOLD};
use crate::policy::BlockRules;
use crate::row::{Change, NatEvent};
use crate::steps::{self, turns};
use crate::syn::OverdueSyn;
use crate::tables::{Ending, Hashes};
use crate::told::crosses;

/// Idle blocks looked at in one call.
const IDLE_BLOCKS_MAX: usize = 16;
/// Steps of an end: four ask for memory.
const END_STEPS: usize = 5;

impl Nat {
    /// Expires what is due, a bounded share of the tables a call. Call it often (between bursts).
    pub fn expire(&mut self, now: Now) {
        let elapsed = now.ns.saturating_sub(self.swept_at_ns);
        self.swept_at_ns = now.ns;
        self.behind = false;
        let lines = self.pacer.lines_due(self.tables.deadlines.lines_to_sweep(), elapsed);
        if lines > 0 {
            self.sweep(lines, now.s());
        }
        self.sweep_expectations(elapsed, now.s());
        for at in 0..self.states.len() {
            self.release_idle_blocks(at, now.s());
        }
        self.renew_some(now.s());
        self.lay_some(now.s());
        self.end_pins(now.s());
        if now.s() != self.second_s {
            self.second_s = now.s();
            self.each_second();
        }
    }

    /// Did the last call of [`Nat::expire`] leave something that is due, so that the next should come soon?
    #[must_use]
    pub const fn is_behind(&self) -> bool {
        self.behind
    }

    /// The next held SYN that nobody inside claimed: the pipeline answers it and counts the drop.
    pub fn next_overdue_syn(&mut self, now: Now) -> Option<OverdueSyn> {
        self.syns.next_overdue(now.s())
    }

    fn sweep(&mut self, lines: usize, now_s: u32) {
        let mut due = std::mem::take(&mut self.due);
        let (count, skimmed) = self.tables.deadlines.collect_due(now_s, lines, &mut due);
        self.behind |= count == due.len() || lines == SWEEP_LINES_MAX;
        // What did not get its turn is swept next time.
        self.pacer.give_back(lines.saturating_sub(skimmed));
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        ends.extend(due.iter().take(count).map(|id| Ending { id: *id, ..Ending::default() }));
        self.end_each(&mut ends, |this, end| this.expire_session(end, now_s));
        (self.due, self.ends) = (due, ends);
    }

    /// Does `end` to one after the other, when what it will touch has been fetched.
    #[inline(always)]
    fn end_each(&mut self, ends: &mut [Ending], mut end: impl FnMut(&mut Self, &Ending)) {
        for turn in 0..turns(ends.len(), END_STEPS) {
            self.prepare_ends(ends, turn);
            if let Some(due) = steps::due(ends, turn, END_STEPS - 1) {
                end(self, due);
            }
        }
    }

    /// Ends these sessions, as [`Nat::end_session`] does one; how many of them there were.
    pub(crate) fn end_sessions(&mut self, ids: impl Iterator<Item = u32>, now_s: u32) -> usize {
        let mut ends = std::mem::take(&mut self.ends);
        ends.clear();
        ends.extend(ids.map(|id| Ending { id, ..Ending::default() }));
        let mut count = 0;
        self.end_each(&mut ends, |this, end| count += usize::from(this.end_session_at(end, now_s)));
        self.ends = ends;
        count
    }

    /// Fetches what the ends of sessions will touch, in this turn a step of each of a few.
    #[inline(always)]
    fn prepare_ends(&self, ends: &mut [Ending], turn: usize) {
        if let Some(end) = steps::due(ends, turn, 0) {
            self.tables.sessions.prefetch(end.id);
        }
        if let Some(end) = steps::due(ends, turn, 1) {
            self.tables.look_at_ending(end);
        }
        let ports_of =
            |mapping: &Mapping| self.states.get(self.slots.at(mapping.slot)).map(|state| &state.ports);
        if let Some(end) = steps::due(ends, turn, 2)
            && let Some(mapping) = self.tables.look_at_last(end)
        {
            ports_of(mapping).inspect(|ports| ports.prefetch_address(mapping.address, mapping.proto()));
        }
        if let Some(end) = steps::due(ends, turn, 3).filter(|end| end.last.is_some())
            && let Some(mapping) = self.tables.mappings.get(end.mapping)
        {
            self.tables.look_at_last_of_six(end, mapping);
            let (address, port) = (mapping.address, mapping.outside_port);
            ports_of(mapping).inspect(|ports| ports.prefetch_release(address, mapping.proto(), port));
        }
    }

    /// A session's deadline has come: it ends, or gets a later one because packets came meanwhile.
    fn expire_session(&mut self, end: &Ending, now_s: u32) {
        let Some(session) = self.tables.sessions.get(end.id) else { return };
        let instance = self.policy.instances.get(self.slots.at(session.slot));
        let mut deadline = instance.map_or(0, |i| session.seen_s.saturating_add(idle_timeout_s(i, session)));
        if deadline <= now_s {
            deadline = self.tables.pinned_until_s(session, now_s);
        }
        if deadline > now_s {
            self.tables.deadlines.set(end.id, deadline);
        } else {
            self.end_session_at(end, now_s);
        }
    }

    /// Ends a session, and its mapping (RFC 7857 §11) and subscriber when nothing else holds them. False when
    /// there was none.
    pub(crate) fn end_session(&mut self, id: u32, now_s: u32) -> bool {
        let Some(line) = self.tables.sessions.get(id) else { return false };
        let session = self.tables.hashes_of_session(line);
        self.end_session_at(&Ending { id, session, ..Ending::default() }, now_s)
    }

    fn end_session_at(&mut self, end: &Ending, now_s: u32) -> bool {
        let id = end.id;
        let Some(session) = self.tables.remove_session(id, end.session) else { return false };
        if session.flags & TOLD != 0 {
            self.tell_end(&session);
        }
        if session.flags & CONTROL != 0
            && let Some(controls) = self.controls.as_mut()
        {
            controls.forget(id);
        }
        if session.ip_proto == ESP {
            self.forget_spi(&session);
        }
        if self.is_unused_mapping(session.mapping) {
            match end.last {
                Some(ends) => self.drop_mapping_at(session.mapping, ends, now_s, false),
                None => self.drop_mapping(session.mapping, now_s),
            }
        }
        self.release_subscriber_if_unused(session.subscriber, now_s);
        true
    }

    pub(crate) fn drop_mapping_if_unused(&mut self, id: u32, now_s: u32) {
        if self.is_unused_mapping(id) {
            self.drop_mapping(id, now_s);
        }
    }

    fn is_unused_mapping(&self, id: u32) -> bool {
        self.tables.mappings.get(id).is_some_and(|m| {
            m.sessions == 0
                && m.pins == 0
                && m.flags & (FORWARD | EXPECTED) == 0
                && self.tables.mappings.is_live(id)
        })
    }

    /// Removes a mapping and gives its port back (RFC 6888 REQ-8: held for a while, unless the NAT tracks the
    /// protocol's end itself, as it does TCP's: RFC 6888 REQ-8a).
    pub(crate) fn drop_mapping(&mut self, id: u32, now_s: u32) {
        self.drop_mapping_and(id, now_s, false);
    }

    /// The same; `hold` keeps the port back even where the protocol's end is tracked.
    pub(crate) fn drop_mapping_and(&mut self, id: u32, now_s: u32, hold: bool) {
        let Some(line) = self.tables.mappings.get(id) else { return };
        self.drop_mapping_at(id, self.tables.hashes_of_mapping(line), now_s, hold);
    }

    /// The same; `ends` is what the mapping's ends are found by.
    fn drop_mapping_at(&mut self, id: u32, ends: Hashes, now_s: u32, hold: bool) {
        if self.tables.mappings.get(id).is_some_and(|mapping| mapping.flags & TOLD != 0) {
            self.tell_mapping(Change::MappingDeleted, id);
        }
        let Some(mapping) = self.tables.remove_mapping(id, ends) else { return };
        if mapping.flags & EXPECTED != 0
            && let Some(expectations) = self.expectations.as_mut()
        {
            expectations.forget(id);
        }
        if mapping.proto() == Proto::Other {
            self.forget_waiting(id);
        }
        let hold = hold || mapping.proto() != Proto::Tcp;
        if let Some(state) = self.states.get_mut(self.slots.at(mapping.slot))
            && !mapping.is_static()
        {
            state.ports.release(mapping.address, mapping.outside_port, mapping.proto(), now_s, hold);
        }
        self.release_subscriber_if_unused(mapping.subscriber, now_s);
    }

    /// Gives back the blocks of a subscriber without mappings where policy says at once, and its line when it has
    /// nothing left.
    #[inline(always)]
    pub(crate) fn release_subscriber_if_unused(&mut self, id: u32, now_s: u32) {
        // Mostly it is not.
        let line = self.tables.subscribers.get(id);
        if line.is_some_and(|line| line.sessions == 0 && line.mapping_count() == 0) {
            self.release_subscriber(id, now_s);
        }
    }

    fn release_subscriber(&mut self, id: u32, now_s: u32) {
        let Self { tables, states, policy, events, slots, .. } = self;
        if !tables.subscribers.is_live(id) {
            return;
        }
        let Some(subscriber) = tables.subscribers.get_mut(id) else { return };
        let at = slots.at(subscriber.slot);
        let (Some(instance), Some(state)) = (policy.instances.get(at), states.get_mut(at)) else {
            // Its instance is gone and took its blocks along.
            tables.remove_subscriber(id);
            return;
        };
        let mut send = |event| {
            events.push(event);
        };
        let keeps_blocks = instance.assignment.blocks().is_some_and(|blocks| blocks.idle_release_s > 0);
        while !keeps_blocks && let Some(block) = subscriber.blocks().first().copied() {
            state.ports.release_block(instance, subscriber, block, now_s, &mut send);
        }
        if subscriber.is_unused() {
            state.ports.unbind(instance, subscriber, &mut send);
            tables.remove_subscriber(id);
        }
    }

    fn each_second(&mut self) {
        self.end_waiting(self.second_s);
        self.retry_forwards();
        for at in 0..self.states.len() {
            self.watch_threshold(at);
            self.watch_ports(at);
            self.report_refusals(at);
        }
    }

    fn release_idle_blocks(&mut self, at: usize, now_s: u32) {
        if let Some(state) = self.states.get_mut(at) {
            self.behind |= state.ports.end_hold_between_bursts(now_s);
        }
        for _ in 0..IDLE_BLOCKS_MAX {
            let Self { tables, states, policy, events, .. } = self;
            let (Some(instance), Some(state)) = (policy.instances.get(at), states.get_mut(at)) else {
                return;
            };
            let Some(BlockRules { idle_release_s, .. }) = instance.assignment.blocks() else { return };
            if idle_release_s == 0 {
                return;
            }
            let Some((owner, block)) = state.ports.next_idle(idle_release_s, now_s) else { return };
            let Some(subscriber) = tables.subscribers.get_mut(owner) else { continue };
            let mut send = |event| {
                events.push(event);
            };
            state.ports.release_block(instance, subscriber, block, now_s, &mut send);
            if subscriber.is_unused() {
                state.ports.unbind(instance, subscriber, &mut send);
                tables.remove_subscriber(owner);
            }
        }
    }

    /// RFC 6888 REQ-13: pool use crossing the threshold is an event, with 5 points of hysteresis.
    fn watch_threshold(&mut self, at: usize) {
        let Self { states, policy, events, .. } = self;
        let (Some(instance), Some(state)) = (policy.instances.get(at), states.get_mut(at)) else { return };
        let threshold = instance.pool_threshold_percent;
        if threshold == 0 || !state.ports.watches_use() {
            return;
        }
        let percent = state.ports.percent_used();
        let above = if state.above_threshold { percent + 5 > threshold } else { percent >= threshold };
        if above != state.above_threshold {
            state.above_threshold = above;
            let pool = instance.pools.first().map_or(PoolId(0), |p| p.id);
            events.push(NatEvent::PoolThreshold { instance: instance.id, pool, percent, above });
        }
    }

    /// RFC 8158 §4.6.8.2: as many ports of the pools in use as the threshold says is an event.
    fn watch_ports(&mut self, at: usize) {
        let Self { states, policy, events, group, .. } = self;
        let (Some(instance), Some(state)) = (policy.instances.get(at), states.get_mut(at)) else { return };
        let share = instance.pool_ports_threshold.div_ceil(u32::from(group.workers()));
        let ports = state.ports.used.iter().sum::<u64>().min(u64::from(u32::MAX)) as u32;
        if crosses(ports, share, &mut state.above_ports) {
            let pool = instance.pools.first().map_or(PoolId(0), |p| p.id);
            events.push(NatEvent::PortsThreshold { instance: instance.id, pool, ports });
        }
    }

    /// Counts a refusal for the next event (RFC 6888 REQ-11c: management is told).
    pub(crate) fn note_refusal(&mut self, at: usize, inside: IpAddr, reason: Reason) {
        if let Some(state) = self.states.get_mut(at) {
            state.refused_last = inside;
            if let Some(count) = state.refused.get_mut(reason as usize) {
                *count = count.saturating_add(1);
            }
        }
    }

    fn report_refusals(&mut self, at: usize) {
        let Self { states, policy, events, .. } = self;
        let (Some(instance), Some(state)) = (policy.instances.get(at), states.get_mut(at)) else { return };
        for (index, count) in state.refused.iter_mut().enumerate() {
            if let Some(reason) = Reason::from_index(index).filter(|_| *count > 0) {
                let inside = state.refused_last;
                let event = NatEvent::Refused { instance: instance.id, inside, reason, count: *count };
                // A full queue keeps the count for the next second: management is told in the end.
                if events.push(event) {
                    *count = 0;
                }
            }
        }
    }
}
