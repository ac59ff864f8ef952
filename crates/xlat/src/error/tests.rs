use super::*;
use crate::{Answer, Ports, ROOM};
use carrack_wire::PacketBuilder;
use proptest::prelude::*;

/// The subscriber, the server, a router on each side.
const A6: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
const A4: u32 = 0xcb00_7101;
const B6: u128 = 0x0064_ff9b_0000_0000_0000_0000_c000_0221;
const B4: u32 = 0xc000_0221;
const ROUTER6: u128 = 0x0064_ff9b_0000_0000_0000_0000_0909_0909;
const ROUTER4: u32 = 0x0909_0909;

const V6_NONE: V6Way = V6Way { src: 0, dst: 0, ports: Ports::KEEP, mtu: u16::MAX };
const V4_NONE: V4Way = V4Way { src: 0, dst: 0, ports: Ports::KEEP, identification: 0, mtu: u16::MAX };

/// An IPv4 router tells the subscriber about a packet to the server.
const TO_V6: V6ErrorWay = V6ErrorWay {
    outer: V6Way { src: ROUTER6, dst: A6, ..V6_NONE },
    inner: V6Way { src: A6, dst: B6, ports: Ports { src: Some(1), dst: None }, ..V6_NONE },
    mtus: Mtus::UNKNOWN,
};
/// An IPv6 router tells the server about a packet to the subscriber.
const TO_V4: V4ErrorWay = V4ErrorWay {
    outer: V4Way { src: ROUTER4, dst: B4, identification: 9, ..V4_NONE },
    inner: V4Way { src: B4, dst: A4, ports: Ports { src: None, dst: Some(5000) }, ..V4_NONE },
    mtus: Mtus::UNKNOWN,
    reveal: None,
};

fn error4(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    PacketBuilder::new().ipv4(ROUTER4, A4).ttl(9).icmp(kind, code, rest).payload(payload).build()
}

fn error6(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    PacketBuilder::new().ipv6(ROUTER6, B6).ttl(9).icmp(kind, code, rest).payload(payload).build()
}

/// The packets quoted, as each side knows them: from the subscriber to the server.
fn about4() -> PacketBuilder<'static> {
    PacketBuilder::new().ipv4(A4, B4).ttl(1)
}

fn about6() -> PacketBuilder<'static> {
    PacketBuilder::new().ipv6(A6, B6).ttl(1)
}

fn to_six_by(packet: &[u8], way: &V6ErrorWay) -> Result<Vec<u8>, Refused> {
    let mut buffer = vec![0xee; ROOM];
    buffer.extend_from_slice(packet);
    let before = buffer.clone();
    let moved = error_to_v6(&mut buffer, ROOM, way, &Rules::default());
    assert!(moved.is_ok() || buffer == before, "a refused packet is left as it was");
    let moved = moved?;
    assert_eq!((moved.end, moved.cut_to), (buffer.len(), None));
    Ok(buffer.split_off(moved.start))
}

fn to_six(packet: &[u8]) -> Result<Vec<u8>, Refused> {
    to_six_by(packet, &TO_V6)
}

fn to_four_by(packet: &[u8], way: &V4ErrorWay) -> Result<Vec<u8>, Refused> {
    let mut buffer = vec![0xee; 96];
    buffer.extend_from_slice(packet);
    let before = buffer.clone();
    let found = Ipv6View::parse(packet).unwrap().extensions().unwrap();
    let moved = error_to_v4(&mut buffer, 96, &found, way, &Rules::default());
    assert!(moved.is_ok() || buffer == before, "a refused packet is left as it was");
    let moved = moved?;
    assert_eq!((moved.end, moved.cut_to), (buffer.len(), None));
    Ok(buffer.split_off(moved.start))
}

fn to_four(packet: &[u8]) -> Result<Vec<u8>, Refused> {
    to_four_by(packet, &TO_V4)
}

fn four(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let base = PacketBuilder::new().ipv4(ROUTER4, B4).ttl(9).identification(9);
    base.icmp(kind, code, rest).payload(payload).build()
}

