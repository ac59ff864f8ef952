//! Mappings that hosts ask for (RFC 6887, RFC 6886): made, prolonged and ended by command, whatever traffic there is.

use core::net::{IpAddr, Ipv6Addr};

use carrack_base::{InstanceId, Now, Proto, Reason, VrfId, WorkerId};
use carrack_wire::tcp::flag;

use crate::directory::is_exempt;
use crate::engine::Nat;
use crate::flow::{Direction, Flow, Inside};
use crate::line::{self, INDEPENDENT, Mapping, SIX};
use crate::pins::{Peer, Pin, PortFilters};
use crate::policy::Instance;
use crate::pool::Wish;
use crate::row::{Endpoint, HostEndpoint, NatEvent};

/// Pins looked at in one call.
const PINS_A_TURN: usize = 64;
/// RFC 6887 §11.3: no host gets these outside UDP ports, which are port control's own.
const RESERVED_UDP: [u16; 2] = [5_350, 5_351];
/// Ports that are not to be given, met in one search.
const RESERVED_TRIES: usize = 3;
/// Lifetime of what config made (RFC 6887 §11.3).
const FOREVER_S: u32 = u32::MAX;

/// What a host asks about one of its endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAsk {
    /// Routing instance of the host.
    pub vrf: VrfId,
    /// TCP or UDP.
    pub proto: Proto,
    /// Host and port.
    pub inside: HostEndpoint,
    /// What.
    pub what: PortWish,
}

/// What it is that a host asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortWish {
    /// That peers reach the endpoint (RFC 6887 §11), for so long.
    Map {
        /// The outside endpoint it would like; address or port 0 is any.
        suggested: Endpoint,
        /// That one or none (RFC 6887 §13.2).
        strict: bool,
        /// Seconds.
        lifetime_s: u32,
        /// Who may come in. They replace those there were.
        filters: PortFilters,
        /// So many ports in a row, from the endpoint's on, or as many of them as can be had (RFC 7753). 1 for most.
        ports: u16,
        /// An even port to an even port (RFC 7753 §4).
        parity: bool,
    },
    /// That the endpoint's mapping and session to one peer stay (RFC 6887 §12), for so long.
    Peer {
        /// The outside endpoint it would like, if there is no mapping; address or port 0 is any.
        suggested: Endpoint,
        /// The peer as the host sees it.
        remote: HostEndpoint,
        /// Seconds.
        lifetime_s: u32,
    },
    /// No more of `Map`.
    EndMap {
        /// So many ports in a row, from the endpoint's on.
        ports: u16,
    },
    /// No more of `Peer`.
    EndPeer {
        /// The peer as the host sees it.
        remote: HostEndpoint,
    },
    /// Only what its outside address is, or would be.
    Address,
}

/// A wish granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortGrant {
    /// The instance that serves the host.
    pub instance: InstanceId,
    /// What the Internet sees of the endpoint; zeros after an end.
    pub outside: Endpoint,
    /// Ports in a row, inside and outside.
    pub ports: u16,
    /// Seconds that it stays; [`u32::MAX`] for what config made.
    pub lifetime_s: u32,
}

/// A wish not granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortRefusal {
    /// No instance serves the host.
    NotServed,
    /// What config made is not the host's to end, or the peer is not reached through the NAT.
    NotHis,
    /// The outside endpoint that it insists on cannot be had.
    NotThatOne,
    /// The peer's address is none that a session could be with.
    NoSuchPeer,
    /// A limit or shortage.
    Short(Reason),
}

impl From<Reason> for PortRefusal {
    fn from(reason: Reason) -> Self {
        Self::Short(reason)
    }
}

/// Whom an ask is about, looked up.
#[derive(Clone, Copy)]
struct Host {
    at: usize,
    /// Number of its NAT64 prefix; 0 for IPv4.
    via: u16,
    inside: Inside,
}

/// An ask with all that it is about.
#[derive(Clone, Copy)]
struct Case<'a> {
    instance: &'a Instance,
    ask: &'a PortAsk,
    host: &'a Host,
}

/// Where a mapping is wanted.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Address or port 0 is any.
    suggested: Endpoint,
    /// There or nowhere.
    strict: bool,
}

