//! ICMP queries and errors (RFC 5508, RFC 4787 REQ-12, RFC 5382 REQ-9 and REQ-10, RFC 4884).

mod common;

use carrack_base::{Proto, Reason, VrfId};
use carrack_nat::Direction;
use carrack_nat::row::Endpoint;
use carrack_wire::icmpv4::Icmpv4View;
use carrack_wire::ipv4::Ipv4View;
use common::frames::{icmp_error, packet};
use common::*;

const ROUTER: &str = "203.0.113.254";

/// The quoted packet of an error: source, destination (with ports or identifiers).
fn quoted(frame: &[u8]) -> (Endpoint, Endpoint) {
    let ip = Ipv4View::parse(&frame[L3..]).unwrap();
    let icmp = Icmpv4View::parse(ip.payload()).unwrap();
    let inner = icmp.embedded().unwrap();
    let l4 = inner.payload();
    let word = |at: usize| u16::from_be_bytes([l4[at], l4[at + 1]]);
    let ports = match Proto::from_ip(inner.protocol()) {
        Proto::Tcp | Proto::Udp => (word(0), word(2)),
        Proto::Icmp => (word(4), word(4)),
        Proto::Other => (0, 0),
    };
    (Endpoint { ip: inner.src(), port: ports.0 }, Endpoint { ip: inner.dst(), port: ports.1 })
}

/// A packet from inside of each protocol, with the flags that open.
fn openers() -> Vec<Vec<u8>> {
    let (inside, remote) = (e("10.0.0.1:1000"), e("198.51.100.1:80"));
    vec![
        frames::udp(inside, remote),
        frames::udp_without_checksum(inside, remote),
        frames::tcp(inside, remote, SYN),
        frames::echo(inside, remote.ip),
    ]
}

/// RFC 5508 REQ-1, REQ-2, REQ-10a: queries and their answers pass; the session lives 60 s idle and no longer.
#[test]
fn query_passes_and_lives_a_minute() {
    let mut w = world(instance());
    let outside = w.ping_out("10.0.0.1:7", "198.51.100.1").unwrap();
    assert_eq!(w.pong_in("198.51.100.1", outside), Ok(e("10.0.0.1:7")));
    w.wait(59);
    assert_eq!(w.pong_in("198.51.100.1", outside), Ok(e("10.0.0.1:7")));
    w.wait(62);
    assert_eq!(w.pong_in("198.51.100.1", outside), Err(Reason::NatNoMapping));
    check::empty(&mut w);
    // RFC 5508 REQ-2a: configurable. RFC 7857 §11: the mapping goes with its last session.
    let mut w = world(instance_with(|i| i.timeouts.icmp_s = 100));
    w.ping_out("10.0.0.1:7", "198.51.100.1").unwrap();
    w.wait(99);
    assert_eq!(w.mappings().len(), 1);
    w.wait(3);
    check::empty(&mut w);
}

/// RFC 5508 REQ-10b: timestamp queries pass as echo does; an answer opens nothing.
#[test]
fn answers_open_nothing() {
    let mut w = world(instance());
    let timestamp = packet(addr("10.0.0.1"), addr("198.51.100.1")).icmp(13, 0, [0, 7, 0, 1]).build();
    assert!(w.send_out(&timestamp).is_ok());
    let reply = frames::echo_reply(addr("10.0.0.2"), e("198.51.100.1:9"));
    assert_eq!(w.send_out(&reply), Err(Reason::NatNoMapping));
}

/// RFC 5508 REQ-4, REQ-4a, REQ-4b, REQ-4c, REQ-10a, RFC 5382 REQ-9, RFC 4787 REQ-12b: an error from outside reaches the
/// inside host with its own packet inside, type and code unchanged; the outer destination is the embedded source.
/// RFC 4787 REQ-12a: whoever sent it.
#[test]
fn error_from_outside_reverts_the_embedded_packet() {
    for (kind, code) in [(3, 0), (3, 1), (3, 3), (3, 4), (3, 13), (11, 0), (11, 1), (12, 0)] {
        for opener in openers() {
            let mut w = world(instance());
            let sent = w.out(&opener).frame();
            let outside = outer(&sent).source;
            for about in [usize::MAX, 28] {
                let error = icmp_error(kind, code, addr(ROUTER), outside.ip, &sent, about);
                let got = w.incoming(&error).frame();
                let before = outer(&opener);
                assert_eq!(outer(&got).destination.ip, addr("10.0.0.1"));
                assert_eq!(outer(&got).source.ip, addr(ROUTER));
                assert_eq!(quoted(&got), (before.source, before.destination));
                let icmp = Icmpv4View::parse(&got[L3 + 20..]).unwrap();
                assert_eq!((icmp.kind(), icmp.code()), (kind, code));
                if about == usize::MAX {
                    assert_eq!(&got[L3 + 28..], &opener[L3..], "exactly the packet that was sent");
                }
            }
        }
    }
}

