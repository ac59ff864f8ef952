//! The test network: an inside port, an outside port, and a port with tags.

use std::sync::Arc;

use carrack_base::{IfIndex, InstanceId, PoolId, PortId, Prefix4, Reason, VrfId};
use carrack_nat::policy::{Assignment, Instance, NatPolicy, Pool, StaticRule, Timeouts};
use carrack_pipeline::snapshot::{Interface, NextHop, Policers, Port, Route, Side, Snapshot, Vlan};
use carrack_wire::{MacAddr, PacketBuilder};

use super::check::{e, ip};
use super::mac_of;

/// Ports.
pub const IN: u16 = 0;
pub const OUT: u16 = 1;
pub const TAGGED: u16 = 2;

/// Interfaces: 10.0.0.1/16 on `IN`.
pub const IF_IN: u16 = 0;
/// 198.51.100.1/24 on `OUT`.
pub const IF_OUT: u16 = 1;
/// 10.1.0.1/16 on `TAGGED`, VLAN 100.
pub const IF_VLAN: u16 = 2;
/// 10.2.0.1/16 on `TAGGED`, VLANs 200 and 7.
pub const IF_QINQ: u16 = 3;
/// 172.16.0.1/24 on `TAGGED`, untagged, neither inside nor outside.
pub const IF_PLAIN: u16 = 4;

/// Where the default route leads.
pub const GATEWAY: &str = "198.51.100.254";
/// The pool.
pub const POOL: &str = "192.0.2.1";

/// Stations whose addresses the workers know.
pub const STATIONS: &[(u16, &str)] = &[
    (IF_IN, "10.0.0.5"),
    (IF_IN, "10.0.0.6"),
    (IF_IN, "10.0.0.7"),
    (IF_OUT, GATEWAY),
    (IF_OUT, "198.51.100.7"),
    (IF_VLAN, "10.1.0.5"),
    (IF_QINQ, "10.2.0.5"),
    (IF_PLAIN, "172.16.0.5"),
];

pub fn port_mac(port: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, 0x10 + port as u8])
}

pub fn prefix(text: &str) -> Prefix4 {
    text.parse().unwrap()
}

pub fn interface(id: u16, port: u16, vlan: Vlan, vrf: u16, side: Side, address: &str) -> Interface {
    let (own, len) = address.split_once('/').unwrap();
    let own = ip(own);
    Interface {
        id: IfIndex(id),
        name: format!("if{id}"),
        port: PortId(port),
        vlan,
        mac: port_mac(port),
        vrf: VrfId(vrf),
        side,
        up: true,
        mtu: 1_500,
        addresses: vec![(own, Prefix4::of(own, len.parse().unwrap()))],
        ipv6: None,
        urpf: false,
        icmp_errors: Default::default(),
    }
}

pub fn snapshot() -> Snapshot {
    let double = Vlan::Double { outer: 200, inner: 7, dot1ad: true };
    snapshot_of(
        vec![
            interface(IF_IN, IN, Vlan::None, 0, Side::Inside, "10.0.0.1/16"),
            interface(IF_OUT, OUT, Vlan::None, 0, Side::Outside, "198.51.100.1/24"),
            interface(IF_VLAN, TAGGED, Vlan::Single(100), 0, Side::Inside, "10.1.0.1/16"),
            interface(IF_QINQ, TAGGED, double, 0, Side::Inside, "10.2.0.1/16"),
            interface(IF_PLAIN, TAGGED, Vlan::None, 0, Side::Plain, "172.16.0.1/24"),
        ],
        vec![instance(0, 0, 0, POOL)],
        vec![route(0, "0.0.0.0/0", NextHop::Gateway(IfIndex(IF_OUT), ip(GATEWAY)))],
    )
}

/// A snapshot of these; connected and local routes are added as the config compiler adds them.
pub fn snapshot_of(interfaces: Vec<Interface>, instances: Vec<Instance>, mut routes: Vec<Route>) -> Snapshot {
    let ports = (0..3).map(|id| Port { id: PortId(id), name: format!("port{id}"), mac: port_mac(id) });
    for i in &interfaces {
        for (own, subnet) in &i.addresses {
            routes.push(Route { vrf: i.vrf, prefix: *subnet, next_hop: NextHop::Connected(i.id) });
            routes.push(Route { vrf: i.vrf, prefix: Prefix4::of(*own, 32), next_hop: NextHop::Local(i.id) });
        }
    }
    Snapshot {
        generation: 1,
        ports: ports.collect(),
        interfaces: interfaces.into_iter().map(Some).collect(),
        vrfs: (0..4).map(|n| format!("vrf{n}")).collect(),
        routes,
        routes6: vec![],
        policers: Policers::default(),
        fragment_timeout_ms: 2_000,
        siit: vec![],
        nat: Arc::new(NatPolicy { instances, ..Default::default() }),
    }
}

