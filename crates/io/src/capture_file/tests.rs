use super::*;
use std::io::Write;

fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("the file takes it");
    file
}

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32 + 12).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn section() -> Vec<u8> {
    let body =
        [&0x1a2b_3c4d_u32.to_le_bytes()[..], &1u16.to_le_bytes(), &0u16.to_le_bytes(), &[0xff; 8]].concat();
    block(0x0a0d_0d0a, &body)
}

/// An interface of the link type, with an if_tsresol option when one is given.
fn interface(link_type: u16, tsresol: Option<u8>) -> Vec<u8> {
    let mut body = [&link_type.to_le_bytes()[..], &[0, 0], &[0; 4]].concat();
    if let Some(tsresol) = tsresol {
        body.extend([9, 0, 1, 0, tsresol, 0, 0, 0, 0, 0, 0, 0]);
    }
    block(1, &body)
}

fn packet(interface: u32, units: u32, bytes: &[u8; 4], original: u32) -> Vec<u8> {
    let body = [interface, 0, units, 4, original].map(u32::to_le_bytes).concat();
    block(6, &[&body[..], bytes].concat())
}

#[test]
fn pcapng_timestamps_follow_the_resolution_of_their_interface() {
    let file = file_of(
        &[
            section(),
            interface(1, None),
            interface(1, Some(9)),
            interface(1, Some(0x81)),
            packet(0, 1_500_000, b"usec", 4),
            packet(1, 1_500_000_000, b"nsec", 4),
            packet(2, 3, b"half", 100),
        ]
        .concat(),
    );
    let packets = read_capture(file.path()).expect("a sound file");
    assert!(packets.iter().all(|packet| packet.timestamp == Duration::from_millis(1500)), "{packets:?}");
    assert_eq!(packets[2].bytes, b"half");
    assert_eq!(packets.iter().map(|packet| packet.cut_short).collect::<Vec<_>>(), [false, false, true]);
}

#[test]
fn files_that_are_no_ethernet_capture_are_refused_with_the_reason() {
    for (bytes, says) in [
        (vec![], "empty or too short"),
        (b"this is a text file, not a capture of packets".to_vec(), "neither pcap nor pcapng"),
        ([section(), interface(113, None)].concat(), "capture on an Ethernet interface"),
        (
            [section(), interface(1, None), packet(0, 0, b"cut!", 4)[..20].to_vec()].concat(),
            "cut off after packet 0",
        ),
    ] {
        let file = file_of(&bytes);
        let message = read_capture(file.path()).expect_err("not a capture").to_string();
        assert!(message.contains(says), "{message}");
    }
}
