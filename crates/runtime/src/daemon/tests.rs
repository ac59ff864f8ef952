//! Whole daemons over in-process ports: config in, packets through, questions answered.

use std::net::Ipv4Addr;

use carrack_frame::FramePool;
use carrack_host::OwnUse;
use carrack_nat::row::{Filter, SessionKey};
use carrack_pipeline::mailbox::{PacketFilter, TraceOutcome};
use carrack_wire::arp::{ArpPacket, Operation};
use carrack_wire::build::PacketBuilder;
use carrack_wire::ndp::{ALL_NODES, NdpMessage, multicast_mac};
use carrack_wire::{Ipv4View, MacAddr, UdpView};

use super::*;
use crate::event_log::{AddressEvent, Happened};
use crate::request::{CaptureSpec, TraceSpec};
use crate::stream::Next;

const INSIDE_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0]);
const SUBSCRIBER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 1]);
const GATEWAY_MAC: MacAddr = MacAddr([2, 0, 0, 0, 1, 2]);
const SUBSCRIBER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 5);

const NETWORK: &str = r#"
[[interface]]
name = "inside"
device = "INSIDE"
side = "inside"
address = ["10.0.0.1/24"]

[[interface]]
name = "outside"
device = "OUTSIDE"
side = "outside"
address = ["192.0.2.1/24"]

[[route]]
prefix = "0.0.0.0/0"
via = "192.0.2.254"

[[nat]]
name = "cgn"
subscribers = ["10.0.0.0/24"]

[[nat.pool]]
name = "public"
addresses = ["192.0.2.16-192.0.2.19"]
"#;

fn config_text(run_dir: &Path, workers: u8, inside: &str, outside: &str) -> String {
    let network = NETWORK.replace("INSIDE", inside).replace("OUTSIDE", outside);
    format!(
        "[system]\nrun_dir = \"{}\"\n[workers]\ncount = {workers}\n[memory]\nhuge_pages = \"off\"\nframes = 8_192\n\
         sessions = 65_536\nmappings = 65_536\nsubscribers = 1_024\n{network}",
        run_dir.display()
    )
}

struct Rig {
    runtime: Runtime,
    inside: MemPeer,
    outside: MemPeer,
    pool: MemPool,
    dir: tempfile::TempDir,
}

fn rig(workers: u8) -> Rig {
    rig_of(workers, |text| text)
}

/// The same by another configuration.
fn rig_of(workers: u8, edit: impl FnOnce(String) -> String) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("carrack.toml");
    std::fs::write(&path, edit(config_text(dir.path(), workers, "mem:lan", "mem:wan"))).unwrap();
    let mut runtime = Runtime::start(&path, RunOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let (inside, outside) = (runtime.mem_peer("lan").unwrap(), runtime.mem_peer("wan").unwrap());
    let pool = runtime.mem_pool().unwrap();
    Rig { runtime, inside, outside, pool, dir }
}

