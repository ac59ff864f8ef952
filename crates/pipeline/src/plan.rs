//! A snapshot made ready to forward by: lookups in place of lists. Built by the control plane, shared by all workers.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use carrack_base::{Family, IfIndex, PortId, Prefix6, Reason, VrfId};
use carrack_nat::{Direction, Directory};
use carrack_tables::{Lpm4, Lpm4Builder, Lpm6, Lpm6Builder};
use carrack_wire::ethernet::{MacAddr, ethertype};
use carrack_wire::vlan::is_tag;
use carrack_xlat::NatPrefix;

use crate::burst::Meta;
use crate::parse::common_link;
use crate::snapshot::{IcmpErrors, Interface, Ipv6Interface, NextHop, Side, Snapshot, Vlan};

/// Longest link header: Ethernet with two tags.
pub const L2_BYTES_MAX: usize = 22;
/// Ethernet without tags.
const UNTAGGED: u8 = 14;
/// VLAN ids of one tag.
const VLANS: usize = 4_096;
/// "No interface" in the dense tables.
const NO_INTERFACE: u16 = u16::MAX;

/// What a route says, next to the packet path; `A` is an address of its IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop<A = u32> {
    /// To a neighbour on an interface: the gateway, or the destination itself when it is 0.
    Neighbour {
        /// Interface.
        interface: IfIndex,
        /// Gateway, host byte order; 0 when directly connected.
        gateway: A,
    },
    /// To the router itself.
    Local,
    /// Nowhere.
    Drop(Reason),
    /// To the stateless translator of this number.
    Translate(u16),
}

/// The link header an interface puts before a packet, destination MAC left open.
#[derive(Debug, Clone, Copy)]
pub struct LinkHeader {
    /// The bytes; the first six are the destination.
    pub bytes: [u8; L2_BYTES_MAX],
    /// Valid bytes: 14, 18 or 22.
    pub len: u8,
}

/// What the packet path needs of an interface, in one place.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// Port it is on.
    pub port: PortId,
    /// Routing instance.
    pub vrf: VrfId,
    /// Inside, outside or neither.
    pub side: Side,
    /// Up?
    pub up: bool,
    /// Check sources against routes.
    pub urpf: bool,
    /// Errors that senders behind it get.
    pub icmp_errors: IcmpErrors,
    /// Largest IP packet.
    pub mtu: u16,
    /// Own MAC address.
    pub mac: MacAddr,
    /// The address that the router speaks with on it, host byte order: its first own, or one of another interface of the
    /// routing instance; 0 when there is none.
    pub address: u32,
    /// Own IPv6 link-local address, host byte order; 0 when it has no IPv6.
    pub link_local: u128,
    /// The same of IPv6; never a link-local one.
    pub address6: u128,
    /// Link header.
    pub header: LinkHeader,
}

impl Line {
    /// Does the interface take IPv6?
    #[inline]
    #[must_use]
    pub const fn has_ipv6(&self) -> bool {
        self.link_local != 0
    }

    /// Are the same stations there?
    pub(crate) fn is_same_link(&self, other: &Self) -> bool {
        self.port == other.port && self.header.bytes == other.header.bytes && self.vrf == other.vrf
    }
}

/// What the fast parser needs of an interface.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Common {
    /// The first 24 bytes of a common frame as little-endian words, to compare under
    /// [`crate::parse::link_masks`]: own address as destination, tags, type and version.
    pub(crate) link: [u64; 3],
    /// The same of a common IPv6 frame; `None` where none is translated.
    pub(crate) link6: Option<[u64; 3]>,
    /// Some instance translates between IPv6 and IPv4.
    pub(crate) crosses: bool,
    /// There are stateless translators; and no NAT has a say in what comes to them from IPv4.
    pub(crate) stateless: bool,
    pub(crate) stateless_from_four: bool,
    /// Bytes of its tags: 0, 4 or 8.
    pub(crate) tag_bytes: u8,
    /// The last four bytes of the own address: who has these as source is looked at more closely.
    pub(crate) mac_tail: u32,
    pub(crate) interface: IfIndex,
    pub(crate) vrf: VrfId,
    pub(crate) direction: Option<Direction>,
    pub(crate) raw_from_outside: bool,
}

