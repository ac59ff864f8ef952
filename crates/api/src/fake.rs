//! A daemon that is not there: fixed, small answers for tests of server, client and command line.

use core::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use carrack_base::Reason;
use carrack_base::counters::Accounts;

use crate::backend::{Backend, Rows, Step};
use crate::failure::Failure;
use crate::filter::{
    DeterministicQuery, EventQuery, PacketQuery, PortMappingDelete, PortMappingQuery, RowFilter,
};
use crate::types::{
    AddressMapping, AddressShare, AddressState, Behaviour, Block, CapturedPacket, ConfigText, Counters,
    Deleted, Deterministic, DropCount, EngineCounter, Event, Graph, GraphNode, Health, Instance, Interface,
    Mapping, Memory, NamedCount, Neighbour, PoolAddress, PortMapping, ReloadChange, ReloadReport, Route,
    Session, SessionKey, StageClocks, StateCount, Subscriber, Thread, TraceRecord, Translator, Version,
    Worker,
};

/// A backend with fixed answers.
pub struct Fake {
    /// How many sessions it pretends to have.
    pub sessions: u64,
    /// A session list breaks off with a failure after so many rows.
    pub sessions_fail_after: Option<u64>,
    /// What the next reload answers.
    pub reload: Mutex<ReloadReport>,
    /// Captures and traces go on until the client goes away.
    pub endless: bool,
    /// The filters of deletions, as query strings, and batches as `batch N`.
    pub deletions: Mutex<Vec<String>>,
    /// Rows handed out by all streams so far.
    pub rows_made: std::sync::Arc<AtomicU64>,
    /// Streams open now.
    pub streams_open: std::sync::Arc<AtomicU64>,
}

impl Default for Fake {
    fn default() -> Self {
        let change = |path: &str, from: &str, to: &str, effect: &str, detail: &str| ReloadChange {
            path: path.into(),
            from: from.into(),
            to: to.into(),
            effect: effect.into(),
            detail: detail.into(),
        };
        let reload = ReloadReport {
            applied: true,
            generation: 2,
            changes: vec![
                change("nat.cgn1.timeouts.udp", "300 s", "120 s", "in-place", ""),
                change(
                    "nat.cgn1.pool.p1.addresses",
                    "198.51.100.0/30",
                    "198.51.100.0/31",
                    "re-derived",
                    "pool p1",
                ),
            ],
            sessions_ended: 1_200,
            messages: Vec::new(),
        };
        Self {
            sessions: 3,
            sessions_fail_after: None,
            reload: Mutex::new(reload),
            endless: false,
            deletions: Mutex::default(),
            rows_made: std::sync::Arc::default(),
            streams_open: std::sync::Arc::default(),
        }
    }
}

/// Counts rows and open streams on their way out.
struct Counted<T> {
    rows: Box<dyn Iterator<Item = Result<Step<T>, Failure>> + Send>,
    made: std::sync::Arc<AtomicU64>,
    open: std::sync::Arc<AtomicU64>,
}

impl<T> Iterator for Counted<T> {
    type Item = Result<Step<T>, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.made.fetch_add(1, Ordering::Relaxed);
        self.rows.next()
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Fake {
    fn stream<T: 'static>(
        &self,
        rows: impl Iterator<Item = Result<Step<T>, Failure>> + Send + 'static,
    ) -> Rows<T> {
        self.streams_open.fetch_add(1, Ordering::Relaxed);
        Box::new(Counted {
            rows: Box::new(rows),
            made: self.rows_made.clone(),
            open: self.streams_open.clone(),
        })
    }

    /// The rows, and after them silence for ever when the fake is endless.
    fn live<T: Send + 'static>(&self, rows: Vec<T>) -> Rows<T> {
        let silence = core::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            Ok(Step::Idle)
        });
        let rest = if self.endless { usize::MAX } else { 0 };
        self.stream(rows.into_iter().map(|row| Ok(Step::Row(row))).chain(silence.take(rest)))
    }
}

