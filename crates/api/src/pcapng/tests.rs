use std::process::Command;

use carrack_base::Reason;
use pcap_file::pcapng::{Block, PcapNgReader};

use super::*;
use crate::fake::FRAME;

fn packet(n: u64, interface: &str, point: &'static str, reason: Option<Reason>) -> CapturedPacket {
    CapturedPacket {
        unix_ns: 1_700_000_000_123_456_789 + n,
        interface: interface.into(),
        point,
        reason,
        original_len: 60,
        lost: if n == 3 { 5 } else { 0 },
        bytes: FRAME.to_vec(),
    }
}

fn file() -> Vec<u8> {
    let mut writer = Writer::new().unwrap();
    let mut bytes = Vec::new();
    for captured in [
        packet(0, "inside", "rx", None),
        packet(1, "outside", "tx", None),
        packet(2, "inside", "drop", Some(Reason::NatFiltered)),
        packet(3, "inside", "rx", None),
        packet(4, "inside", "drop", Some(Reason::NatPoolExhausted)),
    ] {
        writer.packet(&captured).unwrap();
        bytes.extend(writer.take());
    }
    assert!(writer.is_empty());
    bytes
}

#[test]
fn every_interface_and_point_has_one_block_and_packets_refer_to_it() {
    let bytes = file();
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    let (mut names, mut packets) = (Vec::new(), Vec::new());
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::InterfaceDescription(interface) => {
                let name = interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                });
                names.push(name.unwrap());
            }
            Block::EnhancedPacket(packet) => packets.push((packet.interface_id, packet.original_len)),
            _ => {}
        }
    }
    assert_eq!(names, ["inside.rx", "outside.tx", "inside.drop"]);
    assert_eq!(packets, [(0, 60), (1, 60), (2, 60), (0, 60), (2, 60)]);
}

#[test]
fn a_packet_tells_how_many_are_missing_before_it() {
    let bytes = file();
    let mut reader = PcapNgReader::new(&bytes[..]).unwrap();
    let mut missing = Vec::new();
    while let Some(block) = reader.next_block() {
        if let Block::EnhancedPacket(packet) = block.unwrap() {
            missing.push(packet.options.iter().find_map(|option| match option {
                EnhancedPacketOption::DropCount(count) => Some(*count),
                _ => None,
            }));
        }
    }
    assert_eq!(missing, [None, None, None, Some(5), None]);
}

#[test]
fn tshark_shows_times_interfaces_and_drop_reasons() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("capture.pcapng");
    std::fs::write(&path, file()).unwrap();
    let fields = ["frame.time_epoch", "frame.interface_name", "frame.len", "frame.comment"];
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&path).args(["-T", "fields", "-E", "separator=|"]);
    tshark.args(fields.iter().flat_map(|field| ["-e", field]));
    let Ok(output) = tshark.output() else {
        eprintln!("tshark is not installed: not tested");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!(lines.first(), Some(&"1700000000.123456789|inside.rx|60|"));
    let drop = lines.get(2).unwrap();
    let description = Reason::NatFiltered.info().description;
    assert_eq!(*drop, format!("1700000000.123456791|inside.drop|60|dropped: nat-filtered - {description}"));
}