fn six(kind: u8, code: u8, rest: [u8; 4], payload: &[u8]) -> Vec<u8> {
    PacketBuilder::new().ipv6(ROUTER6, A6).ttl(9).icmp(kind, code, rest).payload(payload).build()
}

#[test]
fn quoted_packet_is_the_one_its_sender_sent() {
    // RFC 7915 §4.3: UDP, TCP and echo; addresses, ports and checksums.
    for (old, new) in [
        (about4().udp(5000, 53).payload(b"abc"), about6().udp(1, 53).payload(b"abc")),
        (about4().tcp(5000, 80, 2), about6().tcp(1, 80, 2)),
        (about4().echo_request(5000, 3).payload(b"abc"), about6().echo_request(1, 3).payload(b"abc")),
        (about4().ip_options(&[1; 8]).udp(5000, 53), about6().udp(1, 53)),
        (about4().protocol(50).payload(&[7; 9]), about6().protocol(50).payload(&[7; 9])),
    ] {
        let packet = to_six(&error4(11, 0, [0; 4], &old.build())).unwrap();
        assert_eq!(packet, six(3, 0, [0; 4], &new.build()));
    }
}

#[test]
fn quoted_packet_is_the_one_its_sender_sent_in_the_other_direction_too() {
    // RFC 7915 §5.3. The identification of a packet that had no fragment header is not known any more.
    let about4 = || PacketBuilder::new().ipv4(B4, A4).ttl(1);
    let about6 = || PacketBuilder::new().ipv6(B6, A6).ttl(1);
    for (old, new) in [
        (about6().udp(53, 1).payload(b"abc"), about4().udp(53, 5000).payload(b"abc")),
        (about6().tcp(80, 1, 2), about4().tcp(80, 5000, 2)),
        (about6().echo_reply(1, 3).payload(b"abc"), about4().echo_reply(5000, 3).payload(b"abc")),
        (about6().destination_options(&[]).udp(53, 1), about4().udp(53, 5000)),
        (about6().fragment6(0, false, 0x1_0007).udp(53, 1), about4().identification(7).udp(53, 5000)),
    ] {
        let packet = to_four(&error6(3, 0, [0; 4], &old.build())).unwrap();
        assert_eq!(packet, four(11, 0, [0; 4], &new.build()));
    }
}

#[test]
fn quotation_of_eight_octets_behind_the_header_is_enough() {
    let whole4 = about4().tcp(5000, 80, 2).payload(&[7; 99]).build();
    let whole6 = about6().tcp(1, 80, 2).payload(&[7; 99]).build();
    let packet = to_six(&error4(3, 3, [0; 4], &whole4[..28])).unwrap();
    assert_eq!(packet, six(1, 4, [0; 4], &whole6[..48]));
    let echo4 = about4().echo_request(5000, 3).payload(&[7; 99]).build();
    let echo6 = about6().echo_request(1, 3).payload(&[7; 99]).build();
    assert_eq!(to_six(&error4(3, 1, [0; 4], &echo4[..28])), Ok(six(1, 0, [0; 4], &echo6[..48])));
    // Less than the ports: the addresses are brought over all the same.
    assert_eq!(
        to_six(&error4(3, 1, [0; 4], &whole4[..22])),
        Ok(six(1, 0, [0; 4], &[&whole6[..40], &whole4[20..22]].concat()))
    );
}

#[test]
fn every_fragment_can_be_quoted() {
    let whole4 = about4().udp(5000, 53).payload(&[7; 40]).build();
    let whole6 = about6().udp(1, 53).payload(&[7; 40]).build();
    for (offset, more, from, to) in [(0, true, 0, 16), (16, true, 16, 32), (32, false, 32, 48)] {
        let old =
            about4().identification(7).fragment(offset, more).protocol(17).payload(&whole4[20..][from..to]);
        let new = about6().fragment6(offset, more, 7).protocol(17).payload(&whole6[40..][from..to]);
        let packet = to_six(&error4(11, 1, [0; 4], &old.build())).unwrap();
        assert_eq!(packet, six(3, 1, [0; 4], &new.build()), "at {offset}");
    }
}

