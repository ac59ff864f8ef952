//! The network of the simulation: one inside port, one outside port, small tables.

use std::collections::HashMap;
use std::sync::Arc;

use carrack_base::counters::Accounts;
use carrack_base::{IfIndex, InstanceId, PoolId, PortId, Prefix4, Proto, REASONS, Range4, Reason, VrfId};
use carrack_nat::Cursor;
use carrack_nat::policy::{Assignment, Capacity, Instance, NatPolicy, Pool, Timeouts};
use carrack_nat::row::{Endpoint, Filter};
use carrack_pipeline::snapshot::{
    Interface, NextHop, Policer, Policers, Port, Route, Side, Snapshot, Vlan, WorkerSizes,
};
use carrack_wire::MacAddr;
use carrack_wire::ipv4::Ipv4View;

use crate::network::{Network, Sent};
use crate::random::Random;
use crate::reference::Reference;

pub(super) const INSIDE: u16 = 0;
pub(super) const OUTSIDE: u16 = 1;
/// 10.0.0.10.
pub(super) const HOSTS: u32 = 0x0a00_000a;
/// 198.51.100.10.
pub(super) const REMOTES: u32 = 0xc633_640a;
/// 203.0.113.0.
pub(super) const POOL: u32 = 0xcb00_7100;
const ROUTER_IN: u32 = 0x0a00_0001;
const ROUTER_OUT: u32 = 0xc633_6401;

pub(super) fn port_mac(port: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, 0x10 + port as u8])
}

/// Pool addresses; the first range is always there.
pub(super) fn ranges(which: usize) -> Vec<Range4> {
    let range = |from, to| Range4 { first: POOL + from, last: POOL + to };
    match which {
        0 => vec![range(0, 3)],
        1 => vec![range(0, 1), range(6, 7)],
        _ => vec![range(0, 3), range(8, 11)],
    }
}

pub(super) fn instance() -> Instance {
    Instance {
        id: InstanceId(0),
        name: "simulated".into(),
        inside_vrf: VrfId(0),
        outside_vrf: VrfId(0),
        subscribers: vec![Prefix4::of(HOSTS & 0xffff_ffe0, 27)],
        exempt: vec![],
        pools: vec![Pool {
            id: PoolId(0),
            name: "pool".into(),
            ranges: ranges(0),
            port_first: 2_000,
            port_last: 2_255,
        }],
        assignment: Assignment::Arbitrary,
        pooling: Default::default(),
        mapping: Default::default(),
        filtering: Default::default(),
        parity: false,
        contiguity: false,
        hairpinning: true,
        inbound_refresh: [true; 3],
        tcp_loose: false,
        port_hold_s: 120,
        limits: Default::default(),
        timeouts: Timeouts { tcp_established_s: 600, ..Timeouts::default() },
        exhausted_icmp: Default::default(),
        pool_threshold_percent: 80,
        statics: vec![],
    }
}

fn interface(id: u16, side: Side, own: u32) -> Interface {
    Interface {
        id: IfIndex(id),
        name: format!("port{id}"),
        port: PortId(id),
        vlan: Vlan::None,
        mac: port_mac(id),
        vrf: VrfId(0),
        side,
        up: true,
        mtu: 1_500,
        addresses: vec![(own, Prefix4::of(own, 24))],
        urpf: false,
    }
}

fn snapshot(policy: Instance) -> Snapshot {
    let interfaces =
        [interface(INSIDE, Side::Inside, ROUTER_IN), interface(OUTSIDE, Side::Outside, ROUTER_OUT)];
    let gateway = NextHop::Gateway(IfIndex(OUTSIDE), ROUTER_OUT + 253);
    let mut routes = vec![Route { vrf: VrfId(0), prefix: Prefix4::DEFAULT, next_hop: gateway }];
    for interface in &interfaces {
        for (own, subnet) in &interface.addresses {
            let route = |prefix, next_hop| Route { vrf: VrfId(0), prefix, next_hop };
            routes.push(route(*subnet, NextHop::Connected(interface.id)));
            routes.push(route(Prefix4::of(*own, 32), NextHop::Local(interface.id)));
        }
    }
    let policers =
        Policers { icmp_errors: Policer { rate_pps: 100_000, burst: 10_000 }, ..Policers::default() };
    Snapshot {
        generation: 1,
        ports: [INSIDE, OUTSIDE]
            .map(|id| Port { id: PortId(id), name: format!("port{id}"), mac: port_mac(id) })
            .into(),
        interfaces: interfaces.into_iter().map(Some).collect(),
        vrfs: vec!["default".into()],
        routes,
        policers,
        fragment_timeout_ms: 2_000,
        nat: Arc::new(NatPolicy { instances: vec![policy] }),
    }
}

