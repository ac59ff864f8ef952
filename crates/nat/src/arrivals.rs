//! Packets from inside that probably need sessions, many at a time: while one gets its session, what the next ones need is
//! fetched, step by step. A session like most others is made here, in as few steps as it takes; whatever is anything but
//! common is left to `create`, which makes the common ones just the same.

use carrack_base::{InstanceId, Now, Proto, Reason, VrfId};

use crate::create::{may_have_session, may_open, session_of, within_limits};
use crate::directory::is_exempt;
use crate::engine::{Nat, Verdict, idle_timeout_s};
use crate::flow::{Direction, Flow, Inside, host_hash, mapping_key, subscriber_hash};
use crate::line::{Host, INDEPENDENT, Mapping, NO_ADDRESS, NONE, SIX, Subscriber};
use crate::policy::{Assignment, Instance};
use crate::pool::Wish;
use crate::rewrite::deltas;
use crate::row::Endpoint;
use crate::steps::{self, turns};
use crate::told::mapping_flags;

/// Steps of a session's beginning: four ask for memory.
const OPENING_STEPS: usize = 5;

/// No instance serves it.
const NOBODY: u16 = u16::MAX;

/// A packet that will probably need a session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    flow: Flow,
    /// Its session is found by, going out.
    hash: u64,
    /// Its subscriber is found by.
    who: u64,
    /// Its mapping is found by; the number of an IPv6 source.
    endpoint: u64,
    /// The likely subscriber.
    subscriber: u32,
    /// Index of its instance.
    instance: u16,
}

impl Arrival {
    fn instance(&self) -> usize {
        usize::from(self.instance)
    }
}

/// May a port be asked for with which more is tied or taken, an address or a block? That is not given back, so nothing may come
/// in between: no new block whose ports are all forward rules'. A host with such rules has its first address with them.
/// `address` is what the subscriber has by now.
#[inline(always)]
fn may_tie(instance: &Instance, address: u16) -> bool {
    instance.statics.is_empty() || (address != NO_ADDRESS && instance.assignment.blocks().is_none())
}

impl Nat {
    /// Tells of a packet from inside that will probably need a session, before [`Nat::prepare`] or
    /// [`Nat::open_expected`]. `hash` is [`Nat::hash`] of it. False when a burst is full.
    #[inline(always)]
    pub fn expect_session(&mut self, flow: Flow, hash: u64) -> bool {
        if self.expected.len() >= self.expected.capacity() {
            return false;
        }
        let (directory, hasher) = (&self.directory, &self.tables.hasher);
        let instance = directory.instance_for(&flow);
        let who = instance.map_or(flow.inside(), |id| directory.subscriber_of(id, flow.inside()));
        let who = subscriber_hash(hasher, who, flow.vrf);
        let endpoint = if flow.is_six() {
            let slot = instance.map_or(NOBODY, |id| self.slots.of(id));
            host_hash(hasher, flow.src6, slot, flow.vrf)
        } else {
            let [a, b] = mapping_key(flow.local(Direction::Out), flow.vrf, flow.proto, Direction::Out, false);
            hasher.hash2(a, b)
        };
        let instance = instance.map_or(NOBODY, |id| id.0);
        self.expected.push(Arrival { flow, hash, who, endpoint, subscriber: NONE, instance });
        true
    }

    /// Fetches what the sessions of all expected packets will need, for [`Nat::process`] to make them.
    pub fn prepare(&mut self) {
        let mut expected = std::mem::take(&mut self.expected);
        for turn in 0..turns(expected.len(), OPENING_STEPS - 1) {
            self.prepare_arrivals(&mut expected, turn);
        }
        expected.clear();
        self.expected = expected;
    }

    /// Makes the sessions of all expected packets, in their order, where they may have one. `opened` is told each one's line;
    /// or why it is refused, which has been noted, or `None`: [`Nat::process`] tells more.
    pub fn open_expected(
        &mut self,
        now: Now,
        routed_outside: impl Fn(&Flow, VrfId, u32) -> bool,
        mut opened: impl FnMut(usize, Result<u32, Option<Reason>>),
    ) {
        let mut expected = std::mem::take(&mut self.expected);
        let mut at = 0;
        for turn in 0..turns(expected.len(), OPENING_STEPS) {
            self.tables.prefetch_pending();
            self.prepare_arrivals(&mut expected, turn);
            if let Some(arrival) = steps::due(&mut expected, turn, OPENING_STEPS - 1) {
                opened(at, self.open_arrival(arrival, now, &routed_outside));
                at += 1;
            }
        }
        expected.clear();
        self.expected = expected;
    }

