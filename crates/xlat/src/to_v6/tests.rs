use super::*;
use crate::{Answer, Ports, ROOM};
use carrack_wire::icmpv4::ErrorMessage;
use carrack_wire::{Ipv6View, PacketBuilder};
use proptest::prelude::*;

const A6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
const B6: u128 = 0x0064_ff9b_0000_0000_0000_0000_c000_0221;
const A4: u32 = 0xcb00_7101;
const B4: u32 = 0xc000_0221;
const WAY: V6Way = V6Way { src: B6, dst: A6, ports: Ports::KEEP, mtu: 1500 };

fn four() -> PacketBuilder<'static> {
    PacketBuilder::new().ipv4(B4, A4).ttl(9).tos(0xb9).identification(77)
}

fn six() -> PacketBuilder<'static> {
    PacketBuilder::new().ipv6(B6, A6).ttl(9).tos(0xb9)
}

fn translate_by(packet: &[u8], way: &V6Way, rules: &Rules) -> Result<(Vec<u8>, Option<u16>), Refused> {
    let mut buffer = vec![0xee; ROOM];
    buffer.extend_from_slice(packet);
    let before = buffer.clone();
    match to_v6(&mut buffer, ROOM, way, rules) {
        Ok(moved) => {
            assert_eq!(moved.end, buffer.len());
            assert!(moved.start <= ROOM + 40 && buffer[..moved.start] == before[..moved.start]);
            Ok((buffer.split_off(moved.start), moved.cut_to))
        }
        Err(refused) => {
            assert_eq!(buffer, before, "a refused packet is left as it was");
            Err(refused)
        }
    }
}

fn translate(packet: &PacketBuilder<'_>) -> Result<Vec<u8>, Refused> {
    let (packet, cut_to) = translate_by(&packet.build(), &WAY, &Rules::default())?;
    assert_eq!(cut_to, None);
    Ok(packet)
}

#[test]
fn common_packets_become_what_an_ipv6_sender_would_have_sent() {
    // RFC 7915 §4.1 and §4.5
    assert_eq!(translate(&four().udp(1, 2).payload(b"abc")), Ok(six().udp(1, 2).payload(b"abc").build()));
    assert_eq!(
        translate(&four().tcp(1, 2, 2).payload(b"abc")),
        Ok(six().tcp(1, 2, 2).payload(b"abc").build())
    );
    let echo = four().echo_request(7, 8).payload(b"abc");
    assert_eq!(translate(&echo), Ok(six().echo_request(7, 8).payload(b"abc").build()));
    assert_eq!(translate(&four().echo_reply(7, 8)), Ok(six().echo_reply(7, 8).build()));
    // No fragment header for a packet that merely might be cut (RFC 7915 §4, RFC 8021).
    assert_eq!(translate(&four().dont_fragment().udp(1, 2)), Ok(six().udp(1, 2).build()));
}

#[test]
fn new_ports_and_identifiers_are_set() {
    let way = V6Way { ports: Ports { src: Some(53), dst: Some(5000) }, ..WAY };
    let by = |packet: PacketBuilder<'_>| translate_by(&packet.build(), &way, &Rules::default()).unwrap().0;
    assert_eq!(by(four().udp(1, 2)), six().udp(53, 5000).build());
    assert_eq!(by(four().tcp(1, 2, 16)), six().tcp(53, 5000, 16).build());
    assert_eq!(by(four().ip_options(&[1; 4]).tcp(1, 2, 16)), six().tcp(53, 5000, 16).build());
    assert_eq!(by(four().udp_without_checksum(1, 2)), six().udp(53, 5000).build());
    assert_eq!(by(four().echo_reply(7, 8)), six().echo_reply(53, 8).build());
}

#[test]
fn traffic_class_is_copied_or_zero() {
    let rules = Rules { zero_traffic_class: true, ..Rules::default() };
    for base in [four(), four().ip_options(&[1; 4])] {
        let (packet, _) = translate_by(&base.udp(1, 2).build(), &WAY, &rules).unwrap();
        assert_eq!(packet, six().tos(0).udp(1, 2).build());
    }
}

#[test]
fn options_are_left_out_and_a_source_route_that_has_run_out_too() {
    // RFC 7915 §4.1
    for options in
        [&[1, 1, 1, 1][..], &[7, 7, 4, 0, 0, 0, 0, 0], &[131, 7, 8, 1, 2, 3, 4, 0], &[148, 4, 0, 0]]
    {
        let packet = four().ip_options(options).udp(1, 2).payload(b"x");
        assert_eq!(translate(&packet), Ok(six().udp(1, 2).payload(b"x").build()), "{options:?}");
    }
}

