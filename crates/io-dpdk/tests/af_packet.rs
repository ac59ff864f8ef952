//! Real programs through two packet-socket ports between two namespaces, under the offload guard.

mod common;

use carrack_frame::FramePool;
use carrack_io_dpdk::{Dpdk, GuardOptions, OffloadChange, OffloadGuard, PortOptions};
use common::{Lab, bridge_while, ping_and_tcp_pass};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[test]
fn real_programs_pass_through_packet_sockets_and_the_interfaces_are_restored() {
    need_root!();
    let mut lab = Lab::new("p");
    let state_directory = PathBuf::from(lab.file("state"));
    let before = (lab.features("m", "port1"), lab.features("a", "eth0"));
    let options = GuardOptions { state_directory: state_directory.clone(), mtu: None };
    let guards = ["port1", "port2"]
        .map(|name| OffloadGuard::take(name, &options).unwrap_or_else(|error| panic!("{error}")));
    for (guard, host) in guards.iter().zip(["a", "b"]) {
        let sentences: Vec<String> = guard.changes().iter().map(ToString::to_string).collect();
        let (peer, place) = (lab.features(host, "eth0"), lab.namespace(host));
        assert!(peer.contains("tx-checksumming: off"), "{sentences:?} {peer}");
        assert!(
            sentences
                .iter()
                .any(|sentence| sentence.contains(&format!("eth0 in namespace {place}: switched off"))),
            "{sentences:?}"
        );
        assert!(guard.changes().iter().any(|change| matches!(change, OffloadChange::BroughtUp { .. })));
    }

    let dpdk = common::dpdk();
    let mut pool = dpdk.pool();
    let mut ports = ["port1", "port2"].map(|name| {
        let device = format!("af_packet:{name}").parse().expect("a device line");
        let options = PortOptions { name: name.to_owned(), ..PortOptions::default() };
        dpdk.open(&device, options).unwrap_or_else(|error| panic!("{error}")).remove(0)
    });
    let link = ports[0].link();
    assert!(link.up && link.mtu == 1500 && link.mac.0 != [0; 6], "{link:?}");
    ping_and_tcp_pass(&lab, &mut ports, &mut pool);
    vlan_tags_pass(&lab, &mut ports, &mut pool);
    fragments_stay_fragments(&lab, &mut ports, &mut pool);

    let stats = dpdk.watch("port1").and_then(|watch| watch.stats()).expect("the port is open");
    assert_eq!(stats, ports[0].stats());
    assert!(stats.rx_packets > 700 && stats.tx_packets > 100 && stats.rx_bytes > 1 << 20, "{stats:?}");
    drop(ports);
    assert!(dpdk.watch("port1").and_then(|watch| watch.stats()).is_none(), "the port is closed");
    assert_eq!(dpdk.pool_usage().outstanding(), 0, "every buffer came home");
    two_queues_share_the_flows(&lab, &dpdk);
    drop(guards);
    assert_eq!((lab.features("m", "port1"), lab.features("a", "eth0")), before, "restored as it was");
    assert_eq!(std::fs::read_dir(state_directory).map(|entries| entries.count()).ok(), Some(0));
}

/// A tag the kernel carries beside the packet is in the frame again.
fn vlan_tags_pass(lab: &Lab, ports: &mut [Box<dyn carrack_io::PacketIo>; 2], pool: &mut dyn FramePool) {
    let (passed, _) = bridge_while(ports, pool, lab.spawn("a", &["python3", "-c", common::TAGGED_SENDER]));
    assert_eq!(passed.tags.get(..2), Some(&[0x8100_6005, 0x8100_6005][..]), "{passed:?}");
}

/// A datagram larger than the wire's packets arrives as its sender cut it: the kernel does not join the pieces.
fn fragments_stay_fragments(
    lab: &Lab,
    ports: &mut [Box<dyn carrack_io::PacketIo>; 2],
    pool: &mut dyn FramePool,
) {
    let ping = ["ping", "-c", "2", "-i", "0.02", "-W", "2", "-q", "-s", "20000", "10.77.0.2"];
    let (passed, text) = bridge_while(ports, pool, lab.spawn("a", &ping));
    assert!(text.contains("2 received, 0% packet loss"), "{text} {passed:?}");
    assert!(passed.largest <= 1514 && passed.frames >= 56, "fourteen pieces each: {passed:?}");
}

/// A port opens again after it was closed, and with two queues each flow stays on one of them.
fn two_queues_share_the_flows(lab: &Lab, dpdk: &Dpdk) {
    let device = "af_packet:port1".parse().expect("a device line");
    let options = PortOptions { queues: 2, ..PortOptions::default() };
    let mut queues = dpdk.open(&device, options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(queues.len(), 2);
    let mut sender = lab.spawn("a", &["python3", "-c", UDP_SENDER]);
    let mut pool = dpdk.pool();
    let mut queues_of_flow: BTreeMap<u16, BTreeSet<usize>> = BTreeMap::new();
    let mut burst = Vec::with_capacity(64);
    let start = Instant::now();
    while queues_of_flow.len() < 32 || sender.try_wait().expect("the sender is ours").is_none() {
        for (number, queue) in queues.iter_mut().enumerate() {
            queue.rx_burst(&mut burst, 64);
            for bytes in burst.iter().map(|frame| frame.bytes()) {
                if let (Some(&[8, 0]), Some(&[high, low])) = (bytes.get(12..14), bytes.get(34..36)) {
                    queues_of_flow.entry(u16::from_be_bytes([high, low])).or_default().insert(number);
                }
            }
            pool.free_all(&mut burst);
        }
        assert!(start.elapsed() < Duration::from_secs(10), "{queues_of_flow:?}");
    }
    assert!(queues_of_flow.values().all(|queues| queues.len() == 1), "{queues_of_flow:?}");
    let used: BTreeSet<usize> = queues_of_flow.into_values().flatten().collect();
    assert_eq!(used.len(), 2, "32 flows use both queues");
}

/// Three packets of each of 32 flows.
const UDP_SENDER: &str = "
import socket
for port in range(20000, 20032):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.77.0.1', port))
    for _ in range(3): s.sendto(b'flow', ('10.77.0.2', 9))
";