/// The `n`th pretended session.
#[must_use]
pub fn session(n: u64) -> Session {
    let n = n as u32;
    let tcp = n.is_multiple_of(3);
    Session {
        instance: "cgn1".into(),
        protocol: if tcp { "tcp" } else { "udp" }.into(),
        ip_protocol: if tcp { 6 } else { 17 },
        tcp_state: if tcp { "established" } else { "-" }.into(),
        direction: "out".into(),
        inside: Ipv4Addr::from(0x6440_0005 + n / 1_000).into(),
        inside_port: 40_000 + (n % 1_000) as u16,
        outside: Ipv4Addr::from(0xc633_6401),
        outside_port: 1_024 + (n % 60_000) as u16,
        remote: Ipv4Addr::from(0xcb00_710a),
        remote6: None,
        remote_port: if tcp { 443 } else { 53 },
        idle_s: n % 100,
        expires_s: if tcp { 7_440 } else { 300 },
        packets_out: n.wrapping_mul(1_111),
        packets_in: n.wrapping_mul(7),
        worker: (n % 2) as u8,
    }
}

/// The frame of the pretended capture: Ethernet, IPv4, UDP.
pub const FRAME: [u8; 46] = [
    2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 32, 0, 1, 0, 0, 64, 17, 0x3b, 0x8c, 100, 64, 0, 5,
    203, 0, 113, 10, 0x9c, 0x40, 0, 53, 0, 12, 0, 0, b'p', b'i', b'n', b'g',
];

impl Backend for Fake {
    fn version(&self) -> Version {
        Version { name: "carrack".into(), version: "0.1.0".into(), pid: 4_242, system: "fake".into() }
    }

    fn health(&self) -> Health {
        Health { status: "ok".into(), uptime_s: 3_725, generation: 1, workers: 2, problems: Vec::new() }
    }

