//! What the network tests share: namespaces that vanish with the test, a bridge of two ports, checks of checksums.
#![allow(dead_code)]

pub mod memif;

use carrack_frame::{Frame, FramePool};
use carrack_io::PacketIo;
use carrack_io_dpdk::{Dpdk, EalOptions};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Why a network test cannot run here; `None` when it can.
pub fn obstacle() -> Option<&'static str> {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        let required = std::env::var("CARRACK_NETWORK_TESTS").is_ok_and(|value| value == "require");
        assert!(!required, "network tests are required here, but this is not root");
        return Some("SKIPPED: this test makes network namespaces; run it as root");
    }
    None
}

/// Says why and returns from a test that cannot run here.
#[macro_export]
macro_rules! need_root {
    () => {
        if let Some(obstacle) = common::obstacle() {
            eprintln!("{obstacle}");
            return;
        }
    };
}

/// Two hosts, `10.77.0.1` and `10.77.0.2`, each with a veth into a third namespace in which the test's thread runs.
pub struct Lab {
    tag: String,
    files: Vec<String>,
}

impl Lab {
    /// Makes the namespaces and moves the calling thread into the middle one.
    pub fn new(kind: &str) -> Lab {
        let tag = format!("cio{}{kind}", std::process::id());
        let lab = Lab { tag, files: Vec::new() };
        for place in ["a", "m", "b"] {
            run("ip", &["netns", "add", &lab.namespace(place)]);
        }
        for (place, number) in [("a", 1), ("b", 2)] {
            let (host, middle) = (lab.namespace(place), lab.namespace("m"));
            let port = format!("port{number}");
            let veth =
                ["-n", &host, "link", "add", "eth0", "type", "veth", "peer", "name", &port, "netns", &middle];
            run("ip", &veth);
            run("ip", &["-n", &host, "addr", "add", &format!("10.77.0.{number}/24"), "dev", "eth0"]);
            run("ip", &["-n", &host, "link", "set", "eth0", "up"]);
            run("ip", &["-n", &host, "link", "set", "lo", "up"]);
            // The middle's ends stay down: bringing them up is the guard's business. Only its own stack keeps quiet.
            let quiet = format!("net.ipv6.conf.{port}.disable_ipv6=1");
            run("ip", &["netns", "exec", &middle, "sysctl", "-qw", &quiet]);
        }
        enter(&lab.namespace("m"));
        lab
    }

    pub fn namespace(&self, place: &str) -> String {
        format!("{}{place}", self.tag)
    }

    /// A name for a file, removed with the lab.
    pub fn file(&mut self, name: &str) -> String {
        let file = format!("/tmp/{}-{name}", self.tag);
        self.files.push(file.clone());
        file
    }

    /// Starts a program on host `a` or `b`.
    pub fn spawn(&self, place: &str, program: &[&str]) -> Child {
        let namespace = self.namespace(place);
        let arguments = [&["netns", "exec", &namespace], program].concat();
        Command::new("ip")
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ip is installed")
    }

