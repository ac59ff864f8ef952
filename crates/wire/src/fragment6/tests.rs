use super::*;
use crate::PacketBuilder;
use crate::ipv6::MTU_MIN;
use proptest::prelude::*;

fn cut(packet: &[u8], mtu: usize) -> Result<Vec<Vec<u8>>, Fragment6Error> {
    let plan = Fragments6::plan(Ipv6View::parse(packet).unwrap(), mtu, 0x0102_0304)?;
    let fragments: Vec<Fragment6> = plan.clone().collect();
    Ok(fragments
        .iter()
        .map(|fragment| {
            let mut out = vec![0; fragment.total_len()];
            assert_eq!(plan.write(fragment, &mut []), None);
            assert_eq!(plan.write(fragment, &mut out), Some(out.len()));
            out
        })
        .collect())
}

/// What a receiver makes of the fragments: identification and fragmentable part (RFC 8200 §4.5).
fn reassemble(fragments: &[Vec<u8>]) -> (u8, u32, Vec<u8>) {
    let mut whole = Vec::new();
    let mut of = (0, 0);
    for (index, packet) in fragments.iter().enumerate() {
        let view = Ipv6View::parse(packet).unwrap();
        let found = view.extensions().unwrap();
        let header = found.fragment.unwrap();
        let data = &packet[usize::from(header.at) + FRAGMENT_HEADER_LEN..];
        assert_eq!(usize::from(header.offset), whole.len());
        assert_eq!(header.more, index + 1 < fragments.len());
        assert!(!header.more || data.len() % 8 == 0);
        whole.extend_from_slice(data);
        of = (header.next_header, header.identification);
    }
    (of.0, of.1, whole)
}

#[test]
fn packet_that_fits_stays_as_it_is() {
    for packet in [
        PacketBuilder::new().ipv6(1, 2).udp(1, 2).payload(&[7; 1232]).build(),
        PacketBuilder::new().ipv6(1, 2).hop_by_hop(&[]).fragment6(0, true, 5).udp(1, 2).build(),
    ] {
        assert_eq!(cut(&packet, MTU_MIN), Ok(vec![packet]));
    }
}

#[test]
fn each_reason_not_to_cut_is_named() {
    let long = [7; 1400];
    let packet = PacketBuilder::new().ipv6(1, 2).udp(1, 2).payload(&long);
    assert_eq!(cut(&packet.build(), 55), Err(Fragment6Error::MtuTooSmall));
    let options = PacketBuilder::new().ipv6(1, 2).hop_by_hop(&[]).fragment6(0, false, 1).udp(1, 2);
    assert_eq!(cut(&options.payload(&long).build(), 1280), Err(Fragment6Error::HasExtensions));
    let options = PacketBuilder::new().ipv6(1, 2).destination_options(&[]).udp(1, 2).payload(&long);
    assert_eq!(cut(&options.build(), 1280), Err(Fragment6Error::HasExtensions));
    let late = PacketBuilder::new().ipv6(1, 2).fragment6(65_000, false, 1).protocol(17).payload(&long);
    assert_eq!(cut(&late.build(), 1280), Err(Fragment6Error::BadOffset));
}

#[test]
fn piece_keeps_its_place_and_identification_when_cut_again() {
    let packet = PacketBuilder::new().ipv6(1, 2).fragment6(2560, true, 9).protocol(17).payload(&[7; 2560]);
    let fragments = cut(&packet.build(), 1280).unwrap();
    let headers: Vec<_> = fragments
        .iter()
        .map(|packet| Ipv6View::parse(packet).unwrap().extensions().unwrap().fragment.unwrap())
        .map(|header| (header.offset, header.more, header.identification))
        .collect();
    assert_eq!(headers, [(2560, true, 9), (3792, true, 9), (5024, true, 9)]);
}

proptest! {
    #[test]
    fn fragments_fit_and_add_up_to_the_packet(
        payload in proptest::collection::vec(any::<u8>(), 0..5000), mtu in 56usize..1600, is_atomic in any::<bool>(),
    ) {
        let builder = PacketBuilder::new().ipv6(1, 2).flow_label(5);
        let builder = if is_atomic { builder.fragment6(0, false, 0x0102_0304) } else { builder };
        let packet = builder.udp(1, 2).payload(&payload).build();
        let fragments = cut(&packet, mtu).unwrap();
        prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
        if packet.len() > mtu {
            let transport = &packet[packet.len() - payload.len() - 8..];
            prop_assert_eq!(reassemble(&fragments), (17, 0x0102_0304, transport.to_vec()));
        }
    }
}
