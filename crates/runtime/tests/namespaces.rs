//! A whole daemon over packet sockets between two namespaces, with real programs at both ends.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use carrack_nat::row::Filter;
use carrack_runtime::{EndReason, RunOptions, Runtime};
use nix::sched::{CloneFlags, setns};

/// A subscriber `a`, the router `m`, a server `b`; gone with the value.
struct Lab {
    tag: String,
}

impl Lab {
    fn new() -> Self {
        let lab = Self { tag: format!("crt{}", std::process::id()) };
        for place in ["a", "m", "b"] {
            run("ip", &["netns", "add", &lab.namespace(place)]);
        }
        for (place, port, address, gateway) in
            [("a", "in0", "10.0.0.7/24", "10.0.0.1"), ("b", "out0", "192.0.2.254/24", "192.0.2.1")]
        {
            let (host, middle) = (lab.namespace(place), lab.namespace("m"));
            run(
                "ip",
                &["-n", &host, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", &middle],
            );
            run("ip", &["-n", &host, "addr", "add", address, "dev", "eth0"]);
            run("ip", &["-n", &host, "link", "set", "eth0", "up"]);
            run("ip", &["-n", &host, "link", "set", "lo", "up"]);
            run("ip", &["-n", &host, "route", "add", "default", "via", gateway]);
        }
        lab
    }

    fn namespace(&self, place: &str) -> String {
        format!("{}{place}", self.tag)
    }

    /// Runs a program on host `a` or `b`.
    fn exec(&self, place: &str, program: &[&str]) -> Output {
        let namespace = self.namespace(place);
        Command::new("ip").args([&["netns", "exec", &namespace], program].concat()).output().unwrap()
    }

    fn features(&self, place: &str, interface: &str) -> Vec<u8> {
        self.exec(place, &["ethtool", "-k", interface]).stdout
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for place in ["a", "m", "b"] {
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(place)]).output();
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn config(run_dir: &Path) -> String {
    format!(
        r#"
[system]
run_dir = "{}"
[workers]
count = 2
[memory]
huge_pages = "off"
sessions = 65_536
mappings = 65_536
[[interface]]
name = "inside"
device = "af_packet:in0"
side = "inside"
address = ["10.0.0.1/24"]
[[interface]]
name = "outside"
device = "af_packet:out0"
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
"#,
        run_dir.display()
    )
}

#[test]
fn real_pings_and_tcp_pass_two_workers_and_the_interfaces_are_restored() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: this test makes network namespaces; run it as root");
        return;
    }
    let lab = Lab::new();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("carrack.toml");
    std::fs::write(&path, config(dir.path())).unwrap();
    let middle = File::open(format!("/run/netns/{}", lab.namespace("m"))).unwrap();
    setns(&middle, CloneFlags::CLONE_NEWNET).unwrap();
    let before = (lab.features("m", "in0"), lab.features("a", "eth0"));

    let runtime = Runtime::start(&path, RunOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    let handle = runtime.handle();
    assert!(runtime.notices().iter().any(|notice| notice.contains("in0")), "{:?}", runtime.notices());
    for target in ["10.0.0.1", "192.0.2.254"] {
        let ping = lab.exec("a", &["ping", "-c", "3", "-i", "0.2", "-W", "3", target]);
        assert!(ping.status.success(), "{target}: {}", String::from_utf8_lossy(&ping.stdout));
    }
    let counters = handle.counters();
    tcp_passes(&lab);
    assert!(handle.sessions(Filter::default(), 0).unwrap().count() >= 2);
    // Balanced at every look, traffic or not; and the ports' own counts agree that packets came in.
    let after = handle.counters();
    assert_eq!((counters.balance, after.balance), (0, 0));
    assert!(after.total.forwarded > counters.total.forwarded);
    eventually(|| {
        handle.counters().ports.iter().all(|port| port.report.link.up && port.report.stats.rx_packets > 3)
    });

    handle.shutdown();
    assert_eq!(runtime.wait(), EndReason::Stopped);
    let began = Instant::now();
    runtime.stop();
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!((lab.features("m", "in0"), lab.features("a", "eth0")), before, "restored as it was");
}

/// A megabyte through the NAT, its checksums computed by nobody else.
fn tcp_passes(lab: &Lab) {
    let server = "import socket\ns=socket.create_server(('192.0.2.254',8080))\nc,a=s.accept()\nn=0\n\
                  while True:\n d=c.recv(65536)\n if not d: break\n n+=len(d)\nprint(a[0],n)";
    let client = "import socket,time\n\
                  for i in range(50):\n try:\n  c=socket.create_connection(('192.0.2.254',8080),5); break\n \
                  except OSError: time.sleep(0.1)\nc.sendall(b'x'*1000000)\nc.close()";
    let output = std::thread::scope(|scope| {
        let server = scope.spawn(|| lab.exec("b", &["timeout", "20", "python3", "-c", server]));
        lab.exec("a", &["timeout", "20", "python3", "-c", client]);
        server.join().unwrap()
    });
    let text = String::from_utf8_lossy(&output.stdout);
    let (source, bytes) = text.trim().split_once(' ').unwrap_or_default();
    assert!(source.starts_with("192.0.2.1") && source != "192.0.2.1", "source {source}: {output:?}");
    assert_eq!(bytes, "1000000");
}

fn eventually(mut test: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !test() {
        assert!(Instant::now() < deadline, "did not happen in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}
