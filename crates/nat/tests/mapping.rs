//! Mapping behaviour: who gets which outside endpoint (RFC 4787 §4, RFC 5382 §4, RFC 5508 §3, RFC 7857 §3 to §6).

mod common;

use carrack_base::{InstanceId, Proto, Reason, VrfId};
use carrack_nat::Direction;
use carrack_nat::policy::{Mapping, Pooling};
use common::*;

/// RFC 4787 REQ-1, RFC 5382 REQ-1, RFC 5508 REQ-1, REQ-1a: one outside endpoint for all destinations.
#[test]
fn mapping_is_the_same_for_all_destinations() {
    let mut w = world(instance());
    let first = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    assert_eq!(w.udp_out("10.0.0.1:1000", "198.51.100.2:54"), Ok(first));
    let first = w.tcp_out("10.0.0.1:1000", "198.51.100.1:80", SYN).unwrap();
    assert_eq!(w.tcp_out("10.0.0.1:1000", "198.51.100.2:80", SYN), Ok(first));
    let first = w.ping_out("10.0.0.1:7", "198.51.100.1").unwrap();
    assert_eq!(w.ping_out("10.0.0.1:7", "198.51.100.2"), Ok(first));
    assert_eq!(w.mappings().len(), 3);
    check::invariants(&mut w);
}

/// RFC 7857 §5: a mapping belongs to one protocol; the same inside endpoint has another for each.
#[test]
fn mappings_of_protocols_are_apart() {
    let mut w = world(instance());
    let udp = w.udp_out("10.0.0.1:1000", "198.51.100.1:80").unwrap();
    assert_eq!(w.tcp_in("198.51.100.1:80", udp, ACK), Err(Reason::NatTcpNoSession));
    let tcp = w.tcp_out("10.0.0.1:1000", "198.51.100.1:80", SYN).unwrap();
    assert_eq!(tcp.ip, udp.ip);
    assert_eq!(w.mappings().iter().map(|m| m.proto).collect::<Vec<_>>(), [Proto::Udp, Proto::Tcp]);
}

/// RFC 4787 REQ-2, RFC 6888 REQ-2: all of a subscriber's flows, of any protocol, use one outside address.
#[test]
fn subscriber_is_paired_with_one_address_for_all_protocols() {
    let mut w = world(instance_with(|i| i.pools = vec![pool(0, &["192.0.2.0/26"], 1_024, 65_535)]));
    let mut addresses = std::collections::HashSet::new();
    for host in 1..=30 {
        let first = w.udp_out(&format!("10.0.0.{host}:1"), "198.51.100.1:1").unwrap().ip;
        addresses.insert(first);
        for port in 2..20 {
            let inside = format!("10.0.0.{host}:{port}");
            assert_eq!(w.udp_out(&inside, "198.51.100.1:1").unwrap().ip, first);
            assert_eq!(w.tcp_out(&inside, "198.51.100.1:1", SYN).unwrap().ip, first);
            assert_eq!(w.ping_out(&inside, "198.51.100.1").unwrap().ip, first);
        }
    }
    assert!(addresses.len() > 10, "subscribers spread over the pool");
    check::invariants(&mut w);
    w.wait(400);
    check::empty(&mut w);
}

/// RFC 4787 REQ-2: the arbitrary option spreads a subscriber over the pool.
#[test]
fn arbitrary_pooling_uses_many_addresses() {
    let mut w = world(instance_with(|i| {
        i.pools = vec![pool(0, &["192.0.2.0/26"], 1_024, 65_535)];
        i.pooling = Pooling::Arbitrary;
    }));
    let ips = (1..50).map(|p| w.udp_out(&format!("10.0.0.1:{p}"), "198.51.100.1:1").unwrap().ip);
    assert!(ips.collect::<std::collections::HashSet<_>>().len() > 10);
    check::invariants(&mut w);
    w.wait(301);
    check::empty(&mut w);
}

/// RFC 4787 REQ-3, RFC 5382 REQ-7: no outside endpoint serves two inside endpoints, even at 100 % use
/// (RFC 4787 REQ-11), where behaviour stays what it was.
#[test]
fn no_port_overloading_even_when_the_pool_is_full() {
    let mut w = world(instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 40_000, 40_099)]));
    let mut seen = std::collections::HashSet::new();
    for port in 1..=100 {
        assert!(seen.insert(w.tcp_out(&format!("10.0.0.1:{port}"), "198.51.100.1:1", SYN).unwrap()));
    }
    assert_eq!(w.tcp_out("10.0.0.1:101", "198.51.100.1:1", SYN), Err(Reason::NatPortsExhausted));
    assert_eq!(w.tcp_out("10.0.0.2:1", "198.51.100.9:1", SYN), Err(Reason::NatPoolExhausted));
    // Mappings that exist go on serving new destinations and the filter stays open.
    let mapped = w.tcp_out("10.0.0.1:7", "198.51.100.2:1", SYN).unwrap();
    assert!(seen.contains(&mapped));
    assert_eq!(w.tcp_in("203.0.113.9:9", mapped, SYN), Ok(e("10.0.0.1:7")));
    check::invariants(&mut w);
    w.wait(241);
    check::empty(&mut w);
    assert!(w.tcp_out("10.0.0.2:1", "198.51.100.9:1", SYN).is_ok());
}

