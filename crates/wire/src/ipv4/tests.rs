use super::*;
use crate::PacketBuilder;
use proptest::prelude::*;

fn good() -> Vec<u8> {
    PacketBuilder::new().ipv4([10, 0, 0, 1], [192, 0, 2, 1]).udp(1, 2).payload(b"abc").build()
}

#[test]
fn each_way_to_be_malformed_has_its_own_error() {
    let cases: [(usize, u8, Ipv4Error); 5] = [
        (0, 0x65, Ipv4Error::BadVersion),
        (0, 0x44, Ipv4Error::BadHeaderLength),
        (3, 19, Ipv4Error::BadTotalLength),
        (3, 32, Ipv4Error::Truncated),
        (2, 1, Ipv4Error::Truncated),
    ];
    for (at, value, error) in cases {
        let mut bytes = good();
        bytes[at] = value;
        assert_eq!(Ipv4View::parse(&bytes).err(), Some(error), "octet {at} = {value}");
    }
    assert_eq!(Ipv4View::parse(&good()[..19]).err(), Some(Ipv4Error::Truncated));
    assert_eq!(Ipv4View::parse(&[]).err(), Some(Ipv4Error::Truncated));
}

#[test]
fn link_padding_is_not_payload() {
    let mut bytes = good();
    bytes.extend([0xaa; 20]);
    let view = Ipv4View::parse(&bytes).unwrap();
    assert_eq!((view.packet().len(), view.payload().len(), view.payload_length()), (31, 11, 11));
    assert_eq!(Ipv4Mut::parse(&mut bytes).unwrap().payload_mut().len(), 11);
}

#[test]
fn quotation_may_lack_its_payload_but_not_its_header() {
    let bytes = PacketBuilder::new().ipv4(1, 2).ip_options(&[1, 1, 1, 0]).udp(1, 2).payload(&[7; 40]).build();
    for cut in 0..bytes.len() {
        match Ipv4View::parse_quoted(&bytes[..cut]) {
            Ok(view) => assert_eq!((view.payload().len(), view.payload_length()), (cut - 24, 48)),
            Err(error) => assert!(cut < 24 && error == Ipv4Error::Truncated),
        }
    }
}

#[test]
fn options_walk_stops_at_nonsense_and_says_so() {
    let walk = |bytes: &'static [u8]| {
        let kinds: Vec<_> = Options::new(bytes).map(|option| option.kind).collect();
        (kinds, Options::new(bytes).are_valid())
    };
    assert_eq!(walk(&[1, 148, 4, 0, 0, 0, 7, 3]), (vec![1, 148], true));
    assert_eq!(walk(&[1, 7, 1, 0]), (vec![1], false));
    assert_eq!(walk(&[131, 9, 4, 0]), (vec![], false));
    assert_eq!(walk(&[7]), (vec![], false));
    assert!(Options::new(&[131, 3, 4]).all(|option| option.is_copied() && option.is_source_route()));
}

#[test]
fn a_source_route_has_run_out_once_its_pointer_is_beyond_it() {
    for (option, expected) in [
        (&[131, 7, 4, 1, 2, 3, 4][..], true),
        (&[137, 7, 7, 1, 2, 3, 4], true),
        (&[131, 7, 8, 1, 2, 3, 4], false),
        (&[131, 3, 4], false),
        (&[137, 2], false),
        (&[7, 7, 4, 0, 0, 0, 0], false),
    ] {
        assert_eq!(Options::new(option).all(|o| o.is_unexpired_source_route()), expected, "{option:?}");
    }
}

#[test]
fn last_hop_ttl_stays_at_zero() {
    let mut bytes = PacketBuilder::new().ipv4(1, 2).ttl(1).protocol(1).build();
    let mut packet = Ipv4Mut::parse(&mut bytes).unwrap();
    assert_eq!((packet.decrement_ttl(), packet.decrement_ttl()), (0, 0));
    assert!(Ipv4View::parse(&bytes).unwrap().checksum_ok());
}

