use super::*;
use crate::PacketBuilder;
use proptest::prelude::*;

const A: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0001;
const B: u128 = 0x2001_0db8_0000_0000_0000_0000_0000_0002;
const GROUP: u128 = 0xff0e_0000_0000_0000_0000_0000_0000_0101;

fn base() -> PacketBuilder<'static> {
    PacketBuilder::new().ipv6(A, B)
}

#[test]
fn every_type_has_its_class() {
    for kind in 0..=255 {
        let expected = match kind {
            0..=127 => Class::Error,
            128 => Class::Request,
            129 => Class::Reply,
            130..=132 | 143 => Class::ListenerDiscovery,
            133..=137 => Class::NeighbourDiscovery,
            _ => Class::Other,
        };
        assert_eq!(class_of(kind), expected, "type {kind}");
    }
}

#[test]
fn echo_becomes_its_reply_whichever_way_the_addresses_stand() {
    let mut request = base().echo_request(7, 9).payload(b"hello").build();
    assert!(echo_reply_in_place(&mut request[40..]));
    let reply = PacketBuilder::new().ipv6(B, A).echo_reply(7, 9).payload(b"hello").build();
    assert_eq!(request[40..], reply[40..]);
    assert!(!echo_reply_in_place(&mut request[40..]));
}

#[test]
fn checksum_covers_the_addresses_and_the_length() {
    // RFC 4443 §2.3
    let packet = base().echo_request(7, 9).payload(b"odd").build();
    let message = Icmpv6View::parse(&packet[40..]).unwrap();
    assert!(message.checksum_ok(A, B) && message.checksum_ok(B, A));
    assert!(!message.checksum_ok(A, B + 1));
    let longer = [&packet[40..], &[0]].concat();
    assert!(!Icmpv6View::parse(&longer).unwrap().checksum_ok(A, B));
}

#[test]
fn rewritten_fields_are_those_of_a_fresh_message() {
    let mut packet = base().echo_request(7, 9).build();
    Icmpv6Mut::parse(&mut packet[40..]).unwrap().rewrite_identifier(0xffff);
    assert_eq!(packet, base().echo_request(0xffff, 9).build());
    let mut packet = base().icmp(2, 0, 1500u32.to_be_bytes()).build();
    Icmpv6Mut::parse(&mut packet[40..]).unwrap().rewrite_mtu(70_000);
    assert_eq!(packet, base().icmp(2, 0, 70_000u32.to_be_bytes()).build());
    assert_eq!(Icmpv6View::parse(&packet[40..]).unwrap().mtu(), 70_000);
}

#[test]
fn error_quotes_as_much_as_fits_into_the_minimum_mtu() {
    // RFC 4443 §2.4 (c)
    let original = base().tos(0xbb).udp(1, 2).payload(&[1; 1400]).build();
    let view = Ipv6View::parse(&original).unwrap();
    let mut out = [0u8; 1400];
    let message = ErrorMessage::PacketTooBig { mtu: 1280 };
    assert_eq!(write_error(&mut out, 5, 64, message, &view), Some(1280));
    let ip = Ipv6View::parse(&out).unwrap();
    assert_eq!((ip.src(), ip.dst(), ip.hop_limit(), ip.traffic_class()), (5, A, 64, 0xb8));
    let icmp = Icmpv6View::parse(ip.payload()).unwrap();
    assert_eq!((icmp.kind(), icmp.code(), icmp.mtu()), (2, 0, 1280));
    assert_eq!(icmp.payload(), &original[..1232]);
    assert_eq!(write_error(&mut [0; 1279], 5, 64, message, &view), None);
    assert_eq!(write_error_under(&mut [0; 1279], 100, 5, 64, message, &view), Some(100));
    assert_eq!(write_error_under(&mut [0; 1500], 1500, 5, 64, message, &view), Some(1280));
}

#[test]
fn nothing_is_said_about_errors_redirects_and_packets_from_nobody() {
    // RFC 4443 §2.4 (e)
    let may = |packet: PacketBuilder<'_>| {
        may_cause_error(&Ipv6View::parse(&packet.build()).unwrap(), ErrorMessage::HopLimitExceeded)
    };
    assert!(may(base().udp(1, 2)));
    assert!(may(base().echo_request(1, 2)));
    assert!(may(base().icmp(135, 0, [0; 4])), "a solicitation is informational");
    assert!(may(base().hop_by_hop(&[]).fragment6(0, true, 1).echo_request(1, 2)));
    assert!(may(base().fragment6(8, true, 1).protocol(17).payload(&[0; 8])));
    assert!(!may(base().fragment6(8, true, 1).protocol(58).payload(&[0; 8])), "might be of an error");
    for kind in [1, 2, 3, 4, 100, 127, 137] {
        assert!(!may(base().icmp(kind, 0, [0; 4])), "type {kind}");
        assert!(!may(base().destination_options(&[]).icmp(kind, 0, [0; 4])), "type {kind}");
    }
    assert!(!may(base().protocol(58)), "an empty message");
    for src in [0, 1, GROUP] {
        assert!(!may(PacketBuilder::new().ipv6(src, B).udp(1, 2)), "from {src:x}");
    }
}

