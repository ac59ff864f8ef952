use super::*;
use crate::neighbours::{NeighbourState, PENDING_MAX};
use carrack_base::{Prefix4, VrfId};
use carrack_pipeline::snapshot::{IcmpErrors, Vlan};
use carrack_wire::arp::Operation::{Reply, Request};
use carrack_wire::checksum;
use carrack_wire::ipv4::Ipv4Header;
use proptest::prelude::*;

const IF: IfIndex = IfIndex(3);
const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const OTHER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 8]);
const OWN: u32 = 0x0a00_0001;
const PEER: u32 = 0x0a00_0009;
const POOL: u32 = 0xc000_0207;

fn v4(ip: u32) -> IpAddr {
    Ipv4Addr::from(ip).into()
}

fn interface() -> HostInterface {
    HostInterface {
        id: IF,
        name: "uplink".into(),
        vrf: VrfId(0),
        mac: OWN_MAC,
        vlan: Vlan::None,
        mtu: 1_500,
        icmp_errors: IcmpErrors::All,
        addresses: vec![(OWN, Prefix4::of(OWN, 24))],
        ipv6: None,
        advertising: None,
        proxy: vec![Prefix4::of(POOL, 28).range()],
    }
}

fn config() -> HostConfig {
    HostConfig { interfaces: vec![interface()], neighbours_max: 2_000, ..HostConfig::default() }
}

/// A host whose announcements are over and thrown away, at second 10.
fn quiet() -> (Host, Now) {
    let mut host = Host::new(config(), Now::from_s(1));
    let now = Now::from_s(10);
    for ms in (1_000..10_000).step_by(50) {
        host.handle_timeout(Now::from_ms(ms));
    }
    sent(&mut host);
    assert_eq!(host.poll_timeout(), None);
    (host, now)
}

fn sent(host: &mut Host) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| host.poll_transmit()).map(|(_, frame)| frame).collect()
}

fn events(host: &mut Host) -> Vec<HostEvent> {
    std::iter::from_fn(|| host.poll_event()).collect()
}

fn arp_frame(operation: Operation, sender: (u32, MacAddr), target_ip: u32) -> Vec<u8> {
    let arp = ArpPacket { operation, ..ArpPacket::request(sender.1, sender.0, target_ip) };
    l2::frame(MacAddr::BROADCAST, sender.1, Vlan::None, ethertype::ARP, &arp.to_bytes())
}

fn arp_of(frame: &[u8]) -> (L2, ArpPacket) {
    let l2 = parse_l2(frame).unwrap();
    assert_eq!(l2.ethertype, ethertype::ARP);
    assert!(frame.len() >= 60);
    (l2, ArpPacket::parse(&frame[usize::from(l2.payload_offset)..]).unwrap())
}

fn known() -> HostEvent {
    HostEvent::NeighbourSet { interface: IF, ip: v4(PEER), mac: PEER_MAC }
}

fn gone() -> HostEvent {
    HostEvent::NeighbourGone { interface: IF, ip: v4(PEER) }
}

#[test]
fn own_address_is_answered_and_the_asker_is_learnt() {
    // RFC 826 "Packet Reception".
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Request, (PEER, PEER_MAC), OWN));
    let frames = sent(&mut host);
    let (l2, arp) = arp_of(&frames[0]);
    assert_eq!((l2.dst, l2.src), (PEER_MAC, OWN_MAC));
    let expected = ArpPacket {
        operation: Reply,
        sender_mac: OWN_MAC,
        sender_ip: OWN,
        target_mac: PEER_MAC,
        target_ip: PEER,
    };
    assert_eq!(arp, expected);
    assert_eq!(events(&mut host), [known()]);
    assert_eq!(frames.len(), 1);
}

#[test]
fn pool_address_is_answered_in_the_pools_name() {
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Request, (PEER, PEER_MAC), POOL));
    let (_, arp) = arp_of(&sent(&mut host)[0]);
    assert_eq!((arp.sender_ip, arp.sender_mac), (POOL, OWN_MAC));
    assert_eq!(host.counters().arp_answered_proxy, 1);
}

