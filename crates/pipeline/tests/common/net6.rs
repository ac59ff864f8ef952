//! The test network with IPv6 beside IPv4.

use std::net::{IpAddr, Ipv6Addr};

use carrack_base::{IfIndex, Prefix6, VrfId};
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_pipeline::mailbox::Command;
use carrack_pipeline::snapshot::{Ipv6Interface, NextHop, Route, Snapshot};
use carrack_wire::{MacAddr, PacketBuilder};

use super::net::{IF_IN, IF_OUT, IF_VLAN, OUT, nat, on, port_mac};
use super::{World, world_with};

/// The own link-local address on every interface.
pub const LINK_LOCAL: &str = "fe80::1";
/// Where the default route leads.
pub const GATEWAY6: &str = "2001:db8:2::fe";
/// Stations whose addresses the workers know.
pub const STATIONS6: &[(u16, &str)] = &[
    (IF_IN, "2001:db8:1::5"),
    (IF_IN, "2001:db8:1::6"),
    (IF_IN, "fe80::5"),
    (IF_OUT, GATEWAY6),
    (IF_VLAN, "2001:db8:3::5"),
];

/// An IPv6 address in host byte order.
pub fn ip6(text: &str) -> u128 {
    text.parse::<Ipv6Addr>().unwrap().into()
}

/// An IPv6 address as it is written.
pub fn ip6_text(text: &str) -> String {
    text.parse::<Ipv6Addr>().unwrap().to_string()
}

pub fn v6(text: &str) -> IpAddr {
    IpAddr::V6(text.parse().unwrap())
}

/// The MAC address of an IPv6 station.
pub fn mac6(text: &str) -> MacAddr {
    let [.., a, b, c, d] = ip6(text).to_be_bytes();
    MacAddr([2, 0x66, a, b, c, d])
}

/// IPv6 on three interfaces, and a default route.
pub fn add_ipv6(snapshot: &mut Snapshot) {
    for (id, text) in [(IF_IN, "2001:db8:1::1"), (IF_OUT, "2001:db8:2::1"), (IF_VLAN, "2001:db8:3::1")] {
        let own = ip6(text);
        let subnet = Prefix6::of(own, 64);
        let addresses = vec![(own, subnet)];
        on(snapshot, id, |i| i.ipv6 = Some(Ipv6Interface { link_local: ip6(LINK_LOCAL), addresses }));
        let id = IfIndex(id);
        snapshot.routes6.push(Route { vrf: VrfId(0), prefix: subnet, next_hop: NextHop::Connected(id) });
        for local in [own, subnet.router_anycast().unwrap()] {
            let host = Prefix6::of(local, 128);
            snapshot.routes6.push(Route { vrf: VrfId(0), prefix: host, next_hop: NextHop::Local(id) });
        }
    }
    let gateway = NextHop::Gateway(IfIndex(IF_OUT), ip6(GATEWAY6));
    snapshot.routes6.push(Route { vrf: VrfId(0), prefix: Prefix6::DEFAULT, next_hop: gateway });
}

/// NAT64 for hosts in 2001:db8:1::/48, a subscriber each /64, by 2001:db8:64::/96.
pub fn serve_six(snapshot: &mut Snapshot) {
    nat(snapshot, |i| {
        i.nat64 = Some(Nat64 {
            prefixes: vec![Nat64Prefix {
                via: 1,
                prefix: NatPrefix::new("2001:db8:64::/96".parse().unwrap()).unwrap(),
            }],
            subscribers: vec!["2001:db8:1::/48".parse().unwrap()],
            subscriber_len: 64,
            rules: Default::default(),
        });
    });
}

/// The inside interface has IPv6 alone.
pub fn only_six_inside(snapshot: &mut Snapshot) {
    on(snapshot, IF_IN, |i| i.addresses.clear());
    snapshot.routes.retain(
        |route| !matches!(route.next_hop, NextHop::Connected(id) | NextHop::Local(id) if id.0 == IF_IN),
    );
}

pub fn world6() -> World {
    world6_with(|_| {})
}

pub fn world64() -> World {
    world6_with(serve_six)
}

pub fn world6_with(change: impl FnOnce(&mut Snapshot)) -> World {
    let mut world = world_with(|s| {
        add_ipv6(s);
        change(s);
    });
    for (interface, text) in STATIONS6 {
        world.know6(*interface, text);
    }
    world
}

impl World {
    /// Tells all workers where an IPv6 station is.
    pub fn know6(&mut self, interface: u16, text: &str) {
        let command =
            || Command::SetNeighbour { interface: IfIndex(interface), ip: v6(text), mac: mac6(text) };
        self.command(command);
        self.turn();
    }
}

/// A packet between two IPv6 stations, as it comes in by a port from the station that sent it (or its gateway).
pub fn packet6(port: u16, src: &str, dst: &str) -> PacketBuilder<'static> {
    let from = if port == OUT { mac6(GATEWAY6) } else { mac6(src) };
    PacketBuilder::new().ethernet(from, port_mac(port)).ipv6(ip6(src), ip6(dst)).payload(super::net::PAYLOAD)
}
