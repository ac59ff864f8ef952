//! Judges every frame that leaves: link header, lengths, checksums by two independent readers.

use carrack_base::{PortId, Proto};
use carrack_pipeline::snapshot::{Interface, Snapshot, Vlan};
use carrack_wire::icmpv4::{Class, Icmpv4View, class_of};
use carrack_wire::icmpv6::{self, Icmpv6View};
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::Ipv6View;
use carrack_wire::vlan::parse_l2;
use carrack_wire::{TcpView, UdpView};
use etherparse::{Icmpv6Slice, Ipv4HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};

/// The interface of a port that has these tags.
#[must_use]
pub fn interface_of<'a>(snapshot: &'a Snapshot, port: PortId, tags: &[u16]) -> Option<&'a Interface> {
    snapshot.interfaces.iter().flatten().find(|i| i.port == port && tags_of(i.vlan) == tags)
}

/// The VLAN ids of an interface.
#[must_use]
pub fn tags_of(vlan: Vlan) -> Vec<u16> {
    match vlan {
        Vlan::None => vec![],
        Vlan::Single(vid) => vec![vid],
        Vlan::Double { outer, inner, .. } => vec![outer, inner],
    }
}

/// Checks a frame that left by a port.
///
/// # Panics
/// When anything of it is wrong.
pub fn frame(snapshot: &Snapshot, port: PortId, frame: &[u8]) {
    let l2 = parse_l2(frame).expect("a link header");
    let line = interface_of(snapshot, port, l2.tags());
    let line = line.unwrap_or_else(|| panic!("no interface has tags {:?} on port {port}", l2.tags()));
    assert_eq!(l2.src, line.mac, "source MAC address");
    let packet = &frame[usize::from(l2.payload_offset)..];
    match l2.ethertype {
        0x0800 => {
            let packet = Ipv4View::parse(packet).expect("an IPv4 packet");
            assert!(packet.total_length() <= line.mtu, "longer than the MTU");
            assert!(packet.ttl() > 0, "TTL 0");
            ip_packet(&packet);
        }
        0x86dd => {
            let packet = Ipv6View::parse(packet).expect("an IPv6 packet");
            assert!(packet.packet().len() <= usize::from(line.mtu), "longer than the MTU");
            assert!(packet.hop_limit() > 0, "hop limit 0");
            ip6_packet(&packet);
        }
        _ => {}
    }
}

/// Header and, where the packet is whole, transport checksums; those of the packet inside an ICMP error too.
///
/// # Panics
/// When one is wrong.
pub fn ip_packet(packet: &Ipv4View<'_>) {
    header(packet.packet());
    if packet.is_fragment() {
        return;
    }
    transport(packet);
    let is_error = packet.protocol() == 1
        && packet.payload().first().is_some_and(|kind| class_of(*kind) == Class::Error);
    if is_error {
        let inner =
            Icmpv4View::parse(packet.payload()).and_then(|icmp| icmp.embedded()).expect("a quoted packet");
        header(inner.packet());
    }
}

fn header(packet: &[u8]) {
    let header = Ipv4HeaderSlice::from_slice(packet).expect("an IPv4 header").to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum(), "IPv4 header checksum");
}

fn transport(ip: &Ipv4View<'_>) {
    let l4 = ip.payload();
    let (src, dst) = (ip.src().to_be_bytes(), ip.dst().to_be_bytes());
    match Proto::from_ip(ip.protocol()) {
        Proto::Udp => {
            let view = UdpView::parse(l4).expect("a UDP header");
            assert!(view.checksum_ok(ip.src(), ip.dst()), "UDP checksum");
            let header = UdpHeaderSlice::from_slice(l4).expect("a UDP header").to_header();
            let len = usize::from(header.length).min(l4.len());
            let right = header.calc_checksum_ipv4_raw(src, dst, &l4[8..len]).expect("a length");
            assert!(header.checksum == 0 || header.checksum == right, "UDP checksum, second reader");
        }
        Proto::Tcp => {
            let view = TcpView::parse(l4).expect("a TCP header");
            assert!(view.checksum_ok(ip.src(), ip.dst()), "TCP checksum");
            let slice = TcpHeaderSlice::from_slice(l4).expect("a TCP header");
            let payload = &l4[slice.slice().len()..];
            let right = slice.to_header().calc_checksum_ipv4_raw(src, dst, payload).expect("a length");
            assert_eq!(slice.checksum(), right, "TCP checksum, second reader");
        }
        Proto::Icmp => {
            assert!(Icmpv4View::parse(l4).expect("an ICMP header").checksum_ok(), "ICMP checksum");
        }
        Proto::Other => {}
    }
}

/// Where the packet is whole, transport checksums by both readers; a packet inside an ICMPv6 error has a whole header.
///
/// # Panics
/// When one is wrong.
pub fn ip6_packet(packet: &Ipv6View<'_>) {
    let chain = packet.extensions().expect("extension headers");
    if chain.fragment.is_some() {
        return;
    }
    let l4 = &packet.packet()[usize::from(chain.offset)..];
    let (src, dst) = (packet.src(), packet.dst());
    let (from, to) = (packet.src_addr().octets(), packet.dst_addr().octets());
    match chain.protocol {
        17 => {
            assert!(UdpView::parse(l4).expect("a UDP header").checksum_ok_v6(src, dst), "UDP checksum");
            let header = UdpHeaderSlice::from_slice(l4).expect("a UDP header").to_header();
            let len = usize::from(header.length).min(l4.len());
            let right = header.calc_checksum_ipv6_raw(from, to, &l4[8..len]).expect("a length");
            assert_eq!(header.checksum, right, "UDP checksum, second reader");
        }
        6 => {
            assert!(TcpView::parse(l4).expect("a TCP header").checksum_ok_v6(src, dst), "TCP checksum");
            let slice = TcpHeaderSlice::from_slice(l4).expect("a TCP header");
            let payload = &l4[slice.slice().len()..];
            let right = slice.to_header().calc_checksum_ipv6_raw(from, to, payload).expect("a length");
            assert_eq!(slice.checksum(), right, "TCP checksum, second reader");
        }
        58 => {
            let message = Icmpv6View::parse(l4).expect("an ICMPv6 header");
            assert!(message.checksum_ok(src, dst), "ICMPv6 checksum");
            let header = Icmpv6Slice::from_slice(l4).expect("an ICMPv6 header");
            assert!(header.is_checksum_valid(from, to), "ICMPv6 checksum, second reader");
            if message.class() == icmpv6::Class::Error {
                message.embedded().expect("a quoted packet");
            }
        }
        _ => {}
    }
}
