use super::*;
use crate::{Ipv4View, PacketBuilder};
use proptest::prelude::*;

#[test]
fn length_below_header_or_beyond_packet_is_refused() {
    for (length, ok) in [(0u16, false), (7, false), (8, true), (10, true), (11, false)] {
        let mut bytes = [0u8; 10];
        bytes[4..6].copy_from_slice(&length.to_be_bytes());
        assert_eq!(UdpView::parse(&bytes).is_ok(), ok, "length {length}");
        assert_eq!(UdpMut::parse(&mut bytes).is_ok(), ok);
        assert!(UdpView::parse_quoted(&bytes).is_ok());
    }
    assert_eq!(UdpView::parse(&[0; 7]).err(), Some(UdpError::Truncated));
}

#[test]
fn computed_zero_is_sent_as_all_ones() {
    // Chosen so that the sum is 0xffff and its complement 0.
    let mut bytes = [0, 0, 0, 0, 0, 10, 0, 0, 0, 0];
    let sum = checksum::pseudo_v4(1, 2, protocol::UDP, 10).with_bytes(&bytes).fold();
    bytes[8..10].copy_from_slice(&(!sum).to_be_bytes());
    let mut udp = UdpMut::parse(&mut bytes).unwrap();
    udp.fill_checksum(1, 2);
    assert_eq!(udp.checksum(), 0xffff);
    assert!(UdpView::parse(&bytes).unwrap().checksum_ok(1, 2));
}

#[test]
fn absent_checksum_is_accepted_and_kept() {
    let mut packet = PacketBuilder::new().ipv4(1, 2).udp_without_checksum(3, 4).payload(b"x").build();
    let mut udp = UdpMut::parse(&mut packet[20..]).unwrap();
    udp.apply(Delta::of_u16(3, 5));
    assert_eq!(udp.checksum(), 0);
    assert!(UdpView::parse(&packet[20..]).unwrap().checksum_ok(1, 2));
}

proptest! {
    #[test]
    fn datagram_survives_and_the_judge_agrees(
        src in any::<u32>(), dst in any::<u32>(), sport in any::<u16>(), dport in any::<u16>(),
        payload in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let packet = PacketBuilder::new().ipv4(src, dst).udp(sport, dport).payload(&payload).build();
        let ip = Ipv4View::parse(&packet).unwrap();
        let udp = UdpView::parse(ip.payload()).unwrap();
        prop_assert_eq!((udp.src_port(), udp.dst_port(), udp.payload()), (sport, dport, &payload[..]));
        prop_assert!(udp.checksum_ok(src, dst));
        let judge = etherparse::UdpHeader::with_ipv4_checksum(
            sport, dport, &etherparse::Ipv4Header::from_slice(&packet).unwrap().0, &payload).unwrap();
        prop_assert_eq!(udp.checksum(), judge.checksum);
    }

    #[test]
    fn translated_datagram_has_the_checksum_of_a_fresh_one(
        src in any::<u32>(), to in any::<u32>(), sport in any::<u16>(), port in any::<u16>(), payload in any::<[u8; 5]>(),
    ) {
        let mut packet = PacketBuilder::new().ipv4(src, 9).udp(sport, 53).payload(&payload).build();
        let mut ip = crate::Ipv4Mut::parse(&mut packet).unwrap();
        let delta = ip.rewrite_src(to).plus(Delta::of_u16(sport, port));
        let mut udp = UdpMut::parse(ip.payload_mut()).unwrap();
        udp.set_src_port(port);
        udp.apply(delta);
        prop_assert_eq!(packet, PacketBuilder::new().ipv4(to, 9).udp(port, 53).payload(&payload).build());
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..32), small in any::<bool>()) {
        if small && bytes.len() > 5 {
            bytes[4] = 0;
        }
        if let Ok(view) = UdpView::parse(&bytes) {
            prop_assert_eq!(view.payload().len() + 8, usize::from(view.length()));
            let _ = view.checksum_ok(1, 2);
        }
        if let Ok(mut udp) = UdpMut::parse_quoted(&mut bytes) {
            udp.fill_checksum(1, 2);
        }
    }
}
