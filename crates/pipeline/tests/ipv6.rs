//! The router forwards IPv6, says what it refuses, and takes in what is for itself.

mod common;

use carrack_base::{IfIndex, Prefix6, Reason, VrfId};
use carrack_pipeline::snapshot::{NextHop, Policer, Route, Snapshot};
use carrack_wire::ndp::{self, NdpMessage};
use carrack_wire::tcp::flag;
use carrack_wire::{MacAddr, PacketBuilder};
use common::net6::*;
use common::*;

const A: &str = "2001:db8:1::5";
const FAR: &str = "2001:db8:ffff::7";

/// RFC 8200 §3: a router takes one from the hop limit and changes nothing else.
#[test]
fn a_packet_leaves_as_it_came_but_for_link_header_and_hop_limit() {
    let mut world = world6();
    let frames = [
        packet6(IN, A, FAR).udp(1_000, 53).build(),
        packet6(IN, A, FAR).tcp(1_000, 80, flag::SYN).build(),
        packet6(IN, A, FAR).echo_request(7, 1).build(),
        packet6(IN, A, FAR).protocol(50).build(),
        packet6(IN, A, FAR).hop_by_hop(&[]).destination_options(&[]).udp(1_000, 53).build(),
        packet6(IN, A, FAR).fragment6(1_448, false, 9).protocol(17).build(),
    ];
    for frame in frames {
        let sent = world.pass(IN, &frame);
        assert_eq!((sent.port, sent.to), (OUT, mac6(GATEWAY6).0));
        let mut expected = frame[14..].to_vec();
        expected[7] -= 1;
        assert_eq!(sent.ip6().packet(), expected);
    }
    assert_eq!(world.sessions(), 0, "no NAT is concerned");
}

#[test]
fn both_sides_and_tags_are_routed_without_a_nat() {
    let mut world = world6();
    let sent = world.pass(OUT, &packet6(OUT, FAR, A).udp(53, 1_000).build());
    assert_eq!((sent.port, sent.to), (IN, mac6(A).0));
    let sent = world.pass(IN, &packet6(IN, A, "2001:db8:3::5").udp(1, 2).build());
    assert_eq!((sent.port, sent.tags), (TAGGED, vec![100]));
}

/// RFC 4443 §3.2 and §3.3, §2.2: errors come from the interface's own address and quote the packet as it was sent.
#[test]
fn the_sender_is_told_of_hop_limit_size_and_missing_routes() {
    let mut world = world6_with(|s| {
        on(s, IF_OUT, |i| i.mtu = 1_400);
        s.routes6.retain(|route| !route.prefix.is_default());
        let to = |text: &str| text.parse::<Prefix6>().unwrap();
        let vrf = VrfId(0);
        s.routes6.push(Route { vrf, prefix: to("2001:db8:a::/48"), next_hop: NextHop::Prohibit });
        s.routes6.push(Route { vrf, prefix: to("2001:db8:b::/48"), next_hop: NextHop::Blackhole });
        let gateway = NextHop::Gateway(IfIndex(IF_OUT), ip6(GATEWAY6));
        s.routes6.push(Route { vrf, prefix: to("2001:db8:c::/48"), next_hop: gateway });
    });
    let far = "2001:db8:c::1";
    let big = vec![0; 1_400];
    let cases = [
        (packet6(IN, A, far).ttl(1).udp(1, 2).build(), Reason::Ipv6HopLimitExpired, Some((3, 0, 0))),
        (
            packet6(IN, A, far).payload(&big).udp(1, 2).build(),
            Reason::FragmentationNeeded,
            Some((2, 0, 1_400)),
        ),
        (packet6(IN, A, FAR).udp(1, 2).build(), Reason::NoRoute, Some((1, 0, 0))),
        (packet6(IN, A, "2001:db8:a::1").udp(1, 2).build(), Reason::RouteProhibit, Some((1, 1, 0))),
        (packet6(IN, A, "2001:db8:b::1").udp(1, 2).build(), Reason::RouteBlackhole, None),
        (packet6(IN, A, "2001:db8:1::1").udp(1, 2).build(), Reason::LocalNoService, Some((1, 4, 0))),
        // RFC 8200 §4: a protocol that the router does not know, by the octet that names it.
        (packet6(IN, A, "2001:db8:1::1").protocol(132).build(), Reason::LocalNoService, Some((4, 1, 6))),
        (
            packet6(IN, A, "2001:db8:1::1").hop_by_hop(&[5, 2, 0, 0]).protocol(132).build(),
            Reason::LocalNoService,
            Some((4, 1, 40)),
        ),
        (packet6(IN, "fe80::5", far).udp(1, 2).build(), Reason::Ipv6Scope, Some((1, 2, 0))),
    ];
    for (frame, reason, error) in cases {
        let sent = world.send_dropped(IN, &frame, reason);
        assert_eq!(sent.len(), usize::from(error.is_some()), "{reason}");
        let (Some(error), Some(sent)) = (error, sent.first()) else { continue };
        let (kind, code, word, quoted) = sent.error6();
        assert_eq!((kind, code, word), error, "{reason}");
        let most = (frame.len() - 14).min(1_280 - 48);
        assert_eq!(quoted, &frame[14..14 + most], "{reason}");
        let source = if reason == Reason::Ipv6Scope { LINK_LOCAL } else { "2001:db8:1::1" };
        assert_eq!((sent.port, sent.addresses6().0.as_str()), (IN, source), "{reason}");
    }
}

