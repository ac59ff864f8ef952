//! Stateless translation through the stages: routes lead to a translator, what it makes is routed anew.

mod common;

use carrack_base::{IfIndex, Prefix6, Range4, Reason, VrfId};
use carrack_pipeline::snapshot::{EamHosts, NextHop, Route, Route6, SiitInstance, Snapshot};
use carrack_wire::PacketBuilder;
use carrack_wire::icmpv4::Icmpv4View;
use carrack_wire::ipv6::Ipv6View;
use carrack_wire::tcp::flag;
use carrack_xlat::eam::{EamTable, Entry};
use carrack_xlat::{Hosts, NatPrefix, Siit};
use common::net6::*;
use common::*;

/// Hosts inside, and the IPv4 addresses they have.
const A: &str = "2001:db8:1::5";
const A4: &str = "198.18.5.5";
const B: &str = "2001:db8:1::6";
const B4: &str = "198.18.5.6";
/// A server on the IPv4 side, and what stands for it.
const SERVER: &str = "198.51.100.7";
const SERVER6: &str = "2001:db8:64::c633:6407";

fn translator() -> Siit {
    let entry = |v4: &str, v6: &str| Entry { v4: v4.parse().unwrap(), v6: v6.parse().unwrap() };
    Siit {
        prefixes: vec![NatPrefix::new("2001:db8:64::/96".parse().unwrap()).unwrap()],
        eam: EamTable::new(&[entry("198.18.5.0/28", "2001:db8:1::/124")]).unwrap(),
        icmp_sources: vec![Range4 { first: ip("198.18.0.1"), last: ip("198.18.0.1") }],
        reveals_source: true,
        ..Siit::default()
    }
}

fn add(snapshot: &mut Snapshot, translator: Siit) {
    let instance = SiitInstance { name: "siit".into(), vrf: VrfId(0), eam_hosts: EamHosts::Ipv6, translator };
    let (v4, v6) = instance.routes(snapshot.siit.len() as u16);
    snapshot.siit.push(instance);
    snapshot.routes.extend(v4);
    snapshot.routes6.extend(v6);
}

fn siit_world_with(change: impl FnOnce(&mut Snapshot)) -> World {
    world6_with(|s| {
        add(s, translator());
        change(s);
    })
}

fn siit_world() -> World {
    siit_world_with(|_| {})
}

fn from_server(dst: &str) -> PacketBuilder<'static> {
    packet(OUT, SERVER, dst)
}

/// RFC 7915 §4.1, §5.1, §6: there and back without any state, the hop limit one less.
#[test]
fn udp_tcp_and_echo_go_there_and_back_without_a_session() {
    let mut world = siit_world();
    let out = || packet6(IN, A, SERVER6).ttl(9);
    let back = || from_server(A4).ttl(9);
    for (frame, answer) in [
        (out().udp(1_000, 53), back().udp(53, 1_000)),
        (out().tcp(1_000, 80, flag::SYN), back().tcp(80, 1_000, flag::SYN | flag::ACK)),
        (out().echo_request(7, 1), back().echo_reply(7, 1)),
    ] {
        let sent = world.pass(IN, &frame.build());
        assert_eq!((sent.port, sent.to), (OUT, mac_of(ip(SERVER)).0));
        assert_eq!((sent.addresses(), sent.ip().ttl()), ((A4.into(), SERVER.into()), 8));
        assert!(sent.l4().ends_with(PAYLOAD));
        let got = world.pass(OUT, &answer.build());
        assert_eq!((got.port, got.to), (IN, mac6(A).0));
        assert_eq!((got.addresses6(), got.ip6().hop_limit()), ((SERVER6.into(), A.into()), 8));
        assert!(got.ip6().payload().ends_with(PAYLOAD));
    }
    assert_eq!(world.sessions(), 0);
}

/// RFC 7757 §4.2.2: two hosts of the same translator meet, each known to the other by its IPv4 address; the hop limit
/// is decremented once.
#[test]
fn hairpinned_packets_come_from_the_prefix_both_ways() {
    let mut world = siit_world();
    let of = |v4: &str| format!("2001:db8:64::{:x}:{:x}", ip(v4) >> 16, ip(v4) & 0xffff);
    for (src, dst4, dst, src4) in [(A, B4, B, A4), (B, A4, A, B4)] {
        let sent = world.pass(IN, &packet6(IN, src, &of(dst4)).ttl(9).udp(1, 2).build());
        assert_eq!((sent.port, sent.to), (IN, mac6(dst).0));
        assert_eq!((sent.addresses6(), sent.ip6().hop_limit()), ((of(src4), dst.into()), 8));
    }
}