impl Nat {
    /// Carries out what a host asks for. `None` when another worker has the host; exactly one answers.
    pub fn control(&mut self, ask: &PortAsk, now: Now) -> Option<Result<PortGrant, PortRefusal>> {
        let inside = Inside::from(ask.inside.ip);
        let host = self.host_of(ask.vrf, inside);
        let subscriber = match &host {
            Some(host) => self.directory.subscriber_of(InstanceId(host.at as u16), inside),
            None => inside,
        };
        if self.owner_of_asker(ask.vrf, subscriber) != self.worker {
            return None;
        }
        self.tables.settle();
        let answer = match host {
            Some(host) => self.control_host(ask, &host, now),
            None => Err(PortRefusal::NotServed),
        };
        self.tables.settle();
        Some(answer)
    }

    fn owner_of_asker(&self, vrf: VrfId, subscriber: Inside) -> WorkerId {
        self.directory.owner_of(vrf, subscriber)
    }

    fn host_of(&self, vrf: VrfId, inside: Inside) -> Option<Host> {
        match inside {
            Inside::V4(ip) => {
                let id = self.directory.instance_of_inside(vrf, ip)?;
                Some(Host { at: id.index(), via: 0, inside })
            }
            Inside::V6(ip) => self.policy.instances.iter().find_map(|instance| {
                let nat64 = instance.nat64.as_ref().filter(|nat64| nat64.serves(ip))?;
                let via = nat64.prefixes.first()?.via;
                (instance.inside_vrf == vrf).then_some(Host { at: instance.id.index(), via, inside })
            }),
        }
    }

    fn control_host(&mut self, ask: &PortAsk, host: &Host, now: Now) -> Result<PortGrant, PortRefusal> {
        let policy = self.policy.clone();
        let instance = policy.instances.get(host.at).ok_or(PortRefusal::NotServed)?;
        let case = Case { instance, ask, host };
        match ask.what {
            PortWish::Map { ports, .. } => {
                let first = self.map(case, now)?;
                let mut count = 1;
                // The rest of a set lies where its first port leads; what is not to be had ends it.
                while count < ports && self.map_next(case, first.outside, count, now).is_some() {
                    count += 1;
                }
                Ok(PortGrant { ports: count, ..first })
            }
            PortWish::Peer { suggested, remote, lifetime_s } => {
                self.hold_peer(case, suggested, remote, lifetime_s, now)
            }
            PortWish::EndMap { ports } => {
                if self.fixed(case).is_some() {
                    return Err(PortRefusal::NotHis);
                }
                for step in 0..ports {
                    let Some(inside) = later(ask.inside, step) else { break };
                    let ask = &PortAsk { inside, ..*ask };
                    let mapping = self.mapping_of_host(ask, host);
                    // RFC 6887 §15.1: what traffic or a PEER made is not to be ended so.
                    if mapping.is_some_and(|id| self.tables.find_pin(id, None).is_none()) && step == 0 {
                        return Err(PortRefusal::NotHis);
                    }
                    self.end_pin_of(ask, host, None, now);
                }
                Ok(ended(instance))
            }
            PortWish::EndPeer { remote } => {
                let (ip, _) = self.peer_of(ask.vrf, host, remote.ip).ok_or(PortRefusal::NoSuchPeer)?;
                self.end_pin_of(ask, host, Some((ip, remote.port)), now);
                Ok(ended(instance))
            }
            PortWish::Address => self.outside_address(case, now),
        }
    }

    /// One port of a MAP.
    fn map(&mut self, case: Case<'_>, now: Now) -> Result<PortGrant, PortRefusal> {
        let PortWish::Map { suggested, strict, lifetime_s, filters, .. } = case.ask.what else {
            return Err(PortRefusal::NotServed);
        };
        if let Some(fixed) = self.fixed(case) {
            let other = strict && !is_as_wished(fixed.outside, suggested);
            return if other { Err(PortRefusal::NotThatOne) } else { Ok(fixed) };
        }
        let pin = Pin { ends_s: now.s().saturating_add(lifetime_s), filters, ..Pin::default() };
        let mapping = self.pin_mapping(case, Place { suggested, strict }, pin, now)?;
        Ok(self.grant(case.instance, mapping, lifetime_s))
    }

