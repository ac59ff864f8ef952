//! Packets without a session: whether they may have one, and making it.

use carrack_base::{Now, Proto, Reason, VrfId};
use carrack_wire::icmpv4::{Class, class_of};
use carrack_wire::ipv4::protocol::ESP;
use carrack_wire::tcp::flag;

use crate::directory::{Outside, is_exempt};
use crate::engine::{Nat, Verdict, idle_timeout_s};
use crate::esp::{begins, is_numbered};
use crate::flow::{Direction, Flow, Inside, Kind};
use crate::line::{
    CONTROL, HAIRPIN, Host, INBOUND, INDEPENDENT, Mapping, NO_ADDRESS, NONE, ONE_TO_ONE, REFRESH_IN, SIX,
    Session, Subscriber,
};
use crate::policy::{Filtering, Instance, Logged, Mapping as MappingBehaviour};
use crate::pool::Wish;
use crate::rewrite::deltas;
use crate::row::{Endpoint, v4};
use crate::syn::Hold;
use crate::tcp::first_state;
use crate::told::{mapping_flags, session_flags};

impl Nat {
    /// No session: makes one when policy and resources allow. `Err` is the packet's verdict.
    #[cold]
    pub(crate) fn miss(
        &mut self,
        flow: &Flow,
        direction: Direction,
        frame: &[u8],
        now: Now,
        routed_outside: impl FnOnce(VrfId, u32) -> bool,
    ) -> Result<u32, Verdict> {
        match direction {
            Direction::Out => self.miss_out(flow, now, routed_outside),
            Direction::In => self.miss_in(flow, frame, now),
        }
    }

    fn miss_out(
        &mut self,
        flow: &Flow,
        now: Now,
        routed_outside: impl FnOnce(VrfId, u32) -> bool,
    ) -> Result<u32, Verdict> {
        let drop = |reason| Err(Verdict::Drop(reason));
        let known = if flow.is_six() {
            let id = self.directory.instance_of_prefix(flow.via);
            id.filter(|id| !self.directory.is_only_led_to(*id, flow.src6))
        } else {
            self.directory.instance_of_inside(flow.vrf, flow.src)
        };
        let Some(id) = known else {
            let crosses =
                flow.is_six() || self.directory.has_inside(flow.vrf) && routed_outside(flow.vrf, flow.dst);
            return if crosses { drop(Reason::NatSubscriberDenied) } else { Err(Verdict::Untouched) };
        };
        let Some(instance) = self.instance(id) else { return Err(Verdict::Untouched) };
        if is_exempt(instance, flow.dst) && !flow.is_six() {
            return Err(Verdict::Untouched);
        }
        let hairpin = self.directory.outside(instance.outside_vrf, flow.dst).is_some();
        if hairpin && !instance.hairpinning {
            return drop(Reason::NatHairpinDenied);
        }
        if !hairpin && !routed_outside(instance.outside_vrf, flow.dst) {
            return Err(Verdict::Untouched);
        }
        may_open(instance, flow).map_err(Verdict::Drop)?;
        let opened = if begins(&self.directory, instance, flow) {
            self.open_esp(flow, id.index(), hairpin, now)
        } else {
            self.open_out(flow, id.index(), hairpin, now)
        };
        opened.map_err(|reason| {
            self.note_refusal(id.index(), flow.inside().into(), reason);
            Verdict::Drop(reason)
        })
    }

