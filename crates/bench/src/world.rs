//! The router under test: two ports, one NAT instance, neighbours known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use carrack_base::{IfIndex, InstanceId, Now, PoolId, PortId, Prefix4, Prefix6, Range4, VrfId, WorkerId};
use carrack_frame::MemPool;
use carrack_nat::WorkerGroup;
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_nat::policy::{
    ADDRESSES_MAX, Assignment, Capacity, ExhaustedIcmp, Filtering, Instance, Limits, Logged, Mapping,
    NatPolicy, Pool, Pooling, StaticRule, Timeouts,
};
use carrack_pipeline::mailbox::{Command, Event, NatNews, PacketReceiver, PacketSender, packet_ring};
use carrack_pipeline::snapshot::{
    EamHosts, Interface, Ipv6Interface, NextHop, Policers, Port, Route, Side, SiitInstance, Snapshot, Vlan,
    WorkerSizes,
};
use carrack_pipeline::{Plan, Worker, WorkerMail};
use carrack_tables::{ArenaError, PagePreference};
use carrack_wire::ethernet::MacAddr;
use carrack_xlat::Siit;
use carrack_xlat::eam::{EamTable, Entry};
use clap::ValueEnum;

use crate::forward::BenchError;
use crate::generator::{PORTS, SESSIONS_PER_SUBSCRIBER, SUBSCRIBER_FIRST, Translation};
use crate::generator6::{PREFIX6, SUBSCRIBERS6};
use carrack_base::text::grouped;

/// The router's inside port.
pub const INSIDE_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 1]);
/// The router's outside port.
pub const OUTSIDE_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 0, 2]);
/// The router in front of the subscribers.
pub const SUBSCRIBER_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 1, 1]);
/// The router toward the Internet.
pub const GATEWAY_MAC: MacAddr = MacAddr([0x02, 0, 0, 0, 1, 2]);
/// Inside port.
pub const INSIDE: PortId = PortId(0);
/// Outside port.
pub const OUTSIDE: PortId = PortId(1);
/// Tags of the ports in scenarios that have any.
pub const INSIDE_VLAN: u16 = 1;
const OUTSIDE_VLAN: u16 = 2;
/// The router's link-local address inside, and that of the router in front of the subscribers.
const LINK_LOCAL: u128 = 0xfe80_u128 << 112 | 1;
const SUBSCRIBERS_NEXT6: u128 = 0xfe80_u128 << 112 | 2;
/// IPv4 subscribers that there can be.
const SUBSCRIBERS4_MAX: u32 = 1 << 24;
/// Ports of a block.
const BLOCK: u16 = 512;
/// The pool starts at 100.64.0.0, which no real network in the bench uses.
const POOL_FIRST: u32 = 0x6440_0000;

fn ip(a: u8, b: u8, c: u8, d: u8) -> u32 {
    Ipv4Addr::new(a, b, c, d).into()
}

fn interface(id: u16, name: &str, side: Side, mac: MacAddr, address: u32) -> Interface {
    Interface {
        id: IfIndex(id),
        name: name.into(),
        port: PortId(id),
        vlan: Vlan::None,
        mac,
        vrf: VrfId(0),
        side,
        up: true,
        mtu: 9_000,
        addresses: vec![(address, Prefix4::of(address, 30))],
        ipv6: (side == Side::Inside).then(|| Ipv6Interface { link_local: LINK_LOCAL, addresses: Vec::new() }),
        urpf: false,
        icmp_errors: Default::default(),
    }
}

/// How outside ports are given out, as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Port blocks (RFC 7422 calls it bulk allocation)
    Pba,
    /// Any free port
    Arbitrary,
    /// RFC 7422: a function of the inside address
    Deterministic,
    /// One-to-one addresses
    Static,
}

impl Mode {
    /// The word for reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pba => "pba",
            Self::Arbitrary => "arbitrary",
            Self::Deterministic => "deterministic",
            Self::Static => "static",
        }
    }
}