/// RFC 7915 §4.2, §4.3: the quoted packet is the one that was sent.
#[test]
fn error_from_an_ipv4_router_reaches_the_ipv6_host() {
    let mut world = siit_world();
    let sent = world.pass(IN, &packet6(IN, A, SERVER6).ttl(3).udp(1_000, 53).build());
    let error = packet(OUT, "9.9.9.9", A4).icmp(11, 0, [0; 4]).payload(sent.packet()).build();
    let got = world.pass(OUT, &error);
    let (kind, code, _, quoted) = got.error6();
    assert_eq!((kind, code, got.to), (3, 0, mac6(A).0));
    assert_eq!(got.addresses6(), ("2001:db8:64::909:909".into(), A.into()));
    let quoted = Ipv6View::parse(quoted).unwrap();
    assert_eq!((quoted.src_addr().to_string(), quoted.dst_addr().to_string()), (A.into(), SERVER6.into()));
}

/// RFC 6791 §3.2, §4: a router without an IPv4 address speaks from the pool and says who it is.
#[test]
fn error_from_an_ipv6_router_comes_from_the_pool() {
    let mut world = siit_world();
    let got = world.pass(OUT, &from_server(A4).ttl(9).udp(53, 1_000).build());
    let router = "2001:db8:1::77";
    let error = packet6(IN, router, SERVER6).icmp(1, 4, [0; 4]).payload(got.ip6().packet()).build();
    let sent = world.pass(IN, &error);
    assert_eq!((sent.addresses(), sent.icmp()), (("198.18.0.1".into(), SERVER.into()), (3, 3)));
    let icmp = Icmpv4View::parse(sent.l4()).unwrap();
    let quoted = icmp.embedded().unwrap();
    assert_eq!((quoted.src_addr().to_string(), quoted.dst_addr().to_string()), (SERVER.into(), A4.into()));
    let structure = icmp.extension().unwrap().unwrap();
    assert!(structure.bytes().ends_with(&ip6(router).to_be_bytes()));
}

/// RFC 7915 §4.1: DF set is answered with what IPv4 takes; DF clear is cut to 1280 octets.
#[test]
fn what_grows_too_big_is_answered_or_cut() {
    let mut world = siit_world();
    let data = vec![7; 1_472];
    let whole = from_server(A4).udp(53, 1_000).payload(&data);
    let sent = world.send_dropped(OUT, &whole.clone().dont_fragment().build(), Reason::FragmentationNeeded);
    let [answer] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((answer.icmp(), answer.mtu(), answer.addresses().1), ((3, 4), 1_480, SERVER.into()));
    let pieces = world.send(OUT, &whole.ttl(9).build());
    assert_eq!(pieces.len(), 2);
    let mut octets = 0;
    for piece in &pieces {
        let view = piece.ip6();
        assert!(view.packet().len() <= 1_280 && view.hop_limit() == 8);
        let found = view.extensions().unwrap();
        assert_eq!(usize::from(found.fragment.unwrap().offset), octets);
        octets += view.packet().len() - usize::from(found.offset);
    }
    assert_eq!(octets, 1_480);
}

/// RFC 7915 §5.1, §5.1.1: the IPv6 sender is told 20 octets more than the IPv4 link takes; up to 1280 octets the
/// translator's packet is fragmented instead.
#[test]
fn narrow_ipv4_link_is_told_of_or_fragmented_for() {
    let mut world = siit_world_with(|s| on(s, IF_OUT, |i| i.mtu = 1_000));
    let of = |len: usize| packet6(IN, A, SERVER6).payload(&vec![7; len - 48]).udp(1, 2).build();
    let sent = world.send_dropped(IN, &of(1_400), Reason::FragmentationNeeded);
    let [answer] = &sent[..] else { panic!("{sent:?}") };
    let (kind, code, mtu, _) = answer.error6();
    assert_eq!((kind, code, mtu, answer.addresses6().1), (2, 0, 1_280, A.into()));
    let pieces = world.send(IN, &of(1_280));
    assert_eq!(pieces.len(), 2);
    assert!(pieces.iter().all(|piece| piece.packet().len() <= 1_000));
}

