//! A snapshot made ready to forward by: lookups in place of lists. Built by the control plane, shared by all workers.

use std::collections::HashMap;
use std::sync::Arc;

use carrack_base::{IfIndex, PortId, Reason, VrfId};
use carrack_nat::Direction;
use carrack_tables::{Lpm4, Lpm4Builder};
use carrack_wire::ethernet::{MacAddr, ethertype};
use carrack_wire::vlan::is_tag;

use crate::snapshot::{Interface, NextHop, Side, Snapshot, Vlan};

/// Longest link header: Ethernet with two tags.
pub const L2_BYTES_MAX: usize = 22;
/// Ethernet without tags.
const UNTAGGED: u8 = 14;
/// VLAN ids of one tag.
const VLANS: usize = 4_096;
/// "No interface" in the dense tables.
const NO_INTERFACE: u16 = u16::MAX;

/// What a route says, next to the packet path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hop {
    /// To a neighbour on an interface: the gateway, or the destination itself when it is 0.
    Neighbour {
        /// Interface.
        interface: IfIndex,
        /// Gateway, host byte order; 0 when directly connected.
        gateway: u32,
    },
    /// To the router itself.
    Local,
    /// Nowhere.
    Drop(Reason),
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
    /// Largest IPv4 packet.
    pub mtu: u16,
    /// Own MAC address.
    pub mac: MacAddr,
    /// First own address, host byte order; 0 when it has none.
    pub address: u32,
    /// Link header.
    pub header: LinkHeader,
}

impl Line {
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
    fibs: Vec<Fib>,
    hops: Vec<Hop>,
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
        let lines = snapshot.interfaces.iter().map(|i| i.as_ref().map(line_of)).collect();
        let commons = snapshot.interfaces.iter().map(|i| i.as_ref().and_then(common_of)).collect();
        let mut this =
            Self { ports, lines, commons, fibs: Vec::new(), hops: Vec::new(), snapshot: snapshot.clone() };
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
        let mut numbers: HashMap<(u8, u16, u32), u32> = HashMap::new();
        for interface in snapshot.interfaces.iter().flatten() {
            for (_, prefix) in &interface.addresses {
                // A subnet's own and its broadcast address are nobody to forward to (RFC 1812 §4.2.2.11).
                if let (Some(broadcast), Some(fib)) =
                    (prefix.broadcast(), builders.get_mut(interface.vrf.index()))
                {
                    let hop = self.number(&mut numbers, Hop::Drop(Reason::Ipv4DestinationInvalid));
                    for address in [prefix.address(), broadcast] {
                        if fib.get(address, 32).is_none() {
                            let _ = fib.insert(address, 32, hop);
                        }
                    }
                }
            }
        }
        for route in &snapshot.routes {
            let hop = match route.next_hop {
                NextHop::Connected(interface) => Hop::Neighbour { interface, gateway: 0 },
                NextHop::Gateway(interface, gateway) => Hop::Neighbour { interface, gateway },
                NextHop::Local(_) => Hop::Local,
                NextHop::Blackhole => Hop::Drop(Reason::RouteBlackhole),
                NextHop::Prohibit => Hop::Drop(Reason::RouteProhibit),
            };
            let hop = self.number(&mut numbers, hop);
            if let Some(fib) = builders.get_mut(route.vrf.index()) {
                // More next hops than the table can number are refused by config.
                let _ = fib.insert(route.prefix.address(), route.prefix.len(), hop);
            }
        }
        self.fibs = builders.iter().map(|b| Fib { lpm: b.snapshot() }).collect();
    }

    fn number(&mut self, numbers: &mut HashMap<(u8, u16, u32), u32>, hop: Hop) -> u32 {
        let key = match hop {
            Hop::Neighbour { interface, gateway } => (0, interface.0, gateway),
            Hop::Local => (1, 0, 0),
            Hop::Drop(reason) => (2, reason as u16, 0),
        };
        *numbers.entry(key).or_insert_with(|| {
            self.hops.push(hop);
            self.hops.len() as u32 - 1
        })
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

    /// The route to an address.
    #[inline]
    #[must_use]
    pub fn route(&self, vrf: VrfId, destination: u32) -> Option<Hop> {
        self.hop(self.hop_number(vrf, destination)?)
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
        self.fibs.iter().map(|fib| fib.lpm.bytes()).sum()
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

fn common_of(interface: &Interface) -> Option<Common> {
    let (mac, header) = (interface.mac.0, header_of(interface));
    (interface.up && !interface.urpf).then_some(Common {
        link: crate::parse::common_link(interface.mac, &header),
        tag_bytes: header.len - UNTAGGED,
        mac_tail: u32::from_le_bytes([mac[2], mac[3], mac[4], mac[5]]),
        interface: interface.id,
        vrf: interface.vrf,
        direction: direction_of(interface.side),
        raw_from_outside: interface.side == Side::Outside,
    })
}

fn line_of(interface: &Interface) -> Line {
    Line {
        port: interface.port,
        vrf: interface.vrf,
        side: interface.side,
        up: interface.up,
        urpf: interface.urpf,
        mtu: interface.mtu,
        mac: interface.mac,
        address: interface.addresses.first().map_or(0, |(address, _)| *address),
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