    /// A later port of a set whose first one leads to `first`.
    fn map_next(&mut self, case: Case<'_>, first: Endpoint, step: u16, now: Now) -> Option<()> {
        let ask = case.ask;
        let PortWish::Map { lifetime_s, filters, parity, .. } = ask.what else { return None };
        let suggested = Endpoint { port: first.port.checked_add(step)?, ..first };
        let what = PortWish::Map { suggested, strict: true, lifetime_s, filters, ports: 1, parity };
        let next = PortAsk { inside: later(ask.inside, step)?, what, ..*ask };
        self.map(Case { ask: &next, ..case }, now).ok().map(|_| ())
    }

    /// What config made for the endpoint: no host can change it.
    fn fixed(&self, case: Case<'_>) -> Option<PortGrant> {
        let Case { instance, ask, host } = case;
        let grant = |outside| PortGrant { instance: instance.id, outside, ports: 1, lifetime_s: FOREVER_S };
        if let Inside::V4(ip) = host.inside
            && let Some(outside) = self.directory.one_to_one(instance.id, ip)
        {
            return Some(grant(Endpoint { ip: outside, port: ask.inside.port }));
        }
        let mapping = self.tables.mappings.get(self.mapping_of_host(ask, host)?)?;
        mapping.is_static().then(|| grant(mapping.outside()))
    }

    fn slot_of(&self, host: &Host) -> u16 {
        self.slots.of(InstanceId(host.at as u16))
    }

    /// The inside endpoint as mappings know it.
    fn endpoint_of(&self, ask: &PortAsk, host: &Host) -> Option<Endpoint> {
        let ip = match host.inside {
            Inside::V4(ip) => ip,
            Inside::V6(ip) => self.tables.find_host(ip, self.slot_of(host), ask.vrf)?,
        };
        Some(Endpoint { ip, port: ask.inside.port })
    }

    fn mapping_of_host(&self, ask: &PortAsk, host: &Host) -> Option<u32> {
        let inside = self.endpoint_of(ask, host)?;
        self.tables.find_mapping_of(inside, ask.vrf, ask.proto, Direction::Out, host.via != 0)
    }

    fn grant(&self, instance: &Instance, mapping: u32, lifetime_s: u32) -> PortGrant {
        let outside = self.tables.mappings.get(mapping).map(Mapping::outside).unwrap_or_default();
        PortGrant { instance: instance.id, outside, ports: 1, lifetime_s }
    }

    /// Sets a pin on the endpoint's mapping, which is made if there is none.
    fn pin_mapping(&mut self, case: Case<'_>, place: Place, pin: Pin, now: Now) -> Result<u32, PortRefusal> {
        let found = self.mapping_of_host(case.ask, case.host);
        let mapping = match found {
            // RFC 6887 §11.3: an existing mapping is what it is, whatever is suggested.
            Some(id) => {
                let outside = self.tables.mappings.get(id).map(Mapping::outside).unwrap_or_default();
                if place.strict && !is_as_wished(outside, place.suggested) {
                    return Err(PortRefusal::NotThatOne);
                }
                id
            }
            None => self.make(case, place, now)?,
        };
        let pin = Pin { mapping, ..pin };
        if let Some(old) = self.tables.find_pin(mapping, pin.peer()).and_then(|id| self.tables.pin_mut(id)) {
            *old = pin;
            return Ok(mapping);
        }
        if !self.tables.add_pin(pin) {
            self.drop_mapping_if_unused(mapping, now.s());
            return Err(Reason::NatMappingTableFull.into());
        }
        if self.tables.mappings.get(mapping).is_some_and(|line| line.pins == 1) {
            self.tell(mapping, |instance, proto, inside, outside| NatEvent::MappingBound {
                instance,
                proto,
                inside,
                outside,
            });
        }
        Ok(mapping)
    }