/// RFC 7915 §4.6 and §5.6: a more specific route that does not lead to the translator wins.
#[test]
fn more_specific_route_is_forwarded_without_translation() {
    let mut world = siit_world_with(|s| {
        let to: Prefix6 = "2001:db8:64::c633:6407/128".parse().unwrap();
        s.routes6.push(Route { vrf: VrfId(0), prefix: to, next_hop: NextHop::Blackhole });
    });
    world.dropped(IN, &packet6(IN, A, SERVER6).udp(1, 2).build(), Reason::RouteBlackhole);
    world.pass(IN, &packet6(IN, A, "2001:db8:64::808:808").udp(1, 2).build());
}

/// What goes wrong behind the translator is told to the IPv6 host by way of the translator.
#[test]
fn ipv4_error_of_the_router_itself_is_translated_back() {
    let mut world = siit_world_with(|s| s.routes.retain(|route| !route.prefix.is_default()));
    let frame = packet6(IN, A, "2001:db8:64::808:808").udp(1, 2).build();
    let sent = world.send_dropped(IN, &frame, Reason::NoRoute);
    let [answer] = &sent[..] else { panic!("{sent:?}") };
    let (kind, code, _, quoted) = answer.error6();
    assert_eq!((kind, code, answer.addresses6().1), (1, 0, A.into()));
    assert_eq!(Ipv6View::parse_quoted(quoted).unwrap().dst_addr().to_string(), "2001:db8:64::808:808");
}

#[test]
fn each_refusal_has_its_reason_and_its_answer() {
    let mut world = siit_world();
    world.know6(IF_IN, "2001:db8:1::77");
    let v6 = |src: &str| packet6(IN, src, SERVER6);
    let cases = [
        (IN, v6("2001:db8:1::77").udp(1, 2).build(), Reason::SiitSourceUnmapped, Some((1, 1))),
        (IN, v6(A).icmp(135, 0, [0; 4]).build(), Reason::XlatIcmpUntranslatable, None),
        (IN, v6(A).protocol(1).build(), Reason::XlatForeignProtocol, Some((1, 1))),
        (
            IN,
            v6(A).routing(&[4, 1, 0, 0, 0, 0], 1u128).udp(1, 2).build(),
            Reason::XlatSegmentsLeft,
            Some((4, 0)),
        ),
        (
            IN,
            v6(A).fragment6(0, true, 1).destination_options(&[]).payload(&[0; 8]).udp(1, 2).build(),
            Reason::XlatExtensionBehindFragment,
            Some((1, 1)),
        ),
        (OUT, from_server(A4).protocol(60).build(), Reason::XlatForeignProtocol, Some((3, 13))),
        (OUT, from_server(A4).icmp(13, 0, [0; 4]).build(), Reason::XlatIcmpUntranslatable, None),
        (
            OUT,
            from_server(A4).fragment(0, true).protocol(17).payload(&[0, 1, 0, 2, 0, 99, 0, 0]).build(),
            Reason::XlatUdpZeroChecksum,
            Some((3, 13)),
        ),
    ];
    for (port, frame, reason, answer) in cases {
        let sent = world.send_dropped(port, &frame, reason);
        let told = sent.first().map(|sent| match port {
            IN => (sent.error6().0, sent.error6().1),
            _ => sent.icmp(),
        });
        assert_eq!(told, answer, "{reason}");
    }
}

/// A route may lead to the translator what it has no address for; and nobody sends from an embedded address that no
/// host has.
#[test]
fn addresses_that_stand_for_nothing_are_dropped_by_name() {
    let mut world = siit_world_with(|s| {
        let to: Prefix6 = "2001:db8:77::/48".parse().unwrap();
        s.routes6.push(Route { vrf: VrfId(0), prefix: to, next_hop: NextHop::Translate(0) });
    });
    let unmapped = packet6(IN, A, "2001:db8:77::1").udp(1, 2).build();
    world.send_dropped(IN, &unmapped, Reason::SiitDestinationUnmapped);
    let nobody = packet6(IN, A, SERVER6).udp(1, 2).ipv6(ip6("2001:db8:64::7f00:1"), ip6(SERVER6)).build();
    world.dropped(IN, &nobody, Reason::SiitSourceInvalid);
    let loopback = packet6(IN, A, "2001:db8:64::7f00:1").udp(1, 2).build();
    world.send_dropped(IN, &loopback, Reason::SiitDestinationUnmapped);
}

