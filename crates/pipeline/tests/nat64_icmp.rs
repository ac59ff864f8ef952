//! ICMP errors through a NAT64: sizes that are told, errors from hosts and from routers on the way.

mod common;

use carrack_base::{IfIndex, Reason, VrfId};
use carrack_nat::nat64::{Nat64, Nat64Prefix};
use carrack_pipeline::snapshot::NextHop;
use carrack_wire::tcp::flag;
use common::check::{reassemble, whole_is_right};
use common::net6::*;
use common::*;

/// A host inside.
const A: &str = "2001:db8:1::5";
/// A server on the IPv4 side, and what stands for it.
const SERVER: &str = "203.0.113.80";
const SERVER6: &str = "2001:db8:64::203.0.113.80";

/// RFC 7915 §4.2, §5.2 and RFC 8200 §5: who sent too much hears so in his own version, with the sizes of his side.
#[test]
fn too_big_is_told_in_the_senders_version() {
    let mut world = world6_with(|s| {
        serve_six(s);
        on(s, IF_OUT, |i| i.mtu = 1_300);
        on(s, IF_IN, |i| i.mtu = 1_400);
    });
    let sent = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build());
    let outside = port_of(&sent.src());
    let long = packet6(IN, A, SERVER6).udp(1_000, 53).payload(&[1; 1_340]).build();
    let answer = world.send_dropped(IN, &long, Reason::FragmentationNeeded);
    let (kind, code, mtu, quoted) = answer[0].error6();
    assert_eq!((kind, code, mtu), (2, 0, 1_320));
    assert_eq!(quoted[8..40], long[14 + 8..14 + 40], "the packet as its sender knows it");
    assert_eq!(answer[0].addresses6().1, A);
    let long = packet(OUT, SERVER, POOL).udp(53, outside).payload(&[1; 1_440]).dont_fragment().build();
    let answer = world.send_dropped(OUT, &long, Reason::FragmentationNeeded);
    assert_eq!(answer[0].addresses().1, SERVER);
    let l4 = answer[0].l4();
    // No more than its own side takes either.
    assert_eq!((l4[0], l4[1], u16::from_be_bytes([l4[6], l4[7]])), (3, 4, 1_300));
    assert_eq!(l4[8 + 12..8 + 24], long[14 + 12..14 + 24], "addresses and ports as the server knows them");
}

/// The same where the hosts' side has no IPv4 address, in a routing instance of its own too: the router speaks from an
/// address of where the packet had come to.
#[test]
fn a_host_with_ipv6_alone_is_told_what_went_wrong_behind_the_translator() {
    for vrf in [0, 1] {
        let mut world = world6_with(|s| {
            serve_six(s);
            only_six_inside(s);
            on(s, IF_OUT, |i| i.mtu = 1_300);
            on(s, IF_IN, |i| i.vrf = VrfId(vrf));
            nat(s, |i| i.inside_vrf = VrfId(vrf));
            s.routes6.iter_mut().filter(|r| r.next_hop == NextHop::Connected(IfIndex(IF_IN))).for_each(|r| {
                r.vrf = VrfId(vrf);
            });
            s.routes.push(route(0, "203.0.113.0/24", NextHop::Connected(IfIndex(IF_OUT))));
        });
        world.know(IF_OUT, SERVER);
        let data = [1; 1_340];
        let long = packet6(IN, A, SERVER6).tcp(1_000, 80, flag::SYN).payload(&data).build();
        let answer = world.send_dropped(IN, &long, Reason::FragmentationNeeded);
        assert_eq!(answer.len(), 1, "vrf {vrf}");
        let (kind, code, mtu, quoted) = answer[0].error6();
        assert_eq!((kind, code, mtu), (2, 0, 1_320));
        assert_eq!(quoted[8..44], long[14 + 8..14 + 44], "the packet as its sender knows it");
        assert_eq!(answer[0].addresses6().1, A);
        let silent = packet6(IN, A, "2001:db8:64::203.0.113.99").udp(1_000, 53).build();
        assert!(world.send(IN, &silent).is_empty());
        let answer = world.wait_ms(4_000);
        assert_eq!(world.new_drops(), [(Reason::NeighbourUnresolved, 1)]);
        assert_eq!(answer.len(), 1, "vrf {vrf}");
        let (kind, code, _, quoted) = answer[0].error6();
        assert_eq!((kind, code, &quoted[8..40]), (1, 0, &silent[14 + 8..14 + 40]));
    }
}