    /// Makes a session from inside, with a mapping if there is none to share.
    fn open_out(&mut self, flow: &Flow, instance_at: usize, hairpin: bool, now: Now) -> Result<u32, Reason> {
        let policy = self.policy.clone();
        // Invariant: `instance_at` came from the directory, built from the same policy.
        let instance = policy.instances.get(instance_at).ok_or(Reason::NatNoInstance)?;
        let (inside, six) = (self.inside_endpoint(flow), flow.is_six());
        let behaviour = instance.mapping.get(flow.proto.index()).copied().unwrap_or_default();
        // RFC 4787 REQ-1, RFC 5382 REQ-1, RFC 5508 REQ-1, REQ-1a: one mapping for all destinations. A forward rule or
        // one-to-one mapping serves its inside endpoint whatever the behaviour.
        let shared = inside.and_then(|inside| {
            self.tables.find_mapping_of(inside, flow.vrf, flow.proto, Direction::Out, six)
        });
        let shared = shared.filter(|id| flow.proto != Proto::Other || self.has_static(*id));
        // A full table refuses before anything is taken (and reported) that would be given back at once.
        // RFC 6888 REQ-11a: the packet is dropped, whatever is short. RFC 6888 REQ-11d: nothing is evicted for it.
        // RFC 4787 REQ-11: a shortage refuses; it changes no behaviour.
        self.tables.has_room(shared.is_none())?;
        self.may_begin(instance_at, flow.inside(), flow.dst, shared.is_none())?;
        let subscriber = self.subscriber_for(instance, flow.inside())?;
        let made = match shared {
            Some(mapping) => Ok((mapping, false)),
            None => self
                .new_mapping_of(instance, subscriber, inside, flow, behaviour, false, now)
                .map(|id| (id, true)),
        };
        let opened = made.and_then(|(mapping, fresh)| {
            let opened = self.open(instance, subscriber, mapping, flow, Direction::Out, hairpin, now);
            if opened.is_err() && fresh {
                self.drop_mapping(mapping, now.s());
            }
            opened
        });
        if opened.is_err() {
            self.release_subscriber_if_unused(subscriber, now.s());
            if self.transition.is_some() {
                self.give_back_again(subscriber, now.s());
            }
        }
        opened
    }

    /// The inside endpoint as mappings know it: an IPv6 host by its number, when it has one. All else of a binding is the
    /// same for both versions (RFC 6146 §3.5.1, RFC 6146 §3.5.1.1).
    pub(crate) fn inside_endpoint(&self, flow: &Flow) -> Option<Endpoint> {
        let inside = flow.local(Direction::Out);
        if !flow.is_six() {
            return Some(inside);
        }
        let host = self.tables.find_host(flow.src6, self.slot_of_prefix(flow.via), flow.vrf)?;
        Some(Endpoint { ip: host, ..inside })
    }

    /// Makes a mapping, and the line of an IPv6 host that has none yet. `pair` asks for a port and the one behind it.
    #[allow(clippy::too_many_arguments, reason = "all of an endpoint's wishes")]
    pub(crate) fn new_mapping_of(
        &mut self,
        instance: &Instance,
        subscriber: u32,
        inside: Option<Endpoint>,
        flow: &Flow,
        behaviour: MappingBehaviour,
        pair: bool,
        now: Now,
    ) -> Result<u32, Reason> {
        let inside = match inside {
            Some(inside) => inside,
            None => Endpoint {
                ip: self.tables.add_host(Host {
                    address: flow.src6,
                    vrf: instance.inside_vrf.0,
                    via: flow.via,
                    mappings: 0,
                    slot: self.slots.of(instance.id),
                })?,
                port: flow.sport,
            },
        };
        let made = self.new_mapping(instance, subscriber, inside, flow, behaviour, pair, now);
        if made.is_err() && flow.is_six() {
            self.tables.remove_host_if_unused(inside.ip);
        }
        made
    }

    /// The line of the subscriber that an inside host belongs to, made if there is none.
    pub(crate) fn subscriber_for(&mut self, instance: &Instance, host: Inside) -> Result<u32, Reason> {
        let inside = self.directory.subscriber_of(instance.id, host);
        if let Some(id) = self.tables.find_subscriber(inside, instance.inside_vrf) {
            // Known by another instance's forward rule so far: whose ports it takes, it belongs to.
            if let Some(line) = self.tables.subscribers.get_mut(id)
                && line.block_count == 0
                && line.address == NO_ADDRESS
            {
                line.slot = self.slots.of(instance.id);
            }
            return Ok(id);
        }
        self.tables.add_subscriber(Subscriber::of(instance, inside, self.slots.of(instance.id)))
    }

