use super::*;
use crate::PacketBuilder;
use crate::ipv4::protocol;
use proptest::prelude::*;

const A: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
const B: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0002;

fn base() -> PacketBuilder<'static> {
    PacketBuilder::new().ipv6(A, B)
}

fn walk(packet: &[u8]) -> Result<Extensions, ChainError> {
    Ipv6View::parse(packet).unwrap().extensions()
}

#[test]
fn every_way_to_be_malformed_has_its_own_name() {
    let good = base().udp(1, 2).payload(b"abcd").build();
    let judge = |change: fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Ipv6View::parse(&bytes).err()
    };
    assert_eq!(judge(|_| ()), None);
    assert_eq!(judge(|bytes| bytes.truncate(39)), Some(Ipv6Error::Truncated));
    assert_eq!(judge(|bytes| bytes.truncate(51)), Some(Ipv6Error::Truncated));
    assert_eq!(judge(|bytes| bytes[0] = 0x45), Some(Ipv6Error::BadVersion));
    assert_eq!(judge(|bytes| bytes.push(0)), None, "padding of the link is left out");
    let padded = [&good[..], &[0; 9]].concat();
    assert_eq!(Ipv6View::parse(&padded).unwrap().packet(), &good[..]);
    assert_eq!(Ipv6View::parse_quoted(&good[..45]).unwrap().payload(), &good[40..45]);
}

#[test]
fn jumbogram_is_named_and_payload_length_zero_alone_is_none() {
    // RFC 2675 §2: type 0xc2, length 4, then the length of the payload.
    let mut jumbo = base().hop_by_hop(&[0xc2, 4, 0, 1, 0, 0]).udp(1, 2).build();
    assert_eq!(walk(&jumbo), Err(ChainError::MisplacedJumbo), "beside an ordinary payload length");
    jumbo[4..6].fill(0);
    assert_eq!(Ipv6View::parse(&jumbo).err(), Some(Ipv6Error::Jumbogram));
    let mut other = base().hop_by_hop(&[]).udp(1, 2).build();
    other[4..6].fill(0);
    assert_eq!(walk(&other), Err(ChainError::Truncated), "no room for the header it names");
    assert_eq!(Ipv6View::parse(&base().protocol(59).build()).unwrap().payload(), b"");
}

#[test]
fn packet_without_extension_headers_carries_its_transport_at_40() {
    let found = walk(&base().tcp(1, 2, 0).build()).unwrap();
    assert_eq!((found.protocol, found.offset, found.protocol_at), (protocol::TCP, 40, 6));
    assert!(!found.is_any() && !found.is_fragment() && !found.has_header_behind_fragment());
}

#[test]
fn transport_is_found_behind_every_kind_of_header() {
    let packet = base()
        .hop_by_hop(&[5, 2, 0, 0])
        .destination_options(&[])
        .routing(&[4, 0, 0, 0, 0, 0], B)
        .fragment6(0, false, 7)
        .destination_options(&[1, 4])
        .udp(1, 2)
        .build();
    let found = walk(&packet).unwrap();
    assert_eq!((found.protocol, found.offset, found.protocol_at), (protocol::UDP, 80, 72));
    assert_eq!(packet[usize::from(found.protocol_at)], protocol::UDP);
    assert_eq!(found.routing, Some(Routing { at: 56, kind: 4, segments_left: 0 }));
    assert!(found.has_hop_by_hop && found.has_router_alert && found.has_header_behind_fragment());
    assert_eq!((found.hop_by_hop, found.destination), (None, None));
    let fragment = found.fragment.unwrap();
    assert_eq!((fragment.at, fragment.identification, fragment.next_header), (64, 7, 60));
    assert!(fragment.is_atomic() && !found.is_fragment(), "RFC 6946 §2: a whole datagram");
}

#[test]
fn walk_ends_at_what_is_no_option_routing_or_fragment_header() {
    for number in [next_header::AH, next_header::ESP, next_header::NONE, next_header::MOBILITY, 132, 200] {
        let found = walk(&base().hop_by_hop(&[]).protocol(number).payload(&[0; 8]).build()).unwrap();
        assert_eq!((found.protocol, found.offset), (number, 48));
    }
}