/// A NAT instance to measure, one worker's.
#[derive(Debug, Clone)]
pub struct InstanceSpec {
    /// What is translated. One-to-one addresses are of IPv4 only.
    pub translation: Translation,
    /// How ports are given out.
    pub mode: Mode,
    /// Subscribers, from 10.0.0.0 on or the IPv6 addresses that end like it.
    pub subscribers: u32,
    /// Outside ports each of them uses at once.
    pub ports: u32,
    /// Ports of a block.
    pub block: u16,
    /// Idle time of UDP, seconds.
    pub udp_s: u32,
    /// Time before a released port or block may be given again, seconds.
    pub hold_s: u32,
    /// What the log is told.
    pub logged: Logged,
}

/// What is told to the log, as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Log {
    /// Port blocks and address bindings
    #[default]
    Blocks,
    /// Mappings too
    Mappings,
    /// Sessions instead of mappings
    Sessions,
    /// Sessions with their remote endpoints
    Destinations,
}

impl Log {
    /// As a policy has it.
    pub const fn logged(self) -> Logged {
        match self {
            Self::Blocks => Logged::Blocks,
            Self::Mappings => Logged::Mappings,
            Self::Sessions => Logged::Sessions,
            Self::Destinations => Logged::Destinations,
        }
    }
}

/// Is there such an instance?
///
/// # Errors
/// If not: what to choose instead.
pub fn compatible(translation: Translation, mode: Mode) -> Result<(), BenchError> {
    let why = match (translation, mode) {
        (Translation::Siit, _) => {
            "a stateless translator has no sessions: --translation siit is for `bench forward` alone"
        }
        (Translation::Nat64, Mode::Static) => {
            "one-to-one addresses are of IPv4 only; with --translation nat64 choose --mode pba, arbitrary or deterministic"
        }
        _ => return Ok(()),
    };
    Err(BenchError(why.into()))
}

impl InstanceSpec {
    /// Are there as many subscribers and addresses?
    ///
    /// # Errors
    /// If not: what to do instead.
    pub fn check(&self) -> Result<(), BenchError> {
        compatible(self.translation, self.mode)?;
        let (subscribers, addresses) = (grouped(self.subscribers.into()), self.addresses());
        let fewer = "ask for fewer sessions or for more on each (--ports, --remotes)";
        if self.subscribers > SUBSCRIBERS4_MAX && self.translation != Translation::Nat64 {
            let most = grouped(SUBSCRIBERS4_MAX.into());
            return Err(BenchError(format!(
                "{subscribers} subscribers; 10.0.0.0/8, where the bench has them, is {most}: {fewer}"
            )));
        }
        if addresses > ADDRESSES_MAX && self.mode != Mode::Static {
            let (addresses, most) = (grouped(addresses.into()), grouped(ADDRESSES_MAX.into()));
            return Err(BenchError(format!(
                "{subscribers} subscribers take {addresses} addresses; an instance has at most {most}: {fewer}"
            )));
        }
        Ok(())
    }

