//! The network of the simulation: one or two inside ports with equal addresses behind them, one outside port, small
//! tables. Each inside port has IPv4 and IPv6 hosts.

use std::collections::HashMap;
use std::sync::Arc;

use carrack_base::counters::Accounts;
use carrack_base::{IfIndex, InstanceId, PortId, Prefix4, Prefix6, Proto, REASONS, Reason, VrfId};
use carrack_nat::Cursor;
use carrack_nat::policy::{Capacity, Instance, NatPolicy};
use carrack_nat::row::{Endpoint, Filter, HostEndpoint, SessionRow};
use carrack_pipeline::snapshot::{
    Interface, Ipv6Interface, NextHop, Policer, Policers, Port, Route, Side, Snapshot, Vlan, WorkerSizes,
};
use carrack_wire::MacAddr;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::Ipv6View;

use super::behaviour::{LINKS6, PREFIXES};
use super::stateless::{self, SERVERS6};
use crate::network::{Network, Sent};
use crate::random::Random;
use crate::reference::Reference;
use crate::reference::stateless::Stateless;

/// The inside ports, by side.
pub(super) const INSIDE: [u16; 2] = [0, 2];
pub(super) const OUTSIDE: u16 = 1;
const ROUTER_IN: u32 = 0x0a00_0001;
const ROUTER_OUT: u32 = 0xc633_6401;
/// The router's own address on the inside links.
const ROUTER_IN6: u128 = LINKS6 | 1;
/// The router's own address on the link of the stateless translator's servers, and what else it has there.
const ROUTER_SERVERS6: u128 = SERVERS6 | 1;
const ROUTER_SERVERS: u32 = 0xc0a8_4d01;
/// All inside links together are one subnet, so that every host is a neighbour.
const SUBNET6_LEN: u8 = 61;

pub(super) fn port_mac(port: u16) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, 0x10 + port as u8])
}

fn interface(id: u16, vrf: u16, side: Side, own: u32) -> Interface {
    let addresses = vec![(ROUTER_IN6, Prefix6::of(ROUTER_IN6, SUBNET6_LEN))];
    let ipv6 = (side == Side::Inside).then_some(Ipv6Interface { link_local: 0xfe80 << 112 | 1, addresses });
    Interface {
        id: IfIndex(id),
        name: format!("port{id}"),
        port: PortId(id),
        vlan: Vlan::None,
        mac: port_mac(id),
        vrf: VrfId(vrf),
        side,
        up: true,
        mtu: 1_500,
        addresses: vec![(own, Prefix4::of(own, 24))],
        ipv6,
        urpf: false,
        icmp_errors: Default::default(),
    }
}

/// The servers' port: behind all others.
const fn servers(two: bool) -> u16 {
    if two { 3 } else { 2 }
}

fn servers_interface(two: bool) -> Interface {
    let addresses = vec![(ROUTER_SERVERS6, Prefix6::of(ROUTER_SERVERS6, 64))];
    let ipv6 = Some(Ipv6Interface { link_local: 0xfe80 << 112 | 1, addresses });
    Interface { ipv6, ..interface(servers(two), 0, Side::Plain, ROUTER_SERVERS) }
}

/// The network with these instances and this stateless translator in force. `two` says that there are two inside routing
/// instances.
fn snapshot(mut instances: Vec<Instance>, known: &Stateless, two: bool) -> Snapshot {
    for (at, instance) in instances.iter_mut().enumerate() {
        instance.id = InstanceId(at as u16);
    }
    let inside = |side: usize, vrf| interface(INSIDE[side], vrf, Side::Inside, ROUTER_IN);
    let mut interfaces = if two {
        vec![inside(0, 1), interface(OUTSIDE, 0, Side::Outside, ROUTER_OUT), inside(1, 2)]
    } else {
        vec![inside(0, 0), interface(OUTSIDE, 0, Side::Outside, ROUTER_OUT)]
    };
    interfaces.push(servers_interface(two));
    let gateway = NextHop::Gateway(IfIndex(OUTSIDE), ROUTER_OUT + 253);
    let mut routes = vec![Route { vrf: VrfId(0), prefix: Prefix4::DEFAULT, next_hop: gateway }];
    for interface in &interfaces {
        for (own, subnet) in &interface.addresses {
            let route = |prefix, next_hop| Route { vrf: interface.vrf, prefix, next_hop };
            routes.push(route(*subnet, NextHop::Connected(interface.id)));
            routes.push(route(Prefix4::of(*own, 32), NextHop::Local(interface.id)));
        }
    }
    let mut routes6 = vec![];
    for interface in &interfaces {
        for (own, subnet) in interface.ipv6.iter().flat_map(|ipv6| &ipv6.addresses) {
            let route = |prefix, next_hop| Route { vrf: interface.vrf, prefix, next_hop };
            routes6.push(route(*subnet, NextHop::Connected(interface.id)));
            routes6.push(route(Prefix6::of(*own, 128), NextHop::Local(interface.id)));
        }
    }
    let (siit, hosts) = stateless::instance(known);
    let (to_six, to_four) = siit.routes(0);
    routes.extend(to_six);
    routes6.extend(to_four);
    let link = NextHop::Connected(IfIndex(servers(two)));
    routes6.extend(hosts.into_iter().map(|prefix| Route { vrf: VrfId(0), prefix, next_hop: link }));
    let policers =
        Policers { icmp_errors: Policer { rate_pps: 100_000, burst: 10_000 }, ..Policers::default() };
    let ports = interfaces.iter().map(|i| Port { id: i.port, name: i.name.clone(), mac: i.mac });
    Snapshot {
        generation: 1,
        ports: ports.collect(),
        interfaces: interfaces.into_iter().map(Some).collect(),
        vrfs: ["default", "red", "blue"].map(String::from).into(),
        routes,
        routes6,
        policers,
        fragment_timeout_ms: 2_000,
        siit: vec![siit],
        nat: Arc::new(NatPolicy { instances, ..Default::default() }),
    }
}