/// Source and destination with ports or identifiers of a frame that left.
pub(super) fn endpoint_of(frame: &[u8]) -> (Endpoint, Endpoint) {
    let ip = Ipv4View::parse(&frame[14..]).expect("the judge has seen it");
    let l4 = ip.payload();
    let word = |at: usize| l4.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let (sport, dport) = match Proto::from_ip(ip.protocol()) {
        Proto::Icmp => (word(4), word(4)),
        Proto::Tcp | Proto::Udp => (word(0), word(2)),
        Proto::Other => (0, 0),
    };
    (Endpoint { ip: ip.src(), port: sport }, Endpoint { ip: ip.dst(), port: dport })
}

/// An ICMP error that the router itself sends about a drop.
pub(super) fn is_own_error(sent: &Sent) -> bool {
    let Ok(ip) = Ipv4View::parse(sent.frame.get(14..).unwrap_or(&[])) else { return false };
    ip.protocol() == 1 && [ROUTER_IN, ROUTER_OUT].contains(&ip.src())
}

pub(super) struct World {
    pub(super) network: Network,
    before: Accounts,
}

impl World {
    pub(super) fn new(random: &mut Random, policy: Instance, workers: u8) -> Self {
        let sessions = [64, 512, 2_048][random.below(3)];
        let nat = Capacity {
            sessions,
            mappings: [48, 2_048][random.below(2)],
            subscribers: [8, 64][random.below(2)],
            fragments: 64,
            held_fragments: 64,
            held_syns: 16,
        };
        let sizes = WorkerSizes { nat, neighbours: 64, held_for_neighbour: 32 };
        let seed = [0; 4].map(|_| random.bits());
        let mut network = Network::new(snapshot(policy), sizes, workers, seed);
        let before = network.totals();
        Self { network, before }
    }

    /// One frame into a worker: what left, and what was dropped for which reasons.
    pub(super) fn send(&mut self, worker: usize, port: u16, frame: &[u8]) -> (Vec<Sent>, Vec<Reason>) {
        let sent = self.network.send(worker, PortId(port), &[frame.to_vec()]);
        (sent, self.new_drops())
    }

    /// Drops since the last time; what only time brings about, and what a packet brings about beside its own fate
    /// (absorbed SYNs), is left out.
    fn new_drops(&mut self) -> Vec<Reason> {
        let now = self.network.totals();
        let mut drops = vec![];
        for row in REASONS {
            let at = row.reason as usize;
            let late = matches!(
                row.reason,
                Reason::NatTcpUnsolicitedSyn | Reason::NatTcpSynSuperseded | Reason::FragmentTimeout
            );
            for _ in self.before.drops[at]..if late { self.before.drops[at] } else { now.drops[at] } {
                drops.push(row.reason);
            }
        }
        self.before = now;
        drops
    }

    pub(super) fn sessions(&self) -> usize {
        self.network.workers.iter().map(|w| w.nat().session_count()).sum()
    }

    pub(super) fn wait(&mut self, seconds: u64) {
        self.network.wait_ms(seconds * 1_000, 1_000);
        self.new_drops();
    }

    pub(super) fn reload(&mut self, policy: Instance) {
        self.network.reconfigure(snapshot(policy));
        self.new_drops();
    }

    /// RFC 4787 REQ-3 over all workers, and what the reference is sure of is there.
    pub(super) fn check(&mut self, reference: &Reference) -> Result<(), String> {
        let mut outside: HashMap<(Proto, Endpoint), (Endpoint, u32)> = HashMap::new();
        for worker in &self.network.workers {
            let mut twice = None;
            worker.nat().walk_mappings(&mut Cursor(0), usize::MAX, &Filter::default(), |row| {
                if outside.insert((row.proto, row.outside), (row.inside, row.sessions)).is_some() {
                    twice = Some(row);
                }
                true
            });
            if let Some(row) = twice {
                return Err(format!("two mappings at one outside endpoint: {row:?}"));
            }
        }
        let mut living: HashMap<(Proto, Endpoint), Vec<Endpoint>> = HashMap::new();
        for (proto, inside, at, remote) in reference.living() {
            living.entry((proto, at)).or_default().push(remote);
            if outside.get(&(proto, at)).is_none_or(|(there, _)| *there != inside) {
                return Err(format!("{proto} {inside} has lost its mapping at {at}"));
            }
        }
        for (at, remotes) in living {
            let sessions = outside.get(&at).map_or(0, |(_, sessions)| *sessions);
            if (sessions as usize) < remotes.len() {
                return Err(format!(
                    "{} {} has {sessions} sessions, but these live: {remotes:?}",
                    at.0, at.1
                ));
            }
        }
        Ok(())
    }

    pub(super) fn assert_empty(&mut self) -> Result<(), String> {
        let held = self.network.totals().held;
        if held != 0 || self.network.frames_out() != 0 {
            return Err(format!("{held} packets held, {} frames missing", self.network.frames_out()));
        }
        for worker in &self.network.workers {
            for row in worker.nat().memory() {
                if row.used != 0 {
                    return Err(format!("{} of {} still used", row.used, row.table));
                }
            }
        }
        Ok(())
    }
}