pub fn route(vrf: u16, to: &str, next_hop: NextHop) -> Route {
    Route { vrf: VrfId(vrf), prefix: prefix(to), next_hop }
}

pub fn instance(id: u16, inside_vrf: u16, outside_vrf: u16, pool: &str) -> Instance {
    Instance {
        id: InstanceId(id),
        name: format!("nat{id}"),
        inside_vrf: VrfId(inside_vrf),
        outside_vrf: VrfId(outside_vrf),
        subscribers: vec![prefix("10.0.0.0/8")],
        exempt: vec![prefix("203.0.113.0/24")],
        pools: vec![Pool {
            id: PoolId(id),
            name: format!("pool{id}"),
            ranges: vec![pool.parse().unwrap()],
            port_first: 1_024,
            port_last: 65_535,
        }],
        assignment: Assignment::Blocks { size: 64, per_subscriber_max: 4, idle_release_s: 0 },
        pooling: Default::default(),
        mapping: Default::default(),
        filtering: Default::default(),
        parity: false,
        contiguity: false,
        hairpinning: true,
        inbound_refresh: [true; 3],
        tcp_loose: false,
        port_hold_s: 120,
        port_hold_ports_max: 0,
        limits: Default::default(),
        timeouts: Timeouts::default(),
        exhausted_icmp: Default::default(),
        pool_threshold_percent: 0,
        pool_ports_threshold: 0,
        logged: Default::default(),
        statics: vec![],
        nat64: None,
        gateways: vec![],
        unreadable: Default::default(),
    }
}

/// Changes the first NAT instance of a snapshot.
pub fn nat(snapshot: &mut Snapshot, change: impl FnOnce(&mut Instance)) {
    let mut policy = (*snapshot.nat).clone();
    change(&mut policy.instances[0]);
    snapshot.nat = Arc::new(policy);
}

/// Changes an interface of a snapshot.
pub fn on(snapshot: &mut Snapshot, id: u16, change: impl FnOnce(&mut Interface)) {
    change(snapshot.interfaces[usize::from(id)].as_mut().unwrap());
}

pub fn one_to_one(inside: &str, outside: &str) -> StaticRule {
    StaticRule::OneToOne { inside: inside.parse().unwrap(), outside: outside.parse().unwrap() }
}

pub const PAYLOAD: &[u8] = b"An odd number of octets.."; // 25

/// A packet between two stations, as it comes in by a port from the station that sent it (or its gateway).
pub fn packet(port: u16, src: &str, dst: &str) -> PacketBuilder<'static> {
    let from = if port == OUT { mac_of(ip(GATEWAY)) } else { mac_of(ip(src)) };
    PacketBuilder::new().ethernet(from, port_mac(port)).ipv4(ip(src), ip(dst)).payload(PAYLOAD)
}

pub fn udp(port: u16, src: &str, dst: &str) -> Vec<u8> {
    let ((a, sport), (b, dport)) = (e(src), e(dst));
    packet(port, a, b).udp(sport, dport).build()
}

pub fn tcp(port: u16, src: &str, dst: &str, flags: u8) -> Vec<u8> {
    let ((a, sport), (b, dport)) = (e(src), e(dst));
    packet(port, a, b).tcp(sport, dport, flags).build()
}

/// An echo request; the source's port is the identifier.
pub fn ping(port: u16, src: &str, dst: &str) -> Vec<u8> {
    let (a, id) = e(src);
    packet(port, a, dst).echo_request(id, 1).build()
}

/// An ICMP error about a packet, quoted from its IPv4 header on.
pub fn icmp_error(port: u16, src: &str, dst: &str, kind: u8, code: u8, about: &[u8]) -> Vec<u8> {
    packet(port, src, dst).icmp(kind, code, [0; 4]).payload(about).build()
}

/// A UDP datagram in fragments of `piece` octets of IP payload (a multiple of 8).
pub fn fragments(port: u16, src: &str, dst: &str, id: u16, len: usize, piece: usize) -> Vec<Vec<u8>> {
    let ((a, sport), (b, dport)) = (e(src), e(dst));
    let payload: Vec<u8> = (0..len).map(|n| (n * 7 + n / 251) as u8).collect();
    let whole = PacketBuilder::new().ipv4(ip(a), ip(b)).udp(sport, dport).payload(&payload).build();
    cut(port, a, b, 17, id, &whole[20..], piece)
}

/// An IP payload in fragments.
pub fn cut(port: u16, a: &str, b: &str, protocol: u8, id: u16, l4: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let count = l4.len().div_ceil(piece);
    let cut = |(at, bytes): (usize, &[u8])| {
        let more = at + 1 < count;
        packet(port, a, b)
            .protocol(protocol)
            .identification(id)
            .fragment((at * piece) as u16, more)
            .payload(bytes)
            .build()
    };
    l4.chunks(piece).enumerate().map(cut).collect()
}

/// The reasons of a `match`: named for tables in tests.
pub type Named = (&'static str, Vec<u8>, Reason);