fn wait_for(happens: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !happens() {
        assert!(Instant::now() < deadline, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The next packet that `wanted` likes.
fn next(peer: &mut MemPeer, pool: &mut MemPool, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        let packets = peer.collect_bytes(pool);
        if let Some(packet) = packets.into_iter().find(|packet| wanted(packet)) {
            return packet;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the expected packet did not come")
}

fn arp_with(packet: &[u8], operation: Operation) -> Option<ArpPacket> {
    let arp = (packet.get(12..14) == Some(&[8, 6])).then(|| ArpPacket::parse(&packet[14..]).ok())??;
    (arp.operation == operation && !arp.is_gratuitous()).then_some(arp)
}

fn is_ipv4(packet: &[u8]) -> bool {
    packet.get(12..14) == Some(&[8, 0])
}

impl Rig {
    fn arp(&mut self, operation: Operation, mac: MacAddr, ip: Ipv4Addr, target: Ipv4Addr, outside: bool) {
        let arp = ArpPacket { operation, ..ArpPacket::request(mac, ip.into(), target.into()) };
        let head = PacketBuilder::new().ethernet(mac, MacAddr::BROADCAST).ethertype(0x0806);
        let bytes = arp.to_bytes();
        let packet = head.payload(&bytes).padded().build();
        let peer = if outside { &mut self.outside } else { &mut self.inside };
        assert!(peer.inject_bytes(&mut self.pool, &packet));
    }

    /// Sends a datagram from the subscriber and answers the router's question for its gateway.
    fn udp_out(&mut self, port: u16) -> Vec<u8> {
        let packet = PacketBuilder::new()
            .ethernet(SUBSCRIBER_MAC, INSIDE_MAC)
            .ipv4(SUBSCRIBER, SERVER)
            .udp(port, 53)
            .payload(b"question")
            .build();
        assert!(self.inside.inject_bytes(&mut self.pool, &packet));
        let first = next(&mut self.outside, &mut self.pool, |packet| {
            is_ipv4(packet) || arp_with(packet, Operation::Request).is_some()
        });
        if is_ipv4(&first) {
            return first;
        }
        let question = arp_with(&first, Operation::Request).unwrap();
        assert_eq!(question.target_ip, u32::from(GATEWAY));
        let router = Ipv4Addr::from(question.sender_ip);
        self.arp(Operation::Reply, GATEWAY_MAC, GATEWAY, router, true);
        next(&mut self.outside, &mut self.pool, is_ipv4)
    }

    /// Waits until every worker has said what it did last.
    fn settled_balance(&self) {
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(20));
        loop {
            let counters = self.runtime.handle().counters();
            if counters.balance == 0 {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{counters:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn arp_and_ping_to_the_router_are_answered_with_one_worker_and_with_two() {
    for workers in [1, 2] {
        let mut rig = rig(workers);
        rig.arp(Operation::Request, SUBSCRIBER_MAC, SUBSCRIBER, ROUTER, false);
        let answer = next(&mut rig.inside, &mut rig.pool, |p| arp_with(p, Operation::Reply).is_some());
        assert_eq!(arp_with(&answer, Operation::Reply).unwrap().sender_mac, INSIDE_MAC);
        let ping = PacketBuilder::new()
            .ethernet(SUBSCRIBER_MAC, INSIDE_MAC)
            .ipv4(SUBSCRIBER, ROUTER)
            .echo_request(7, 1)
            .payload(b"hello")
            .build();
        assert!(rig.inside.inject_bytes(&mut rig.pool, &ping));
        let reply = next(&mut rig.inside, &mut rig.pool, is_ipv4);
        let reply = Ipv4View::parse(&reply[14..]).unwrap();
        assert_eq!((reply.src_addr(), reply.dst_addr(), reply.payload()[0]), (ROUTER, SUBSCRIBER, 0));
        let neighbours = rig.runtime.handle().neighbours().unwrap();
        assert!(neighbours.iter().any(|row| row.ip == SUBSCRIBER));
        rig.settled_balance();
    }
}

#[test]
fn a_ping_as_long_as_a_packet_buffer_is_answered_with_all_its_data() {
    let mut rig = rig_of(1, |text| text.replace("frames = 8_192", "frames = 8_192\nframe_bytes = 9_728"));
    let data: Vec<u8> = (0..8_972).map(|at| (at % 251) as u8).collect();
    let ping = PacketBuilder::new()
        .ethernet(SUBSCRIBER_MAC, INSIDE_MAC)
        .ipv4(SUBSCRIBER, ROUTER)
        .echo_request(7, 1)
        .payload(&data)
        .build();
    assert!(rig.inside.inject_bytes(&mut rig.pool, &ping));
    // The link says that it takes 1,500.
    let (mut told, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
    while told.len() < 8 + data.len() && Instant::now() < deadline {
        for piece in rig.inside.collect_bytes(&mut rig.pool).iter().filter(|packet| is_ipv4(packet)) {
            told.extend_from_slice(Ipv4View::parse(&piece[14..]).unwrap().payload());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(told.len() == 8 + data.len() && told[0] == 0 && told[8..] == data, "{}", told.len());
    rig.settled_balance();
}

#[test]
fn pool_addresses_are_answered_for_on_the_outside() {
    let mut rig = rig(1);
    rig.arp(Operation::Request, GATEWAY_MAC, GATEWAY, Ipv4Addr::new(192, 0, 2, 17), true);
    next(&mut rig.outside, &mut rig.pool, |p| arp_with(p, Operation::Reply).is_some());
}

/// RFC 4862 §5.4: a duplicate is not assigned, and management is told ("a system management error").
#[test]
fn a_duplicate_address_is_seen_in_the_list_of_interfaces_and_among_events() {
    let own: std::net::Ipv6Addr = "2001:db8:1::1".parse().unwrap();
    let address = "address = [\"10.0.0.1/24\"";
    let mut rig = rig_of(1, |text| text.replace(address, &format!("{address}, \"{own}/64\"")));
    let handle = rig.runtime.handle();
    let state = || {
        let rows = handle.interfaces();
        rows[0].own6.iter().find(|row| row.ip == own).map(|row| row.state)
    };
    wait_for(|| state() == Some(OwnUse::Tentative));
    let claim = NdpMessage::NeighbourAdvertisement {
        target: own.into(),
        router: false,
        solicited: false,
        replaces: true,
        target_mac: Some(SUBSCRIBER_MAC),
    };
    let bytes = claim.packet(own.into(), ALL_NODES);
    let head = PacketBuilder::new().ethernet(SUBSCRIBER_MAC, multicast_mac(ALL_NODES)).ethertype(0x86dd);
    assert!(rig.inside.inject_bytes(&mut rig.pool, &head.payload(&bytes).build()));
    wait_for(|| state() == Some(OwnUse::Duplicate(SUBSCRIBER_MAC)));
    let events = handle.events(0, 10, Duration::from_secs(5)).events;
    let expected = AddressEvent {
        interface: handle.interfaces()[0].interface.id,
        ip: own.into(),
        mac: SUBSCRIBER_MAC,
        is_unused: true,
    };
    assert_eq!(events.iter().map(|e| e.event).collect::<Vec<_>>(), [Happened::Address(expected)]);
    // The link-local address was not claimed and comes into use.
    wait_for(|| handle.interfaces()[0].own6.iter().any(|row| row.state == OwnUse::Preferred));
}

#[test]
fn subscriber_is_translated_listed_and_cleared_with_one_worker_and_with_two() {
    for workers in [1, 2] {
        let mut rig = rig(workers);
        let handle = rig.runtime.handle();
        let out = rig.udp_out(4_000);
        let out = Ipv4View::parse(&out[14..]).unwrap();
        assert!((16..20).contains(&out.src_addr().octets()[3]) && out.dst_addr() == SERVER);
        let outside_port = UdpView::parse(out.payload()).unwrap().src_port();
        rig.udp_out(4_001);
        let rows: Vec<_> = handle.sessions(Filter::default(), 0).unwrap().collect();
        assert_eq!(rows.len(), 2);
        let (_, row) = rows.iter().find(|(_, row)| row.inside.port == 4_000).unwrap();
        assert_eq!((row.inside.ip, row.outside.port), (SUBSCRIBER.into(), outside_port));
        assert_eq!(handle.mappings(Filter::default(), 0).unwrap().count(), 2);
        assert_eq!(handle.subscribers(Filter::default(), 0).unwrap().count(), 1);
        assert_eq!(handle.pools().unwrap().len(), 4);
        let key =
            SessionKey { instance: row.instance, proto: row.proto, inside: row.inside, remote: row.remote };
        assert_eq!(handle.delete_sessions(vec![key, key]), Ok(1));
        let filter = Filter { inside_port: Some(4_001), ..Filter::default() };
        assert_eq!(handle.clear_sessions(filter), Ok(1));
        assert_eq!(handle.sessions(Filter::default(), 0).unwrap().count(), 0);
        assert_eq!(handle.workers().iter().map(|worker| worker.stats.packets > 0).filter(|w| *w).count(), 1);
        rig.settled_balance();
    }
}

#[test]
fn worker_that_polls_no_port_translates_and_sends_all_the_same() {
    const SUBSCRIBERS: u8 = 64;
    let mut rig = rig(2);
    rig.udp_out(4_000);
    for host in 0..SUBSCRIBERS {
        let packet = PacketBuilder::new()
            .ethernet(SUBSCRIBER_MAC, INSIDE_MAC)
            .ipv4(Ipv4Addr::new(10, 0, 0, 100 + host), SERVER)
            .udp(5_000, 53)
            .build();
        assert!(rig.inside.inject_bytes(&mut rig.pool, &packet));
    }
    for _ in 0..SUBSCRIBERS {
        let deadline = Instant::now() + Duration::from_secs(10);
        while rig.outside.collect().map(|frame| rig.pool.free(frame)).is_none() {
            assert!(Instant::now() < deadline, "a packet is missing: {:?}", rig.runtime.handle().counters());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    rig.settled_balance();
    let counters = rig.runtime.handle().counters();
    let second = &counters.workers[1];
    assert!(second.rx == 0 && second.handed_in > 0 && second.forwarded > 0, "{second:?}");
    assert_eq!(counters.total.handed_in, counters.total.handed_out);
    assert_eq!(counters.total.dropped(), 0);
}

#[test]
fn capture_and_trace_show_a_packets_way() {
    let mut rig = rig(1);
    let handle = rig.runtime.handle();
    rig.udp_out(4_000);
    let filter = PacketFilter::default();
    let mut capture =
        handle.capture(CaptureSpec { filter, rx: true, tx: true, drops: true, packets_max: 2 }).unwrap();
    let mut trace = handle.trace(TraceSpec { filter, packets_max: 1 }).unwrap();
    rig.udp_out(4_001);
    let mut seen = Vec::new();
    while let Next::Item(_, slot) = capture.next_timeout(Duration::from_secs(5)) {
        seen.push(slot.interface);
    }
    assert_eq!(seen.len(), 2);
    assert_ne!(seen[0], seen[1]);
    let mut outcomes = Vec::new();
    while let Next::Item(_, step) = trace.next_timeout(Duration::from_secs(1)) {
        outcomes.push(step.outcome);
    }
    assert!(outcomes.iter().any(|outcome| matches!(outcome, TraceOutcome::Sent(_))), "{outcomes:?}");
}

#[test]
fn reload_applies_what_it_can_and_refuses_the_rest_whole() {
    let mut rig = rig(2);
    let handle = rig.runtime.handle();
    rig.udp_out(4_000);
    let path = rig.dir.path().join("carrack.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    let unchanged = handle.reload(None).unwrap();
    assert!(unchanged.changes.is_empty() && unchanged.generation == 1);

    let text = text.replace("[[nat.pool]]", "hairpinning = false\n[[nat.pool]]");
    std::fs::write(&path, &text).unwrap();
    let report = handle.reload(None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.generation, report.changes.len(), report.sessions_ended), (2, 1, 0));
    assert_eq!(report.changes[0].effect, Effect::InPlace);
    assert_eq!(handle.sessions(Filter::default(), 0).unwrap().count(), 1, "the session is unaffected");

    std::fs::write(&path, text.replace("192.0.2.16-192.0.2.19", "192.0.2.32-192.0.2.36")).unwrap();
    let report = handle.reload(None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((report.generation, report.changes.len(), report.sessions_ended), (3, 1, 1));
    assert_eq!(handle.pools().unwrap().len(), 5);

    std::fs::write(&path, text.replace("sessions = 65_536", "sessions = 131_072")).unwrap();
    let Err(ReloadError::NeedsRestart(changes)) = handle.reload(None) else { panic!("not refused") };
    assert_eq!(changes[0].path, "memory.sessions");
    std::fs::write(&path, text.replace("side = \"inside\"", "side = \"inisde\"")).unwrap();
    let Err(ReloadError::Config(errors)) = handle.reload(None) else { panic!("not refused") };
    assert!(errors[0].line > 0);
    assert_eq!((handle.generation(), handle.pools().unwrap().len()), (3, 5));
    assert!(handle.config().unwrap().1.contains("192.0.2.36"));
    rig.settled_balance();
}

#[test]
fn memory_interfaces_routes_and_budget_are_told() {
    let rig = rig(2);
    let handle = rig.runtime.handle();
    let memory = handle.memory().unwrap();
    assert!(memory.iter().any(|(worker, row)| worker.0 == 1 && row.table == "sessions"));
    let interfaces = handle.interfaces();
    assert_eq!(
        interfaces.iter().map(|row| row.interface.name.as_str()).collect::<Vec<_>>(),
        ["inside", "outside"]
    );
    assert!(!handle.routes().is_empty());
    assert!(rig.runtime.notices().iter().any(|notice| notice.starts_with("Memory of all tables")));
}

/// All tables that only some configurations need, and large ones.
fn config_of_everything(run_dir: &Path) -> String {
    let sizes = "sessions = 65_536\nhosts = 300_000\ngateway_connections = 60_000\nfragments = 90_000\n\
                 held_fragments = 50_000\nheld_syns = 60_000\nneighbours = 60_000";
    let nat = "[[nat]]\ngateways = [\"ftp\"]\nfiltering = \"address-dependent\"";
    let also = "[nat.port_control]\n[nat.nat64]\nprefixes = [\"64:ff9b::/96\"]\n\
                subscribers = [\"2001:db8:100::/40\"]\n[[nat.pool]]";
    config_text(run_dir, 2, "mem:lan", "mem:wan")
        .replace("sessions = 65_536", sizes)
        .replace("[[nat]]", nat)
        .replace("[[nat.pool]]", also)
}

#[test]
fn budget_counts_every_table_that_the_workers_then_have() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("carrack.toml");
    std::fs::write(&path, config_of_everything(&dir.path().join("run"))).unwrap();
    let config = Config::from_file(&path).unwrap_or_else(|errors| panic!("{}", errors[0])).0;
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).unwrap();
    let budget = Budget::of(&config, &compiled);
    let runtime = Runtime::start(&path, RunOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let rows = runtime.handle().memory().unwrap();
    for table in ["hosts", "permissions", "port-control", "gateway-connections", "fragments", "held-syns"] {
        assert!(rows.iter().any(|(_, row)| row.table == table && row.bytes >= 1 << 19), "{table}");
    }
    let taken: u64 = rows.iter().map(|(_, row)| row.bytes).sum();
    // What rings and stack are granted must not be what makes it fit.
    let granted = budget.workers * (budget.per_worker() - budget.rest);
    assert!(taken <= granted, "{taken} bytes taken, {granted} told");
    assert!(granted - taken < granted / 4, "{taken} bytes taken, {granted} told");
    let line = &runtime.notices()[0];
    assert!(line.contains("hosts ") && line.contains("gateways ") && line.contains("fragments "), "{line}");
}

#[test]
fn memory_is_near_its_worker_or_that_is_told() {
    let rig = rig(2);
    let rows = rig.runtime.handle().memory().unwrap();
    assert!(rows.is_sorted_by_key(|(worker, _)| *worker), "workers' tables are mixed");
    // One node: where the kernel tells it, it is that of all processors.
    let nodes: Vec<_> = rows.iter().filter_map(|(_, row)| row.node).collect();
    if std::fs::read_to_string("/sys/devices/system/node/online").is_ok_and(|online| online.trim() == "0") {
        assert!(nodes.iter().all(|node| *node == 0), "{nodes:?}");
    }
    let all = rows.iter().map(|(_, row)| MemoryRow { node: Some(1), ..*row });
    let all: Vec<MemoryRow> = all.collect();
    assert_eq!(told_elsewhere(WorkerId(1), 1, all.iter()), None);
    let why = told_elsewhere(WorkerId(1), 0, all.iter().take(2)).unwrap();
    for part in
        ["worker 1 runs on NUMA node 0", "sessions on node 1, session-index on node 1", "workers.cores"]
    {
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn huge_pages_that_ran_out_are_told_of() {
    let rig = rig(1);
    let rows: Vec<MemoryRow> =
        rig.runtime.handle().memory().unwrap().into_iter().map(|(_, row)| row).collect();
    assert_eq!(told_short(rows.iter()), None, "nobody reserved any");
    let on = |pages| move |row: &MemoryRow| MemoryRow { pages, ..*row };
    let all: Vec<MemoryRow> = rows.iter().map(on("2M")).collect();
    assert_eq!(told_short(all.iter()), None, "all have some");
    let is_large = |row: &&MemoryRow| row.table == "sessions";
    let large = MemoryRow { bytes: 5 << 20, ..*rows.iter().find(is_large).unwrap() };
    let some: Vec<MemoryRow> = all.into_iter().chain([on("thp")(&large)]).collect();
    let why = told_short(some.iter()).unwrap();
    assert!(why.contains("sessions have none; about 3 more of 2 MiB"), "{why}");
}

#[test]
fn start_without_enough_memory_is_refused_before_anything_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("carrack.toml");
    let run_dir = dir.path().join("run");
    std::fs::write(&path, config_text(&run_dir, 1, "mem:lan", "mem:wan")).unwrap();
    let options = RunOptions { memory_available: Some(1 << 20), ..RunOptions::default() };
    let Err(StartError::Failed(why)) = Runtime::start(&path, options) else { panic!("started") };
    assert!(why.contains("and 1.0 MiB are available") && why.contains("lower memory.frames"), "{why}");
    assert!(!run_dir.exists(), "the run directory was made");
    let options = RunOptions { memory_available: Some(1 << 30), ..RunOptions::default() };
    let runtime = Runtime::start(&path, options).unwrap_or_else(|error| panic!("{error}"));
    assert!(runtime.notices()[0].starts_with("Memory budget of the worker"));
}

#[test]
fn start_on_a_processor_that_is_not_there_is_refused_before_anything_is_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("carrack.toml");
    let run_dir = dir.path().join("run");
    let network = config_text(&run_dir, 1, "mem:lan", "mem:wan");
    for (key, line) in [("[workers]\ncores", 4), ("[workers]\ncontrol_cores", 4), ("[logging]\ncores", 4)] {
        // A table of that name is there already, or comes after.
        let text = match key.strip_prefix("[workers]\n") {
            Some(name) => network.replace("[workers]\n", &format!("[workers]\n{name} = [1_023]\n")),
            None => network.replace("[workers]\n", &format!("{key} = [1_023]\n[workers]\n")),
        };
        std::fs::write(&path, text).unwrap();
        let Err(StartError::Config(errors)) = Runtime::start(&path, RunOptions::default()) else {
            panic!("started with {key}")
        };
        assert_eq!((errors.len(), errors[0].line), (1, line), "{}", errors[0]);
        let message = &errors[0].message;
        assert!(message.contains("has CPU 1023, and this machine has CPUs 0"), "{message}");
        assert!(!run_dir.exists(), "the run directory was made");
    }
}

#[test]
fn start_that_is_over_makes_no_tables_and_leaves_the_run_directory_to_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("carrack.toml");
    std::fs::write(&path, config_text(dir.path(), 1, "mem:lan", "mem:wan")).unwrap();
    let config = Config::from_file(&path).unwrap_or_else(|errors| panic!("{}", errors[0])).0;
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).unwrap();
    let making =
        Making { group: WorkerGroup::new(1, [1; 4]), sizes: compiled.sizes, pages: PagePreference::Small };
    let plan = || Arc::new(Plan::new(Arc::new(compiled.snapshot.clone())));
    let make = |starting| {
        let (ends, _control, _events) = crate::mail::mailbox();
        builder(&making, plan(), starting)(0, ends, Now { ns: 0 }).map(|_| ())
    };
    assert_eq!(make(Starting::default()), Ok(()));
    let starting = Starting::default();
    assert!(!starting.end());
    let why = make(starting.clone()).unwrap_err();
    assert!(why.contains("given up"), "{why}");

    let options = RunOptions { starting, ..RunOptions::default() };
    assert!(matches!(Runtime::start(&path, options), Err(StartError::Ended)));
    let next = Runtime::start(&path, RunOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    assert!(!next.notices().iter().any(|notice| notice.contains("died")), "{:?}", next.notices());
}

#[test]
fn second_daemon_on_the_same_run_directory_is_refused_and_the_first_goes_on() {
    let mut rig = rig(1);
    let path = rig.dir.path().join("carrack.toml");
    let Err(StartError::Failed(why)) = Runtime::start(&path, RunOptions::default()) else {
        panic!("two daemons")
    };
    assert!(why.contains("another carrack"), "{why}");
    rig.udp_out(4_000);
}

#[test]
fn wrong_config_is_an_error_with_a_place_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("carrack.toml");
    let text = config_text(dir.path(), 1, "mem:lan", "mem:wan").replace("via =", "vai =");
    std::fs::write(&path, text).unwrap();
    let Err(StartError::Config(errors)) = Runtime::start(&path, RunOptions::default()) else {
        panic!("started")
    };
    assert!(errors[0].message.contains("via"), "{}", errors[0]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// A classic pcap file: header, then each packet with its time and its length twice.
fn capture_of(packets: &[Vec<u8>]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1]);
    for packet in packets {
        let len = packet.len() as u32;
        file.extend(words(&[0, 0, len, len]));
        file.extend_from_slice(packet);
    }
    file
}

#[test]
fn run_over_capture_files_reads_all_input_then_ends() {
    let dir = tempfile::tempdir().unwrap();
    let packets: Vec<Vec<u8>> = (0..20u16)
        .map(|n| {
            let builder = PacketBuilder::new().ethernet(SUBSCRIBER_MAC, MacAddr([2, 0, 0, 1, 0, 0]));
            builder.ipv4(SUBSCRIBER, ROUTER).echo_request(7, n).build()
        })
        .collect();
    let input = dir.path().join("in.pcap");
    std::fs::write(&input, capture_of(&packets)).unwrap();
    let device = format!("pcap:rx={},tx={}", input.display(), dir.path().join("out.pcap").display());
    let outside = format!("pcap:tx={}", dir.path().join("outside.pcap").display());
    let path = dir.path().join("carrack.toml");
    std::fs::write(&path, config_text(dir.path(), 1, &device, &outside)).unwrap();
    let options = RunOptions { exit_when_idle: true, ..RunOptions::default() };
    let runtime = Runtime::start(&path, options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(runtime.wait(), EndReason::Idle);
    assert_eq!(runtime.handle().counters().total.rx, 20);
    runtime.stop();
    let written = carrack_io::read_capture(&dir.path().join("out.pcap")).unwrap();
    let replies = written.iter().filter(|packet| is_ipv4(&packet.bytes)).count();
    assert_eq!(replies, 20);
}