/// RFC 7757 §3.3, figure 1: hosts of a mapping within the prefix, to whom a route of their own leads. The rest of the prefix
/// stands for IPv4 as ever, and sends nothing (RFC 6052 §5.1).
#[test]
fn mapped_hosts_within_the_prefix_are_served_and_no_others() {
    const WITHIN4: &str = "198.18.5.33";
    const WITHIN: &str = "2001:db8:64::1";
    let entry = |v4: &str, v6: &str| Entry { v4: v4.parse().unwrap(), v6: v6.parse().unwrap() };
    let entries = [entry("198.18.5.0/28", "2001:db8:1::/124"), entry("198.18.5.32/31", "2001:db8:64::/127")];
    let mut world = world6_with(|s| {
        add(s, Siit { eam: EamTable::new(&entries).unwrap(), ..translator() });
        let prefix = "2001:db8:64::/127".parse().unwrap();
        let next_hop = NextHop::Gateway(IfIndex(IF_IN), ip6(A));
        s.routes6.push(Route6 { vrf: VrfId(0), prefix, next_hop });
    });
    let from = |src: &str| packet6(IN, A, SERVER6).udp(1_000, 53).ipv6(ip6(src), ip6(SERVER6)).build();
    let sent = world.pass(IN, &from(WITHIN));
    assert_eq!((sent.port, sent.addresses()), (OUT, (WITHIN4.into(), SERVER.into())));
    let got = world.pass(OUT, &from_server(WITHIN4).udp(53, 1_000).build());
    assert_eq!((got.port, got.to), (IN, mac6(A).0));
    assert_eq!(got.addresses6(), (SERVER6.into(), WITHIN.into()));
    for nobody in ["2001:db8:64::2", "2001:db8:64::808:808"] {
        world.dropped(IN, &from(nobody), Reason::SiitSourceInvalid);
    }
}

/// RFC 6052 §3.1.
#[test]
fn well_known_prefix_with_a_private_address_is_dropped() {
    let prefixes = vec![NatPrefix::new("64:ff9b::/96".parse().unwrap()).unwrap()];
    let mut world = world6_with(|s| add(s, Siit { prefixes, ..translator() }));
    world.dropped(IN, &packet6(IN, A, "64:ff9b::a00:5").udp(1, 2).build(), Reason::SiitNonGlobal);
}

#[test]
fn packet_that_would_go_round_is_dropped() {
    // IPv4 addresses of IPv6 hosts that no route leads to: the prefix leads them back to the translator.
    let mut world = world6_with(|s| {
        add(s, Siit { hosts: Hosts::new(vec![prefix("198.18.6.0/24")]), ..translator() });
    });
    world.dropped(OUT, &from_server("198.18.6.200").udp(1, 2).build(), Reason::SiitLoop);
}

#[test]
fn outsider_reaches_no_subscriber_through_the_translator() {
    // A NAT guards 10.0.0.0/8; an IPv6 packet from its outside does not become one from inside.
    let mut world = siit_world();
    let link = PacketBuilder::new().ethernet(mac6(GATEWAY6), port_mac(OUT));
    let frame = link.ipv6(ip6(A), ip6("2001:db8:64::a00:5")).udp(1, 2).build();
    world.send_dropped(OUT, &frame, Reason::NotForwarding);
}

