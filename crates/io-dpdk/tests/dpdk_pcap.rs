//! Capture files through DPDK's own driver.

mod common;

use carrack_frame::FramePool;
use carrack_io::{PacketIo, PcapPort, PcapPortOptions, read_capture};
use carrack_io_dpdk::PortOptions;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn what_one_file_holds_another_receives() {
    need_root!();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (rx, tx) = (directory.path().join("in.pcap"), directory.path().join("out.pcap"));
    let packets: Vec<Vec<u8>> = (60..160).map(|length| vec![length as u8; length]).collect();
    let oversized = vec![vec![7; 3000]];
    write_capture(&rx, &[&packets[..50], &oversized, &packets[50..]].concat());

    let dpdk = common::dpdk();
    let missing = "dpdk-pcap:rx=/no/such/file.pcap".parse().expect("a device line");
    let error =
        dpdk.open(&missing, PortOptions::default()).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.contains("capture file") && error.contains("/no/such/file.pcap"), "{error}");

    let device = format!("dpdk-pcap:rx={},tx={}", rx.display(), tx.display()).parse().expect("a device line");
    let mut port =
        dpdk.open(&device, PortOptions::default()).unwrap_or_else(|error| panic!("{error}")).remove(0);
    let mut pool = dpdk.pool();
    let mut burst = Vec::with_capacity(64);
    let (mut received, start) = (0, Instant::now());
    while received < packets.len() {
        received += port.rx_burst(&mut burst, 7);
        port.tx_burst(&mut burst);
        assert!(burst.is_empty(), "a file takes everything");
        assert!(start.elapsed() < Duration::from_secs(10), "{received}");
    }
    let stats = port.stats();
    let passed = packets.len() as u64;
    assert_eq!((stats.rx_packets, stats.tx_packets), (passed, passed), "{stats:?}");
    assert_eq!(stats.rx_errors, 1, "the packet larger than a frame is counted: {stats:?}");
    pool.free_all(&mut burst);
    drop(port);
    let written: Vec<Vec<u8>> =
        read_capture(&tx).expect("a whole file").into_iter().map(|packet| packet.bytes).collect();
    assert_eq!(written, packets);
    assert_eq!(dpdk.pool_usage().outstanding(), 0, "every buffer came home");
}

fn write_capture(path: &Path, packets: &[Vec<u8>]) {
    let mut pool = carrack_frame::MemPool::new(128, 4096, 0);
    let options = PcapPortOptions { rx: None, tx: Some(path.to_owned()), index: 0, mtu: 1500, paced: false };
    let mut writer = PcapPort::open("writer", options, pool.handle(128)).expect("the directory is writable");
    let mut burst: Vec<_> = packets.iter().filter_map(|packet| pool.alloc_copy(packet)).collect();
    assert_eq!(writer.tx_burst(&mut burst), packets.len());
}