proptest! {
    #[test]
    fn header_survives_writing_and_reading(
        tos in any::<u8>(), payload in proptest::collection::vec(any::<u8>(), 0..64), id in any::<u16>(),
        flags in any::<u16>(), ttl in any::<u8>(), protocol in any::<u8>(), src in any::<u32>(), dst in any::<u32>(),
    ) {
        let header = Ipv4Header {
            tos, payload_len: payload.len() as u16, identification: id, flags_and_offset: flags & 0x7fff, ttl,
            protocol, src, dst,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.extend(&payload);
        let view = Ipv4View::parse(&bytes).unwrap();
        prop_assert!(view.checksum_ok());
        prop_assert_eq!((view.tos(), view.identification(), view.flags_and_offset()), (tos, id, flags & 0x7fff));
        prop_assert_eq!((view.ttl(), view.protocol(), view.src(), view.dst()), (ttl, protocol, src, dst));
        prop_assert_eq!((view.dscp() << 2) | view.ecn(), tos);
        prop_assert_eq!(view.payload(), &payload[..]);

        let judge = etherparse::Ipv4HeaderSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!(judge.to_header().calc_header_checksum(), view.checksum());
        prop_assert_eq!(judge.source_addr(), view.src_addr());
        prop_assert_eq!(judge.destination_addr(), view.dst_addr());
        prop_assert_eq!(judge.dont_fragment(), view.dont_fragment());
        prop_assert_eq!(judge.more_fragments(), view.more_fragments());
        prop_assert_eq!(u32::from(judge.fragments_offset().value()) * 8, view.fragment_offset());
        prop_assert_eq!(judge.is_fragmenting_payload(), view.is_fragment());
    }

    #[test]
    fn rewrites_keep_the_checksum_right(
        src in any::<u32>(), dst in any::<u32>(), to in any::<u32>(), id in any::<u16>(), ttl in any::<u8>(),
        words in 0usize..=10,
    ) {
        let options = vec![1u8; words * 4];
        let mut bytes = PacketBuilder::new().ipv4(src, dst).ttl(ttl).ip_options(&options).udp(1, 2).build();
        let mut packet = Ipv4Mut::parse(&mut bytes).unwrap();
        packet.rewrite_src(to);
        packet.rewrite_dst(!to);
        packet.rewrite_identification(id);
        packet.decrement_ttl();
        let view = Ipv4View::parse(&bytes).unwrap();
        prop_assert!(view.checksum_ok());
        prop_assert_eq!((view.src(), view.dst(), view.ttl()), (to, !to, ttl.saturating_sub(1)));
        let incremental = view.checksum();
        Ipv4Mut::parse(&mut bytes).unwrap().fill_checksum();
        prop_assert_eq!(Ipv4View::parse(&bytes).unwrap().checksum(), incremental);
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..96), fix in any::<bool>()) {
        if fix && bytes.len() > 3 {
            bytes[0] = 0x40 | (bytes[0] & 0x0f);
            bytes[2] = 0;
        }
        let whole = Ipv4View::parse(&bytes);
        if let Ok(view) = Ipv4View::parse_quoted(&bytes) {
            prop_assert_eq!(view.header().len(), view.header_len());
            prop_assert_eq!(view.header().len() + view.payload().len(), view.packet().len());
            let _ = (view.checksum_ok(), view.options().are_valid(), view.payload_length());
            prop_assert_eq!(whole.is_ok(), usize::from(view.total_length()) <= bytes.len());
        } else {
            prop_assert!(whole.is_err());
        }
        // The judge wants what we want of a whole packet.
        prop_assert_eq!(whole.is_ok(), etherparse::Ipv4Slice::from_slice(&bytes).is_ok() || is_auth_header(&whole));
        if let Ok(mut packet) = Ipv4Mut::parse_quoted(&mut bytes) {
            packet.decrement_ttl();
            packet.fill_checksum();
            let _ = packet.payload_mut();
        }
    }
}

/// The judge also reads an IPsec authentication header, which may be malformed on its own.
fn is_auth_header(view: &Result<Ipv4View<'_>, Ipv4Error>) -> bool {
    view.as_ref().is_ok_and(|view| view.protocol() == 51)
}