/// Interfaces of one port by tags.
#[derive(Debug)]
struct PortLines {
    mac: MacAddr,
    untagged: u16,
    single: Option<Box<[u16; VLANS]>>,
    double: HashMap<(u16, u16), u16>,
}

/// Routes of one routing instance.
#[derive(Debug)]
struct Fib {
    lpm: Lpm4,
    /// `None` without IPv6 routes.
    lpm6: Option<Lpm6>,
}

/// Hops of one IP version, each once.
#[derive(Debug)]
struct Hops<A> {
    all: Vec<Hop<A>>,
    /// Kind, interface or reason, and gateway.
    numbers: HashMap<(u8, u16, A), u32>,
}

impl<A: Copy + Default + Eq + Hash> Hops<A> {
    fn new() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }

    fn number(&mut self, hop: Hop<A>) -> u32 {
        let key = match hop {
            Hop::Neighbour { interface, gateway } => (0, interface.0, gateway),
            Hop::Local => (1, 0, A::default()),
            Hop::Drop(reason) => (2, reason as u16, A::default()),
            Hop::Translate(number) => (3, number, A::default()),
        };
        *self.numbers.entry(key).or_insert_with(|| {
            self.all.push(hop);
            self.all.len() as u32 - 1
        })
    }

    fn of_route(&mut self, next_hop: NextHop<A>) -> u32 {
        self.number(match next_hop {
            NextHop::Connected(interface) => Hop::Neighbour { interface, gateway: A::default() },
            NextHop::Gateway(interface, gateway) => Hop::Neighbour { interface, gateway },
            NextHop::Local(_) => Hop::Local,
            NextHop::Translate(number) => Hop::Translate(number),
            NextHop::Blackhole => Hop::Drop(Reason::RouteBlackhole),
            NextHop::Prohibit => Hop::Drop(Reason::RouteProhibit),
        })
    }
}

/// The addresses that the router speaks with, host byte order; 0 without one.
#[derive(Debug, Clone, Copy, Default)]
struct Voice {
    four: u32,
    six: u128,
}

/// A snapshot with its lookups.
#[derive(Debug)]
pub struct Plan {
    /// What it was made of.
    pub snapshot: Arc<Snapshot>,
    ports: Vec<PortLines>,
    lines: Vec<Option<Line>>,
    /// By interface, like `lines`.
    commons: Vec<Option<Common>>,
    voices: Vec<Voice>,
    fibs: Vec<Fib>,
    hops: Vec<Hop>,
    hops6: Vec<Hop<u128>>,
    /// Prefixes of stateless translators, in which no route leads elsewhere, and the translators' numbers.
    stateless: Vec<(VrfId, NatPrefix, u16)>,
    /// Packets of ESP are told apart by their numbers.
    pub(crate) learns_esp: bool,
}

