use super::*;
use crate::{Ports, ROOM, V6Way, to_v6};
use carrack_wire::{Ipv4View, PacketBuilder, TcpView, UdpView};
use proptest::prelude::*;

const A6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
const B6: u128 = 0x0064_ff9b_0000_0000_0000_0000_c000_0221;
const A4: u32 = 0xcb00_7101;
const B4: u32 = 0xc000_0221;
const WAY: V4Way = V4Way { src: A4, dst: B4, ports: Ports::KEEP, identification: 77, mtu: u16::MAX };

fn six() -> PacketBuilder<'static> {
    PacketBuilder::new().ipv6(A6, B6).ttl(9).tos(0xb9).flow_label(5)
}

fn four() -> PacketBuilder<'static> {
    PacketBuilder::new().ipv4(A4, B4).ttl(9).tos(0xb9).identification(77)
}

fn translate_by(packet: &[u8], way: &V4Way, rules: &Rules) -> Result<Vec<u8>, Refused> {
    let mut bytes = packet.to_vec();
    let found = Ipv6View::parse(packet).unwrap().extensions().unwrap();
    match to_v4(&mut bytes, &found, way, rules) {
        Ok(moved) => {
            assert_eq!((moved.end, moved.cut_to), (packet.len(), None));
            Ok(bytes.split_off(moved.start))
        }
        Err(refused) => {
            assert_eq!(bytes, packet, "a refused packet is left as it was");
            Err(refused)
        }
    }
}

fn translate(packet: &PacketBuilder<'_>) -> Result<Vec<u8>, Refused> {
    translate_by(&packet.build(), &WAY, &Rules::default())
}

#[test]
fn common_packets_become_what_an_ipv4_sender_would_have_sent() {
    // RFC 7915 §5.1 and §5.5
    assert_eq!(translate(&six().udp(1, 2).payload(b"abc")), Ok(four().udp(1, 2).payload(b"abc").build()));
    assert_eq!(
        translate(&six().tcp(1, 2, 2).payload(b"abc")),
        Ok(four().tcp(1, 2, 2).payload(b"abc").build())
    );
    assert_eq!(
        translate(&six().echo_request(7, 8).payload(b"abc")),
        Ok(four().echo_request(7, 8).payload(b"abc").build())
    );
    assert_eq!(translate(&six().echo_reply(7, 8)), Ok(four().echo_reply(7, 8).build()));
}

#[test]
fn new_ports_and_identifiers_are_set() {
    let way = V4Way { ports: Ports { src: Some(5000), dst: Some(53) }, ..WAY };
    let by = |packet: PacketBuilder<'_>| translate_by(&packet.build(), &way, &Rules::default()).unwrap();
    assert_eq!(by(six().udp(1, 2)), four().udp(5000, 53).build());
    assert_eq!(by(six().tcp(1, 2, 16)), four().tcp(5000, 53, 16).build());
    assert_eq!(by(six().destination_options(&[]).udp(1, 2)), four().udp(5000, 53).build());
    assert_eq!(by(six().echo_request(7, 8)), four().echo_request(5000, 8).build());
    let way = V4Way { ports: Ports { src: None, dst: Some(99) }, ..WAY };
    let by = |packet: PacketBuilder<'_>| translate_by(&packet.build(), &way, &Rules::default()).unwrap();
    assert_eq!(by(six().echo_reply(7, 8)), four().echo_reply(99, 8).build());
    assert_eq!(by(six().udp(1, 2)), four().udp(1, 99).build());
}

#[test]
fn dont_fragment_is_set_from_1261_octets_on() {
    // RFC 7915 §5, §5.1
    for (payload, is_set) in [(1232, false), (1233, true)] {
        let payload = vec![7; payload];
        for with_options in [false, true] {
            let base = if with_options { six().destination_options(&[]) } else { six() };
            let packet = translate(&base.udp(1, 2).payload(&payload)).unwrap();
            let view = Ipv4View::parse(&packet).unwrap();
            assert_eq!((view.packet().len() > 1260, view.dont_fragment()), (is_set, is_set));
        }
    }
}

