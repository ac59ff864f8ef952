//! From frames to text.

use std::fmt::Write as _;

use carrack_wire::icmpv4::{Class, Icmpv4View, class_of, kind};
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::tcp::flag;
use carrack_wire::vlan::parse_l2;

/// A frame in the words of this module: what a person would say of it. Exact in everything a router may change.
#[must_use]
pub fn describe(frame: &[u8]) -> String {
    let Ok(l2) = parse_l2(frame) else { return format!("broken {} octets", frame.len()) };
    let payload = frame.get(usize::from(l2.payload_offset)..).unwrap_or(&[]);
    match Ipv4View::parse(payload) {
        Ok(ip) if l2.ethertype == 0x0800 => packet(&ip, true),
        _ => format!("ethertype {:04x}", l2.ethertype),
    }
}

fn packet(ip: &Ipv4View<'_>, is_outer: bool) -> String {
    let mut text = String::new();
    let (l4, src, dst) = (ip.payload(), ip.src_addr(), ip.dst_addr());
    let word = |at: usize| l4.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let class = l4.first().map_or(Class::Other, |kind| class_of(*kind));
    let mut len = ip.payload_length();
    // Writing to a string does not fail.
    let _ = match ip.protocol() {
        _ if ip.is_later_fragment() => write!(text, "ip {} {src}>{dst}", ip.protocol()),
        17 => {
            len = len.saturating_sub(8);
            write!(text, "udp {src}:{}>{dst}:{}", word(0), word(2))
        }
        6 => {
            len = len.saturating_sub(20);
            write!(
                text,
                "tcp {src}:{}>{dst}:{} {}",
                word(0),
                word(2),
                flags(l4.get(13).copied().unwrap_or(0))
            )
        }
        1 if class == Class::Error && is_outer => {
            write!(text, "error {}/{} {src}>{dst}", l4[0], l4.get(1).copied().unwrap_or(0))
        }
        1 => {
            len = len.saturating_sub(8);
            match l4.first().copied().unwrap_or(0) {
                kind::ECHO_REQUEST => write!(text, "ping {src}:{}>{dst}", word(4)),
                kind::ECHO_REPLY => write!(text, "pong {src}>{dst}:{}", word(4)),
                other => write!(text, "icmp {other}/{} {src}>{dst}", l4.get(1).copied().unwrap_or(0)),
            }
        }
        other => write!(text, "ip {other} {src}>{dst}"),
    };
    if is_outer {
        let _ = write!(text, " ttl={}", ip.ttl());
    }
    if ip.tos() != 0 {
        let _ = write!(text, " tos={}", ip.tos());
    }
    if ip.dont_fragment() {
        text.push_str(" df");
    }
    if ip.is_fragment() {
        let _ = write!(text, " off={}", ip.fragment_offset());
        text.push_str(if ip.more_fragments() { " mf" } else { "" });
    }
    if ip.protocol() == 17 && !ip.is_later_fragment() && l4.len() >= 8 && word(6) == 0 {
        text.push_str(" nocsum");
    }
    if ip.has_options() {
        text.push_str(" options");
    }
    let is_error = ip.protocol() == 1 && class == Class::Error && !ip.is_fragment();
    match Icmpv4View::parse(l4) {
        Ok(icmp) if is_error && is_outer => {
            if icmp.next_hop_mtu() != 0 {
                let _ = write!(text, " mtu={}", icmp.next_hop_mtu());
            }
            match icmp.embedded() {
                Ok(inner) => {
                    let _ = write!(text, " about {}", packet(&inner, false));
                }
                Err(_) => text.push_str(" about nothing"),
            }
        }
        _ if is_outer => {
            let _ = write!(text, " len={len}");
        }
        _ => {}
    }
    text
}

fn flags(bits: u8) -> String {
    let known = [
        ('S', flag::SYN),
        ('A', flag::ACK),
        ('F', flag::FIN),
        ('R', flag::RST),
        ('P', flag::PSH),
        ('U', flag::URG),
    ];
    let text: String = known.iter().filter(|(_, bit)| bits & bit != 0).map(|(letter, _)| *letter).collect();
    if text.is_empty() { ".".into() } else { text }
}