/// RFC 8200 §5: no router fragments IPv6; a packet of exactly the MTU passes.
#[test]
fn a_packet_of_the_mtu_passes_and_one_octet_more_does_not() {
    let mut world = world6();
    let of = |len: usize| packet6(IN, A, FAR).payload(&vec![0; len - 48]).udp(1, 2).build();
    assert_eq!(world.pass(IN, &of(1_500)).ip6().packet().len(), 1_500);
    assert_eq!(world.send_dropped(IN, &of(1_501), Reason::FragmentationNeeded).len(), 1);
}

/// RFC 4443 §2.4 (e) and (f).
#[test]
fn no_error_is_sent_about_errors_and_groups_nor_faster_than_the_policer_allows() {
    let mut world = world6_with(|s| s.policers.icmp_errors = Policer { rate_pps: 1, burst: 2 });
    let quoted = packet6(OUT, FAR, A).udp(1, 2).build();
    let error = packet6(IN, A, FAR).ttl(1).icmp(1, 4, [0; 4]).payload(&quoted[14..]).build();
    world.dropped(IN, &error, Reason::Ipv6HopLimitExpired);
    let to_group = PacketBuilder::new().ethernet(mac6(A), MacAddr([0x33, 0x33, 0, 0, 0, 5]));
    let to_group = to_group.ipv6(ip6(A), ip6("ff02::5")).udp(1, 2).build();
    world.dropped(IN, &to_group, Reason::Ipv6Multicast);
    let expired = packet6(IN, A, FAR).ttl(1).udp(1, 2).build();
    for answered in [1, 1, 0] {
        assert_eq!(world.send_dropped(IN, &expired, Reason::Ipv6HopLimitExpired).len(), answered);
    }
}

fn broken(at: usize, value: &[u8]) -> Vec<u8> {
    let mut frame = packet6(IN, A, FAR).udp(1, 2).build();
    frame[14 + at..14 + at + value.len()].copy_from_slice(value);
    frame
}

