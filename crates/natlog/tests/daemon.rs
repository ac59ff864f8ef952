//! A whole daemon: a packet in, an event at the collector and in the store, an answer out.

mod common;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_config::{Config, PortFacts};
use carrack_natlog::Service;
use carrack_natlog::context::Context;
use carrack_natlog::search::{Question, who};
use carrack_runtime::{RunOptions, Runtime};
use carrack_wire::MacAddr;
use carrack_wire::build::PacketBuilder;

const SUBSCRIBER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn config(dir: &std::path::Path, ipfix: u16, syslog: u16) -> String {
    format!(
        r#"
[system]
name = "edge-1"
run_dir = "{run}"

[memory]
huge_pages = "off"
frames = 8_192
sessions = 65_536
mappings = 65_536
subscribers = 1_024

[[interface]]
name = "inside"
device = "mem:lan"
side = "inside"
address = ["10.0.0.1/24"]

[[interface]]
name = "outside"
device = "mem:wan"
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
addresses = ["192.0.2.16"]

[logging]
domain = 5
cores = [0]

[logging.store]
dir = "{store}"

[[logging.exporter]]
name = "flows"
protocol = "ipfix"
collector = "127.0.0.1:{ipfix}"

[[logging.exporter]]
name = "text"
protocol = "syslog"
collector = "127.0.0.1:{syslog}"
events = ["system"]
"#,
        run = dir.display(),
        store = dir.join("log").display(),
    )
}

fn socket() -> (UdpSocket, u16) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

fn received(socket: &UdpSocket) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut buffer = [0; 9_000];
    while let Ok(length) = socket.recv(&mut buffer) {
        all.push(buffer[..length].to_vec());
    }
    all
}

/// Where a thread of this process may run, as the kernel writes it; `None` before it has its name.
fn processors(name: &str) -> Option<String> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let mut tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let status = read(tasks.find(|task| read(task.join("comm")).trim() == name)?.join("status"));
    Some(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned())
}

/// A thread names and places itself, after whoever started it has gone on.
#[track_caller]
fn assert_runs_on_the_first_processor(thread: &str) {
    let began = Instant::now();
    while processors(thread).as_deref() != Some("0") {
        assert!(began.elapsed() < Duration::from_secs(10), "{thread} is on {:?}", processors(thread));
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn first_packet_of_a_subscriber_can_be_traced_back_after_the_daemon_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let ((ipfix, ipfix_port), (syslog, syslog_port)) = (socket(), socket());
    let path = dir.path().join("carrack.toml");
    std::fs::write(&path, config(dir.path(), ipfix_port, syslog_port)).unwrap();
    let (config, warnings) = Config::from_file(&path).unwrap();
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).unwrap();
    let service = Service::start(&config, Context::of(&config, &compiled.snapshot), unix_ms()).unwrap();
    let sink = Some(Box::new(service.clone()) as _);
    let mut runtime = Runtime::start_config(&path, config, warnings, RunOptions::default(), sink).unwrap();
    let (mut inside, mut pool) = (runtime.mem_peer("lan").unwrap(), runtime.mem_pool().unwrap());
    let packet = PacketBuilder::new()
        .ethernet(MacAddr([2, 0, 0, 0, 1, 1]), MacAddr([2, 0, 0, 0, 0, 0]))
        .ipv4(SUBSCRIBER, Ipv4Addr::new(203, 0, 113, 5))
        .udp(4_000, 53)
        .payload(b"question")
        .build();
    assert!(inside.inject_bytes(&mut pool, &packet));
    // Start, configuration, binding, block.
    let began = Instant::now();
    while service.store().unwrap().stored < 4 {
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", service.store());
        std::thread::sleep(Duration::from_millis(5));
    }
    let block = runtime
        .handle()
        .subscribers(carrack_nat::row::Filter::default(), 0)
        .unwrap()
        .next()
        .unwrap()
        .1
        .blocks[0];
    std::thread::sleep(Duration::from_millis(5));
    let at_ms = unix_ms();
    std::thread::sleep(Duration::from_millis(5));
    for thread in ["carrack-log", "carrack-store", "carrack-pack", "log0-flows", "log1-text"] {
        assert_runs_on_the_first_processor(thread);
    }
    runtime.stop();

    let question = Question { outside: block.ip.into(), port: block.first + 3, at_ms, protocol: None };
    let answer = who(&dir.path().join("log"), &question).unwrap();
    let holding = answer.holding.unwrap();
    assert_eq!((holding.subscriber, &*holding.instance), (IpAddr::V4(SUBSCRIBER), "cgn"));
    assert_eq!((holding.first, holding.last), (block.first, block.last));
    assert!(holding.from_ms <= at_ms && holding.to_ms.is_some_and(|to_ms| to_ms > at_ms), "{holding:?}");
    assert_eq!(answer.doubts, Vec::<String>::new());
    let later = Question { at_ms: unix_ms() + 60_000, ..question };
    assert_eq!(who(&dir.path().join("log"), &later).unwrap().holding, None, "the daemon is gone");

    let capture = dir.path().join("flows.pcap");
    common::capture(&capture, 4_739, &received(&ipfix));
    let text = common::tshark(&capture, 4_739);
    for line in [
        "Observation Domain Id: 5",
        "Nat Event: Address binding create (14)",
        "Nat Event: Port block allocation (16)",
        "SrcAddr: 10.0.0.7",
        "Post NAT Source IPv4 Address: 192.0.2.16",
        &format!("Port Range Start: {}", block.first),
        &format!("Port Range End: {}", block.last),
    ] {
        assert!(text.contains(line), "no {line}: {text}");
    }
    let lines: Vec<String> =
        received(&syslog).into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line.split(' ').nth(5)).collect();
    assert_eq!(kinds, ["started", "configured", "stopped"]);
    assert!(lines.iter().all(|line| line.split(' ').nth(2) == Some("edge-1")), "{lines:?}");
}

/// No word on where the threads that log run: beside the control plane, not on a worker's processor.
#[test]
fn threads_that_log_are_where_the_control_plane_is_unless_told() {
    let dir = tempfile::tempdir().unwrap();
    let text = config(dir.path(), 9, 9)
        .replace("cores = [0]\n", "")
        .replace("[memory]", "[workers]\ncontrol_cores = [0]\n\n[memory]")
        .replace("\"flows\"", "\"beside-flows\"")
        .replace("\"text\"", "\"beside-text\"");
    let (config, _) = Config::from_str("t.toml", &text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).unwrap();
    let _service = Service::start(&config, Context::of(&config, &compiled.snapshot), unix_ms()).unwrap();
    for thread in ["log0-beside-flo", "log1-beside-tex"] {
        assert_runs_on_the_first_processor(thread);
    }
}
