//! One record of every kind and family, and a capture file to hand messages to a judge.
#![allow(dead_code, reason = "each test uses a part")]

use std::net::IpAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use carrack_base::Reason;
use carrack_config::{Config, PortFacts};
use carrack_natlog::Service;
use carrack_natlog::context::{Context, InstanceContext};
use carrack_natlog::record::{Kind, Quota, Record, Threshold};
use pcap_file::pcap::{PcapPacket, PcapWriter};

/// 2026-03-03T14:03:22.500Z.
pub const AT_MS: u64 = 1_772_546_602_500;

pub fn context() -> Context {
    let instance = InstanceContext {
        name: "cgn1".into(),
        inside_vrf: 1,
        pool: 3,
        threshold_percent: 80,
        ..InstanceContext::default()
    };
    Context {
        instances: vec![instance],
        pools: vec![(3, "p1".into())],
        vrfs: vec!["default".into(), "mobile".into()],
        room: [1_000, 2_000, 3_000],
    }
}

/// The subscribers of the records: one of each family.
pub fn subscribers() -> [IpAddr; 2] {
    ["100.64.0.5".parse().unwrap(), "2001:db8::5".parse().unwrap()]
}

/// Every event that a collector can get, each for IPv4 and IPv6 subscribers.
pub fn every_event() -> Vec<Record> {
    let mut records = Vec::new();
    for inside in subscribers() {
        let six = inside.is_ipv6();
        let remote: IpAddr =
            if six { "64:ff9b::c633:6407".parse().unwrap() } else { "198.51.100.7".parse().unwrap() };
        for kind in Kind::ALL {
            let record = Record {
                worker: 1,
                pool: 3,
                protocol: 17,
                inside,
                inside_port: 5_000,
                outside: u32::from_be_bytes([203, 0, 113, 7]),
                first: 4_096,
                last: 4_607,
                value: 77,
                ..Record::new(AT_MS, kind)
            };
            match kind {
                Kind::SessionCreated | Kind::SessionDeleted => {
                    records.push(record);
                    let remote4 = u32::from_be_bytes([198, 51, 100, 7]);
                    records.push(Record { remote, remote4, remote_port: 443, ..record });
                }
                Kind::QuotaExceeded => {
                    for (quota, reason) in [
                        (Quota::Sessions, Reason::NatSessionTableFull),
                        (Quota::Mappings, Reason::NatMappingTableFull),
                        (Quota::PerUser, Reason::NatPortLimit),
                        (Quota::Subscribers, Reason::NatSubscriberTableFull),
                    ] {
                        records.push(Record { detail: quota as u8, reason: Some(reason), ..record });
                    }
                }
                Kind::ThresholdReached => {
                    for which in [
                        Threshold::PoolHigh,
                        Threshold::PoolLow,
                        Threshold::PerUser,
                        Threshold::Ports,
                        Threshold::Paired,
                    ] {
                        records.push(Record { detail: which as u8, ..record });
                    }
                }
                _ => records.push(record),
            }
        }
    }
    records
}

/// A service of one exporter, described by the lines given, which spools into `dir`.
pub fn service(dir: &Path, exporter: &str) -> Service {
    let text = format!(
        "[system]\nname = \"edge-1\"\n\n[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\n\n\
         [[interface]]\nname = \"b\"\ndevice = \"mem:b\"\nside = \"outside\"\n\n[[nat]]\nname = \"cgn1\"\n\n\
         [[nat.pool]]\nname = \"p\"\naddresses = [\"203.0.113.0/24\"]\n\n[logging]\nspool_dir = \"{}/spool\"\n\n\
         [[logging.exporter]]\nspool_mb = 10\n{exporter}",
        dir.display()
    );
    let (config, _) = Config::from_str("test", &text).unwrap();
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).unwrap();
    Service::start(&config, Context::of(&config, &compiled.snapshot), AT_MS).unwrap()
}

/// A capture of datagrams to `port` on 127.0.0.1.
pub fn capture(path: &Path, port: u16, datagrams: &[Vec<u8>]) {
    let mut writer = PcapWriter::new(std::fs::File::create(path).unwrap()).unwrap();
    for datagram in datagrams {
        let (udp, ip) = ((datagram.len() + 8) as u16, (datagram.len() + 28) as u16);
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend(ip.to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1]);
        frame.extend(40_000u16.to_be_bytes());
        frame.extend(port.to_be_bytes());
        frame.extend(udp.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(datagram);
        let packet = PcapPacket::new(Duration::from_millis(AT_MS), frame.len() as u32, &frame);
        writer.write_packet(&packet).unwrap();
    }
}

/// What tshark makes of a capture, in full.
pub fn tshark(path: &Path, port: u16) -> String {
    let decode = format!("udp.port=={port},cflow");
    let out = Command::new("tshark")
        .arg("-r")
        .arg(path)
        .args(["-d", &decode, "-V", "-O", "cflow"])
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}
