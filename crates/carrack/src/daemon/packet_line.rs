//! A packet in one line, as far as its bytes go.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use carrack_wire::ethernet::ethertype;
use carrack_wire::ipv4::protocol;
use carrack_wire::ipv6::{self, next_header};

/// ICMP messages that carry an identifier: echo and timestamp.
const ICMP_QUERIES: [u16; 4] = [0, 8, 13, 14];
/// The same of ICMPv6: echo.
const ICMPV6_QUERIES: [u16; 2] = [128, 129];

/// A frame's first bytes in one line, tags before the packet.
pub(super) fn packet(frame: &[u8]) -> String {
    let mut at = 12;
    let mut line = String::new();
    while let (Some(ethertype::VLAN | ethertype::QINQ), Some(tag)) = (word(frame, at), word(frame, at + 2)) {
        _ = write!(line, "vlan {} ", tag & 0x0fff);
        at += 4;
    }
    let packet = frame.get(at + 2..).unwrap_or_default();
    line + &match word(frame, at) {
        Some(ethertype::IPV4) => ipv4(packet).unwrap_or_else(|| "ipv4 truncated".into()),
        Some(ethertype::IPV6) => ipv6(packet).unwrap_or_else(|| "ipv6 truncated".into()),
        Some(ethertype::ARP) => "arp".into(),
        Some(other) => format!("ethertype {other:#06x}"),
        None => "truncated".into(),
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

fn ipv4(packet: &[u8]) -> Option<String> {
    let address = |at: usize| packet.get(at..)?.first_chunk().map(|bytes| IpAddr::V4(Ipv4Addr::from(*bytes)));
    let ends = Ends { source: address(12)?, destination: address(16)?, hops_left: *packet.get(8)? };
    let (fragment, protocol) = (word(packet, 6)? & 0x1fff, *packet.get(9)?);
    if fragment != 0 {
        return Some(ends.later_fragment(protocol, fragment * 8));
    }
    let header_len = usize::from(packet.first()? & 0x0f) * 4;
    Some(ends.transport(protocol, packet.get(header_len..).unwrap_or_default()))
}

fn ipv6(packet: &[u8]) -> Option<String> {
    let address = |at: usize| packet.get(at..)?.first_chunk().map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes)));
    let ends = Ends { source: address(8)?, destination: address(24)?, hops_left: *packet.get(7)? };
    let (mut next, mut at) = (*packet.get(6)?, ipv6::HEADER_LEN);
    // RFC 8200 §4.1 allows a handful; what goes on for longer is told by the header where this ends.
    for _ in 0..8 {
        let length = match (next, packet.get(at + 1)) {
            (next_header::HOP_BY_HOP | next_header::ROUTING | next_header::DESTINATION, Some(units)) => {
                usize::from(*units) * 8 + 8
            }
            (next_header::FRAGMENT, Some(_)) => {
                let offset = word(packet, at + 2).unwrap_or(0) & !7;
                if offset != 0 {
                    return Some(ends.later_fragment(*packet.get(at)?, offset));
                }
                ipv6::FRAGMENT_HEADER_LEN
            }
            _ => break,
        };
        (next, at) = (*packet.get(at)?, at + length);
    }
    Some(ends.transport(next, packet.get(at..).unwrap_or_default()))
}

/// What a line says around the transport: from where, to where, how far still.
struct Ends {
    source: IpAddr,
    destination: IpAddr,
    hops_left: u8,
}

impl Ends {
    fn transport(&self, protocol: u8, l4: &[u8]) -> String {
        match (protocol, word(l4, 0), word(l4, 2)) {
            (protocol::TCP, Some(from), Some(to)) => {
                self.between((from, to), &format!("tcp{}", tcp_flags(l4.get(13))))
            }
            (protocol::UDP, Some(from), Some(to)) => self.between((from, to), "udp"),
            (protocol::ICMP, Some(kind), _) => self.line(&icmp("icmp", &ICMP_QUERIES, kind, l4)),
            (next_header::ICMPV6, Some(kind), _) => self.line(&icmp("icmpv6", &ICMPV6_QUERIES, kind, l4)),
            (protocol, ..) => self.line(&format!("protocol {protocol}")),
        }
    }

    fn later_fragment(&self, protocol: u8, offset: u16) -> String {
        self.line(&format!("protocol {protocol} fragment at {offset}"))
    }

    fn between(&self, (from, to): (u16, u16), what: &str) -> String {
        let [from, to] = [(self.source, from), (self.destination, to)].map(SocketAddr::from);
        format!("{from} > {to} {what} ttl {}", self.hops_left)
    }