    /// Fetches what the sessions of packets will need, in this turn a step of each of a few: index buckets, mappings and
    /// subscribers, their addresses, the ports there.
    #[inline(always)]
    fn prepare_arrivals(&self, expected: &mut [Arrival], turn: usize) {
        let Self { tables, states, rng, .. } = self;
        if let Some(Arrival { flow, who, endpoint, .. }) = steps::due(expected, turn, 0) {
            tables.prefetch_indexes(flow, *who, *endpoint);
        }
        if let Some(arrival) = steps::due(expected, turn, 1) {
            let Arrival { flow, hash, who, endpoint, .. } = arrival;
            arrival.subscriber = tables.prefetch_arrival(flow, *hash, *who, *endpoint);
        }
        let home = |arrival: &Arrival| {
            let line = tables.subscribers.get(arrival.subscriber)?;
            Some((&states.get(arrival.instance())?.ports, line))
        };
        if let Some(arrival) = steps::due(expected, turn, 2) {
            if arrival.flow.is_six() {
                tables.prefetch_mapping_of_six(&arrival.flow, arrival.endpoint);
            }
            if arrival.subscriber == NONE {
                arrival.subscriber = tables.prefetch_away(&arrival.flow, arrival.who);
            } else if let Some((ports, subscriber)) = home(arrival) {
                ports.prefetch_address(subscriber.last_address(), arrival.flow.proto);
            }
        }
        // Each of those before it that are still to be made will probably draw one.
        let others = steps::behind(turn, 3);
        if let Some(arrival) = steps::due(expected, turn, 3)
            && let Some((ports, subscriber)) = home(arrival)
        {
            ports.prefetch_next(subscriber, arrival.flow.proto, rng.port_ahead(others));
        }
    }

    #[inline(always)]
    fn open_arrival(
        &mut self,
        arrival: &Arrival,
        now: Now,
        routed_outside: impl Fn(&Flow, VrfId, u32) -> bool,
    ) -> Result<u32, Option<Reason>> {
        let flow = &arrival.flow;
        let routed_outside = |outside, destination| routed_outside(flow, outside, destination);
        if let Some(id) = self.tables.find_session(arrival.hash, flow, Direction::Out) {
            return Ok(id);
        }
        if let Some(id) = self.open_common(arrival, now, routed_outside) {
            return Ok(id);
        }
        self.miss(flow, Direction::Out, &[], now, routed_outside).map_err(|verdict| match verdict {
            Verdict::Drop(reason) => Some(reason),
            _ => None,
        })
    }

    /// The session of a packet like most. `None`, and nothing has changed, when anything is uncommon, or runs out.
    #[inline(always)]
    fn open_common(
        &mut self,
        arrival: &Arrival,
        now: Now,
        routed_outside: impl Fn(VrfId, u32) -> bool,
    ) -> Option<u32> {
        let (flow, at) = (&arrival.flow, arrival.instance());
        if !self.directory.opens_common(at, flow.proto) || self.is_changing() || self.is_laying() {
            return None;
        }
        let Self { policy, tables, directory, slots, .. } = &*self;
        let instance = policy.instances.get(at)?;
        may_open(instance, flow).ok()?;
        if (flow.proto == Proto::Tcp && self.is_awaited(flow.remote(Direction::Out), now.s()))
            || instance.gateway_of(flow.proto, flow.dport).is_some()
            || (!flow.is_six() && is_exempt(instance, flow.dst))
            || (flow.is_six() && directory.is_only_led_to(instance.id, flow.src6))
            || directory.outside(instance.outside_vrf, flow.dst).is_some()
            || !routed_outside(instance.outside_vrf, flow.dst)
        {
            return None;
        }
        let who = directory.subscriber_of(instance.id, flow.inside());
        let subscriber = tables.find_subscriber_at(arrival.who, who, instance.inside_vrf);
        let slot = slots.of(instance.id);
        let endpoint = tables.endpoint_of(flow, arrival.endpoint, slot);
        let mapping = endpoint.and_then(|(inside, outbound)| tables.find_mapping_at(outbound, inside, flow));
        let of_mapping = match mapping {
            // What is static serves by rules of its own.
            Some(id) => tables.mappings.get(id).filter(|mapping| !mapping.is_static())?.sessions,
            None if !flow.is_six() && directory.one_to_one(instance.id, flow.src).is_some() => return None,
            None => 0,
        };
        // By another prefix it may mean the same remote endpoint.
        if flow.is_six() && endpoint.is_some() && instance.has_several_prefixes() {
            return None;
        }
        tables.has_room(mapping.is_none()).ok()?;
        let of_subscriber = match subscriber {
            Some(id) => tables.subscribers.get(id).filter(|line| line.slot == slot)?.sessions,
            None => 0,
        };
        may_have_session(instance, of_subscriber, of_mapping).ok()?;
        match (subscriber, mapping) {
            (Some(subscriber), Some(mapping)) => self.session_common(subscriber, mapping, arrival, now),
            (Some(subscriber), None) => self.open_mapped(subscriber, endpoint, arrival, now),
            (None, None) if may_tie(instance, NO_ADDRESS) => self.open_for(who, endpoint, arrival, now),
            (None, _) => None,
        }
    }

    /// The first session of a subscriber.
    #[inline(never)]
    fn open_for(
        &mut self,
        who: Inside,
        endpoint: Option<(Endpoint, u64)>,
        arrival: &Arrival,
        now: Now,
    ) -> Option<u32> {
        let instance = self.policy.instances.get(arrival.instance())?;
        let line = Subscriber::of(instance, who, self.slots.of(instance.id));
        let subscriber = self.tables.add_subscriber_at(line, arrival.who).ok()?;
        let opened = self.open_mapped(subscriber, endpoint, arrival, now);
        if opened.is_none() {
            self.release_subscriber_if_unused(subscriber, now.s());
        }
        opened
    }

