//! Checksums at their edges: UDP without one, results of 0x0000 and 0xffff, IP options, IP fragments.

mod common;

use carrack_base::VrfId;
use carrack_nat::{Direction, Kind};
use carrack_wire::UdpView;
use common::frames::packet;
use common::*;

/// A UDP checksum of zero means none and stays zero both ways.
#[test]
fn zero_checksum_stays_zero() {
    let mut w = world(instance());
    let sent = w.out(&frames::udp_without_checksum(e("10.0.0.1:1000"), e("198.51.100.1:53"))).frame();
    assert_eq!(sent[L3 + 26..L3 + 28], [0, 0]);
    let outside = outer(&sent).source;
    let got = w.incoming(&frames::udp_without_checksum(e("198.51.100.1:53"), outside)).frame();
    assert_eq!(got[L3 + 26..L3 + 28], [0, 0]);
}

/// A computed checksum that comes out as zero is sent as 0xffff, never as "none": every value of a payload word is
/// tried, so every result is met.
#[test]
fn computed_zero_is_sent_as_all_ones() {
    let mut w = world(instance());
    let (inside, remote) = (e("10.0.0.1:1000"), e("198.51.100.1:53"));
    let mut all_ones = 0;
    for word in 0..=u16::MAX {
        let payload = word.to_be_bytes();
        let frame = packet(inside.ip, remote.ip).udp(inside.port, remote.port).payload(&payload).build();
        let sent = w.out(&frame).frame();
        let checksum = UdpView::parse(&sent[L3 + 20..]).unwrap().checksum();
        assert_ne!(checksum, 0, "payload {word:04x}");
        all_ones += u32::from(checksum == 0xffff);
    }
    assert!((1..=2).contains(&all_ones), "{all_ones}");
}

/// The same for TCP and ICMP, whose checksums know no "none".
#[test]
fn every_checksum_value_is_right() {
    let mut w = world(instance());
    let (inside, remote) = (e("10.0.0.1:1000"), e("198.51.100.1:53"));
    for word in (0..=u16::MAX).step_by(7) {
        let payload = word.to_be_bytes();
        let tcp = packet(inside.ip, remote.ip).tcp(inside.port, remote.port, SYN).payload(&payload).build();
        w.out(&tcp).frame();
        let echo = packet(inside.ip, remote.ip).echo_request(inside.port, word).build();
        let outside = outer(&w.out(&echo).frame()).source;
        w.incoming(&packet(remote.ip, outside.ip).echo_reply(outside.port, word).build()).frame();
    }
}

/// IP options are left alone, behind a longer header.
#[test]
fn options_are_left_alone() {
    let mut w = world(instance());
    let options = [0x94, 4, 0, 0, 1, 1, 1, 0];
    let frame = packet(addr("10.0.0.1"), addr("198.51.100.1")).ip_options(&options).udp(1_000, 53).build();
    let sent = w.out(&frame).frame();
    assert_eq!(sent[L3 + 20..L3 + 28], options);
}

/// RFC 4787 REQ-14: a first fragment is translated with its ports and the checksum of the whole, a later one by
/// address alone; put together again the datagram is right.
#[test]
fn fragments_add_up_to_the_datagram() {
    let mut w = world(instance());
    let (inside, remote) = (e("10.0.0.1:1000"), e("198.51.100.1:53"));
    let payload: Vec<u8> = (0..1_000u32).map(|n| n as u8).collect();
    let whole = packet(inside.ip, remote.ip).udp(inside.port, remote.port).payload(&payload).build();
    let datagram = &whole[L3 + 20..];
    let first = packet(inside.ip, remote.ip).protocol(17).fragment(0, true).payload(&datagram[..512]).build();
    let later =
        packet(inside.ip, remote.ip).protocol(17).fragment(512, false).payload(&datagram[512..]).build();
    let first_flow = parse(&first, VrfId(0), Direction::Out);
    let mut flow = first_flow;
    (flow.kind, flow.l4) = (Kind::LaterFragment, 0);
    let sent = w.send_flow(&first_flow, Direction::Out, &first).frame();
    let rest = w.send_flow(&flow, Direction::Out, &later).frame();
    let outside = outer(&sent).source;
    let mut joined = sent[L3 + 20..].to_vec();
    joined.extend_from_slice(&rest[L3 + 20..]);
    assert_eq!(&rest[L3 + 20..], &datagram[512..]);
    assert!(UdpView::parse(&joined).unwrap().checksum_ok(outside.ip, remote.ip));
}

/// TTL, diffserv, and the identification of a whole packet: the engine leaves them alone.
///
/// Fragments get another identification from the pipeline.
#[test]
fn other_header_fields_are_left_alone() {
    let mut w = world(instance());
    let frame = packet(addr("10.0.0.1"), addr("198.51.100.1"))
        .ttl(7)
        .tos(0xb8)
        .identification(4_711)
        .dont_fragment()
        .udp(1_000, 53)
        .build();
    let sent = w.out(&frame).frame();
    assert_eq!(sent[L3..L3 + 10], frame[L3..L3 + 10]);
}

/// RFC 4787 REQ-10, RFC 5382 REQ-6: no gateway alters what an application says, whatever its port.
#[test]
fn payloads_that_name_addresses_are_left_alone() {
    let mut w = world(instance());
    let said =
        b"PORT 10,0,0,1,3,232\r\nContact: <sip:a@10.0.0.1:1000>\r\nTransport: client_port=1000-1001\r\n";
    let base = || packet(addr("10.0.0.1"), addr("198.51.100.1"));
    for frame in [
        base().udp(1_000, 5_060).payload(said).build(),
        base().udp(1_000, 69).payload(said).build(),
        base().tcp(1_000, 21, SYN).payload(said).build(),
        base().tcp(1_000, 554, SYN).payload(said).build(),
        base().tcp(1_000, 1_723, SYN).payload(said).build(),
    ] {
        let sent = w.out(&frame).frame();
        assert_ne!(outer(&sent).source.ip, addr("10.0.0.1"));
        assert!(sent.ends_with(said) && sent.len() == frame.len());
    }
}
