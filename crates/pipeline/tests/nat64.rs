//! NAT64 through the stages: IPv6 in, IPv4 out and back, with fragments, errors, sizes and bad packets.

mod common;

use carrack_base::{IfIndex, Reason, VrfId};
use carrack_nat::Inside;
use carrack_nat::nat64::{Nat64, Nat64Prefix, NatPrefix};
use carrack_nat::policy::StaticRule;
use carrack_pipeline::mailbox::PacketFilter;
use carrack_pipeline::snapshot::{NextHop, Policer, Route, Snapshot};
use carrack_wire::Icmpv6View;
use carrack_wire::tcp::flag;
use carrack_xlat::{Rules, ZeroUdp};
use common::net6::*;
use common::*;

/// A host inside.
const A: &str = "2001:db8:1::5";
const B: &str = "2001:db8:1::6";
/// A server on the IPv4 side, and what stands for it.
const SERVER: &str = "203.0.113.80";
const SERVER6: &str = "2001:db8:64::203.0.113.80";

/// RFC 6146 §3.7, RFC 7915 §4.1, §5.1: there and back, the checksums right by two readers, the hop limit one less.
#[test]
fn udp_tcp_and_echo_go_there_and_back() {
    let mut world = world64();
    let frames = [
        packet6(IN, A, SERVER6).udp(1_000, 53).ttl(9).build(),
        packet6(IN, A, SERVER6).tcp(1_000, 80, flag::SYN).ttl(9).build(),
        packet6(IN, A, SERVER6).echo_request(1_000, 1).ttl(9).build(),
    ];
    for (frame, dport) in frames.iter().zip([53, 80, 0]) {
        let sent = world.pass(IN, frame);
        assert_eq!(sent.port, OUT);
        assert_eq!(sent.addresses(), (POOL.into(), SERVER.into()));
        assert_eq!(sent.ip().ttl(), 8);
        assert_eq!(sent.l4()[sent.l4().len() - PAYLOAD.len()..], *PAYLOAD);
        let outside = port_of(&sent.src());
        let back = match sent.ip().protocol() {
            17 => packet(OUT, SERVER, POOL).udp(dport, outside).ttl(9).build(),
            6 => packet(OUT, SERVER, POOL).tcp(dport, outside, flag::SYN | flag::ACK).ttl(9).build(),
            _ => packet(OUT, SERVER, POOL).echo_reply(outside, 1).ttl(9).build(),
        };
        let got = world.pass(OUT, &back);
        assert_eq!((got.port, got.to), (IN, mac6(A).0));
        assert_eq!(got.addresses6(), (ip6_text(SERVER6), A.into()));
        assert_eq!(got.ip6().hop_limit(), 8);
        assert!(got.ip6().payload().ends_with(PAYLOAD));
    }
    assert_eq!(world.sessions(), 3);
}

/// RFC 6146 §3.4: fragments of either version, in order and out of it, leave by their datagram's endpoint.
#[test]
fn fragments_pass_both_ways_in_any_order() {
    let data: Vec<u8> = (0..64u8).collect();
    for order in [[0, 1], [1, 0]] {
        let mut world = world64();
        let whole = packet6(IN, A, SERVER6).udp(1_000, 53).payload(&data).build();
        let datagram = whole[14 + 40..].to_vec();
        let pieces =
            [(0, true, &datagram[..40]), (40, false, &datagram[40..])].map(|(offset, more, bytes)| {
                packet6(IN, A, SERVER6).fragment6(offset, more, 77).protocol(17).payload(bytes).build()
            });
        let mut sent: Vec<Sent> = order.iter().flat_map(|n| world.send(IN, &pieces[*n])).collect();
        sent.extend(world.turn());
        assert_eq!(sent.len(), 2, "{:?}", world.new_drops());
        let ids: Vec<u16> = sent.iter().map(|s| s.ip().identification()).collect();
        assert_eq!(ids[0], ids[1]);
        let first = sent.iter().find(|s| s.ip().fragment_offset() == 0).unwrap();
        let outside = u16::from_be_bytes([first.l4()[0], first.l4()[1]]);
        // The answer, in pieces too.
        let back = packet(OUT, SERVER, POOL).udp(53, outside).payload(&data).build();
        let back = cut(OUT, SERVER, POOL, 17, 5, &back[34..], 40);
        let mut got: Vec<Sent> = order.iter().flat_map(|n| world.send(OUT, &back[*n])).collect();
        got.extend(world.turn());
        assert_eq!(got.len(), 2, "{:?}", world.new_drops());
        for piece in &got {
            assert_eq!(piece.addresses6(), (ip6_text(SERVER6), A.into()));
            assert_eq!(piece.ip6().next_header(), 44);
        }
        assert_eq!(world.sessions(), 1);
    }
}

