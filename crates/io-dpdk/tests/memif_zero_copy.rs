//! Several zero-copy shared-memory interfaces of one process: this one serves, itself started again is the client.

mod common;

use carrack_io::PacketIo;
use carrack_io_dpdk::{Dpdk, PortOptions};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PEER: &str = "CARRACK_TEST_MEMIF_PEER";

#[test]
fn every_zero_copy_client_of_a_process_connects() {
    need_root!();
    if let Ok(directory) = std::env::var(PEER) {
        let dpdk = common::dpdk();
        let ports = open(&dpdk, &directory, "client,zero-copy=yes");
        until("the servers are there", || ports.iter().all(|port| port.link().up));
        // Until it is killed.
        std::thread::sleep(Duration::from_secs(30));
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().display().to_string();
    let dpdk = common::dpdk();
    let ports = open(&dpdk, &path, "server");
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["--exact", "every_zero_copy_client_of_a_process_connects"]).env(PEER, &path);
    let mut peer = command.stdout(Stdio::null()).spawn().expect("this program starts again");
    until("all clients connect", || ports.iter().all(|port| port.link().up));
    peer.kill().expect("the peer is ours");
    peer.wait().expect("the peer is ours");
}

/// Three, so that one is still connecting when another is done.
fn open(dpdk: &Dpdk, directory: &str, role: &str) -> Vec<Box<dyn PacketIo>> {
    let port = |number| {
        let device = format!("memif:{directory}/{number}.sock,id={number},role={role}");
        let device = device.parse().unwrap_or_else(|error| panic!("{error}"));
        let options = PortOptions { name: format!("memif{number}"), ..PortOptions::default() };
        let port = dpdk.open(&device, options).unwrap_or_else(|error| panic!("{error}")).remove(0);
        if role != "server" {
            // The one before is connected by now and has closed its descriptor.
            until("this server is there", || port.link().up);
        }
        port
    };
    (0..3).map(port).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(10));
    }
}
