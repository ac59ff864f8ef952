//! Jumbo packets through packet-socket ports whose interfaces the guard has given a larger MTU.

mod common;

use carrack_io_dpdk::{EalOptions, GuardOptions, OffloadGuard, PortOptions};
use common::{Lab, bridge_while};
use std::path::PathBuf;

#[test]
fn packets_of_nine_thousand_bytes_pass_and_the_mtu_is_set_back() {
    need_root!();
    let mut lab = Lab::new("j");
    for host in ["a", "b"] {
        common::run("ip", &["-n", &lab.namespace(host), "link", "set", "eth0", "mtu", "9000"]);
    }
    let options = GuardOptions { state_directory: PathBuf::from(lab.file("state")), mtu: Some(9000) };
    let guards = ["port1", "port2"]
        .map(|name| OffloadGuard::take(name, &options).unwrap_or_else(|error| panic!("{error}")));
    let dpdk = common::dpdk_with(EalOptions { frame_bytes: 9728, ..EalOptions::default() });
    let mut pool = dpdk.pool();
    let mut ports = ["port1", "port2"].map(|name| {
        let device = format!("af_packet:{name}").parse().expect("a device line");
        dpdk.open(&device, PortOptions::default()).unwrap_or_else(|error| panic!("{error}")).remove(0)
    });
    assert_eq!(ports[0].link().mtu, 9000);
    let ping = ["ping", "-M", "do", "-s", "8972", "-c", "3", "-i", "0.05", "-W", "2", "-q", "10.77.0.2"];
    let (passed, text) = bridge_while(&mut ports, &mut pool, lab.spawn("a", &ping));
    assert!(text.contains("3 received"), "{text} {passed:?}");
    assert_eq!(passed.largest, 9014);
    drop(ports);
    drop(guards);
    let link = common::run("ip", &["link", "show", "dev", "port1"]);
    assert!(String::from_utf8_lossy(&link.stdout).contains("mtu 1500"));
}
