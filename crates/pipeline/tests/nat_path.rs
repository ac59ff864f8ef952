//! The NAT from wire to wire: both directions, hairpins, errors, routing instances, resources.

mod common;

use carrack_base::{IfIndex, Proto, Reason};
use carrack_nat::policy::{ExhaustedIcmp, StaticRule};
use carrack_pipeline::snapshot::{IcmpErrors, NextHop, Side, Vlan};
use carrack_wire::tcp::flag;
use common::*;

const ACK: u8 = flag::ACK;
const SYN: u8 = flag::SYN;
const REMOTE: &str = "198.51.100.7:80";

/// RFC 4787 REQ-1, RFC 5382 REQ-1, RFC 5508 REQ-1: there and back, all three protocols.
#[test]
fn udp_tcp_and_pings_go_out_translated_and_their_answers_come_back() {
    let mut world = world();
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    assert_eq!((out.addresses().0.as_str(), out.dst().as_str()), (POOL, REMOTE));
    let back = world.pass(OUT, &udp(OUT, REMOTE, &out.src()));
    assert_eq!((back.src().as_str(), back.dst().as_str()), (REMOTE, "10.0.0.5:1000"));

    let out = world.pass(IN, &tcp(IN, "10.0.0.5:1000", REMOTE, SYN));
    let back = world.pass(OUT, &tcp(OUT, REMOTE, &out.src(), SYN | ACK));
    assert_eq!(back.dst(), "10.0.0.5:1000");
    assert_eq!(world.pass(IN, &tcp(IN, "10.0.0.5:1000", REMOTE, ACK)).src(), out.src());

    let out = world.pass(IN, &ping(IN, "10.0.0.5:7", "198.51.100.7"));
    let (pool, id) = out.src().split_once(':').map(|(a, b)| (a.to_owned(), b.parse().unwrap())).unwrap();
    let reply = packet(OUT, "198.51.100.7", &pool).echo_reply(id, 1).build();
    assert_eq!(world.pass(OUT, &reply).dst(), "10.0.0.5:7");
}

#[test]
fn a_burst_of_one_new_flow_makes_one_session() {
    let mut world = world();
    let sent = world.burst(IN, &vec![udp(IN, "10.0.0.5:1000", REMOTE); 64]);
    assert_eq!((sent.len(), world.sessions()), (64, 1));
    assert!(sent.iter().all(|s| s.src() == sent[0].src()));
}

#[test]
fn a_burst_of_64_flows_both_ways_mixes_nothing_up() {
    let mut world = world();
    let frames: Vec<_> = (0..64).map(|n| udp(IN, &format!("10.0.0.5:{}", 2_000 + n), REMOTE)).collect();
    let out = world.burst(IN, &frames);
    let answers: Vec<_> = out.iter().map(|s| udp(OUT, REMOTE, &s.src())).collect();
    for (n, back) in world.burst(OUT, &answers).iter().enumerate() {
        assert_eq!(back.dst(), format!("10.0.0.5:{}", 2_000 + n));
    }
}

/// RFC 768: a checksum of zero means none, both ways.
#[test]
fn udp_without_checksum_stays_without() {
    let mut world = world();
    let out = world.pass(IN, &packet(IN, "10.0.0.5", "198.51.100.7").udp_without_checksum(1_000, 80).build());
    assert_eq!(out.l4()[6..8], [0, 0]);
    let (src, port) = out.src().split_once(':').map(|(a, p)| (a.to_owned(), p.parse().unwrap())).unwrap();
    let back = packet(OUT, "198.51.100.7", &src).udp_without_checksum(80, port).build();
    assert_eq!(world.pass(OUT, &back).l4()[6..8], [0, 0]);
}

#[test]
fn nobody_inside_is_reached_through_ports_that_nobody_has() {
    let mut world = world();
    world.dropped(OUT, &udp(OUT, REMOTE, "192.0.2.1:5000"), Reason::NatNoMapping);
    world.dropped(OUT, &tcp(OUT, REMOTE, "192.0.2.1:5000", ACK), Reason::NatTcpNoSession);
}