    /// Makes a mapping for the endpoint, at the suggested place if that can be had. RFC 6888 REQ-9: it counts against
    /// the subscriber's limits like any other.
    fn make(&mut self, case: Case<'_>, place: Place, now: Now) -> Result<u32, PortRefusal> {
        let Case { instance, host, .. } = case;
        // What is made now might not stay: the host asks again.
        if self.is_changing() {
            return Err(Reason::NatPoolChanging.into());
        }
        let subscriber = self.subscriber_for(instance, host.inside)?;
        let made = self.make_for(case, subscriber, place, now);
        if let Err(refusal) = made {
            if let PortRefusal::Short(reason) = refusal {
                self.note_refusal(instance.id.index(), host.inside.into(), reason);
            }
            self.release_subscriber_if_unused(subscriber, now.s());
        }
        made
    }

    fn make_for(
        &mut self,
        case: Case<'_>,
        subscriber: u32,
        place: Place,
        now: Now,
    ) -> Result<u32, PortRefusal> {
        let Case { ask, host, .. } = case;
        let inside = match (self.endpoint_of(ask, host), host.inside) {
            (Some(inside), _) => inside,
            (None, Inside::V6(ip)) => {
                let (via, slot) = (host.via, self.slot_of(host));
                let line = line::Host { address: ip, vrf: ask.vrf.0, via, mappings: 0, slot };
                Endpoint { ip: self.tables.add_host(line)?, port: ask.inside.port }
            }
            (None, Inside::V4(_)) => return Err(PortRefusal::NotServed),
        };
        let made = self.make_at(case, subscriber, inside, place, now);
        if made.is_err() && host.via != 0 {
            self.tables.remove_host_if_unused(inside.ip);
        }
        made
    }

    fn make_at(
        &mut self,
        case: Case<'_>,
        subscriber: u32,
        inside: Endpoint,
        place: Place,
        now: Now,
    ) -> Result<u32, PortRefusal> {
        let Case { instance, ask, host } = case;
        let six = host.via != 0;
        let flags = INDEPENDENT | if six { SIX } else { 0 };
        let wish = Wish {
            proto: ask.proto,
            inside_port: inside.port,
            parity: instance.parity && ask.proto == Proto::Udp
                || matches!(ask.what, PortWish::Map { parity: true, .. }),
            contiguity: false,
            strict: false,
            exactly: None,
            only: false,
            home: self.home_of(instance, subscriber, host.inside),
        };
        if let Some(exactly) = self.place_of(instance, subscriber, ask.proto, place.suggested) {
            let wish = Wish { exactly: Some(exactly), only: true, ..wish };
            match self.mapping_with(instance, subscriber, inside, wish, flags, now) {
                Ok(mapping) => return Ok(mapping),
                // What has nothing to do with the place stays so at another one.
                Err(reason @ (Reason::NatPortLimit | Reason::NatRateLimit | Reason::NatPoolChanging)) => {
                    return Err(reason.into());
                }
                Err(_) => {}
            }
        }
        if place.strict {
            return Err(PortRefusal::NotThatOne);
        }
        let mut refused = [None; RESERVED_TRIES];
        let mut made = Err(Reason::NatPortsExhausted);
        for place in &mut refused {
            made = self.mapping_with(instance, subscriber, inside, wish, flags, now);
            let Ok(id) = made else { break };
            let port = self.tables.mappings.get(id).map_or(0, |line| line.outside_port);
            if !is_reserved(ask.proto, port) {
                break;
            }
            // Kept until another is found, so that it is not found again.
            *place = Some(id);
            made = Err(Reason::NatPortsExhausted);
        }
        for id in refused.into_iter().flatten() {
            self.drop_mapping(id, now.s());
        }
        made.map_err(PortRefusal::Short)
    }

    /// The pool address and port that are suggested, when both can be told. A port without an address means the one
    /// that the subscriber has.
    fn place_of(
        &self,
        instance: &Instance,
        subscriber: u32,
        proto: Proto,
        suggested: Endpoint,
    ) -> Option<(u16, u16)> {
        if suggested.port == 0 || is_reserved(proto, suggested.port) {
            return None;
        }
        let ports = &self.states.get(instance.id.index())?.ports;
        let number = match suggested.ip {
            0 => self.tables.subscribers.get(subscriber)?.address,
            ip => ports.number_of(ip)?,
        };
        ports.ip_of(number).map(|_| (number, suggested.port))
    }