/// RFC 6146 §3.7, RFC 7915 §4.1: a source route at its end is left out on the way to a host of IPv6, of whole
/// packets, pieces and errors; one that is not is answered, as is any where the host has IPv4.
#[test]
fn a_source_route_at_its_end_is_left_out() {
    const REMOTE: &str = "198.51.100.7";
    for workers in [1, 3] {
        let mut world = World::new(workers, SIZES, HANDOVER_SLOTS, |s| {
            add_ipv6(s);
            serve_six(s);
        });
        world.know6(IF_IN, A);
        let to_server = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build());
        let to_remote = world.pass(IN, &udp(IN, "10.0.0.5:1000", &format!("{REMOTE}:53")));
        let (six, four) = (port_of(&to_server.src()), port_of(&to_remote.src()));
        for kind in [131, 137] {
            // The pointer of the first is beyond its end, that of the second at its last station.
            let [over, last, start] = [8, 5, 4].map(|pointer| [kind, 7, pointer, 1, 2, 3, 4, 0]);
            let back = |options| packet(OUT, SERVER, POOL).ip_options(options).udp(53, six).build();
            let error = |from, about: &Sent, options| {
                let error = packet(OUT, from, POOL).ip_options(options).icmp(11, 0, [0; 4]);
                error.payload(about.packet()).build()
            };
            let got = world.pass(OUT, &back(&over));
            assert_eq!(got.addresses6(), (ip6_text(SERVER6), A.into()));
            assert_eq!((got.ip6().next_header(), &got.ip6().payload()[8..]), (17, PAYLOAD));
            let got = world.pass(OUT, &error("192.0.2.77", &to_server, &over));
            assert_eq!((got.error6().0, got.error6().1, got.addresses6().1), (3, 0, A.into()));
            let whole = packet(OUT, SERVER, POOL).udp(53, six).payload(&[7; 40]).build();
            let pieces = [(16, false), (0, true)].map(|(offset, more)| {
                let bytes = &whole[34 + usize::from(offset)..if more { 50 } else { whole.len() }];
                let piece = packet(OUT, SERVER, POOL).ip_options(&over).protocol(17).payload(bytes);
                piece.identification(kind.into()).fragment(offset, more).build()
            });
            assert!(world.send(OUT, &pieces[0]).is_empty());
            assert_eq!(world.send(OUT, &pieces[1]).len(), 2, "{:?}", world.new_drops());

            let to_four = packet(OUT, REMOTE, POOL).ip_options(&over);
            for refused in [
                back(&last),
                back(&start),
                error("192.0.2.77", &to_server, &start),
                to_four.clone().udp(53, four).build(),
                // Nobody has that one.
                to_four.clone().udp(53, 1_024).build(),
                to_four.clone().tcp(53, four, flag::SYN).build(),
                error(REMOTE, &to_remote, &over),
            ] {
                let answer = world.send_dropped(OUT, &refused, Reason::Ipv4SourceRoute);
                // RFC 1812 §4.3.2.7: nobody is told of an error.
                let told = usize::from(refused[14 + 9] != 1);
                assert_eq!(answer.len(), told);
                assert!(answer.iter().all(|answer| answer.icmp() == (3, 5)));
            }
        }
        assert_eq!(world.sessions(), 2);
    }
}

/// RFC 7915 §4: an IPv4 packet that may be fragmented and is too long for IPv6 goes on in pieces.
#[test]
fn a_long_packet_that_may_be_cut_is_cut() {
    let mut world = world64();
    let sent = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build());
    let outside = port_of(&sent.src());
    let data = vec![7; 1_400];
    let got = world.send(OUT, &packet(OUT, SERVER, POOL).udp(53, outside).payload(&data).build());
    assert_eq!(got.len(), 2, "{:?}", world.new_drops());
    let total: usize = got.iter().map(|piece| piece.ip6().payload().len() - 8).sum();
    assert_eq!(total, 8 + data.len());
    assert!(got.iter().all(|piece| piece.ip6().packet().len() <= 1_280));
}