#[test]
fn mtus_are_translated_with_the_packet() {
    let about = about4().dont_fragment().udp(5000, 53).payload(&[7; 1400]).build();
    let packet = to_six(&error4(3, 4, [0, 0, 0x05, 0x14], &about[..300])).unwrap();
    let icmp = Icmpv6View::parse(&packet[40..]).unwrap();
    assert_eq!((icmp.kind(), icmp.code(), icmp.mtu()), (2, 0, 1320));
    let packet = to_six(&error4(3, 4, [0; 4], &about[..300])).unwrap();
    let icmp = Icmpv6View::parse(&packet[40..]).unwrap();
    assert_eq!(icmp.mtu(), 1280, "plateau below the 1428 octets the quoted header says, but not below 1280");
    let about =
        PacketBuilder::new().ipv6(B6, A6).fragment6(0, true, 1).udp(53, 1).payload(&[7; 1400]).build();
    let packet = to_four(&error6(2, 0, 1400u32.to_be_bytes(), &about[..1000])).unwrap();
    let icmp = Icmpv4View::parse(&packet[20..]).unwrap();
    assert_eq!((icmp.kind(), icmp.code(), icmp.next_hop_mtu()), (3, 4, 1372));
}

#[test]
fn long_quotation_is_cut_to_what_an_error_may_have() {
    // RFC 4443 §2.4 (c); RFC 1812 §4.3.2.3
    let about = about4().udp(5000, 53).payload(&[7; 1400]).build();
    let expected = about6().udp(1, 53).payload(&[7; 1400]).build();
    // May be cut as a packet (DF is not set), but the error about it is not: it has no fragment header.
    let packet = to_six(&error4(3, 3, [0; 4], &about)).unwrap();
    // The quoted packet would have had a fragment header, as it would have been cut.
    assert_eq!(packet.len(), 1280);
    assert_eq!(packet[6], 58);
    assert_eq!(&packet[48..54], &[&expected[..4], &[0x05, 0x88]].concat()[..]);
    let about = PacketBuilder::new().ipv6(B6, A6).ttl(1).udp(53, 1).payload(&[7; 1400]).build();
    let expected =
        PacketBuilder::new().ipv4(B4, A4).ttl(1).dont_fragment().udp(53, 5000).payload(&[7; 1400]).build();
    let packet = to_four(&error6(1, 4, [0; 4], &about[..1232])).unwrap();
    assert_eq!(packet, four(3, 3, [0; 4], &expected[..548]));
}

/// An "original datagram" field of `length` octets, zeros behind the packet, and a structure with one object.
fn multi_part(packet: &[u8], length: usize) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    bytes.resize(length, 0);
    bytes.extend_from_slice(&STRUCTURE);
    bytes
}

const STRUCTURE: [u8; 12] = [0x20, 0, 0x8b, 0x82, 0, 8, 1, 1, 0x12, 0x34, 0x41, 0x40];

#[test]
fn extensions_are_carried_over_and_the_length_attribute_follows() {
    // RFC 7915 §4.2 and §5.2 "ICMP Error Payload", RFC 4884 §4
    for payload in [0, 50, 87, 88, 89, 100, 101, 300] {
        let payload = vec![7; payload];
        let about = about4().udp(5000, 53).payload(&payload).build();
        let expected = about6().udp(1, 53).payload(&payload).build();
        let words = about.len().next_multiple_of(4).max(128) / 4;
        let units = expected.len().next_multiple_of(8).max(128) / 8;
        let packet = to_six(&error4(11, 0, [0, words as u8, 0, 0], &multi_part(&about, words * 4))).unwrap();
        assert_eq!(packet, six(3, 0, [units as u8, 0, 0, 0], &multi_part(&expected, units * 8)));

        let about = PacketBuilder::new().ipv6(B6, A6).udp(53, 1).payload(&payload).build();
        let expected = PacketBuilder::new().ipv4(B4, A4).udp(53, 5000).payload(&payload).build();
        let units = about.len().next_multiple_of(8).max(128) / 8;
        let words = expected.len().next_multiple_of(4).max(128) / 4;
        let packet = to_four(&error6(1, 0, [units as u8, 0, 0, 0], &multi_part(&about, units * 8))).unwrap();
        assert_eq!(packet, four(3, 1, [0, words as u8, 0, 0], &multi_part(&expected, words * 4)));
    }
}

