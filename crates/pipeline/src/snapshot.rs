//! The immutable picture of configuration that workers forward by. Built by the control plane, swapped whole.

use std::sync::Arc;

use carrack_base::{IcmpReply, IfIndex, PortId, Prefix4, Prefix6, VrfId};
use carrack_nat::policy::{Capacity, NatPolicy};
use carrack_wire::ethernet::MacAddr;
use carrack_wire::ndp::solicited_node;
use carrack_xlat::Siit;

/// Which side of the NAT an interface is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// Neither: traffic is routed, not translated.
    #[default]
    Plain,
    /// Subscribers.
    Inside,
    /// The Internet.
    Outside,
}

/// VLAN tags of a sub-interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Vlan {
    /// Untagged.
    #[default]
    None,
    /// One 802.1Q tag: VLAN id 1 to 4094.
    Single(u16),
    /// QinQ: outer and inner VLAN id.
    Double {
        /// Outer (service) tag.
        outer: u16,
        /// Inner (customer) tag.
        inner: u16,
        /// Outer tag's EtherType is 0x88a8 (802.1ad) rather than 0x8100.
        dot1ad: bool,
    },
}

/// A physical port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Index.
    pub id: PortId,
    /// The name of the interface that declared it.
    pub name: String,
    /// Its MAC address, as the driver says.
    pub mac: MacAddr,
}

/// A logical interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Index in [`Snapshot::interfaces`]; stable over reloads by name.
    pub id: IfIndex,
    /// As in config.
    pub name: String,
    /// The port it lives on.
    pub port: PortId,
    /// Its tags.
    pub vlan: Vlan,
    /// Its MAC address (the port's).
    pub mac: MacAddr,
    /// Routing instance.
    pub vrf: VrfId,
    /// Inside or outside.
    pub side: Side,
    /// Administratively up?
    pub up: bool,
    /// Largest IP packet, bytes, 68 to 9,600; with IPv6 at least 1,280.
    pub mtu: u16,
    /// Own addresses with their subnets: (address, prefix).
    pub addresses: Vec<(u32, Prefix4)>,
    /// IPv6; `None` takes and sends none.
    pub ipv6: Option<Ipv6Interface>,
    /// Refuse packets whose source is not routed back to this interface (RFC 3704 strict mode).
    pub urpf: bool,
    /// Which senders behind it are told why their packets were dropped.
    pub icmp_errors: IcmpErrors,
}

/// Which ICMP errors the router makes of packets that came in by an interface (RFC 5508 REQ-9, RFC 5382 REQ-4a,
/// RFC 7915 §4.4, §5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IcmpErrors {
    /// All that the reasons of drops ask for.
    #[default]
    All,
    /// That a packet is too big for its way, and nothing else.
    PathMtu,
    /// None.
    None,
}

impl IcmpErrors {
    /// May this answer be sent?
    #[must_use]
    pub const fn allows(self, reply: IcmpReply) -> bool {
        match self {
            Self::All => true,
            Self::PathMtu => matches!(reply, IcmpReply::FragmentationNeeded),
            Self::None => false,
        }
    }
}

/// IPv6 on an interface. Addresses in host byte order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6Interface {
    /// Own link-local address.
    pub link_local: u128,
    /// Other own addresses with their subnets: (address, prefix).
    pub addresses: Vec<(u128, Prefix6)>,
}

impl Ipv6Interface {
    /// Own addresses, the link-local one first.
    pub fn own(&self) -> impl Iterator<Item = u128> {
        std::iter::once(self.link_local).chain(self.addresses.iter().map(|(own, _)| *own))
    }

    /// Addresses that the other routers of its links have as well ([`Prefix6::router_anycast`]), once for each own address.
    pub fn anycast(&self) -> impl Iterator<Item = u128> {
        self.addresses.iter().filter_map(|(_, subnet)| subnet.router_anycast())
    }

    /// Groups that those who look for one of these addresses speak to (RFC 4291 §2.8).
    pub fn solicited_nodes(&self) -> impl Iterator<Item = u128> {
        self.own().chain(self.anycast()).map(solicited_node)
    }
}

/// Where a route leads; `A` is an address of its IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextHop<A = u32> {
    /// Directly connected: the destination itself is the neighbour.
    Connected(IfIndex),
    /// Through a gateway (host byte order) on an interface.
    Gateway(IfIndex, A),
    /// An address of the router.
    Local(IfIndex),
    /// To the stateless translator of this number, and then to wherever the packet it becomes is routed.
    Translate(u16),
    /// Discard silently.
    Blackhole,
    /// Discard with ICMP 3/13.
    Prohibit,
}

/// One route, for building and for `show routes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route<P = Prefix4, A = u32> {
    /// Routing instance.
    pub vrf: VrfId,
    /// Destination.
    pub prefix: P,
    /// Where to.
    pub next_hop: NextHop<A>,
}

