//! Fragments: in any order, both directions, bounded (RFC 4787 REQ-14).

mod common;

use carrack_base::Reason;
use carrack_wire::tcp::flag;
use common::check::{reassemble, whole_is_right};
use common::*;

const REMOTE: &str = "198.51.100.7:53";

/// A shuffle that is the same each time.
fn shuffled<T>(mut items: Vec<T>, seed: u64) -> Vec<T> {
    let mut state = seed | 1;
    for at in (1..items.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(at, (state >> 33) as usize % (at + 1));
    }
    items
}

/// Opens a mapping and gives its outside endpoint.
fn open(world: &mut World) -> String {
    world.pass(IN, &udp(IN, "10.0.0.5:1000", REMOTE)).src()
}

#[track_caller]
fn judge(sent: &[Sent], len: usize, flow: (&str, &str)) -> u16 {
    let (id, whole) = reassemble(sent);
    assert_eq!(whole.len(), len + 8);
    let first = sent.iter().find(|s| s.ip().fragment_offset() == 0).unwrap();
    whole_is_right(first, &whole);
    assert_eq!((first.src().as_str(), first.dst().as_str()), flow);
    id
}

/// RFC 4787 REQ-14.
#[test]
fn fragments_in_any_order_pass_outward() {
    for seed in 0..20 {
        let mut world = world();
        let outside = open(&mut world);
        let pieces = shuffled(fragments(IN, "10.0.0.5:1000", REMOTE, 77, 5_000, 800), seed);
        let mut sent = vec![];
        for piece in &pieces {
            sent.extend(world.send(IN, piece));
        }
        let id = judge(&sent, 5_000, (&outside, REMOTE));
        // RFC 6864 §5.3.1.
        assert_ne!(id, 77);
        assert_eq!(world.held(), 0);
    }
}

/// RFC 4787 REQ-14, in one burst, inward.
#[test]
fn fragments_in_any_order_pass_inward() {
    for seed in 0..20 {
        let mut world = world();
        let outside = open(&mut world);
        let pieces = shuffled(fragments(OUT, REMOTE, &outside, 77, 5_000, 800), seed);
        let sent = world.burst(OUT, &pieces);
        assert_eq!(judge(&sent, 5_000, (REMOTE, "10.0.0.5:1000")), 77);
    }
}

#[test]
fn fragments_open_a_session_as_whole_packets_do() {
    let mut world = world();
    let mut pieces = fragments(IN, "10.0.0.5:1000", REMOTE, 1, 3_000, 1_480);
    pieces.reverse();
    let sent = world.burst(IN, &pieces);
    assert_eq!((sent.len(), world.sessions()), (3, 1));
}

