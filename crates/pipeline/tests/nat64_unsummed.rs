//! UDP without a checksum that comes to a NAT64 in pieces: it gets one once all of them are there.

mod common;

use carrack_base::Reason;
use carrack_wire::UdpView;
use carrack_xlat::{Rules, ZeroUdp};
use common::net6::*;
use common::*;
use etherparse::UdpHeaderSlice;

const A: &str = "2001:db8:1::5";
const SERVER: &str = "203.0.113.80";
const SERVER6: &str = "2001:db8:64::203.0.113.80";
/// An odd number, which the last piece has as well.
const DATA_LEN: usize = 1_001;

fn data() -> Vec<u8> {
    (0..DATA_LEN).map(|n| (n * 7 + n / 251) as u8).collect()
}

/// A world with a session of `A`, and its outside port.
fn opened(workers: u8) -> (World, u16) {
    let mut world = World::new(workers, SIZES, HANDOVER_SLOTS, |s| {
        add_ipv6(s);
        serve_six(s);
    });
    for (interface, text) in STATIONS6 {
        world.know6(*interface, text);
    }
    let outside = world.pass(IN, &packet6(IN, A, SERVER6).udp(1_000, 53).build()).src();
    (world, port_of(&outside))
}

/// A datagram without checksum in pieces of so many bytes.
fn unsummed(dport: u16, id: u16, data: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let whole = packet(OUT, SERVER, POOL).udp_without_checksum(53, dport).payload(data).build();
    cut(OUT, SERVER, POOL, 17, id, &whole[34..], piece)
}

fn summed(dport: u16, id: u16, data: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let whole = packet(OUT, SERVER, POOL).udp(53, dport).payload(data).build();
    cut(OUT, SERVER, POOL, 17, id, &whole[34..], piece)
}

fn send_all(world: &mut World, frames: &[Vec<u8>]) -> Vec<Sent> {
    let mut sent: Vec<Sent> = frames.iter().flat_map(|frame| world.send(OUT, frame)).collect();
    sent.extend(world.turn());
    sent
}

fn packets(sent: &[Sent]) -> Vec<Vec<u8>> {
    sent.iter().map(|sent| sent.ip6().packet().to_vec()).collect()
}

/// Puts fragments together in the order in which they left: the identification, and the datagram, whose
/// checksum two readers find right.
#[track_caller]
fn together(sent: &[Sent]) -> (u32, Vec<u8>) {
    let (mut whole, mut ids) = (vec![], vec![]);
    for (at, piece) in sent.iter().enumerate() {
        let header = piece.ip6().extensions().unwrap().fragment.unwrap();
        assert_eq!((usize::from(header.offset), header.more), (whole.len(), at + 1 < sent.len()));
        ids.push(header.identification);
        whole.extend_from_slice(&piece.ip6().payload()[8..]);
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let (src, dst) = (sent[0].ip6().src(), sent[0].ip6().dst());
    assert_ne!(whole[6..8], [0, 0]);
    assert!(UdpView::parse(&whole).unwrap().checksum_ok_v6(src, dst));
    let header = UdpHeaderSlice::from_slice(&whole).unwrap().to_header();
    let right = header.calc_checksum_ipv6_raw(src.to_be_bytes(), dst.to_be_bytes(), &whole[8..]).unwrap();
    assert_eq!(header.checksum, right, "etherparse: UDP checksum");
    (ids[0], whole)
}

/// RFC 6146 §3.4 (unsummed): whatever the order, and whichever workers have the fragments and the host.
#[test]
fn it_goes_on_with_a_checksum_once_all_of_it_is_there() {
    for workers in [1, 3] {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1]] {
            let (mut world, outside) = opened(workers);
            let pieces = unsummed(outside, 5, &data(), 264);
            let last = pieces[order[3]].clone();
            for at in &order[..3] {
                assert!(world.send(OUT, &pieces[*at]).is_empty(), "{order:?}");
            }
            assert_eq!(world.held(), 3);
            let sent = send_all(&mut world, &[last]);
            assert_eq!(sent.len(), 4, "{workers} {order:?} {:?}", world.new_drops());
            let (id, whole) = together(&sent);
            assert_eq!((id, &whole[8..]), (5, &data()[..]));
            assert_eq!(whole[..4], [53_u16.to_be_bytes(), 1_000_u16.to_be_bytes()].concat());
            assert_eq!((world.held(), world.new_drops(), world.sessions()), (0, vec![], 1));
            // The network's other datagrams of this number are others.
            let again = send_all(&mut world, &pieces);
            assert_eq!(packets(&again), packets(&sent));
        }
    }
}