#[test]
fn what_cannot_be_right_is_dropped_by_name_and_not_answered() {
    let mut world = world6();
    let short = packet6(IN, A, FAR).udp(1, 2).build();
    let chain: Vec<Vec<u8>> = (0..9).map(|_| vec![0; 6]).collect();
    let mut bomb = packet6(IN, A, FAR).destination_options(&chain[0]).udp(1, 2).build();
    // Eight more destination headers before the one there is.
    for _ in 0..8 {
        bomb.splice(54..54, [60, 0, 1, 4, 0, 0, 0, 0]);
    }
    let len = (bomb.len() - 54) as u16;
    bomb[18..20].copy_from_slice(&len.to_be_bytes());
    let from = |src: &str| packet6(IN, src, FAR).udp(1, 2).build();
    let to = |dst: &str| packet6(IN, A, dst).udp(1, 2).build();
    let fragment = |len: usize, offset, more| {
        packet6(IN, A, FAR).fragment6(offset, more, 7).protocol(17).payload(&vec![0; len]).build()
    };
    let jumbo = {
        let mut frame = packet6(IN, A, FAR).hop_by_hop(&[0xc2, 4, 0, 1, 0, 0]).udp(1, 2).build();
        frame[18..20].copy_from_slice(&[0, 0]);
        frame
    };
    let cases = [
        ("short", short[..14 + 39].to_vec(), Reason::Ipv6Truncated),
        ("version", broken(0, &[0x45]), Reason::Ipv6BadVersion),
        ("length", broken(4, &[0xff, 0xff]), Reason::Ipv6BadLength),
        ("jumbogram", jumbo, Reason::Ipv6Jumbogram),
        (
            "chain cut off",
            packet6(IN, A, FAR).protocol(60).payload(&[17]).build(),
            Reason::Ipv6ExtensionInvalid,
        ),
        ("too many headers", bomb, Reason::Ipv6ExtensionLimit),
        ("from a group", from("ff02::5"), Reason::Ipv6SourceInvalid),
        ("from loopback", from("::1"), Reason::Ipv6SourceInvalid),
        ("from nobody", from("::"), Reason::Ipv6SourceInvalid),
        ("from mapped", from("::ffff:10.0.0.5"), Reason::Ipv6SourceInvalid),
        ("to nobody", to("::"), Reason::Ipv6DestinationInvalid),
        ("to loopback", to("::1"), Reason::Ipv6DestinationInvalid),
        ("to mapped", to("::ffff:192.0.2.1"), Reason::Ipv6DestinationInvalid),
        ("to a group", to("ff0e::1"), Reason::Ipv6Multicast),
        ("fragment of 7 octets", fragment(7, 0, true), Reason::Ipv6FragmentInvalid),
        ("fragment without end", fragment(0, 8, false), Reason::Ipv6FragmentInvalid),
        ("fragment beyond", fragment(16, 65_528, false), Reason::Ipv6FragmentInvalid),
        (
            "RFC 7112 §5",
            packet6(IN, A, FAR).fragment6(0, true, 7).protocol(6).payload(&[0; 8]).build(),
            Reason::Ipv6FragmentInvalid,
        ),
        ("ports cut off", packet6(IN, A, FAR).protocol(17).payload(&[0; 7]).build(), Reason::UdpMalformed),
        ("echo cut off", packet6(IN, A, FAR).protocol(58).payload(&[128; 7]).build(), Reason::IcmpMalformed),
    ];
    for (what, frame, reason) in cases {
        world.new_drops();
        let sent = world.send(IN, &frame);
        assert_eq!(world.new_drops(), [(reason, 1)], "{what}");
        assert!(sent.is_empty(), "{what} was answered");
    }
    // An interface without an IPv6 address takes none.
    world.dropped(TAGGED, &packet6(TAGGED, A, FAR).udp(1, 2).build(), Reason::Ipv6Disabled);
}

/// RFC 5095 §3, RFC 8200 §4.4: the router does not know its own type 0 either; in transit its segments are at fault.
#[test]
fn a_routing_header_of_type_0_is_refused_and_told_of() {
    let mut world = world6();
    for (dst, pointer) in [(FAR, 43), ("2001:db8:1::1", 42)] {
        let frame = packet6(IN, A, dst).extension(43, &[0, 1, 0, 0, 0, 0]).udp(1, 2).build();
        let sent = world.send_dropped(IN, &frame, Reason::Ipv6RoutingHeader);
        let (kind, code, at, _) = sent[0].error6();
        assert_eq!((kind, code, at), (4, 0, pointer));
    }
}