#[test]
fn unexpired_source_route_is_answered_with_source_route_failed() {
    // RFC 7915 §4.1
    for kind in [131, 137] {
        let packet = four().ip_options(&[1, kind, 7, 4, 1, 2, 3, 4]).udp(1, 2).build();
        assert_eq!(translate_by(&packet, &WAY, &Rules::default()), Err(Refused::SourceRoute));
    }
    assert_eq!(Refused::SourceRoute.answer(), Answer::Icmpv4(ErrorMessage::Unreachable { code: 5 }));
    let packet = four().ip_options(&[131, 40, 4, 0]).udp(1, 2).build();
    assert_eq!(translate_by(&packet, &WAY, &Rules::default()), Err(Refused::BadOptions));
}

#[test]
fn fragments_in_each_position_get_a_fragment_header() {
    // RFC 7915 §4.1
    let datagram = four().udp(1, 2).payload(&[7; 40]).build();
    let expected = six().udp(1, 2).payload(&[7; 40]).build();
    for (offset, more, from, to) in [(0, true, 0, 16), (16, true, 16, 32), (32, false, 32, 48)] {
        let packet = four().fragment(offset, more).protocol(17).payload(&datagram[20..][from..to]);
        let six = six().fragment6(offset, more, 77).protocol(17).payload(&expected[40..][from..to]);
        assert_eq!(translate(&packet), Ok(six.build()), "at {offset}");
    }
}

#[test]
fn packet_that_may_be_cut_is_cut_to_the_lowest_mtu_of_the_ipv6_network() {
    // RFC 7915 §4.1: 1280 octets whole or 1280 octets in each piece with its fragment header.
    let payload = [7; 1400];
    let rules = Rules::default();
    let packet = |length: usize| four().udp(1, 2).payload(&payload[..length - 28]).build();
    let (whole, cut_to) = translate_by(&packet(1260), &WAY, &rules).unwrap();
    assert_eq!((whole.len(), cut_to), (1280, None));
    let (long, cut_to) = translate_by(&packet(1261), &WAY, &rules).unwrap();
    assert_eq!((long.len(), cut_to), (1289, Some(1280)));
    assert_eq!(long, six().fragment6(0, false, 77).udp(1, 2).payload(&payload[..1233]).build());
    let plan = carrack_wire::fragment6::Fragments6::plan(Ipv6View::parse(&long).unwrap(), 1280, 0).unwrap();
    let lengths: Vec<usize> = plan.map(|fragment| fragment.total_len()).collect();
    assert_eq!(lengths, [1280, 57]);
    let wide = Rules { lowest_ipv6_mtu: 1480, ..rules };
    assert_eq!(translate_by(&packet(1261), &WAY, &wide).unwrap().1, None);
    let (_, cut_to) = translate_by(&packet(1400), &V6Way { mtu: 1300, ..WAY }, &wide).unwrap();
    assert_eq!(cut_to, Some(1300), "the next hop takes less");
}

#[test]
fn packet_that_may_not_be_cut_is_answered_when_it_does_not_fit() {
    // RFC 7915 §4.1
    let payload = [7; 1600];
    let judge = |length: usize, base: PacketBuilder<'static>| {
        let packet = base.dont_fragment().payload(&payload[..length - 28]).build();
        translate_by(&packet, &WAY, &Rules::default()).map(|(packet, cut_to)| (packet.len(), cut_to))
    };
    for base in [four().udp(1, 2), four().udp_without_checksum(1, 2)] {
        assert_eq!(judge(1480, base.clone()), Ok((1500, None)));
        assert_eq!(judge(1481, base), Err(Refused::TooBigForV6 { mtu: 1480 }));
    }
    let fragment = four().fragment(0, true).protocol(17);
    assert_eq!(judge(1480, fragment), Ok((1500, None)));
    let fragment = four().fragment(0, true).protocol(17);
    assert_eq!(judge(1488, fragment), Err(Refused::TooBigForV6 { mtu: 1472 }));
    let told = ErrorMessage::FragmentationNeeded { mtu: 1480 };
    assert_eq!(Refused::TooBigForV6 { mtu: 1480 }.answer(), Answer::Icmpv4(told));
}

