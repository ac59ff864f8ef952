//! The kernel talks to a TAP port, and the interface goes with the port.

mod common;

use carrack_frame::{Frame, FramePool};
use carrack_io_dpdk::PortOptions;
use common::Lab;
use std::time::{Duration, Instant};

#[test]
fn the_kernel_is_answered_through_a_tap_that_vanishes_with_its_port() {
    need_root!();
    let lab = Lab::new("t");
    let dpdk = common::dpdk();
    let mut pool = dpdk.pool();
    let device = "tap:ciotap0".parse().expect("a device line");
    let options = PortOptions { mtu: Some(1400), ..PortOptions::default() };
    let mut port = dpdk.open(&device, options).unwrap_or_else(|error| panic!("{error}")).remove(0);
    assert_eq!(port.link().mtu, 1400);
    common::run("ip", &["link", "set", "ciotap0", "up"]);
    common::run("ip", &["addr", "add", "10.79.0.1/24", "dev", "ciotap0"]);
    common::run("ip", &["neigh", "add", "10.79.0.2", "lladdr", "02:00:00:00:00:02", "dev", "ciotap0"]);

    let mut ping = lab.spawn("m", &["ping", "-c", "5", "-i", "0.02", "-W", "2", "-q", "10.79.0.2"]);
    let mut burst: Vec<Frame> = Vec::with_capacity(64);
    let start = Instant::now();
    while ping.try_wait().expect("ping is ours").is_none() {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", port.stats());
        if port.rx_burst(&mut burst, 64) == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
        burst.iter_mut().for_each(answer);
        port.tx_burst(&mut burst);
        pool.free_all(&mut burst);
    }
    let output = ping.wait_with_output().expect("ping has ended");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("5 received"), "{text} {:?}", port.stats());
    drop(port);
    assert!(!std::path::Path::new("/sys/class/net/ciotap0").exists());
    let links = common::run("ip", &["-o", "link"]);
    assert!(!String::from_utf8_lossy(&links.stdout).contains("ciotap0"), "the interface is gone");
    assert_eq!(dpdk.pool_usage().outstanding(), 0, "every buffer came home");
}

/// Makes an echo request its own reply. The checksum changes by the type alone (RFC 1624), the addresses' sum does not.
fn answer(frame: &mut Frame) {
    let bytes = frame.bytes_mut();
    if bytes.get(12..14) != Some(&[8, 0]) || bytes.get(23) != Some(&1) || bytes.get(34) != Some(&8) {
        return;
    }
    let (to, from) = bytes.split_at_mut(6);
    to.swap_with_slice(&mut from[..6]);
    let (from, to) = bytes[26..34].split_at_mut(4);
    from.swap_with_slice(to);
    bytes[34] = 0;
    let sum = u32::from(u16::from_be_bytes([bytes[36], bytes[37]])) + 0x0800;
    bytes[36..38].copy_from_slice(&((sum + (sum >> 16)) as u16).to_be_bytes());
}