/// RFC 6877 §6.3: at the customer's side of 464XLAT the hosts have IPv4, and the prefix leads to the provider.
#[test]
fn ipv4_host_goes_out_by_its_own_ipv6_address_and_gets_its_answer() {
    const HOST6: &str = "2001:db8:1:464::10";
    let mut world = world6_with(|s| {
        let host = |address: &str| format!("{address}/{}", if address.contains(':') { 128 } else { 32 });
        let entry = Entry { v4: host(SERVER).parse().unwrap(), v6: host(HOST6).parse().unwrap() };
        let (eam, hosts) = (EamTable::new(&[entry]).unwrap(), Hosts::new(vec![prefix("9.9.9.0/24")]));
        let translator = Siit { eam, hosts, no_hairpinning: true, ..translator() };
        let (name, vrf) = ("clat".into(), VrfId(0));
        let instance = SiitInstance { name, vrf, eam_hosts: EamHosts::Ipv4, translator };
        let (v4, v6) = instance.routes(0);
        assert_eq!(v6.len(), 1, "the prefix is left to other routes");
        s.siit.push(instance);
        s.routes.extend(v4);
        s.routes6.extend(v6);
        let plat = "2001:db8:64::/96".parse().unwrap();
        s.routes6.push(Route6 {
            vrf: VrfId(0),
            prefix: plat,
            next_hop: NextHop::Gateway(IfIndex(IF_IN), ip6(A)),
        });
    });
    let far = "2001:db8:64::909:909";
    let sent = world.pass(OUT, &packet(OUT, SERVER, "9.9.9.9").ttl(9).udp(1_000, 53).build());
    assert_eq!((sent.port, sent.addresses6()), (IN, (HOST6.into(), far.into())));
    let got = world.pass(IN, &packet6(IN, far, HOST6).ttl(9).udp(53, 1_000).build());
    assert_eq!((got.port, got.addresses()), (OUT, ("9.9.9.9".into(), SERVER.into())));
    assert_eq!(world.sessions(), 0);
}

/// What an ICMPv6 error says, who from and who to, and whom the packet in it was for.
#[track_caller]
fn told6(sent: &[Sent]) -> ((u8, u8, u32), (String, String), String) {
    let [answer] = sent else { panic!("{sent:?}") };
    let (kind, code, word, quoted) = answer.error6();
    let quoted = Ipv6View::parse_quoted(quoted).unwrap();
    assert_eq!(quoted.src_addr().to_string(), answer.addresses6().1, "about a packet of its receiver");
    ((kind, code, word), answer.addresses6(), quoted.dst_addr().to_string())
}

/// What goes wrong once the packet is IPv4 is told also where the host's link has no IPv4 address; the router speaks
/// from another of its addresses there.
#[test]
fn host_with_ipv6_alone_is_told_what_went_wrong_behind_the_translator() {
    const NOWHERE: &str = "2001:db8:64::909:909";
    const FORBIDDEN: &str = "2001:db8:64::808:808";
    const SILENT: &str = "2001:db8:64::c633:6463";
    let mut world = siit_world_with(|s| {
        only_six_inside(s);
        s.routes.retain(|route| !route.prefix.is_default());
        s.routes.push(route(0, "8.8.8.8/32", NextHop::Prohibit));
    });
    let from = ("2001:db8:64::c633:6401".to_owned(), A.to_owned());
    let to = |dst: &str| packet6(IN, A, dst).udp(1, 2).build();
    let sent = world.send_dropped(IN, &to(NOWHERE), Reason::NoRoute);
    assert_eq!(told6(&sent), ((1, 0, 0), from.clone(), NOWHERE.into()));
    let sent = world.send_dropped(IN, &to(FORBIDDEN), Reason::RouteProhibit);
    assert_eq!(told6(&sent), ((1, 1, 0), from.clone(), FORBIDDEN.into()));
    assert!(world.send(IN, &to(SILENT)).is_empty());
    let sent = world.wait_ms(4_000);
    assert_eq!(world.new_drops(), [(Reason::NeighbourUnresolved, 1)]);
    assert_eq!(told6(&sent), ((1, 0, 0), from, SILENT.into()));
}

/// RFC 7757 §4.2.2, RFC 7915 §4.1: a hairpinned packet that the second host's link does not take.
#[test]
fn hairpinned_packet_too_big_for_its_second_link_is_told_of() {
    const FAR: &str = "2001:db8:3::5";
    let mut world = siit_world_with(|s| {
        only_six_inside(s);
        on(s, IF_VLAN, |i| (i.mtu, i.addresses) = (1_400, vec![]));
        let entry = |v4: &str, v6: &str| Entry { v4: v4.parse().unwrap(), v6: v6.parse().unwrap() };
        let (near, far) = (entry("198.18.5.0/28", "2001:db8:1::/124"), entry("198.18.6.5", FAR));
        s.siit[0].translator.eam = EamTable::new(&[near, far]).unwrap();
        s.routes.push(route(0, "198.18.6.5/32", NextHop::Translate(0)));
    });
    let far = "2001:db8:64::c612:605";
    let frame = packet6(IN, A, far).payload(&[7; 1_400]).udp(1, 2).build();
    let sent = world.send_dropped(IN, &frame, Reason::FragmentationNeeded);
    assert_eq!(told6(&sent), ((2, 0, 1_400), ("2001:db8:64::c633:6401".into(), A.into()), far.into()));
}