impl Plan {
    /// Makes a snapshot ready. Takes time in proportion to the routes: not for the packet path.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>) -> Self {
        let ports = snapshot
            .ports
            .iter()
            .map(|port| PortLines {
                mac: port.mac,
                untagged: NO_INTERFACE,
                single: None,
                double: HashMap::new(),
            })
            .collect();
        let voices = voices_of(&snapshot);
        let lines = snapshot.interfaces.iter().map(|i| i.as_ref().map(|i| line_of(&voices, i))).collect();
        let commons = snapshot.interfaces.iter().map(|i| common_of(&snapshot, i.as_ref()?)).collect();
        let (fibs, hops, hops6) = (Vec::new(), Vec::new(), Vec::new());
        let stateless = whole_prefixes(&snapshot);
        let learns_esp = snapshot.nat.learns_esp();
        let mut this = Self {
            ports,
            lines,
            commons,
            voices,
            fibs,
            hops,
            hops6,
            stateless,
            learns_esp,
            snapshot: snapshot.clone(),
        };
        for interface in snapshot.interfaces.iter().flatten() {
            this.enter(interface);
        }
        this.build_routes(&snapshot);
        this
    }

    fn enter(&mut self, interface: &Interface) {
        let Some(port) = self.ports.get_mut(interface.port.index()) else { return };
        match interface.vlan {
            Vlan::None => {
                port.untagged = interface.id.0;
            }
            Vlan::Single(vlan) => {
                let table = port.single.get_or_insert_with(|| Box::new([NO_INTERFACE; VLANS]));
                if let Some(place) = table.get_mut(usize::from(vlan)) {
                    *place = interface.id.0;
                }
            }
            Vlan::Double { outer, inner, .. } => {
                port.double.insert((outer, inner), interface.id.0);
            }
        }
    }

    fn build_routes(&mut self, snapshot: &Snapshot) {
        let mut builders: Vec<Lpm4Builder> = snapshot.vrfs.iter().map(|_| Lpm4Builder::new()).collect();
        let mut hops = Hops::new();
        for interface in snapshot.interfaces.iter().flatten() {
            for (_, prefix) in &interface.addresses {
                // A subnet's own and its broadcast address are nobody to forward to (RFC 1812 §4.2.2.11).
                if let (Some(broadcast), Some(fib)) =
                    (prefix.broadcast(), builders.get_mut(interface.vrf.index()))
                {
                    let hop = hops.number(Hop::Drop(Reason::Ipv4DestinationInvalid));
                    for address in [prefix.address(), broadcast] {
                        if fib.get(address, 32).is_none() {
                            let _ = fib.insert(address, 32, hop);
                        }
                    }
                }
            }
        }
        for route in &snapshot.routes {
            let hop = hops.of_route(route.next_hop);
            if let Some(fib) = builders.get_mut(route.vrf.index()) {
                // More next hops than the table can number are refused by config.
                let _ = fib.insert(route.prefix.address(), route.prefix.len(), hop);
            }
        }
        self.hops = hops.all;
        let lpm6 = self.build_routes6(snapshot);
        self.fibs = builders.iter().zip(lpm6).map(|(b, lpm6)| Fib { lpm: b.snapshot(), lpm6 }).collect();
    }

    /// The IPv6 routes of each routing instance.
    fn build_routes6(&mut self, snapshot: &Snapshot) -> Vec<Option<Lpm6>> {
        let mut builders: Vec<Option<Lpm6Builder>> = snapshot.vrfs.iter().map(|_| None).collect();
        let mut hops = Hops::new();
        for route in &snapshot.routes6 {
            let hop = hops.of_route(route.next_hop);
            if let Some(fib) = builders.get_mut(route.vrf.index()) {
                let fib = fib.get_or_insert_default();
                let _ = fib.insert(route.prefix.address(), route.prefix.len(), hop);
            }
        }
        self.hops6 = hops.all;
        builders.into_iter().map(|b| b.map(|mut b| b.snapshot())).collect()
    }

    /// The interface of a frame by its port and tags.
    #[inline]
    #[must_use]
    pub fn interface_of(&self, port: PortId, tags: &[u16]) -> Option<IfIndex> {
        let port = self.ports.get(port.index())?;
        let found = match tags {
            [] => port.untagged,
            [vlan] => *port.single.as_ref()?.get(usize::from(*vlan & 0x0fff))?,
            [outer, inner, ..] => *port.double.get(&(*outer & 0x0fff, *inner & 0x0fff))?,
        };
        (found != NO_INTERFACE).then_some(IfIndex(found))
    }

    /// The port's untagged interface for the fast parser; `None` when each of its packets needs a closer look.
    #[inline]
    pub(crate) fn common(&self, port: PortId) -> Option<Common> {
        *self.commons.get(usize::from(self.ports.get(port.index())?.untagged))?
    }

    /// What the fast parser needs for a frame like this one: of the interface its tags lead to.
    pub(crate) fn common_like(&self, port: PortId, frame: &[u8]) -> Option<Common> {
        let word = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let vid = |at: usize| word(at) & 0x0fff;
        let interface = match (is_tag(word(12)), is_tag(word(16))) {
            (false, _) => return self.common(port),
            (true, false) => self.interface_of(port, &[vid(14)])?,
            (true, true) => self.interface_of(port, &[vid(14), vid(18)])?,
        };
        *self.commons.get(interface.index())?
    }

    /// A port's MAC address.
    #[inline]
    #[must_use]
    pub fn port_mac(&self, port: PortId) -> Option<MacAddr> {
        self.ports.get(port.index()).map(|p| p.mac)
    }

    /// Number of ports.
    #[must_use]
    pub fn port_count(&self) -> usize {
        self.ports.len()
    }

    /// What the packet path knows of an interface.
    #[inline]
    #[must_use]
    pub fn line(&self, interface: IfIndex) -> Option<&Line> {
        self.lines.get(interface.index())?.as_ref()
    }

    /// An address of the router in a routing instance, host byte order; 0 when it has none there.
    #[must_use]
    pub fn address_in(&self, vrf: VrfId) -> u32 {
        self.voices.get(vrf.index()).map_or(0, |voice| voice.four)
    }

    /// The same of IPv6.
    #[must_use]
    pub fn address6_in(&self, vrf: VrfId) -> u128 {
        self.voices.get(vrf.index()).map_or(0, |voice| voice.six)
    }

    /// The route to an address.
    #[inline]
    #[must_use]
    pub fn route(&self, vrf: VrfId, destination: u32) -> Option<Hop> {
        self.hop(self.hop_number(vrf, destination)?)
    }

    /// The stateless translator that a route leads to.
    #[inline(always)]
    pub(crate) fn translator_behind(&self, vrf: VrfId, destination: u32) -> Option<u16> {
        match self.hops.get(self.hop_number(vrf, destination)? as usize)? {
            Hop::Translate(number) => Some(*number),
            _ => None,
        }
    }

    /// Does a route lead this IPv4 packet, as it came in, to a stateless translator before any NAT has a say? The express
    /// lane knows by the same.
    pub(crate) fn is_stateless(&self, directory: &Directory, meta: &Meta) -> bool {
        let (vrf, dst) = (meta.vrf, meta.flow.dst);
        let is_of_nat = || match meta.direction {
            Some(Direction::Out) => has_nat(&self.snapshot, vrf),
            Some(Direction::In) => directory.outside(vrf, dst).is_some(),
            None => false,
        };
        meta.family == Family::V4 && self.translator_behind(vrf, dst).is_some() && !is_of_nat()
    }

    /// The stateless translator of an IPv6 destination, where a look at its prefix is enough to know.
    #[inline(always)]
    pub(crate) fn translator_of(&self, vrf: VrfId, destination: u128) -> Option<u16> {
        let found = self.stateless.iter().find(|(of, prefix, _)| *of == vrf && prefix.contains(destination));
        found.map(|(_, _, number)| *number)
    }

    /// The route to an IPv6 address.
    #[inline]
    #[must_use]
    pub fn route6(&self, vrf: VrfId, destination: u128) -> Option<Hop<u128>> {
        self.hop6(self.hop_number6(vrf, destination)?)
    }

    /// The number of the hop that the route to an IPv6 address leads to.
    #[inline]
    pub(crate) fn hop_number6(&self, vrf: VrfId, destination: u128) -> Option<u32> {
        self.fibs.get(vrf.index())?.lpm6.as_ref()?.lookup(destination)
    }

    /// The same, and how many first bits other addresses must share with this one to surely be led the same way.
    #[inline]
    pub(crate) fn hop_number6_around(&self, vrf: VrfId, destination: u128) -> Option<(u32, u8)> {
        let (hop, bits) = self.fibs.get(vrf.index())?.lpm6.as_ref()?.lookup_around(destination);
        Some((hop?, bits))
    }

    /// The IPv6 hop of that number.
    #[inline]
    pub(crate) fn hop6(&self, number: u32) -> Option<Hop<u128>> {
        self.hops6.get(number as usize).copied()
    }

    /// IPv6 on an interface, as configured. Not for every packet.
    #[must_use]
    pub fn ipv6_of(&self, interface: IfIndex) -> Option<&Ipv6Interface> {
        self.snapshot.interfaces.get(interface.index())?.as_ref()?.ipv6.as_ref()
    }

    /// The number of the hop that the route to an address leads to; equal numbers are equal hops.
    #[inline(always)]
    pub(crate) fn hop_number(&self, vrf: VrfId, destination: u32) -> Option<u32> {
        self.fibs.get(vrf.index())?.lpm.lookup(destination)
    }

    /// The hop of that number.
    #[inline]
    pub(crate) fn hop(&self, number: u32) -> Option<Hop> {
        self.hops.get(number as usize).copied()
    }

    /// Fetches the first table entry of a route lookup.
    #[inline]
    pub fn prefetch_route(&self, vrf: VrfId, destination: u32) {
        if let Some(fib) = self.fibs.get(vrf.index()) {
            fib.lpm.prefetch(destination);
        }
    }

    /// The interface that a route leads out of.
    pub(crate) fn line_behind<A>(&self, hop: Option<Hop<A>>) -> Option<&Line> {
        match hop? {
            Hop::Neighbour { interface, .. } => self.line(interface),
            Hop::Local | Hop::Drop(_) | Hop::Translate(_) => None,
        }
    }

    /// Does this hop leave by an outside interface?
    #[must_use]
    pub fn leaves_by(&self, hop: Option<Hop>) -> bool {
        let Some(Hop::Neighbour { interface, .. }) = hop else { return false };
        self.line(interface).is_some_and(|line| line.side == Side::Outside)
    }

    /// Has the routing instance an outside interface? A walk over all interfaces: not for every packet.
    #[must_use]
    pub fn has_outside(&self, vrf: VrfId) -> bool {
        self.lines.iter().flatten().any(|line| line.vrf == vrf && line.side == Side::Outside)
    }

    /// Bytes of the route tables.
    #[must_use]
    pub fn route_bytes(&self) -> usize {
        self.fibs.iter().map(|fib| fib.lpm.bytes() + fib.lpm6.as_ref().map_or(0, Lpm6::bytes)).sum()
    }
}

