//! FreeRADIUS judges accounting (RFC 2866, RFC 8045).

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use carrack_base::{InstanceId, WorkerId};
use carrack_config::{Config, PortFacts};
use carrack_nat::row::{BlockRow, Change, Endpoint, HostEndpoint, NatEvent};
use carrack_natlog::Service;
use carrack_natlog::context::Context;
use carrack_runtime::{EventSink, LoggedEvent};

/// 2026-03-03T14:03:22.500Z.
const AT_MS: u64 = 1_772_546_602_500;
const PATIENCE: usize = 1_000;

/// A server of its own, killed with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server(dir: &Path, port: u16, secret: &str) -> Server {
    let shown = dir.display();
    let text = format!(
        "prefix = /usr\nlibdir = /usr/lib/freeradius\nraddbdir = {shown}\nlogdir = {shown}\nrun_dir = {shown}\n\
         pidfile = {shown}/pid\nmax_requests = 16384\n\
         thread pool {{\nstart_servers = 1\nmax_servers = 1\nmin_spare_servers = 1\nmax_spare_servers = 1\n}}\n\
         client edge {{\nipaddr = 127.0.0.1\nsecret = {secret}\n}}\n\
         modules {{\ndetail {{\nfilename = {shown}/detail\nescape_filenames = no\npermissions = 0600\nlocking = no\n}}\n}}\n\
         server default {{\nlisten {{\ntype = acct\nipaddr = 127.0.0.1\nport = {port}\n}}\n\
         preacct {{\n}}\naccounting {{\ndetail\n}}\n}}\n"
    );
    std::fs::write(dir.join("radiusd.conf"), text).unwrap();
    let out = std::fs::File::create(dir.join("said")).unwrap();
    let child =
        Command::new("freeradius").arg("-d").arg(dir).args(["-f", "-l", "stdout"]).stdout(out).spawn();
    Server(child.expect("Debian's freeradius is installed"))
}