    /// Features of an interface as `ethtool -k` prints them.
    pub fn features(&self, place: &str, interface: &str) -> String {
        let output = run("ip", &["netns", "exec", &self.namespace(place), "ethtool", "-k", interface]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for place in ["a", "m", "b"] {
            let _ = Command::new("ip").args(["netns", "del", &self.namespace(place)]).output();
        }
        for file in &self.files {
            let _ = std::fs::remove_dir_all(file);
            let _ = std::fs::remove_file(file);
        }
    }
}

pub fn run(program: &str, arguments: &[&str]) -> Output {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {}: {}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn enter(namespace: &str) {
    let file = File::open(format!("/run/netns/{namespace}")).expect("the namespace has just been made");
    // SAFETY: the descriptor is an open network namespace, and this thread is the test's own.
    assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
}

/// DPDK as the tests start it: small, without huge pages.
pub fn dpdk() -> Dpdk {
    dpdk_with(EalOptions::default())
}

/// The same with options of the test's own.
pub fn dpdk_with(options: EalOptions) -> Dpdk {
    let options =
        EalOptions { frames: 16_383, verbose: std::env::var_os("CARRACK_TEST_VERBOSE").is_some(), ..options };
    Dpdk::init(options).unwrap_or_else(|error| panic!("{error}"))
}

/// What went through a bridge.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Passed {
    pub frames: usize,
    pub tcp_segments: usize,
    pub bad_checksums: usize,
    pub largest: usize,
    /// Type and tag of frames of the test's own type behind one tag.
    pub tags: Vec<u32>,
}

/// Moves frames between two ports until `done`, looking at each; gives up loudly after `limit`.
pub fn bridge_until(
    ports: &mut [Box<dyn PacketIo>; 2],
    pool: &mut dyn FramePool,
    limit: Duration,
    mut done: impl FnMut() -> bool,
) -> Passed {
    let start = Instant::now();
    let mut passed = Passed::default();
    let mut burst: Vec<Frame> = Vec::with_capacity(64);
    let mut idle = 0u32;
    loop {
        let mut moved = 0;
        for from in 0..2 {
            moved += ports[from].rx_burst(&mut burst, 64);
            burst.iter().for_each(|frame| passed.look(frame.bytes()));
            ports[1 - from].tx_burst(&mut burst);
            pool.free_all(&mut burst);
        }
        idle = if moved == 0 { idle + 1 } else { 0 };
        if idle > 20 {
            // The machine is shared; an idle test leaves the processor to others.
            std::thread::sleep(Duration::from_micros(200));
        }
        if idle % 50 == 1 && done() {
            return passed;
        }
        assert!(start.elapsed() < limit, "not done within {limit:?}: {passed:?}, {:?}", ports[0].stats());
    }
}

impl Passed {
    fn look(&mut self, bytes: &[u8]) {
        self.frames += 1;
        self.largest = self.largest.max(bytes.len());
        if let Some(&[a, b, c, d, 0x88, 0xb5]) = bytes.get(12..18) {
            self.tags.push(u32::from_be_bytes([a, b, c, d]));
        }
        if bytes.get(12..14) != Some(&[8, 0]) || bytes.get(23) != Some(&6) {
            return;
        }
        self.tcp_segments += 1;
        let total = u16::from_be_bytes([bytes[16], bytes[17]]) as usize;
        let segment = bytes.get(34..14 + total).unwrap_or_default();
        let pseudo = [&bytes[26..34], &[0, 6], &(segment.len() as u16).to_be_bytes(), segment].concat();
        if ones_complement_sum(&pseudo) != 0xffff {
            self.bad_checksums += 1;
        }
    }
}

fn ones_complement_sum(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
    let mut sum: u32 = bytes.chunks(2).map(word).fold(0, |sum, word| sum.wrapping_add(word));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Bridges while `child` runs; returns what passed and what the child printed, having checked that it succeeded.
pub fn bridge_while(
    ports: &mut [Box<dyn PacketIo>; 2],
    pool: &mut dyn FramePool,
    mut child: Child,
) -> (Passed, String) {
    let limit = Duration::from_secs(20);
    let passed = bridge_until(ports, pool, limit, || child.try_wait().expect("the child is ours").is_some());
    let output = child.wait_with_output().expect("the child has ended");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{} {passed:?}", String::from_utf8_lossy(&output.stderr));
    (passed, text)
}

pub const PING: [&str; 9] = ["ping", "-c", "5", "-i", "0.02", "-W", "2", "-q", "10.77.0.2"];

/// Receives until the end and answers with the length and a digest.
pub const TCP_SERVER: &str = "
import socket, hashlib
s = socket.create_server(('10.77.0.2', 7000)); c, _ = s.accept(); d = hashlib.sha256(); n = 0
while True:
    b = c.recv(65536)
    if not b: break
    d.update(b); n += len(b)
c.sendall(f'{n} {d.hexdigest()}'.encode()); c.close()
";

/// Sends a megabyte in large writes, which a sender with segmentation offload would hand over in 64 kB pieces.
pub const TCP_CLIENT: &str = "
import socket, hashlib, random, time
data = random.Random(7).randbytes(1 << 20)
for attempt in range(50):
    try:
        s = socket.create_connection(('10.77.0.2', 7000), timeout=10); break
    except ConnectionRefusedError: time.sleep(0.1)
s.sendall(data); s.shutdown(socket.SHUT_WR)
answer = b''
while True:
    b = s.recv(4096)
    if not b: break
    answer += b
assert answer.decode() == f'{len(data)} {hashlib.sha256(data).hexdigest()}', answer
print('transferred')
";

/// Sends two frames of the type for experiments (IEEE 802), tagged with VLAN 5, priority 3.
pub const TAGGED_SENDER: &str = "
import socket, time
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW); s.bind(('eth0', 0))
for _ in range(2): s.send(b'\\xff' * 6 + b'\\x02' + bytes(5) + bytes.fromhex('8100600588b5') + bytes(46))
time.sleep(0.3)
";

/// Pings and transfers a megabyte between the two hosts through two ports, and checks every segment on the way.
pub fn ping_and_tcp_pass(lab: &Lab, ports: &mut [Box<dyn PacketIo>; 2], pool: &mut dyn FramePool) {
    let (passed, text) = bridge_while(ports, pool, lab.spawn("a", &PING));
    assert!(text.contains("5 received, 0% packet loss"), "{text} {passed:?}");
    let mut server = lab.spawn("b", &["python3", "-c", TCP_SERVER]);
    let (passed, text) = bridge_while(ports, pool, lab.spawn("a", &["python3", "-c", TCP_CLIENT]));
    assert!(text.contains("transferred"), "{text}");
    assert!(server.wait().expect("the server is ours").success());
    assert!(passed.tcp_segments > 700, "a megabyte in segments of 1,448 bytes: {passed:?}");
    assert_eq!(passed.bad_checksums, 0, "every segment is finished: {passed:?}");
    assert!(passed.largest <= 1514, "no merged segments: {passed:?}");
}