    /// A session with a mapping of its own, the first of this endpoint.
    #[inline(always)]
    fn open_mapped(
        &mut self,
        subscriber: u32,
        endpoint: Option<(Endpoint, u64)>,
        arrival: &Arrival,
        now: Now,
    ) -> Option<u32> {
        let (inside, outbound) = match endpoint {
            Some(endpoint) => endpoint,
            None => self.begin_host(arrival)?,
        };
        let Some(mapping) = self.map_common(subscriber, inside, outbound, arrival, now) else {
            if endpoint.is_none() {
                self.tables.remove_host_if_unused(inside.ip);
            }
            return None;
        };
        let opened = self.session_common(subscriber, mapping, arrival, now);
        if opened.is_none() {
            self.drop_mapping(mapping, now.s());
        }
        opened
    }

    /// The line of an IPv6 host that has none yet: its endpoint, and what that is found by.
    #[inline(never)]
    fn begin_host(&mut self, arrival: &Arrival) -> Option<(Endpoint, u64)> {
        let Flow { src6, via, vrf, .. } = arrival.flow;
        let slot = self.slots.of(InstanceId(arrival.instance));
        let line = Host { address: src6, vrf: vrf.0, via, mappings: 0, slot };
        let host = self.tables.add_host_at(line, arrival.endpoint).ok()?;
        Some(self.tables.endpoint_by(host, &arrival.flow))
    }

    /// Its mapping, when it has none yet.
    #[inline(always)]
    fn map_common(
        &mut self,
        subscriber_id: u32,
        inside: Endpoint,
        outbound: u64,
        arrival: &Arrival,
        now: Now,
    ) -> Option<u32> {
        let (flow, at) = (&arrival.flow, arrival.instance());
        let Self { policy, tables, states, rng, events, slots, .. } = self;
        let instance = policy.instances.get(at)?;
        let ports = &mut states.get_mut(at)?.ports;
        let subscriber = tables.subscribers.get_mut(subscriber_id)?;
        // Before anything is taken, as by the general way: a port given back at once would be a block's last for a moment.
        let drawn = rng.clone();
        // They are on a line that is not here, and is not needed where there is no such limit.
        let tokens = match instance.limits.creations_per_s {
            0 => None,
            _ => Some((subscriber.tokens_milli, subscriber.tokens_at_ms)),
        };
        within_limits(instance, subscriber, flow.proto, now).ok()?;
        let mut got = match instance.assignment {
            Assignment::Blocks { .. } => ports.take_in_own_block(subscriber, flow.proto, now.s(), rng),
            Assignment::Arbitrary | Assignment::Deterministic { .. } => None,
        };
        if got.is_none() && may_tie(instance, subscriber.address) {
            *rng = drawn.clone();
            let mut send = |event| {
                events.push(event);
            };
            let wish = Wish::any(flow.proto, inside.port);
            got = ports.allocate(instance, subscriber_id, subscriber, wish, now.s(), rng, &mut send).ok();
        }
        let made = got.and_then(|got| {
            let line = Mapping {
                address: got.address,
                subscriber: subscriber_id,
                flags: INDEPENDENT | mapping_flags(instance) | if flow.is_six() { SIX } else { 0 },
                ..Mapping::between(instance, slots.of(instance.id), inside, got.endpoint(), flow.proto)
            };
            let made = tables.add_mapping_at(line, outbound);
            made.inspect_err(|_| ports.release(got.address, got.port, flow.proto, now.s(), false)).ok()
        });
        let Some(id) = made else {
            *rng = drawn;
            if let Some((tokens, subscriber)) = tokens.zip(tables.subscribers.get_mut(subscriber_id)) {
                (subscriber.tokens_milli, subscriber.tokens_at_ms) = tokens;
            }
            return None;
        };
        let (instance, told) = (instance.id, (instance.logged, instance.marks()));
        self.note_mapped(instance, told, subscriber_id, id);
        Some(id)
    }

    #[inline(always)]
    fn session_common(
        &mut self,
        subscriber: u32,
        mapping_id: u32,
        arrival: &Arrival,
        now: Now,
    ) -> Option<u32> {
        let flow = &arrival.flow;
        let instance = self.policy.instances.get(arrival.instance())?;
        let mapping = *self.tables.mappings.get(mapping_id)?;
        let mut line = session_of(instance, (subscriber, mapping_id), &mapping, flow, Direction::Out, now);
        if mapping.is_six() {
            self.set_six(&mut line, &mapping, flow.via).ok()?;
        } else {
            (line.l3_delta, line.l4_delta) = deltas(&line);
        }
        let deadline = now.s().saturating_add(idle_timeout_s(instance, &line));
        let logged = instance.logged;
        let id = self.tables.add_session_at(line, arrival.hash, deadline).ok()?;
        self.note_opened(logged, id, &mapping, flow, Direction::Out);
        Some(id)
    }
}