/// The way through the NAT from an interface of this side.
pub(crate) const fn direction_of(side: Side) -> Option<Direction> {
    match side {
        Side::Inside => Some(Direction::Out),
        Side::Outside => Some(Direction::In),
        Side::Plain => None,
    }
}

/// Prefixes of stateless translators in which no more specific route leads elsewhere.
fn whole_prefixes(snapshot: &Snapshot) -> Vec<(VrfId, NatPrefix, u16)> {
    let is_whole = |vrf: VrfId, prefix: Prefix6, number: u16| {
        let inner = snapshot.routes6.iter().filter(|route| {
            route.vrf == vrf && route.prefix.len() >= prefix.len() && prefix.contains(route.prefix.address())
        });
        // At least its own.
        inner.clone().next().is_some()
            && inner.into_iter().all(|route| route.next_hop == NextHop::Translate(number))
    };
    let all = (0u16..).zip(&snapshot.siit).flat_map(|(number, siit)| {
        siit.translator.prefixes.iter().map(move |prefix| (siit.vrf, *prefix, number))
    });
    all.filter(|(vrf, prefix, number)| is_whole(*vrf, prefix.prefix(), *number)).collect()
}

/// Is there a NAT for what is inside in this routing instance?
fn has_nat(snapshot: &Snapshot, vrf: VrfId) -> bool {
    snapshot.nat.instances.iter().any(|instance| instance.inside_vrf == vrf)
}

