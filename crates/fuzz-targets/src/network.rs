//! The network that the pipeline target runs in, and workers in it.

use std::sync::{Arc, LazyLock};

use carrack_alg::Protocol;
use carrack_base::{IfIndex, InstanceId, Now, PoolId, PortId, Prefix4, Prefix6, Proto, VrfId, WorkerId};
use carrack_nat::WorkerGroup;
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_nat::policy::{Assignment, Capacity, Instance, Limits, NatPolicy, Pool, StaticRule, Timeouts};
use carrack_pipeline::mailbox::{Command, Event, NatNews, PacketReceiver, PacketSender, packet_ring};
use carrack_pipeline::snapshot::{
    Interface, Ipv6Interface, NextHop, Policer, Policers, Port, Route, Side, Snapshot, Vlan, WorkerSizes,
};
use carrack_pipeline::{Handover, Plan, Worker, WorkerMail};
use carrack_tables::PagePreference;
use carrack_wire::MacAddr;

/// Ports of the network: inside, outside, inside with tags.
pub const PORTS: u16 = 3;
/// Number of the outside port and interface.
pub const OUT: u16 = 1;
/// Destinations that pass untranslated.
pub const EXEMPT: u32 = ip([203, 0, 113, 0]);
/// The pool address.
pub const POOL: u32 = ip([192, 0, 2, 1]);

pub const fn ip(octets: [u8; 4]) -> u32 {
    u32::from_be_bytes(octets)
}

pub fn port_mac(port: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, 0x10 + port as u8])
}

/// The own link-local address on every interface.
const LINK_LOCAL: u128 = 0xfe80 << 112 | 1;
/// The NAT64 prefix.
pub const PREFIX6: u128 = 0x2001_0db8_0064 << 80;

/// The own address on an interface, 2001:db8:1:interface::1.
pub const fn inside6(interface: u16) -> u128 {
    0x2001_0db8_0001 << 80 | (interface as u128) << 64 | 1
}

fn interface(id: u16, port: u16, vlan: Vlan, side: Side, own: u32, mtu: u16) -> Interface {
    Interface {
        id: IfIndex(id),
        name: format!("if{id}"),
        port: PortId(port),
        vlan,
        mac: port_mac(port),
        vrf: VrfId(0),
        side,
        up: true,
        mtu,
        addresses: vec![(own, Prefix4::of(own, 16))],
        ipv6: Some(Ipv6Interface {
            link_local: LINK_LOCAL,
            addresses: vec![(inside6(id), Prefix6::of(inside6(id), 64))],
        }),
        urpf: side == Side::Outside,
        icmp_errors: Default::default(),
    }
}

/// A small network: two inside subnets, one outside, an instance with every feature that fits.
fn snapshot(generation: u64) -> Snapshot {
    let interfaces = vec![
        interface(0, 0, Vlan::None, Side::Inside, ip([10, 0, 0, 1]), 1_500),
        interface(OUT, OUT, Vlan::None, Side::Outside, ip([198, 51, 0, 1]), 600),
        interface(2, 2, Vlan::Single(100), Side::Inside, ip([10, 1, 0, 1]), 1_500),
        interface(
            3,
            2,
            Vlan::Double { outer: 200, inner: 7, dot1ad: true },
            Side::Inside,
            ip([10, 2, 0, 1]),
            300,
        ),
    ];
    let vrf = VrfId(0);
    let gateway = NextHop::Gateway(IfIndex(OUT), ip([198, 51, 0, 254]));
    let mut routes = vec![
        Route { vrf, prefix: Prefix4::DEFAULT, next_hop: gateway },
        Route { vrf, prefix: Prefix4::of(ip([198, 18, 0, 0]), 16), next_hop: NextHop::Blackhole },
        Route { vrf, prefix: Prefix4::of(ip([198, 19, 0, 0]), 16), next_hop: NextHop::Prohibit },
    ];
    for i in &interfaces {
        for (own, subnet) in &i.addresses {
            routes.push(Route { vrf, prefix: *subnet, next_hop: NextHop::Connected(i.id) });
            routes.push(Route { vrf, prefix: Prefix4::of(*own, 32), next_hop: NextHop::Local(i.id) });
        }
    }
    let routes6 = interfaces
        .iter()
        .flat_map(|i| {
            let own = inside6(i.id.0);
            [
                Route { vrf, prefix: Prefix6::of(own, 64), next_hop: NextHop::Connected(i.id) },
                Route { vrf, prefix: Prefix6::of(own, 128), next_hop: NextHop::Local(i.id) },
            ]
        })
        .collect();
    let ports = (0..PORTS).map(|id| Port { id: PortId(id), name: format!("port{id}"), mac: port_mac(id) });
    Snapshot {
        generation,
        ports: ports.collect(),
        interfaces: interfaces.into_iter().map(Some).collect(),
        vrfs: vec!["default".into()],
        routes,
        routes6,
        policers: Policers { arp: Policer { rate_pps: 10, burst: 3 }, ..Policers::default() },
        fragment_timeout_ms: 2_000,
        siit: vec![],
        nat: Arc::new(NatPolicy { instances: vec![instance(generation)], ..Default::default() }),
    }
}