    /// Makes a mapping for an inside endpoint, within the subscriber's limits.
    #[allow(clippy::too_many_arguments, reason = "all of an endpoint's wishes")]
    fn new_mapping(
        &mut self,
        instance: &Instance,
        subscriber_id: u32,
        inside: Endpoint,
        flow: &Flow,
        behaviour: MappingBehaviour,
        pair: bool,
        now: Now,
    ) -> Result<u32, Reason> {
        if let Some(outside_ip) = self.directory.one_to_one(instance.id, inside.ip).filter(|_| !flow.is_six())
        {
            let outside = Endpoint { ip: outside_ip, port: inside.port };
            return self.add_one_to_one(instance, subscriber_id, inside, outside, flow.proto);
        }
        // What a gateway asks for is no packet's and has a number like a port.
        if flow.proto == Proto::Other && flow.ip_proto != 0 {
            // RFC 6146 §3.4.
            let six = flow.is_six();
            return Err(if six { Reason::Nat64ProtocolUnsupported } else { Reason::NatProtocolUnsupported });
        }
        let exactly = self.contiguous_port(instance.contiguity || pair, instance, inside, flow);
        let sessions = self.tables.subscribers.get(subscriber_id).map_or(0, |line| line.sessions);
        may_have_session(instance, sessions, 0)?;
        let udp = flow.proto == Proto::Udp;
        let wish = Wish {
            proto: flow.proto,
            inside_port: inside.port,
            parity: (instance.parity || pair) && udp,
            contiguity: (instance.contiguity || pair) && udp,
            strict: false,
            exactly,
            only: false,
            home: self.home_of(instance, subscriber_id, flow.inside()),
        };
        let flags = if behaviour == MappingBehaviour::EndpointIndependent { INDEPENDENT } else { 0 }
            | if flow.is_six() { SIX } else { 0 };
        self.mapping_with(instance, subscriber_id, inside, wish, flags, now)
    }

    /// The pool address that a host without one gets first: where its forward rules are, so that all of it is seen at one
    /// address (RFC 4787 REQ-2), and what gateways open for its servers is where their control connections go.
    pub(crate) fn home_of(&self, instance: &Instance, subscriber: u32, host: Inside) -> Option<u16> {
        let has_none = |line: &&Subscriber| line.address == NO_ADDRESS;
        self.tables.subscribers.get(subscriber).filter(has_none)?;
        let outside = self.directory.rules_of(instance.id)?.home_of(host)?;
        self.states.get(instance.id.index())?.ports.number_of(outside)
    }

    /// Makes a mapping with the port wished for, within the subscriber's limits.
    pub(crate) fn mapping_with(
        &mut self,
        instance: &Instance,
        subscriber_id: u32,
        inside: Endpoint,
        wish: Wish,
        flags: u8,
        now: Now,
    ) -> Result<u32, Reason> {
        let Self { tables, states, rng, events, .. } = self;
        let subscriber = tables.subscribers.get_mut(subscriber_id).ok_or(Reason::NatSubscriberTableFull)?;
        within_limits(instance, subscriber, wish.proto, now)?;
        let state = states.get_mut(instance.id.index()).ok_or(Reason::NatNoInstance)?;
        let mut send = |event| {
            events.push(event);
        };
        let got = state.ports.allocate(instance, subscriber_id, subscriber, wish, now.s(), rng, &mut send)?;
        let line = Mapping {
            address: got.address,
            subscriber: subscriber_id,
            flags: flags | mapping_flags(instance),
            ..Mapping::between(instance, self.slots.of(instance.id), inside, got.endpoint(), wish.proto)
        };
        let id = tables.add_mapping(line).inspect_err(|_| {
            state.ports.release(got.address, got.port, wish.proto, now.s(), false);
        })?;
        let told = (instance.logged, instance.marks());
        self.note_mapped(instance.id, told, subscriber_id, id);
        Ok(id)
    }

    fn add_one_to_one(
        &mut self,
        instance: &Instance,
        subscriber: u32,
        inside: Endpoint,
        outside: Endpoint,
        proto: Proto,
    ) -> Result<u32, Reason> {
        self.tables.add_mapping(Mapping {
            subscriber,
            flags: INDEPENDENT | ONE_TO_ONE,
            ..Mapping::between(instance, self.slots.of(instance.id), inside, outside, proto)
        })
    }