/// RFC 8200 §4.2, §4.4: what an unknown option or routing header asks for is done, in the order of the headers; whatever is
/// behind them.
#[test]
fn extension_headers_that_the_router_does_not_know_are_refused_as_they_ask_for() {
    let mut world = world6();
    let own = "2001:db8:1::1";
    let to = |dst: &str| packet6(IN, A, dst);
    let (skip, silent, told, told_unicast) =
        (&[0x1e, 0, 0, 0], &[0x5e, 0, 0, 0], &[0x9e, 0, 0, 0], &[0xde, 0, 0, 0]);
    for known in [to(own).destination_options(skip), to(own).extension(43, &[253, 0, 0, 0, 0, 0])] {
        let frame = known.echo_request(1, 1).build();
        world.send(IN, &frame);
        assert_eq!(world.punts.pop(), Some((IfIndex(IF_IN), frame)));
    }
    let (silently, option) = (Reason::Ipv6OptionDiscard, Reason::Ipv6OptionRefused);
    let cases = [
        (to(own).destination_options(silent), silently, None),
        (to(own).hop_by_hop(silent), silently, None),
        (to(own).destination_options(told), option, Some((4, 2, 42))),
        (to(own).hop_by_hop(skip).destination_options(told_unicast), option, Some((4, 2, 50))),
        (to(own).hop_by_hop(told).destination_options(silent), option, Some((4, 2, 42))),
        (to(LINK_LOCAL).destination_options(told), option, Some((4, 2, 42))),
        (to("ff02::1").destination_options(told), option, Some((4, 2, 42))),
        (to("ff02::1").destination_options(told_unicast), silently, None),
        (to(own).extension(43, &[253, 1, 0, 0, 0, 0]), Reason::Ipv6RoutingHeader, Some((4, 0, 42))),
        (
            to(own).extension(43, &[4, 2, 0, 0, 0, 0]).destination_options(silent),
            Reason::Ipv6RoutingHeader,
            Some((4, 0, 42)),
        ),
    ];
    for (at, (packet, reason, error)) in cases.into_iter().enumerate() {
        let mut frame = packet.echo_request(1, 1).build();
        if frame[14 + 24] == 0xff {
            frame[..6].copy_from_slice(&ndp::multicast_mac(ndp::ALL_NODES).0);
        }
        let sent = world.send_dropped(IN, &frame, reason);
        let told = sent.first().map(|sent| sent.error6()).map(|(kind, code, at, _)| (kind, code, at));
        assert_eq!(told, error, "case {at}");
        assert_eq!(world.punts.len(), 0);
    }
    // In transit they are the destination's business.
    world.pass(IN, &to(FAR).destination_options(told).udp(1, 2).build());
}

/// RFC 5095 §3: a routing header at its end is ignored.
#[test]
fn a_routing_header_at_its_end_passes() {
    let mut world = world6();
    world.pass(IN, &packet6(IN, A, FAR).extension(43, &[0, 0, 0, 0, 0, 0]).udp(1, 2).build());
}

#[test]
fn a_forged_source_fails_the_reverse_path_check() {
    let mut world = world6_with(|s| on(s, IF_IN, |i| i.urpf = true));
    world.dropped(IN, &packet6(IN, FAR, "2001:db8:3::5").udp(1, 2).build(), Reason::UrpfFailed);
    world.pass(IN, &packet6(IN, A, "2001:db8:3::5").udp(1, 2).build());
    // Whose address it is hears of nothing that is wrong with the packet.
    let routing = |src| packet6(IN, src, FAR).extension(43, &[0, 1, 0, 0, 0, 0]).udp(1, 2).build();
    world.dropped(IN, &routing(FAR), Reason::UrpfFailed);
    assert_eq!(world.send_dropped(IN, &routing(A), Reason::Ipv6RoutingHeader).len(), 1);
    world.dropped(IN, &packet6(IN, FAR, "fe80::99").udp(1, 2).build(), Reason::UrpfFailed);
}

/// RFC 4291 §2.5.6.
#[test]
fn link_local_packets_stay_on_their_link() {
    let mut world = world6();
    world.send_dropped(IN, &packet6(IN, A, "fe80::99").udp(1, 2).build(), Reason::Ipv6Scope);
    world.dropped(IN, &packet6(IN, LINK_LOCAL, FAR).udp(1, 2).build(), Reason::Ipv6Scope);
    // To the router itself it may speak.
    world.send(IN, &packet6(IN, "fe80::5", "2001:db8:1::1").echo_request(1, 1).build());
    world.send(IN, &packet6(IN, "fe80::5", LINK_LOCAL).echo_request(1, 1).build());
    assert_eq!(world.punts.len(), 2);
    let error =
        world.send_dropped(IN, &packet6(IN, "fe80::5", LINK_LOCAL).udp(1, 2).build(), Reason::LocalNoService);
    assert_eq!(error[0].addresses6(), (LINK_LOCAL.into(), "fe80::5".into()));
    assert_eq!((error[0].port, error[0].to), (IN, mac6("fe80::5").0));
}