/// RFC 6146 §3.6, RFC 7915 §4.3, §5.3: errors from hops on the way, both ways.
#[test]
fn errors_from_the_way_reach_their_host() {
    let mut world = world64();
    let sent = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build());
    let outside = port_of(&sent.src());
    let error = icmp_error(OUT, "192.0.2.77", POOL, 11, 0, sent.packet());
    let got = world.pass(OUT, &error);
    let (kind, code, _, quoted) = got.error6();
    assert_eq!((kind, code), (3, 0));
    assert_eq!(got.addresses6(), (ip6_text("2001:db8:64::192.0.2.77"), A.into()));
    let (from, to) = (ip6(A).to_be_bytes(), ip6(SERVER6).to_be_bytes());
    assert_eq!((&quoted[8..24], &quoted[24..40]), (&from[..], &to[..]));
    assert_eq!(quoted[40..44], [1_000u16.to_be_bytes(), 53u16.to_be_bytes()].concat());
    // A host inside refuses the answer.
    let answer = world.pass(OUT, &packet(OUT, SERVER, POOL).udp(53, outside).build());
    let refusal = packet6(IN, A, SERVER6).icmp(1, 4, [0; 4]).payload(answer.ip6().packet()).build();
    let got = world.pass(IN, &refusal);
    assert_eq!(got.addresses(), (POOL.into(), SERVER.into()));
    assert_eq!((got.l4()[0], got.l4()[1]), (3, 3));
    assert_eq!(got.l4()[8 + 16..8 + 20], ip(POOL).to_be_bytes());
    assert_eq!(got.l4()[8 + 22..8 + 24], outside.to_be_bytes());
    assert_eq!(world.sessions(), 1);
}

/// RFC 7915 §4.2, §5.2: the least of what was said and of both next hops, of which one is told.
#[test]
fn mtu_told_is_no_more_than_both_next_hops_take() {
    for (inside, outside, to_host, to_server) in
        [(1_500, 1_500, 1_500, 1_480), (9_000, 1_500, 1_520, 1_500), (1_400, 9_000, 1_400, 1_380)]
    {
        let mut world = world6_with(|s| {
            serve_six(s);
            on(s, IF_IN, |i| i.mtu = inside);
            on(s, IF_OUT, |i| i.mtu = outside);
        });
        let sent = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build());
        let port = port_of(&sent.src());
        let about = sent.packet().to_vec();
        let error =
            packet(OUT, "192.0.2.77", POOL).icmp(3, 4, 9_000u32.to_be_bytes()).payload(&about).build();
        let (kind, code, told, _) = world.pass(OUT, &error).error6();
        assert_eq!((kind, code, told), (2, 0, to_host), "{inside}, {outside}");
        let answer = world.pass(OUT, &packet(OUT, SERVER, POOL).udp(53, port).build());
        let about = answer.ip6().packet().to_vec();
        let error = packet6(IN, A, SERVER6).icmp(2, 0, 9_000u32.to_be_bytes()).payload(&about).build();
        let got = world.pass(IN, &error);
        assert_eq!(got.l4()[..2], [3, 4]);
        assert_eq!(u16::from_be_bytes([got.l4()[6], got.l4()[7]]), to_server, "{inside}, {outside}");
    }
}

