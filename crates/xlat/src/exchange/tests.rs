use super::*;
use crate::{NatPrefix, Ports, Rules, V4Way, V6Way, to_v4, to_v6};
use carrack_wire::ipv6::Extensions;
use carrack_wire::{Ipv6View, PacketBuilder};
use proptest::prelude::*;

/// The heads of a packet of either version with `room` bytes before it.
fn heads(room: usize, packet: &[u8]) -> [u8; SIX_BYTES] {
    let mut heads = [0; SIX_BYTES];
    let end = SIX_BYTES.min(room + packet.len());
    heads[room..end].copy_from_slice(&packet[..end - room]);
    heads
}

/// Whatever the checksum is, but UDP has one.
fn with_checksum(mut packet: Vec<u8>, number: u8, header: usize, checksum: u16) -> Vec<u8> {
    let at = header + if number == protocol::UDP { 6 } else { 16 };
    let checksum = if number == protocol::UDP { checksum.max(1) } else { checksum };
    packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// A checksum that happens, one that ends as zero, and those at the ends.
fn checksums(change: Delta, any: u16) -> [u16; 5] {
    [any, change.negated().apply(0), change.negated().apply(0xffff), 0, 0xffff]
}

proptest! {
    /// RFC 7915 §5.1, §5.5.
    #[test]
    fn ipv4_packets_are_those_of_the_careful_way(
        (src6, dst6) in any::<(u128, u128)>(),
        (src, dst) in any::<(u32, u32)>(),
        (tos, ttl, checksum, identification) in (any::<u8>(), 2_u8.., any::<u16>(), any::<u16>()),
        (is_udp, fixed, payload) in (any::<bool>(), any::<Option<u8>>(), 0_usize..1_400),
    ) {
        let payload = vec![7; payload];
        let base = PacketBuilder::new().ipv6(src6, dst6).ttl(ttl).tos(tos).flow_label(9).payload(&payload);
        let packet = if is_udp { base.udp(1, 2).build() } else { base.tcp(1, 2, 16).build() };
        let number = packet[6];
        let ends = Ends::<u32>::instead_of((src6, dst6), (src, dst));
        for checksum in checksums(ends.change, checksum) {
            let packet = with_checksum(packet.clone(), number, V6_LEN, checksum);
            let mut slow = packet.clone();
            slow[7] -= 1;
            let way = V4Way { src, dst, ports: Ports::KEEP, identification, mtu: u16::MAX };
            let rules = Rules { tos: fixed, ..Rules::default() };
            to_v4(&mut slow, &Extensions::none(number), &way, &rules).unwrap();
            let mut fast = heads(0, &packet);
            ends.put(&mut fast, fixed, identification);
            prop_assert_eq!(fast[SIX_GROWTH..].to_vec(), heads(0, &slow)[SIX_GROWTH..].to_vec());
        }
    }

    /// RFC 7915 §4.1, §4.5.
    #[test]
    fn ipv6_packets_are_those_of_the_careful_way(
        (src4, dst4) in any::<(u32, u32)>(),
        (src, dst) in any::<(u128, u128)>(),
        (tos, ttl, checksum) in (any::<u8>(), 2_u8.., any::<u16>()),
        (is_udp, is_zero, payload) in (any::<bool>(), any::<bool>(), 0_usize..1_400),
    ) {
        let payload = vec![7; payload];
        let base = PacketBuilder::new().ipv4(src4, dst4).ttl(ttl).tos(tos).dont_fragment().payload(&payload);
        let packet = if is_udp { base.udp(1, 2).build() } else { base.tcp(1, 2, 16).build() };
        let number = packet[9];
        let ends = Ends::<u128>::instead_of((src4, dst4), (src, dst));
        for checksum in checksums(ends.change, checksum) {
            let packet = with_checksum(packet.clone(), number, V4_LEN, checksum);
            let mut slow = vec![0; SIX_GROWTH];
            slow.extend(&packet);
            slow[SIX_GROWTH + 8] -= 1;
            let way = V6Way { src, dst, ports: Ports::KEEP, mtu: u16::MAX };
            let rules = Rules { zero_traffic_class: is_zero, ..Rules::default() };
            to_v6(&mut slow, SIX_GROWTH, &way, &rules).unwrap();
            let mut fast = heads(SIX_GROWTH, &packet);
            ends.put(&mut fast, is_zero.then_some(0));
            prop_assert_eq!(fast.to_vec(), heads(0, &slow).to_vec());
        }
    }
}

#[test]
fn a_packet_comes_back_as_it_went() {
    let prefix = NatPrefix::new("2001:db8:64::/96".parse().unwrap()).unwrap();
    let (src4, dst4) = (0xc633_6407, 0xc000_0221);
    let (src6, dst6) = (prefix.embed(src4), prefix.embed(dst4));
    let packet = PacketBuilder::new().ipv6(src6, dst6).ttl(9).tos(0xb9).udp(1, 2).payload(b"abc").build();
    let mut heads = heads(0, &packet);
    Ends::<u32>::instead_of((src6, dst6), (src4, dst4)).put(&mut heads, None, 5);
    Ends::<u128>::instead_of((src4, dst4), (src6, dst6)).put(&mut heads, None);
    assert_eq!((heads[7], &heads[8..40], &heads[40..51]), (7, &packet[8..40], &packet[40..]));
    assert_eq!(Ipv6View::of_header(&heads[..V6_LEN].try_into().unwrap()).traffic_class(), 0xb9);
}