/// RFC 7915 §4.4, RFC 6791 §4: without a pool the router's own error comes from its address on the way to IPv4.
#[test]
fn ipv4_host_is_told_without_a_pool_of_sources() {
    let mut world = siit_world_with(|s| {
        s.siit[0].translator.icmp_sources.clear();
        let to: Prefix6 = "2001:db8:1::5/128".parse().unwrap();
        s.routes6.push(Route { vrf: VrfId(0), prefix: to, next_hop: NextHop::Prohibit });
    });
    let sent = world.send_dropped(OUT, &from_server(A4).ttl(9).udp(53, 1_000).build(), Reason::RouteProhibit);
    let [answer] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((answer.icmp(), answer.quoted_flow()), ((3, 10), format!("{SERVER}:53>{A4}:1000")));
    assert_eq!(answer.addresses(), ("198.51.100.1".into(), SERVER.into()));
    // Somebody else's error still needs one.
    let about = packet6(IN, SERVER6, A).udp(53, 1_000).build();
    let error = packet6(IN, "2001:db8:1::77", SERVER6).icmp(1, 4, [0; 4]).payload(&about[14..]).build();
    world.dropped(IN, &error, Reason::SiitSourceUnmapped);
}

/// RFC 6052 §3.1: nothing stands for a private address of the router behind the well-known prefix, so it speaks from
/// its IPv6 address.
#[test]
fn router_with_private_ipv4_addresses_tells_hosts_behind_the_well_known_prefix() {
    let prefixes = vec![NatPrefix::new("64:ff9b::/96".parse().unwrap()).unwrap()];
    let mut world = world6_with(|s| {
        add(s, Siit { prefixes, ..translator() });
        s.routes.push(route(0, "8.8.8.8/32", NextHop::Prohibit));
    });
    let sent =
        world.send_dropped(IN, &packet6(IN, A, "64:ff9b::808:808").udp(1, 2).build(), Reason::RouteProhibit);
    let told = told6(&sent);
    assert_eq!(told, ((1, 1, 0), ("2001:db8:1::1".into(), A.into()), "64:ff9b::808:808".into()));
}

/// RFC 7915 §4.1: fragments are translated each by itself, on the side of a NAT too; none waits for another.
#[test]
fn fragment_from_outside_waits_for_none() {
    for workers in [1, 3] {
        let mut world = World::new(workers, SIZES, HANDOVER_SLOTS, |s| {
            add_ipv6(s);
            add(s, translator());
        });
        world.know6(IF_IN, A);
        for id in 0..8 {
            let pieces = cut(OUT, SERVER, A4, 17, id, &[7; 48], 16);
            for at in [2, 1] {
                let sent = world.pass(OUT, &pieces[at]);
                assert_eq!(sent.addresses6(), (SERVER6.into(), A.into()));
                assert_eq!(usize::from(sent.ip6().extensions().unwrap().fragment.unwrap().offset), at * 16);
            }
        }
        assert_eq!(world.held(), 0);
    }
}

/// The same from inside where no NAT serves the routing instance; where one does, it has its say first.
#[test]
fn fragment_from_inside_waits_where_there_is_a_nat_alone() {
    for has_nat in [false, true] {
        let mut world = siit_world_with(|s| {
            let mut policy = (*s.nat).clone();
            policy.instances.retain(|_| has_nat);
            s.nat = std::sync::Arc::new(policy);
        });
        let pieces = cut(IN, "10.0.0.5", B4, 17, 9, &[7; 32], 16);
        assert_eq!(world.send(IN, &pieces[1]).len(), usize::from(!has_nat));
        assert_eq!(world.held(), u64::from(has_nat));
    }
}