#[test]
fn fragments_tell_their_place_and_later_ones_are_not_walked_into() {
    // What looks like an extension header in a later fragment is data.
    let packet = base().fragment6(1280, true, 0xdead_beef).protocol(60).payload(&[0xff; 16]).build();
    let found = walk(&packet).unwrap();
    let header =
        FragmentHeader { at: 40, next_header: 60, offset: 1280, more: true, identification: 0xdead_beef };
    assert_eq!((found.fragment, found.protocol, found.offset), (Some(header), 60, 48));
    assert!(found.is_later_fragment() && found.is_fragment() && !header.is_atomic());
    assert!(found.has_header_behind_fragment(), "RFC 7915 §5.1.1");
    assert_eq!(header.to_bytes(), packet[40..48]);
    let esp = walk(&base().fragment6(0, true, 1).protocol(50).payload(&[0; 8]).build()).unwrap();
    assert!(!esp.has_header_behind_fragment() && !esp.is_later_fragment() && esp.is_fragment());
    let ah = walk(&base().fragment6(0, true, 1).protocol(51).payload(&[0; 8]).build()).unwrap();
    assert!(ah.has_header_behind_fragment());
}

#[test]
fn routing_header_with_segments_left_is_the_one_reported() {
    let packet = base()
        .routing(&[2, 0, 0, 0, 0, 0], B)
        .routing(&[4, 3, 0, 0, 0, 0], B)
        .routing(&[5, 1, 0, 0, 0, 0], B)
        .udp(1, 2);
    let routing = walk(&packet.build()).unwrap().routing.unwrap();
    assert_eq!((routing.kind, routing.segments_left, routing.segments_left_at()), (4, 3, 51));
    assert_eq!(packet.build()[51], 3);
}

#[test]
fn first_unknown_option_that_may_not_be_skipped_is_reported_with_its_place() {
    // RFC 8200 §4.2
    for (option, action) in [
        (0x1e, None),
        (0x5e, Some(Action::Drop)),
        (0x9e, Some(Action::DropAndReport)),
        (0xde, Some(Action::DropAndReportUnicast)),
    ] {
        let options = [0, 0x3e, 1, 9, option, 0, 0xfe, 0];
        let expected = action.map(|action| UnknownOption { action, pointer: 46 });
        let unknown = walk(&base().hop_by_hop(&options).udp(1, 2).build()).unwrap().hop_by_hop;
        let after = Some(UnknownOption { action: Action::DropAndReportUnicast, pointer: 48 });
        assert_eq!(unknown, expected.or(after), "option {option:#x}");
        let found = walk(&base().destination_options(&options).udp(1, 2).build()).unwrap();
        assert_eq!((found.destination, found.hop_by_hop), (expected.or(after), None));
    }
}

#[test]
fn bombs_are_refused_and_the_longest_chain_allowed_is_not() {
    let chain = |count: usize, body: &'static [u8]| {
        let packet = (0..count).fold(base(), |packet, _| packet.destination_options(body)).udp(1, 2);
        walk(&packet.build()).map(|found| found.offset)
    };
    assert_eq!(chain(HEADERS_MAX, &[]), Ok(40 + 8 * HEADERS_MAX as u16));
    assert_eq!(chain(HEADERS_MAX + 1, &[]), Err(ChainError::TooLong));
    assert_eq!(chain(2, &[0; 254]), Ok(40 + CHAIN_LEN_MAX as u16));
    assert_eq!(chain(2, &[0; 255]), Err(ChainError::TooLong));
}

#[test]
fn misplaced_and_doubled_headers_are_refused() {
    let packet = base().destination_options(&[]).hop_by_hop(&[]).udp(1, 2).build();
    assert_eq!(walk(&packet), Err(ChainError::MisplacedHopByHop { pointer: 40 }));
    assert_eq!(packet[40], next_header::HOP_BY_HOP);
    let packet = base().fragment6(0, false, 1).fragment6(0, true, 2).udp(1, 2).build();
    assert_eq!(walk(&packet), Err(ChainError::SecondFragmentHeader));
}

