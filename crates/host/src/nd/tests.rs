use std::net::IpAddr;

use carrack_base::{Prefix6, VrfId};
use carrack_pipeline::snapshot::{IcmpErrors, Vlan};
use carrack_wire::ndp::{ALL_ROUTERS, PrefixInformation};
use carrack_wire::{PacketBuilder, parse_l2};

use super::*;
use crate::config::{HostConfig, RouterAdvertising};
use crate::neighbours::NeighbourState;
use crate::own6::Use as OwnUse;

const IF: IfIndex = IfIndex(3);
const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 8]);
const LINK_LOCAL: u128 = 0xfe80 << 112 | 1;
const NET: u128 = 0x2001_0db8_0001 << 80;
const OWN: u128 = NET | 1;
const PEER: u128 = NET | 9;

fn interface() -> HostInterface {
    HostInterface {
        id: IF,
        name: "lan".into(),
        vrf: VrfId(0),
        mac: OWN_MAC,
        vlan: Vlan::None,
        mtu: 1_500,
        icmp_errors: IcmpErrors::All,
        addresses: vec![],
        ipv6: Some(Ipv6Interface { link_local: LINK_LOCAL, addresses: vec![(OWN, Prefix6::of(NET, 64))] }),
        advertising: None,
        proxy: vec![],
    }
}

fn config(change: impl FnOnce(&mut HostInterface)) -> HostConfig {
    let mut on = interface();
    change(&mut on);
    HostConfig { interfaces: vec![on], ..HostConfig::default() }
}

/// A host whose own addresses have been checked; everything said until then is forgotten.
fn host(change: impl FnOnce(&mut HostInterface)) -> Host {
    let mut host = Host::new(config(change), Now::from_s(0));
    host.handle_timeout(Now::from_s(1));
    sent(&mut host);
    host
}

/// What has become of the own addresses.
fn states(host: &Host) -> Vec<(u128, OwnUse)> {
    host.own6().map(|own| (own.ip.into(), own.state)).collect()
}

/// What is sent, but for reports of groups: destination MAC address, source, destination, message.
fn sent(host: &mut Host) -> Vec<(MacAddr, u128, u128, NdpMessage)> {
    let frames = std::iter::from_fn(|| host.poll_transmit());
    let frames = frames.filter(|(_, frame)| !is_report(frame));
    let read = |(_, frame): (IfIndex, Vec<u8>)| {
        let l2 = parse_l2(&frame).unwrap();
        let packet = Ipv6View::parse(&frame[14..]).unwrap();
        let (src, dst) = (packet.src(), packet.dst());
        let message = NdpMessage::parse(src, dst, packet.hop_limit(), packet.payload()).unwrap();
        (l2.dst, src, dst, message)
    };
    frames.map(read).collect()
}

/// A report begins with a hop-by-hop header, which nothing else that is sent has.
fn is_report(frame: &[u8]) -> bool {
    frame[14 + 6] == 0
}

/// Destination MAC address, source, what is said of which group.
type Report = (MacAddr, u128, Vec<(u8, u128)>);

/// The reports that are sent.
fn reports(host: &mut Host) -> Vec<Report> {
    let frames = std::iter::from_fn(|| host.poll_transmit()).filter(|(_, frame)| is_report(frame));
    let read = |(_, frame): (IfIndex, Vec<u8>)| {
        let packet = Ipv6View::parse(&frame[14..]).unwrap();
        let records = frame[14 + 56..].chunks(20);
        let records = records.map(|r| (r[0], u128::from_be_bytes(*r[4..].first_chunk().unwrap())));
        (parse_l2(&frame).unwrap().dst, packet.src(), records.collect())
    };
    frames.map(read).collect()
}