    /// The compiled instance: its pool is half as large again as what all subscribers take at once.
    pub fn instance(&self) -> Instance {
        let mut instance = instance(self.subscribers, 1);
        instance.logged = self.logged;
        let usable: u32 = 65_535 - 1_023;
        let ports = self.ports.max(1);
        let wanted = match self.mode {
            Mode::Pba => {
                let blocks = ports.div_ceil(u32::from(self.block));
                let size = self.block;
                instance.assignment = Assignment::Blocks { size, per_subscriber_max: 4, idle_release_s: 0 };
                (self.subscribers * blocks).div_ceil(usable / u32::from(size))
            }
            Mode::Arbitrary => {
                instance.assignment = Assignment::Arbitrary;
                (u64::from(self.subscribers) * u64::from(ports)).div_ceil(u64::from(usable)) as u32
            }
            Mode::Deterministic => {
                // Twice what is used: ports are chosen at random among them.
                let of_each = (ports * 2).next_power_of_two().clamp(8, 32_768);
                instance.assignment =
                    Assignment::Deterministic { ports_per_subscriber: of_each as u16, overflow: None };
                // An IPv6 prefix has a power of two of them.
                let subscribers = match self.translation {
                    Translation::Nat44 | Translation::Siit => self.subscribers,
                    Translation::Nat64 => self.subscribers.next_power_of_two(),
                };
                subscribers.div_ceil(usable / of_each)
            }
            Mode::Static => {
                let last = |first: u32| first + self.subscribers - 1;
                instance.statics = vec![StaticRule::OneToOne {
                    inside: Range4 { first: SUBSCRIBER_FIRST, last: last(SUBSCRIBER_FIRST) },
                    outside: Range4 { first: POOL_FIRST, last: last(POOL_FIRST) },
                }];
                instance.pools.clear();
                0
            }
        };
        let addresses = if self.mode == Mode::Deterministic { wanted } else { wanted + wanted / 2 }.max(4);
        for pool in &mut instance.pools {
            pool.ranges = vec![Range4 { first: POOL_FIRST, last: POOL_FIRST + addresses - 1 }];
        }
        instance.timeouts.udp_s = self.udp_s;
        instance.port_hold_s = self.hold_s;
        if self.translation == Translation::Nat64 {
            let bits = self.subscribers.next_power_of_two().trailing_zeros() as u8;
            serve_six(&mut instance, Prefix6::of(SUBSCRIBERS6 | u128::from(SUBSCRIBER_FIRST), 128 - bits));
        }
        instance
    }

    /// Pool addresses of the instance.
    pub fn addresses(&self) -> u32 {
        self.instance().pools.iter().flat_map(|pool| &pool.ranges).map(|range| range.count() as u32).sum()
    }
}

fn instance(subscribers: u32, workers: u8) -> Instance {
    let blocks_per_address = u32::from((65_535 - 1_023) / BLOCK) / u32::from(workers) * u32::from(workers);
    // Half as many again: subscribers are not spread evenly over workers and addresses.
    let addresses = (subscribers + subscribers / 2).div_ceil(blocks_per_address).max(4);
    Instance {
        id: InstanceId(0),
        name: "bench".into(),
        inside_vrf: VrfId(0),
        outside_vrf: VrfId(0),
        subscribers: vec![Prefix4::of(ip(10, 0, 0, 0), 8)],
        exempt: Vec::new(),
        pools: vec![Pool {
            id: PoolId(0),
            name: "bench".into(),
            ranges: vec![Range4 { first: POOL_FIRST, last: POOL_FIRST + addresses - 1 }],
            port_first: 1_024,
            port_last: 65_535,
        }],
        assignment: Assignment::Blocks { size: BLOCK, per_subscriber_max: 4, idle_release_s: 0 },
        pooling: Pooling::Paired,
        mapping: [Mapping::EndpointIndependent; 3],
        filtering: [Filtering::EndpointIndependent; 3],
        parity: false,
        contiguity: false,
        hairpinning: true,
        inbound_refresh: [true; 3],
        tcp_loose: false,
        port_hold_s: 120,
        port_hold_ports_max: 0,
        limits: Limits::default(),
        timeouts: Timeouts::default(),
        exhausted_icmp: ExhaustedIcmp::HostUnreachable,
        pool_threshold_percent: 0,
        pool_ports_threshold: 0,
        logged: Default::default(),
        statics: Vec::new(),
        nat64: None,
        gateways: vec![],
        unreadable: Default::default(),
    }
}

/// The plan for so many subscribers, with these application gateways.
pub fn plan(
    translation: Translation,
    subscribers: u32,
    workers: u8,
    gateways: Vec<carrack_alg::Protocol>,
) -> Arc<Plan> {
    let mut instance = instance(subscribers, workers);
    instance.gateways = gateways;
    if translation == Translation::Nat64 {
        serve_six(&mut instance, Prefix6::DEFAULT);
    }
    if translation == Translation::Siit { stateless_plan() } else { plan_with(instance, false) }
}