/// The router's own addresses are behind the translator too: an echo comes back by it, and nothing goes up to the host,
/// which would answer in the wrong version.
#[test]
fn echo_to_the_router_through_the_translator_comes_back_through_it() {
    const ROUTER4: &str = "198.18.6.1";
    let mut world = siit_world_with(|s| {
        let entry = |v4: &str, v6: &str| Entry { v4: v4.parse().unwrap(), v6: v6.parse().unwrap() };
        let (hosts, own) = (entry("198.18.5.0/28", "2001:db8:1::/124"), entry(ROUTER4, "2001:db8:2::1"));
        s.siit[0].translator.eam = EamTable::new(&[hosts, own]).unwrap();
        s.routes.push(route(0, "198.18.6.1/32", NextHop::Translate(0)));
    });
    let router6 = "2001:db8:64::c633:6401";
    let got = world.pass(IN, &packet6(IN, A, router6).ttl(9).echo_request(7, 1).build());
    assert_eq!((got.port, got.to, got.addresses6()), (IN, mac6(A).0, (router6.into(), A.into())));
    assert_eq!((got.ip6().payload()[0], got.ip6().hop_limit()), (129, 64));
    assert!(got.ip6().payload().ends_with(PAYLOAD));
    // The mirror: an address of IPv6 hosts that is the router's own. May be cut, and so comes behind a fragment header.
    for len in [20, 1_400] {
        let data = vec![7; len];
        let got = world.pass(OUT, &from_server(ROUTER4).ttl(9).echo_request(7, 1).payload(&data).build());
        assert_eq!((got.port, got.addresses()), (OUT, (ROUTER4.into(), SERVER.into())));
        assert_eq!((got.icmp(), got.ip().ttl()), ((0, 0), 64));
        assert!(got.l4().ends_with(&data));
    }
    // There and back before it arrives.
    let hairpin = packet6(IN, A, "2001:db8:64::c612:601").echo_request(7, 1).build();
    let got = world.pass(IN, &hairpin);
    assert_eq!((got.ip6().payload()[0], got.addresses6().1), (129, A.into()));
    // Anything else finds no service, and whoever asked is told where he may be.
    let frame = packet6(IN, A, router6).udp(5_351, 5_351).build();
    let sent = world.send_dropped(IN, &frame, Reason::LocalNoService);
    assert_eq!(told6(&sent).0, (1, 4, 0));
    world.send_dropped(IN, &packet6(IN, A, router6).echo_reply(7, 1).build(), Reason::LocalNoService);
    world.send_dropped(OUT, &from_server(ROUTER4).tcp(1, 22, flag::SYN).build(), Reason::LocalNoService);
    let mut broken = packet6(IN, A, router6).echo_request(7, 1).build();
    *broken.last_mut().unwrap() ^= 1;
    world.dropped(IN, &broken, Reason::IcmpBadChecksum);
    assert!(world.punts.is_empty(), "{:?}", world.punts);
}

/// RFC 7915 §4.4, §5.4: a piece of an ICMP message is told of in IPv4; of ICMPv6 nothing is told that the RFC has no
/// answer of its own for.
#[test]
fn ipv4_sender_hears_of_a_fragment_of_icmp_and_no_icmpv6_is_answered() {
    let mut world = siit_world();
    world.know6(IF_IN, "2001:db8:1::77");
    let piece = from_server(A4).fragment(0, true).echo_request(7, 1).payload(&[7; 24]).build();
    let sent = world.send_dropped(OUT, &piece, Reason::XlatIcmpFragment);
    assert_eq!(sent.first().map(Sent::icmp), Some((3, 13)));
    let piece = packet6(IN, A, SERVER6).fragment6(0, true, 1).echo_request(7, 1).payload(&[7; 24]).build();
    world.dropped(IN, &piece, Reason::XlatIcmpFragment);
    let unmapped = packet6(IN, "2001:db8:1::77", SERVER6).echo_request(7, 1).build();
    world.dropped(IN, &unmapped, Reason::SiitSourceUnmapped);
}