/// One IPv6 route.
pub type Route6 = Route<Prefix6, u128>;

/// Packets a second and burst of one policer; `rate_pps` 0 lets nothing through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policer {
    /// Packets a second.
    pub rate_pps: u32,
    /// Packets at once.
    pub burst: u32,
}

/// Policers toward the control plane, per worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policers {
    /// ARP.
    pub arp: Policer,
    /// Neighbour discovery.
    pub nd: Policer,
    /// ICMP echo to own addresses.
    pub icmp: Policer,
    /// Anything else to own addresses.
    pub other: Policer,
    /// ICMP errors that the router itself sends (RFC 1812 §4.3.2.8, RFC 4443 §2.4,
    /// RFC 7915 §4.4 (configuration), §5.4 (configuration)).
    pub icmp_errors: Policer,
    /// Requests of port control, all hosts together.
    pub port_control: Policer,
    /// Requests of port control, one host.
    pub port_control_host: Policer,
}

impl Default for Policers {
    fn default() -> Self {
        Self {
            arp: Policer { rate_pps: 1_000, burst: 200 },
            nd: Policer { rate_pps: 1_000, burst: 200 },
            icmp: Policer { rate_pps: 1_000, burst: 200 },
            other: Policer { rate_pps: 200, burst: 50 },
            icmp_errors: Policer { rate_pps: 1_000, burst: 200 },
            port_control: Policer { rate_pps: 1_000, burst: 200 },
            port_control_host: Policer { rate_pps: 20, burst: 40 },
        }
    }
}

/// One stateless translator (RFC 7915).
#[derive(Debug, Clone)]
pub struct SiitInstance {
    /// Name.
    pub name: String,
    /// Routing instance of both sides.
    pub vrf: VrfId,
    /// On which side the hosts of explicit mappings are.
    pub eam_hosts: EamHosts,
    /// What it does.
    pub translator: Siit,
}

/// On which side the hosts of explicit mappings are: what leads to the translator is what they are on the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EamHosts {
    /// IPv6 hosts, as the servers of RFC 7755.
    #[default]
    Ipv6,
    /// IPv4 hosts, as at the customer's side of 464XLAT (RFC 6877 §6.3): what the prefixes stand for is behind another
    /// translator.
    Ipv4,
}

impl SiitInstance {
    /// The routes that lead packets to the translator of this number: RFC 7915 §4.6 and §5.6 leave alone whatever a
    /// more specific route leads elsewhere.
    pub fn routes(&self, number: u16) -> (Vec<Route>, Vec<Route6>) {
        let vrf = self.vrf;
        let of_six = self.eam_hosts == EamHosts::Ipv6;
        let mapped = |wanted| self.translator.eam.entries().iter().filter(move |_| wanted);
        let v4 = mapped(of_six).map(|entry| entry.v4).chain(self.translator.hosts.blocks().iter().copied());
        let prefixes = self.translator.prefixes.iter().filter(|_| of_six).map(|prefix| prefix.prefix());
        let v6 = mapped(!of_six).map(|entry| entry.v6).chain(prefixes);
        (
            v4.map(|prefix| Route { vrf, prefix, next_hop: NextHop::Translate(number) }).collect(),
            v6.map(|prefix| Route { vrf, prefix, next_hop: NextHop::Translate(number) }).collect(),
        )
    }
}

/// Everything the workers forward by.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Grows by one each reload.
    pub generation: u64,
    /// Ports by [`PortId`].
    pub ports: Vec<Port>,
    /// Interfaces by [`IfIndex`]; holes (removed interfaces) are `None`.
    pub interfaces: Vec<Option<Interface>>,
    /// Names of routing instances by [`VrfId`].
    pub vrfs: Vec<String>,
    /// All IPv4 routes, static ones as configured; connected and local ones of interfaces and pools are derived.
    pub routes: Vec<Route>,
    /// All IPv6 routes, likewise.
    pub routes6: Vec<Route6>,
    /// Policers.
    pub policers: Policers,
    /// Fragment assembly: how long a fragment waits for its first fragment, milliseconds.
    pub fragment_timeout_ms: u32,
    /// NAT.
    pub nat: Arc<NatPolicy>,
    /// Stateless translators by the number that routes name.
    pub siit: Vec<SiitInstance>,
}

/// What is fixed when a worker starts and cannot change by reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSizes {
    /// NAT tables.
    pub nat: Capacity,
    /// Neighbours.
    pub neighbours: u32,
    /// Packets waiting for ARP or neighbour discovery.
    pub held_for_neighbour: u32,
}

impl Default for WorkerSizes {
    fn default() -> Self {
        Self { nat: Capacity::default(), neighbours: 16_384, held_for_neighbour: 256 }
    }
}
