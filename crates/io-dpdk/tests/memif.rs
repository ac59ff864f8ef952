//! Frames through a shared-memory interface between two processes: this one and itself started again.

mod common;

use common::memif::{self, device_of_peer, open, reflect, send_into_the_void, shuttle, until};
use std::path::PathBuf;

fn start_peer(device: &str) -> std::process::Child {
    memif::start_peer("frames_cross_to_another_process_and_back_unchanged", device)
}

#[test]
fn frames_cross_to_another_process_and_back_unchanged() {
    need_root!();
    if let Some(device) = device_of_peer() {
        return reflect(&device);
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let dpdk = common::dpdk();
    for (number, zero_copy) in [(1, "no"), (2, "yes")] {
        let socket: PathBuf = directory.path().join(format!("{number}.sock"));
        let mut port = open(&dpdk, &format!("memif:{},id=3,role=server", socket.display()));
        let mut peer =
            start_peer(&format!("memif:{},id=3,role=client,zero-copy={zero_copy}", socket.display()));
        until("the peer connects", || port.link().up);
        shuttle(&dpdk, port.as_mut());
        peer.kill().expect("the peer is ours");
        peer.wait().expect("the peer is ours");
        until("the lost peer is noticed", || !port.link().up);
        // What was in the rings is gone; the peer that comes back starts with new ones.
        send_into_the_void(&dpdk, port.as_mut());
        let mut peer =
            start_peer(&format!("memif:{},id=3,role=client,zero-copy={zero_copy}", socket.display()));
        until("the peer comes back", || port.link().up);
        shuttle(&dpdk, port.as_mut());
        peer.kill().expect("the peer is ours");
        peer.wait().expect("the peer is ours");
        drop(port);
        assert_eq!(dpdk.pool_usage().outstanding(), 0, "every buffer came home");
    }
}