/// The rules of the only instance.
fn ruled(snapshot: &mut Snapshot, rules: Rules) {
    nat(snapshot, |i| {
        if let Some(nat64) = &mut i.nat64 {
            nat64.rules = rules;
        }
    });
}

/// RFC 7915 §4.1: to what size packets are cut is configured, and a reload changes it under a session.
#[test]
fn packets_are_cut_to_what_every_link_is_said_to_take() {
    let mut world = world64();
    let outside = port_of(&world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build()).src());
    let long = packet(OUT, SERVER, POOL).udp(53, outside).payload(&vec![7; 1_400 - 28]).build();
    assert_eq!(world.send(OUT, &long).len(), 2, "{:?}", world.new_drops());
    world.reconfigure(|s| ruled(s, Rules { lowest_ipv6_mtu: 1_500, ..Rules::default() }));
    let whole = world.pass(OUT, &long);
    assert_eq!((whole.ip6().next_header(), whole.ip6().packet().len()), (17, 1_420));
    assert_eq!(world.sessions(), 1);
    // A narrower link than was said to be there.
    world.reconfigure(|s| on(s, IF_IN, |i| i.mtu = 1_300));
    let got = world.send(OUT, &long);
    assert_eq!(got.len(), 2, "{:?}", world.new_drops());
    assert!(got.iter().all(|piece| piece.ip6().packet().len() <= 1_300));
}

/// RFC 7915 §4.1, §5.1, §4.5: what else is configured.
#[test]
fn type_of_service_and_traffic_class_are_as_configured() {
    let mut world = world6_with(|s| {
        serve_six(s);
        ruled(
            s,
            Rules { tos: Some(32), zero_traffic_class: true, zero_udp: ZeroUdp::Drop, ..Rules::default() },
        );
    });
    // The first by the general stages, the second by a session that is there.
    for _ in 0..2 {
        let sent = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).tos(7).build());
        assert_eq!(sent.ip().tos(), 32);
        let back = packet(OUT, SERVER, POOL).udp(53, port_of(&sent.src())).tos(7);
        assert_eq!(world.pass(OUT, &back.build()).ip6().traffic_class(), 0);
        let bare = packet(OUT, SERVER, POOL).udp_without_checksum(53, port_of(&sent.src()));
        world.dropped(OUT, &bare.build(), Reason::Nat64UdpZeroChecksum);
    }
    world.reconfigure(|s| ruled(s, Rules::default()));
    let sent = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).tos(7).build());
    assert_eq!(sent.ip().tos(), 7);
}

/// What an operator looks at has a link header of the version that the packet has by then.
#[test]
fn traces_and_captures_show_the_packet_as_it_has_become() {
    let mut world = world6_with(|s| {
        serve_six(s);
        on(s, IF_IN, |i| i.mtu = 1_400);
    });
    let mut told = world.trace(1, PacketFilter::default());
    let outside = port_of(&world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build()).src());
    let kinds: Vec<_> =
        std::iter::from_fn(|| told.pop().ok()).map(|step| (step.stage, kind(&step.bytes))).collect();
    assert_eq!(kinds, [("parse", [0x86, 0xdd, 0x60]), ("nat", [8, 0, 0x45]), ("forward", [8, 0, 0x45])]);
    let mut captured = world.capture(|capture| (capture.rx, capture.tx) = (false, false));
    let long = packet(OUT, SERVER, POOL).udp(53, outside).payload(&[1; 1_440]).dont_fragment().build();
    world.send_dropped(OUT, &long, Reason::FragmentationNeeded);
    assert_eq!(kind(&captured.pop().unwrap().bytes), [0x86, 0xdd, 0x60]);
}

/// Type of a frame and the first byte of its packet.
fn kind(frame: &[u8]) -> [u8; 3] {
    [frame[12], frame[13], frame[14]]
}