#[test]
fn other_addresses_are_not_answered_and_teach_nothing() {
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Request, (PEER, PEER_MAC), OWN + 77));
    assert!(sent(&mut host).is_empty() && events(&mut host).is_empty());
}

#[test]
fn probe_is_answered_but_not_learnt() {
    // RFC 5227 §2.1.1: a probe has no sender address; the answer tells the prober that the address is taken.
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Request, (0, PEER_MAC), OWN));
    let (l2, arp) = arp_of(&sent(&mut host)[0]);
    assert_eq!((l2.dst, arp.sender_ip, arp.target_ip), (PEER_MAC, OWN, 0));
    assert!(events(&mut host).is_empty());
    assert_eq!(host.neighbours(now).count(), 0);
}

#[test]
fn answers_carry_the_tags_of_their_interface() {
    for (vlan, tags, outer_type) in [
        (Vlan::Single(100), vec![100], [0x81, 0x00]),
        (Vlan::Double { outer: 7, inner: 8, dot1ad: true }, vec![7, 8], [0x88, 0xa8]),
        (Vlan::Double { outer: 7, inner: 8, dot1ad: false }, vec![7, 8], [0x81, 0x00]),
    ] {
        let mut tagged = config();
        tagged.interfaces[0].vlan = vlan;
        let mut host = Host::new(tagged, Now::from_s(1));
        host.handle_packet(Now::from_s(1), IF, &arp_frame(Request, (PEER, PEER_MAC), OWN));
        let frame = sent(&mut host).remove(0);
        assert_eq!(arp_of(&frame).0.tags(), tags);
        assert_eq!(frame[12..14], outer_type);
    }
}

#[test]
fn unsolicited_reply_teaches_nothing_but_a_known_neighbour_may_move() {
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Reply, (PEER, OTHER_MAC), OWN));
    assert!(events(&mut host).is_empty());
    host.handle_packet(now, IF, &arp_frame(Request, (PEER, PEER_MAC), OWN));
    // A gratuitous ARP of the peer's new card (RFC 826: the new hardware address supersedes the old one).
    host.handle_packet(now, IF, &arp_frame(Request, (PEER, OTHER_MAC), PEER));
    let moved = HostEvent::NeighbourSet { interface: IF, ip: v4(PEER), mac: OTHER_MAC };
    assert_eq!(events(&mut host), [known(), moved]);
}

#[test]
fn resolving_asks_three_times_a_second_apart_then_gives_up_and_recovers() {
    // RFC 1122 §2.3.2.1: at most one request a second for an address.
    let (mut host, now) = quiet();
    host.handle_resolve(now, IF, v4(PEER));
    let (l2, arp) = arp_of(&sent(&mut host)[0]);
    assert_eq!((l2.dst, arp.sender_ip, arp.target_ip), (MacAddr::BROADCAST, OWN, PEER));
    for s in 11..=12 {
        host.handle_resolve(now, IF, v4(PEER));
        host.handle_timeout(Now::from_ms(s * 1_000 - 1));
        assert!(sent(&mut host).is_empty());
        assert_eq!(host.poll_timeout(), Some(Now::from_s(s)));
        host.handle_timeout(Now::from_s(s));
        assert_eq!(sent(&mut host).len(), 1);
    }
    assert!(events(&mut host).is_empty());
    host.handle_timeout(Now::from_s(13));
    assert_eq!(events(&mut host), [gone()]);
    // For a while nobody is asked, then it starts anew.
    host.handle_resolve(Now::from_s(14), IF, v4(PEER));
    assert_eq!((events(&mut host), sent(&mut host).len()), (vec![gone()], 0));
    host.handle_timeout(Now::from_s(16));
    host.handle_resolve(Now::from_s(16), IF, v4(PEER));
    assert_eq!(sent(&mut host).len(), 1);
    host.handle_packet(Now::from_s(16), IF, &arp_frame(Reply, (PEER, PEER_MAC), OWN));
    assert_eq!(events(&mut host), [known()]);
    host.handle_resolve(Now::from_s(17), IF, v4(PEER));
    assert_eq!(events(&mut host), [known()]);
}