/// Makes it a NAT64 of these subscribers.
fn serve_six(instance: &mut Instance, subscribers: Prefix6) {
    instance.subscribers.clear();
    // Invariant: a prefix of 96 bits with octet `u` zero is one.
    let prefix = NatPrefix::new(Prefix6::of(PREFIX6, 96));
    instance.nat64 = prefix.ok().map(|prefix| Nat64 {
        prefixes: vec![Nat64Prefix { via: 1, prefix }],
        subscribers: vec![subscribers],
        subscriber_len: 128,
        rules: Default::default(),
    });
}

/// The plan with a stateless translator: hosts have the IPv4 addresses that subscribers of a NAT44 have inside.
fn stateless_plan() -> Arc<Plan> {
    let hosts = Entry {
        v4: Prefix4::of(SUBSCRIBER_FIRST, 8),
        v6: Prefix6::of(SUBSCRIBERS6 | u128::from(SUBSCRIBER_FIRST), 104),
    };
    // Invariant: both sides of one entry have 24 bits left, and octet `u` of the prefix is zero.
    let translator = Siit {
        prefixes: NatPrefix::new(Prefix6::of(PREFIX6, 96)).into_iter().collect(),
        eam: EamTable::new(&[hosts]).unwrap_or_default(),
        ..Siit::default()
    };
    let siit = SiitInstance { name: "bench".into(), vrf: VrfId(0), eam_hosts: EamHosts::Ipv6, translator };
    let (mut snapshot, (v4, v6)) = (snapshot(vec![], false), siit.routes(0));
    snapshot.routes.retain(|route| route.prefix != hosts.v4);
    snapshot.routes.extend(v4);
    snapshot.routes6.extend(v6);
    snapshot.siit.push(siit);
    Arc::new(Plan::new(Arc::new(snapshot)))
}

/// A later plan with this instance.
pub fn plan_of(generation: u64, instance: Instance) -> Arc<Plan> {
    Arc::new(Plan::new(Arc::new(Snapshot { generation, ..snapshot(vec![instance], false) })))
}

/// The plan with this instance, of tagged interfaces if so.
pub fn plan_with(instance: Instance, tagged: bool) -> Arc<Plan> {
    Arc::new(Plan::new(Arc::new(snapshot(vec![instance], tagged))))
}

fn snapshot(instances: Vec<Instance>, tagged: bool) -> Snapshot {
    let vlan = |id| if tagged { Vlan::Single(id) } else { Vlan::None };
    let (inside, outside) = (ip(172, 16, 0, 1), ip(172, 16, 1, 1));
    let route = |prefix, next_hop| Route { vrf: VrfId(0), prefix, next_hop };
    Snapshot {
        generation: 1,
        ports: vec![
            Port { id: INSIDE, name: "inside".into(), mac: INSIDE_MAC },
            Port { id: OUTSIDE, name: "outside".into(), mac: OUTSIDE_MAC },
        ],
        interfaces: vec![
            Some(Interface {
                vlan: vlan(INSIDE_VLAN),
                ..interface(0, "inside", Side::Inside, INSIDE_MAC, inside)
            }),
            Some(Interface {
                vlan: vlan(OUTSIDE_VLAN),
                ..interface(1, "outside", Side::Outside, OUTSIDE_MAC, outside)
            }),
        ],
        vrfs: vec!["default".into()],
        routes: vec![
            route(Prefix4::of(inside, 32), NextHop::Local(IfIndex(0))),
            route(Prefix4::of(outside, 32), NextHop::Local(IfIndex(1))),
            route(Prefix4::of(inside, 30), NextHop::Connected(IfIndex(0))),
            route(Prefix4::of(outside, 30), NextHop::Connected(IfIndex(1))),
            route(Prefix4::of(ip(10, 0, 0, 0), 8), NextHop::Gateway(IfIndex(0), inside + 1)),
            route(Prefix4::DEFAULT, NextHop::Gateway(IfIndex(1), outside + 1)),
        ],
        routes6: vec![Route {
            vrf: VrfId(0),
            prefix: Prefix6::DEFAULT,
            next_hop: NextHop::Gateway(IfIndex(0), SUBSCRIBERS_NEXT6),
        }],
        policers: Policers::default(),
        fragment_timeout_ms: 2_000,
        siit: vec![],
        nat: Arc::new(NatPolicy { instances, ..Default::default() }),
    }
}