fn instance(generation: u64) -> Instance {
    let pool = Pool {
        id: PoolId(0),
        name: "pool".into(),
        ranges: vec![carrack_base::Range4 { first: POOL, last: POOL }],
        port_first: 1_024,
        port_last: 4_095,
    };
    let one = |address: u32| carrack_base::Range4 { first: address, last: address };
    Instance {
        id: InstanceId(0),
        name: "nat".into(),
        inside_vrf: VrfId(0),
        outside_vrf: VrfId(0),
        subscribers: vec![Prefix4::of(ip([10, 0, 0, 0]), 8)],
        exempt: vec![Prefix4::of(EXEMPT, 24)],
        pools: vec![pool],
        assignment: Assignment::Blocks { size: 64, per_subscriber_max: 2, idle_release_s: 0 },
        pooling: Default::default(),
        mapping: Default::default(),
        filtering: Default::default(),
        parity: true,
        contiguity: true,
        hairpinning: true,
        inbound_refresh: [true; 3],
        tcp_loose: false,
        port_hold_s: 10,
        port_hold_ports_max: 0,
        limits: Limits { sessions_max: 40, ..Limits::default() },
        timeouts: Timeouts::default(),
        exhausted_icmp: Default::default(),
        pool_threshold_percent: 80,
        pool_ports_threshold: 8,
        logged: Default::default(),
        nat64: NatPrefix::new(Prefix6::of(PREFIX6, 96)).ok().map(|prefix| Nat64 {
            prefixes: vec![Nat64Prefix { via: 1, prefix }],
            subscribers: vec![Prefix6::of(inside6(0), 48)],
            subscriber_len: 120,
            rules: Default::default(),
        }),
        gateways: Protocol::ALL.to_vec(),
        unreadable: Default::default(),
        statics: vec![
            StaticRule::OneToOne { inside: one(ip([10, 0, 0, 9])), outside: one(ip([192, 0, 2, 9])) },
            StaticRule::Forward {
                proto: Proto::Tcp,
                outside: POOL,
                outside_port: 2_000 + generation as u16 % 2,
                count: 2,
                inside: carrack_nat::Inside::V4(ip([10, 0, 0, 5])),
                inside_port: 80,
            },
        ],
    }
}

/// The two configurations that a reload goes between: tagged subscribers come and go, the forward rule moves. Route
/// tables take long to build and are the same for every input.
static PLANS: LazyLock<[Arc<Plan>; 2]> = LazyLock::new(|| {
    [1, 2].map(|generation| {
        let mut snapshot = snapshot(generation);
        if generation == 2 {
            snapshot.interfaces[2] = None;
        }
        Arc::new(Plan::new(Arc::new(snapshot)))
    })
});

/// The plan of that generation.
pub fn plan(generation: u64) -> Arc<Plan> {
    PLANS[usize::from(generation.is_multiple_of(2))].clone()
}

/// Tables that a fuzzer can fill.
const SIZES: WorkerSizes = WorkerSizes {
    nat: Capacity {
        sessions: 128,
        mappings: 128,
        subscribers: 16,
        hosts: 64,
        fragments: 8,
        held_fragments: 16,
        held_syns: 4,
        controls: 16,
    },
    neighbours: 16,
    held_for_neighbour: 8,
};

/// The control plane's ends of one worker's rings.
pub struct Ends {
    pub commands: rtrb::Producer<Command>,
    pub events: rtrb::Consumer<Event>,
    pub nat_events: rtrb::Consumer<NatNews>,
    pub punts: PacketReceiver,
    pub host_tx: PacketSender,
}

/// That many workers, joined by rings.
pub fn workers(count: u8, now: Now) -> (Vec<Worker>, Vec<Ends>) {
    let n = usize::from(count);
    let plan = plan(1);
    let mut ins: Vec<Vec<rtrb::Consumer<Handover>>> = (0..n).map(|_| vec![]).collect();
    let mut outs: Vec<Vec<Option<rtrb::Producer<Handover>>>> = (0..n).map(|_| vec![]).collect();
    for (from, outs) in outs.iter_mut().enumerate() {
        for (to, ins) in ins.iter_mut().enumerate() {
            outs.push((from != to).then(|| {
                let (producer, consumer) = rtrb::RingBuffer::new(32);
                ins.push(consumer);
                producer
            }));
        }
    }
    let group = WorkerGroup::new(count, [7, 1, 8, 2]);
    let build = |(id, (hand_in, hand_out)): (usize, (_, _))| {
        let (commands, commands_in) = rtrb::RingBuffer::new(32);
        let (events_out, events) = rtrb::RingBuffer::new(64);
        let (nat_out, nat_events) = rtrb::RingBuffer::new(64);
        let (punts_out, punts) = packet_ring(8);
        let (host_tx, host_tx_in) = packet_ring(8);
        let mail = WorkerMail {
            commands: commands_in,
            events: events_out,
            nat_events: nat_out,
            punts: punts_out,
            host_tx: host_tx_in,
            hand_in,
            hand_out,
        };
        let (id, pages) = (WorkerId(id as u8), PagePreference::Small);
        let worker = Worker::new(id, group.clone(), plan.clone(), SIZES, pages, mail, now)
            .expect("memory for small tables");
        (worker, Ends { commands, events, nat_events, punts, host_tx })
    };
    ins.into_iter().zip(outs).enumerate().map(build).unzip()
}