#[test]
fn packet_too_big_for_the_next_hop_is_refused_only_when_it_may_not_be_cut() {
    // RFC 7915 §5.1.1 last paragraph: up to 1280 octets the translator fragments.
    let payload = [7; 1300];
    let judge = |length: usize, mtu: u16, fragment: bool| {
        let base = if fragment { six().fragment6(0, true, 1) } else { six() };
        let packet = base.udp(1, 2).payload(&payload[..length]).build();
        translate_by(&packet, &V4Way { mtu, ..WAY }, &Rules::default()).map(|packet| packet.len())
    };
    assert_eq!(judge(1232, 500, false), Ok(1260));
    assert_eq!(judge(1300, 1328, false), Ok(1328));
    assert_eq!(judge(1300, 1327, false), Err(Refused::TooBigForV4 { mtu: 1347 }));
    assert_eq!(judge(1300, 500, false), Err(Refused::TooBigForV4 { mtu: 1280 }));
    assert_eq!(judge(1300, 500, true), Ok(1328), "a fragment may be cut further");
    let told = icmpv6_told(Refused::TooBigForV4 { mtu: 1347 });
    assert_eq!(told, carrack_wire::icmpv6::ErrorMessage::PacketTooBig { mtu: 1347 });
}

fn icmpv6_told(refused: Refused) -> carrack_wire::icmpv6::ErrorMessage {
    match refused.answer() {
        crate::Answer::Icmpv6(message) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn type_of_service_is_copied_or_set() {
    let rules = Rules { tos: Some(0x20), ..Rules::default() };
    for base in [six(), six().hop_by_hop(&[])] {
        let packet = translate_by(&base.udp(1, 2).build(), &WAY, &rules).unwrap();
        assert_eq!(packet, four().tos(0x20).udp(1, 2).build());
    }
}

#[test]
fn headers_without_meaning_in_ipv4_are_skipped() {
    // RFC 7915 §5.1
    let base = six().hop_by_hop(&[5, 2, 0, 0]).destination_options(&[]).routing(&[4, 0, 0, 0, 0, 0], B6);
    assert_eq!(translate(&base.clone().udp(1, 2).payload(b"x")), Ok(four().udp(1, 2).payload(b"x").build()));
    assert_eq!(translate(&base.tcp(1, 2, 2)), Ok(four().tcp(1, 2, 2).build()));
}

#[test]
fn routing_header_with_segments_left_is_a_parameter_problem() {
    // RFC 7915 §5.1
    let packet = six().destination_options(&[]).routing(&[0, 1, 0, 0, 0, 0], B6).udp(1, 2);
    assert_eq!(translate(&packet), Err(Refused::SegmentsLeft { pointer: 51 }));
    let expected = carrack_wire::icmpv6::ErrorMessage::ParameterProblem { code: 0, pointer: 51 };
    assert_eq!(icmpv6_told(Refused::SegmentsLeft { pointer: 51 }), expected);
    assert_eq!(packet.build()[51], 1);
}

#[test]
fn every_transport_protocol_is_passed_on() {
    // RFC 7915 §5.1 "Protocol": also what cannot work, such as AH.
    for number in [50, 51, 47, 132, 135, 59, 253] {
        let packet = six().destination_options(&[]).protocol(number).payload(&[9; 24]);
        assert_eq!(translate(&packet), Ok(four().protocol(number).payload(&[9; 24]).build()), "{number}");
    }
    // DCCP and UDP-Lite have their checksum where UDP has it.
    for number in [33, 136] {
        let mut packet = six().udp(1, 2).payload(&[9; 24]).build();
        packet[6] = number;
        let mut expected = four().udp(1, 2).payload(&[9; 24]).build();
        (expected[9], expected[10], expected[11]) = (number, 0, 0);
        carrack_wire::Ipv4Mut::parse(&mut expected).unwrap().fill_checksum();
        assert_eq!(translate_by(&packet, &WAY, &Rules::default()), Ok(expected));
    }
}

#[test]
fn checksum_that_comes_to_zero_is_sent_as_all_ones_where_zero_means_none() {
    // RFC 768, RFC 3828 §3.1; to DCCP zero is a checksum like others.
    for (number, expected) in [(protocol::UDP, 0xffff), (136, 0xffff), (33, 0)] {
        let build = |filler: u16| {
            let filler = filler.to_be_bytes();
            let mut packet = six().udp(1, 2).payload(&filler).build();
            packet[6] = number;
            translate_by(&packet, &WAY, &Rules::default()).unwrap()
        };
        let packet = build(0);
        let checksum = u16::from_be_bytes([packet[26], packet[27]]);
        // The filler that takes the rest of the checksum away.
        let packet = build(checksum);
        assert_eq!(u16::from_be_bytes([packet[26], packet[27]]), expected, "{number}");
    }
}

#[test]
fn icmpv4_over_ipv6_does_not_get_through() {
    for kind in [8, 3, 128, 13] {
        let message = [kind, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(
            translate(&six().protocol(1).payload(&message)),
            Err(Refused::ForeignProtocolV6),
            "type {kind}"
        );
    }
}

#[test]
fn fragments_in_each_position_keep_their_place() {
    // RFC 7915 §5.1.1: first, middle, last, and atomic (RFC 6946), which keeps its identification too.
    let datagram = six().udp(1, 2).payload(&[7; 40]).build();
    let data = &datagram[40..];
    let expected = four().udp(1, 2).payload(&[7; 40]).build();
    let expected = &expected[20..];
    for (offset, more, from, to) in
        [(0, true, 0, 16), (16, true, 16, 32), (32, false, 32, 48), (0, false, 0, 48)]
    {
        let packet = six().fragment6(offset, more, 0xabcd_1234).protocol(17).payload(&data[from..to]);
        let four = four().identification(0x1234).fragment(offset, more).protocol(17);
        assert_eq!(translate(&packet), Ok(four.payload(&expected[from..to]).build()), "at {offset}, {more}");
    }
    // The next header of a later fragment is that of the first: not looked at for checksums.
    let packet = six().fragment6(16, true, 1).protocol(6).payload(&[0; 8]);
    assert_eq!(
        translate(&packet),
        Ok(four().identification(1).fragment(16, true).protocol(6).payload(&[0; 8]).build())
    );
}

#[test]
fn dont_fragment_stays_clear_behind_a_fragment_header() {
    let packet = translate(&six().fragment6(0, false, 5).udp(1, 2).payload(&[7; 1400])).unwrap();
    let view = Ipv4View::parse(&packet).unwrap();
    assert_eq!((view.dont_fragment(), view.identification(), view.is_fragment()), (false, 5, false));
}

#[test]
fn extension_header_behind_the_fragment_header_is_refused() {
    // RFC 7915 §5.1.1
    for number in [60, 51, 43] {
        for offset in [0, 8] {
            let packet =
                six().fragment6(offset, true, 1).protocol(number).payload(&[17, 0, 4, 0, 0, 0, 0, 0]);
            assert_eq!(translate(&packet), Err(Refused::HeaderBehindFragment), "{number} at {offset}");
        }
    }
    assert!(translate(&six().fragment6(0, true, 1).protocol(50).payload(&[0; 16])).is_ok(), "ESP is not one");
}

#[test]
fn icmp_fragments_are_refused_and_an_atomic_one_is_not() {
    // RFC 7915 §1.2
    for (offset, more) in [(0, true), (8, true), (8, false)] {
        let packet = six().fragment6(offset, more, 1).protocol(58).payload(&[128, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(translate(&packet), Err(Refused::FragmentedIcmpV6), "{offset} {more}");
    }
    let packet = six().fragment6(0, false, 9).echo_request(1, 2);
    assert_eq!(translate(&packet), Ok(four().identification(9).echo_request(1, 2).build()));
}

#[test]
fn messages_for_one_link_and_unknown_ones_are_dropped_in_silence() {
    // RFC 7915 §5.2
    for kind in 0..=255 {
        let expected = match kind {
            128 | 129 => None,
            0..=127 => Some(Refused::OtherFunction),
            _ => Some(Refused::IcmpWithoutCounterpart),
        };
        assert_eq!(translate(&six().icmp(kind, 0, [0; 4])).err(), expected, "type {kind}");
    }
    assert_eq!(Refused::IcmpWithoutCounterpart.answer(), crate::Answer::Silence);
}

#[test]
fn cut_transport_headers_are_refused() {
    for (number, whole) in [(6, 18), (17, 8), (58, 8)] {
        for length in 0..=whole {
            let body = [128, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
            for base in [six(), six().destination_options(&[])] {
                let packet = base.protocol(number).payload(&body[..length]);
                let expected = (length < whole).then_some(Refused::TransportCut);
                assert_eq!(translate(&packet).err(), expected, "{length} octets of {number}");
            }
        }
    }
}

#[test]
fn absent_udp_checksum_stays_absent() {
    let packet = six().udp_without_checksum(1, 2).payload(b"tunnel");
    assert_eq!(translate(&packet), Ok(four().udp_without_checksum(1, 2).payload(b"tunnel").build()));
}

proptest! {
    #[test]
    fn packet_comes_back_as_it_was_from_the_other_version(
        (src, dst, src4, dst4) in any::<(u128, u128, u32, u32)>(), ports in any::<(u16, u16)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..1500), which in 0usize..3, wrong in any::<u16>(), ttl in any::<u8>(),
    ) {
        let base = PacketBuilder::new().ipv6(src, dst).ttl(ttl).tos(3).payload(&payload);
        let mut packet = match which {
            0 => base.udp(ports.0, ports.1),
            1 => base.tcp(ports.0, ports.1, 16),
            _ => base.echo_request(ports.0, ports.1),
        }
        .build();
        // A wrong checksum must stay wrong, so it must come back as it was too.
        let at = 40 + [6, 16, 2][which];
        packet[at] ^= (wrong >> 8) as u8;
        packet[at + 1] ^= wrong as u8;
        prop_assume!(packet[at..at + 2] != [0, 0] && packet[at..at + 2] != [0xff, 0xff]);
        let way = V4Way { src: src4, dst: dst4, ..WAY };
        let four = translate_by(&packet, &way, &Rules::default()).unwrap();
        let view = Ipv4View::parse(&four).unwrap();
        prop_assert!(view.checksum_ok() && view.total_length() as usize == four.len());
        let is_right = match which {
            0 => UdpView::parse(view.payload()).unwrap().checksum_ok(src4, dst4),
            1 => TcpView::parse(view.payload()).unwrap().checksum_ok(src4, dst4),
            _ => carrack_wire::Icmpv4View::parse(view.payload()).unwrap().checksum_ok(),
        };
        prop_assert_eq!(is_right, wrong == 0);
        let mut buffer = vec![0; ROOM];
        buffer.extend_from_slice(&four);
        let back = V6Way { src, dst, ports: Ports::KEEP, mtu: u16::MAX };
        let moved = to_v6(&mut buffer, ROOM, &back, &Rules::default()).unwrap();
        let expected: &[u8] = &packet;
        prop_assert_eq!(&buffer[moved.start..moved.end], expected);
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200), number in proptest::sample::select(&[0u8, 6, 17, 43, 44, 58, 60, 51]),
    ) {
        if bytes.len() >= 40 {
            (bytes[0], bytes[6]) = (0x60, number);
            let payload_len = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&payload_len.to_be_bytes());
        }
        if let Ok(found) = Ipv6View::parse_quoted(&bytes).map_err(|_| ()).and_then(|view| view.extensions().map_err(|_| ())) {
            let length = bytes.len();
            if let Ok(moved) = to_v4(&mut bytes, &found, &WAY, &Rules::default()) {
                prop_assert!(moved.start < moved.end && moved.end == length);
                let view = Ipv4View::parse(&bytes[moved.start..moved.end]).unwrap();
                prop_assert!(view.checksum_ok());
            }
        }
    }
}
