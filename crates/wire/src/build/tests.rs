use super::*;
use crate::{Ipv4View, parse_l2};
use proptest::prelude::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

#[test]
fn short_frames_are_padded_only_when_asked() {
    let builder = PacketBuilder::new().ethernet(A, B).ipv4(1, 2).udp(1, 2).payload(b"x");
    assert_eq!(builder.build().len(), 43);
    let frame = builder.padded().build();
    assert_eq!(frame.len(), 60);
    assert_eq!(Ipv4View::parse(&frame[14..]).unwrap().packet().len(), 29);
}

#[test]
fn other_payloads_go_under_their_own_type() {
    let arp = crate::arp::ArpPacket::request(A, 1, 2).to_bytes();
    let frame =
        PacketBuilder::new().ethernet(A, MacAddr::BROADCAST).ethertype(ethertype::ARP).payload(&arp).build();
    let l2 = parse_l2(&frame).unwrap();
    assert_eq!((l2.ethertype, &frame[usize::from(l2.payload_offset)..]), (ethertype::ARP, &arp[..]));
}

#[test]
fn too_small_a_buffer_and_too_large_a_packet_are_refused() {
    let builder = PacketBuilder::new().ipv4(1, 2).udp(1, 2).payload(b"x");
    assert_eq!(builder.write(&mut [0; 28]), None);
    assert_eq!(builder.write(&mut [0; 29]), Some(29));
    let huge = vec![0; 65_536];
    assert_eq!(PacketBuilder::new().ipv4(1, 2).udp(1, 2).payload(&huge).write(&mut vec![0; 70_000]), None);
}

#[test]
fn options_are_cut_to_what_a_header_takes() {
    let packet =
        PacketBuilder::new().ipv4(1, 2).ip_options(&[1; 47]).tcp(1, 2, 0).tcp_options(&[1; 60]).build();
    assert_eq!(packet.len(), 60 + 60);
    assert_eq!(crate::TcpView::parse(&packet[60..]).unwrap().header_len(), 60);
}

proptest! {
    #[test]
    fn the_judge_reads_every_frame_as_built(
        vlans in proptest::collection::vec(0u16..4096, 0..=2), ips in any::<(u32, u32)>(), ports in any::<(u16, u16)>(),
        which in 0u8..3, payload in proptest::collection::vec(any::<u8>(), 0..64), words in 0usize..=10,
    ) {
        let options = vec![1u8; words * 4];
        let mut builder = PacketBuilder::new().ethernet(A, B);
        for vid in &vlans {
            builder = builder.vlan(*vid);
        }
        builder = builder.ipv4(ips.0, ips.1).ip_options(&options).payload(&payload);
        builder = match which {
            0 => builder.udp(ports.0, ports.1),
            1 => builder.tcp(ports.0, ports.1, crate::tcp::flag::SYN),
            _ => builder.echo_request(ports.0, ports.1),
        };
        let frame = builder.build();
        let judge = etherparse::SlicedPacket::from_ethernet(&frame).unwrap();
        prop_assert_eq!(judge.vlan_ids().iter().map(|vid| vid.value()).collect::<Vec<_>>(), vlans);
        let etherparse::NetSlice::Ipv4(ip) = judge.net.unwrap() else { panic!("not IPv4") };
        let header = ip.header().to_header();
        prop_assert_eq!(header.calc_header_checksum(), header.header_checksum);
        prop_assert_eq!((u32::from_be_bytes(header.source), u32::from_be_bytes(header.destination)), ips);
        match judge.transport.unwrap() {
            etherparse::TransportSlice::Udp(udp) => {
                prop_assert_eq!((udp.source_port(), udp.destination_port(), udp.payload()), (ports.0, ports.1, &payload[..]));
                prop_assert_eq!(udp.to_header().calc_checksum_ipv4(&header, udp.payload()).unwrap(), udp.checksum());
            }
            etherparse::TransportSlice::Tcp(tcp) => {
                prop_assert_eq!((tcp.source_port(), tcp.destination_port(), tcp.payload()), (ports.0, ports.1, &payload[..]));
                prop_assert_eq!(tcp.calc_checksum_ipv4(header.source, header.destination).unwrap(), tcp.checksum());
            }
            etherparse::TransportSlice::Icmpv4(icmp) => {
                prop_assert_eq!(icmp.icmp_type().calc_checksum(icmp.payload()), icmp.checksum());
                prop_assert_eq!(icmp.payload(), &payload[..]);
            }
            other => prop_assert!(false, "unexpected {other:?}"),
        }
    }
}

#[test]
fn later_ip_header_takes_the_place_of_an_earlier_one() {
    let six = PacketBuilder::new().ethernet(A, B).ipv6(1, 2).udp(1, 2);
    let four = PacketBuilder::new().ethernet(A, B).ipv4(1, 2).udp(1, 2);
    assert_eq!(six.clone().ipv4(1, 2).build(), four.build());
    assert_eq!(four.ipv6(1, 2).build(), six.build());
    assert_eq!(parse_l2(&six.build()).unwrap().ethertype, ethertype::IPV6);
}

proptest! {
    #[test]
    fn judge_agrees_with_ipv6_packets_and_their_checksums(
        src in any::<u128>(), dst in any::<u128>(), ports in any::<(u16, u16)>(),
        payload in proptest::collection::vec(any::<u8>(), 0..200), which in 0..3,
    ) {
        let base = PacketBuilder::new().ipv6(src, dst).tos(7).flow_label(9).hop_by_hop(&[]).payload(&payload);
        let packet = match which {
            0 => base.udp(ports.0, ports.1),
            1 => base.tcp(ports.0, ports.1, 2).tcp_options(&[2, 4, 5, 180]),
            _ => base.echo_request(ports.0, ports.1),
        }
        .build();
        let judge = etherparse::SlicedPacket::from_ip(&packet).unwrap();
        let Some(etherparse::NetSlice::Ipv6(ip)) = judge.net else { panic!("not IPv6") };
        prop_assert_eq!(ip.header().traffic_class(), 7);
        let (src, dst) = (src.to_be_bytes(), dst.to_be_bytes());
        match judge.transport.unwrap() {
            etherparse::TransportSlice::Udp(udp) => {
                let expected = udp.to_header().calc_checksum_ipv6_raw(src, dst, udp.payload()).unwrap();
                prop_assert_eq!(udp.checksum(), expected);
            }
            etherparse::TransportSlice::Tcp(tcp) => {
                prop_assert_eq!(tcp.checksum(), tcp.calc_checksum_ipv6(src, dst).unwrap());
            }
            etherparse::TransportSlice::Icmpv6(icmp) => prop_assert!(icmp.is_checksum_valid(src, dst)),
            other => panic!("{other:?}"),
        }
        let view = crate::Ipv6View::parse(&packet).unwrap();
        let transport = &packet[usize::from(view.extensions().unwrap().offset)..];
        let (src, dst) = (view.src(), view.dst());
        let is_right = match which {
            0 => crate::UdpView::parse(transport).unwrap().checksum_ok_v6(src, dst),
            1 => crate::TcpView::parse(transport).unwrap().checksum_ok_v6(src, dst),
            _ => crate::Icmpv6View::parse(transport).unwrap().checksum_ok(src, dst),
        };
        prop_assert!(is_right);
    }
}