/// RFC 4787 REQ-3a: well-known ports stay well-known, others do not become so.
#[test]
fn port_range_is_kept() {
    let mut w = world(instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 512, 65_535)]));
    for port in 1..300 {
        assert!(w.udp_out(&format!("10.0.0.1:{port}"), "198.51.100.1:1").unwrap().port < 1_024);
        assert!(w.udp_out(&format!("10.0.0.1:{}", port + 2_000), "198.51.100.1:1").unwrap().port >= 1_024);
    }
    // The well-known ports are used up: connectivity matters more than the range.
    let more =
        (300..1_000).map(|port| w.udp_out(&format!("10.0.0.1:{port}"), "198.51.100.1:1").unwrap().port);
    assert!(more.filter(|port| *port >= 1_024).count() > 0);
}

/// RFC 4787 REQ-4: parity kept when asked for; RFC 7857 §8: a subscriber's odd ports are not refused when only even
/// ones are left.
#[test]
fn parity_is_kept_as_long_as_there_is_such_a_port() {
    let mut w = world(instance_with(|i| {
        i.parity = true;
        i.pools = vec![pool(0, &["192.0.2.1"], 40_000, 40_099)];
    }));
    for port in 1_000..1_100 {
        let outside = w.udp_out(&format!("10.0.0.1:{port}"), "198.51.100.1:1").unwrap();
        assert_eq!(outside.port % 2, port % 2);
    }
    w.wait(600);
    for port in 0..100 {
        let inside = format!("10.0.0.1:{}", 1_000 + 2 * port);
        let outside = w.udp_out(&inside, "198.51.100.1:1").unwrap();
        assert_eq!(outside.port % 2, u16::from(port >= 50), "port {port}");
    }
}

/// RFC 4787 §4.2.3 (contiguity option): RTCP's port follows RTP's, on the same address.
#[test]
fn next_port_follows_its_neighbour() {
    for pooling in [Pooling::Paired, Pooling::Arbitrary] {
        let mut w = world(instance_with(|i| {
            i.contiguity = true;
            i.pooling = pooling;
            i.pools = vec![pool(0, &["192.0.2.0/28"], 40_000, 40_999)];
        }));
        for pair in 0..50 {
            let rtp = w.udp_out(&format!("10.0.0.1:{}", 5_000 + 2 * pair), "198.51.100.1:1").unwrap();
            let rtcp = w.udp_out(&format!("10.0.0.1:{}", 5_001 + 2 * pair), "198.51.100.1:2").unwrap();
            assert_eq!((rtcp.ip, rtcp.port), (rtp.ip, rtp.port + 1));
            assert_eq!(rtp.port % 2, 0);
        }
        check::invariants(&mut w);
    }
}

/// RFC 4787 §4.1 (address-and-port-dependent option): another destination, another outside endpoint; per protocol
/// (RFC 7857 §5).
#[test]
fn dependent_mapping_differs_by_destination() {
    let mut w = world(instance_with(|i| i.mapping[Proto::Udp.index()] = Mapping::AddressAndPortDependent));
    let one = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    let two = w.udp_out("10.0.0.1:1000", "198.51.100.1:54").unwrap();
    assert_ne!(one, two);
    assert_eq!(w.udp_out("10.0.0.1:1000", "198.51.100.1:53"), Ok(one));
    assert_eq!(w.udp_in("198.51.100.1:53", one), Ok(e("10.0.0.1:1000")));
    let tcp = w.tcp_out("10.0.0.1:1000", "198.51.100.1:53", SYN).unwrap();
    assert_eq!(w.tcp_out("10.0.0.1:1000", "198.51.100.1:54", SYN), Ok(tcp));
    check::invariants(&mut w);
    w.wait(301);
    check::empty(&mut w);
}

/// A flow that has a session through one outside endpoint never gets a second through another, which would send
/// half its answers the wrong way.
#[test]
fn one_flow_never_gets_two_sessions() {
    let mut w = world(instance_with(|i| i.mapping[Proto::Udp.index()] = Mapping::AddressAndPortDependent));
    let one = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    let two = w.udp_out("10.0.0.1:1000", "198.51.100.1:54").unwrap();
    assert_eq!(w.udp_in("198.51.100.1:53", two), Err(Reason::NatFiltered));
    assert_eq!(w.udp_out("10.0.0.1:1000", "198.51.100.1:53"), Ok(one));
    check::invariants(&mut w);
}

