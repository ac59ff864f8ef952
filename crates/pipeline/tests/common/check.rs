//! Judges of frames that left: addresses of the link, lengths and checksums by two readers.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;

use carrack_base::Proto;
use carrack_pipeline::snapshot::{Snapshot, Vlan};
use carrack_wire::icmpv4::{Class, Icmpv4View, class_of};
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::Ipv6View;
use carrack_wire::vlan::parse_l2;
use carrack_wire::{TcpView, UdpView};
use etherparse::{Icmpv6Slice, Ipv4HeaderSlice, TcpHeaderSlice, UdpHeaderSlice};

use super::net::port_mac;

/// An address.
pub fn ip(text: &str) -> u32 {
    text.parse::<Ipv4Addr>().unwrap_or_else(|_| panic!("address {text}")).into()
}

/// `10.0.0.5:1000`.
pub fn e(text: &str) -> (&str, u16) {
    let (ip, port) = text.split_once(':').unwrap_or((text, "0"));
    (ip, port.parse().unwrap())
}

/// The port of `10.0.0.5:1000`.
pub fn port_of(endpoint: &str) -> u16 {
    e(endpoint).1
}

/// A frame that left.
#[derive(Clone)]
pub struct Sent {
    pub port: u16,
    pub tags: Vec<u16>,
    pub to: [u8; 6],
    pub frame: Vec<u8>,
    l3: usize,
}

impl Sent {
    pub fn ip(&self) -> Ipv4View<'_> {
        Ipv4View::parse(&self.frame[self.l3..]).unwrap()
    }

    pub fn ip6(&self) -> Ipv6View<'_> {
        Ipv6View::parse(&self.frame[self.l3..]).unwrap()
    }

    /// Source and destination of an IPv6 packet.
    pub fn addresses6(&self) -> (String, String) {
        (self.ip6().src_addr().to_string(), self.ip6().dst_addr().to_string())
    }

    /// An ICMPv6 error: type and code, the word behind them, the packet that it quotes.
    pub fn error6(&self) -> (u8, u8, u32, &[u8]) {
        let packet = self.ip6();
        assert_eq!(packet.next_header(), 58);
        let message = packet.payload();
        let word = u32::from_be_bytes(message[4..8].try_into().unwrap());
        (message[0], message[1], word, &message[8..])
    }

    /// The packet without link header and padding.
    pub fn packet(&self) -> &[u8] {
        self.ip().packet()
    }

    pub fn l4(&self) -> &[u8] {
        self.ip().payload()
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.l4()[at], self.l4()[at + 1]])
    }

    /// Source with port or identifier, as text.
    pub fn src(&self) -> String {
        let at = if Proto::from_ip(self.ip().protocol()) == Proto::Icmp { 4 } else { 0 };
        format!("{}:{}", self.ip().src_addr(), self.word(at))
    }

    /// Destination with port or identifier, as text.
    pub fn dst(&self) -> String {
        let at = if Proto::from_ip(self.ip().protocol()) == Proto::Icmp { 4 } else { 2 };
        format!("{}:{}", self.ip().dst_addr(), self.word(at))
    }

    /// Addresses alone.
    pub fn addresses(&self) -> (String, String) {
        (self.ip().src_addr().to_string(), self.ip().dst_addr().to_string())
    }

    pub fn icmp(&self) -> (u8, u8) {
        assert_eq!(self.ip().protocol(), 1);
        (self.l4()[0], self.l4()[1])
    }

    pub fn mtu(&self) -> u16 {
        self.word(6)
    }

    /// The packet an ICMP error carries, as far as quoted.
    pub fn quoted(&self) -> &[u8] {
        &self.l4()[8..]
    }

    /// "source:port>destination:port" of the packet that an ICMP error carries.
    pub fn quoted_flow(&self) -> String {
        let inner = Ipv4View::parse_quoted(self.quoted()).unwrap();
        let word = |at: usize| u16::from_be_bytes([inner.payload()[at], inner.payload()[at + 1]]);
        let (a, b) = if inner.protocol() == 1 { (4, 4) } else { (0, 2) };
        format!("{}:{}>{}:{}", inner.src_addr(), word(a), inner.dst_addr(), word(b))
    }
}

impl fmt::Debug for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} tags {:?} {:02x?}", self.port, self.tags, &self.frame)
    }
}