#[test]
fn quotation_gives_way_to_the_extension_and_types_without_attribute_lose_it() {
    let about = PacketBuilder::new().ipv6(B6, A6).udp(53, 1).payload(&[7; 1100]).build();
    let packet = to_four(&error6(1, 0, [143, 0, 0, 0], &multi_part(&about, 143 * 8))).unwrap();
    let icmp = Icmpv4View::parse(&packet[20..]).unwrap();
    // 576 - 20 - 8 - 12 octets are 134 words.
    assert_eq!((packet.len(), icmp.original_len()), (576, Ok(536)));
    assert_eq!(icmp.extension().unwrap().unwrap().bytes(), STRUCTURE);
    // "Fragmentation needed" has the attribute, "packet too big" does not.
    let about = about4().udp(5000, 53).payload(&[7; 100]).build();
    let packet = to_six(&error4(3, 4, [0, 32, 5, 0], &multi_part(&about, 128))).unwrap();
    let expected = about6().udp(1, 53).payload(&[7; 100]).build();
    assert_eq!(packet, six(2, 0, 1300u32.to_be_bytes(), &expected));
    // A structure that leaves no room for 128 octets of quotation.
    let mut long = multi_part(&about, 128);
    long.resize(1400, 0);
    let packet = to_six(&error4(11, 0, [0, 32, 0, 0], &long)).unwrap();
    assert_eq!(packet, six(3, 0, [0; 4], &expected));
}

#[test]
fn source_without_ipv4_address_is_revealed_in_an_extension() {
    // RFC 6791 §4, RFC 5837 §4
    let way = V4ErrorWay { reveal: Some(ROUTER6), ..TO_V4 };
    let about = PacketBuilder::new().ipv6(B6, A6).udp(53, 1).build();
    let object = [&[0, 24, 2, 4, 0, 2, 0, 0][..], &ROUTER6.to_be_bytes()].concat();
    let packet = to_four_by(&error6(3, 0, [0; 4], &about), &way).unwrap();
    let icmp = Icmpv4View::parse(&packet[20..]).unwrap();
    assert!(icmp.checksum_ok());
    assert_eq!(icmp.embedded().unwrap().packet().len(), 28);
    let structure = icmp.extension().unwrap().unwrap();
    assert_eq!(structure.bytes()[4..], object);
    // Without room for it, the error goes without.
    let mut bare = error6(3, 0, [0; 4], &about);
    let found = Ipv6View::parse(&bare).unwrap().extensions().unwrap();
    let moved = error_to_v4(&mut bare, 0, &found, &way, &Rules::default()).unwrap();
    assert_eq!(bare[moved.start..], to_four(&error6(3, 0, [0; 4], &about)).unwrap());
    // Behind what there is already.
    let packet = to_four_by(&error6(3, 0, [16, 0, 0, 0], &multi_part(&about, 128)), &way).unwrap();
    let icmp = Icmpv4View::parse(&packet[20..]).unwrap();
    let structure = icmp.extension().unwrap().unwrap();
    assert_eq!(structure.bytes()[4..], [&STRUCTURE[4..], &object].concat());
    // What is there makes no sense: left alone.
    let mut broken = multi_part(&about, 128);
    broken[130] ^= 1;
    let packet = to_four_by(&error6(3, 0, [16, 0, 0, 0], &broken), &way).unwrap();
    assert_eq!(packet.len(), 20 + 8 + 128 + 12);
}

#[test]
fn errors_about_errors_are_dropped() {
    // RFC 7915 §4.3 and §5.3
    let inner = about4().icmp(3, 1, [0; 4]).payload(&about4().udp(1, 2).build()).build();
    assert_eq!(to_six(&error4(11, 0, [0; 4], &inner)), Err(Refused::NestedError));
    let inner = about6().icmp(1, 0, [0; 4]).payload(&about6().udp(1, 2).build()).build();
    assert_eq!(to_four(&error6(3, 0, [0; 4], &inner)), Err(Refused::NestedError));
    assert_eq!(Refused::NestedError.answer(), Answer::Silence);
}