#[test]
fn only_two_errors_answer_a_multicast() {
    // RFC 4443 §2.4 (e.3)
    let packet = PacketBuilder::new().ipv6(A, GROUP).udp(1, 2).build();
    let view = Ipv6View::parse(&packet).unwrap();
    let option = |code| ErrorMessage::ParameterProblem { code, pointer: 42 };
    assert!(may_cause_error(&view, ErrorMessage::PacketTooBig { mtu: 1280 }));
    assert!(may_cause_error(&view, option(parameter::UNRECOGNISED_OPTION)));
    assert!(!may_cause_error(&view, option(parameter::ERRONEOUS_FIELD)));
    assert!(!may_cause_error(&view, ErrorMessage::HopLimitExceeded));
    assert!(!may_cause_error(&view, ErrorMessage::Unreachable { code: unreachable::NO_ROUTE }));
}

#[test]
fn headers_that_cannot_be_followed_are_only_answered_with_why() {
    let packet = base().destination_options(&[]).hop_by_hop(&[]).udp(1, 2).build();
    let view = Ipv6View::parse(&packet).unwrap();
    let why = ErrorMessage::ParameterProblem { code: parameter::UNRECOGNISED_NEXT_HEADER, pointer: 40 };
    assert!(may_cause_error(&view, why));
    assert!(!may_cause_error(&view, ErrorMessage::HopLimitExceeded));
}

#[test]
fn extension_structure_stands_behind_what_the_length_attribute_covers() {
    // RFC 4884 §4.4: octet 4, in units of 64 bits.
    let mut original = base().udp(1, 2).payload(&[7; 60]).build();
    original.resize(128, 0);
    let structure = [0x20, 0, 0, 0, 0, 8, 1, 1, 1, 2, 3, 4];
    let payload = [&original[..], &structure].concat();
    let packet = base().icmp(3, 0, [16, 0, 0, 0]).payload(&payload).build();
    let icmp = Icmpv6View::parse(&packet[40..]).unwrap();
    assert_eq!(icmp.original_len(), Ok(128));
    assert_eq!(icmp.embedded().unwrap().packet().len(), 108, "without the padding");
    assert_eq!(icmp.extension().unwrap().unwrap().objects().count(), 1);
    let too_long = base().icmp(1, 0, [18, 0, 0, 0]).payload(&payload).build();
    let icmp = Icmpv6View::parse(&too_long[40..]).unwrap();
    assert_eq!(icmp.original_len(), Err(Icmpv6Error::BadLengthAttribute));
    let no_attribute = base().icmp(2, 0, [16, 0, 0, 0]).payload(&payload).build();
    assert_eq!(Icmpv6View::parse(&no_attribute[40..]).unwrap().original_len(), Ok(140));
    assert!(matches!(
        Icmpv6View::parse(&base().echo_request(1, 1).build()[40..]).unwrap().embedded(),
        Err(Icmpv6Error::NotAnError)
    ));
}

fn any_error() -> impl Strategy<Value = ErrorMessage> {
    prop_oneof![
        (0u8..=6).prop_map(|code| ErrorMessage::Unreachable { code }),
        any::<u32>().prop_map(|mtu| ErrorMessage::PacketTooBig { mtu }),
        Just(ErrorMessage::HopLimitExceeded),
        Just(ErrorMessage::ReassemblyTimeExceeded),
        (0u8..=2, any::<u32>()).prop_map(|(code, pointer)| ErrorMessage::ParameterProblem { code, pointer }),
    ]
}

proptest! {
    #[test]
    fn written_error_reads_back_and_the_judge_agrees(
        message in any_error(), payload in proptest::collection::vec(any::<u8>(), 0..1400), src in any::<u128>(),
    ) {
        let original = base().udp(1, 2).payload(&payload).build();
        let view = Ipv6View::parse(&original).unwrap();
        let mut out = [0u8; ERROR_LEN_MAX];
        let length = write_error(&mut out, src, 255, message, &view).unwrap();
        let ip = Ipv6View::parse(&out[..length]).unwrap();
        let icmp = Icmpv6View::parse(ip.payload()).unwrap();
        prop_assert!(icmp.checksum_ok(src, A) && icmp.class() == Class::Error);
        prop_assert_eq!((icmp.kind(), icmp.code()), message.kind_and_code());
        prop_assert_eq!(icmp.embedded().unwrap().packet(), &original[..original.len().min(1232)]);
        let judge = etherparse::Icmpv6Slice::from_slice(ip.payload()).unwrap();
        prop_assert!(judge.is_checksum_valid(src.to_be_bytes(), A.to_be_bytes()));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..6) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok(icmp) = Icmpv6View::parse(&bytes) {
            let _ = (icmp.checksum_ok(1, 2), icmp.extension().map(|found| found.map(|e| e.objects().count())));
            if let Ok(embedded) = icmp.embedded() {
                prop_assert!(embedded.packet().len() <= icmp.payload().len());
            }
        }
        echo_reply_in_place(&mut bytes);
        if let Ok(view) = Ipv6View::parse_quoted(&bytes) {
            let _ = may_cause_error(&view, ErrorMessage::HopLimitExceeded);
        }
    }
}
