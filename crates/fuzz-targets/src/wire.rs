//! Parsers of headers: any bytes give a view or an error, and a view's every question has an answer.

use std::hint::black_box;

use carrack_wire::arp::ArpPacket;
use carrack_wire::fragment::Fragments;
use carrack_wire::fragment6::Fragments6;
use carrack_wire::gre::GreView;
use carrack_wire::icmpv4::{ErrorMessage, Icmpv4View, may_cause_error, write_error};
use carrack_wire::icmpv6::{self, Icmpv6View};
use carrack_wire::ipv4::{Ipv4Mut, Ipv4View};
use carrack_wire::ipv6::Ipv6View;
use carrack_wire::vlan::parse_l2;
use carrack_wire::{TcpMut, TcpView, UdpMut, UdpView};

/// All parsers over the same bytes.
pub fn parsers(input: &[u8]) {
    if let Ok(l2) = parse_l2(input) {
        assert!(l2.tags().len() <= 2);
        assert!(usize::from(l2.payload_offset) <= input.len());
    }
    if let Ok(arp) = ArpPacket::parse(input) {
        assert_eq!(ArpPacket::parse(&arp.to_bytes()), Ok(arp));
    }
    if let Some(gre) = GreView::parse(input) {
        black_box((gre.key(), gre.call_id(), gre.payload(), gre.header_len()));
    }
    transport(input);
    for packet in [Ipv4View::parse(input), Ipv4View::parse_quoted(input)].into_iter().flatten() {
        ipv4(&packet);
    }
    for packet in [Ipv6View::parse(input), Ipv6View::parse_quoted(input)].into_iter().flatten() {
        ipv6(&packet);
    }
    changes(input);
}

fn transport(bytes: &[u8]) {
    if let Ok(tcp) = TcpView::parse(bytes) {
        black_box((tcp.mss(), tcp.payload(), tcp.options().count(), tcp.checksum_ok(1, 2)));
    }
    if let Ok(udp) = UdpView::parse(bytes) {
        black_box((udp.payload(), udp.checksum_ok(1, 2)));
    }
    if let Ok(icmp) = Icmpv4View::parse(bytes) {
        black_box((icmp.checksum_ok(), icmp.original_len().ok(), icmp.payload()));
        if let Ok(inner) = icmp.embedded() {
            black_box((inner.checksum_ok(), inner.payload()));
        }
        if let Ok(Some(extension)) = icmp.extension() {
            black_box(&extension);
        }
    }
}

fn ipv4(packet: &Ipv4View<'_>) {
    assert_eq!(packet.header().len() + packet.payload().len(), packet.packet().len());
    black_box((packet.options().count(), packet.checksum_ok()));
    transport(packet.payload());
    let mut error = [0; 576];
    let written = write_error(&mut error, 1, 64, 7, ErrorMessage::TtlExceeded, packet);
    let len = written.expect("576 octets always suffice");
    let view = Ipv4View::parse(&error[..len]).expect("an error that parses");
    assert!(view.checksum_ok());
    assert!(Icmpv4View::parse(view.payload()).expect("an ICMP message").checksum_ok());
    assert!(!may_cause_error(&view), "no error about an error");
    if packet.packet().len() == usize::from(packet.total_length()) {
        cut(packet);
    }
}

fn ipv6(packet: &Ipv6View<'_>) {
    assert_eq!(packet.header().len() + packet.payload().len(), packet.packet().len());
    if let Ok(found) = packet.extensions() {
        let rest = packet.packet().get(usize::from(found.offset)..).expect("an offset inside the packet");
        transport(rest);
        if let Ok(icmp) = Icmpv6View::parse(rest) {
            black_box((icmp.checksum_ok(1, 2), icmp.embedded().is_ok(), icmp.extension().is_ok()));
        }
    }
    let mut error = [0; icmpv6::ERROR_LEN_MAX];
    let why = icmpv6::ErrorMessage::HopLimitExceeded;
    let len = icmpv6::write_error(&mut error, 1, 64, why, packet).expect("1280 octets always suffice");
    let view = Ipv6View::parse(&error[..len]).expect("an error that parses");
    assert!(Icmpv6View::parse(view.payload()).expect("a message").checksum_ok(1, packet.src()));
    assert!(!icmpv6::may_cause_error(&view, why), "no error about an error");
    if packet.payload().len() == usize::from(packet.payload_length()) {
        cut6(packet);
    }
}

/// As [`cut`], of an IPv6 packet.
fn cut6(packet: &Ipv6View<'_>) {
    for mtu in [56, 300, 1280] {
        let Ok(plan) = Fragments6::plan(*packet, mtu, 7) else { continue };
        let mut payload = Vec::new();
        for fragment in plan.clone() {
            let mut out = vec![0; fragment.total_len()];
            let len = plan.write(&fragment, &mut out).expect("room for the fragment");
            assert!(len <= mtu, "longer than the MTU");
            let view = Ipv6View::parse(&out).expect("a fragment that parses");
            payload.extend_from_slice(&view.payload()[view.payload().len() - fragment.payload_len..]);
        }
        assert!(packet.payload().ends_with(&payload));
    }
}

/// The fragments of a packet fit, are in order and hold its payload.
fn cut(packet: &Ipv4View<'_>) {
    for mtu in [68, 296, 576] {
        let Ok(mut plan) = Fragments::plan(*packet, mtu) else { continue };
        let mut payload = Vec::new();
        while let Some(fragment) = plan.next() {
            let mut out = vec![0; fragment.total_len()];
            let len = plan.write(&fragment, &mut out).expect("room for the fragment");
            let view = Ipv4View::parse(&out[..len]).expect("a fragment that parses");
            assert!(view.checksum_ok());
            assert!(len <= mtu.max(packet.packet().len().min(mtu)), "longer than the MTU");
            payload.extend_from_slice(view.payload());
        }
        assert_eq!(payload, packet.payload());
    }
}

/// Writers that change a header keep a right checksum right.
fn changes(input: &[u8]) {
    let mut bytes = input.to_vec();
    if let Ok(mut packet) = Ipv4Mut::parse(&mut bytes) {
        packet.fill_checksum();
        packet.rewrite_src(0x0a00_0001);
        packet.rewrite_dst(0xc633_6407);
        packet.rewrite_identification(0x1234);
        if packet.ttl() > 0 {
            packet.decrement_ttl();
        }
        assert!(Ipv4View::parse(&bytes).expect("still a packet").checksum_ok());
    }
    let mut bytes = input.to_vec();
    if let Ok(mut tcp) = TcpMut::parse(&mut bytes) {
        tcp.fill_checksum(1, 2);
        tcp.clamp_mss(536);
        tcp.rewrite_seq(77);
        tcp.rewrite_ack(78);
        assert!(TcpView::parse(&bytes).expect("still a segment").checksum_ok(1, 2));
    }
    let mut bytes = input.to_vec();
    if let Ok(mut udp) = UdpMut::parse(&mut bytes) {
        udp.fill_checksum(1, 2);
        assert!(UdpView::parse(&bytes).expect("still a datagram").checksum_ok(1, 2));
    }
}