#[test]
fn neighbour_is_refreshed_by_unicast_and_stays_while_it_answers() {
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Request, (PEER, PEER_MAC), OWN));
    sent(&mut host);
    events(&mut host);
    let due = host.poll_timeout().unwrap();
    assert!(due <= Now::from_s(310) && due >= Now::from_s(270), "{due:?}");
    host.handle_timeout(due);
    let (l2, arp) = arp_of(&sent(&mut host)[0]);
    assert_eq!((l2.dst, arp.target_mac), (PEER_MAC, PEER_MAC));
    assert_eq!(host.neighbours(due).next().unwrap().state, NeighbourState::Probing);
    host.handle_packet(due, IF, &arp_frame(Reply, (PEER, PEER_MAC), OWN));
    assert!(events(&mut host).is_empty(), "nothing changed for the workers");
    assert_eq!(host.neighbours(due).next().unwrap().state, NeighbourState::Reachable);
}

#[test]
fn silent_neighbour_is_gone_after_its_last_try() {
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Request, (PEER, PEER_MAC), OWN));
    events(&mut host);
    for _ in 0..3 {
        let due = host.poll_timeout().unwrap();
        host.handle_timeout(due);
        assert!(events(&mut host).is_empty());
    }
    host.handle_timeout(host.poll_timeout().unwrap());
    assert_eq!(events(&mut host), [gone()]);
    assert_eq!(host.counters().neighbours_failed, 1);
}

#[test]
fn scan_of_a_subnet_fills_no_more_than_the_pending_table() {
    let mut wide = config();
    wide.interfaces[0].addresses = vec![(OWN, Prefix4::of(OWN, 8))];
    let mut host = Host::new(wide, Now::from_s(1));
    for ip in 0..3_000 {
        host.handle_resolve(Now::from_s(1), IF, v4(OWN + 100 + ip));
    }
    assert_eq!(host.neighbours(Now::from_s(1)).count(), PENDING_MAX);
    assert_eq!(host.counters().neighbours_pending_full, 3_000 - PENDING_MAX as u64);
}

#[test]
fn full_table_refuses_strangers_keeps_neighbours_and_reuses_failures() {
    let mut small = config();
    small.neighbours_max = 2;
    let mut host = Host::new(small, Now::from_s(1));
    host.handle_packet(Now::from_s(1), IF, &arp_frame(Request, (PEER, PEER_MAC), OWN));
    host.handle_resolve(Now::from_s(1), IF, v4(PEER + 1));
    host.handle_packet(Now::from_s(1), IF, &arp_frame(Request, (PEER + 2, OTHER_MAC), OWN));
    assert_eq!(events(&mut host), [known()]);
    assert_eq!(host.counters().neighbours_full, 1);
    for s in 2..=4 {
        host.handle_timeout(Now::from_s(s));
    }
    host.handle_packet(Now::from_s(4), IF, &arp_frame(Request, (PEER + 2, OTHER_MAC), OWN));
    let ips: Vec<IpAddr> = host.neighbours(Now::from_s(4)).map(|row| row.ip).collect();
    assert_eq!(ips, [PEER, PEER + 2].map(v4));
}

#[test]
fn start_announces_own_addresses_twice_and_pools_only_on_link() {
    // RFC 5227 §2.3: two announcements two seconds apart.
    let mut host = Host::new(config(), Now::from_s(1));
    assert_eq!(host.poll_timeout(), Some(Now::from_s(1)));
    host.handle_timeout(Now::from_s(1));
    let (l2, arp) = arp_of(&sent(&mut host)[0]);
    assert_eq!((l2.dst, arp.operation), (MacAddr::BROADCAST, Request));
    assert_eq!((arp.sender_ip, arp.target_ip), (OWN, OWN));
    assert!(sent(&mut host).is_empty(), "the pool is not on this subnet");
    assert_eq!(host.poll_timeout(), Some(Now::from_s(3)));
    host.handle_timeout(Now::from_s(3));
    assert_eq!(sent(&mut host).len(), 1);
    assert_eq!(host.poll_timeout(), None);
}

