//! Real programs through two XDP-socket ports between two namespaces, under the offload guard.

mod common;

use carrack_io_dpdk::{GuardOptions, OffloadGuard, PortOptions};
use common::{Lab, bridge_while, ping_and_tcp_pass};
use std::path::PathBuf;

#[test]
fn real_programs_pass_through_xdp_sockets() {
    need_root!();
    let mut lab = Lab::new("x");
    let options = GuardOptions { state_directory: PathBuf::from(lab.file("state")), mtu: None };
    let guards = ["port1", "port2"]
        .map(|name| OffloadGuard::take(name, &options).unwrap_or_else(|error| panic!("{error}")));
    let dpdk = common::dpdk();
    let mut pool = dpdk.pool();
    common::run("ethtool", &["-L", "port1", "rx", "2", "tx", "2"]);
    let device = "af_xdp:port1".parse().expect("a device line");
    let error =
        dpdk.open(&device, PortOptions::default()).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("2 receive queues, of which 1 would be served"), "{error}");
    common::run("ethtool", &["-L", "port1", "rx", "1", "tx", "1"]);
    let mut ports = ["port1", "port2"].map(|name| {
        let device = format!("af_xdp:{name}").parse().expect("a device line");
        let options = PortOptions { name: name.to_owned(), ..PortOptions::default() };
        dpdk.open(&device, options).unwrap_or_else(|error| panic!("{error}")).remove(0)
    });
    let link = ports[0].link();
    assert!(link.mtu == 1500 && link.mac.0 != [0; 6], "{link:?}");
    ping_and_tcp_pass(&lab, &mut ports, &mut pool);
    let (passed, _) =
        bridge_while(&mut ports, &mut pool, lab.spawn("a", &["python3", "-c", common::TAGGED_SENDER]));
    assert_eq!(passed.tags.get(..2), Some(&[0x8100_6005, 0x8100_6005][..]), "{passed:?}");
    assert!(ports[0].stats().rx_packets > 700, "{:?}", ports[0].stats());
    drop(ports);
    // DPDK 22.11's driver does not return on closing what its fill rings hold (2,048 buffers each) and is in flight.
    let kept_by_driver = 2 * (2048 + 64);
    assert!(dpdk.pool_usage().outstanding() <= kept_by_driver, "{:?}", dpdk.pool_usage());
    drop(guards);
    let program = common::run("ip", &["link", "show", "dev", "port1"]);
    assert!(!String::from_utf8_lossy(&program.stdout).contains("xdp"), "no program stays on the interface");
}