/// RFC 7915 §4.2: of a router that does not say what its link takes, the plateau of RFC 1191 §7 below the
/// length that the packet had; by links that take it, and never less than every link of IPv6 takes.
#[test]
fn a_router_that_tells_no_mtu_is_taken_to_have_the_next_plateau() {
    let mut world = world6_with(|s| {
        serve_six(s);
        on(s, IF_IN, |i| i.mtu = 9_000);
        on(s, IF_OUT, |i| i.mtu = 9_000);
    });
    let outside = port_of(&world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build()).src());
    for (len, told) in [
        (9_000, 8_166),
        (8_167, 8_166),
        (8_166, 4_352),
        (2_003, 2_002),
        (2_002, 1_492),
        (1_493, 1_492),
        (1_492, 1_280),
        (500, 1_280),
    ] {
        let payload = vec![0; len - 28];
        let about = packet(OUT, POOL, SERVER).udp(outside, 53).payload(&payload).build();
        // Eight bytes of it, as many routers quote (RFC 792).
        let error = packet(OUT, "192.0.2.77", POOL).icmp(3, 4, [0; 4]).payload(&about[14..14 + 28]).build();
        let (kind, code, mtu, _) = world.pass(OUT, &error).error6();
        assert_eq!((kind, code, mtu), (2, 0, told), "{len}");
    }
}

/// RFC 6146 §3.4, RFC 7915 §4.3, §5.3: an error about an error is silently discarded, even if what is in the
/// place of an identifier there is one of an echo's session.
#[test]
fn errors_about_errors_are_discarded_silently() {
    let mut world = world64();
    let sent = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build());
    let answer = packet(OUT, SERVER, POOL).udp(53, port_of(&sent.src())).build();
    let answer6 = world.pass(OUT, &answer);
    let echo = world.pass(IN, &packet6(IN, A, SERVER6).echo_request(1_000, 1).build());
    for (outside, inside, reason) in
        [(0, 0, Reason::NatIcmpNoSession), (port_of(&echo.src()), 1_000, Reason::IcmpEmbeddedInvalid)]
    {
        let word = |identifier: u16| (u32::from(identifier) << 16).to_be_bytes();
        let refused = packet(OUT, POOL, SERVER).icmp(3, 3, word(outside)).payload(&answer[14..]).build();
        let about = &refused[14..];
        world.dropped(OUT, &icmp_error(OUT, "192.0.2.77", POOL, 11, 0, about), reason);
        let refused =
            packet6(IN, SERVER6, A).icmp(1, 4, word(inside)).payload(answer6.ip6().packet()).build();
        let about = &refused[14..];
        world.dropped(IN, &packet6(IN, A, SERVER6).icmp(3, 0, [0; 4]).payload(about).build(), reason);
    }
}

/// RFC 7915 §5, §5.1, RFC 8200 §5: to a link of IPv4 that takes less than 1260 a packet of 1280 goes in
/// pieces, which one number holds together; what is longer is told of, and so is nothing below 1280, whoever
/// says less.
#[test]
fn a_link_of_ipv4_that_takes_less_than_ipv6_asks_for_gets_pieces() {
    for (mtu, count) in [(1_259, 2), (600, 3), (576, 3), (296, 5)] {
        let mut world = world6_with(|s| {
            serve_six(s);
            on(s, IF_OUT, |i| i.mtu = mtu);
        });
        let send = |world: &mut World, len: usize| {
            let data: Vec<u8> = (0..len - 48).map(|n| (n * 7 + n / 251) as u8).collect();
            let frame = packet6(IN, A, SERVER6).udp(1_000, 53).payload(&data).build();
            (data, frame.clone(), world.send(IN, &frame))
        };
        let mut ids = vec![];
        for _ in 0..2 {
            let (data, _, sent) = send(&mut world, 1_280);
            assert_eq!(sent.len(), count, "{mtu}: {:?}", world.new_drops());
            let (id, whole) = reassemble(&sent);
            whole_is_right(&sent[0], &whole);
            assert_eq!(whole[8..], data[..]);
            assert!(sent.iter().all(|piece| !piece.ip().dont_fragment()));
            ids.push(id);
        }
        assert_ne!(ids[0], ids[1], "RFC 6864 §4.3");
        // What fits goes whole; it has a number all the same (RFC 7915 §5.1).
        let (_, _, sent) = send(&mut world, usize::from(mtu) + 20);
        assert_eq!((sent.len(), sent[0].ip().is_fragment(), sent[0].ip().dont_fragment()), (1, false, false));
        let (_, frame, sent) = send(&mut world, 1_281);
        assert_eq!(world.new_drops(), [(Reason::FragmentationNeeded, 1)], "{mtu}");
        let (kind, code, told, quoted) = sent[0].error6();
        assert_eq!((kind, code, told), (2, 0, 1_280));
        assert_eq!(quoted[8..48], frame[14 + 8..14 + 48], "the packet as its sender knows it");
        // A router behind, of a link as narrow.
        let (_, _, sent) = send(&mut world, 100);
        let about = sent[0].packet().to_vec();
        let said = packet(OUT, "192.0.2.77", POOL).icmp(3, 4, u32::from(mtu).to_be_bytes());
        let (kind, code, told, _) = world.pass(OUT, &said.payload(&about).build()).error6();
        assert_eq!((kind, code, told), (2, 0, 1_280));
    }
}