fn solicitation(target: &str) -> NdpMessage {
    NdpMessage::NeighbourSolicitation { target: ip6(target), source: Some(mac6(A)) }
}

fn discovery(message: &NdpMessage, src: &str, dst: u128, to: MacAddr) -> Vec<u8> {
    let packet = message.packet(ip6(src), dst);
    PacketBuilder::new().ethernet(mac6(A), to).ethertype(0x86dd).payload(&packet).build()
}

/// RFC 4291 §2.8: what a router listens to.
#[test]
fn neighbour_discovery_goes_up_by_every_group_the_router_is_in_and_by_no_other() {
    let mut world = world6();
    let own = ndp::solicited_node(ip6("2001:db8:1::1"));
    for group in [own, ndp::ALL_NODES, ndp::ALL_ROUTERS] {
        let frame = discovery(&solicitation("2001:db8:1::1"), A, group, ndp::multicast_mac(group));
        world.send(IN, &frame);
        assert_eq!(world.punts.pop(), Some((IfIndex(IF_IN), frame)));
    }
    let unicast = discovery(&solicitation("2001:db8:1::1"), A, ip6("2001:db8:1::1"), port_mac(IN));
    world.send(IN, &unicast);
    assert_eq!(world.punts.pop(), Some((IfIndex(IF_IN), unicast)));
    let other = ndp::solicited_node(ip6("2001:db8:1::77"));
    let frame = discovery(&solicitation("2001:db8:1::77"), A, other, ndp::multicast_mac(other));
    world.dropped(IN, &frame, Reason::Ipv6Multicast);
}

/// RFC 4291 §2.6.1: what is sent to any router of a link is for this one, from there and from beyond it, and is looked for by
/// its group.
#[test]
fn a_packet_to_all_routers_of_a_subnet_goes_up() {
    let mut world = world6();
    let all = "2001:db8:1::";
    let group = ndp::solicited_node(ip6(all));
    let frames = [
        (IN, discovery(&solicitation(all), A, group, ndp::multicast_mac(group))),
        (IN, discovery(&solicitation(all), A, ip6(all), port_mac(IN))),
        (IN, packet6(IN, A, all).ttl(1).echo_request(7, 1).build()),
        (IN, packet6(IN, "fe80::5", all).echo_request(7, 1).build()),
        (OUT, packet6(OUT, FAR, all).echo_request(7, 1).build()),
    ];
    for (port, frame) in frames {
        world.send(port, &frame);
        assert_eq!(world.punts.pop(), Some((IfIndex(port), frame)));
    }
    let sent = world.send_dropped(IN, &packet6(IN, A, all).udp(1, 2).build(), Reason::LocalNoService);
    assert_eq!(sent[0].addresses6().0, "2001:db8:1::1", "RFC 4443 §2.2 (b)");
    world.dropped(IN, &packet6(IN, all, FAR).echo_request(7, 1).ttl(1).build(), Reason::Ipv6HopLimitExpired);
    world.dropped(
        IN,
        &packet6(IN, all, "2001:db8:1::1").echo_request(7, 1).build(),
        Reason::Ipv6SourceInvalid,
    );
}

/// RFC 4861 §6.1 and §7.1.
#[test]
fn neighbour_discovery_from_beyond_the_link_or_damaged_is_dropped() {
    let mut world = world6();
    let good = discovery(&solicitation("2001:db8:1::1"), A, ip6("2001:db8:1::1"), port_mac(IN));
    let mut far = good.clone();
    far[14 + 7] = 254;
    world.dropped(IN, &far, Reason::NdMalformed);
    let mut damaged = good.clone();
    damaged[14 + 47] ^= 1;
    world.dropped(IN, &damaged, Reason::NdMalformed);
}

