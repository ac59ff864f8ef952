//! Real programs through two packet-socket ports between two namespaces, under the offload guard.

mod common;

use carrack_frame::FramePool;
use carrack_io_dpdk::{GuardOptions, OffloadChange, OffloadGuard, PortOptions};
use common::{Lab, bridge_while, ping_and_tcp_pass};
use std::path::PathBuf;

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

    let stats = dpdk.watch("port1").and_then(|watch| watch.stats()).expect("the port is open");
    assert_eq!(stats, ports[0].stats());
    assert!(stats.rx_packets > 700 && stats.tx_packets > 100 && stats.rx_bytes > 1 << 20, "{stats:?}");
    drop(ports);
    assert!(dpdk.watch("port1").and_then(|watch| watch.stats()).is_none(), "the port is closed");
    assert_eq!(dpdk.pool_usage().outstanding(), 0, "every buffer came home");
    drop(guards);
    assert_eq!((lab.features("m", "port1"), lab.features("a", "eth0")), before, "restored as it was");
    assert_eq!(std::fs::read_dir(state_directory).map(|entries| entries.count()).ok(), Some(0));
}

/// A tag the kernel carries beside the packet is in the frame again.
fn vlan_tags_pass(lab: &Lab, ports: &mut [Box<dyn carrack_io::PacketIo>; 2], pool: &mut dyn FramePool) {
    let (passed, _) = bridge_while(ports, pool, lab.spawn("a", &["python3", "-c", common::TAGGED_SENDER]));
    assert_eq!(passed.tags.get(..2), Some(&[0x8100_6005, 0x8100_6005][..]), "{passed:?}");
}