/// Source and destination with ports or identifiers of a frame that left.
pub(super) fn endpoints_of(frame: &[u8]) -> (HostEndpoint, HostEndpoint) {
    packet_ends(&frame[14..]).expect("the judge has seen it")
}

/// The same of a packet, which may be cut off behind the first octets of its transport header.
pub(super) fn packet_ends(packet: &[u8]) -> Option<(HostEndpoint, HostEndpoint)> {
    let (src, dst, protocol, l4) = match packet.first()? >> 4 {
        4 => {
            let ip = Ipv4View::parse_quoted(packet).ok()?;
            (ip.src_addr().into(), ip.dst_addr().into(), ip.protocol(), ip.payload())
        }
        _ => {
            let ip = Ipv6View::parse_quoted(packet).ok()?;
            let chain = ip.extensions().ok()?;
            let l4 = ip.packet().get(usize::from(chain.offset)..)?;
            (ip.src_addr().into(), ip.dst_addr().into(), chain.protocol, l4)
        }
    };
    let word = |at: usize| l4.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let (sport, dport) = match protocol {
        1 | 58 => (word(4), word(4)),
        6 | 17 => (word(0), word(2)),
        _ => (0, 0),
    };
    Some((HostEndpoint { ip: src, port: sport }, HostEndpoint { ip: dst, port: dport }))
}

/// An ICMP error that the router itself sends about a drop.
pub(super) fn is_own_error(sent: &Sent) -> bool {
    let packet = sent.frame.get(14..).unwrap_or(&[]);
    let own = [ROUTER_IN, ROUTER_OUT];
    if let Ok(ip) = Ipv4View::parse(packet) {
        return ip.protocol() == 1 && own.contains(&ip.src());
    }
    let Ok(ip) = Ipv6View::parse(packet) else { return false };
    // About a call to a subscriber's outside endpoint it comes through the NAT.
    let through = |prefix: &&carrack_nat::nat64::NatPrefix| {
        prefix.contains(ip.src()) && own.contains(&prefix.extract_unchecked(ip.src()))
    };
    ip.next_header() == 58 && (ip.src() == ROUTER_IN6 || PREFIXES.iter().any(|p| through(&p)))
}

pub(super) struct World {
    pub(super) network: Network,
    /// The stateless translator in force.
    pub(super) stateless: Stateless,
    two: bool,
    before: Accounts,
}