/// RFC 4862 §5.4.2, RFC 3810 §6.1: groups are reported before the first address is asked about, again when one is, and
/// those that are left.
#[test]
fn groups_are_reported_when_they_change() {
    let mut host = Host::new(config(|_| {}), Now::from_s(0));
    let first = host.poll_transmit().unwrap().1;
    assert!(is_report(&first), "before any solicitation");
    // Both own addresses have the same group; that of all routers has another (RFC 4291 §2.8).
    let own = [ALL_ROUTERS, solicited_node(NET), solicited_node(OWN)];
    assert_eq!(first[14 + 8..14 + 24], [0; 16], "RFC 3590 §4");
    host.handle_timeout(Now::from_s(1));
    sent(&mut host);
    host.handle_timeout(Now::from_s(2));
    let again = (multicast_mac(mld::REPORTS_TO), LINK_LOCAL, own.map(|group| (4, group)).to_vec());
    assert_eq!(reports(&mut host), [again]);
    host.handle_timeout(Now::from_s(3));
    assert_eq!(reports(&mut host), []);
    let other = NET | 0x1234;
    let moved = config(|on| on.ipv6.as_mut().unwrap().addresses = vec![(other, Prefix6::of(NET, 64))]);
    let link_local_stays = moved.clone();
    host.configure(moved, Now::from_s(4));
    assert_eq!(reports(&mut host)[0].2, [(4, solicited_node(other))], "that of the link-local one stays");
    host.configure(link_local_stays, Now::from_s(5));
    host.handle_timeout(Now::from_s(6));
    assert_eq!(reports(&mut host)[0].2, [(4, solicited_node(other))]);
    host.configure(config(|_| {}), Now::from_s(7));
    assert_eq!(reports(&mut host)[0].2, [(3, solicited_node(other))]);
}

fn ask(host: &mut Host, at_s: u64, group: u128, version_1: bool) {
    let mut rest = group.to_be_bytes().to_vec();
    rest.resize(if version_1 { 16 } else { 20 }, 0);
    let dst = if group == 0 { ALL_NODES } else { group };
    let packet = PacketBuilder::new()
        .ethernet(PEER_MAC, multicast_mac(dst))
        .ipv6(0xfe80 << 112 | 9, dst)
        .hop_by_hop(&[5, 2, 0, 0])
        .icmp(130, 0, [0x03, 0xe8, 0, 0])
        .ttl(1)
        .payload(&rest)
        .build();
    host.handle_packet(Now::from_s(at_s), IF, &packet);
}

/// RFC 3810 §6.2: a query is answered in time, in the version it was asked in; nobody answers for groups of others.
#[test]
fn queries_are_answered() {
    let mut host = host(|_| {});
    host.handle_timeout(Now::from_s(3));
    reports(&mut host);
    ask(&mut host, 10, 0, false);
    assert!(host.poll_timeout().unwrap() <= Now::from_s(11));
    host.handle_timeout(Now::from_s(11));
    let all = [ALL_ROUTERS, solicited_node(NET), solicited_node(OWN)].map(|group| (2, group)).to_vec();
    assert_eq!(reports(&mut host), [(multicast_mac(mld::REPORTS_TO), LINK_LOCAL, all)]);
    ask(&mut host, 20, solicited_node(OWN), false);
    host.handle_timeout(Now::from_s(21));
    assert_eq!(reports(&mut host)[0].2, [(2, solicited_node(OWN))]);
    ask(&mut host, 30, solicited_node(0x99), false);
    host.handle_timeout(Now::from_s(31));
    assert_eq!(reports(&mut host), []);
    ask(&mut host, 40, solicited_node(OWN), true);
    host.handle_timeout(Now::from_s(41));
    let frame = host.poll_transmit().unwrap().1;
    assert_eq!((frame[14 + 48], parse_l2(&frame).unwrap().dst), (131, multicast_mac(solicited_node(OWN))));
    assert_eq!((host.counters().listener_asked, host.counters().listener_reported), (4, 5));
}