#[test]
fn every_truncation_of_a_chain_is_noticed() {
    let packet = base().hop_by_hop(&[1, 4]).fragment6(0, true, 1).destination_options(&[]).udp(1, 2).build();
    let end = usize::from(walk(&packet).unwrap().offset);
    for length in 40..packet.len() {
        let found = Ipv6View::parse_quoted(&packet[..length]).unwrap().extensions();
        assert_eq!(found.is_ok(), length >= end, "{length} octets");
    }
    // An option longer than its header.
    assert_eq!(walk(&base().hop_by_hop(&[1, 5]).udp(1, 2).build()), Err(ChainError::Truncated));
}

#[test]
fn addresses_are_told_apart() {
    assert!(is_multicast(0xff02 << 112 | 1) && !is_multicast(A));
    assert!(is_link_local(0xfe80 << 112 | 1) && is_link_local(0xfebf << 112) && !is_link_local(A));
    assert!(is_answerable(A) && !is_answerable(0) && !is_answerable(1) && !is_answerable(0xff02 << 112));
}

proptest! {
    #[test]
    fn written_header_reads_back_and_the_judge_agrees(
        traffic_class in any::<u8>(), flow_label in 0u32..0x10_0000, hop_limit in any::<u8>(),
        src in any::<u128>(), dst in any::<u128>(), payload_len in any::<u16>(), number in any::<u8>(),
    ) {
        let header =
            Ipv6Header { traffic_class, flow_label, payload_len, next_header: number, hop_limit, src, dst };
        let bytes = header.to_bytes();
        let view = Ipv6View::parse_quoted(&bytes).unwrap();
        prop_assert_eq!(
            (view.traffic_class(), view.flow_label(), view.payload_length(), view.next_header()),
            (traffic_class, flow_label, payload_len, number)
        );
        prop_assert_eq!((view.hop_limit(), view.src(), view.dst()), (hop_limit, src, dst));
        let judge = etherparse::Ipv6HeaderSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!((judge.traffic_class(), judge.flow_label().value()), (traffic_class, flow_label));
        prop_assert_eq!((judge.source_addr(), judge.destination_addr()), (view.src_addr(), view.dst_addr()));
    }

    #[test]
    fn changes_read_back(src in any::<u128>(), dst in any::<u128>(), hop_limit in any::<u8>()) {
        let mut packet = base().ttl(hop_limit).udp(1, 2).build();
        let mut ip = Ipv6Mut::parse(&mut packet).unwrap();
        ip.set_src(src);
        ip.set_dst(dst);
        prop_assert_eq!(ip.decrement_hop_limit(), hop_limit.saturating_sub(1));
        let view = Ipv6View::parse(&packet).unwrap();
        prop_assert_eq!((view.src(), view.dst(), view.hop_limit()), (src, dst, hop_limit.saturating_sub(1)));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_the_walk_stays_inside(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..700),
        numbers in proptest::collection::vec(prop_oneof![Just(0u8), Just(43), Just(44), Just(60), Just(17)], 0..12),
    ) {
        // A chain of short headers makes it likely that the walk gets somewhere.
        if bytes.len() > 41 {
            bytes[0] = 0x60;
            let payload_len = bytes.len() - 40;
            bytes[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
        }
        for (index, number) in numbers.iter().enumerate() {
            let at = if index == 0 { 6 } else { 32 + 8 * index };
            if let Some([next, length, ..]) = bytes.get_mut(at..) {
                (*next, *length) = (*number, if index == 0 { *length } else { *length & 1 });
            }
        }
        for view in [Ipv6View::parse(&bytes), Ipv6View::parse_quoted(&bytes)].into_iter().flatten() {
            if let Ok(found) = view.extensions() {
                prop_assert!(usize::from(found.offset) <= view.packet().len());
                prop_assert!(usize::from(found.protocol_at) < usize::from(found.offset));
                prop_assert!(found.offset as usize <= HEADER_LEN + CHAIN_LEN_MAX);
            }
        }
    }
}
