//! Which queue receives what: asked of DPDK's null driver, which spreads by addresses and knows no single one.

mod common;

use carrack_frame::FramePool;
use carrack_io_dpdk::{PortOptions, Spread, Steer, SteerBy};

#[test]
fn a_device_that_refuses_to_steer_spreads_all_the_same() {
    need_root!();
    let dpdk = common::dpdk();
    let steer =
        |by| Some(Steer { by, key: [0x9a, 0x31, 0x5c, 0x77], table: std::array::from_fn(|n| n as u16 % 2) });
    for (number, queues, steer, spread) in [
        (0, 1, steer(SteerBy::Source), Spread::Unknown),
        (1, 2, None, Spread::ByItsHash),
        (2, 2, steer(SteerBy::Source), Spread::ByItsHash),
        (3, 2, steer(SteerBy::Destination), Spread::ByItsHash),
    ] {
        let device = format!("vdev:net_null{number},size=64,copy=1").parse().expect("a device line");
        let options = PortOptions { name: format!("null{number}"), queues, steer, ..PortOptions::default() };
        let mut ports = dpdk.open(&device, options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(ports.len(), usize::from(queues));
        let watch = dpdk.watch(&format!("null{number}")).expect("the port is open");
        assert_eq!(watch.spread(), spread, "{number}");
        let mut burst = Vec::with_capacity(8);
        for port in &mut ports {
            assert!(port.rx_burst(&mut burst, 8) > 0, "every queue receives");
            dpdk.pool().free_all(&mut burst);
        }
    }
}
