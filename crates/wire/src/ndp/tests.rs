use super::*;
use proptest::prelude::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const ROUTER: u128 = 0xfe80 << 112 | 1;
const HOST: u128 = 0x2001_0db8 << 96 | 7;

fn read(packet: &[u8]) -> Result<NdpMessage, NdpError> {
    let address = |at: usize| u128::from_be_bytes(packet[at..at + 16].try_into().unwrap());
    NdpMessage::parse(address(8), address(24), packet[7], &packet[40..])
}

/// The packet with one octet changed and the checksum made right again.
fn altered(mut packet: Vec<u8>, at: usize, octet: u8) -> Vec<u8> {
    packet[at] = octet;
    packet[42..44].copy_from_slice(&[0, 0]);
    let address = |at: usize| u128::from_be_bytes(packet[at..at + 16].try_into().unwrap());
    let (src, dst) = (address(8), address(24));
    let sum = pseudo_v6(src, dst, 58, packet.len() as u32 - 40).with_bytes(&packet[40..]).checksum();
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn solicitation(source: Option<MacAddr>) -> NdpMessage {
    NdpMessage::NeighbourSolicitation { target: HOST, source }
}

#[test]
fn addresses_derived_from_others_are_the_rfcs() {
    // RFC 4291 §2.7.1's example and appendix A's construction.
    let example: u128 = "4037::1:800:200e:8c6c".parse::<std::net::Ipv6Addr>().unwrap().into();
    assert_eq!(std::net::Ipv6Addr::from(solicited_node(example)).to_string(), "ff02::1:ff0e:8c6c");
    assert_eq!(multicast_mac(solicited_node(example)).to_string(), "33:33:ff:0e:8c:6c");
    let mac = MacAddr([0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde]);
    assert_eq!(std::net::Ipv6Addr::from(link_local(mac)).to_string(), "fe80::3656:78ff:fe9a:bcde");
    assert!(is_link_local(link_local(mac)) && !is_link_local(HOST));
}

#[test]
fn a_message_that_a_router_forwarded_or_that_is_damaged_is_ignored() {
    // RFC 4861 §7.1.1: hop limit, checksum, code, length.
    let good = solicitation(Some(A)).packet(ROUTER, solicited_node(HOST));
    assert_eq!(read(&good), Ok(solicitation(Some(A))));
    assert_eq!(read(&altered(good.clone(), 7, 254)), Err(NdpError::HopLimit));
    assert_eq!(read(&altered(good.clone(), 41, 1)), Err(NdpError::Code));
    assert_eq!(read(&altered(good.clone(), 48, 0xff)), Err(NdpError::Address), "a multicast target");
    let mut damaged = good.clone();
    damaged[63] ^= 1;
    assert_eq!(read(&damaged), Err(NdpError::Checksum));
    let short = altered(good[..63].to_vec(), 44, 0);
    assert_eq!(read(&short), Err(NdpError::Truncated));
    assert_eq!(read(&altered(good, 40, 137)), Err(NdpError::Kind));
}

#[test]
fn an_option_of_length_zero_or_beyond_the_end_spoils_the_message() {
    let good = solicitation(Some(A)).packet(ROUTER, solicited_node(HOST));
    for (units, result) in [(0, Err(NdpError::Option)), (2, Err(NdpError::Option)), (1, Ok(()))] {
        assert_eq!(read(&altered(good.clone(), 65, units)).map(|_| ()), result, "{units}");
    }
    let unknown = read(&altered(good, 64, 200)).unwrap();
    assert_eq!(unknown, solicitation(None), "an unknown option is skipped");
}

#[test]
fn who_has_no_address_may_only_probe() {
    // RFC 4861 §7.1.1 and §6.1.1.
    let probe = solicitation(None);
    assert_eq!(read(&probe.packet(0, solicited_node(HOST))), Ok(probe.clone()));
    assert_eq!(read(&probe.packet(0, HOST)), Err(NdpError::Address));
    let with_mac = solicitation(Some(A));
    assert_eq!(read(&with_mac.packet(0, solicited_node(HOST))), Err(NdpError::Address));
    let router = NdpMessage::RouterSolicitation { source: Some(A) };
    assert_eq!(read(&router.packet(0, ALL_ROUTERS)), Err(NdpError::Address));
}

#[test]
fn an_advertisement_to_all_answers_nobody() {
    // RFC 4861 §7.1.2.
    let advertisement = |solicited| NdpMessage::NeighbourAdvertisement {
        target: HOST,
        router: true,
        solicited,
        replaces: true,
        target_mac: Some(A),
    };
    assert_eq!(read(&advertisement(true).packet(HOST, ALL_NODES)), Err(NdpError::Address));
    assert_eq!(read(&advertisement(false).packet(HOST, ALL_NODES)), Ok(advertisement(false)));
    assert_eq!(read(&advertisement(true).packet(HOST, ROUTER)), Ok(advertisement(true)));
}

#[test]
fn a_router_speaks_from_its_link_local_address() {
    // RFC 4861 §6.1.2.
    let advertisement = NdpMessage::RouterAdvertisement(RouterAdvertisement::default());
    assert_eq!(read(&advertisement.packet(HOST, ALL_NODES)), Err(NdpError::Address));
    assert_eq!(read(&advertisement.packet(ROUTER, ALL_NODES)), Ok(advertisement));
}

prop_compose! {
    fn prefix()(
        address in any::<u128>(), len in 0..=128u8, on_link in any::<bool>(), autonomous in any::<bool>(),
        valid_s in any::<u32>(), preferred_s in any::<u32>(),
    ) -> PrefixInformation {
        PrefixInformation { address, len, on_link, autonomous, valid_s, preferred_s }
    }
}

prop_compose! {
    fn router_advertisement()(
        (hop_limit, managed, other, lifetime_s) in any::<(u8, bool, bool, u16)>(),
        (reachable_ms, retrans_ms, mac, mtu) in any::<(u32, u32, Option<[u8; 6]>, Option<u32>)>(),
        prefixes in proptest::collection::vec(prefix(), 0..4),
        lifetime in any::<u32>(),
        addresses in proptest::collection::vec(any::<u128>(), 0..4),
    ) -> RouterAdvertisement {
        let name_servers =
            (!addresses.is_empty()).then_some(NameServers { lifetime_s: lifetime, addresses });
        let source = mac.map(MacAddr);
        RouterAdvertisement {
            hop_limit, managed, other, lifetime_s, reachable_ms, retrans_ms, source, mtu, prefixes, name_servers,
        }
    }
}

proptest! {
    #[test]
    fn an_advertisement_survives_writing_and_reading(advertisement in router_advertisement()) {
        let message = NdpMessage::RouterAdvertisement(advertisement);
        let packet = message.packet(ROUTER, ALL_NODES);
        let judge = etherparse::Ipv6Slice::from_slice(&packet).unwrap();
        prop_assert_eq!(judge.header().hop_limit(), 255);
        let icmp = etherparse::Icmpv6Slice::from_slice(judge.payload().payload).unwrap();
        let (src, dst) = (ROUTER.to_be_bytes(), ALL_NODES.to_be_bytes());
        prop_assert!(icmp.is_checksum_valid(src, dst));
        prop_assert_eq!(read(&packet), Ok(message));
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        kind in 130u8..140, bytes in proptest::collection::vec(any::<u8>(), 0..120),
        src in any::<u128>(), dst in any::<u128>(),
    ) {
        let mut message = vec![kind, 0, 0, 0];
        message.extend(bytes);
        let _ = NdpMessage::parse(src, dst, 255, &message);
        let sum = pseudo_v6(src, dst, 58, message.len() as u32);
        let sum = sum.with_bytes(&message).checksum();
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        let _ = NdpMessage::parse(src, dst, 255, &message);
    }
}