#[test]
fn each_reason_to_refuse_is_named() {
    let about = about4().udp(5000, 53).build();
    let good = error4(3, 3, [0; 4], &about);
    let mut wrong = good.clone();
    wrong[22] ^= 1;
    assert_eq!(to_six(&wrong), Err(Refused::BadIcmpChecksum));
    assert_eq!(to_six(&error4(3, 3, [0; 4], &about[..19])), Err(Refused::BadQuotation));
    assert_eq!(to_six(&error4(3, 3, [0, 200, 0, 0], &about)), Err(Refused::BadQuotation));
    assert_eq!(to_six(&error4(3, 14, [0; 4], &about)), Err(Refused::IcmpWithoutCounterpart));
    assert_eq!(to_six(&error4(8, 0, [0; 4], &about)), Err(Refused::OtherFunction));
    assert_eq!(to_six(&about), Err(Refused::OtherFunction));
    let fragment = PacketBuilder::new().ipv4(ROUTER4, A4).fragment(0, true).protocol(1).payload(&good[20..]);
    assert_eq!(to_six(&fragment.build()), Err(Refused::FragmentedIcmpV4));
    for inner in [
        about4().fragment(8, false).protocol(1).payload(&[0; 8]).build(),
        about4().icmp(13, 0, [0; 4]).build(),
        about4().protocol(1).build(),
        about4().echo_request(1, 2).build()[..27].to_vec(),
        about4().ip_options(&[131, 7, 4, 1, 2, 3, 4, 0]).udp(1, 2).build(),
    ] {
        assert_eq!(to_six(&error4(3, 3, [0; 4], &inner)), Err(Refused::BadQuotation), "{inner:x?}");
    }
    let mut buffer = good.clone();
    assert_eq!(error_to_v6(&mut buffer, 0, &TO_V6, &Rules::default()), Err(Refused::NoRoom));
    assert_eq!(buffer, good);
}

#[test]
fn each_reason_to_refuse_is_named_in_the_other_direction_too() {
    let about = about6().udp(53, 1).build();
    let good = error6(3, 0, [0; 4], &about);
    let mut wrong = good.clone();
    wrong[42] ^= 1;
    assert_eq!(to_four(&wrong), Err(Refused::BadIcmpChecksum));
    assert_eq!(to_four(&error6(3, 0, [0; 4], &about[..39])), Err(Refused::BadQuotation));
    assert_eq!(to_four(&error6(1, 0, [200, 0, 0, 0], &about)), Err(Refused::BadQuotation));
    assert_eq!(to_four(&error6(4, 2, [0; 4], &about)), Err(Refused::IcmpWithoutCounterpart));
    assert_eq!(to_four(&error6(128, 0, [0; 4], &about)), Err(Refused::OtherFunction));
    assert_eq!(to_four(&about), Err(Refused::OtherFunction));
    let base = || PacketBuilder::new().ipv6(ROUTER6, B6);
    let fragment = base().fragment6(0, true, 1).protocol(58).payload(&good[40..]);
    assert_eq!(to_four(&fragment.build()), Err(Refused::FragmentedIcmpV6));
    let routed = base().routing(&[0, 1, 0, 0, 0, 0], B6).icmp(3, 0, [0; 4]).payload(&about);
    assert_eq!(to_four(&routed.build()), Err(Refused::SegmentsLeft { pointer: 43 }));
    for inner in [
        about6().fragment6(8, false, 1).protocol(58).payload(&[0; 8]).build(),
        about6().fragment6(0, true, 1).protocol(60).payload(&[17, 0, 0, 0, 0, 0, 0, 0]).build(),
        about6().icmp(135, 0, [0; 4]).build(),
        about6().protocol(58).build(),
        about6().routing(&[0, 1, 0, 0, 0, 0], B6).udp(1, 2).build(),
        about6().hop_by_hop(&[]).udp(1, 2).build()[..44].to_vec(),
    ] {
        assert_eq!(to_four(&error6(3, 0, [0; 4], &inner)), Err(Refused::BadQuotation), "{inner:x?}");
    }
}

