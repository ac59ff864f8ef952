//! TTL, MTU and source routes: errors name the sender's own packet, fragments make the datagram again.

mod common;

use carrack_base::Reason;
use carrack_pipeline::snapshot::IcmpErrors;
use carrack_wire::tcp::flag;
use common::check::{reassemble, whole_is_right};
use common::*;

/// RFC 1812 §5.3.1: a traceroute's probe makes no session and its error carries the probe as sent.
#[test]
fn ttl_expires_before_the_nat_and_quotes_the_original_packet() {
    let mut world = world();
    let base = || packet(IN, "10.0.0.5", "198.51.100.7").ttl(1);
    let frames = [
        base().udp(1_000, 33_434).build(),
        base().tcp(1_000, 80, flag::SYN).build(),
        base().echo_request(7, 1).build(),
        packet(IN, "10.0.0.5", "198.51.100.7").ttl(0).udp(1_000, 33_434).build(),
    ];
    for frame in frames {
        let sent = world.send_dropped(IN, &frame, Reason::Ipv4TtlExpired);
        assert_eq!((sent.len(), sent[0].port, sent[0].icmp()), (1, IN, (11, 0)));
        assert_eq!(sent[0].addresses(), ("10.0.0.1".into(), "10.0.0.5".into()));
        assert_eq!(sent[0].quoted(), &frame[14..]);
    }
    assert_eq!(world.sessions(), 0);
}

/// RFC 5508 REQ-9: policy keeps errors from being sent to whom an interface leads to; path MTU discovery may be spared.
#[test]
fn errors_are_kept_from_an_interface_by_policy() {
    let big =
        packet(IN, "10.0.0.5", "198.51.100.7").dont_fragment().payload(&[0; 1_400]).udp(1_000, 53).build();
    let dying = packet(IN, "10.0.0.5", "198.51.100.7").ttl(1).udp(1_000, 33_434).build();
    for (policy, about_big, about_dying) in
        [(IcmpErrors::All, 1, 1), (IcmpErrors::PathMtu, 1, 0), (IcmpErrors::None, 0, 0)]
    {
        let mut world = world_with(|s| {
            on(s, IF_OUT, |i| i.mtu = 1_000);
            on(s, IF_IN, |i| i.icmp_errors = policy);
        });
        let sent = world.send_dropped(IN, &big, Reason::FragmentationNeeded);
        assert_eq!(sent.len(), about_big, "{policy:?}");
        let sent = world.send_dropped(IN, &dying, Reason::Ipv4TtlExpired);
        assert_eq!(sent.len(), about_dying, "{policy:?}");
    }
}

#[test]
fn ttl_expires_coming_in_too_and_the_outside_sees_its_own_packet() {
    let mut world = world();
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", "198.51.100.7:53"));
    let (pool, port) = e(&out.src()).to_owned_pair();
    let frame = packet(OUT, "198.51.100.7", &pool).ttl(1).udp(53, port).build();
    let sent = world.send_dropped(OUT, &frame, Reason::Ipv4TtlExpired);
    assert_eq!(
        (sent[0].icmp(), sent[0].addresses()),
        ((11, 0), ("198.51.100.1".into(), "198.51.100.7".into()))
    );
    assert_eq!(sent[0].quoted(), &frame[14..]);
}

trait OwnedPair {
    fn to_owned_pair(self) -> (String, u16);
}

impl OwnedPair for (&str, u16) {
    fn to_owned_pair(self) -> (String, u16) {
        (self.0.to_owned(), self.1)
    }
}

/// A pool address that is the interface's own: the packet is for the router and yet goes on.
#[test]
fn ttl_0_never_leaves_even_when_the_pool_address_is_the_routers_own() {
    let mut world = world_with(|s| nat(s, |i| i.pools[0].ranges = vec!["198.51.100.1".parse().unwrap()]));
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", "198.51.100.7:53"));
    let (own, port) = e(&out.src()).to_owned_pair();
    assert_eq!(own, "198.51.100.1");
    let frame = packet(OUT, "198.51.100.7", &own).ttl(1).udp(53, port).build();
    let sent = world.send_dropped(OUT, &frame, Reason::Ipv4TtlExpired);
    assert_eq!((sent.len(), sent[0].icmp(), sent[0].port), (1, (11, 0), OUT));
    assert_eq!(sent[0].quoted_flow(), format!("198.51.100.7:53>{own}:{port}"));
}