    /// PEER: the mapping and the session stay (RFC 6887 §12.3).
    fn hold_peer(
        &mut self,
        case: Case<'_>,
        suggested: Endpoint,
        remote: HostEndpoint,
        lifetime_s: u32,
        now: Now,
    ) -> Result<PortGrant, PortRefusal> {
        let Case { instance, ask, host } = case;
        let (ip, via) = self.peer_of(ask.vrf, host, remote.ip).ok_or(PortRefusal::NoSuchPeer)?;
        if remote.port == 0 {
            return Err(PortRefusal::NoSuchPeer);
        }
        if is_exempt(instance, ip) && host.via == 0 {
            return Err(PortRefusal::NotHis);
        }
        let host = &Host { via, ..*host };
        let case = Case { host, ..case };
        if let Some(fixed) = self.fixed(case) {
            return Ok(fixed);
        }
        let pin = Pin {
            ends_s: now.s().saturating_add(lifetime_s),
            remote_ip: ip,
            remote_port: remote.port,
            ..Pin::default()
        };
        let strict = suggested.port != 0 && self.mapping_of_host(ask, host).is_none();
        let mapping = self.pin_mapping(case, Place { suggested, strict }, pin, now)?;
        self.open_to_peer(case, mapping, Endpoint { ip, port: remote.port }, now).inspect_err(|_| {
            let pin = self.tables.find_pin(mapping, pin.peer());
            pin.into_iter().for_each(|id| self.end_pin(id, now.s()));
        })?;
        Ok(self.grant(instance, mapping, lifetime_s))
    }

    /// As if the host had sent a packet to its peer.
    fn open_to_peer(
        &mut self,
        case: Case<'_>,
        mapping: u32,
        remote: Endpoint,
        now: Now,
    ) -> Result<(), PortRefusal> {
        let Case { instance, ask, host } = case;
        let mut flow = Flow {
            sport: ask.inside.port,
            dst: remote.ip,
            dport: remote.port,
            vrf: ask.vrf,
            proto: ask.proto,
            ip_proto: if ask.proto == Proto::Tcp { 6 } else { 17 },
            bits: if ask.proto == Proto::Tcp { flag::SYN } else { 0 },
            via: host.via,
            ..Flow::default()
        };
        match host.inside {
            Inside::V4(ip) => flow.src = ip,
            Inside::V6(ip) => flow.src6 = ip,
        }
        let hash = self.tables.session_hash(&flow, Direction::Out);
        if self.tables.find_session(hash, &flow, Direction::Out).is_some() {
            return Ok(());
        }
        let hairpin = self.directory.outside(instance.outside_vrf, remote.ip).is_some();
        let subscriber = self.tables.mappings.get(mapping).map_or(crate::line::NONE, |line| line.subscriber);
        self.open(instance, subscriber, mapping, &flow, Direction::Out, hairpin, now)?;
        Ok(())
    }

    /// The IPv4 address of a peer, and the number of the NAT64 prefix that its host sees it by.
    fn peer_of(&self, vrf: VrfId, host: &Host, peer: IpAddr) -> Option<(u32, u16)> {
        let is_host = |ip: u32| ip >> 24 != 0 && ip >> 24 != 127 && ip < 0xe000_0000;
        match (host.inside, peer) {
            (Inside::V4(_), IpAddr::V4(ip)) => Some((ip.into(), 0)).filter(|(ip, _)| is_host(*ip)),
            (Inside::V6(source), IpAddr::V6(ip)) => {
                let embedded = self.directory.embedded(vrf, source, Ipv6Addr::into(ip))?;
                Some((embedded.address, embedded.via)).filter(|(ip, _)| is_host(*ip))
            }
            _ => None,
        }
    }