/// RFC 4787 REQ-9, REQ-9a: the peer sees the outside source.
#[test]
fn a_hairpin_call_passes_both_ways_with_outside_addresses() {
    let mut world = world();
    let called = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE)).src();
    let sent = world.pass(IN, &udp(IN, "10.0.0.6:2000", &called));
    assert_eq!((sent.port, sent.dst()), (IN, "10.0.0.5:1000".into()));
    assert_eq!((sent.addresses().0.as_str(), sent.ip().ttl()), (POOL, 63));
    assert_eq!(sent.to, mac_of(ip("10.0.0.5")).0);
    let back = world.pass(IN, &udp(IN, "10.0.0.5:1000", &sent.src()));
    assert_eq!((back.src(), back.dst()), (called, "10.0.0.6:2000".into()));
}

/// RFC 5508 REQ-7: an error about a hairpinned packet finds its way with outside addresses in it.
#[test]
fn an_error_about_a_hairpinned_packet_reaches_its_sender() {
    let mut world = world();
    let called = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE)).src();
    let sent = world.pass(IN, &udp(IN, "10.0.0.6:2000", &called));
    let error = icmp_error(IN, "10.0.0.5", &sent.addresses().0, 3, 3, sent.packet());
    let back = world.pass(IN, &error);
    assert_eq!((back.icmp(), back.ip().dst_addr().to_string()), ((3, 3), "10.0.0.6".into()));
    assert_eq!(back.quoted_flow(), format!("10.0.0.6:2000>{called}"));
    assert_eq!(back.addresses().0, POOL, "no inside address of the peer");
}

/// The router's own error about a hairpinned packet.
#[test]
fn too_big_for_a_hairpin_tells_the_caller_about_its_own_packet() {
    let mut world = world_with(|s| on(s, IF_VLAN, |i| i.mtu = 600));
    let called = world
        .pass(TAGGED, &packet(TAGGED, "10.1.0.5", "198.51.100.7").vlan(100).udp(1_000, 80).build())
        .src();
    let (to, port) = called.split_once(':').unwrap();
    let call =
        packet(IN, "10.0.0.6", to).dont_fragment().udp(2_000, port.parse().unwrap()).payload(&[1; 900]);
    let sent = world.send_dropped(IN, &call.build(), Reason::FragmentationNeeded);
    assert_eq!((sent.len(), sent[0].icmp(), sent[0].mtu(), sent[0].port), (1, (3, 4), 600, IN));
    assert_eq!(sent[0].quoted_flow(), format!("10.0.0.6:2000>{called}"));
    assert_eq!(sent[0].ip().dst_addr().to_string(), "10.0.0.6");
}

/// RFC 5508 REQ-4, RFC 4787 REQ-12.
#[test]
fn errors_from_outside_reach_the_subscriber_with_its_own_packet() {
    let mut world = world();
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    let error = icmp_error(OUT, "203.0.114.1", POOL, 11, 0, out.packet());
    let back = world.pass(OUT, &error);
    assert_eq!((back.icmp(), back.addresses()), ((11, 0), ("203.0.114.1".into(), "10.0.0.5".into())));
    assert_eq!(back.quoted_flow(), format!("10.0.0.5:1000>{REMOTE}"));
    world.pass(OUT, &udp(OUT, REMOTE, &out.src()));
}

/// RFC 5508 REQ-5, also when a router behind the subscriber sends it.
#[test]
fn errors_from_inside_leave_with_the_mappings_address() {
    let mut world = world();
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    let back = world.pass(OUT, &udp(OUT, REMOTE, &out.src()));
    for from in ["10.0.0.5", "10.0.0.7"] {
        let sent = world.pass(IN, &icmp_error(IN, from, "198.51.100.7", 3, 3, back.packet()));
        assert_eq!((sent.icmp(), sent.addresses()), ((3, 3), (POOL.into(), "198.51.100.7".into())));
        assert_eq!(sent.quoted_flow(), format!("{REMOTE}>{}", out.src()));
    }
}

/// What an error says it is about proves nothing: untranslated it leaves only where any packet may (RFC 6888 REQ-6).
#[test]
fn a_made_up_error_from_inside_shows_no_inside_address_outside() {
    let mut world = world();
    let about = [
        udp(OUT, "10.0.0.5:1000", "198.51.100.41:80"),
        udp(OUT, "203.0.113.9:53", "10.0.0.5:1000"),
        udp(OUT, "8.8.8.8:53", "172.16.0.5:1000"),
    ];
    for frame in &about {
        let error = icmp_error(IN, "10.0.0.5", "198.51.100.7", 3, 1, &frame[14..]);
        world.dropped(IN, &error, Reason::NatIcmpNoSession);
    }
    // About a packet of an exempt remote, and to it.
    let sent = world.pass(IN, &icmp_error(IN, "10.0.0.5", "203.0.113.9", 3, 3, &about[1][14..]));
    assert_eq!(sent.addresses().0, "10.0.0.5");
}