impl World {
    pub(super) fn new(
        random: &mut Random,
        (policies, stateless): (Vec<Instance>, Stateless),
        two: bool,
        static_rules: bool,
        workers: u8,
    ) -> Self {
        let nat = Capacity {
            sessions: [64, 512, 2_048][random.below(3)],
            // A forward rule may find a full table: then nobody knows when there is room again.
            mappings: if static_rules { 2_048 } else { 48 },
            subscribers: [8, 64][random.below(2)],
            hosts: if static_rules { 64 } else { 4 },
            fragments: 64,
            held_fragments: 64,
            held_syns: 16,
            controls: 64,
        };
        let sizes = WorkerSizes { nat, neighbours: 64, held_for_neighbour: 32 };
        let seed = [0; 4].map(|_| random.bits());
        let mut network = Network::new(snapshot(policies, &stateless, two), sizes, workers, seed);
        let before = network.totals();
        Self { network, stateless, two, before }
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

    /// The servers' port.
    pub(super) const fn servers(&self) -> u16 {
        servers(self.two)
    }

    pub(super) fn reload(&mut self, policies: Vec<Instance>, stateless: Stateless) {
        self.network.reconfigure(snapshot(policies, &stateless, self.two));
        self.stateless = stateless;
        self.new_drops();
    }

    /// The number that an instance has now; `None` when it is not in force.
    pub(super) fn number_of(&self, name: &str) -> Option<InstanceId> {
        let instances = &self.network.snapshot.nat.instances;
        instances.iter().find(|instance| instance.name == name).map(|instance| instance.id)
    }

    /// Is a table of any worker full that this reason speaks of?
    pub(super) fn is_full(&self, reason: Reason) -> bool {
        let table = match reason {
            Reason::NatSessionTableFull => "sessions",
            Reason::NatMappingTableFull => "mappings",
            Reason::NatSubscriberTableFull => "subscribers",
            Reason::NatHostTableFull => "hosts",
            _ => return true,
        };
        let mut rows = self.network.workers.iter().flat_map(|worker| worker.nat().memory());
        rows.any(|row| row.table == table && row.used == row.total)
    }

    /// RFC 4787 REQ-3 over all workers, and what the reference is sure of is there, and no more than it knows of.
    pub(super) fn check(&mut self, references: &[Reference]) -> Result<(), String> {
        let mut outside: Outside = HashMap::new();
        let mut dynamic = 0;
        for worker in &self.network.workers {
            let mut twice = None;
            worker.nat().walk_mappings(&mut Cursor(0), usize::MAX, &Filter::default(), |row| {
                dynamic += u64::from(!row.is_static);
                // Protocols without ports are told apart by their remotes.
                if outside.insert((row.proto, row.outside), (row.inside, row.sessions)).is_some() {
                    twice = Some(row);
                }
                true
            });
            if let Some(row) = twice {
                return Err(format!("two mappings at one outside endpoint: {row:?}"));
            }
        }
        self.check_ports(dynamic, references)?;
        let possible: usize = references.iter().map(Reference::sessions_max).sum();
        if self.sessions() > possible {
            // It has failed already: what was there may go.
            let mut rows = self.network.clear(Filter::default());
            let may_have = |r: &SessionRow, known: &Reference| known.may_show(r.proto, r.inside, r.remote);
            rows.retain(|r| !references.iter().any(|known| may_have(r, known)));
            return Err(format!("more sessions than the {possible} that may be: {rows:?}"));
        }
        references.iter().try_for_each(|reference| check_living(reference, &outside))
    }

    /// Every port in use is a mapping's or a forward rule's.
    fn check_ports(&self, dynamic: u64, references: &[Reference]) -> Result<(), String> {
        let mut used = 0;
        for worker in &self.network.workers {
            worker.nat().walk_pools(&mut Cursor(0), usize::MAX, |row| {
                used += row.ports_used.iter().map(|n| u64::from(*n)).sum::<u64>();
                true
            });
        }
        let forwarded: u64 = references.iter().map(|r| r.forwards().len() as u64).sum();
        if (dynamic..=dynamic + forwarded).contains(&used) {
            Ok(())
        } else {
            Err(format!("{used} ports in use by {dynamic} mappings and {forwarded} forwarded endpoints"))
        }
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

/// Who is behind an outside endpoint, and with how many sessions.
type Outside = HashMap<(Proto, Endpoint), (HostEndpoint, u32)>;

/// Mappings and sessions that surely live are there.
fn check_living(reference: &Reference, outside: &Outside) -> Result<(), String> {
    for (proto, at, inside) in reference.forwards() {
        if outside.get(&(proto, at)).is_none_or(|(there, _)| *there != inside.endpoint()) {
            return Err(format!("{proto} {at} is not forwarded to {inside}"));
        }
    }
    let mut living: HashMap<(Proto, Endpoint), Vec<Endpoint>> = HashMap::new();
    for (proto, inside, at, remote) in reference.living() {
        living.entry((proto, at)).or_default().push(remote);
        if outside.get(&(proto, at)).is_none_or(|(there, _)| *there != inside.endpoint()) {
            return Err(format!("{proto} {inside} has lost its mapping at {at}"));
        }
    }
    for (at, remotes) in living {
        let sessions = outside.get(&at).map_or(0, |(_, sessions)| *sessions);
        if (sessions as usize) < remotes.len() {
            return Err(format!("{} {} has {sessions} sessions, but these live: {remotes:?}", at.0, at.1));
        }
    }
    Ok(())
}