/// Sizes, fragment headers, ports and the checksum itself are those of the same datagram whose sender has
/// summed it.
#[test]
fn it_becomes_what_it_would_have_become_with_a_checksum() {
    for (len, piece) in [(1_001, 264), (2_900, 1_480), (4_000, 1_480), (20, 8), (40_000, 1_000)] {
        let (mut world, outside) = opened(1);
        let data: Vec<u8> = (0..len).map(|n| (n * 5 + n / 253) as u8).collect();
        let expected = send_all(&mut world, &summed(outside, 6, &data, piece));
        let mut pieces = unsummed(outside, 6, &data, piece);
        assert_eq!(packets(&send_all(&mut world, &pieces)), packets(&expected), "{len} in {piece}");
        pieces.reverse();
        assert_eq!(packets(&send_all(&mut world, &pieces)), packets(&expected), "{len} in {piece}");
        assert_eq!(world.new_drops(), []);
    }
}

#[test]
fn datagrams_that_interleave_keep_apart() {
    let (mut world, outside) = opened(1);
    let other: Vec<u8> = data().iter().map(|byte| !byte).collect();
    let (first, second) = (unsummed(outside, 7, &data(), 264), unsummed(outside, 8, &other, 264));
    let mixed: Vec<_> =
        first.iter().zip(second.iter().rev()).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let sent = world.burst(OUT, &mixed);
    assert_eq!(sent.len(), 8, "{:?}", world.new_drops());
    let id = |sent: &&Sent| sent.ip6().extensions().unwrap().fragment.unwrap().identification;
    for (number, data) in [(7, &data()), (8, &other)] {
        let of: Vec<Sent> = sent.iter().filter(|sent| id(sent) == number).cloned().collect();
        assert_eq!(together(&of).1[8..], data[..]);
    }
}

/// The burst has room for the last fragment alone: the others of its datagram follow with the next one.
#[test]
fn a_full_burst_that_makes_a_datagram_whole_loses_none() {
    let (mut world, outside) = opened(1);
    let data = vec![3; 40_000];
    let mut pieces = unsummed(outside, 9, &data, 1_000);
    let last = pieces.pop().unwrap();
    assert!(world.burst(OUT, &pieces).is_empty());
    let other = packet(OUT, SERVER, POOL).udp(53, outside).build();
    let mut burst = vec![other; 63];
    burst.insert(30, last);
    let sent = world.burst(OUT, &burst);
    let pieces: Vec<Sent> = sent.into_iter().filter(|sent| sent.ip6().next_header() == 44).collect();
    assert_eq!(together(&pieces).1[8..], data[..]);
    assert_eq!((world.held(), world.new_drops()), (0, vec![]));
}

/// RFC 6146 §3.8: also to a host that a neighbour reaches by its outside endpoint.
#[test]
fn an_ipv4_neighbour_reaches_an_ipv6_host_by_hairpin() {
    let (mut world, outside) = opened(1);
    let whole = packet(IN, "10.0.0.5", POOL).udp_without_checksum(53, outside).payload(&data()).build();
    let pieces = cut(IN, "10.0.0.5", POOL, 17, 10, &whole[34..], 264);
    let sent: Vec<Sent> = pieces.iter().rev().flat_map(|piece| world.send(IN, piece)).collect();
    assert_eq!(sent.len(), 4, "{:?}", world.new_drops());
    assert_eq!(together(&sent).1[8..], data()[..]);
}