    fn interfaces(&self) -> Result<Vec<Interface>, Failure> {
        let inside = Interface {
            name: "inside".into(),
            device: "af_packet:veth0".into(),
            side: "inside".into(),
            vrf: "default".into(),
            up: true,
            link: true,
            mac: "02:00:00:00:00:01".into(),
            mtu: 1_500,
            addresses: vec!["100.64.0.1/24".into(), "2001:db8:1::1/64".into(), "fe80::1/64".into()],
            address_states: vec![
                AddressState {
                    address: Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1),
                    state: "duplicate".into(),
                    held_by: Some("02:00:00:00:00:77".into()),
                },
                AddressState {
                    address: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
                    state: "preferred".into(),
                    held_by: None,
                },
            ],
            rx_packets: 1_234_567,
            rx_bytes: 123_456_789,
            tx_packets: 98_765,
            ..Interface::default()
        };
        let outside = Interface {
            name: "outside".into(),
            side: "outside".into(),
            vlan: "100".into(),
            link: false,
            link_resumed: 3,
            rx_nombuf: 2,
            tx_errors: 1_001,
            mac: "02:00:00:00:00:02".into(),
            addresses: vec!["192.0.2.2/30".into(), "192.0.2.6/30".into()],
            address_states: vec![],
            ..inside.clone()
        };
        Ok(vec![inside, outside])
    }

    fn neighbours(&self) -> Result<Vec<Neighbour>, Failure> {
        Ok(vec![Neighbour {
            interface: "outside".into(),
            address: Ipv4Addr::new(192, 0, 2, 1).into(),
            mac: "02:00:00:00:00:09".into(),
            state: "reachable".into(),
            age_s: 75,
        }])
    }

    fn routes(&self) -> Result<Rows<Route>, Failure> {
        let route = |prefix: &str, kind: &str, gateway: Option<Ipv4Addr>| {
            Ok(Step::Row(Route {
                vrf: "default".into(),
                prefix: prefix.into(),
                kind: kind.into(),
                gateway: gateway.map(Into::into),
                interface: Some("outside".into()),
                translator: None,
            }))
        };
        let nat64 = Ok(Step::Row(Route {
            vrf: "default".into(),
            prefix: "64:ff9b::/96".into(),
            kind: "translate".into(),
            gateway: None,
            interface: None,
            translator: Some("cgn1".into()),
        }));
        let gateway = Some(Ipv4Addr::new(192, 0, 2, 1));
        Ok(self.stream(
            [route("0.0.0.0/0", "static", gateway), route("192.0.2.0/30", "connected", None), nat64]
                .into_iter(),
        ))
    }

    fn pools(&self, filter: &RowFilter) -> Result<Vec<PoolAddress>, Failure> {
        known_instance(filter.instance.as_deref())?;
        Ok(vec![PoolAddress {
            instance: "cgn1".into(),
            pool: "p1".into(),
            address: Ipv4Addr::new(198, 51, 100, 1),
            subscribers: 12,
            ports_total: 64_512,
            ports_used_tcp: 1_200,
            ports_used_udp: 300,
            ports_used_icmp: 2,
            blocks_total: 126,
            blocks_used: 13,
        }])
    }

    fn subscribers(&self, filter: &RowFilter) -> Result<Rows<Subscriber>, Failure> {
        known_instance(filter.instance.as_deref())?;
        let outside = Ipv4Addr::new(198, 51, 100, 1);
        let four = Subscriber {
            instance: "cgn1".into(),
            inside: Ipv4Addr::new(100, 64, 0, 5).into(),
            inside_prefix_length: 32,
            outside: Some(outside),
            sessions: 1_100,
            mappings_tcp: 700,
            mappings_udp: 40,
            mappings_icmp: 1,
            mappings_other: 0,
            blocks: vec![
                Block { address: outside, first: 1_024, last: 1_535 },
                Block { address: outside, first: 4_096, last: 4_607 },
            ],
            worker: 0,
        };
        let six = Subscriber {
            inside: Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 0).into(),
            inside_prefix_length: 56,
            blocks: vec![Block { address: outside, first: 8_192, last: 8_703 }],
            ..four.clone()
        };
        Ok(self.live(vec![four, six]))
    }

    fn mappings(&self, filter: &RowFilter) -> Result<Rows<Mapping>, Failure> {
        known_instance(filter.instance.as_deref())?;
        let mapping = |n: u16, kind: &str| Mapping {
            instance: "cgn1".into(),
            protocol: "udp".into(),
            inside: Ipv4Addr::new(100, 64, 0, 5).into(),
            inside_port: 40_000 + n,
            outside: Ipv4Addr::new(198, 51, 100, 1),
            outside_port: 1_024 + n,
            sessions: 1_000 * u32::from(n),
            nat64_prefix: None,
            kind: kind.into(),
            worker: 0,
        };
        let six = Mapping {
            inside: Ipv6Addr::new(0x2001, 0xdb8, 0x100, 0, 0, 0, 0, 5).into(),
            nat64_prefix: Some("64:ff9b::/96".into()),
            ..mapping(2, "dynamic")
        };
        // Asked for IPv4 alone, there is no column of prefixes.
        let only_four = filter.inside.is_some_and(|inside| !inside.contains(six.inside));
        let four = [mapping(0, "static"), mapping(1, "dynamic")];
        Ok(self.live(four.into_iter().chain((!only_four).then_some(six)).collect()))
    }

    fn sessions(&self, filter: &RowFilter) -> Result<Rows<Session>, Failure> {
        known_instance(filter.instance.as_deref())?;
        let inside = filter.inside;
        let limit = filter.limit.filter(|limit| *limit > 0).unwrap_or(u64::MAX) as usize;
        let rows = (0..self.sessions)
            .map(session)
            .filter(move |s| inside.is_none_or(|prefix| prefix.contains(s.inside)))
            .take(limit)
            .map(|row| Ok(Step::Row(row)));
        Ok(match self.sessions_fail_after {
            Some(n) => {
                let failure = Failure::unavailable("worker 1 is gone").hint("see the daemon's log");
                self.stream(rows.take(n as usize).chain([Err(failure)]))
            }
            None => self.stream(rows),
        })
    }

    fn delete_sessions(&self, filter: &RowFilter) -> Result<Deleted, Failure> {
        known_instance(filter.instance.as_deref())?;
        self.note(crate::params::Params::query(filter));
        Ok(Deleted { deleted: if filter.inside.is_some() { 0 } else { 1_234 } })
    }

    fn port_mappings(&self, query: &PortMappingQuery) -> Result<Vec<PortMapping>, Failure> {
        self.note(crate::params::Params::query(query));
        Ok(vec![PortMapping {
            instance: "cgn1".into(),
            protocol: "tcp".into(),
            kind: "map".into(),
            inside: Ipv4Addr::new(100, 64, 0, 5).into(),
            inside_port: 8_080,
            outside: Ipv4Addr::new(198, 51, 100, 7),
            outside_port: 40_112,
            ports: 1,
            remote: None,
            remote_port: None,
            filters: vec!["203.0.113.0/24".into()],
            asked_by: "pcp".into(),
            expires_s: 3_600,
        }])
    }

    fn delete_port_mappings(&self, query: &PortMappingDelete) -> Result<Deleted, Failure> {
        self.note(crate::params::Params::query(query));
        Ok(Deleted { deleted: if query.inside.is_some() { 0 } else { 2 } })
    }

    fn delete_session_keys(&self, keys: &[SessionKey]) -> Result<Deleted, Failure> {
        self.note(format!("batch {}", keys.len()));
        Ok(Deleted { deleted: keys.len() as u64 })
    }

    fn instances(&self) -> Result<Vec<Instance>, Failure> {
        Ok(vec![Instance {
            instance: "cgn1".into(),
            inside_vrf: "default".into(),
            outside_vrf: "default".into(),
            prefixes: vec!["64:ff9b::/96".into()],
            sources: vec!["2001:db8:100::/40".into()],
            ranges: vec!["198.51.100.0-198.51.100.15".into()],
            ports: "blocks".into(),
            block_size: 256,
            blocks_per_subscriber: 4,
            subscriber_prefix_length: Some(56),
            pooling: "paired".into(),
            behaviours: ["tcp", "udp", "icmp"]
                .map(|protocol| Behaviour {
                    protocol: protocol.into(),
                    mapping: "endpoint-independent".into(),
                    filtering: if protocol == "tcp" { "address-dependent" } else { "endpoint-independent" }
                        .into(),
                })
                .to_vec(),
            ports_udp_max: 12,
            creations_per_s: 20,
            creations_burst: 40,
            blocks_total: 4_032,
            blocks_used: 2,
            subscribers: 2,
            sessions: self.sessions,
            tcp_states: vec![
                StateCount { state: "established".into(), sessions: 2 },
                StateCount { state: "reset".into(), sessions: 0 },
            ],
            address_shares: vec![AddressShare { pool: "p1".into(), ports: 64_512, blocks: 252 }],
            subscribers_capacity: 65_536,
            sessions_capacity: 1_048_576,
            sessions_udp: 1,
            mappings_udp: 3,
            ..Instance::default()
        }])
    }

    fn translators(&self) -> Result<Vec<Translator>, Failure> {
        Ok(vec![Translator {
            name: "dc".into(),
            vrf: "default".into(),
            prefixes: vec!["2001:db8:46::/96".into()],
            ipv4: vec![],
            mappings: vec![AddressMapping { v4: "192.0.2.5/32".into(), v6: "2001:db8:1::5/128".into() }],
            packets_to_v6: 12,
            bytes_to_v6: 1_200,
            drops: vec![DropCount { reason: "siit-source-unmapped".into(), packets: 3 }],
            ..Translator::default()
        }])
    }

    fn deterministic(&self, query: &DeterministicQuery) -> Result<Vec<Deterministic>, Failure> {
        known_instance(query.instance.as_deref())?;
        Ok(vec![Deterministic {
            instance: "cgn1".into(),
            inside: query.inside.unwrap_or(Ipv4Addr::new(100, 64, 0, 5).into()),
            outside: query.outside.unwrap_or(Ipv4Addr::new(198, 51, 100, 1)),
            port_first: 1_024,
            port_last: 2_047,
        }])
    }

    fn memory(&self) -> Result<Vec<Memory>, Failure> {
        let row = |table: &str, used: u64, total: u64, bytes| Memory {
            socket: 0,
            table: table.into(),
            total,
            used,
            free: total - used,
            load_percent: used as f64 * 100.0 / total as f64,
            bytes,
            pages: "2M".into(),
        };
        Ok(vec![
            row("sessions", 1_100, 1_048_576, 67_108_864),
            row("session-index", 2_200, 2_330_168, 14_913_080),
            row("held-syns", 3, 4_096, 589_824),
            row("fragments", 12, 8_192, 1_048_576),
            row("held-fragments", 1, 1_024, 262_144),
            row("neighbours", 40, 16_384, 1_310_720),
            Memory { socket: 1, ..row("pool-addresses", 741, 3_096_576, 1_310_720) },
        ])
    }

    fn counters(&self) -> Result<Counters, Failure> {
        let mut first =
            Accounts { rx: 1_000_100, forwarded: 1_000_000, punted: 40, held: 1, ..Accounts::default() };
        first.drop_n(Reason::NatFiltered, 57);
        first.drop_n(Reason::NatPoolExhausted, 2);
        (first.rx_bytes, first.forwarded_bytes) = (64_006_400, 64_000_000);
        let second = Accounts { rx: 5, consumed: 5, ..Accounts::default() };
        let mut counters = Counters::from_accounts(&[first, second]);
        (counters.nic_missed, counters.nic_nombuf) = (3, 2);
        counters.engine = vec![
            EngineCounter {
                name: "capture-lost".into(),
                description: "Copies lost by captures.".into(),
                count: 9,
            },
            EngineCounter { name: "events-lost".into(), description: "Events lost.".into(), count: 0 },
        ];
        Ok(counters)
    }

    fn threads(&self) -> Result<Vec<Thread>, Failure> {
        let thread = |id, name: &str, role: &str, cpus: &str, last_cpu| Thread {
            id,
            name: name.into(),
            role: role.into(),
            cpus: cpus.into(),
            last_cpu: Some(last_cpu),
        };
        Ok(vec![
            thread(4_200, "carrack", "main", "0-1,8", 1),
            thread(4_203, "nat-worker-0", "nat-worker", "2", 2),
            thread(4_205, "carrack-control", "control", "0-1,8", 8),
            thread(4_206, "log0-flows", "exporter", "10", 10),
        ])
    }

    fn workers(&self) -> Result<Vec<Worker>, Failure> {
        let stage = |name: &str, clocks| StageClocks {
            stage: name.into(),
            packets: 1_000_000,
            clocks,
            clocks_per_packet: clocks as f64 / 1e6,
        };
        Ok(vec![Worker {
            worker: 0,
            state: "running".into(),
            thread: self.threads()?.into_iter().find(|thread| thread.name == "nat-worker-0"),
            generation: 1,
            bursts: 31_250,
            packets: 1_000_000,
            packets_per_burst: 32.0,
            clocks_per_packet: 131.5,
            idle_share: 0.255,
            sessions: 1_100,
            subscribers: 12,
            stages: vec![stage("parse", 21_000_000), stage("nat", 110_500_000)],
        }])
    }

    fn graph(&self) -> Result<Graph, Failure> {
        let node = |stage: &str, description: &str, packets, ended: &[(&str, u64)], drops: &[(&str, u64)]| {
            GraphNode {
                stage: stage.into(),
                description: description.into(),
                packets,
                ended: ended
                    .iter()
                    .map(|(name, count)| NamedCount { name: (*name).into(), count: *count })
                    .collect(),
                drops: drops
                    .iter()
                    .map(|(name, count)| NamedCount { name: (*name).into(), count: *count })
                    .collect(),
            }
        };
        Ok(Graph {
            stages: vec![
                node("rx", "Packets from the ports.", 1_000_100, &[], &[]),
                node("nat", "Sessions are found or made.", 1_000_100, &[], &[("nat-filtered", 57)]),
                node("tx", "Packets to the ports.", 1_000_000, &[("forwarded", 1_000_000)], &[]),
            ],
        })
    }

    fn events(&self, query: &EventQuery) -> Result<Vec<Event>, Failure> {
        let event = |sequence, kind: &str, text: &str| Event {
            sequence,
            unix_us: 1_700_000_000_000_000 + sequence,
            kind: kind.into(),
            instance: Some("cgn1".into()),
            severity: "info".into(),
            text: text.into(),
        };
        let all = vec![
            event(1, "block-allocated", "100.64.0.5 got 198.51.100.1:1024-1535"),
            event(2, "refused", "57 mappings refused: nat-pool-exhausted"),
        ];
        let after = query.after.unwrap_or(0);
        let kind = query.kind.clone();
        Ok(all
            .into_iter()
            .filter(|e| e.sequence > after && kind.as_ref().is_none_or(|k| *k == e.kind))
            .collect())
    }

    fn capture(&self, query: &PacketQuery) -> Result<Rows<CapturedPacket>, Failure> {
        let packet = |n: u64, point, reason| CapturedPacket {
            unix_ns: 1_700_000_000_123_456_789 + n,
            interface: "inside".into(),
            point,
            reason,
            original_len: FRAME.len() as u32,
            lost: 0,
            bytes: FRAME.to_vec(),
        };
        let mut packets = vec![packet(0, "rx", None), packet(1, "tx", None)];
        packets.push(packet(2, "drop", Some(Reason::NatFiltered)));
        packets.push(CapturedPacket { lost: 7, ..packet(3, "drop", Some(Reason::NatPoolExhausted)) });
        packets.retain(|p| query.drops_only != Some(true) || p.reason.is_some());
        packets.retain(|p| query.reason.is_none() || p.reason == query.reason);
        packets.truncate(query.count.unwrap_or(u64::MAX) as usize);
        Ok(self.live(packets))
    }

    fn trace(&self, query: &PacketQuery) -> Result<Rows<TraceRecord>, Failure> {
        if let Some(name) = query.interface.as_deref().filter(|name| *name != "inside" && *name != "outside")
        {
            return Err(Failure::not_found(format!("no interface `{name}`")).hint("did you mean `inside`?"));
        }
        let step = |packet, stage: &str, outcome: &str, detail: &str| TraceRecord {
            worker: 0,
            packet,
            unix_ns: 1_700_000_000_123_456_789,
            stage: stage.into(),
            interface: "inside".into(),
            outcome: outcome.into(),
            detail: detail.into(),
            summary: "100.64.0.5:40000 > 203.0.113.10:53 udp".into(),
            len: 46,
            bytes: "02000000000102000000000208004500002000010000".into(),
        };
        Ok(self.live(vec![
            step(1, "parse", "next", ""),
            step(1, "nat", "session-created", "line 7"),
            step(1, "tx", "sent", "outside"),
            step(2, "parse", "next", ""),
            step(2, "nat", "dropped", "nat-filtered"),
        ]))
    }

    fn config(&self) -> Result<ConfigText, Failure> {
        Ok(ConfigText {
            path: "/etc/carrack.toml".into(),
            generation: 1,
            toml: "[system]\nname = \"fake\"\n".into(),
        })
    }

    fn reload(&self) -> Result<ReloadReport, Failure> {
        self.reload.lock().map(|report| report.clone()).map_err(|_| Failure::internal("poisoned"))
    }
}

impl Fake {
    fn note(&self, what: String) {
        if let Ok(mut deletions) = self.deletions.lock() {
            deletions.push(what);
        }
    }
}

fn known_instance(name: Option<&str>) -> Result<(), Failure> {
    match name {
        None | Some("cgn1") => Ok(()),
        Some(other) => {
            Err(Failure::not_found(format!("no NAT instance `{other}`")).hint("did you mean `cgn1`?"))
        }
    }
}
