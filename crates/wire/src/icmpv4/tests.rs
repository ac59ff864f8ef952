use super::*;
use crate::{Ipv4View, PacketBuilder};
use proptest::prelude::*;

/// An ICMP error of `kind` whose original datagram field has `words` of length attribute, then `behind`.
fn multi_part(kind: u8, words: u8, original: &[u8], behind: &[u8]) -> Vec<u8> {
    let payload = [original, behind].concat();
    PacketBuilder::new().ipv4(1, 2).icmp(kind, 0, [0, words, 0, 0]).payload(&payload).build()[20..].to_vec()
}

fn original(length: usize) -> Vec<u8> {
    let mut bytes =
        PacketBuilder::new().ipv4([10, 0, 0, 1], [192, 0, 2, 1]).udp(1, 2).payload(&[9; 50]).build();
    bytes.resize(length, 0);
    bytes
}

/// One MPLS-like object, checksum filled in.
fn extension() -> Vec<u8> {
    let mut bytes = vec![0x20, 0, 0, 0, 0, 8, 1, 1, 0, 1, 2, 3];
    let sum = checksum::checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn embedded_packet_excludes_padding_and_extension() {
    // RFC 5508 REQ-3d: the transport header and payload end where the embedded packet says.
    let message = multi_part(kind::TIME_EXCEEDED, 32, &original(128), &extension());
    let icmp = Icmpv4View::parse(&message).unwrap();
    assert!(icmp.checksum_ok());
    let embedded = icmp.embedded().unwrap();
    assert_eq!((embedded.packet().len(), embedded.payload().len()), (78, 58));
    let objects: Vec<_> = icmp.extension().unwrap().unwrap().objects().collect();
    assert_eq!(objects, [Object { class: 1, c_type: 1, payload: &[0, 1, 2, 3] }]);
}

#[test]
fn embedded_options_are_walked_past() {
    // RFC 5508 REQ-3b
    let inner = PacketBuilder::new().ipv4(1, 2).ip_options(&[148, 4, 0, 0]).udp(0x1234, 2).build();
    let message = multi_part(kind::DESTINATION_UNREACHABLE, 0, &inner, &[]);
    let embedded = Icmpv4View::parse(&message).unwrap().embedded().unwrap();
    assert_eq!(crate::UdpView::parse_quoted(embedded.payload()).unwrap().src_port(), 0x1234);
    assert!(embedded.checksum_ok());
}

#[test]
fn length_attribute_beyond_the_message_is_refused() {
    let message = multi_part(kind::TIME_EXCEEDED, 33, &original(128), &[]);
    let icmp = Icmpv4View::parse(&message).unwrap();
    assert_eq!(icmp.embedded().err(), Some(Icmpv4Error::BadLengthAttribute));
    assert_eq!(icmp.original_len(), Err(Icmpv4Error::BadLengthAttribute));
}

#[test]
fn length_octet_of_a_redirect_is_part_of_the_gateway_address() {
    let message = multi_part(kind::REDIRECT, 200, &original(78), &[]);
    assert_eq!(Icmpv4View::parse(&message).unwrap().original_len(), Ok(78));
}

#[test]
fn broken_extensions_are_told_apart() {
    let judge = |words: u8, length: usize, change: fn(&mut Vec<u8>)| {
        let mut bytes = extension();
        change(&mut bytes);
        let message = multi_part(kind::TIME_EXCEEDED, words, &original(length), &bytes);
        Icmpv4View::parse(&message).unwrap().extension().map(|found| found.is_some())
    };
    assert_eq!(judge(32, 128, |_| ()), Ok(true));
    assert_eq!(judge(32, 128, |bytes| bytes.clear()), Ok(false));
    assert_eq!(judge(0, 128, |_| ()), Ok(false), "no length attribute, no extension");
    assert_eq!(judge(31, 124, |_| ()), Err(ExtensionError::OriginalTooShort));
    assert_eq!(judge(32, 128, |bytes| bytes.truncate(3)), Err(ExtensionError::Truncated));
    assert_eq!(judge(32, 128, |bytes| bytes[0] = 0x10), Err(ExtensionError::BadVersion));
    assert_eq!(judge(32, 128, |bytes| bytes[11] ^= 1), Err(ExtensionError::BadChecksum));
    assert_eq!(judge(32, 128, |bytes| bytes[2..4].fill(0)), Ok(true), "checksum 0 means none");
    for length in [0, 3, 6, 12] {
        let mut bytes = extension();
        bytes[2..4].fill(0);
        bytes[5] = length;
        assert_eq!(Extension::parse(&bytes), Err(ExtensionError::BadObject), "object of {length} octets");
    }
}

#[test]
fn echo_becomes_its_reply() {
    let mut request = PacketBuilder::new().ipv4(1, 2).echo_request(7, 9).payload(b"hello").build();
    assert!(echo_reply_in_place(&mut request[20..]));
    assert_eq!(request, PacketBuilder::new().ipv4(1, 2).echo_reply(7, 9).payload(b"hello").build());
    assert!(!echo_reply_in_place(&mut request[20..]));
}

#[test]
fn quotation_stops_at_576_octets_and_the_diffserv_class_is_kept() {
    // RFC 5508 REQ-10d: the class is copied, the congestion bits are not.
    let original =
        PacketBuilder::new().ipv4([10, 0, 0, 1], 2).tos(0xbb).udp(1, 2).payload(&[1; 1400]).build();
    let view = Ipv4View::parse(&original).unwrap();
    let mut out = [0u8; 600];
    let length =
        write_error(&mut out, 5, 64, 77, ErrorMessage::FragmentationNeeded { mtu: 1280 }, &view).unwrap();
    assert_eq!(length, ERROR_LEN_MAX);
    let ip = Ipv4View::parse(&out[..length]).unwrap();
    assert_eq!((ip.src(), ip.dst(), ip.ttl(), ip.identification()), (5, 0x0a00_0001, 64, 77));
    assert_eq!((ip.dscp(), ip.ecn()), (0xbb >> 2, 0));
    let icmp = Icmpv4View::parse(ip.payload()).unwrap();
    assert_eq!((icmp.kind(), icmp.code(), icmp.next_hop_mtu()), (3, 4, 1280));
    assert_eq!(icmp.payload(), &original[..548]);
    assert_eq!(write_error(&mut [0; 575], 5, 64, 0, ErrorMessage::TtlExceeded, &view), None);
}

#[test]
fn error_for_a_narrow_link_quotes_less_but_never_more() {
    let original = PacketBuilder::new().ipv4(1, 2).udp(1, 2).payload(&[1; 1400]).build();
    let view = Ipv4View::parse(&original).unwrap();
    for (length_max, length) in [(100, 100), (576, 576), (1500, 576)] {
        let written =
            write_error_under(&mut [0; 1500], length_max, 5, 64, 0, ErrorMessage::TtlExceeded, &view);
        assert_eq!(written, Some(length));
    }
}

#[test]
fn errors_are_not_answered_with_errors() {
    // RFC 5508 REQ-10e
    let may = |packet: Vec<u8>| may_cause_error(&Ipv4View::parse(&packet).unwrap());
    let from = |src: [u8; 4], dst: [u8; 4]| PacketBuilder::new().ipv4(src, dst);
    let (a, b) = ([10, 0, 0, 1], [192, 0, 2, 1]);
    assert!(may(from(a, b).udp(1, 2).build()));
    assert!(may(from(a, b).echo_request(1, 2).build()));
    assert!(may(from(a, b).fragment(0, true).protocol(17).payload(&[0; 8]).build()));
    assert!(!may(from(a, b).fragment(8, false).protocol(17).payload(&[0; 8]).build()));
    for kind in [3, 4, 5, 11, 12, 9, 200] {
        assert!(!may(from(a, b).icmp(kind, 0, [0; 4]).build()), "type {kind}");
    }
    for (src, dst) in [([0, 0, 0, 0], b), ([127, 0, 0, 1], b), ([224, 0, 0, 1], b), ([240, 0, 0, 1], b)] {
        assert!(!may(from(src, dst).udp(1, 2).build()), "from {src:?}");
    }
    assert!(!may(from(a, [224, 0, 0, 5]).udp(1, 2).build()));
    assert!(!may(from(a, [255, 255, 255, 255]).udp(1, 2).build()));
}

fn any_error() -> impl Strategy<Value = ErrorMessage> {
    prop_oneof![
        (0u8..=15)
            .prop_filter("has its own variant", |code| *code != 4)
            .prop_map(|code| ErrorMessage::Unreachable { code }),
        any::<u16>().prop_map(|mtu| ErrorMessage::FragmentationNeeded { mtu }),
        Just(ErrorMessage::TtlExceeded),
        Just(ErrorMessage::ReassemblyTimeExceeded),
        any::<u8>().prop_map(|pointer| ErrorMessage::ParameterProblem { pointer }),
    ]
}

proptest! {
    #[test]
    fn written_error_reads_back_and_the_judge_agrees(
        message in any_error(), payload in proptest::collection::vec(any::<u8>(), 0..700), src in any::<u32>(),
    ) {
        let original = PacketBuilder::new().ipv4([10, 0, 0, 1], 2).udp(1, 2).payload(&payload).build();
        let view = Ipv4View::parse(&original).unwrap();
        let mut out = [0u8; ERROR_LEN_MAX];
        let length = write_error(&mut out, src, 255, 1, message, &view).unwrap();
        let ip = Ipv4View::parse(&out[..length]).unwrap();
        let icmp = Icmpv4View::parse(ip.payload()).unwrap();
        prop_assert!(ip.checksum_ok() && icmp.checksum_ok() && icmp.class() == Class::Error);
        prop_assert_eq!((icmp.kind(), icmp.code()), message.kind_and_code());
        prop_assert_eq!(icmp.embedded().unwrap().packet(), &original[..original.len().min(548)]);
        let judge = etherparse::Icmpv4Slice::from_slice(ip.payload()).unwrap();
        prop_assert_eq!(judge.icmp_type().calc_checksum(judge.payload()), icmp.checksum());
    }

    #[test]
    fn rewritten_identifier_is_that_of_a_fresh_message(id in any::<u16>(), new in any::<u16>(), seq in any::<u16>()) {
        let mut packet = PacketBuilder::new().ipv4(1, 2).echo_request(id, seq).payload(b"abc").build();
        Icmpv4Mut::parse(&mut packet[20..]).unwrap().rewrite_identifier(new);
        prop_assert_eq!(packet, PacketBuilder::new().ipv4(1, 2).echo_request(new, seq).payload(b"abc").build());
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u8..20) {
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok(icmp) = Icmpv4View::parse(&bytes) {
            let _ = (icmp.checksum_ok(), icmp.identifier(), icmp.extension().map(|found| found.map(|e| e.objects().count())));
            if let Ok(embedded) = icmp.embedded() {
                prop_assert!(embedded.packet().len() <= icmp.payload().len());
            }
        }
        let _ = Extension::parse(&bytes);
        echo_reply_in_place(&mut bytes);
    }
}
