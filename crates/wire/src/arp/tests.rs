use super::*;
use proptest::prelude::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

#[test]
fn reply_swaps_sender_and_target() {
    let reply = ArpPacket::request(A, 0x0a00_0001, 0x0a00_0002).reply(B);
    assert_eq!((reply.operation, reply.sender_mac, reply.sender_ip), (Operation::Reply, B, 0x0a00_0002));
    assert_eq!((reply.target_mac, reply.target_ip), (A, 0x0a00_0001));
}

#[test]
fn announcement_is_told_from_a_question() {
    assert!(ArpPacket::gratuitous(A, 1).is_gratuitous());
    assert!(!ArpPacket::request(A, 1, 2).is_gratuitous());
}

#[test]
fn other_hardware_and_operations_are_refused() {
    let good = ArpPacket::request(A, 1, 2).to_bytes();
    for (at, value, error) in [
        (1, 6, ArpError::NotEthernetIpv4),
        (3, 6, ArpError::NotEthernetIpv4),
        (4, 8, ArpError::NotEthernetIpv4),
        (5, 16, ArpError::NotEthernetIpv4),
        (7, 0, ArpError::BadOperation),
        (7, 3, ArpError::BadOperation),
        (6, 1, ArpError::BadOperation),
    ] {
        let mut bad = good;
        bad[at] = value;
        assert_eq!(ArpPacket::parse(&bad), Err(error), "octet {at}");
    }
    assert_eq!(ArpPacket::parse(&good[..27]), Err(ArpError::Truncated));
}

proptest! {
    #[test]
    fn packet_survives_writing_and_reading(
        reply in any::<bool>(), a in any::<[u8; 6]>(), b in any::<[u8; 6]>(), ip in any::<u32>(), to in any::<u32>(),
    ) {
        let packet = ArpPacket {
            operation: if reply { Operation::Reply } else { Operation::Request },
            sender_mac: MacAddr(a), sender_ip: ip, target_mac: MacAddr(b), target_ip: to,
        };
        let bytes = packet.to_bytes();
        prop_assert_eq!(ArpPacket::parse(&bytes), Ok(packet));
        let judge = etherparse::ArpPacketSlice::from_slice(&bytes).unwrap();
        prop_assert_eq!(judge.sender_hw_addr(), &a[..]);
        prop_assert_eq!(judge.sender_protocol_addr(), &ip.to_be_bytes()[..]);
        prop_assert_eq!(judge.target_protocol_addr(), &to.to_be_bytes()[..]);
        prop_assert_eq!(judge.operation().0, if reply { 2 } else { 1 });
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        let _ = ArpPacket::parse(&bytes);
    }
}