/// RFC 6052 §3.1: behind the well-known prefix nobody hears from a private address; errors of routers that have one come
/// from the router itself.
#[test]
fn well_known_prefix_never_stands_for_private_addresses() {
    const GLOBAL: &str = "8.8.8.8";
    let mut world = world6_with(|s| {
        serve_six(s);
        nat(s, |i| {
            let nat64 = i.nat64.as_mut().unwrap();
            nat64.prefixes[0].prefix = NatPrefix::new("64:ff9b::/96".parse().unwrap()).unwrap();
        });
    });
    let sent = world.pass(IN, &packet6(IN, A, "64:ff9b::8.8.8.8").udp(1_000, 53).build());
    let outside = port_of(&sent.src());
    world.dropped(OUT, &packet(OUT, "10.1.1.1", POOL).udp(5, outside).build(), Reason::Nat64NonGlobal);
    assert_eq!(world.sessions(), 1);
    let error = |from| icmp_error(OUT, from, POOL, 3, 4, sent.packet());
    let got = world.pass(OUT, &error("10.9.9.9"));
    assert_eq!((got.error6().0, got.addresses6()), (2, ("2001:db8:1::1".into(), A.into())));
    let got = world.pass(OUT, &error(GLOBAL));
    assert_eq!(got.addresses6().0, ip6_text("64:ff9b::8.8.8.8"));
}

/// RFC 6146 §3.5, RFC 6146 §5.4: what claims to come from within the prefix is dropped in silence, whatever it is to and by
/// whichever interface; what is to the prefix from anywhere but inside goes nowhere.
#[test]
fn nothing_comes_from_within_the_prefix() {
    let mut world = world64();
    const FORGED: &str = "2001:db8:64::192.0.2.1";
    for (port, to) in
        [(IN, "2001:db8:ffff::7"), (IN, "2001:db8:1::1"), (IN, SERVER6), (OUT, A), (OUT, SERVER6)]
    {
        for ttl in [1, 64] {
            let frame = packet6(port, FORGED, to).udp(1, 53).ttl(ttl).build();
            world.dropped(port, &frame, Reason::Nat64SourceInvalid);
        }
    }
    let lost = packet6(OUT, "2001:db8:ffff::7", SERVER6).udp(1, 53).build();
    let answer = world.send_dropped(OUT, &lost, Reason::NotForwarding);
    assert_eq!((answer[0].error6().0, answer[0].error6().1), (1, 1));
    assert_eq!(world.sessions(), 0);
}