/// RFC 1624 eqn. 3: the checksum is the one a full computation gives, for every value of it.
#[test]
fn one_hop_less_gives_the_exact_header_checksum() {
    let mut world = world();
    for id in 0..=u16::MAX {
        if id % 7 != 0 && !(0x3000..0x3400).contains(&id) {
            continue;
        }
        let frame = packet(TAGGED, "172.16.0.5", "198.51.100.7").identification(id).udp(1, 2).build();
        // The judge recomputes each.
        world.pass(TAGGED, &frame);
    }
    // The one sum in 65536 that a carry makes to minus zero.
    let base = packet(TAGGED, "172.16.0.5", "198.51.100.7").udp(1, 2);
    let sum = |id: u16| {
        let frame = base.clone().identification(id).build();
        u16::from_be_bytes([frame[24], frame[25]])
    };
    let id = (0..=u16::MAX).find(|id| sum(*id) == 0xfeff).expect("there is one");
    world.pass(TAGGED, &base.identification(id).build());
}

/// RFC 7126 §4.3, RFC 1812 §5.2.7.1.
#[test]
fn source_routed_packets_are_refused_with_3_5() {
    let mut world = world();
    for kind in [131, 137] {
        let options = [kind, 7, 4, 198, 51, 100, 8, 0];
        let frame = packet(IN, "10.0.0.5", "198.51.100.7").ip_options(&options).udp(1, 2).build();
        let sent = world.send_dropped(IN, &frame, Reason::Ipv4SourceRoute);
        assert_eq!((sent.len(), sent[0].icmp()), (1, (3, 5)));
    }
    let options = [7, 7, 4, 0, 0, 0, 0, 0];
    let frame = packet(IN, "10.0.0.5", "198.51.100.7").ip_options(&options).udp(1_000, 2).build();
    world.pass(IN, &frame);
}

fn big(port: u16, src: &str, dst: &str, len: usize, df: bool) -> Vec<u8> {
    let payload: Vec<u8> = (0..len).map(|n| (n * 13 + n / 256) as u8).collect();
    let ((a, sport), (b, dport)) = (e(src), e(dst));
    let packet = packet(port, a, b).identification(0x4321);
    let packet = if df { packet.dont_fragment() } else { packet };
    packet.udp(sport, dport).payload(&payload).build()
}

/// RFC 4787 REQ-13: the subscriber is told the MTU, and about its own packet, although the packet was translated.
#[test]
fn too_big_going_out_with_df_tells_the_subscriber_the_mtu_and_its_own_packet() {
    let mut world = world_with(|s| on(s, IF_OUT, |i| i.mtu = 1_400));
    let frame = big(IN, "10.0.0.5:1000", "198.51.100.7:53", 1_400, true);
    let sent = world.send_dropped(IN, &frame, Reason::FragmentationNeeded);
    assert_eq!((sent.len(), sent[0].port, sent[0].icmp(), sent[0].mtu()), (1, IN, (3, 4), 1_400));
    assert_eq!(sent[0].addresses(), ("10.0.0.1".into(), "10.0.0.5".into()));
    assert_eq!(sent[0].quoted_flow(), "10.0.0.5:1000>198.51.100.7:53");
    // Exactly at the MTU it passes.
    let fits = world.pass(IN, &big(IN, "10.0.0.5:1000", "198.51.100.7:53", 1_372, true));
    assert_eq!(fits.packet().len(), 1_400);
}

#[test]
fn too_big_coming_in_with_df_tells_the_outside_about_the_packet_it_sent() {
    let mut world = world_with(|s| on(s, IF_IN, |i| i.mtu = 1_300));
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", "198.51.100.7:53"));
    let frame = big(OUT, "198.51.100.7:53", &out.src(), 1_400, true);
    let sent = world.send_dropped(OUT, &frame, Reason::FragmentationNeeded);
    assert_eq!((sent.len(), sent[0].port, sent[0].icmp(), sent[0].mtu()), (1, OUT, (3, 4), 1_300));
    assert_eq!(sent[0].ip().dst_addr().to_string(), "198.51.100.7");
    assert_eq!(sent[0].quoted_flow(), format!("198.51.100.7:53>{}", out.src()));
    assert_ne!(sent[0].ip().src_addr().to_string(), "10.0.0.5", "no inside address leaves");
}