/// RFC 5508 REQ-5, REQ-5a, REQ-5b: an error from inside leaves with the outside address, the embedded packet as the
/// remote end knows it, type and code unchanged; an inside router's error too.
#[test]
fn error_from_inside_leaves_as_the_outside_address() {
    for opener in openers() {
        for from in ["10.0.0.1", "10.9.9.9"] {
            let mut w = world(instance());
            let outside = outer(&w.out(&opener).frame()).source;
            let remote = outer(&opener).destination;
            let answer = match opener[L3 + 9] {
                17 => frames::udp(remote, outside),
                6 => frames::tcp(remote, outside, SYN | ACK),
                _ => frames::echo_reply(remote.ip, outside),
            };
            let delivered = w.incoming(&answer).frame();
            let error = icmp_error(3, 3, addr(from), remote.ip, &delivered, usize::MAX);
            let got = w.out(&error).frame();
            assert_eq!((outer(&got).source.ip, outer(&got).destination.ip), (outside.ip, remote.ip));
            assert_eq!(got[L3 + 20..L3 + 22], [3, 3], "type and code");
            assert_eq!(&got[L3 + 28..], &answer[L3..], "exactly the packet that came");
        }
    }
}

/// RFC 5508 REQ-5c: a sender with a one-to-one address of its own keeps it.
#[test]
fn error_of_a_one_to_one_sender_shows_its_own_address() {
    let mut w = world(instance_with(|i| i.statics = vec![one_to_one("10.9.9.9", "192.0.2.99")]));
    let sent = w.udp_out("10.0.0.1:1000", "198.51.100.1:80").unwrap();
    let answer = frames::udp(e("198.51.100.1:80"), sent);
    let delivered = w.incoming(&answer).frame();
    let error = icmp_error(11, 0, addr("10.9.9.9"), addr("198.51.100.1"), &delivered, usize::MAX);
    assert_eq!(outer(&w.out(&error).frame()).source.ip, addr("192.0.2.99"));
}

/// RFC 5508 REQ-3, REQ-3a: a wrong ICMP checksum or a wrong checksum of the embedded IP header is dropped, the embedded
/// transport checksum is nobody's business.
#[test]
fn damaged_errors_are_dropped() {
    let mut w = world(instance());
    let sent = w.out(&openers()[0]).frame();
    let outside = outer(&sent).source;
    let mut error = icmp_error(3, 3, addr(ROUTER), outside.ip, &sent, usize::MAX);
    let last = error.len() - 1;
    error[last] ^= 1;
    assert_eq!(w.incoming(&error), Outcome::Drop(Reason::IcmpBadChecksum));
    let mut broken = sent.clone();
    broken[L3 + 10] ^= 1;
    let error = icmp_error(3, 3, addr(ROUTER), outside.ip, &broken, usize::MAX);
    assert_eq!(w.incoming(&error), Outcome::Drop(Reason::IcmpEmbeddedInvalid));
    // RFC 5508 REQ-3c: passes, and stays as wrong as it was (judged apart, since the checker wants it right).
    let mut odd = sent.clone();
    odd[L3 + 26] ^= 1;
    let error = icmp_error(3, 3, addr(ROUTER), outside.ip, &odd, 36);
    assert!(matches!(w.incoming(&error), Outcome::Translated { .. }));
}

/// RFC 5508 REQ-3b: options of the embedded header are walked past.
#[test]
fn options_of_the_embedded_packet_are_walked_past() {
    let mut w = world(instance());
    let options = [7, 7, 4, 0, 0, 0, 0, 0];
    let opener = packet(addr("10.0.0.1"), addr("198.51.100.1")).ip_options(&options).udp(1_000, 53).build();
    let sent = w.out(&opener).frame();
    let error = icmp_error(11, 0, addr(ROUTER), addr("192.0.2.1"), &sent, usize::MAX);
    assert_eq!(&w.incoming(&error).frame()[L3 + 28..], &opener[L3..]);
}

/// RFC 5508 REQ-3d, RFC 4884: extensions stay as they are, and outside the embedded packet.
#[test]
fn extensions_are_kept() {
    let mut w = world(instance());
    let long = [0x5a; 400];
    let opener = packet(addr("10.0.0.1"), addr("198.51.100.1")).udp(1_000, 53).payload(&long).build();
    let sent = w.out(&opener).frame();
    // 128 octets of original datagram (length attribute 32 words), then a version 2 extension with an MPLS label.
    let mut payload = sent[L3..L3 + 128].to_vec();
    let mut extension = vec![0x20, 0, 0, 0, 0, 8, 1, 1, 0, 1, 2, 3];
    let sum = carrack_wire::checksum::checksum(&extension);
    extension[2..4].copy_from_slice(&sum.to_be_bytes());
    payload.extend_from_slice(&extension);
    let error = packet(addr(ROUTER), addr("192.0.2.1")).icmp(11, 0, [0, 32, 0, 0]).payload(&payload).build();
    let got = w.incoming(&error).frame();
    let icmp = Icmpv4View::parse(&got[L3 + 20..]).unwrap();
    assert_eq!(icmp.extension().unwrap().unwrap().bytes(), extension);
    assert_eq!(&got[L3 + 28..L3 + 28 + 128], &opener[L3..L3 + 128]);
}