/// What the server wrote down: a paragraph for each request.
fn recorded(dir: &Path, requests: usize) -> Vec<String> {
    for _ in 0..PATIENCE {
        let text = std::fs::read_to_string(dir.join("detail")).unwrap_or_default();
        let found: Vec<String> =
            text.split("\n\n").filter(|p| !p.trim().is_empty()).map(str::to_owned).collect();
        if found.len() >= requests {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{}", std::fs::read_to_string(dir.join("said")).unwrap_or_default());
}

fn service(dir: &Path, port: u16, secret: &str) -> Service {
    std::fs::write(dir.join("secret"), format!("{secret}\n")).unwrap();
    let text = format!(
        "[system]\nname = \"edge-1\"\n\n[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\n\n\
         [[interface]]\nname = \"b\"\ndevice = \"mem:b\"\nside = \"outside\"\n\n[[nat]]\nname = \"cgn1\"\n\n\
         [[nat.pool]]\nname = \"p\"\naddresses = [\"203.0.113.0/24\"]\n\n[[logging.exporter]]\nname = \"aaa\"\n\
         protocol = \"radius\"\ncollector = \"127.0.0.1:{port}\"\nsecret_file = \"{}\"\n",
        dir.join("secret").display()
    );
    let (config, _) = Config::from_str("test", &text).unwrap();
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).unwrap();
    Service::start(&config, Context::of(&config, &compiled.snapshot), AT_MS).unwrap()
}

fn logged(event: NatEvent) -> LoggedEvent {
    LoggedEvent { sequence: 0, at_ns: 0, unix_ns: AT_MS * 1_000_000, worker: WorkerId(0), event }
}

fn events() -> Vec<LoggedEvent> {
    let instance = InstanceId(0);
    let block = BlockRow { ip: u32::from_be_bytes([203, 0, 113, 7]), first: 4_096, last: 4_607 };
    let mut events = Vec::new();
    for inside in ["100.64.0.5".parse().unwrap(), "2001:db8::5".parse().unwrap()] {
        events.push(NatEvent::BlockAllocated { instance, inside, block });
        for change in [Change::MappingCreated, Change::MappingDeleted] {
            let outside = Endpoint { ip: block.ip, port: 4_200 };
            let inside = HostEndpoint { ip: inside, port: 5_000 };
            let (remote, remote6) = (None, None);
            events.push(NatEvent::Translation {
                change,
                instance,
                protocol: 17,
                inside,
                outside,
                remote,
                remote6,
            });
        }
        events.push(NatEvent::BlockReleased { instance, inside, block });
    }
    events.into_iter().map(logged).collect()
}

fn free_port() -> u16 {
    std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Attributes of one request, without its time of arrival and what the server adds.
fn attributes(paragraph: &str) -> Vec<&str> {
    let ours = |line: &&str| {
        ["Packet-", "Timestamp ", "Tmp-", "Acct-Unique", "NAS-IP", "Stripped"]
            .iter()
            .all(|no| !line.starts_with(no))
    };
    paragraph.lines().skip(1).map(str::trim).filter(ours).collect()
}

#[test]
fn freeradius_names_every_attribute_of_blocks_and_mappings() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let _server = server(dir.path(), port, "testing123");
    let mut service = service(dir.path(), port, "testing123");
    service.events(&events());
    // Accounting-On, then eight events.
    let recorded = recorded(dir.path(), 9);
    assert_eq!(recorded.len(), 9, "{recorded:?}");
    let on = attributes(&recorded[0]);
    assert!(on.contains(&"Acct-Status-Type = Accounting-On"), "{on:?}");
    let stamp = "Event-Timestamp = \"Mar  3 2026 14:03:22 UTC\"";
    for (four, wanted) in [(1, "100.64.0.5"), (5, "2001:db8::5")] {
        let is_six = wanted.contains(':');
        let user = format!("User-Name = \"{wanted}\"");
        let framed = format!("Framed-{} = {wanted}", if is_six { "IPv6-Address" } else { "IP-Address" });
        for (at, status, alloc) in [(0, "Start", "Allocation"), (3, "Stop", "Deallocation")] {
            let found = attributes(&recorded[four + at]);
            let (status, alloc) =
                (format!("Acct-Status-Type = {status}"), format!("IP-Port-Range-Alloc = {alloc}"));
            let all = [
                &*status,
                "Acct-Session-Id = \"cgn1-cb007107-1000-00\"",
                "NAS-Identifier = \"edge-1\"",
                stamp,
                &user,
                &framed,
                "IP-Port-Range-Ext-IPv4-Addr = 203.0.113.7",
                &alloc,
                "IP-Port-Range-Range-Start = 4096",
                "IP-Port-Range-Range-End = 4607",
                "IP-Port-Range-Local-Id = \"cgn1\"",
            ];
            assert_eq!(found, all);
        }
        for (at, status) in [(1, "Start"), (2, "Stop")] {
            let found = attributes(&recorded[four + at]);
            let status = format!("Acct-Status-Type = {status}");
            let inside =
                format!("IP-Port-Map-Int-{} = {wanted}", if is_six { "IPv6-Addr" } else { "IPv4-Addr" });
            let all = [
                &*status,
                "Acct-Session-Id = \"cgn1-cb007107-1068-11\"",
                "NAS-Identifier = \"edge-1\"",
                stamp,
                &user,
                &framed,
                "IP-Port-Map-Ext-IPv4-Addr = 203.0.113.7",
                "IP-Port-Map-Type = 17",
                &inside,
                "IP-Port-Map-Int-Port = 5000",
                "IP-Port-Map-Ext-Port = 4200",
                "IP-Port-Map-Local-Id = \"cgn1\"",
            ];
            assert_eq!(found, all);
        }
    }
}

/// RFC 2866 §2: a request counts when it has been answered.
#[test]
fn nothing_is_lost_while_the_server_is_down_or_has_another_secret() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    let mut service = service(dir.path(), port, "testing123");
    let stranger = server(dir.path(), port, "anothersecret");
    service.events(&events());
    std::thread::sleep(Duration::from_millis(500));
    let report = service.exporters().remove(0);
    assert_eq!((report.sent, report.lost), (0, 0), "{report:?}");
    drop(stranger);
    let _server = server(dir.path(), port, "testing123");
    // Some may come twice: answered too late.
    assert!(recorded(dir.path(), 9).len() >= 9);
    for _ in 0..PATIENCE {
        if service.exporters().remove(0).waiting == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let report = service.exporters().remove(0);
    // `Started` and `Configured` beside the events: all batches are whole, the second has no form here.
    assert_eq!((report.sent, report.lost, report.waiting), (10, 0, 0), "{report:?}");
}