/// RFC 4787 REQ-7: overlapping inside addresses in two routing instances stay apart, both ways.
#[test]
fn overlapping_routing_instances_stay_apart() {
    let second = instance_with(|i| {
        i.id = InstanceId(1);
        i.name = "second".into();
        i.inside_vrf = VrfId(2);
        i.pools = vec![pool(1, &["192.0.2.2"], 1_024, 65_535)];
    });
    let mut w = World::new(vec![instance(), second], 2, SMALL);
    let frame = frames::udp(e("10.0.0.1:1000"), e("198.51.100.1:53"));
    let first = outer(&w.send(0, Direction::Out, &frame).frame()).source;
    let other = outer(&w.send(2, Direction::Out, &frame).frame()).source;
    assert_eq!((first.ip, other.ip), (addr("192.0.2.1"), addr("192.0.2.2")));
    for (outside, vrf) in [(first, 0), (other, 2)] {
        let answer = frames::udp(e("198.51.100.1:53"), outside);
        let Outcome::Translated { frame, vrf: to, .. } = w.incoming(&answer) else { panic!("dropped") };
        assert_eq!((outer(&frame).destination, to), (e("10.0.0.1:1000"), VrfId(vrf)));
    }
    assert_eq!(w.session_count(), 2);
    check::invariants(&mut w);
}

/// RFC 4787 REQ-7: an inside host may have the address of a remote one; and a subscriber may use a pool's outside
/// addresses inside.
#[test]
fn inside_may_overlap_outside() {
    let mut w = world(instance_with(|i| i.subscribers = vec![net("198.51.100.0/24")]));
    let outside = w.udp_out("198.51.100.1:53", "198.51.100.1:53").unwrap();
    assert_eq!(w.udp_in("198.51.100.1:53", outside), Ok(e("198.51.100.1:53")));
}

/// RFC 6888 REQ-3: pools of any addresses, several ranges, with gaps.
#[test]
fn pool_may_have_gaps() {
    let mut w = world(instance_with(|i| {
        i.pools = vec![
            pool(0, &["192.0.2.7", "192.0.2.9-192.0.2.10"], 1_024, 65_535),
            pool(1, &["203.0.113.255"], 2_000, 2_999),
        ];
    }));
    let mut seen = std::collections::HashSet::new();
    for host in 1..200 {
        let inside = format!("10.0.0.{host}:5000");
        let outside = w.udp_out(&inside, "198.51.100.1:53").unwrap();
        assert_eq!(w.udp_in("198.51.100.1:53", outside), Ok(e(&inside)));
        seen.insert(outside.ip);
        if outside.ip == addr("203.0.113.255") {
            assert!((2_000..3_000).contains(&outside.port));
        }
    }
    let all = ["192.0.2.7", "192.0.2.9", "192.0.2.10", "203.0.113.255"].map(addr);
    assert_eq!(seen, all.into());
}

/// RFC 6888 REQ-6: exempt destinations pass untranslated, sources that no instance serves are refused.
#[test]
fn exempt_destinations_pass_and_strangers_do_not() {
    let mut w = world(instance_with(|i| i.exempt = vec![net("198.51.100.0/25")]));
    let frame = frames::udp(e("10.0.0.1:1"), e("198.51.100.1:1"));
    assert_eq!(w.out(&frame), Outcome::Untouched);
    assert!(w.udp_out("10.0.0.1:1", "198.51.100.128:1").is_ok());
    assert_eq!(w.udp_out("11.0.0.1:1", "198.51.100.1:1"), Err(Reason::NatSubscriberDenied));
    // What stays inside is nobody's business.
    assert_eq!(w.out(&frames::udp(e("10.0.0.1:1"), e("10.0.0.2:1"))), Outcome::Untouched);
    assert_eq!(w.out(&frames::udp(e("11.0.0.1:1"), e("10.0.0.2:1"))), Outcome::Untouched);
    // Nor is what is for no pool address.
    assert_eq!(w.incoming(&frames::udp(e("198.51.100.1:1"), e("203.0.113.1:1"))), Outcome::Untouched);
    assert_eq!(w.session_count(), 1);
}

/// RFC 6888 REQ-15, RFC 7857 §9 (RFC 6056): ports are spread at random, not counted up.
#[test]
fn ports_are_hard_to_guess() {
    let mut w = world(instance());
    let ports: Vec<u16> =
        (1..200).map(|p| w.udp_out(&format!("10.0.0.1:{p}"), "198.51.100.1:1").unwrap().port).collect();
    let near = ports.windows(2).filter(|w| w[0].abs_diff(w[1]) < 100).count();
    assert!(near < 10, "{near} of 199 neighbours are near each other");
    let low = ports.iter().filter(|p| **p < 33_280).count();
    assert!((60..140).contains(&low), "{low} of 199 in the lower half");
}