#[test]
fn one_that_lacks_a_fragment_is_discarded_in_time() {
    for missing in 0..4 {
        let (mut world, outside) = opened(1);
        let mut pieces = unsummed(outside, 11, &data(), 264);
        pieces.remove(missing);
        assert!(send_all(&mut world, &pieces).is_empty());
        assert!(world.wait_ms(1_900).is_empty());
        assert_eq!((world.held(), world.new_drops()), (3, vec![]));
        assert!(world.wait_ms(200).is_empty());
        assert_eq!((world.held(), world.new_drops()), (0, vec![(Reason::FragmentTimeout, 3)]));
    }
}

/// RFC 8200 §4.5, as of IPv6: what comes twice is dropped alone; what overlaps ends its datagram, with what
/// is still to come.
#[test]
fn what_overlaps_is_discarded_whole_and_what_is_doubled_alone() {
    let (mut world, outside) = opened(1);
    let pieces = unsummed(outside, 12, &data(), 264);
    assert!(send_all(&mut world, &pieces[..2]).is_empty());
    for piece in &pieces[..2] {
        world.dropped(OUT, piece, Reason::FragmentOverlap);
    }
    assert_eq!(together(&send_all(&mut world, &pieces[2..])).1[8..], data()[..]);

    // Eight bytes further back, other bytes at the same place, beyond the end, a second end, an end before
    // others.
    let odd = |at: u16, more, len| {
        let bytes = vec![9; len];
        let piece = packet(OUT, SERVER, POOL).protocol(17).identification(13).fragment(at, more);
        piece.payload(&bytes).build()
    };
    let (last, rest) = (3, [0, 1, 3]);
    let before = [
        odd(520, true, 264),
        odd(264, true, 264),
        odd(1_056, true, 8),
        odd(800, false, 264),
        odd(528, false, 8),
    ];
    for overlapping in before {
        let (mut world, outside) = opened(1);
        let pieces = unsummed(outside, 13, &data(), 264);
        for at in rest {
            assert!(world.send(OUT, &pieces[at]).is_empty());
        }
        assert!(world.send(OUT, &overlapping).is_empty());
        assert_eq!((world.held(), world.new_drops()), (0, vec![(Reason::FragmentOverlap, 4)]));
        world.dropped(OUT, &pieces[2], Reason::FragmentOverlap);
        world.dropped(OUT, &pieces[last], Reason::FragmentOverlap);
        // In time the number is free again.
        world.wait_ms(2_100);
        assert_eq!(send_all(&mut world, &pieces).len(), 4, "{:?}", world.new_drops());
    }
}

/// RFC 768: a length beyond what is there is no datagram, and what is behind it is not summed.
#[test]
fn the_length_that_it_states_counts() {
    for (more, is_good) in [(1_i32, false), (-7, true), (-2_000, false)] {
        let (mut world, outside) = opened(1);
        let mut whole = packet(OUT, SERVER, POOL).udp_without_checksum(53, outside).payload(&data()).build();
        let stated = ((DATA_LEN + 8) as i32 + more).max(0) as u16;
        whole[38..40].copy_from_slice(&stated.to_be_bytes());
        let sent = send_all(&mut world, &cut(OUT, SERVER, POOL, 17, 14, &whole[34..], 264));
        if is_good {
            let mut bytes: Vec<u8> = sent.iter().flat_map(|p| p.ip6().payload()[8..].to_vec()).collect();
            bytes.truncate(stated.into());
            let (src, dst) = (sent[0].ip6().src(), sent[0].ip6().dst());
            assert!(UdpView::parse(&bytes).unwrap().checksum_ok_v6(src, dst));
            continue;
        }
        assert!(sent.is_empty());
        let dropped = world.new_drops();
        assert_eq!(dropped[0].0, Reason::UdpMalformed, "{dropped:?}");
        world.wait_ms(2_100);
        assert_eq!(world.held(), 0);
    }
}