/// RFC 5382 REQ-4a: where policy wants silence, an unsolicited SYN is counted and never answered.
#[test]
fn an_unsolicited_syn_is_never_answered_where_policy_wants_silence() {
    for silent in [IcmpErrors::PathMtu, IcmpErrors::None] {
        let mut world = world_with(|s| on(s, IF_OUT, |i| i.icmp_errors = silent));
        assert!(world.send(OUT, &tcp(OUT, REMOTE, "192.0.2.1:5000", SYN)).is_empty());
        assert!(world.wait_ms(7_000).is_empty());
        assert_eq!(world.new_drops(), [(Reason::NatTcpUnsolicitedSyn, 1)]);
    }
}

/// RFC 5382 REQ-4: silent for 6 s, then told by the router.
#[test]
fn an_unsolicited_syn_is_answered_after_six_seconds() {
    let mut world = world();
    let syn = tcp(OUT, REMOTE, "192.0.2.1:5000", SYN);
    assert!(world.send(OUT, &syn).is_empty());
    assert_eq!(world.held(), 1);
    assert!(world.wait_ms(5_500).is_empty());
    let sent = world.wait_ms(1_500);
    assert_eq!((sent.len(), sent[0].icmp()), (1, (3, 3)));
    assert_eq!(sent[0].addresses(), ("198.51.100.1".into(), "198.51.100.7".into()));
    assert_eq!(sent[0].quoted_flow(), format!("{REMOTE}>192.0.2.1:5000"));
    assert_eq!(world.new_drops(), [(Reason::NatTcpUnsolicitedSyn, 1)]);
}

/// RFC 5382 REQ-2, REQ-4: simultaneous open; conservation holds between the two calls of the worker too.
#[test]
fn a_matching_syn_from_inside_absorbs_the_held_one() {
    let mut world = world_with(|s| {
        nat(s, |i| i.filtering = [carrack_nat::policy::Filtering::AddressAndPortDependent; 3]);
    });
    let outside = world.pass(IN, &tcp(IN, "10.0.0.5:1000", "203.0.114.1:80", SYN)).src();
    let mut drops = world.capture(|capture| (capture.rx, capture.tx) = (false, false));
    let held = tcp(OUT, REMOTE, &outside, SYN);
    assert!(world.send(OUT, &held).is_empty());
    assert_eq!(world.held(), 1);
    assert!(drops.pop().is_err(), "held is not dropped");
    assert_eq!(world.pass(IN, &tcp(IN, "10.0.0.5:1000", REMOTE, SYN)).src(), outside);
    assert_eq!(world.held(), 0);
    assert_eq!(world.new_drops(), [(Reason::NatTcpSynSuperseded, 1)]);
    // Who captures drops sees it too: its packet, without the link header that was not kept.
    let seen = drops.pop().expect("the absorbed SYN is in the capture");
    assert_eq!(seen.point, carrack_pipeline::mailbox::CapturePoint::Drop(Reason::NatTcpSynSuperseded));
    assert_eq!(seen.bytes[14..usize::from(seen.captured)], held[14..usize::from(seen.captured)]);
    assert!(drops.pop().is_err());
    assert!(world.wait_ms(8_000).is_empty());
}

#[test]
fn a_flood_of_syns_fills_its_table_and_no_more() {
    let mut world = world();
    let syns: Vec<_> =
        (0..40).map(|n| tcp(OUT, &format!("198.51.100.7:{n}"), "192.0.2.1:5000", SYN)).collect();
    world.burst(OUT, &syns);
    assert_eq!(world.held(), u64::from(SIZES.nat.held_syns));
    assert_eq!(world.new_drops(), [(Reason::NatSynTableFull, 24)]);
    world.wait_ms(7_000);
    world.new_drops();
    assert!(world.send(OUT, &syns[0]).is_empty());
    assert_eq!(world.held(), 1);
}