/// RFC 6864 §5.3.1: an atomic fragment's number is its host's own; behind one address it would meet another host's.
#[test]
fn atomic_fragments_get_numbers_of_their_own() {
    let mut world = world64();
    let mut ids = vec![];
    for host in [A, B, A] {
        let atomic = packet6(IN, host, SERVER6).fragment6(0, false, 0x1_4d4d).udp(1_000, 53).build();
        let sent = world.pass(IN, &atomic);
        assert!(!sent.ip().is_fragment());
        ids.push(sent.ip().identification());
    }
    assert!(!ids.contains(&0x4d4d), "{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

/// RFC 1858 §4.2, RFC 3128: a second fragment that would write over the flags of a TCP header, as with IPv4.
#[test]
fn a_fragment_over_tcp_flags_is_refused() {
    let mut world = world64();
    for to in [SERVER6, "2001:db8:ffff::7"] {
        let piece =
            |protocol| packet6(IN, A, to).fragment6(8, false, 9).protocol(protocol).payload(&[2; 16]).build();
        world.dropped(IN, &piece(6), Reason::Ipv6FragmentInvalid);
    }
}

/// RFC 6146 §3.5.2.2, RFC 6146 §3.8, RFC 5382 REQ-4, REQ-8: a SYN to an outside endpoint that nobody has is held as any other;
/// the answer goes to the host that sent it, whichever worker holds it and whichever has the host.
#[test]
fn the_answer_to_a_hairpinned_syn_reaches_its_host() {
    for count in [1, 3] {
        let mut world = World::new(count, SIZES, HANDOVER_SLOTS, |s| {
            add_ipv6(s);
            serve_six(s);
        });
        for (interface, text) in STATIONS6 {
            world.know6(*interface, text);
        }
        let pool6 = format!("2001:db8:64::{POOL}");
        for n in 0..4 {
            let dport = 20_000 + 6_400 * n;
            let six = packet6(IN, A, &pool6).tcp(1_000 + n, dport, flag::SYN).build();
            let four = tcp(IN, &format!("10.0.0.5:{}", 1_000 + n), &format!("{POOL}:{dport}"), flag::SYN);
            for frame in [six, four] {
                assert!(world.send(IN, &frame).is_empty());
            }
        }
        assert_eq!(world.held(), 8);
        world.new_drops();
        let sent = world.wait_ms(7_000);
        assert_eq!(world.new_drops(), [(Reason::NatTcpUnsolicitedSyn, 8)]);
        let (six, four): (Vec<_>, Vec<_>) = sent.iter().partition(|sent| sent.to == mac6(A).0);
        assert_eq!((six.len(), four.len()), (4, 4));
        for sent in six {
            let (kind, code, _, quoted) = sent.error6();
            assert_eq!((sent.port, kind, code), (IN, 1, 4));
            assert_eq!((sent.addresses6().1, &quoted[8..24]), (A.into(), &ip6(A).to_be_bytes()[..]));
            assert_eq!(quoted[24..40], ip6(&pool6).to_be_bytes());
        }
        for sent in four {
            assert_eq!((sent.port, sent.addresses().1.as_str()), (IN, "10.0.0.5"));
            assert_eq!((sent.l4()[0], sent.l4()[1]), (3, 3));
            assert_eq!(sent.l4()[8 + 12..8 + 16], ip("10.0.0.5").to_be_bytes());
        }
    }
}

/// RFC 6146 §3.8: two hosts inside reach each other through their outside endpoints.
#[test]
fn hosts_hairpin() {
    let mut world = world64();
    let bob = world.pass(IN, &packet6(IN, B, SERVER6).udp(2_000, 53).build());
    let bob = port_of(&bob.src());
    let pool6 = format!("2001:db8:64::{POOL}");
    let got = world.pass(IN, &packet6(IN, A, &pool6).udp(1_000, bob).build());
    assert_eq!((got.port, got.to), (IN, mac6(B).0));
    assert_eq!(got.addresses6(), (ip6_text(&pool6), B.into()));
    let alice = u16::from_be_bytes([got.ip6().payload()[0], got.ip6().payload()[1]]);
    let answer = world.pass(IN, &packet6(IN, B, &pool6).udp(2_000, alice).build());
    assert_eq!(answer.addresses6(), (ip6_text(&pool6), A.into()));
    assert_eq!(answer.ip6().payload()[2..4], 1_000u16.to_be_bytes());
}

/// IPv4 calls an IPv6 server by a static binding, and an IPv4 subscriber an IPv6 one.
#[test]
fn ipv4_reaches_an_ipv6_server() {
    let mut world = world6_with(|s| {
        serve_six(s);
        nat(s, |i| {
            i.statics = vec![StaticRule::Forward {
                proto: carrack_base::Proto::Tcp,
                outside: ip(POOL),
                outside_port: 80,
                count: 1,
                inside: Inside::V6(ip6(A)),
                inside_port: 8_080,
            }];
        });
    });
    let call = tcp(OUT, &format!("{SERVER}:999"), &format!("{POOL}:80"), flag::SYN);
    let got = world.pass(OUT, &call);
    assert_eq!(got.addresses6(), (ip6_text(SERVER6), A.into()));
    let back = world.pass(IN, &packet6(IN, A, SERVER6).tcp(8_080, 999, flag::SYN | flag::ACK).build());
    assert_eq!((back.src(), back.dst()), (format!("{POOL}:80"), format!("{SERVER}:999")));
    let four = world.pass(IN, &tcp(IN, "10.0.0.5:1", &format!("{POOL}:80"), flag::SYN));
    assert_eq!(four.addresses6(), (ip6_text(&format!("2001:db8:64::{POOL}")), A.into()));
}

/// Bad input: each with its reason, and with the answer the RFC wants.
#[test]
fn what_cannot_be_translated_is_dropped_by_name() {
    let mut world = world64();
    let plain = |dst: &str| packet6(IN, A, dst).udp(1, 53).build();
    world.dropped(
        IN,
        &packet6(IN, A, SERVER6).udp(1, 53).ipv6(ip6("2001:db8:64::1"), ip6(SERVER6)).build(),
        Reason::Nat64SourceInvalid,
    );
    let answer = world.send_dropped(IN, &plain("2001:db8:64::127.0.0.1"), Reason::Nat64DestinationInvalid);
    assert_eq!(answer[0].error6().0, 1);
    let answer = world.send_dropped(
        IN,
        &packet6(IN, A, SERVER6).udp(1, 53).ipv6(ip6("3fff::1"), ip6(SERVER6)).build(),
        Reason::NatSubscriberDenied,
    );
    assert!(answer.is_empty() || answer[0].error6().0 == 1);
    let routing = packet6(IN, A, SERVER6).routing(&[4, 1, 0, 0, 0, 0], ip6(SERVER6)).udp(1, 53).build();
    let answer = world.send_dropped(IN, &routing, Reason::XlatSegmentsLeft);
    assert_eq!((answer[0].error6().0, answer[0].error6().1, answer[0].error6().2), (4, 0, 43));
    let echo_piece =
        packet6(IN, A, SERVER6).fragment6(0, true, 3).icmp(128, 0, [0, 9, 0, 1]).payload(&[0; 32]).build();
    // RFC 7915 §5.4: nobody is told of an ICMPv6 message that is dropped.
    assert!(world.send_dropped(IN, &echo_piece, Reason::XlatIcmpFragment).is_empty());
    // RFC 6146 §3.4, of either version.
    let gre = packet6(IN, A, SERVER6).protocol(47).build();
    let answer = world.send_dropped(IN, &gre, Reason::Nat64ProtocolUnsupported);
    assert_eq!((answer[0].error6().0, answer[0].error6().1), (1, 4));
    for protocol in [47, 50] {
        let foreign = packet(OUT, SERVER, POOL).protocol(protocol).build();
        let answer = world.send_dropped(OUT, &foreign, Reason::Nat64ProtocolUnsupported);
        assert_eq!((answer[0].l4()[0], answer[0].l4()[1]), (3, 2));
    }
    let node_information = packet6(IN, A, SERVER6).icmp(139, 0, [0; 4]).build();
    world.dropped(IN, &node_information, Reason::IcmpTypeUnsupported);
    let echo = packet6(IN, A, SERVER6).echo_request(9, 1).build();
    let behind = packet6(IN, A, SERVER6).fragment6(0, false, 3).destination_options(&[]).udp(1, 53).build();
    let answer = world.send_dropped(IN, &behind, Reason::XlatExtensionBehindFragment);
    assert_eq!((answer[0].error6().0, answer[0].error6().1), (1, 1));
    // From IPv4, to a host with a session.
    let outside = port_of(&world.pass(IN, &plain(SERVER6)).src());
    let back = || packet(OUT, SERVER, POOL);
    world.send_dropped(
        OUT,
        &back().ip_options(&[7, 40, 4, 0]).udp(53, outside).build(),
        Reason::XlatOptionsInvalid,
    );
    let bare = back().udp_without_checksum(53, outside).payload(&[5; 40]).build();
    assert_ne!(world.pass(OUT, &bare).ip6().payload()[6..8], [0, 0], "RFC 7915 §4.5: whole, it gets one");
    // RFC 7915 §4.2: a missing option is nothing that IPv6 could say.
    let sent = world.pass(IN, &echo);
    let about = icmp_error(OUT, "192.0.2.77", POOL, 12, 1, sent.packet());
    world.dropped(OUT, &about, Reason::XlatIcmpUntranslatable);
}

/// No packet that is not for a prefix is touched, and none to one leaves as IPv6.
#[test]
fn other_ipv6_is_routed_as_before_and_the_prefix_never_leaks() {
    let mut world = world6_with(|s| {
        serve_six(s);
        s.routes.retain(|route| !route.prefix.is_default());
    });
    let plain = world.pass(IN, &packet6(IN, A, "2001:db8:ffff::7").udp(1_000, 53).build());
    assert_eq!((plain.port, plain.addresses6().0), (OUT, A.into()));
    world.send_dropped(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build(), Reason::NoRoute);
    assert_eq!(world.sessions(), 0);
}

/// The router's own IPv4 addresses are behind the prefix too: it answers an echo as if it had been translated there and back,
/// without a session, and nothing goes up to the host, which would answer in the wrong version.
#[test]
fn the_router_answers_echo_at_its_own_ipv4_address_behind_the_prefix() {
    for workers in [1, 3] {
        let mut world = World::new(workers, SIZES, HANDOVER_SLOTS, |s| {
            add_ipv6(s);
            serve_six(s);
        });
        world.know6(IF_IN, A);
        for own in ["198.51.100.1", "10.0.0.1"] {
            let own = ip6_text(&format!("2001:db8:64::{own}"));
            let to = || packet6(IN, A, &own).ttl(9);
            let asked = to().echo_request(7, 1);
            let behind =
                [asked.clone(), asked.clone().fragment6(0, false, 9), asked.destination_options(&[])];
            for frame in behind {
                let got = world.pass(IN, &frame.build());
                assert_eq!((got.port, got.to, got.addresses6()), (IN, mac6(A).0, (own.clone(), A.into())));
                let message = Icmpv6View::parse(got.ip6().payload()).unwrap();
                assert!(message.checksum_ok(ip6(&own), ip6(A)) && got.ip6().next_header() == 58);
                assert_eq!((message.kind(), message.identifier(), got.ip6().hop_limit()), (129, 7, 64));
                assert!(message.payload().ends_with(PAYLOAD));
            }
            for frame in [to().udp(5_351, 5_351), to().tcp(1, 22, flag::SYN), to().echo_reply(7, 1)] {
                let sent = world.send_dropped(IN, &frame.build(), Reason::LocalNoService);
                let (kind, code, _, _) = sent[0].error6();
                assert_eq!((kind, code, sent[0].addresses6().1.as_str()), (1, 4, A));
            }
            let mut broken = to().echo_request(7, 1).build();
            *broken.last_mut().unwrap() ^= 1;
            world.dropped(IN, &broken, Reason::IcmpBadChecksum);
            let forged = packet6(IN, "2001:db8:1::1", &own).echo_request(7, 1).build();
            world.dropped(IN, &forged, Reason::Ipv6SourceInvalid);
        }
        assert_eq!((world.sessions(), world.punts.len()), (0, 0));
    }
}

#[test]
fn floods_and_pieces_of_echo_to_the_router_behind_the_prefix_are_dropped_by_name() {
    let mut world = world6_with(|s| {
        serve_six(s);
        s.policers.icmp = Policer { rate_pps: 1, burst: 2 };
    });
    let own = "2001:db8:64::198.51.100.1";
    let echo = packet6(IN, A, own).echo_request(7, 1).build();
    assert_eq!(world.burst(IN, &vec![echo; 5]).len(), 2);
    assert_eq!(world.new_drops(), [(Reason::PuntPolicedIcmp, 3)]);
    let piece = packet6(IN, A, own).fragment6(0, true, 9).echo_request(7, 1).payload(&[7; 24]).build();
    world.dropped(IN, &piece, Reason::XlatIcmpFragment);
    assert_eq!(world.sessions(), 0);
}

/// Two routing instances may have the same hosts, whose ways are remembered apart.
#[test]
fn the_same_host_in_two_routing_instances_has_two_ways() {
    const HOST: &str = "2001:db8:7::9";
    let mut world = world6_with(|s| {
        on(s, IF_VLAN, |i| i.vrf = VrfId(1));
        let mut policy = (*s.nat).clone();
        policy.instances.push(instance(1, 1, 0, "192.0.2.2"));
        for (via, instance) in (1..).zip(&mut policy.instances) {
            let prefix = NatPrefix::new("2001:db8:64::/96".parse().unwrap()).unwrap();
            let (prefixes, subscribers) =
                (vec![Nat64Prefix { via, prefix }], vec!["2001:db8:7::/48".parse().unwrap()]);
            instance.nat64 =
                Some(Nat64 { prefixes, subscribers, subscriber_len: 64, rules: Default::default() });
        }
        s.nat = std::sync::Arc::new(policy);
        for (vrf, interface, gateway) in [(0, IF_IN, A), (1, IF_VLAN, "2001:db8:3::5")] {
            let (prefix, vrf) = ("2001:db8:7::/48".parse().unwrap(), VrfId(vrf));
            let next_hop = NextHop::Gateway(IfIndex(interface), ip6(gateway));
            s.routes6.push(Route { vrf, prefix, next_hop });
        }
    });
    let here = world.pass(IN, &packet6(IN, HOST, SERVER6).udp(1_000, 53).build()).src();
    let there = world.pass(TAGGED, &packet6(TAGGED, HOST, SERVER6).vlan(100).udp(1_000, 53).build()).src();
    let back = |to: &String| udp(OUT, &format!("{SERVER}:53"), to);
    let sent = world.burst(OUT, &[&here, &there, &here, &there].map(back));
    let mut ports: Vec<_> = sent.iter().map(|sent| sent.port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [IN, IN, TAGGED, TAGGED]);
}
