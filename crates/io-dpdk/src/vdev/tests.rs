use super::*;

const CONTEXT: VdevContext = VdevContext { number: 3, queues: 2, mtu: 1500 };

fn device(line: &str, context: VdevContext) -> DpdkDevice {
    let spec = line.parse().unwrap_or_else(|error| panic!("{error}"));
    dpdk_device(&spec, context).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn each_kind_becomes_its_driver() {
    for (line, bus, name, arguments) in [
        ("pci:03:00.0", "pci", "0000:03:00.0", ""),
        ("af_xdp:eth0", "vdev", "net_af_xdp3", "iface=eth0,start_queue=0,queue_count=2"),
        ("tap:t0", "vdev", "net_tap3", "iface=t0"),
        (
            "memif:/run/m,id=5,role=server",
            "vdev",
            "net_memif3",
            "role=server,id=5,socket=/run/m,socket-abstract=no,zero-copy=no",
        ),
        ("dpdk-pcap:rx=a,tx=b", "vdev", "net_pcap3", "rx_pcap=a,tx_pcap=b"),
        ("dpdk-pcap:tx=b", "vdev", "net_pcap3", "tx_pcap=b"),
        ("vdev:net_null7,size=64,copy=1", "vdev", "net_null7", "size=64,copy=1"),
    ] {
        let expected = DpdkDevice { bus, name: name.to_owned(), arguments: arguments.to_owned() };
        assert_eq!(device(line, CONTEXT), expected);
    }
}

#[test]
fn packet_socket_rings_hold_the_largest_packet_of_the_interface() {
    for (mtu, frame, block) in [(1500, 2048, 16_384), (1280, 2048, 16_384), (9000, 9216, 73_728)] {
        let arguments = device("af_packet:eth0", VdevContext { mtu, ..CONTEXT }).arguments;
        let expected = format!("blocksz={block},framesz={frame},");
        assert!(arguments.contains(&expected), "{mtu}: {arguments}");
        assert_eq!((block % 4096, block % frame), (0, 0), "whole pages, whole frames");
    }
    assert!(device("af_packet:eth0", CONTEXT).arguments.starts_with("iface=eth0,qpairs=2,"));
}

#[test]
fn in_process_devices_are_refused_with_the_alternative() {
    let spec = DeviceSpec::Mem { name: "lan".to_owned() };
    let error = dpdk_device(&spec, CONTEXT).expect_err("mem is not a DPDK device").to_string();
    assert!(error.contains("does not mix"), "{error}");
}

#[test]
fn the_usual_frame_sizes_serve_the_usual_interfaces() {
    for (line, mtu, frame) in
        [("af_packet:e", 1500, 2048), ("af_packet:e", 9000, 9728), ("af_xdp:e", 1500, 2048)]
    {
        let spec = line.parse().unwrap_or_else(|error| panic!("{error}"));
        assert!(frame_bytes_needed(&spec, mtu) <= frame, "{line} {mtu}");
        assert!(frame_bytes_needed(&spec, mtu) >= u32::from(mtu) + 22, "{line} {mtu}");
    }
}