    /// The outside port that follows the one of the inside port's even neighbour (RTCP after RTP, RFC 4787 §4.2.3).
    fn contiguous_port(
        &self,
        wanted: bool,
        instance: &Instance,
        inside: Endpoint,
        flow: &Flow,
    ) -> Option<(u16, u16)> {
        if !wanted || flow.proto != Proto::Udp || inside.port.is_multiple_of(2) {
            return None;
        }
        let neighbour = Endpoint { ip: inside.ip, port: inside.port - 1 };
        let (vrf, direction) = (instance.inside_vrf, Direction::Out);
        let id = self.tables.find_mapping_of(neighbour, vrf, flow.proto, direction, flow.is_six())?;
        let mapping = self.tables.mappings.get(id).filter(|mapping| !mapping.is_static())?;
        Some((mapping.address, mapping.outside_port.checked_add(1)?))
    }

    /// Makes the session on its mapping.
    #[allow(clippy::too_many_arguments, reason = "one call site each way, and port control's")]
    pub(crate) fn open(
        &mut self,
        instance: &Instance,
        subscriber: u32,
        mapping_id: u32,
        flow: &Flow,
        direction: Direction,
        hairpin: bool,
        now: Now,
    ) -> Result<u32, Reason> {
        let mapping = *self.tables.mappings.get(mapping_id).ok_or(Reason::NatNoMapping)?;
        let sessions = self.tables.subscribers.get(subscriber).map_or(0, |s| s.sessions);
        may_have_session(instance, sessions, mapping.sessions)?;
        let remote = flow.remote(direction);
        let mut line = session_of(instance, (subscriber, mapping_id), &mapping, flow, direction, now);
        if hairpin {
            line.flags |= HAIRPIN;
        }
        let server = if direction == Direction::Out { remote.port } else { mapping.inside_port };
        let end = if direction == Direction::Out { remote } else { mapping.outside() };
        if instance.gateway_of(flow.proto, server).is_some()
            || (flow.proto == Proto::Tcp && self.is_awaited(end, now.s()))
        {
            line.flags |= CONTROL;
        }
        if mapping.is_six() {
            let by = if direction == Direction::Out {
                flow.via
            } else {
                self.prefix_back(&mapping, Some(remote.ip))
            };
            self.set_six(&mut line, &mapping, by)?;
            self.check_remote(&line)?;
            // RFC 6146 §3.1 (once): by two prefixes a host can mean the same remote endpoint, and packets from there say nothing of prefixes.
            if mapping.sessions > 0 && instance.has_several_prefixes() && self.tables.has_twin_outside(&line)
            {
                return Err(Reason::Nat64OtherPrefix);
            }
        } else {
            (line.l3_delta, line.l4_delta) = deltas(&line);
        }
        if self.is_doomed(&line) {
            return Err(Reason::NatPoolChanging);
        }
        let deadline = now.s().saturating_add(idle_timeout_s(instance, &line));
        let id = self.tables.add_session(line, deadline)?;
        if direction == Direction::Out {
            self.tables.note_prefix(&mapping, flow.via);
        }
        self.note_opened(instance.logged, id, &mapping, flow, direction);
        Ok(id)
    }

    /// What a new session is to the log, and to a SYN that was held for it.
    #[inline(always)]
    pub(crate) fn note_opened(
        &mut self,
        logged: Logged,
        id: u32,
        mapping: &Mapping,
        flow: &Flow,
        direction: Direction,
    ) {
        if logged >= Logged::Sessions {
            self.tell_begin(id);
        }
        if flow.proto == Proto::Tcp
            && direction == Direction::Out
            && self.syns.absorb(mapping.outside(), flow.remote(direction), VrfId(mapping.outside_vrf))
        {
            self.absorbed += 1;
        }
    }