    /// The host's outside address, or the one that it would get: a mapping is made for a moment.
    fn outside_address(&mut self, case: Case<'_>, now: Now) -> Result<PortGrant, PortRefusal> {
        let Case { instance, ask, host } = case;
        if let Inside::V4(ip) = host.inside
            && let Some(outside) = self.directory.one_to_one(instance.id, ip)
        {
            let outside = Endpoint { ip: outside, port: 0 };
            return Ok(PortGrant { instance: instance.id, outside, ports: 1, lifetime_s: FOREVER_S });
        }
        let subscriber = self.directory.subscriber_of(instance.id, host.inside);
        let line = self.tables.find_subscriber(subscriber, ask.vrf);
        let known = line.and_then(|id| self.tables.subscribers.get(id));
        let ports = self.states.get(instance.id.index()).map(|state| &state.ports);
        let known = known.zip(ports).and_then(|(line, ports)| ports.ip_of(line.address));
        if let Some(ip) = known {
            return Ok(PortGrant {
                instance: instance.id,
                outside: Endpoint { ip, port: 0 },
                ports: 1,
                lifetime_s: 0,
            });
        }
        let mapping = self.make(case, Place::default(), now)?;
        let mut grant = self.grant(instance, mapping, 0);
        grant.outside.port = 0;
        self.drop_mapping(mapping, now.s());
        Ok(grant)
    }

    fn end_pin_of(&mut self, ask: &PortAsk, host: &Host, peer: Peer, now: Now) {
        let mapping = self.mapping_of_host(ask, host);
        let pin = mapping.and_then(|mapping| self.tables.find_pin(mapping, peer));
        pin.into_iter().for_each(|id| self.end_pin(id, now.s()));
    }

    /// Ends one wish. The mapping stays while others or sessions need it, as if it had come about by itself (RFC 6887
    /// §11.3: outbound mappings outlive the explicit one; §15.1: traffic never shortens a wish).
    pub(crate) fn end_pin(&mut self, id: u32, now_s: u32) {
        let Some((pin, left)) = self.tables.remove_pin(id) else { return };
        if left > 0 {
            return;
        }
        self.tell(pin.mapping, |instance, proto, inside, outside| NatEvent::MappingReleased {
            instance,
            proto,
            inside,
            outside,
        });
        if self.tables.mappings.get(pin.mapping).is_some_and(|mapping| mapping.sessions == 0) {
            // RFC 6887 §15: nobody else gets the port for a while, whatever the protocol.
            self.drop_mapping_and(pin.mapping, now_s, true);
        }
    }

    fn tell(
        &mut self,
        mapping: u32,
        event: impl FnOnce(InstanceId, Proto, HostEndpoint, Endpoint) -> NatEvent,
    ) {
        // Whose coming and going is told anyway is not told twice.
        let untold = self.tables.mappings.get(mapping).filter(|line| line.flags & crate::line::TOLD == 0);
        let Some(line) = untold else { return };
        let inside = HostEndpoint { ip: self.tables.inside_of(line).into(), port: line.inside_port };
        let event = event(self.slots.id(line.slot), line.proto(), inside, line.outside());
        self.events.push(event);
    }

    /// Ends the wishes whose time has come, a bounded share of them a call.
    pub(crate) fn end_pins(&mut self, now_s: u32) {
        let Some(pins) = &mut self.tables.pins else { return };
        let mut ids = [0; PINS_A_TURN];
        let count = pins.sweep(now_s, &mut ids);
        for id in ids.iter().take(count) {
            if self.tables.pin(*id).is_some_and(|pin| pin.ends_s <= now_s) {
                self.end_pin(*id, now_s);
            }
        }
    }
}

const fn ended(instance: &Instance) -> PortGrant {
    PortGrant { instance: instance.id, outside: Endpoint { ip: 0, port: 0 }, ports: 1, lifetime_s: 0 }
}

/// The endpoint so many ports further on.
fn later(first: HostEndpoint, step: u16) -> Option<HostEndpoint> {
    Some(HostEndpoint { port: first.port.checked_add(step)?, ..first })
}

fn is_reserved(proto: Proto, port: u16) -> bool {
    proto == Proto::Udp && RESERVED_UDP.contains(&port)
}

/// Is it the one suggested, as far as anything is?
const fn is_as_wished(outside: Endpoint, suggested: Endpoint) -> bool {
    (suggested.ip == 0 || suggested.ip == outside.ip)
        && (suggested.port == 0 || suggested.port == outside.port)
}