#[test]
fn floods_to_the_router_meet_their_policers() {
    let mut world = world6_with(|s| {
        let none = Policer { rate_pps: 0, burst: 0 };
        (s.policers.nd, s.policers.icmp, s.policers.other) = (none, none, none);
    });
    let own = "2001:db8:1::1";
    world.dropped(IN, &discovery(&solicitation(own), A, ip6(own), port_mac(IN)), Reason::PuntPolicedNd);
    world.dropped(IN, &packet6(IN, A, own).echo_request(1, 1).build(), Reason::PuntPolicedIcmp);
    world.dropped(IN, &packet6(IN, A, own).echo_reply(1, 1).build(), Reason::PuntPolicedOther);
    // Nobody else has our address.
    world.dropped(IN, &packet6(IN, own, own).echo_request(1, 1).build(), Reason::Ipv6SourceInvalid);
}

/// RFC 8200 §4.5: pieces of ICMPv6 go up under the policer of echo requests; those of others, and of discovery, do not.
#[test]
fn pieces_of_icmpv6_to_the_router_go_up_under_the_policer_of_pings() {
    let mut world = world6_with(|s| s.policers.icmp = Policer { rate_pps: 0, burst: 4 });
    let own = "2001:db8:1::1";
    let piece = |dst: &str, kind: u8, proto, offset| {
        let data = [vec![kind, 0, 0, 0, 0, 7, 0, 1], vec![0; 24]].concat();
        packet6(IN, A, dst).fragment6(offset, offset == 0, 9).protocol(proto).payload(&data).build()
    };
    for frame in [(own, 0), (own, 32), (LINK_LOCAL, 32), (LINK_LOCAL, 0)]
        .map(|(dst, offset)| piece(dst, 128, 58, offset))
    {
        assert!(world.send(IN, &frame).is_empty());
        assert_eq!(world.punts.pop(), Some((IfIndex(IF_IN), frame)));
    }
    world.dropped(IN, &piece(own, 128, 58, 32), Reason::PuntPolicedIcmp);
    world.dropped(IN, &piece(own, 135, 58, 0), Reason::NdMalformed);
    world.send_dropped(IN, &piece(own, 128, 17, 32), Reason::LocalNoService);
}

/// RFC 4861 §7.2.2: packets wait while their neighbour is asked for, and follow when it answers.
#[test]
fn packets_wait_for_their_neighbour_and_an_unanswered_one_is_reported() {
    let mut world = world6();
    let frame = packet6(OUT, FAR, "2001:db8:1::9").udp(53, 1_000).build();
    assert!(world.burst(OUT, &[frame.clone(), frame.clone()]).is_empty());
    assert_eq!((world.held(), world.asked()), (2, vec![(IF_IN, v6("2001:db8:1::9"))]));
    let interface = IfIndex(IF_IN);
    let (ip, mac) = (v6("2001:db8:1::9"), mac6("2001:db8:1::9"));
    world.command(|| carrack_pipeline::mailbox::Command::SetNeighbour { interface, ip, mac });
    let sent = world.turn();
    assert_eq!((sent.len(), sent[0].to, sent[0].ip6().hop_limit()), (2, mac.0, 63));
    let lost = packet6(OUT, FAR, "2001:db8:1::a").udp(53, 1_000).build();
    world.send(OUT, &lost);
    let ip = v6("2001:db8:1::a");
    world.command(|| carrack_pipeline::mailbox::Command::DropNeighbour { interface, ip });
    let error = world.turn();
    assert_eq!((error.len(), error[0].error6().0, error[0].error6().1), (1, 1, 3));
}

/// A neighbour of one version is not taken for one of the other.
#[test]
fn an_ipv4_neighbour_answers_for_no_mapped_address() {
    let mut world = world6_with(|s: &mut Snapshot| {
        let gateway = NextHop::Gateway(IfIndex(IF_IN), ip6("2001:db8:1::77"));
        s.routes6.push(Route {
            vrf: VrfId(0),
            prefix: "2001:db8:7::/48".parse().unwrap(),
            next_hop: gateway,
        });
    });
    world.send(OUT, &packet6(OUT, FAR, "2001:db8:7::1").udp(1, 2).build());
    assert_eq!(world.asked(), [(IF_IN, v6("2001:db8:1::77"))]);
    world.pass(IN, &udp(IN, "10.0.0.5:1000", "198.51.100.7:53"));
}