    fn miss_in(&mut self, flow: &Flow, frame: &[u8], now: Now) -> Result<u32, Verdict> {
        let Some(what) = self.directory.outside(flow.vrf, flow.dst) else { return Err(Verdict::Untouched) };
        let policy = self.policy.clone();
        let Some(instance) = policy.instances.get(what.instance().index()) else {
            return Err(Verdict::Drop(Reason::NatNoInstance));
        };
        if flow.kind == Kind::LaterFragment && flow.proto == Proto::Tcp {
            return Err(Verdict::Drop(Reason::NatTcpNoSession));
        }
        if flow.proto == Proto::Icmp && class_of(flow.bits) != Class::Request {
            return Err(Verdict::Drop(Reason::NatNoMapping));
        }
        if is_numbered(flow) && matches!(what, Outside::Pool { .. } | Outside::Deterministic { .. }) {
            return self.learn_esp(instance, flow, now);
        }
        let outside = flow.local(Direction::In);
        let mapping = match self.tables.find_mapping(outside, flow.vrf, flow.proto, Direction::In) {
            Some(mapping) => Some(mapping),
            None => self.one_to_one_in(instance, what, flow, outside, now).map_err(|reason| {
                // RFC 6888 REQ-12: events name the subscriber, never the far end.
                let inside = match what {
                    Outside::OneToOne { inside_minus_outside, .. } => {
                        outside.ip.wrapping_add(inside_minus_outside)
                    }
                    _ => 0,
                };
                self.note_refusal(instance.id.index(), v4(inside), reason);
                Verdict::Drop(reason)
            })?,
        };
        let admitted = mapping.is_some_and(|id| self.is_admitted(instance, id, flow));
        if flow.proto == Proto::Tcp && flow.bits & (flag::SYN | flag::ACK | flag::RST) != flag::SYN {
            // Only a SYN opens from outside, and never without a mapping that admits it.
            return Err(Verdict::Drop(Reason::NatTcpNoSession));
        }
        let Some(mapping) = mapping.filter(|_| admitted) else {
            // RFC 6146 §3.4: for these there never is a mapping behind the addresses of a NAT64.
            let is_foreign = flow.proto == Proto::Other && instance.nat64.is_some();
            let reason = match mapping {
                Some(_) => Reason::NatFiltered,
                None if is_foreign => Reason::Nat64ProtocolUnsupported,
                None => Reason::NatNoMapping,
            };
            return Err(self.refuse_in(instance, flow, frame, reason, now));
        };
        let subscriber = self.tables.mappings.get(mapping).map_or(NONE, |m| m.subscriber);
        if self.has_other_session(mapping, flow) {
            return Err(Verdict::Drop(Reason::NatFiltered));
        }
        // The far end may be an outside endpoint of this NAT too: its answers come back through it.
        let hairpin = self.directory.outside(instance.outside_vrf, flow.src).is_some();
        let opened = self.open_in(instance, subscriber, mapping, flow, hairpin, now);
        if opened.is_ok() {
            self.take_expected(mapping, flow, now.s());
        }
        opened.map_err(|reason| {
            let inside = self.tables.mappings.get(mapping).map_or(v4(0), |m| self.tables.inside_of(m).into());
            self.note_refusal(instance.id.index(), inside, reason);
            self.drop_mapping_if_unused(mapping, now.s());
            Verdict::Drop(reason)
        })
    }

    /// Do the two ends already talk through another outside endpoint (another mapping of the inside endpoint, under
    /// dependent mapping, or a second forward rule)? Answers would leave by that one.
    fn has_other_session(&self, mapping: u32, flow: &Flow) -> bool {
        let Some(mapping) = self.tables.mappings.get(mapping) else { return false };
        let remote = flow.remote(Direction::In);
        let host = self.tables.host(mapping.inside_ip).filter(|_| mapping.is_six());
        let out = Flow {
            src: if mapping.is_six() { 0 } else { mapping.inside_ip },
            src6: host.map_or(0, |host| host.address),
            via: host.map_or(0, |host| host.via),
            sport: mapping.inside_port,
            dst: remote.ip,
            dport: remote.port,
            vrf: VrfId(mapping.inside_vrf),
            proto: flow.proto,
            ..Flow::default()
        };
        let hash = self.tables.session_hash(&out, Direction::Out);
        self.tables.find_session(hash, &out, Direction::Out).is_some()
    }