/// RFC 6888 REQ-11, REQ-11a, REQ-11b, RFC 5508 REQ-8: the code that the instance says.
#[test]
fn a_subscriber_over_its_limit_is_told_as_configured() {
    let says = |exhausted, expected: Option<(u8, u8)>| {
        let mut world = world_with(|s| {
            nat(s, |i| {
                i.limits.sessions_max = 2;
                i.exhausted_icmp = exhausted;
            });
        });
        for port in 1..3 {
            world.pass(IN, &udp(IN, &format!("10.0.0.5:{port}"), REMOTE));
        }
        let frame = udp(IN, "10.0.0.5:3", REMOTE);
        let sent = world.send_dropped(IN, &frame, Reason::NatSessionLimit);
        assert_eq!(sent.first().map(Sent::icmp), expected);
        if let Some(sent) = sent.first() {
            assert_eq!(sent.quoted(), &frame[14..]);
        }
    };
    says(ExhaustedIcmp::HostUnreachable, Some((3, 1)));
    says(ExhaustedIcmp::AdminProhibited, Some((3, 13)));
    says(ExhaustedIcmp::Silent, None);
}

/// RFC 4787 REQ-7: two customers with the same inside addresses, and the outside in a third routing instance.
fn overlapping() -> World {
    let mut world = world_with(|s| {
        *s = snapshot_of(
            vec![
                interface(0, IN, Vlan::None, 1, Side::Inside, "10.0.0.1/16"),
                interface(1, OUT, Vlan::None, 3, Side::Outside, "198.51.100.1/24"),
                interface(2, TAGGED, Vlan::Single(100), 2, Side::Inside, "10.0.0.1/16"),
                interface(3, TAGGED, Vlan::None, 0, Side::Plain, "172.16.0.1/24"),
            ],
            vec![instance(0, 1, 3, "192.0.2.1"), instance(1, 2, 3, "192.0.2.2")],
            vec![route(3, "0.0.0.0/0", NextHop::Gateway(IfIndex(1), ip(GATEWAY)))],
        );
    });
    world.know(2, "10.0.0.5");
    world
}

#[test]
fn equal_inside_addresses_of_two_routing_instances_keep_apart() {
    let mut world = overlapping();
    let one = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE));
    let tagged = packet(TAGGED, "10.0.0.5", "198.51.100.7").vlan(100).udp(1_000, 80).build();
    let two = world.pass(TAGGED, &tagged);
    assert_eq!((one.addresses().0.as_str(), two.addresses().0.as_str()), ("192.0.2.1", "192.0.2.2"));
    let back = world.pass(OUT, &udp(OUT, REMOTE, &one.src()));
    assert_eq!((back.port, back.tags.len()), (IN, 0));
    let back = world.pass(OUT, &udp(OUT, REMOTE, &two.src()));
    assert_eq!((back.port, back.tags.as_slice()), (TAGGED, &[100][..]));
}

#[test]
fn hairpin_between_two_routing_instances_passes() {
    let mut world = overlapping();
    let called = world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE)).src();
    let (to, port) = called.split_once(':').unwrap();
    let call = packet(TAGGED, "10.0.0.5", to).vlan(100).udp(2_000, port.parse().unwrap()).build();
    let sent = world.pass(TAGGED, &call);
    assert_eq!(
        (sent.port, sent.dst(), sent.addresses().0.as_str()),
        (IN, "10.0.0.5:1000".into(), "192.0.2.2")
    );
    let back = world.pass(IN, &udp(IN, "10.0.0.5:1000", &sent.src()));
    assert_eq!((back.port, back.dst(), back.src()), (TAGGED, "10.0.0.5:2000".into(), called));
}

#[test]
fn the_routers_own_address_answers_in_each_routing_instance() {
    let mut world = overlapping();
    world.send(IN, &ping(IN, "10.0.0.5:7", "10.0.0.1"));
    world.send(TAGGED, &packet(TAGGED, "10.0.0.5", "10.0.0.1").vlan(100).echo_request(7, 1).build());
    let interfaces: Vec<_> = world.punts.iter().map(|(interface, _)| interface.0).collect();
    assert_eq!(interfaces, [0, 2]);
    assert_eq!(world.sessions(), 0);
    // Errors come from the right side as well.
    let dying = packet(TAGGED, "10.0.0.5", "198.51.100.7").vlan(100).ttl(1).udp(1, 2).build();
    let sent = world.send_dropped(TAGGED, &dying, Reason::Ipv4TtlExpired);
    assert_eq!(sent[0].tags, [100]);
}