fn hear(host: &mut Host, at_s: u64, from: MacAddr, message: &NdpMessage, src: u128, dst: u128) {
    let to = if is_multicast(dst) { multicast_mac(dst) } else { OWN_MAC };
    let frame = l2::frame(to, from, Vlan::None, ethertype::IPV6, &message.packet(src, dst));
    host.handle_packet(Now::from_s(at_s), IF, &frame);
}

fn solicitation(target: u128, source: Option<MacAddr>) -> NdpMessage {
    NdpMessage::NeighbourSolicitation { target, source }
}

fn advertisement(target: u128, mac: MacAddr, solicited: bool, replaces: bool) -> NdpMessage {
    NdpMessage::NeighbourAdvertisement { target, router: false, solicited, replaces, target_mac: Some(mac) }
}

fn v6(ip: u128) -> IpAddr {
    Ipv6Addr::from(ip).into()
}

fn events(host: &mut Host) -> Vec<HostEvent> {
    std::iter::from_fn(|| host.poll_event()).collect()
}

fn state(host: &Host, ip: u128) -> Option<NeighbourState> {
    host.neighbours(Now::from_s(100)).find(|row| row.ip == v6(ip)).map(|row| row.state)
}

/// RFC 4862 §5.4: asked from the unspecified address, used a second later, then announced (RFC 4861 §7.2.6).
#[test]
fn own_addresses_are_asked_for_before_they_are_used() {
    let mut host = Host::new(config(|_| {}), Now::from_s(0));
    for (own, (to, src, dst, message)) in [LINK_LOCAL, OWN].into_iter().zip(sent(&mut host)) {
        let group = solicited_node(own);
        assert_eq!((to, src, dst, message), (multicast_mac(group), 0, group, solicitation(own, None)));
    }
    hear(&mut host, 0, PEER_MAC, &solicitation(OWN, Some(PEER_MAC)), PEER, solicited_node(OWN));
    assert!(sent(&mut host).is_empty(), "a tentative address is not answered for");
    assert_eq!(host.poll_timeout(), Some(Now::from_s(1)));
    host.handle_timeout(Now::from_s(1));
    let announced: Vec<_> = sent(&mut host).into_iter().map(|(_, src, dst, _)| (src, dst)).collect();
    assert_eq!(announced, [(OWN, ALL_NODES), (LINK_LOCAL, ALL_NODES)]);
}

/// RFC 4862 §5.4.4 and §5.4.3: an answer, or somebody else's probe, is an objection.
#[test]
fn an_address_that_somebody_has_is_not_used_until_the_next_reload() {
    let claims = [
        (advertisement(OWN, PEER_MAC, false, true), OWN, ALL_NODES),
        (solicitation(OWN, None), 0, solicited_node(OWN)),
    ];
    for (claim, src, dst) in claims {
        let mut host = Host::new(config(|_| {}), Now::from_s(0));
        sent(&mut host);
        hear(&mut host, 0, PEER_MAC, &claim, src, dst);
        let ip = Ipv6Addr::from(OWN);
        assert_eq!(events(&mut host), [HostEvent::AddressDuplicate { interface: IF, ip, mac: PEER_MAC }]);
        let version = host.own6_version();
        assert_eq!(states(&host), [(OWN, OwnUse::Duplicate(PEER_MAC)), (LINK_LOCAL, OwnUse::Tentative)]);
        host.handle_timeout(Now::from_s(1));
        assert_eq!(states(&host), [(OWN, OwnUse::Duplicate(PEER_MAC)), (LINK_LOCAL, OwnUse::Preferred)]);
        assert_ne!(host.own6_version(), version);
        assert_eq!(sent(&mut host).len(), 1, "the link-local address alone is announced");
        hear(&mut host, 2, PEER_MAC, &solicitation(OWN, Some(PEER_MAC)), PEER, solicited_node(OWN));
        assert!(sent(&mut host).is_empty());
        host.configure(config(|_| {}), Now::from_s(3));
        assert_eq!(sent(&mut host).len(), 1, "asked again");
        host.handle_timeout(Now::from_s(4));
        hear(&mut host, 5, PEER_MAC, &solicitation(OWN, Some(PEER_MAC)), PEER, solicited_node(OWN));
        assert!(sent(&mut host).iter().any(|(to, ..)| *to == PEER_MAC));
    }
}