    pub(crate) fn open_in(
        &mut self,
        instance: &Instance,
        subscriber: u32,
        mapping: u32,
        flow: &Flow,
        hairpin: bool,
        now: Now,
    ) -> Result<u32, Reason> {
        // A forward rule's mapping has no subscriber line until somebody uses it.
        let subscriber = if subscriber == NONE {
            let host = self.tables.mappings.get(mapping).map(|m| self.tables.inside_of(m));
            self.subscriber_for(instance, host.ok_or(Reason::NatNoMapping)?)?
        } else {
            subscriber
        };
        let opened = self.open(instance, subscriber, mapping, flow, Direction::In, hairpin, now);
        if opened.is_err() {
            self.release_subscriber_if_unused(subscriber, now.s());
        }
        opened
    }

    /// The mapping of a one-to-one rule, made when the first packet from outside needs it.
    fn one_to_one_in(
        &mut self,
        instance: &Instance,
        what: Outside,
        flow: &Flow,
        outside: Endpoint,
        now: Now,
    ) -> Result<Option<u32>, Reason> {
        let Outside::OneToOne { inside_minus_outside, .. } = what else { return Ok(None) };
        if flow.proto == Proto::Tcp && flow.bits & (flag::SYN | flag::ACK | flag::RST) != flag::SYN {
            return Ok(None);
        }
        self.tables.has_room(true)?;
        let inside = Endpoint { ip: outside.ip.wrapping_add(inside_minus_outside), port: outside.port };
        let subscriber = self.subscriber_for(instance, Inside::V4(inside.ip))?;
        let made = self.add_one_to_one(instance, subscriber, inside, outside, flow.proto);
        if made.is_err() {
            self.release_subscriber_if_unused(subscriber, now.s());
        }
        made.map(Some)
    }

    /// RFC 4787 REQ-8, REQ-8a and RFC 5382 REQ-3, REQ-3a, REQ-3b: may this sender use the mapping? Static
    /// mappings admit everybody: that is what they are for.
    fn is_admitted(&self, instance: &Instance, mapping: u32, flow: &Flow) -> bool {
        let Some(line) = self.tables.mappings.get(mapping) else { return false };
        if line.is_static() {
            return true;
        }
        if self.is_expected(mapping, flow) {
            return true;
        }
        if line.pins > 0
            && let Some(admitted) = self.tables.is_admitted_by_pins(mapping, flow.src, flow.sport)
        {
            return admitted;
        }
        // A call is between two hosts.
        if flow.proto == Proto::Other {
            return false;
        }
        match instance.filtering.get(flow.proto.index()).copied().unwrap_or_default() {
            Filtering::EndpointIndependent => true,
            Filtering::AddressDependent => self.tables.is_permitted(mapping, flow.src),
            // A session for this very endpoint would have been found.
            Filtering::AddressAndPortDependent => false,
        }
    }

    /// RFC 5382 REQ-4: an unsolicited SYN waits before anybody is told; the rest is dropped in silence.
    fn refuse_in(
        &mut self,
        instance: &Instance,
        flow: &Flow,
        frame: &[u8],
        reason: Reason,
        now: Now,
    ) -> Verdict {
        if flow.proto != Proto::Tcp || flow.kind != Kind::Whole {
            return Verdict::Drop(reason);
        }
        let packet = frame.get(usize::from(flow.l3)..).unwrap_or(&[]);
        let due_s = now.s().saturating_add(instance.timeouts.tcp_unsolicited_syn_s);
        match self.syns.hold(flow, packet, due_s) {
            Hold::Held => Verdict::Held,
            Hold::AlreadyHeld => Verdict::Drop(reason),
            Hold::Full => Verdict::Drop(Reason::NatSynTableFull),
        }
    }
}

/// May a packet from inside open a session at all?
#[inline(always)]
pub(crate) fn may_open(instance: &Instance, flow: &Flow) -> Result<(), Reason> {
    match flow.proto {
        Proto::Tcp if flow.kind == Kind::LaterFragment => Err(Reason::NatTcpNoSession),
        Proto::Tcp => {
            let opens = flow.bits & (flag::SYN | flag::ACK | flag::RST) == flag::SYN;
            let loose = instance.tcp_loose && flow.bits & flag::RST == 0;
            if opens || loose { Ok(()) } else { Err(Reason::NatTcpNoSession) }
        }
        // RFC 5508 REQ-1: queries open sessions, their answers do not.
        Proto::Icmp if class_of(flow.bits) != Class::Request => Err(Reason::NatNoMapping),
        Proto::Udp | Proto::Icmp | Proto::Other => Ok(()),
    }
}