/// A router on the way to the hosts, which no instance serves.
const ROUTER: &str = "2001:db8:9::1";

/// RFC 6146 §3.4, §3.6, RFC 4787 REQ-12a: path MTU discovery works through routers that are no subscribers.
#[test]
fn errors_of_routers_inside_reach_the_server() {
    let mut world = world64();
    let outside = port_of(&world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build()).src());
    let answer = world.pass(OUT, &packet(OUT, SERVER, POOL).udp(53, outside).build());
    let about = answer.ip6().packet().to_vec();
    let error = packet6(IN, ROUTER, SERVER6).icmp(2, 0, 1_300u32.to_be_bytes()).payload(&about).build();
    let got = world.pass(IN, &error);
    assert_eq!(got.addresses(), (POOL.into(), SERVER.into()));
    assert_eq!((got.l4()[0], got.l4()[1]), (3, 4));
    assert_eq!(got.l4()[8 + 22..8 + 24], outside.to_be_bytes());
    // What it quotes must be somebody's.
    let about = packet6(IN, SERVER6, ROUTER).udp(53, 1_000).build();
    let error = packet6(IN, ROUTER, SERVER6).icmp(2, 0, [0, 0, 5, 0]).payload(&about[14..]).build();
    world.dropped(IN, &error, Reason::NatIcmpNoSession);
}

/// Of instances that share a prefix each tells its subscribers apart by other bits: the quoted host says whose worker it is.
#[test]
fn errors_of_routers_reach_the_worker_of_the_quoted_host() {
    let mut world = World::new(3, SIZES, HANDOVER_SLOTS, |s| {
        add_ipv6(s);
        serve_six(s);
        let mut policy = (*s.nat).clone();
        let mut other = instance(1, 0, 0, "192.0.2.2");
        other.subscribers = vec![];
        other.nat64 = policy.instances[0].nat64.clone().map(|nat64| Nat64 {
            prefixes: vec![Nat64Prefix { via: 2, ..nat64.prefixes[0] }],
            subscribers: vec!["2001:db8:3::/48".parse().unwrap()],
            subscriber_len: 128,
            rules: Default::default(),
        });
        policy.instances.push(other);
        s.nat = std::sync::Arc::new(policy);
    });
    for n in 0..8 {
        let host = format!("2001:db8:3::{n}5");
        let sent = world.pass(TAGGED, &packet6(TAGGED, &host, SERVER6).vlan(100).udp(1_000, 53).build());
        assert_eq!(sent.addresses().0, "192.0.2.2");
        let about = packet6(IN, SERVER6, &host).udp(53, 1_000).build();
        let error = packet6(IN, ROUTER, SERVER6).icmp(1, 0, [0; 4]).payload(&about[14..]).build();
        assert_eq!(world.pass(IN, &error).addresses(), ("192.0.2.2".into(), SERVER.into()));
    }
}