/// RFC 7915 §4.1: an IPv4 source route is answered where it goes on, and left out at its end.
#[test]
fn source_route_at_its_end_is_left_out() {
    let mut world = siit_world();
    let route = |pointer: u8| [131, 7, pointer, 1, 2, 3, 4, 0];
    let got = world.pass(OUT, &from_server(A4).ip_options(&route(8)).udp(1, 2).build());
    assert_eq!(got.addresses6(), (SERVER6.into(), A.into()));
    let frame = from_server(A4).ip_options(&route(4)).udp(1, 2).build();
    let sent = world.send_dropped(OUT, &frame, Reason::Ipv4SourceRoute);
    assert_eq!(sent.first().map(Sent::icmp), Some((3, 5)));
    // Where no translator leaves it out it is refused as ever.
    let frame = packet(IN, "10.0.0.5", SERVER).ip_options(&route(8)).udp(1, 2).build();
    world.send_dropped(IN, &frame, Reason::Ipv4SourceRoute);
    let frame = packet(OUT, SERVER, POOL).ip_options(&route(8)).udp(1, 2).build();
    world.send_dropped(OUT, &frame, Reason::Ipv4SourceRoute);
}

/// RFC 7915 §5.1: segments left are told of at their octet, whatever the type of the routing header.
#[test]
fn routing_header_with_segments_left_is_told_of_whatever_its_type() {
    let mut world = siit_world();
    for (kind, reason) in [(0, Reason::Ipv6RoutingHeader), (4, Reason::XlatSegmentsLeft)] {
        let routing = [kind, 1, 0, 0, 0, 0];
        let frame = packet6(IN, A, SERVER6).hop_by_hop(&[]).routing(&routing, 1u128);
        let sent = world.send_dropped(IN, &frame.udp(1, 2).build(), reason);
        assert_eq!(told6(&sent).0, (4, 0, 51));
    }
}

/// RFC 7915 §4 (order), §5 (order): packets of a flow leave in the order in which they came, whichever way through the stages each
/// takes: common ones, without a checksum, with options or extension headers, in one piece of one.
#[test]
fn packets_of_a_flow_leave_in_the_order_they_came() {
    let mut world = siit_world();
    let datas: Vec<Vec<u8>> = (0..24u8).map(|n| vec![n; 40]).collect();
    let four = |(n, data): (usize, &Vec<u8>)| {
        let base = from_server(A4).payload(data);
        match n % 4 {
            1 => base.udp_without_checksum(53, 1_000),
            2 => base.ip_options(&[1, 1, 1, 1]).udp(53, 1_000),
            _ => base.udp(53, 1_000),
        }
        .build()
    };
    let six = |(n, data): (usize, &Vec<u8>)| {
        let base = packet6(IN, A, SERVER6);
        let base = match n % 4 {
            1 => base.destination_options(&[]),
            2 => base.fragment6(0, false, 9),
            _ => base,
        };
        base.udp(1_000, 53).payload(data).build()
    };
    let fours: Vec<_> = datas.iter().enumerate().map(four).collect();
    let sixes: Vec<_> = datas.iter().enumerate().map(six).collect();
    for (port, frames) in [(OUT, fours), (IN, sixes)] {
        let sent = world.burst(port, &frames);
        let last: Vec<u8> = sent.iter().map(|sent| sent.frame[sent.frame.len() - 1]).collect();
        assert_eq!(last, (0..24).collect::<Vec<u8>>());
    }
}

/// RFC 7915 §4.4 (configuration), §5.4 (configuration): whether senders are told is configured by interface, and how often by a policer.
#[test]
fn senders_are_told_as_configured() {
    use carrack_pipeline::snapshot::{IcmpErrors, Policer};
    let from_four = from_server(A4).protocol(60).build();
    let from_six = packet6(IN, A, SERVER6).protocol(1).build();
    let mut world = siit_world_with(|s| {
        on(s, IF_IN, |i| i.icmp_errors = IcmpErrors::None);
        on(s, IF_OUT, |i| i.icmp_errors = IcmpErrors::PathMtu);
    });
    world.dropped(OUT, &from_four, Reason::XlatForeignProtocol);
    world.dropped(IN, &from_six, Reason::XlatForeignProtocol);
    let mut world = siit_world_with(|s| s.policers.icmp_errors = Policer { rate_pps: 1, burst: 1 });
    assert_eq!(world.send_dropped(OUT, &from_four, Reason::XlatForeignProtocol).len(), 1);
    world.dropped(IN, &from_six, Reason::XlatForeignProtocol);
}