#[test]
fn an_address_in_use_is_defended() {
    let mut host = host(|_| {});
    hear(&mut host, 2, PEER_MAC, &solicitation(OWN, None), 0, solicited_node(OWN));
    let (to, src, dst, _) = sent(&mut host)[0].clone();
    assert_eq!((to, src, dst), (multicast_mac(ALL_NODES), OWN, ALL_NODES));
    let conflict = HostEvent::AddressConflict { interface: IF, ip: v6(OWN), mac: PEER_MAC };
    assert_eq!(events(&mut host), [conflict]);
}

/// Two routers with one address tell each other so once in a while; who asks before he takes it is told each time.
#[test]
fn two_defenders_of_an_address_do_not_answer_each_other_for_ever() {
    let mut host = host(|_| {});
    let claim = advertisement(OWN, PEER_MAC, false, true);
    let told: Vec<usize> = (0..3)
        .map(|_| {
            hear(&mut host, 2, PEER_MAC, &claim, OWN, ALL_NODES);
            sent(&mut host).len()
        })
        .collect();
    assert_eq!((told, events(&mut host).len()), (vec![1, 0, 0], 1));
    for _ in 0..2 {
        hear(&mut host, 2, PEER_MAC, &solicitation(OWN, None), 0, solicited_node(OWN));
        assert_eq!(sent(&mut host).len(), 1);
    }
    hear(&mut host, 60, PEER_MAC, &claim, OWN, ALL_NODES);
    assert_eq!(sent(&mut host).len(), 1);
}

/// RFC 4861 §7.2.4: to the one who asked, as a router, with the MAC address.
#[test]
fn a_solicitation_is_answered_and_its_sender_entered_as_stale_then_asked() {
    let mut host = host(|_| {});
    hear(&mut host, 2, PEER_MAC, &solicitation(OWN, Some(PEER_MAC)), PEER, solicited_node(OWN));
    let answer = NdpMessage::NeighbourAdvertisement {
        target: OWN,
        router: true,
        solicited: true,
        replaces: true,
        target_mac: Some(OWN_MAC),
    };
    assert_eq!(sent(&mut host), [(PEER_MAC, OWN, PEER, answer)]);
    let known = HostEvent::NeighbourSet { interface: IF, ip: v6(PEER), mac: PEER_MAC };
    assert_eq!((events(&mut host), state(&host, PEER)), (vec![known], Some(NeighbourState::Stale)));
    // RFC 4861 §7.3.3: five seconds later it is asked itself.
    host.handle_timeout(Now::from_s(7));
    assert_eq!(sent(&mut host), [(PEER_MAC, OWN, PEER, solicitation(PEER, Some(OWN_MAC)))]);
    hear(&mut host, 7, PEER_MAC, &advertisement(PEER, PEER_MAC, true, true), PEER, OWN);
    assert_eq!(state(&host, PEER), Some(NeighbourState::Reachable));
}