#[test]
fn fragments_of_several_datagrams_interleaved_keep_apart() {
    let mut world = world();
    let mut pieces = vec![];
    for (n, host) in ["10.0.0.5", "10.0.0.6", "10.0.0.7"].iter().enumerate() {
        // The same identification at three hosts: behind one address they must differ
        // (RFC 6864 §5.3.1, RFC 7857 §10).
        let src = format!("{host}:{}", 1_000 + n);
        pieces.extend(fragments(IN, &src, REMOTE, 5, 2_000 + n * 800, 800));
    }
    let sent = world.burst(IN, &shuffled(pieces, 4));
    let mut ids: Vec<u16> = sent.iter().map(|s| s.ip().identification()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    for id in ids {
        let of: Vec<_> = sent.iter().filter(|s| s.ip().identification() == id).cloned().collect();
        let (_, whole) = reassemble(&of);
        whole_is_right(of.iter().find(|s| s.ip().fragment_offset() == 0).unwrap(), &whole);
    }
}

#[test]
fn a_datagram_of_64_kib_in_45_fragments_passes_with_its_first_one_last() {
    let mut world = world();
    let outside = open(&mut world);
    let len = 65_535 - 20 - 8;
    let mut pieces = fragments(IN, "10.0.0.5:1000", REMOTE, 3, len, 1_480);
    assert_eq!(pieces.len(), 45);
    pieces.rotate_left(1);
    let mut sent = vec![];
    for piece in &pieces {
        sent.extend(world.send(IN, piece));
    }
    judge(&sent, len, (&outside, REMOTE));
}

/// The burst has no room behind the first fragment: the rest follows in the next ones.
#[test]
fn a_full_burst_whose_first_fragment_releases_many_loses_none() {
    let mut world = world();
    let outside = open(&mut world);
    let mut pieces = fragments(IN, "10.0.0.5:1000", REMOTE, 3, 40_000, 1_000);
    let first = pieces.remove(0);
    assert!(world.burst(IN, &pieces).is_empty());
    assert_eq!(world.held(), 40);
    let mut burst = vec![udp(IN, "10.0.0.6:1", REMOTE); 63];
    burst.insert(30, first);
    let sent = world.burst(IN, &burst);
    assert_eq!(sent.len(), 63 + 41);
    let of: Vec<_> = sent.into_iter().filter(|s| s.ip().is_fragment()).collect();
    judge(&of, 40_000, (&outside, REMOTE));
    assert_eq!(world.held(), 0);
}

#[test]
fn tcp_and_icmp_in_fragments_pass_with_the_session_of_their_first_one() {
    let mut world = world();
    world.pass(IN, &tcp(IN, "10.0.0.5:1000", "198.51.100.7:80", flag::SYN));
    let segment =
        packet(IN, "10.0.0.5", "198.51.100.7").tcp(1_000, 80, flag::ACK).payload(&[9; 2_000]).build();
    let mut sent = vec![];
    for piece in cut(IN, "10.0.0.5", "198.51.100.7", 6, 8, &segment[34..], 1_000).iter().rev() {
        sent.extend(world.send(IN, piece));
    }
    let (_, whole) = reassemble(&sent);
    whole_is_right(&sent[0], &whole);

    let query = packet(IN, "10.0.0.5", "198.51.100.7").echo_request(5, 1).payload(&[9; 2_000]).build();
    let mut sent = vec![];
    for piece in cut(IN, "10.0.0.5", "198.51.100.7", 1, 9, &query[34..], 1_000).iter().rev() {
        sent.extend(world.send(IN, piece));
    }
    let (_, whole) = reassemble(&sent);
    whole_is_right(&sent[0], &whole);
    // And the answer.
    let id = u16::from_be_bytes([whole[4], whole[5]]);
    let reply = packet(OUT, "198.51.100.7", POOL).echo_reply(id, 1).payload(&[9; 2_000]).build();
    let sent = world.burst(OUT, &cut(OUT, "198.51.100.7", POOL, 1, 9, &reply[34..], 1_000));
    let (_, whole) = reassemble(&sent);
    whole_is_right(&sent[0], &whole);
    assert_eq!(sent[0].dst(), "10.0.0.5:5");
}

/// Through a hairpin both legs find their sessions by the first fragment.
#[test]
fn fragments_pass_a_hairpin() {
    let mut world = world();
    let called = open(&mut world);
    let pieces = shuffled(fragments(IN, "10.0.0.6:2000", &called, 3, 4_000, 800), 3);
    let sent = world.burst(IN, &pieces);
    let (_, whole) = reassemble(&sent);
    let first = sent.iter().find(|s| s.ip().fragment_offset() == 0).unwrap();
    whole_is_right(first, &whole);
    assert_eq!((first.dst().as_str(), first.addresses().0.as_str()), ("10.0.0.5:1000", POOL));
}

#[test]
fn a_fragment_whose_first_one_never_comes_is_dropped_in_time() {
    let mut world = world();
    let pieces = fragments(IN, "10.0.0.5:1000", REMOTE, 3, 4_000, 800);
    assert!(world.burst(IN, &pieces[1..]).is_empty());
    assert_eq!(world.held(), 5);
    assert!(world.wait_ms(1_900).is_empty());
    assert_eq!(world.held(), 5);
    assert!(world.wait_ms(200).is_empty());
    assert_eq!(world.new_drops(), [(Reason::FragmentTimeout, 5)]);
    // What comes later waits for its own time.
    assert!(world.send(IN, &pieces[1]).is_empty());
    assert_eq!(world.held(), 1);
}

#[test]
fn a_full_table_drops_new_datagrams_and_recovers() {
    let mut world = world();
    let one = |id: u16| fragments(IN, "10.0.0.5:1000", REMOTE, id, 2_000, 1_000).remove(1);
    for id in 0..SIZES.nat.fragments as u16 {
        assert!(world.send(IN, &one(id)).is_empty());
    }
    assert_eq!(world.new_drops(), []);
    world.dropped(IN, &one(9_999), Reason::FragmentTableFull);
    // Whole packets do not care.
    world.pass(IN, &udp(IN, "10.0.0.6:1", REMOTE));
    world.wait_ms(2_100);
    world.new_drops();
    assert!(world.send(IN, &one(9_999)).is_empty());
    assert_eq!(world.new_drops(), []);
}

#[test]
fn a_full_queue_drops_fragments_and_hurts_no_whole_packet() {
    let mut world = world();
    let mut count = 0;
    for id in 0..6 {
        let pieces = fragments(IN, "10.0.0.5:1000", REMOTE, id, 24_000, 1_000);
        count += pieces.len() - 1;
        world.burst(IN, &pieces[1..]);
    }
    let over = count as u64 - u64::from(SIZES.nat.held_fragments);
    assert_eq!(world.new_drops(), [(Reason::FragmentQueueFull, over)]);
    world.pass(IN, &udp(IN, "10.0.0.6:1", REMOTE));
}

#[test]
fn one_datagram_keeps_64_fragments_waiting_and_no_more() {
    let mut world = world();
    let pieces = fragments(IN, "10.0.0.5:1000", REMOTE, 1, 56_000, 800);
    let (head, tail) = pieces[1..].split_at(60);
    world.burst(IN, head);
    world.burst(IN, tail);
    assert_eq!(world.held(), 64);
    assert_eq!(world.new_drops(), [(Reason::FragmentQueueFull, tail.len() as u64 - 4)]);
}

/// RFC 1858 §4: a second first fragment with other ports.
#[test]
fn a_first_fragment_that_contradicts_the_one_before_is_dropped() {
    let mut world = world();
    let honest = fragments(IN, "10.0.0.5:1000", REMOTE, 1, 3_000, 800);
    let forged = fragments(IN, "10.0.0.5:1001", REMOTE, 1, 3_000, 800);
    world.pass(IN, &honest[0]);
    world.dropped(IN, &forged[0], Reason::FragmentOverlap);
    for piece in &honest[1..] {
        world.pass(IN, piece);
    }
}

/// A fragment that came twice cannot stand in for one that is still missing.
#[test]
fn a_doubled_fragment_does_not_end_the_datagram_early() {
    let mut world = world();
    let pieces = fragments(IN, "10.0.0.5:1000", REMOTE, 1, 3_992, 1_000);
    let order = [0, 1, 1, 3, 2];
    let sent: Vec<_> = order.iter().map(|at| world.pass(IN, &pieces[*at])).collect();
    reassemble(&sent);
}

#[test]
fn complete_datagrams_leave_the_table_at_once() {
    let mut world = world();
    // More than the table and its order hold, within no time.
    for id in 0..20 * SIZES.nat.fragments as u16 {
        let pieces = fragments(IN, "10.0.0.5:1000", REMOTE, id, 2_000, 1_000);
        assert_eq!(world.burst(IN, &pieces).len(), 3, "datagram {id}: {:?}", world.new_drops());
    }
}

/// Ports learned for one datagram are not those of the next in its place.
#[test]
fn datagrams_of_one_identification_one_after_the_other_keep_their_ports() {
    let mut world = world();
    for port in [1_000, 1_001, 1_002] {
        let src = format!("10.0.0.5:{port}");
        let sent = world.burst(IN, &fragments(IN, &src, REMOTE, 1, 2_000, 1_000));
        reassemble(&sent);
    }
    assert_eq!(world.sessions(), 3);
}

#[test]
fn fragments_between_plain_interfaces_pass_as_they_are() {
    let mut world = world();
    let pieces = fragments(TAGGED, "172.16.0.5:1000", "198.51.100.7:53", 6, 3_000, 800);
    for piece in pieces[1..].iter().chain(&pieces[..1]) {
        let sent = world.pass(TAGGED, piece);
        assert_eq!(sent.ip().identification(), 6);
    }
}

#[test]
fn fragments_to_exempt_destinations_pass_untranslated() {
    let mut world = world();
    let mut pieces = fragments(IN, "10.0.0.5:1000", "203.0.113.9:53", 6, 3_000, 800);
    pieces.reverse();
    let sent = world.burst(IN, &pieces);
    assert_eq!(judge(&sent, 3_000, ("10.0.0.5:1000", "203.0.113.9:53")), 6);
}

/// RFC 4787 REQ-14, REQ-14a: a flood of fragments hurts nobody else.
#[test]
fn a_flood_of_fragments_leaves_whole_packets_alone() {
    let mut world = world();
    for round in 0..200u16 {
        let mut burst: Vec<_> = (0..63)
            .map(|n| fragments(OUT, "203.0.114.7:53", "192.0.2.1:9", round * 63 + n, 2_000, 1_000).remove(1))
            .collect();
        burst.push(udp(OUT, "203.0.114.7:53", "172.16.0.5:9"));
        assert_eq!(world.burst(OUT, &burst).len(), 1);
    }
}
