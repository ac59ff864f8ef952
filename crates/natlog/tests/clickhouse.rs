//! Debian's ClickHouse takes every event into the table that is shipped.

mod common;

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use carrack_base::{InstanceId, Reason, WorkerId};
use carrack_nat::row::{BlockRow, Change, Endpoint, HostEndpoint, NatEvent};
use carrack_natlog::Service;
use carrack_runtime::{EventSink, LoggedEvent};
use common::AT_MS;

const PATIENCE: usize = 1_500;
const PASSWORD: &str = "open sesame";

/// A server of its own, killed with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn server(dir: &Path, port: u16) -> Server {
    let (shown, tcp) = (dir.display(), free_port());
    let between = free_port();
    let config = format!(
        "<yandex><logger><level>warning</level><console>1</console></logger><http_port>{port}</http_port>\
         <tcp_port>{tcp}</tcp_port><interserver_http_port>{between}</interserver_http_port>\
         <interserver_http_host>127.0.0.1</interserver_http_host><listen_host>127.0.0.1</listen_host>\
         <path>{shown}/data/</path><tmp_path>{shown}/tmp/</tmp_path><users_config>{shown}/users.xml</users_config>\
         <default_profile>default</default_profile><default_database>default</default_database>\
         <timezone>UTC</timezone><mark_cache_size>5368709</mark_cache_size></yandex>"
    );
    let users = format!(
        "<yandex><profiles><default><max_memory_usage>1000000000</max_memory_usage></default></profiles>\
         <users><edge><password>{PASSWORD}</password><networks><ip>127.0.0.1</ip></networks>\
         <profile>default</profile><quota>default</quota></edge></users>\
         <quotas><default></default></quotas></yandex>"
    );
    std::fs::write(dir.join("config.xml"), config).unwrap();
    std::fs::write(dir.join("users.xml"), users).unwrap();
    let said = std::fs::File::create(dir.join("said")).unwrap();
    let child = Command::new("clickhouse-server")
        .arg(format!("--config-file={shown}/config.xml"))
        .current_dir(dir)
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .stdin(Stdio::null())
        .spawn();
    Server(child.expect("Debian's clickhouse-server is installed"))
}

/// What the server answers to a query, asked by curl.
fn ask(port: u16, query: &str) -> Option<String> {
    let url = format!("http://127.0.0.1:{port}/");
    let credentials =
        ["-H", "X-ClickHouse-User: edge", "-H", &format!("X-ClickHouse-Key: {PASSWORD}")].map(str::to_owned);
    let output = Command::new("curl")
        .args(["-sS", "--fail-with-body", "--max-time", "20", &url])
        .args(credentials)
        .args(["--data-binary", query])
        .output()
        .unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn until<T>(what: &str, dir: &Path, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..PATIENCE {
        if let Some(found) = found() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}: {}", std::fs::read_to_string(dir.join("said")).unwrap_or_default());
}

/// Makes the shipped table.
fn make_table(port: u16) {
    let text = include_str!("../../../examples/clickhouse.sql");
    let lines = text.lines().map(|line| line.split("--").next().unwrap_or_default());
    let text: Vec<&str> = lines.collect();
    for statement in text.join("\n").split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
        assert!(ask(port, statement).is_some(), "{statement}");
    }
}

fn service(dir: &Path, port: u16, more: &str) -> Service {
    std::fs::write(dir.join("secret"), format!("{PASSWORD}\n")).unwrap();
    let exporter = format!(
        "name = \"db\"\nprotocol = \"clickhouse\"\ncollector = \"127.0.0.1:{port}\"\nuser = \"edge\"\n\
         secret_file = \"{}/secret\"\n{more}",
        dir.display()
    );
    common::service(dir, &exporter)
}

fn logged(event: NatEvent) -> LoggedEvent {
    LoggedEvent { sequence: 0, at_ns: 0, unix_ns: AT_MS * 1_000_000, worker: WorkerId(3), event }
}

fn events() -> Vec<LoggedEvent> {
    let instance = InstanceId(0);
    let ip = u32::from_be_bytes([203, 0, 113, 7]);
    let block = BlockRow { ip, first: 4_608, last: 5_119 };
    let (four, six): (IpAddr, IpAddr) = ("100.64.0.5".parse().unwrap(), "2001:db8::5".parse().unwrap());
    let session = |change, ip6: bool| NatEvent::Translation {
        change,
        instance,
        protocol: 6,
        inside: HostEndpoint { ip: if ip6 { six } else { four }, port: 50_000 },
        outside: Endpoint { ip, port: 4_711 },
        remote: Some(Endpoint { ip: u32::from(Ipv4Addr::new(192, 0, 2, 80)), port: 443 }),
        remote6: ip6.then(|| "64:ff9b::c000:250".parse().unwrap()),
    };
    let events = [
        NatEvent::BlockAllocated { instance, inside: four, block },
        NatEvent::AddressBound { instance, inside: four, outside: ip },
        session(Change::SessionCreated, false),
        session(Change::SessionDeleted, true),
        NatEvent::Refused { instance, inside: four, reason: Reason::NatPortLimit, count: 12 },
        NatEvent::BlockReleased { instance, inside: six, block },
    ];
    events.into_iter().map(logged).collect()
}