/// RFC 4861 §7.2.7: an address that all routers of a link have (RFC 4291 §2.6.1) is answered for after a random part of a
/// second, without claiming it from the others.
#[test]
fn the_address_of_all_routers_is_answered_for_without_override_and_not_at_once() {
    let mut host = host(|_| {});
    assert!(states(&host).iter().all(|(own, _)| *own != NET), "nobody is asked about it");
    let asked = solicitation(NET, Some(PEER_MAC));
    host.handle_timeout(Now::from_s(4));
    reports(&mut host);
    for _ in 0..2 {
        hear(&mut host, 10, PEER_MAC, &asked, PEER, solicited_node(NET));
    }
    assert!(sent(&mut host).is_empty());
    let due = host.poll_timeout().unwrap();
    assert!(Now::from_s(10) < due && due < Now::from_s(11), "{due:?}");
    host.handle_timeout(due);
    let told = |solicited| NdpMessage::NeighbourAdvertisement {
        target: NET,
        router: true,
        solicited,
        replaces: false,
        target_mac: Some(OWN_MAC),
    };
    assert_eq!(sent(&mut host), [(PEER_MAC, OWN, PEER, told(true))], "once, from an address of its own");
    // Who would take it is told before he does (RFC 4862 §5.4.3).
    hear(&mut host, 12, PEER_MAC, &solicitation(NET, None), 0, solicited_node(NET));
    assert_eq!(sent(&mut host), [(multicast_mac(ALL_NODES), LINK_LOCAL, ALL_NODES, told(false))]);
    // Other routers have it too, and none is a neighbour by it.
    events(&mut host);
    hear(&mut host, 13, OTHER_MAC, &advertisement(NET, OTHER_MAC, false, true), PEER, ALL_NODES);
    host.handle_resolve(Now::from_s(13), IF, v6(NET));
    assert_eq!(events(&mut host), [HostEvent::NeighbourGone { interface: IF, ip: v6(NET) }]);
    assert_eq!((sent(&mut host), host.counters().nd_conflicts), (vec![], 0));
}

#[test]
fn no_answer_is_sent_for_all_routers_of_a_subnet_that_is_gone_or_between_two_routers() {
    let asked = solicitation(NET, Some(PEER_MAC));
    let moved = |subnet| config(|on| on.ipv6.as_mut().unwrap().addresses = vec![(OWN, subnet)]);
    let mut host = host(|_| {});
    hear(&mut host, 2, PEER_MAC, &asked, PEER, solicited_node(NET));
    host.configure(moved(Prefix6::of(NET, 127)), Now::from_s(2));
    hear(&mut host, 2, PEER_MAC, &asked, PEER, solicited_node(NET));
    host.handle_timeout(Now::from_s(4));
    assert!(!sent(&mut host).iter().any(|(_, _, dst, _)| *dst == PEER), "RFC 6164 §5");
}

#[test]
fn a_stranger_is_answered_but_not_entered() {
    let mut host = host(|_| {});
    let stranger = 0x2001_0db8_ffff << 80 | 1;
    hear(&mut host, 2, PEER_MAC, &solicitation(OWN, Some(PEER_MAC)), stranger, OWN);
    assert_eq!((sent(&mut host).len(), host.neighbours(Now::from_s(2)).count()), (1, 0));
    // Nor is who was not asked for (RFC 4861 §7.2.5).
    hear(&mut host, 2, PEER_MAC, &advertisement(PEER, PEER_MAC, false, true), PEER, ALL_NODES);
    assert_eq!(host.neighbours(Now::from_s(2)).count(), 0);
}

/// RFC 4861 §7.2.2: three questions a second apart, then the neighbour is gone.
#[test]
fn a_neighbour_is_asked_for_three_times() {
    let mut host = host(|_| {});
    host.handle_resolve(Now::from_s(2), IF, v6(PEER));
    let group = solicited_node(PEER);
    let question = (multicast_mac(group), OWN, group, solicitation(PEER, Some(OWN_MAC)));
    assert_eq!(sent(&mut host), std::slice::from_ref(&question));
    host.handle_timeout(Now::from_s(3));
    host.handle_timeout(Now::from_s(4));
    assert_eq!(sent(&mut host), [question.clone(), question]);
    host.handle_timeout(Now::from_s(5));
    assert_eq!(events(&mut host), [HostEvent::NeighbourGone { interface: IF, ip: v6(PEER) }]);
}