fn common_of(snapshot: &Snapshot, interface: &Interface) -> Option<Common> {
    let (mac, header) = (interface.mac.0, header_of(interface));
    let link = |family| common_link(interface.mac, &header, family);
    let crosses = snapshot.nat.instances.iter().any(|instance| instance.nat64.is_some());
    let stateless = snapshot.siit.iter().any(|siit| siit.vrf == interface.vrf);
    (interface.up && !interface.urpf).then_some(Common {
        link: link(Family::V4),
        link6: ((crosses || stateless) && interface.ipv6.is_some()).then(|| link(Family::V6)),
        crosses,
        stateless,
        stateless_from_four: stateless
            && (interface.side != Side::Inside || !has_nat(snapshot, interface.vrf)),
        tag_bytes: header.len - UNTAGGED,
        mac_tail: u32::from_le_bytes([mac[2], mac[3], mac[4], mac[5]]),
        interface: interface.id,
        vrf: interface.vrf,
        direction: direction_of(interface.side),
        raw_from_outside: interface.side == Side::Outside,
    })
}

/// What an interface says, and what those without addresses say in its place.
fn voice_of(interface: &Interface, others: Voice) -> Voice {
    let four = interface.addresses.first().map(|(own, _)| *own);
    let six = interface.ipv6.as_ref().and_then(|v6| v6.addresses.first()).map(|(own, _)| *own);
    Voice { four: four.unwrap_or(others.four), six: six.unwrap_or(others.six) }
}