#[test]
fn error_behind_extension_headers_is_translated() {
    let about = PacketBuilder::new().ipv6(B6, A6).ttl(1).udp(53, 1).build();
    let base = PacketBuilder::new().ipv6(ROUTER6, B6).ttl(9).hop_by_hop(&[]).fragment6(0, false, 0x9);
    let expected = PacketBuilder::new().ipv4(B4, A4).ttl(1).udp(53, 5000).build();
    let packet = to_four(&base.icmp(1, 4, [0; 4]).payload(&about).build());
    assert_eq!(packet, Ok(four(3, 3, [0; 4], &expected)));
}

proptest! {
    #[test]
    fn whatever_is_quoted_the_result_is_whole_and_its_checksum_right(
        kind in proptest::sample::select(&[3u8, 11, 12, 4]), code in 0u8..16, rest in any::<[u8; 4]>(),
        noise in proptest::collection::vec((0usize..160, any::<u8>()), 0..6), length in 0usize..160, behind in 0usize..900,
        which in 0..3,
    ) {
        let four = match which {
            0 => about4().udp(5000, 53).payload(&[7; 160]).build(),
            1 => about4().tcp(5000, 53, 2).payload(&[7; 160]).build(),
            _ => about4().echo_request(5000, 53).payload(&[7; 160]).build(),
        };
        let six = match which {
            0 => PacketBuilder::new().ipv6(B6, A6).udp(5000, 53).payload(&[7; 160]).build(),
            1 => PacketBuilder::new().ipv6(B6, A6).hop_by_hop(&[]).tcp(5000, 53, 2).payload(&[7; 160]).build(),
            _ => PacketBuilder::new().ipv6(B6, A6).echo_request(5000, 53).payload(&[7; 160]).build(),
        };
        let damage = |mut about: Vec<u8>| {
            about.truncate(length);
            for (at, octet) in &noise {
                if let Some(to) = about.get_mut(*at) {
                    *to ^= octet;
                }
            }
            about.resize(about.len() + behind, 0x20);
            about
        };
        if let Ok(packet) = to_six(&error4(kind, code, rest, &damage(four))) {
            prop_assert!(packet.len() <= 1280);
            let view = Ipv6View::parse(&packet).unwrap();
            prop_assert!(view.packet().len() == packet.len() && view.next_header() == 58);
            prop_assert!(Icmpv6View::parse(view.payload()).unwrap().checksum_ok(ROUTER6, A6));
        }
        let kind = kind % 5;
        if let Ok(packet) = to_four_by(&error6(kind, code % 5, rest, &damage(six)), &V4ErrorWay { reveal: Some(1), ..TO_V4 }) {
            prop_assert!(packet.len() <= 576);
            let view = Ipv4View::parse(&packet).unwrap();
            prop_assert!(view.checksum_ok() && view.packet().len() == packet.len());
            let icmp = Icmpv4View::parse(view.payload()).unwrap();
            prop_assert!(icmp.checksum_ok() && icmp.embedded().unwrap().checksum_ok());
        }
    }

    #[test]
    fn error_comes_back_as_it_was_from_the_other_version(payload in proptest::collection::vec(any::<u8>(), 8..400), which in 0..2) {
        let about = PacketBuilder::new().ipv6(B6, A6).ttl(1).payload(&payload);
        let about = if which == 0 { about.udp(1, 2) } else { about.tcp(1, 2, 2) };
        let packet = error6(3, 0, [0; 4], &about.build());
        let to = V4ErrorWay { inner: V4Way { ports: Ports { src: Some(7), dst: Some(9) }, ..TO_V4.inner }, ..TO_V4 };
        let four = to_four_by(&packet, &to).unwrap();
        let back = V6ErrorWay {
            outer: V6Way { src: ROUTER6, dst: B6, ..V6_NONE },
            inner: V6Way { src: B6, dst: A6, ports: Ports { src: Some(1), dst: Some(2) }, ..V6_NONE },
            mtus: Mtus::UNKNOWN,
        };
        prop_assert_eq!(to_six_by(&four, &back).unwrap(), packet);
    }
}