/// RFC 6146 §3.4 (unsummed): without the resources it is silently discarded, all of it, and hurts nobody
/// else.
#[test]
fn where_no_room_is_left_it_is_discarded() {
    let (mut world, outside) = opened(1);
    // More fragments than one datagram may have.
    let pieces = unsummed(outside, 15, &vec![1; 65 * 8], 8);
    let (most, rest) = pieces.split_at(64);
    assert!(world.burst(OUT, most).is_empty());
    assert_eq!((world.held(), world.new_drops()), (64, vec![]));
    assert!(world.burst(OUT, rest).is_empty());
    assert_eq!((world.held(), world.new_drops()), (0, vec![(Reason::FragmentQueueFull, 66)]));
    // More than there are places.
    for id in 16..19 {
        world.burst(OUT, &unsummed(outside, id, &vec![1; 51 * 8], 8)[..51]);
    }
    let (held, dropped) = (world.held(), world.new_drops());
    assert_eq!((held, dropped), (102, vec![(Reason::FragmentQueueFull, 51)]));
    world.pass(OUT, &packet(OUT, SERVER, POOL).udp(53, outside).build());
    let small = send_all(&mut world, &unsummed(outside, 20, &data(), 264));
    assert_eq!(together(&small).1[8..], data()[..]);
    world.wait_ms(2_100);
    world.new_drops();
    // Each takes two lines where one worker has both.
    for id in 100..132 {
        assert!(world.send(OUT, &unsummed(outside, id, &data(), 264)[0]).is_empty());
    }
    assert_eq!(world.new_drops(), []);
    world.dropped(OUT, &unsummed(outside, 132, &data(), 264)[0], Reason::FragmentTableFull);
    world.wait_ms(2_100);
    assert_eq!(world.new_drops(), [(Reason::FragmentTimeout, 32)]);
}

/// Where none shall get a checksum none waits; nor to a host of IPv4, of the same instance.
#[test]
fn where_no_checksum_is_made_nothing_waits() {
    let (mut world, outside) = opened(1);
    let remote = "198.51.100.7";
    let four = port_of(&world.pass(IN, &udp(IN, "10.0.0.5:1000", &format!("{remote}:53"))).src());
    let whole = packet(OUT, remote, POOL).udp_without_checksum(53, four).payload(&data()).build();
    for piece in cut(OUT, remote, POOL, 17, 21, &whole[34..], 264) {
        assert_eq!(world.pass(OUT, &piece).addresses(), (remote.into(), "10.0.0.5".into()));
    }
    world.reconfigure(|s| {
        nat(s, |i| i.nat64.as_mut().unwrap().rules = Rules { zero_udp: ZeroUdp::Drop, ..Rules::default() });
    });
    for order in [[0, 1, 2, 3], [3, 0, 2, 1]] {
        let pieces = unsummed(outside, 22, &data(), 264);
        assert!(send_all(&mut world, &order.map(|at| pieces[at].clone())).is_empty());
        assert_eq!((world.held(), world.new_drops()), (0, vec![(Reason::Nat64UdpZeroChecksum, 4)]));
    }
}

/// Whose session ends, or begins anew, while fragments wait: they go by the one there is with the last of
/// them.
#[test]
fn a_reload_meanwhile_leaves_nothing_behind() {
    let (mut world, outside) = opened(1);
    let pieces = unsummed(outside, 23, &data(), 264);
    assert!(send_all(&mut world, &pieces[..3]).is_empty());
    world.reconfigure(|s| nat(s, |i| i.nat64 = None));
    assert!(world.send(OUT, &pieces[3]).is_empty());
    world.wait_ms(2_100);
    assert_eq!(world.held(), 0);
}