/// The line of the session that a packet opens. What its translation does to checksums, and an IPv6 host's address, are left
/// to fill in.
#[inline(always)]
pub(crate) fn session_of(
    instance: &Instance,
    (subscriber, mapping_id): (u32, u32),
    mapping: &Mapping,
    flow: &Flow,
    direction: Direction,
    now: Now,
) -> Session {
    let remote = flow.remote(direction);
    let refresh_in = instance.inbound_refresh.get(flow.proto.index()).copied().unwrap_or(true);
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    // A call or tunnel: its packets bear what the end they go to has chosen, a tunnel's no port of the mapping at all.
    let is_numbered = flow.proto == Proto::Other && !mapping.is_static();
    let (inside_port, outside_port) = match direction {
        Direction::Out if is_numbered => (flow.sport, flow.sport),
        Direction::In if is_numbered && flow.ip_proto == ESP => (flow.dport, flow.dport),
        _ => (mapping.inside_port, mapping.outside_port),
    };
    Session {
        inside_port,
        remote_ip: remote.ip,
        remote_port: remote.port,
        outside_port,
        proto: flow.proto as u8,
        flags: flag(direction == Direction::In, INBOUND)
            | flag(refresh_in, REFRESH_IN)
            | session_flags(instance),
        seen_s: now.s(),
        mapping: mapping_id,
        subscriber,
        tcp: if flow.proto == Proto::Tcp { first_state(flow.bits, direction) as u8 } else { 0 },
        ip_proto: flow.ip_proto,
        ..Session::on(mapping)
    }
}

/// RFC 6888 REQ-5, REQ-5a: limits on a subscriber's sessions and on those of one mapping.
#[inline(always)]
pub(crate) fn may_have_session(
    instance: &Instance,
    of_subscriber: u32,
    of_mapping: u32,
) -> Result<(), Reason> {
    let limits = &instance.limits;
    if limits.sessions_max != 0 && of_subscriber >= limits.sessions_max {
        return Err(Reason::NatSessionLimit);
    }
    if limits.sessions_per_mapping_max != 0 && of_mapping >= limits.sessions_per_mapping_max {
        return Err(Reason::NatMappingSessionLimit);
    }
    Ok(())
}

/// RFC 6888 REQ-4, REQ-4a, REQ-4c, REQ-5b: limits on ports and on the rate of new mappings. Takes a
/// creation token when all is well.
#[inline(always)]
pub(crate) fn within_limits(
    instance: &Instance,
    subscriber: &mut crate::line::Subscriber,
    proto: Proto,
    now: Now,
) -> Result<(), Reason> {
    let limits = &instance.limits;
    let by_proto = limits.ports_by_proto_max.get(proto.index()).copied().unwrap_or(0);
    let used = subscriber.mappings.get(proto.index()).copied().unwrap_or(0);
    if (limits.ports_max != 0 && subscriber.mapping_count() >= limits.ports_max)
        || (by_proto != 0 && used >= by_proto)
    {
        return Err(Reason::NatPortLimit);
    }
    if limits.creations_per_s == 0 {
        return Ok(());
    }
    let elapsed_ms = now.ms().saturating_sub(subscriber.tokens_at_ms);
    let fresh = elapsed_ms.saturating_mul(u64::from(limits.creations_per_s));
    let full = u64::from(limits.creations_burst.max(1)) * 1_000;
    let tokens = (u64::from(subscriber.tokens_milli) + fresh).min(full);
    subscriber.tokens_at_ms = now.ms();
    if tokens < 1_000 {
        subscriber.tokens_milli = tokens as u32;
        return Err(Reason::NatRateLimit);
    }
    subscriber.tokens_milli = (tokens - 1_000) as u32;
    Ok(())
}