#[test]
fn large_pool_on_link_is_announced_in_small_steps_up_to_a_bound() {
    let mut wide = config();
    wide.interfaces[0].addresses = vec![(OWN, Prefix4::of(OWN, 8))];
    wide.interfaces[0].proxy = vec![Prefix4::of(0x0a80_0000, 16).range()];
    let mut host = Host::new(wide, Now::from_s(1));
    let mut total = 0;
    while let Some(due) = host.poll_timeout() {
        host.handle_timeout(due);
        let step = sent(&mut host).len();
        assert!(step <= 16);
        total += step;
    }
    assert_eq!(total, 2 * (1_024 + 1));
}

#[test]
fn reconfiguring_announces_only_what_is_new() {
    let (mut host, now) = quiet();
    let mut changed = config();
    changed.interfaces[0].addresses.push((0x0a00_0101, Prefix4::of(0x0a00_0101, 24)));
    host.configure(changed, now);
    host.handle_timeout(now);
    let frames = sent(&mut host);
    assert_eq!(frames.len(), 1);
    assert_eq!(arp_of(&frames[0]).1.sender_ip, 0x0a00_0101);
}

#[test]
fn reconfiguring_drops_neighbours_of_a_removed_interface_and_keeps_the_others() {
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Request, (PEER, PEER_MAC), OWN));
    events(&mut host);
    host.configure(config(), now);
    assert!(events(&mut host).is_empty());
    host.configure(HostConfig::default(), now);
    assert_eq!(events(&mut host), [gone()]);
    assert_eq!(host.neighbours(now).count(), 0);
    assert_eq!(host.poll_timeout(), None);
}

#[test]
fn address_conflict_is_told_and_defended_once_in_ten_seconds() {
    // RFC 5227 §2.4 (b).
    let (mut host, now) = quiet();
    let claim = arp_frame(Request, (OWN, OTHER_MAC), OWN);
    for s in 0..10 {
        host.handle_packet(now.plus_ns(s * 1_000_000_000), IF, &claim);
    }
    let conflict = HostEvent::AddressConflict { interface: IF, ip: v4(OWN), mac: OTHER_MAC };
    assert_eq!(events(&mut host), [conflict]);
    let frames = sent(&mut host);
    assert_eq!(frames.len(), 1);
    assert_eq!(arp_of(&frames[0]).1.sender_ip, OWN);
    host.handle_packet(now.plus_ns(10_000_000_000), IF, &claim);
    assert_eq!((events(&mut host).len(), host.counters().arp_conflicts), (1, 11));
}

#[test]
fn own_frames_that_come_back_are_no_conflict() {
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &arp_frame(Request, (OWN, OWN_MAC), OWN));
    assert_eq!(host.counters().arp_conflicts, 0);
    assert!(sent(&mut host).is_empty());
}

#[test]
fn bad_arp_is_ignored_and_counted() {
    let (mut host, now) = quiet();
    let good = arp_frame(Request, (PEER, PEER_MAC), OWN);
    for (at, value) in [(15, 6), (17, 0xdd), (18, 8), (19, 16), (21, 9), (22, 0xff)] {
        let mut bad = good.clone();
        bad[at] = value;
        host.handle_packet(now, IF, &bad);
    }
    host.handle_packet(now, IF, &good[..40]);
    assert_eq!(host.counters().arp_malformed, 7);
    assert!(sent(&mut host).is_empty() && events(&mut host).is_empty());
}

fn echo_frame(src: u32, dst: u32, data: &[u8]) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
    message.extend_from_slice(data);
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = Ipv4Header {
        tos: 0x2b,
        payload_len: message.len() as u16,
        identification: 7,
        flags_and_offset: 0,
        ttl: 3,
        protocol: 1,
        src,
        dst,
    };
    let packet = [&header.to_bytes()[..], &message].concat();
    l2::frame(OWN_MAC, PEER_MAC, Vlan::None, ethertype::IPV4, &packet)
}

#[test]
fn echo_is_answered_the_way_it_came_with_its_data() {
    // RFC 792; RFC 1812 §4.3.3.6; the asker is no neighbour, its frame came through a gateway.
    let (mut host, now) = quiet();
    host.handle_packet(now, IF, &echo_frame(0xcb00_7105, OWN, b"odd data!"));
    let frame = sent(&mut host).remove(0);
    let l2 = parse_l2(&frame).unwrap();
    assert_eq!((l2.dst, l2.src), (PEER_MAC, OWN_MAC));
    let reply = Ipv4View::parse(&frame[14..]).unwrap();
    assert!(reply.checksum_ok() && checksum::verify(reply.payload()));
    assert_eq!((reply.src(), reply.dst(), reply.ttl(), reply.tos()), (OWN, 0xcb00_7105, 64, 0x28));
    assert_eq!(reply.payload()[..2], [0, 0]);
    assert_eq!(reply.payload()[4..], *b"\x12\x34\0\x01odd data!");
}