/// Checks a frame that left by a port; panics when anything of it is wrong.
pub fn judge(snapshot: &Snapshot, port: u16, frame: &[u8]) -> Sent {
    let l2 = parse_l2(frame).unwrap();
    let (tags, l3) = (l2.tags().to_vec(), usize::from(l2.payload_offset));
    if l2.ethertype == 0x86dd {
        assert_eq!(l2.src, port_mac(port), "source MAC address");
        packet6_is_right(&frame[l3..]);
        return Sent { port, tags, to: l2.dst.0, frame: frame.to_vec(), l3 };
    }
    if l2.ethertype != 0x0800 {
        return Sent { port, tags, to: l2.dst.0, frame: frame.to_vec(), l3 };
    }
    assert_eq!(l2.src, port_mac(port), "source MAC address");
    let tags_of = |vlan: Vlan| match vlan {
        Vlan::None => vec![],
        Vlan::Single(vid) => vec![vid],
        Vlan::Double { outer, inner, .. } => vec![outer, inner],
    };
    let line = snapshot.interfaces.iter().flatten().find(|i| i.port.0 == port && tags_of(i.vlan) == tags);
    let line = line.unwrap_or_else(|| panic!("no interface has tags {tags:?} on port {port}"));
    let packet = Ipv4View::parse(&frame[l3..]).unwrap();
    assert!(packet.total_length() <= line.mtu, "longer than the MTU");
    assert!(frame.len() - l3 - packet.packet().len() < 60, "more behind the packet than padding");
    assert!(packet.ttl() > 0, "TTL 0");
    packet_is_right(&packet);
    Sent { port, tags, to: l2.dst.0, frame: frame.to_vec(), l3 }
}

/// The same of an IPv6 packet.
pub fn packet6_is_right(bytes: &[u8]) {
    let packet = Ipv6View::parse(bytes).unwrap();
    assert!(packet.hop_limit() > 0, "hop limit 0");
    assert!(bytes.len() - packet.packet().len() < 60, "more behind the packet than padding");
    let found = packet.extensions().unwrap();
    if found.protocol == 58 && !found.is_fragment() {
        let icmp = Icmpv6Slice::from_slice(&packet.packet()[usize::from(found.offset)..]).unwrap();
        let (src, dst) = (packet.src().to_be_bytes(), packet.dst().to_be_bytes());
        assert!(icmp.is_checksum_valid(src, dst), "etherparse: ICMPv6 checksum");
    }
}

/// Header and, where the packet is whole, transport checksum.
pub fn packet_is_right(packet: &Ipv4View<'_>) {
    header_is_right(packet.packet());
    if packet.is_fragment() {
        return;
    }
    transport_is_right(packet);
    if packet.protocol() == 1 && class_of(packet.payload()[0]) == Class::Error {
        let inner = Icmpv4View::parse(packet.payload()).unwrap().embedded().unwrap();
        header_is_right(inner.packet());
        if inner.payload().len() == usize::from(inner.payload_length()) && !inner.is_fragment() {
            transport_is_right(&inner);
        }
    }
}

fn header_is_right(packet: &[u8]) {
    let header = Ipv4HeaderSlice::from_slice(packet).unwrap().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum(), "IPv4 header checksum");
}

fn transport_is_right(ip: &Ipv4View<'_>) {
    let l4 = ip.payload();
    let (src, dst) = (ip.src().to_be_bytes(), ip.dst().to_be_bytes());
    match Proto::from_ip(ip.protocol()) {
        Proto::Udp => {
            assert!(UdpView::parse(l4).unwrap().checksum_ok(ip.src(), ip.dst()), "UDP checksum");
            let header = UdpHeaderSlice::from_slice(l4).unwrap().to_header();
            let right = header.calc_checksum_ipv4_raw(src, dst, &l4[8..]).unwrap();
            assert!(header.checksum == 0 || header.checksum == right, "etherparse: UDP checksum");
        }
        Proto::Tcp => {
            assert!(TcpView::parse(l4).unwrap().checksum_ok(ip.src(), ip.dst()), "TCP checksum");
            let slice = TcpHeaderSlice::from_slice(l4).unwrap();
            let right =
                slice.to_header().calc_checksum_ipv4_raw(src, dst, &l4[slice.slice().len()..]).unwrap();
            assert_eq!(slice.checksum(), right, "etherparse: TCP checksum");
        }
        Proto::Icmp => assert!(Icmpv4View::parse(l4).unwrap().checksum_ok(), "ICMP checksum"),
        Proto::Other => {}
    }
}

/// Puts fragments together: (identification, IP payload). Panics unless they make exactly one whole datagram.
#[track_caller]
pub fn reassemble(fragments: &[Sent]) -> (u16, Vec<u8>) {
    let ids: Vec<u16> = fragments.iter().map(|f| f.ip().identification()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "fragments of one datagram have one identification: {ids:?}");
    let pieces: BTreeMap<u32, &Sent> = fragments.iter().map(|f| (f.ip().fragment_offset(), f)).collect();
    let mut whole = vec![];
    for (at, (offset, piece)) in pieces.iter().enumerate() {
        assert_eq!(*offset as usize, whole.len(), "a hole or an overlap");
        assert_eq!(piece.ip().more_fragments(), at + 1 < pieces.len());
        whole.extend_from_slice(piece.l4());
    }
    (ids[0], whole)
}

/// Checks the transport checksum of a datagram that was put together.
#[track_caller]
pub fn whole_is_right(first: &Sent, l4: &[u8]) {
    let (src, dst) = (first.ip().src(), first.ip().dst());
    match first.ip().protocol() {
        17 => assert!(UdpView::parse(l4).unwrap().checksum_ok(src, dst), "UDP checksum"),
        6 => assert!(TcpView::parse(l4).unwrap().checksum_ok(src, dst), "TCP checksum"),
        1 => assert!(Icmpv4View::parse(l4).unwrap().checksum_ok(), "ICMP checksum"),
        _ => {}
    }
}