    fn line(&self, what: &str) -> String {
        format!("{} > {} {what} ttl {}", self.source, self.destination, self.hops_left)
    }
}

/// `head` has type and code; `queries` are the types with an identifier.
fn icmp(name: &str, queries: &[u16], head: u16, l4: &[u8]) -> String {
    let (kind, code) = (head >> 8, head & 0xff);
    let id = word(l4, 4).filter(|_| queries.contains(&kind)).map(|id| format!(" id {id}"));
    format!("{name} {kind}/{code}{}", id.unwrap_or_default())
}

fn tcp_flags(flags: Option<&u8>) -> String {
    let Some(flags) = flags else { return String::new() };
    let names = [(0x02, "SYN"), (0x10, "ACK"), (0x01, "FIN"), (0x04, "RST"), (0x08, "PSH")];
    let set: Vec<&str> = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect();
    if set.is_empty() { String::new() } else { format!(" {}", set.join("+")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(tags: &[u8], ethertype: u16, payload: &[u8]) -> Vec<u8> {
        [&[0; 12], tags, &ethertype.to_be_bytes(), payload].concat()
    }

    const SYN: [u8; 14] = [0x9c, 0x40, 0x01, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x02];

    #[test]
    fn a_packet_reads_as_one_line_whatever_its_bytes() {
        let ip = |protocol: u8, fragment: u16, l4: &[u8]| {
            let [high, low] = fragment.to_be_bytes();
            let head = [0x45, 0, 0, 40, 0, 1, high, low, 64, protocol, 0, 0, 100, 64, 0, 5, 203, 0, 113, 10];
            [&head, l4].concat()
        };
        let tcp = frame(&[], 0x0800, &ip(6, 0, &SYN));
        assert_eq!(packet(&tcp), "100.64.0.5:40000 > 203.0.113.10:443 tcp SYN ttl 64");
        let echo = frame(&[0x81, 0, 0, 100], 0x0800, &ip(1, 0, &[8, 0, 0, 0, 0, 7]));
        assert_eq!(packet(&echo), "vlan 100 100.64.0.5 > 203.0.113.10 icmp 8/0 id 7 ttl 64");
        let later = frame(&[], 0x0800, &ip(17, 185, &[]));
        assert_eq!(packet(&later), "100.64.0.5 > 203.0.113.10 protocol 17 fragment at 1480 ttl 64");
        assert_eq!(packet(&frame(&[], 0x0806, &[])), "arp");
        assert_eq!(packet(&frame(&[], 0x8847, &[])), "ethertype 0x8847");
        for len in 0..tcp.len() {
            assert!(!packet(&tcp[..len]).is_empty());
        }
    }

    #[test]
    fn ipv6_reads_like_ipv4_and_its_extension_headers_are_walked() {
        let ip = |next: u8, rest: &[u8]| {
            let ends = [0x2001_0db8_0001_0000_0000_0000_0000_0010_u128, 0x0064_ff9b << 96 | 0xcb00_710a];
            let head = [0x60, 0, 0, 0, 0, rest.len() as u8, next, 63];
            let ends = ends.map(u128::to_be_bytes).concat();
            frame(&[0x88, 0xa8, 0, 7, 0x81, 0, 0, 9], 0x86dd, &[&head, &ends[..], rest].concat())
        };
        let tcp = ip(6, &SYN);
        let tags = "vlan 7 vlan 9 ";
        let (host, server) = ("2001:db8:1::10", "64:ff9b::cb00:710a");
        assert_eq!(packet(&tcp), format!("{tags}[{host}]:40000 > [{server}]:443 tcp SYN ttl 63"));
        let echo = ip(58, &[128, 0, 0, 0, 0, 7]);
        assert_eq!(packet(&echo), format!("{tags}{host} > {server} icmpv6 128/0 id 7 ttl 63"));
        let behind_options = [&[44, 0, 1, 4, 0, 0, 0, 0][..], &[17, 0, 0, 1, 0, 0, 0, 1], &SYN].concat();
        let first = ip(60, &behind_options);
        assert_eq!(packet(&first), format!("{tags}[{host}]:40000 > [{server}]:443 udp ttl 63"));
        let later = ip(44, &[17, 0, 5, 0xc8, 0, 0, 0, 1]);
        assert_eq!(packet(&later), format!("{tags}{host} > {server} protocol 17 fragment at 1480 ttl 63"));
        for len in 0..first.len() {
            assert!(!packet(&first[..len]).is_empty());
        }
    }
}
