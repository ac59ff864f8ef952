//! H.323 messages before and after the gateway, decoded by tshark.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::process::Command;

use carrack_alg::{Edits, Ends, Ground, Memory, Note, Protocol, Reading, Said, Side, Want};
use carrack_base::Proto;
use carrack_wire::PacketBuilder;

const MESSAGES: [&str; 4] = [
    include_str!("h323/setup.hex"),
    include_str!("h323/connect.hex"),
    include_str!("h323/progress.hex"),
    include_str!("h323/tunnelled.hex"),
];

/// Gives every port the one 10,000 above it.
struct Above;

impl Ground for Above {
    fn open(&mut self, want: &Want) -> Option<SocketAddrV4> {
        Some(SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), want.inside_port + 10_000))
    }
    fn keep_call(&mut self, _: &Want, _: u16) {}
    fn inside_port(&mut self, _: Proto, _: u16) -> Option<u16> {
        None
    }
    fn await_control(&mut self, _: SocketAddrV4) {}
    fn close(&mut self, _: u32) {}
    fn four(&self, ip: Ipv6Addr) -> Option<Ipv4Addr> {
        (ip.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0]).then(|| Ipv4Addr::from(ip.to_bits() as u32))
    }
    fn six(&self, ip: Ipv4Addr) -> Option<Ipv6Addr> {
        Some(Ipv6Addr::from(0x64_ff9b << 96 | u128::from(ip.to_bits())))
    }
    fn note(&mut self, _: Note) {}
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn through_the_gateway(message: &[u8]) -> Vec<u8> {
    passed(message, "10.0.0.5", Side::Inside)
}

fn passed(message: &[u8], inside: &str, side: Side) -> Vec<u8> {
    let ends = Ends {
        inside: inside.parse().unwrap(),
        inside_port: 1_234,
        outside: "192.0.2.1:11234".parse().unwrap(),
        remote: "198.51.100.7:1720".parse().unwrap(),
        client: Side::Inside,
        proto: Proto::Tcp,
    };
    let mut edits = Edits::default();
    let gateway = Protocol::H323.gateway();
    let reading = gateway.read(Said {
        memory: &mut Memory::default(),
        side,
        bytes: message,
        ends: &ends,
        ground: &mut Above,
        edits: &mut edits,
    });
    assert_eq!(reading, Reading::Done(message.len()));
    let mut out = vec![0; message.len() + 512];
    let len = edits.apply(message, &mut out).unwrap();
    out.truncate(len);
    out
}

/// What tshark says of these messages, each in a packet, without the packets' own headers.
fn decoded(name: &str, messages: &[Vec<u8>]) -> String {
    let mut capture: Vec<u8> = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
    capture.extend([0_u32, 0, 65_535, 101].iter().flat_map(|word| word.to_le_bytes()));
    for (n, message) in messages.iter().enumerate() {
        let packet = PacketBuilder::new()
            .ipv4(u32::from(Ipv4Addr::new(203, 0, 113, 1)), u32::from(Ipv4Addr::new(203, 0, 113, 2)))
            .tcp(1_000 + n as u16, 1_720, 0x18)
            .payload(message)
            .build();
        let len = packet.len() as u32;
        capture.extend([n as u32, 0, len, len].iter().flat_map(|word| word.to_le_bytes()));
        capture.extend(packet);
    }
    let file = std::env::temp_dir().join(format!("carrack-h323-{name}-{}.pcap", std::process::id()));
    std::fs::write(&file, capture).unwrap();
    let output = Command::new("tshark").args(["-V", "-O", "h225,h245", "-r"]).arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Is tshark missing where it may be?
fn is_missing() -> bool {
    if Command::new("tshark").arg("--version").output().is_ok() {
        return false;
    }
    let required = std::env::var("CARRACK_NETWORK_TESTS").is_ok_and(|value| value == "require");
    assert!(!required, "this test needs tshark: apt-get install tshark");
    eprintln!("not run: tshark is missing");
    true
}

#[test]
fn tshark_reads_outside_addresses_where_inside_ones_were_and_everything_else_as_before() {
    if is_missing() {
        return;
    }
    let before: Vec<Vec<u8>> = MESSAGES.into_iter().map(bytes).collect();
    let after: Vec<Vec<u8>> = before.iter().map(|message| through_the_gateway(message)).collect();
    let (before, after) = (decoded("before", &before), decoded("after", &after));
    assert!(before.contains("Facility") || before.contains("facility"), "tshark reads H.225: {before}");
    assert!(!after.contains("10.0.0.5") && !after.contains("alformed"), "{after}");
    let port = |line: &str| line.trim().split_once(": ").and_then(|(_, port)| port.parse::<u32>().ok());
    let mut endpoints = 0;
    for (old, new) in before.lines().zip(after.lines()) {
        if old.contains("10.0.0.5") {
            assert_eq!(old.replace("10.0.0.5", "192.0.2.1"), new);
            endpoints += 1;
        } else if old != new {
            let is_port = old.contains("port: ") || old.contains("tsapIdentifier: ");
            assert!(is_port && port(old).map(|port| port + 10_000) == port(new), "{old} became {new}");
        }
    }
    assert_eq!(before.lines().count(), after.lines().count());
    assert!(endpoints >= 15, "{endpoints}\n{before}");
}

/// RFC 6052 §2.2: what an IPv4 host says as an IPv6 host reads it, and what that would be as its answer.
#[test]
fn tshark_reads_ipv6_addresses_where_ipv4_ones_were_and_back() {
    if is_missing() {
        return;
    }
    let before: Vec<Vec<u8>> = MESSAGES.into_iter().map(bytes).collect();
    let six: Vec<Vec<u8>> =
        before.iter().map(|message| passed(message, "2001:db8::99", Side::Outside)).collect();
    let (told, told6) = (decoded("four", &before), decoded("six", &six));
    assert!(!told6.contains("alformed") && !told6.contains("10.0.0.5"), "{told6}");
    let count = |text: &str, word: &str| text.lines().filter(|line| line.contains(word)).count();
    // tshark writes an address twice: dissected, and as the name of its field.
    let (four, six_found) = (count(&told, "10.0.0.5"), count(&told6, "64:ff9b::a00:5"));
    assert!(four >= 15 && six_found == four, "{six_found} of {four}\n{told6}");
    let ports = |text: &str| -> Vec<String> {
        let is_port = |line: &&str| line.contains("port: ") || line.contains("tsapIdentifier: ");
        text.lines().filter(is_port).map(|line| line.trim().to_owned()).collect()
    };
    assert_eq!(ports(&told), ports(&told6));
    let own: Vec<Vec<u8>> =
        six.iter().map(|message| passed(message, "64:ff9b::a00:5", Side::Inside)).collect();
    let as_four: Vec<Vec<u8>> = before.iter().map(|message| through_the_gateway(message)).collect();
    assert_eq!(own, as_four, "an IPv6 host's call reads as an IPv4 host's");
}
