//! The other end of a shared-memory interface: this program started again, which stamps what it gets and sends it back.

use carrack_frame::{Frame, FramePool};
use carrack_io::PacketIo;
use carrack_io_dpdk::{Dpdk, PortOptions};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Names the device to the program started again.
const PEER: &str = "CARRACK_TEST_MEMIF_PEER";
const FRAMES: u32 = 20_000;

/// The device to reflect on, in the program started again.
pub fn device_of_peer() -> Option<String> {
    std::env::var(PEER).ok()
}

/// Without a peer nothing is sent, and nothing is kept.
pub fn send_into_the_void(dpdk: &Dpdk, port: &mut dyn PacketIo) {
    let mut pool = dpdk.pool();
    let mut burst: Vec<Frame> = (0..8).filter_map(|_| pool.alloc()).collect();
    assert!(burst.iter_mut().all(|frame| frame.set_bytes(&[0; 64])));
    assert_eq!(port.tx_burst(&mut burst), 0);
    pool.free_all(&mut burst);
    assert_eq!(port.rx_burst(&mut burst, 64), 0);
}

/// Opens a device.
pub fn open(dpdk: &Dpdk, device: &str) -> Box<dyn PacketIo> {
    let device = device.parse().unwrap_or_else(|error| panic!("{error}"));
    dpdk.open(&device, PortOptions::default()).unwrap_or_else(|error| panic!("{error}")).remove(0)
}

/// Starts this program again, for the test of that name.
pub fn start_peer(name: &str, device: &str) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args(["--exact", name]).env(PEER, device).stdout(Stdio::null());
    command.spawn().expect("this program starts again")
}

/// What the other process puts in front of a frame, into its headroom.
const STAMP: &[u8] = b"seen";

/// The other process: stamps and sends back what it receives, until it is killed.
pub fn reflect(device: &str) {
    let dpdk = super::dpdk();
    let mut pool = dpdk.pool();
    let mut port = open(&dpdk, device);
    let mut burst = Vec::with_capacity(64);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        if port.rx_burst(&mut burst, 64) == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
        for frame in &mut burst {
            frame.prepend(STAMP.len()).expect("received frames have headroom").copy_from_slice(STAMP);
        }
        while !burst.is_empty() && start.elapsed() < Duration::from_secs(30) {
            port.tx_burst(&mut burst);
        }
    }
    pool.free_all(&mut burst);
}

/// Sends numbered frames of many lengths, never more on the way than the rings hold, and checks each that returns.
pub fn shuttle(dpdk: &Dpdk, port: &mut dyn PacketIo) {
    let mut pool = dpdk.pool();
    let (mut sent, mut returned) = (0u32, 0u32);
    let mut burst: Vec<Frame> = Vec::with_capacity(64);
    let start = Instant::now();
    while returned < FRAMES {
        while sent < FRAMES && sent - returned < 200 && burst.len() < 32 {
            let Some(mut frame) = pool.alloc() else { break };
            // A few bytes cut off the front: the packet starts elsewhere than the buffer expects.
            assert!(frame.set_bytes(&[&[0; 10], &numbered(sent)[..]].concat()) && frame.trim_front(10));
            burst.push(frame);
            sent += 1;
        }
        while !burst.is_empty() {
            port.tx_burst(&mut burst);
        }
        port.rx_burst(&mut burst, 64);
        for frame in &burst {
            let expected = [STAMP, &numbered(returned)].concat();
            assert_eq!(
                frame.bytes(),
                expected,
                "frame {returned} is the next, stamped and otherwise unchanged"
            );
            returned += 1;
        }
        pool.free_all(&mut burst);
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "{returned} of {sent} came back, {:?}",
            port.stats()
        );
    }
}

fn numbered(number: u32) -> Vec<u8> {
    let length = 60 + number as usize % 1440;
    number.to_be_bytes().into_iter().cycle().take(length).collect()
}

/// Waits for it, ten seconds at most.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}