#[test]
fn too_big_across_routing_instances_tells_the_right_subscriber() {
    let mut world = overlapping();
    world.reconfigure(|s| on(s, 1, |i| i.mtu = 700));
    let big = packet(TAGGED, "10.0.0.5", "198.51.100.7")
        .vlan(100)
        .dont_fragment()
        .udp(1_000, 80)
        .payload(&[1; 900]);
    let sent = world.send_dropped(TAGGED, &big.build(), Reason::FragmentationNeeded);
    assert_eq!((sent.len(), sent[0].tags.as_slice(), sent[0].mtu()), (1, &[100][..], 700));
    assert_eq!(sent[0].quoted_flow(), format!("10.0.0.5:1000>{REMOTE}"));
}

#[test]
fn a_forward_rule_is_reachable_from_outside_and_from_inside() {
    let mut world = world_with(|s| {
        nat(s, |i| {
            i.statics = vec![StaticRule::Forward {
                proto: Proto::Tcp,
                outside: ip(POOL),
                outside_port: 8_080,
                count: 1,
                inside: carrack_nat::Inside::V4(ip("10.0.0.5")),
                inside_port: 80,
            }];
        });
    });
    let sent = world.pass(OUT, &tcp(OUT, "198.51.100.7:4000", "192.0.2.1:8080", SYN));
    assert_eq!(sent.dst(), "10.0.0.5:80");
    let back = world.pass(IN, &tcp(IN, "10.0.0.5:80", "198.51.100.7:4000", SYN | ACK));
    assert_eq!(back.src(), "192.0.2.1:8080");
    let sent = world.pass(IN, &tcp(IN, "10.0.0.6:4000", "192.0.2.1:8080", SYN));
    assert_eq!(sent.dst(), "10.0.0.5:80");
}

#[test]
fn gre_passes_a_one_to_one_mapping_and_nothing_else() {
    let mut world = world_with(|s| nat(s, |i| i.statics = vec![one_to_one("10.0.0.5", "192.0.2.50")]));
    let gre = |port, src, dst| packet(port, src, dst).protocol(47).payload(&[0, 0, 8, 0, 1, 2, 3, 4]).build();
    let sent = world.pass(IN, &gre(IN, "10.0.0.5", "198.51.100.7"));
    assert_eq!(sent.addresses().0, "192.0.2.50");
    assert_eq!(world.pass(OUT, &gre(OUT, "198.51.100.7", "192.0.2.50")).addresses().1, "10.0.0.5");
    world.dropped(IN, &gre(IN, "10.0.0.6", "198.51.100.7"), Reason::NatProtocolUnsupported);
}

/// Pings through a one-to-one mapping hairpin as well, whole and in pieces.
#[test]
fn a_ping_hairpins_to_a_one_to_one_mapping_even_in_fragments() {
    let mut world = world_with(|s| nat(s, |i| i.statics = vec![one_to_one("10.0.0.5", "192.0.2.50")]));
    let sent = world.pass(IN, &ping(IN, "10.0.0.6:7", "192.0.2.50"));
    assert_eq!(sent.ip().dst_addr().to_string(), "10.0.0.5");
    let long = packet(IN, "10.0.0.6", "192.0.2.50").echo_request(9, 1).payload(&[3; 2_000]).build();
    let mut pieces = cut(IN, "10.0.0.6", "192.0.2.50", 1, 5, &long[34..], 800);
    pieces.reverse();
    let sent = world.burst(IN, &pieces);
    assert_eq!(sent.len(), 3, "{:?}", world.new_drops());
    let (_, whole) = common::check::reassemble(&sent);
    common::check::whole_is_right(&sent[0], &whole);
    assert!(sent.iter().all(|s| s.ip().dst_addr().to_string() == "10.0.0.5"));
}

#[test]
fn mixed_directions_in_one_burst_of_an_interface_pair_of_one_port() {
    // Inside VLAN and plain interface share a port: one burst, three ways.
    let mut world = world();
    let burst = [
        packet(TAGGED, "10.1.0.5", "198.51.100.7").vlan(100).udp(1_000, 80).build(),
        udp(TAGGED, "172.16.0.5:1000", REMOTE),
        packet(TAGGED, "10.2.0.5", "172.16.0.5").vlan(200).vlan(7).udp(1_000, 80).build(),
    ];
    let mut sources: Vec<_> = world.burst(TAGGED, &burst).iter().map(|s| s.addresses().0).collect();
    sources.sort();
    assert_eq!(sources, ["10.2.0.5", "172.16.0.5", POOL]);
}