#[test]
fn echo_to_another_interfaces_address_is_answered_only_in_the_same_routing_instance() {
    let mut two = config();
    let other = |id, vrf, ip| HostInterface {
        id: IfIndex(id),
        vrf: VrfId(vrf),
        addresses: vec![(ip, Prefix4::of(ip, 24))],
        ipv6: None,
        advertising: None,
        proxy: Vec::new(),
        ..interface()
    };
    two.interfaces.extend([other(4, 0, 0x0b00_0001), other(5, 1, 0x0c00_0001)]);
    let mut host = Host::new(two, Now::from_s(1));
    host.handle_packet(Now::from_s(1), IF, &echo_frame(PEER, 0x0b00_0001, b""));
    host.handle_packet(Now::from_s(1), IF, &echo_frame(PEER, 0x0c00_0001, b""));
    assert_eq!((host.counters().echo_answered, host.counters().unhandled), (1, 1));
}

#[test]
fn echo_that_is_broken_forged_or_not_for_us_gets_no_reply() {
    let (mut host, now) = quiet();
    let mut broken = echo_frame(PEER, OWN, b"data");
    *broken.last_mut().unwrap() ^= 1;
    // The frame is padded to 60 bytes: the flipped bit must be inside the message.
    broken[43] ^= 1;
    host.handle_packet(now, IF, &broken);
    assert_eq!(host.counters().icmp_malformed, 1);
    for (src, dst) in [
        (PEER, PEER + 1),
        (OWN, OWN),
        (0x7f00_0001, OWN),
        (0xe000_0001, OWN),
        (0x0a00_00ff, OWN),
        (0, OWN),
        (PEER, 0x0a00_00ff),
        (PEER, POOL),
    ] {
        host.handle_packet(now, IF, &echo_frame(src, dst, b""));
    }
    assert!(sent(&mut host).is_empty());
    assert_eq!(host.counters().unhandled, 8);
}

/// RFC 5508 REQ-10c, RFC 1812 §4.3.3.3, §4.3.3.7.
#[test]
fn information_requests_and_source_quenches_get_no_reply() {
    let (mut host, now) = quiet();
    for kind in [15, 4] {
        let mut frame = echo_frame(PEER, OWN, b"data");
        let sum = u16::from_be_bytes([frame[36], frame[37]]);
        let by = carrack_wire::checksum::Delta::of_u16(0x0800, kind << 8);
        frame[34] = kind as u8;
        frame[36..38].copy_from_slice(&by.apply(sum).to_be_bytes());
        host.handle_packet(now, IF, &frame);
    }
    assert!(sent(&mut host).is_empty());
    assert_eq!((host.counters().icmp_malformed, host.counters().unhandled), (0, 2));
}

#[test]
fn resolving_the_impossible_fails_at_once() {
    let (mut host, now) = quiet();
    host.handle_resolve(now, IfIndex(77), v4(PEER));
    host.handle_resolve(now, IF, v4(OWN));
    assert_eq!(events(&mut host).len(), 2);
    assert_eq!(host.neighbours(now).count(), 0);
}

proptest! {
    #[test]
    fn any_bytes_at_all_neither_panic_nor_grow_anything(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..50),
    ) {
        let (mut host, mut now) = quiet();
        for (mut frame, kind) in frames.into_iter().zip([[8, 6], [8, 0], [0x81, 0]].into_iter().cycle()) {
            if let Some(at) = frame.get_mut(12..14) {
                at.copy_from_slice(&kind);
            }
            now = now.plus_ns(1_000_000);
            host.handle_packet(now, IF, &frame);
            host.handle_timeout(now);
            prop_assert!(sent(&mut host).len() <= 2);
            prop_assert!(events(&mut host).len() <= 1);
        }
    }
}