#[test]
fn udp_without_checksum_gets_one_or_is_dropped_as_configured() {
    // RFC 7915 §4.5
    let packet = four().udp_without_checksum(1, 2).payload(b"odd");
    assert_eq!(translate(&packet), Ok(six().udp(1, 2).payload(b"odd").build()));
    let drop = Rules { zero_udp: ZeroUdp::Drop, ..Rules::default() };
    assert_eq!(translate_by(&packet.build(), &WAY, &drop), Err(Refused::ZeroUdp));
    let first = four().fragment(0, true).protocol(17).payload(&[0, 1, 0, 2, 0, 50, 0, 0]).build();
    assert_eq!(translate_by(&first, &WAY, &Rules::default()), Err(Refused::ZeroUdpFragment));
    let later = four().fragment(8, false).protocol(17).payload(&[0; 8]);
    assert_eq!(translate(&later), Ok(six().fragment6(8, false, 77).protocol(17).payload(&[0; 8]).build()));
}

#[test]
fn icmp_fragments_and_messages_without_counterpart_are_refused() {
    // RFC 7915 §1.2 and §4.2
    for (offset, more) in [(0, true), (8, true), (8, false)] {
        let packet = four().fragment(offset, more).protocol(1).payload(&[8, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(translate(&packet), Err(Refused::FragmentedIcmpV4), "{offset} {more}");
    }
    for kind in 0..=255 {
        let expected = match kind {
            0 | 8 => None,
            3 | 4 | 5 | 11 | 12 => Some(Refused::OtherFunction),
            _ => Some(Refused::IcmpWithoutCounterpart),
        };
        assert_eq!(translate(&four().icmp(kind, 0, [0; 4])).err(), expected, "type {kind}");
    }
}

#[test]
fn every_transport_protocol_is_passed_on() {
    // RFC 7915 §4.1 "Next Header", §4.5
    for number in [4, 41, 47, 50, 51, 132, 253] {
        let packet = four().protocol(number).payload(&[9; 24]);
        assert_eq!(translate(&packet), Ok(six().protocol(number).payload(&[9; 24]).build()), "{number}");
    }
}

/// RFC 7915 §4.2.
#[test]
fn igmp_is_dropped_in_silence() {
    let packet = four().protocol(2).payload(&[9; 24]);
    assert_eq!(translate(&packet), Err(Refused::IcmpWithoutCounterpart));
    assert_eq!(Refused::IcmpWithoutCounterpart.answer(), crate::Answer::Silence);
}

#[test]
fn ipv4_sender_cannot_forge_ipv6_headers_or_icmpv6() {
    for number in [0, 43, 44, 58, 60] {
        let packet = four().protocol(number).payload(&[0; 24]);
        assert_eq!(translate(&packet), Err(Refused::ForeignProtocolV4), "{number}");
    }
}

#[test]
fn cut_transport_headers_and_missing_room_are_refused() {
    for (number, whole) in [(6, 18), (17, 8), (1, 8)] {
        for length in 0..=whole {
            let body = [8, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
            for base in [four(), four().ip_options(&[1; 4])] {
                let packet = base.protocol(number).payload(&body[..length]);
                let expected = (length < whole).then_some(Refused::TransportCut);
                assert_eq!(translate(&packet).err(), expected, "{length} octets of {number}");
            }
        }
    }
    let mut buffer = vec![0; 27];
    buffer.extend_from_slice(&four().fragment(0, true).protocol(17).payload(&[9; 24]).build());
    assert_eq!(to_v6(&mut buffer, 27, &WAY, &Rules::default()), Err(Refused::NoRoom));
    assert_eq!(to_v6(&mut buffer, 900, &WAY, &Rules::default()), Err(Refused::NoRoom));
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200), number in proptest::sample::select(&[1u8, 6, 17, 50]), l3 in 0usize..100,
        flags in proptest::sample::select(&[0u8, 0x20, 0x40]),
    ) {
        if let Some(head) = bytes.get_mut(l3..).filter(|head| head.len() >= 20) {
            head[0] = 0x40 | head[0] & 7;
            let length = head.len() as u16;
            head[2..4].copy_from_slice(&length.to_be_bytes());
            (head[6], head[9]) = (flags, number);
        }
        let length = bytes.len();
        if let Ok(moved) = to_v6(&mut bytes, l3, &WAY, &Rules::default()) {
            prop_assert!(moved.end == length);
            let view = Ipv6View::parse(&bytes[moved.start..moved.end]).unwrap();
            let found = view.extensions().unwrap();
            prop_assert_eq!((view.src(), view.dst()), (B6, A6));
            prop_assert!(found.fragment.is_none_or(|fragment| fragment.next_header == found.protocol));
        }
    }
}