#[test]
fn an_answer_makes_a_neighbour_and_a_claim_without_override_does_not_move_it() {
    let mut host = host(|_| {});
    host.handle_resolve(Now::from_s(2), IF, v6(PEER));
    hear(&mut host, 2, PEER_MAC, &advertisement(PEER, PEER_MAC, true, true), PEER, OWN);
    let known = HostEvent::NeighbourSet { interface: IF, ip: v6(PEER), mac: PEER_MAC };
    assert_eq!(events(&mut host), [known]);
    hear(&mut host, 3, OTHER_MAC, &advertisement(PEER, OTHER_MAC, true, false), PEER, OWN);
    assert!(events(&mut host).is_empty());
    hear(&mut host, 3, OTHER_MAC, &advertisement(PEER, OTHER_MAC, false, true), PEER, ALL_NODES);
    let moved = HostEvent::NeighbourSet { interface: IF, ip: v6(PEER), mac: OTHER_MAC };
    assert_eq!((events(&mut host), state(&host, PEER)), (vec![moved], Some(NeighbourState::Stale)));
}

#[test]
fn a_link_local_neighbour_is_asked_from_the_link_local_address() {
    let mut host = host(|_| {});
    let target = LINK_LOCAL + 7;
    host.handle_resolve(Now::from_s(2), IF, v6(target));
    assert_eq!(sent(&mut host)[0].1, LINK_LOCAL);
}

fn advertising(on: &mut HostInterface) {
    let prefix = PrefixInformation {
        address: NET,
        len: 64,
        on_link: true,
        autonomous: true,
        valid_s: 86_400,
        preferred_s: 3_600,
    };
    let message = RouterAdvertisement {
        lifetime_s: 1_800,
        mtu: Some(1_500),
        prefixes: vec![prefix],
        ..Default::default()
    };
    on.advertising = Some(RouterAdvertising { interval_s: 600, message });
}

/// RFC 4861 §6.2.4: soon after the start three times, then at most every interval.
#[test]
fn a_router_advertises_itself_when_configured_and_only_then() {
    let mut silent = host(|_| {});
    hear(
        &mut silent,
        2,
        PEER_MAC,
        &NdpMessage::RouterSolicitation { source: Some(PEER_MAC) },
        PEER,
        ALL_ROUTERS,
    );
    assert!(sent(&mut silent).is_empty());
    let mut host = host(advertising);
    let mut times = vec![];
    while times.len() < 6 {
        let due = host.poll_timeout().unwrap();
        host.handle_timeout(due);
        for (to, src, dst, message) in sent(&mut host) {
            assert_eq!((to, src, dst), (multicast_mac(ALL_NODES), LINK_LOCAL, ALL_NODES));
            let NdpMessage::RouterAdvertisement(told) = message else { panic!("{message:?}") };
            assert_eq!((told.lifetime_s, told.source, told.prefixes.len()), (1_800, Some(OWN_MAC), 1));
            times.push(due.s());
        }
    }
    assert!(
        times[2] <= 2 + 2 * 16 && times.windows(2).all(|t| (3..=600).contains(&(t[1] - t[0]))),
        "{times:?}"
    );
    assert!(times[5] - times[4] >= 400, "{times:?}");
}

/// RFC 4861 §6.2.6.
#[test]
fn a_router_solicitation_is_answered_alone_or_if_from_nobody_to_all_but_not_too_often() {
    let mut host = host(advertising);
    hear(
        &mut host,
        2,
        PEER_MAC,
        &NdpMessage::RouterSolicitation { source: Some(PEER_MAC) },
        PEER,
        ALL_ROUTERS,
    );
    // Within half a second, not at once (MAX_RA_DELAY_TIME). What is due by now anyway is out of the way.
    assert!(sent(&mut host).is_empty());
    host.handle_timeout(Now::from_s(2));
    sent(&mut host);
    let due = host.poll_timeout().unwrap();
    assert!(due > Now::from_s(2) && due <= Now { ns: 2_500_000_000 }, "{due:?}");
    host.handle_timeout(due);
    let answers = sent(&mut host);
    assert_eq!((answers.len(), answers[0].0, answers[0].2), (1, PEER_MAC, PEER));
    let mut told = vec![];
    for ms in (2_000..8_000).step_by(100) {
        let now = Now { ns: ms * 1_000_000 };
        let ask = NdpMessage::RouterSolicitation { source: None };
        let frame = l2::frame(
            multicast_mac(ALL_ROUTERS),
            PEER_MAC,
            Vlan::None,
            ethertype::IPV6,
            &ask.packet(0, ALL_ROUTERS),
        );
        host.handle_packet(now, IF, &frame);
        host.handle_timeout(now);
        told.extend(sent(&mut host).iter().filter(|(_, src, ..)| *src == LINK_LOCAL).map(|_| ms));
    }
    assert_eq!(told, [5_000], "MIN_DELAY_BETWEEN_RAS");
}