/// RFC 5508 REQ-4, REQ-5, `nat-icmp-no-session`: an error about nothing we sent is dropped, either way.
#[test]
fn error_about_a_stranger_is_dropped() {
    let mut w = world(instance());
    let stranger = frames::udp(e("192.0.2.1:4000"), e("198.51.100.1:53"));
    let error = icmp_error(3, 3, addr(ROUTER), addr("192.0.2.1"), &stranger, usize::MAX);
    assert_eq!(w.incoming(&error), Outcome::Drop(Reason::NatIcmpNoSession));
    let stranger = frames::udp(e("198.51.100.1:53"), e("10.0.0.1:4000"));
    let error = icmp_error(3, 3, addr("10.0.0.1"), addr("198.51.100.1"), &stranger, usize::MAX);
    assert_eq!(w.out(&error), Outcome::Drop(Reason::NatIcmpNoSession));
    // `icmp-embedded-invalid`: no ports to look for.
    let error = icmp_error(3, 3, addr(ROUTER), addr("192.0.2.1"), &stranger, 22);
    assert_eq!(w.incoming(&error), Outcome::Drop(Reason::IcmpEmbeddedInvalid));
}

/// RFC 6888 REQ-6: errors about untranslated traffic pass as it does.
#[test]
fn error_about_untranslated_traffic_passes() {
    let mut w = world(instance_with(|i| i.exempt = vec![net("198.51.100.0/24")]));
    let came = frames::udp(e("198.51.100.1:53"), e("10.0.0.1:4000"));
    let error = icmp_error(3, 3, addr("10.0.0.1"), addr("198.51.100.1"), &came, usize::MAX);
    assert_eq!(w.out(&error), Outcome::Untouched);
    // Between two inside interfaces.
    let came = frames::udp(e("10.0.0.2:53"), e("10.0.0.1:4000"));
    let error = icmp_error(3, 3, addr("10.0.0.1"), addr("10.0.0.2"), &came, usize::MAX);
    assert_eq!(w.out(&error), Outcome::Untouched);
    // To an address that is in no pool.
    let error = icmp_error(3, 3, addr(ROUTER), addr("203.0.113.7"), &came, usize::MAX);
    assert_eq!(w.incoming(&error), Outcome::Untouched);
}

/// RFC 4787 REQ-12, RFC 5382 REQ-10, RFC 5508 REQ-6: no error ends a session or keeps it alive.
#[test]
fn errors_neither_end_nor_refresh() {
    let mut w = world(instance());
    let tcp = w.connect("10.0.0.1:1000", "198.51.100.1:80");
    let sent = w.out(&openers()[0]).frame();
    let about_tcp = frames::tcp(tcp, e("198.51.100.1:80"), ACK);
    for _ in 0..4 {
        for about in [&sent, &about_tcp] {
            for (kind, code) in [(3, 1), (3, 2), (3, 3), (11, 0)] {
                let error = icmp_error(kind, code, addr(ROUTER), addr("192.0.2.1"), about, usize::MAX);
                assert!(matches!(w.incoming(&error), Outcome::Translated { created: false, .. }));
            }
        }
        assert_eq!(w.session_count(), 2);
        w.wait(74);
    }
    w.wait(6);
    assert_eq!(w.session_count(), 1, "the UDP session is gone in spite of errors");
    assert!(w.tcp_in("198.51.100.1:80", tcp, ACK).is_ok());
}

/// An error about an error is nobody's: its embedded packet has no session.
#[test]
fn error_about_an_error_is_dropped() {
    let mut w = world(instance());
    let sent = w.out(&openers()[0]).frame();
    let error = icmp_error(3, 3, addr("192.0.2.1"), addr(ROUTER), &sent, usize::MAX);
    let nested = icmp_error(11, 0, addr(ROUTER), addr("192.0.2.1"), &error, usize::MAX);
    assert!(matches!(w.incoming(&nested), Outcome::Drop(_)));
}

/// RFC 5508 REQ-4: an active mapping is enough; a filtered stranger's error is not, since it has no packet of ours.
#[test]
fn error_needs_only_the_mapping() {
    let mut w = world(instance());
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    let about = frames::udp(outside, e("198.51.100.77:53"));
    let error = icmp_error(3, 3, addr(ROUTER), outside.ip, &about, 28);
    let got = w.send(1, Direction::In, &error).frame();
    assert_eq!(quoted(&got).0, e("10.0.0.1:1000"));
    assert_eq!(parse(&got, VrfId(0), Direction::In).dst, addr("10.0.0.1"));
}

/// The quoted packet is past its source's NAT but its UDP checksum of zero stays zero.
#[test]
fn embedded_zero_checksum_stays_zero() {
    let mut w = world(instance());
    let opener = frames::udp_without_checksum(e("10.0.0.1:1000"), e("198.51.100.1:53"));
    let sent = w.out(&opener).frame();
    assert_eq!(sent[L3 + 26..L3 + 28], [0, 0]);
    let error = icmp_error(3, 3, addr(ROUTER), addr("192.0.2.1"), &sent, 28);
    let got = w.incoming(&error).frame();
    assert_eq!(got[L3 + 28 + 26..L3 + 28 + 28], [0, 0]);
}
