//! The client of a shared-memory interface whose server comes late, dies under traffic, and comes back.

mod common;

use carrack_frame::{Frame, FramePool};
use carrack_io::PacketIo;
use carrack_io_dpdk::Dpdk;
use common::memif::{device_of_peer, open, reflect, send_into_the_void, shuttle, start_peer, until};
use std::time::{Duration, Instant};

const NAME: &str = "client_finds_its_server_whenever_it_comes";

#[test]
fn client_finds_its_server_whenever_it_comes() {
    need_root!();
    if let Some(device) = device_of_peer() {
        return reflect(&device);
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dpdk = common::dpdk();
    for (id, zero_copy) in [(4, "no"), (5, "yes")] {
        let socket = directory.path().join(format!("{id}.sock")).display().to_string();
        let client = format!("memif:{socket},id={id},role=client,zero-copy={zero_copy}");
        let mut port = open(&dpdk, &client);
        assert!(!port.link().up, "nobody listens yet");
        send_into_the_void(&dpdk, port.as_mut());
        for _ in 0..3 {
            // The first finds no socket, the others the one that the killed server before has left.
            let mut server = start_peer(NAME, &format!("memif:{socket},id={id},role=server"));
            until("it connects", || port.link().up);
            shuttle(&dpdk, port.as_mut());
            server.kill().expect("the peer is ours");
            server.wait().expect("the peer is ours");
            busy_until_lost(&dpdk, port.as_mut());
            send_into_the_void(&dpdk, port.as_mut());
        }
        drop(port);
        assert_eq!(dpdk.pool_usage().outstanding(), 0, "every buffer came home");
    }
}

/// Sends and receives without a pause while the rings go away.
fn busy_until_lost(dpdk: &Dpdk, port: &mut dyn PacketIo) {
    let mut pool = dpdk.pool();
    let mut burst: Vec<Frame> = Vec::with_capacity(64);
    let start = Instant::now();
    while port.link().up {
        while burst.len() < 32
            && let Some(mut frame) = pool.alloc()
        {
            assert!(frame.set_bytes(&[0; 1_000]));
            burst.push(frame);
        }
        port.tx_burst(&mut burst);
        pool.free_all(&mut burst);
        port.rx_burst(&mut burst, 32);
        pool.free_all(&mut burst);
        assert!(start.elapsed() < Duration::from_secs(10), "the lost server is not noticed");
    }
}