/// RFC 4861 §6.2.5.
#[test]
fn who_stops_advertising_says_so() {
    let mut host = host(advertising);
    host.configure(config(|_| {}), Now::from_s(3));
    let told = sent(&mut host);
    let NdpMessage::RouterAdvertisement(last) = &told[0].3 else { panic!("{told:?}") };
    assert_eq!((told.len(), last.lifetime_s), (1, 0));
}

/// RFC 4443 §4.2.
#[test]
fn echo_is_answered_whole_from_the_address_that_was_asked() {
    let mut host = host(|_| {});
    let ask = |dst: u128| {
        let to = if is_multicast(dst) { multicast_mac(dst) } else { OWN_MAC };
        PacketBuilder::new()
            .ethernet(PEER_MAC, to)
            .ipv6(PEER, dst)
            .echo_request(7, 3)
            .payload(b"data")
            .build()
    };
    // RFC 4443 §2.2 (b): from one station's address.
    for (dst, from) in [(OWN, OWN), (LINK_LOCAL, LINK_LOCAL), (ALL_NODES, LINK_LOCAL), (NET, OWN)] {
        host.handle_packet(Now::from_s(2), IF, &ask(dst));
        let (_, frame) = host.poll_transmit().unwrap();
        let packet = Ipv6View::parse(&frame[14..]).unwrap();
        let message = Icmpv6View::parse(packet.payload()).unwrap();
        assert_eq!((packet.src(), packet.dst(), parse_l2(&frame).unwrap().dst), (from, PEER, PEER_MAC));
        assert!(message.checksum_ok(from, PEER));
        assert_eq!((message.kind(), message.identifier(), message.payload()), (129, 7, &b"data"[..]));
    }
    // RFC 8200 §4, RFC 6946 §4: behind options, and behind the fragment header of a whole datagram; not a piece of one.
    let behind = |headers: fn(PacketBuilder) -> PacketBuilder| {
        headers(PacketBuilder::new().ethernet(PEER_MAC, OWN_MAC).ipv6(PEER, OWN))
            .echo_request(7, 3)
            .payload(b"data")
            .build()
    };
    for asked in [behind(|p| p.hop_by_hop(&[5, 2, 0, 0])), behind(|p| p.fragment6(0, false, 9))] {
        host.handle_packet(Now::from_s(2), IF, &asked);
        let (_, frame) = host.poll_transmit().unwrap();
        let packet = Ipv6View::parse(&frame[14..]).unwrap();
        let message = Icmpv6View::parse(packet.payload()).unwrap();
        assert!(packet.next_header() == 58 && message.kind() == 129 && message.checksum_ok(OWN, PEER));
    }
    host.handle_packet(Now::from_s(2), IF, &behind(|p| p.fragment6(0, true, 9)));
    assert!(host.poll_transmit().is_none());
    // Not for others' addresses, and not when it is damaged.
    host.handle_packet(Now::from_s(2), IF, &ask(PEER + 1));
    let mut damaged = ask(OWN);
    *damaged.last_mut().unwrap() ^= 1;
    host.handle_packet(Now::from_s(2), IF, &damaged);
    assert!(host.poll_transmit().is_none());
}