/// What the router says in each routing instance: the first interface that has an address.
fn voices_of(snapshot: &Snapshot) -> Vec<Voice> {
    let mut all = vec![Voice::default(); snapshot.vrfs.len()];
    for interface in snapshot.interfaces.iter().flatten().rev() {
        if let Some(voice) = all.get_mut(interface.vrf.index()) {
            *voice = voice_of(interface, *voice);
        }
    }
    all
}

fn line_of(voices: &[Voice], interface: &Interface) -> Line {
    let voice = voice_of(interface, voices.get(interface.vrf.index()).copied().unwrap_or_default());
    Line {
        port: interface.port,
        vrf: interface.vrf,
        side: interface.side,
        up: interface.up,
        urpf: interface.urpf,
        icmp_errors: interface.icmp_errors,
        mtu: interface.mtu,
        mac: interface.mac,
        address: voice.four,
        link_local: interface.ipv6.as_ref().map_or(0, |v6| v6.link_local),
        address6: voice.six,
        header: header_of(interface),
    }
}

fn header_of(interface: &Interface) -> LinkHeader {
    let mut bytes = [0; L2_BYTES_MAX];
    bytes[6..12].copy_from_slice(&interface.mac.0);
    let mut len = 12;
    let mut put = |word: u16| {
        // Invariant: at most five words are put after the two addresses: 22 bytes.
        bytes[len..len + 2].copy_from_slice(&word.to_be_bytes());
        len += 2;
    };
    match interface.vlan {
        Vlan::None => {}
        Vlan::Single(vlan) => [ethertype::VLAN, vlan].into_iter().for_each(&mut put),
        Vlan::Double { outer, inner, dot1ad } => {
            let first = if dot1ad { ethertype::QINQ } else { ethertype::VLAN };
            [first, outer, ethertype::VLAN, inner].into_iter().for_each(&mut put);
        }
    }
    put(ethertype::IPV4);
    LinkHeader { bytes, len: len as u8 }
}