/// Table sizes for a worker with so many sessions of this translation.
pub fn sizes_for(translation: Translation, sessions: u32) -> WorkerSizes {
    let mut sizes = sizes(if translation == Translation::Siit { 0 } else { sessions });
    if translation == Translation::Nat64 {
        sizes.nat.hosts = sizes.nat.subscribers;
    }
    sizes
}

/// Table sizes for a worker with so many sessions.
pub fn sizes(sessions: u32) -> WorkerSizes {
    let subscribers = sessions.div_ceil(SESSIONS_PER_SUBSCRIBER);
    WorkerSizes {
        nat: Capacity {
            sessions: sessions.max(64),
            mappings: (subscribers * PORTS).max(64),
            subscribers: subscribers.max(64),
            hosts: 64,
            ..Capacity::default()
        },
        ..WorkerSizes::default()
    }
}

/// The far ends of a worker's rings, kept open.
pub struct FarEnds {
    /// Commands down.
    pub commands: rtrb::Producer<Command>,
    /// Events up.
    pub events: rtrb::Consumer<Event>,
    /// NAT events up.
    pub nat_events: rtrb::Consumer<NatNews>,
    _punts: PacketReceiver,
    _host_tx: PacketSender,
}

impl FarEnds {
    /// Throws away what came up.
    pub fn drain(&mut self) {
        while self.events.pop().is_ok() {}
        while self.nat_events.pop().is_ok() {}
    }

    /// Copies the waiting NAT events into the emptied list, at most as many as the logging thread takes at once; returns how
    /// many.
    pub fn take(&mut self, into: &mut Vec<NatNews>) -> usize {
        const AT_ONCE: usize = 8_192;
        into.clear();
        let waiting = self.nat_events.slots().min(AT_ONCE);
        if let Ok(chunk) = self.nat_events.read_chunk(waiting) {
            into.extend(chunk);
        }
        while self.events.pop().is_ok() {}
        into.len()
    }
}

/// A worker with its neighbours known and tables of these sizes, alone or one of several that never hand over.
pub fn worker_with(
    id: u8,
    group: Arc<WorkerGroup>,
    plan: Arc<Plan>,
    sizes: WorkerSizes,
    now: Now,
) -> Result<(Worker, FarEnds), ArenaError> {
    let (mut commands, commands_in) = rtrb::RingBuffer::new(64);
    let (events_out, events) = rtrb::RingBuffer::new(4_096);
    let (nat_out, nat_events) = rtrb::RingBuffer::new(65_536);
    let (punts_out, punts) = packet_ring(16);
    let (host_out, host_in) = packet_ring(16);
    let v4 = |ip: u32| IpAddr::from(Ipv4Addr::from(ip));
    let neighbours = [
        (0, v4(ip(172, 16, 0, 2)), SUBSCRIBER_MAC),
        (0, Ipv6Addr::from(SUBSCRIBERS_NEXT6).into(), SUBSCRIBER_MAC),
        (1, v4(ip(172, 16, 1, 2)), GATEWAY_MAC),
    ];
    for (interface, ip, mac) in neighbours {
        // Invariant: the ring has 64 places.
        let _ = commands.push(Command::SetNeighbour { interface: IfIndex(interface), ip, mac });
    }
    let mail = WorkerMail {
        commands: commands_in,
        events: events_out,
        nat_events: nat_out,
        punts: punts_out,
        host_tx: host_in,
        hand_in: Vec::new(),
        hand_out: (0..group.workers()).map(|_| None).collect(),
    };
    let pages = PagePreference::Huge;
    let mut worker = Worker::new(WorkerId(id), group, plan, sizes, pages, mail, now)?;
    let mut pool = MemPool::new(64, 256, 128);
    worker.background(now, &mut pool);
    let far = FarEnds { commands, events, nat_events, _punts: punts, _host_tx: host_out };
    Ok((worker, far))
}
