//! A NAT of one or more workers, real frames in and out, every translated packet judged by two independent readers.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod check;
pub mod frames;

use std::sync::Arc;

use carrack_base::{InstanceId, Now, PoolId, Prefix4, Proto, Range4, Reason, VrfId, WorkerId};
use carrack_nat::policy::{Assignment, Capacity, Instance, NatPolicy, Pool, StaticRule, Timeouts};
use carrack_nat::row::{Endpoint, Filter, MappingRow, NatEvent, PoolRow, SessionRow, SubscriberRow};
use carrack_nat::{Cursor, Direction, Flow, Inside, Kind, NO_LINE, Nat, OverdueSyn, Verdict, WorkerGroup};
use carrack_tables::PagePreference;
use carrack_wire::tcp::flag;

pub use frames::{L3, outer, parse};

pub const SYN: u8 = flag::SYN;
pub const ACK: u8 = flag::ACK;
pub const FIN: u8 = flag::FIN;
pub const RST: u8 = flag::RST;

/// An address of either version.
pub fn host(text: &str) -> std::net::IpAddr {
    text.parse().unwrap()
}

/// `10.0.0.1:1000`; without a port, port 0.
pub fn e(text: &str) -> Endpoint {
    let (ip, port) = text.split_once(':').unwrap_or((text, "0"));
    Endpoint { ip: addr(ip), port: port.parse().unwrap() }
}

pub fn addr(text: &str) -> u32 {
    text.parse::<std::net::Ipv4Addr>().unwrap().into()
}

pub fn net(text: &str) -> Prefix4 {
    text.parse().unwrap()
}

pub fn range(text: &str) -> Range4 {
    text.parse().unwrap()
}

pub fn pool(id: u16, ranges: &[&str], port_first: u16, port_last: u16) -> Pool {
    let ranges = ranges.iter().map(|r| range(r)).collect();
    Pool { id: PoolId(id), name: format!("pool{id}"), ranges, port_first, port_last }
}

pub fn forward(proto: Proto, outside: &str, inside: &str) -> StaticRule {
    let (outside, inside) = (e(outside), e(inside));
    StaticRule::Forward {
        proto,
        outside: outside.ip,
        outside_port: outside.port,
        count: 1,
        inside: Inside::V4(inside.ip),
        inside_port: inside.port,
    }
}

pub fn one_to_one(inside: &str, outside: &str) -> StaticRule {
    StaticRule::OneToOne { inside: range(inside), outside: range(outside) }
}