#[test]
fn clickhouse_has_every_field_of_every_event_and_nothing_twice() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    // The database is down at first: what happens meanwhile waits.
    let mut service = service(dir.path(), port, "");
    service.events(&events());
    std::thread::sleep(Duration::from_millis(500));
    let report = |service: &Service| service.exporters()[0].clone();
    assert_eq!((report(&service).connected, report(&service).sent, report(&service).lost), (false, 0, 0));
    let _server = server(dir.path(), port);
    until("the server answers", dir.path(), || ask(port, "SELECT 1"));
    // Without the table nothing is taken, and nothing lost.
    make_table(port);
    let count = |wanted: &str| {
        until("all rows are there", dir.path(), || {
            ask(port, "SELECT count() FROM carrack.events").filter(|count| count == wanted)
        })
    };
    // The daemon's start and its configuration are events, too.
    count("8");
    let rows = ask(
        port,
        "SELECT time_ms, router, worker, kind, instance, inside_ip, inside_port, outside_ip, first, last, protocol, remote_ip, \
         IPv4NumToString(remote4), remote_port, count, reason FROM carrack.events WHERE kind NOT IN ('started', 'configured') \
         ORDER BY kind, inside_ip FORMAT CSV",
    );
    let expected = "\
        1772546602500,\"edge-1\",3,\"address-bound\",\"cgn1\",\"::ffff:100.64.0.5\",0,\"203.0.113.7\",0,0,0,\"::ffff:0.0.0.0\",\"0.0.0.0\",0,1,\"\"\n\
        1772546602500,\"edge-1\",3,\"block-allocated\",\"cgn1\",\"::ffff:100.64.0.5\",0,\"203.0.113.7\",4608,5119,0,\"::ffff:0.0.0.0\",\"0.0.0.0\",0,1,\"\"\n\
        1772546602500,\"edge-1\",3,\"block-released\",\"cgn1\",\"2001:db8::5\",0,\"203.0.113.7\",4608,5119,0,\"::ffff:0.0.0.0\",\"0.0.0.0\",0,1,\"\"\n\
        1772546602500,\"edge-1\",3,\"quota-exceeded\",\"cgn1\",\"::ffff:100.64.0.5\",0,\"0.0.0.0\",0,0,0,\"::ffff:0.0.0.0\",\"0.0.0.0\",0,12,\"nat-port-limit\"\n\
        1772546602500,\"edge-1\",3,\"session-created\",\"cgn1\",\"::ffff:100.64.0.5\",50000,\"203.0.113.7\",4711,4711,6,\"::ffff:192.0.2.80\",\"192.0.2.80\",443,1,\"\"\n\
        1772546602500,\"edge-1\",3,\"session-deleted\",\"cgn1\",\"2001:db8::5\",50000,\"203.0.113.7\",4711,4711,6,\"64:ff9b::c000:250\",\"192.0.2.80\",443,1,\"\"";
    assert_eq!(rows.unwrap(), expected);
    // A hundred thousand more, in a few inserts.
    let more: Vec<LoggedEvent> = std::iter::repeat_n(events(), 20_000).flatten().collect();
    for part in more.chunks(8_192) {
        service.events(part);
    }
    count("120008");
    let parts = ask(port, "SELECT count() < 12 FROM system.parts WHERE database = 'carrack'");
    assert_eq!(parts.as_deref(), Some("1"), "rows are inserted together");
    until("all is confirmed", dir.path(), || (report(&service).sent == 120_008).then_some(()));
    assert_eq!((report(&service).lost, report(&service).waiting), (0, 0));
    // Its question, as the shipped file words it.
    let text = include_str!("../../../examples/clickhouse.sql");
    let question: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("--   ")).skip(1).collect();
    let answer = ask(port, &question.join("\n")).unwrap();
    assert!(answer.starts_with("1772546602500\tblock-"), "{answer}");
    drop(service);
    let (stopped, end) = (ask(port, "SELECT count() FROM carrack.events").unwrap(), "120008");
    assert_eq!(stopped, end);
}

/// TLS in front of the server, as operators put it there.
fn tls(dir: &Path, name: &str, to: u16) -> (Server, u16) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    std::fs::write(dir.join("ca.pem"), made.cert.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    let port = free_port();
    let (cert, key) = (dir.join("ca.pem"), dir.join("key.pem"));
    let listen = format!(
        "OPENSSL-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork,verify=0,cert={},key={}",
        cert.display(),
        key.display()
    );
    let child = Command::new("socat").args([listen, format!("TCP:127.0.0.1:{to}")]).spawn();
    (Server(child.expect("socat is installed")), port)
}

#[test]
fn clickhouse_behind_tls_gets_rows_only_under_the_right_name() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let _server = server(dir.path(), port);
    until("the server answers", dir.path(), || ask(port, "SELECT 1"));
    make_table(port);
    let (_tls, front) = tls(dir.path(), "db.example.net", port);
    let more = |name: &str| {
        let ca = dir.path().join("ca.pem");
        format!("transport = \"tls\"\ntls_ca = \"{}\"\ntls_name = \"{name}\"\n", ca.display())
    };
    let count = || ask(port, "SELECT count() FROM carrack.events").unwrap();
    let stranger = service(dir.path(), front, &more("other.example.net"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((stranger.exporters()[0].connected, count()), (false, "0".to_owned()));
    drop(stranger);
    let mut service = service(dir.path(), front, &more("db.example.net"));
    service.events(&events());
    // What the stranger could not send was in the spool.
    until("all rows are there", dir.path(), || (count() == "10").then_some(()));
    assert!(service.exporters()[0].connected);
}
