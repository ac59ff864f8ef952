use super::*;
use crate::PacketBuilder;
use crate::ipv4::option_kind;
use proptest::prelude::*;

fn cut(packet: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, FragmentError> {
    let plan = Fragments::plan(Ipv4View::parse(packet).unwrap(), mtu)?;
    let fragments: Vec<Fragment> = plan.clone().collect();
    Ok(fragments
        .iter()
        .map(|fragment| {
            let mut out = vec![0xaa; fragment.total_len()];
            assert_eq!(plan.write(fragment, &mut out), Some(out.len()));
            out
        })
        .collect())
}

#[test]
fn forbidden_fragmenting_is_reported_unless_the_packet_fits() {
    // RFC 4787 REQ-13
    let packet = PacketBuilder::new().ipv4(1, 2).dont_fragment().udp(1, 2).payload(&[0; 100]).build();
    assert_eq!(cut(&packet, 127), Err(FragmentError::DontFragment));
    assert_eq!(cut(&packet, 128), Ok(vec![packet.clone()]));
}

#[test]
fn options_without_the_copied_flag_stay_in_the_first_fragment() {
    let options = [option_kind::RECORD_ROUTE, 3, 4, option_kind::ROUTER_ALERT, 4, 0, 0, 0];
    let packet = PacketBuilder::new().ipv4(1, 2).ip_options(&options).udp(1, 2).payload(&[5; 200]).build();
    let fragments = cut(&packet, 100).unwrap();
    for (index, bytes) in fragments.iter().enumerate() {
        let kinds: Vec<u8> = Ipv4View::parse(bytes).unwrap().options().map(|option| option.kind).collect();
        let expected =
            if index == 0 { vec![option_kind::RECORD_ROUTE, option_kind::ROUTER_ALERT] } else { vec![148] };
        assert_eq!(kinds, expected, "fragment {index}");
    }
}

#[test]
fn impossible_links_and_malformed_options_are_refused() {
    let packet = PacketBuilder::new().ipv4(1, 2).udp(1, 2).payload(&[0; 100]).build();
    assert_eq!(cut(&packet, 27), Err(FragmentError::MtuTooSmall));
    assert!(cut(&packet, 28).is_ok());
    let packet =
        PacketBuilder::new().ipv4(1, 2).ip_options(&[7, 1, 0, 0]).udp(1, 2).payload(&[0; 100]).build();
    assert_eq!(cut(&packet, 100), Err(FragmentError::BadOptions));
    let packet =
        PacketBuilder::new().ipv4(1, 2).fragment(65_504, false).protocol(17).payload(&[0; 100]).build();
    assert_eq!(cut(&packet, 100), Err(FragmentError::BadOffset));
}

proptest! {
    #[test]
    fn fragments_fit_follow_in_order_and_carry_every_octet_once(
        payload in proptest::collection::vec(any::<u8>(), 0..600), mtu in 68usize..300, start in 0u16..1000,
        more in any::<bool>(), words in 0usize..=10,
    ) {
        // RFC 4787 REQ-13a: sent in order.
        let keep = if more { payload.len() & !7 } else { payload.len() };
        let options = vec![1u8; words * 4];
        let packet = PacketBuilder::new().ipv4(1, 2).identification(99).ip_options(&options).fragment(start * 8, more)
            .protocol(17).payload(&payload[..keep]).build();
        let fragments = cut(&packet, mtu).unwrap();
        let mut expected_offset = u32::from(start) * 8;
        let mut whole: Vec<u8> = Vec::new();
        for (index, bytes) in fragments.iter().enumerate() {
            let view = Ipv4View::parse(bytes).unwrap();
            let is_last = index + 1 == fragments.len();
            prop_assert!(view.checksum_ok() && bytes.len() <= mtu && view.packet().len() == bytes.len());
            prop_assert_eq!((view.fragment_offset(), view.identification()), (expected_offset, 99));
            prop_assert_eq!(view.more_fragments(), more || !is_last);
            prop_assert!(is_last || view.payload().len().is_multiple_of(8));
            expected_offset += view.payload().len() as u32;
            whole.extend(view.payload());
        }
        prop_assert_eq!(&whole[..], &payload[..keep]);
        prop_assert!(fragments.len() == 1 || packet.len() > mtu);
    }

    #[test]
    fn arbitrary_packets_and_links_never_panic(
        mut bytes in proptest::collection::vec(any::<u8>(), 20..200), mtu in 0usize..300,
    ) {
        bytes[0] = 0x40 | (bytes[0] & 0x0f);
        bytes[2] = 0;
        if let Ok(view) = Ipv4View::parse(&bytes)
            && let Ok(plan) = Fragments::plan(view, mtu)
        {
            prop_assert!(plan.clone().count() <= 200);
            for fragment in plan.clone() {
                let mut out = [0u8; 200];
                prop_assert!(plan.write(&fragment, &mut out).is_some());
            }
        }
    }
}