/// An ordinary instance: 10.0.0.0/8 in VRF 0 behind 192.0.2.1 in VRF 1, arbitrary ports, defaults of the RFCs.
pub fn instance() -> Instance {
    Instance {
        id: InstanceId(0),
        name: "test".into(),
        inside_vrf: VrfId(0),
        outside_vrf: VrfId(1),
        subscribers: vec![net("10.0.0.0/8")],
        exempt: vec![],
        pools: vec![pool(0, &["192.0.2.1"], 1_024, 65_535)],
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

/// [`instance`], changed.
pub fn instance_with(change: impl FnOnce(&mut Instance)) -> Instance {
    let mut it = instance();
    change(&mut it);
    it
}

/// What became of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The frame as it goes on.
    Translated {
        frame: Vec<u8>,
        vrf: VrfId,
        hairpin: bool,
        created: bool,
    },
    Untouched,
    Drop(Reason),
    Held,
}

impl Outcome {
    /// The translated frame; a panic tells what happened instead.
    #[track_caller]
    pub fn frame(self) -> Vec<u8> {
        match self {
            Self::Translated { frame, .. } => frame,
            other => panic!("not translated: {other:?}"),
        }
    }
}

/// A NAT with its clock.
pub struct World {
    pub nats: Vec<Nat>,
    pub now: Now,
    pub policy: Arc<NatPolicy>,
    /// Does an untranslated packet to this address leave by an outside interface?
    pub routed_outside: fn(VrfId, u32) -> bool,
    pub events: Vec<NatEvent>,
}

pub const SMALL: Capacity = Capacity {
    sessions: 4_096,
    mappings: 4_096,
    subscribers: 1_024,
    hosts: 1_024,
    fragments: 16,
    held_fragments: 16,
    held_syns: 16,
    controls: 64,
};

pub fn world(instance: Instance) -> World {
    World::new(vec![instance], 1, SMALL)
}

impl World {
    pub fn new(instances: Vec<Instance>, workers: u8, capacity: Capacity) -> Self {
        let policy = Arc::new(NatPolicy { instances, port_control: true });
        let now = Now::from_s(1_000);
        let group = WorkerGroup::new(workers, [1, 2, 3, 4]);
        let nats = (0..workers)
            .map(|worker| {
                let pages = PagePreference::Small;
                Nat::new(WorkerId(worker), group.clone(), capacity, pages, policy.clone(), now).unwrap()
            })
            .collect();
        // Everything but 10.0.0.0/8 and 172.16.0.0/12 is outside.
        let routed_outside = |_, ip: u32| ip >> 24 != 10 && ip >> 20 != 0xac1;
        Self { nats, now, policy, routed_outside, events: vec![] }
    }

    /// The worker that a packet is steered to, as the pipeline steers.
    pub fn owner(&self, flow: &Flow, direction: Direction, frame: &[u8]) -> usize {
        let directory = self.nats[0].directory();
        let flow = if flow.kind == Kind::IcmpError {
            frames::parse_quoted(flow, frame).unwrap_or(*flow)
        } else {
            *flow
        };
        let local = flow.local(direction);
        let owner = match direction {
            Direction::Out => Some(directory.owner_of_inside(flow.vrf, local.ip)),
            Direction::In => directory.owner_of_outside(flow.vrf, local.ip, flow.proto as u8, local.port),
        };
        owner.map_or(0, |w| w.index())
    }

    /// One packet through the worker that owns it.
    pub fn send_flow(&mut self, flow: &Flow, direction: Direction, frame: &[u8]) -> Outcome {
        let at = self.owner(flow, direction, frame);
        let mut bytes = frame.to_vec();
        let nat = &mut self.nats[at];
        let hash = nat.hash(flow, direction);
        let line = nat.prefetch_line(hash);
        let verdict = nat.process(flow, direction, hash, line, &mut bytes, self.now, self.routed_outside);
        match verdict {
            Verdict::Translated { vrf, hairpin, created, .. } => {
                check::checksums(&bytes, flow);
                check::only_translated(frame, &bytes, flow, direction);
                Outcome::Translated { frame: bytes, vrf, hairpin, created }
            }
            other => {
                assert_eq!(bytes, frame, "the frame is changed only when translated");
                match other {
                    Verdict::Untouched => Outcome::Untouched,
                    Verdict::Held => Outcome::Held,
                    Verdict::Drop(reason) => Outcome::Drop(reason),
                    Verdict::Translated { .. } | Verdict::Crosses { .. } => unreachable!(),
                }
            }
        }
    }

    pub fn send(&mut self, vrf: u16, direction: Direction, frame: &[u8]) -> Outcome {
        self.send_flow(&parse(frame, VrfId(vrf), direction), direction, frame)
    }

    /// From inside (VRF 0), and where it hairpins, in again: what the other subscriber gets.
    pub fn out(&mut self, frame: &[u8]) -> Outcome {
        match self.send(0, Direction::Out, frame) {
            Outcome::Translated { frame, vrf, hairpin: true, .. } => self.send(vrf.0, Direction::In, &frame),
            other => other,
        }
    }

    /// From outside (VRF 1).
    pub fn incoming(&mut self, frame: &[u8]) -> Outcome {
        self.send(1, Direction::In, frame)
    }

    /// A UDP datagram from inside: its outside endpoint, or why not.
    #[track_caller]
    pub fn udp_out(&mut self, inside: &str, remote: &str) -> Result<Endpoint, Reason> {
        self.send_out(&frames::udp(e(inside), e(remote)))
    }

    /// A UDP datagram from outside: who inside gets it, or why nobody.
    #[track_caller]
    pub fn udp_in(&mut self, remote: &str, outside: Endpoint) -> Result<Endpoint, Reason> {
        self.send_in(&frames::udp(e(remote), outside))
    }

    #[track_caller]
    pub fn tcp_out(&mut self, inside: &str, remote: &str, flags: u8) -> Result<Endpoint, Reason> {
        self.send_out(&frames::tcp(e(inside), e(remote), flags))
    }

    #[track_caller]
    pub fn tcp_in(&mut self, remote: &str, outside: Endpoint, flags: u8) -> Result<Endpoint, Reason> {
        self.send_in(&frames::tcp(e(remote), outside, flags))
    }

    /// An echo request from `inside` (address and identifier): the outside address and identifier.
    #[track_caller]
    pub fn ping_out(&mut self, inside: &str, remote: &str) -> Result<Endpoint, Reason> {
        self.send_out(&frames::echo(e(inside), e(remote).ip))
    }

    /// An echo reply to `outside`.
    #[track_caller]
    pub fn pong_in(&mut self, remote: &str, outside: Endpoint) -> Result<Endpoint, Reason> {
        self.send_in(&frames::echo_reply(e(remote).ip, outside))
    }

    /// A whole packet from inside: its translated source.
    #[track_caller]
    pub fn send_out(&mut self, frame: &[u8]) -> Result<Endpoint, Reason> {
        match self.send(0, Direction::Out, frame) {
            Outcome::Translated { frame, .. } => Ok(outer(&frame).source),
            Outcome::Drop(reason) => Err(reason),
            other => panic!("neither translated nor dropped: {other:?}"),
        }
    }

    /// A whole packet from outside: its translated destination.
    #[track_caller]
    pub fn send_in(&mut self, frame: &[u8]) -> Result<Endpoint, Reason> {
        match self.incoming(frame) {
            Outcome::Translated { frame, .. } => Ok(outer(&frame).destination),
            Outcome::Drop(reason) => Err(reason),
            other => panic!("neither translated nor dropped: {other:?}"),
        }
    }

    /// Opens a TCP connection from inside.
    #[track_caller]
    pub fn connect(&mut self, inside: &str, remote: &str) -> Endpoint {
        let outside = self.tcp_out(inside, remote, SYN).unwrap();
        assert_eq!(self.tcp_in(remote, outside, SYN | ACK), Ok(e(inside)));
        assert_eq!(self.tcp_out(inside, remote, ACK), Ok(outside));
        outside
    }

    /// Lets seconds go by, the engine doing its work.
    pub fn wait(&mut self, seconds: u64) {
        for _ in 0..seconds * 20 {
            self.now = self.now.plus_ns(50_000_000);
            for nat in &mut self.nats {
                nat.expire(self.now);
            }
        }
        self.take_events();
    }

    pub fn take_events(&mut self) {
        for nat in &mut self.nats {
            let waiting = nat.events(self.now);
            let count = waiting.len();
            self.events.extend(waiting.iter().map(|news| news.event));
            nat.take_events(count);
        }
    }

    pub fn overdue(&mut self) -> Vec<OverdueSyn> {
        let now = self.now;
        self.nats.iter_mut().flat_map(|n| std::iter::from_fn(|| n.next_overdue_syn(now))).collect()
    }

    /// Takes new instances into force; how many sessions ended.
    pub fn configure(&mut self, instances: Vec<Instance>) -> u64 {
        self.policy = Arc::new(NatPolicy { instances, port_control: true });
        let mut ended = 0;
        for nat in &mut self.nats {
            ended += nat.configure(self.policy.clone(), self.now).unwrap();
        }
        self.take_events();
        ended
    }

    pub fn sessions(&mut self) -> Vec<SessionRow> {
        let (mut rows, now) = (vec![], self.now);
        for nat in &mut self.nats {
            let each = |row| {
                rows.push(row);
                true
            };
            assert!(nat.walk_sessions(&mut Cursor(0), usize::MAX, &Filter::default(), false, now, each));
        }
        rows
    }

    pub fn mappings(&self) -> Vec<MappingRow> {
        let mut rows = vec![];
        for nat in &self.nats {
            assert!(nat.walk_mappings(&mut Cursor(0), usize::MAX, &Filter::default(), |row| {
                rows.push(row);
                true
            }));
        }
        rows
    }

    pub fn subscribers(&self) -> Vec<SubscriberRow> {
        let mut rows = vec![];
        for nat in &self.nats {
            assert!(nat.walk_subscribers(&mut Cursor(0), usize::MAX, &Filter::default(), |row| {
                rows.push(row);
                true
            }));
        }
        rows
    }

    pub fn pools(&self) -> Vec<PoolRow> {
        let mut rows = vec![];
        for nat in &self.nats {
            assert!(nat.walk_pools(&mut Cursor(0), usize::MAX, |row| {
                rows.push(row);
                true
            }));
        }
        rows
    }

    pub fn session_count(&self) -> usize {
        self.nats.iter().map(Nat::session_count).sum()
    }
}

/// The line number that means "look it up".
pub const LOOK_UP: u32 = NO_LINE;