/// RFC 4787 REQ-13a: fragments in order, each fits, and together they are the datagram with a right checksum.
#[test]
fn too_big_without_df_leaves_in_fragments_in_order() {
    let mut world = world_with(|s| on(s, IF_OUT, |i| i.mtu = 576));
    let frame = big(IN, "10.0.0.5:1000", "198.51.100.7:53", 1_400, false);
    let sent = world.send(IN, &frame);
    assert_eq!(sent.len(), 3);
    let offsets: Vec<_> = sent.iter().map(|s| s.ip().fragment_offset()).collect();
    assert!(offsets.is_sorted(), "{offsets:?}");
    let (id, whole) = reassemble(&sent);
    whole_is_right(&sent[0], &whole);
    assert_eq!(whole[8..], frame[42..], "the payload is the subscriber's");
    assert_eq!(sent[0].src().split(':').next(), Some(POOL));
    assert!(sent.iter().all(|s| s.ip().ttl() == 63));
    // RFC 6864 §5.3.1, RFC 7857 §10: behind one address identifications are the NAT's.
    assert_ne!(id, 0x4321);
}

#[test]
fn fragments_made_coming_in_keep_the_senders_identification() {
    let mut world = world_with(|s| on(s, IF_IN, |i| i.mtu = 576));
    let out = world.pass(IN, &udp(IN, "10.0.0.5:1000", "198.51.100.7:53"));
    let sent = world.send(OUT, &big(OUT, "198.51.100.7:53", &out.src(), 1_400, false));
    let (id, whole) = reassemble(&sent);
    whole_is_right(&sent[0], &whole);
    assert_eq!((sent.len(), id), (3, 0x4321));
}

#[test]
fn a_fragment_too_big_for_the_next_link_is_cut_again_in_its_place() {
    let mut world = world_with(|s| on(s, IF_OUT, |i| i.mtu = 576));
    let mut sent = vec![];
    for piece in fragments(IN, "10.0.0.5:1000", "198.51.100.7:53", 9, 4_000, 1_480) {
        sent.extend(world.send(IN, &piece));
    }
    let (_, whole) = reassemble(&sent);
    assert_eq!(whole.len(), 4_008);
    whole_is_right(&sent[0], &whole);
}

/// RFC 791 §3.1: only copied options go into later fragments.
#[test]
fn options_go_into_fragments_as_their_copied_flag_says() {
    let mut world = world_with(|s| on(s, IF_OUT, |i| i.mtu = 576));
    // Router alert is copied, a record of the route is not.
    let options = [148, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0];
    let frame =
        packet(TAGGED, "172.16.0.5", "198.51.100.7").ip_options(&options).udp(1, 2).payload(&[1; 1_000]);
    let sent = world.send(TAGGED, &frame.build());
    assert_eq!(sent[0].ip().options_bytes(), options);
    assert!(sent[1..].iter().all(|s| s.ip().options_bytes() == [148, 4, 0, 0]));
    reassemble(&sent);
}

#[test]
fn tcp_too_big_with_df_gets_its_error_with_the_ports_that_its_stack_knows() {
    let mut world = world_with(|s| on(s, IF_OUT, |i| i.mtu = 1_000));
    world.pass(IN, &tcp(IN, "10.0.0.5:1000", "198.51.100.7:80", flag::SYN));
    let segment = packet(IN, "10.0.0.5", "198.51.100.7")
        .dont_fragment()
        .tcp(1_000, 80, flag::ACK)
        .payload(&[5; 1_200])
        .build();
    let sent = world.send_dropped(IN, &segment, Reason::FragmentationNeeded);
    assert_eq!((sent[0].icmp(), sent[0].mtu()), ((3, 4), 1_000));
    assert_eq!(sent[0].quoted_flow(), "10.0.0.5:1000>198.51.100.7:80");
}
