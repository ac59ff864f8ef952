//! Every kind of malformed packet is a counted drop under its own name, and nothing is said about it.

mod common;

use std::collections::BTreeSet;

use carrack_base::{REASONS, Reason};
use carrack_wire::tcp::flag;
use carrack_wire::{MacAddr, PacketBuilder, checksum};
use common::*;

/// A good frame, damaged.
fn damaged(frame: Vec<u8>, damage: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = frame;
    damage(&mut frame);
    frame
}

/// The same, with a right header checksum after the damage.
fn forged(frame: Vec<u8>, damage: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    damaged(frame, |frame| {
        damage(frame);
        let header_len = (usize::from(frame[14] & 15) * 4).clamp(20, frame.len() - 14);
        frame[24..26].fill(0);
        let sum = checksum::checksum(&frame[14..14 + header_len]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    })
}

fn good() -> Vec<u8> {
    udp(IN, "10.0.0.5:1000", "203.0.113.200:53")
}

fn from(src: &str) -> Vec<u8> {
    forged(good(), |f| f[26..30].copy_from_slice(&ip(src).to_be_bytes()))
}

fn to(dst: &str) -> Vec<u8> {
    forged(good(), |f| f[30..34].copy_from_slice(&ip(dst).to_be_bytes()))
}

fn link_layer() -> Vec<Named> {
    let mac = |at: usize, mac: [u8; 6]| damaged(good(), |f| f[at..at + 6].copy_from_slice(&mac));
    let kind = |kind: u16| damaged(good(), |f| f[12..14].copy_from_slice(&kind.to_be_bytes()));
    let tagged = |vids: &[u16]| {
        let mut packet = packet(IN, "10.0.0.5", "203.0.113.200").udp(1, 2);
        for vid in vids {
            packet = packet.vlan(*vid);
        }
        packet.build()
    };
    vec![
        ("no octet", vec![], Reason::L2Truncated),
        ("13 octets", good()[..13].to_vec(), Reason::L2Truncated),
        ("tag cut off", tagged(&[100])[..17].to_vec(), Reason::L2Truncated),
        ("second tag cut off", tagged(&[100, 5])[..20].to_vec(), Reason::L2Truncated),
        ("tag where there is none", tagged(&[100]), Reason::L2UnknownVlan),
        ("two tags where there are none", tagged(&[200, 7]), Reason::L2UnknownVlan),
        ("another station's", mac(0, [2, 0, 0, 0, 9, 9]), Reason::L2NotForUs),
        ("unicast sent to all stations", mac(0, [0xff; 6]), Reason::L2NotForUs),
        ("unicast sent to a group", mac(0, [1, 0, 0x5e, 0, 0, 1]), Reason::L2NotForUs),
        ("from a group", mac(6, [3, 0, 0, 0, 0, 1]), Reason::L2SourceInvalid),
        ("from ourselves", mac(6, port_mac(IN).0), Reason::L2SourceInvalid),
        ("IPv6 where there is none", kind(0x86dd), Reason::Ipv6Disabled),
        ("a length for a type", kind(0x0040), Reason::L2UnknownEthertype),
        (
            "ARP cut off",
            damaged(good(), |f| {
                f[12..14].copy_from_slice(&[8, 6]);
                f.truncate(30)
            }),
            Reason::ArpMalformed,
        ),
        ("ARP of another kind", kind(0x0806), Reason::ArpMalformed),
    ]
}

fn ip_header() -> Vec<Named> {
    vec![
        ("no header", good()[..14].to_vec(), Reason::Ipv4Truncated),
        ("19 octets", good()[..33].to_vec(), Reason::Ipv4Truncated),
        ("version 6", forged(good(), |f| f[14] = 0x65), Reason::Ipv4BadVersion),
        ("header of 16", damaged(good(), |f| f[14] = 0x44), Reason::Ipv4BadHeaderLength),
        (
            "header beyond packet",
            damaged(good()[..40].to_vec(), |f| f[14] = 0x4f),
            Reason::Ipv4BadHeaderLength,
        ),
        (
            "total below header",
            forged(good(), |f| f[16..18].copy_from_slice(&[0, 19])),
            Reason::Ipv4BadTotalLength,
        ),
        ("total beyond frame", forged(good(), |f| f[17] += 1), Reason::Ipv4BadTotalLength),
        ("bad checksum", damaged(good(), |f| f[24] ^= 1), Reason::Ipv4BadChecksum),
        ("source 0", from("0.1.2.3"), Reason::Ipv4SourceInvalid),
        ("source loopback", from("127.0.0.1"), Reason::Ipv4SourceInvalid),
        ("source multicast", from("224.0.0.5"), Reason::Ipv4SourceInvalid),
        ("source broadcast", from("255.255.255.255"), Reason::Ipv4SourceInvalid),
        ("source reserved", from("240.0.0.1"), Reason::Ipv4SourceInvalid),
        ("destination 0", to("0.0.0.0"), Reason::Ipv4DestinationInvalid),
        ("destination loopback", to("127.1.1.1"), Reason::Ipv4DestinationInvalid),
        ("destination reserved", to("250.0.0.1"), Reason::Ipv4DestinationInvalid),
        ("limited broadcast", to("255.255.255.255"), Reason::Ipv4DestinationInvalid),
        ("multicast", to("239.1.2.3"), Reason::Ipv4Multicast),
        ("echo from our address to it", ping(IN, "10.0.0.1:5", "10.0.0.1"), Reason::Ipv4SourceInvalid),
    ]
}

fn piece(protocol: u8, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    packet(IN, "10.0.0.5", "203.0.113.200").protocol(protocol).fragment(offset, more).payload(payload).build()
}

/// RFC 791 §3.2, RFC 1858, RFC 3128.
fn pieces() -> Vec<Named> {
    let bad = Reason::Ipv4FragmentInvalid;
    let error = [3, 1, 0, 0, 0, 0, 0, 0];
    vec![
        ("not whole words", piece(17, 1_480, true, &[0; 9]), bad),
        ("nothing in it", piece(17, 1_480, false, &[]), bad),
        ("beyond 65535", piece(17, 65_528, false, &[0; 8]), bad),
        ("UDP ports cut off", piece(17, 0, true, &[]), bad),
        ("TCP flags cut off", piece(6, 0, true, &[0; 16]), bad),
        ("TCP flags overwritten", piece(6, 8, false, &[0; 16]), bad),
        ("an ICMP error in pieces", piece(1, 0, true, &error), bad),
    ]
}

fn transport() -> Vec<Named> {
    let l4 = |protocol: u8, payload: &[u8]| {
        packet(IN, "10.0.0.5", "203.0.113.200").protocol(protocol).payload(payload).build()
    };
    let udp_len = |len: u8| damaged(good(), |f| f[39] = len);
    let tcp_with = |flags: u8| tcp(IN, "10.0.0.5:1", "203.0.113.200:2", flags);
    let offset = |words: u8| damaged(tcp_with(flag::SYN), |f| f[46] = words << 4);
    let icmp = |kind: u8| packet(IN, "10.0.0.5", "203.0.113.200").icmp(kind, 0, [0; 4]).build();
    vec![
        ("UDP of 7", l4(17, &[0; 7]), Reason::UdpMalformed),
        ("UDP length 7", udp_len(7), Reason::UdpMalformed),
        ("UDP length beyond", udp_len(34), Reason::UdpMalformed),
        ("TCP of 19", l4(6, &[0; 19]), Reason::TcpMalformed),
        ("TCP header of 16", offset(4), Reason::TcpMalformed),
        ("TCP header beyond", offset(15), Reason::TcpMalformed),
        ("no flag", tcp_with(0), Reason::TcpFlagsInvalid),
        ("only ECN flags", tcp_with(flag::ECE | flag::CWR), Reason::TcpFlagsInvalid),
        ("SYN FIN", tcp_with(flag::SYN | flag::FIN), Reason::TcpFlagsInvalid),
        ("SYN RST", tcp_with(flag::SYN | flag::RST), Reason::TcpFlagsInvalid),
        ("ICMP of 7", l4(1, &[8; 7]), Reason::IcmpMalformed),
        ("router advertisement", icmp(9), Reason::IcmpTypeUnsupported),
        ("unassigned type", icmp(200), Reason::IcmpTypeUnsupported),
        (
            "bad ICMP checksum",
            damaged(icmp_error(IN, "10.0.0.5", "203.0.113.200", 3, 1, &good()[14..]), |f| f[36] ^= 1),
            Reason::IcmpBadChecksum,
        ),
        (
            "quotation cut off",
            icmp_error(IN, "10.0.0.5", "203.0.113.200", 3, 1, &good()[14..30]),
            Reason::IcmpEmbeddedInvalid,
        ),
        (
            "quotation damaged",
            icmp_error(IN, "10.0.0.5", "203.0.113.200", 3, 1, &damaged(good(), |f| f[24] ^= 1)[14..]),
            Reason::IcmpEmbeddedInvalid,
        ),
    ]
}

fn all() -> Vec<Named> {
    [link_layer(), ip_header(), pieces(), transport()].concat()
}

/// RFC 1812 §4.2.2, §5.3.4, §5.3.5, §5.3.7; RFC 5508 REQ-3, REQ-11.
#[test]
fn each_malformed_frame_is_dropped_under_its_reason_and_without_an_answer() {
    let mut world = world();
    for (name, frame, reason) in all() {
        world.new_drops();
        let sent = world.send(IN, &frame);
        assert_eq!(world.new_drops(), [(reason, 1)], "{name}");
        assert!(sent.is_empty(), "{name}: answered");
    }
    assert_eq!(world.sessions(), 0, "malformed frames make no sessions");
    assert!(world.punts.is_empty());
}

/// The table above misses nothing that the parse stage can say.
#[test]
fn every_reason_of_the_parse_stage_is_in_the_table() {
    let shown: BTreeSet<Reason> = all().iter().map(|(_, _, reason)| *reason).collect();
    // Shown elsewhere: `links.rs` (interface down), `ttl_mtu.rs` (TTL, source routes), the drivers' tests (oversized).
    let elsewhere =
        [Reason::InterfaceDown, Reason::FrameOversized, Reason::Ipv4TtlExpired, Reason::Ipv4SourceRoute];
    // All of IPv6 is in `ipv6.rs`.
    let of_ipv4 = |reason| !(Reason::Ipv6Disabled..=Reason::NdMalformed).contains(&reason);
    for row in REASONS.iter().filter(|row| row.reason < Reason::NoRoute && of_ipv4(row.reason)) {
        assert!(shown.contains(&row.reason) || elsewhere.contains(&row.reason), "{}", row.name);
    }
}

#[test]
fn a_burst_of_all_of_them_is_accounted_one_by_one() {
    let mut world = world();
    let frames: Vec<_> = all().into_iter().map(|(_, frame, _)| frame).collect();
    let count = frames.len() as u64;
    for burst in frames.chunks(64) {
        assert!(world.burst(IN, burst).is_empty());
    }
    assert_eq!(world.new_drops().iter().map(|(_, n)| n).sum::<u64>(), count);
}

#[test]
fn a_frame_cut_at_any_octet_never_panics_and_is_always_counted() {
    let mut world = world();
    let whole = tcp(IN, "10.0.0.5:1000", "198.51.100.7:80", flag::SYN);
    for len in 0..whole.len() {
        world.new_drops();
        assert!(world.send(IN, &whole[..len]).is_empty());
        assert_eq!(world.new_drops().len(), 1, "cut at {len}");
    }
    world.pass(IN, &whole);
}

#[test]
fn padding_of_a_short_frame_does_not_count_as_packet() {
    let mut world = world();
    let frame = packet(IN, "10.0.0.5", "198.51.100.7").udp(1_000, 53).payload(b"x").padded().build();
    let sent = world.pass(IN, &frame);
    assert_eq!(sent.packet().len(), 29);
}

/// The MTU is about the frame that leaves, not about what its header says.
#[test]
fn octets_behind_the_packet_do_not_leave_with_it() {
    let mut world = world();
    let mut frame = udp(IN, "10.0.0.5:1000", "198.51.100.7:53");
    frame.resize(9_000, 0xaa);
    let sent = world.pass(IN, &frame);
    assert_eq!(sent.frame.len(), 67, "the packet and nothing else");
}

#[test]
fn a_router_of_plain_interfaces_lets_all_types_of_icmp_pass() {
    let mut world = world();
    let other = PacketBuilder::new()
        .ethernet(MacAddr(mac_of(ip("172.16.0.5")).0), port_mac(TAGGED))
        .ipv4(ip("172.16.0.5"), ip("198.51.100.7"))
        .icmp(42, 0, [0; 4])
        .build();
    assert_eq!(world.pass(TAGGED, &other).icmp(), (42, 0));
}
