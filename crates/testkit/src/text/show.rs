//! From frames to text.

use std::fmt::Write as _;

use carrack_wire::icmpv4::{Class, Icmpv4View, class_of, kind};
use carrack_wire::icmpv6::{self, Icmpv6View};
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv6::Ipv6View;
use carrack_wire::tcp::flag;
use carrack_wire::vlan::parse_l2;

/// A frame in the words of this module: what a person would say of it. Exact in everything a router may change.
#[must_use]
pub fn describe(frame: &[u8]) -> String {
    let Ok(l2) = parse_l2(frame) else { return format!("broken {} octets", frame.len()) };
    let payload = frame.get(usize::from(l2.payload_offset)..).unwrap_or(&[]);
    match l2.ethertype {
        0x0800 => Ipv4View::parse(payload).map(|ip| four(&ip).text(true)).ok(),
        0x86dd => Ipv6View::parse(payload).ok().and_then(|ip| Some(six(&ip)?.text(true))),
        _ => None,
    }
    .unwrap_or_else(|| format!("ethertype {:04x}", l2.ethertype))
}

/// What the two versions have in common.
struct Packet<'a> {
    src: String,
    dst: String,
    protocol: u8,
    ttl: u8,
    tos: u8,
    /// Octets behind the IP header.
    len: u16,
    l4: &'a [u8],
    /// Offset, whether more follow, identification: of a fragment.
    fragment: Option<(u16, bool, u32)>,
    /// Must not be cut.
    df: bool,
    /// Words that only one version has.
    own: String,
    icmp: Icmp<'a>,
}

/// What kind of message it is.
enum Icmp<'a> {
    None,
    Request,
    Reply,
    Other,
    /// An error, what it says besides type and code, and the packet it quotes.
    Error(String, Option<Box<Packet<'a>>>),
}

fn four<'a>(ip: &Ipv4View<'a>) -> Packet<'a> {
    let l4 = ip.payload();
    let first = l4.first().copied().unwrap_or(0);
    let icmp = match class_of(first) {
        _ if ip.protocol() != 1 || ip.is_later_fragment() => Icmp::None,
        Class::Error => {
            let view = Icmpv4View::parse(l4).ok().filter(|_| !ip.is_fragment());
            let rest = view.as_ref().map_or(0, |icmp| icmp.rest_of_header());
            let number = if first == 12 { ("ptr", rest >> 24) } else { ("mtu", rest & 0xffff) };
            let quoted = view.and_then(|icmp| icmp.embedded().ok());
            Icmp::Error(said(number), quoted.map(|inner| Box::new(four(&inner))))
        }
        _ if first == kind::ECHO_REQUEST => Icmp::Request,
        _ if first == kind::ECHO_REPLY => Icmp::Reply,
        _ => Icmp::Other,
    };
    let own = if ip.has_options() { " options" } else { "" };
    let piece = (ip.fragment_offset() as u16, ip.more_fragments(), ip.identification().into());
    Packet {
        src: ip.src_addr().to_string(),
        dst: ip.dst_addr().to_string(),
        protocol: ip.protocol(),
        ttl: ip.ttl(),
        tos: ip.tos(),
        len: ip.payload_length(),
        l4,
        fragment: ip.is_fragment().then_some(piece),
        df: ip.dont_fragment(),
        own: own.to_owned(),
        icmp,
    }
}

fn six<'a>(ip: &Ipv6View<'a>) -> Option<Packet<'a>> {
    let chain = ip.extensions().ok()?;
    let l4 = ip.packet().get(usize::from(chain.offset)..)?;
    let first = l4.first().copied().unwrap_or(0);
    let is_later = chain.fragment.is_some_and(|piece| piece.offset != 0);
    let icmp = match icmpv6::class_of(first) {
        _ if chain.protocol != 58 || is_later => Icmp::None,
        icmpv6::Class::Error => {
            let view = Icmpv6View::parse(l4).ok().filter(|_| chain.fragment.is_none());
            let rest = view.as_ref().map_or(0, |icmp| icmp.pointer());
            let quoted = view.and_then(|icmp| six(&icmp.embedded().ok()?));
            let number = (if first == icmpv6::kind::PARAMETER_PROBLEM { "ptr" } else { "mtu" }, rest);
            Icmp::Error(said(number), quoted.map(Box::new))
        }
        icmpv6::Class::Request => Icmp::Request,
        icmpv6::Class::Reply => Icmp::Reply,
        _ => Icmp::Other,
    };
    let mut own = String::new();
    if ip.flow_label() != 0 {
        let _ = write!(own, " flow={}", ip.flow_label());
    }
    let fragment_bytes = if chain.fragment.is_some() { 8 } else { 0 };
    let extensions = chain.offset.saturating_sub(40 + fragment_bytes);
    own.push_str(if extensions > 0 { " extensions" } else { "" });
    Some(Packet {
        src: format!("[{}]", ip.src_addr()),
        dst: format!("[{}]", ip.dst_addr()),
        protocol: chain.protocol,
        ttl: ip.hop_limit(),
        tos: ip.traffic_class(),
        len: ip.payload_length().saturating_sub(chain.offset.saturating_sub(40)),
        l4,
        fragment: chain.fragment.map(|piece| (piece.offset, piece.more, piece.identification)),
        df: false,
        own,
        icmp,
    })
}

/// A word for a number that an error has, none for zero.
fn said((key, number): (&str, u32)) -> String {
    if number == 0 { String::new() } else { format!(" {key}={number}") }
}

impl Packet<'_> {
    fn text(&self, is_outer: bool) -> String {
        let mut text = String::new();
        let Self { src, dst, l4, protocol, .. } = self;
        let word = |at: usize| l4.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let (kind, code) = (l4.first().copied().unwrap_or(0), l4.get(1).copied().unwrap_or(0));
        let is_later = self.fragment.is_some_and(|(offset, ..)| offset != 0);
        // Writing to a string does not fail.
        let (_, header) = match (protocol, &self.icmp) {
            _ if is_later => (write!(text, "ip {protocol} {src}>{dst}"), 0),
            (17, _) => (write!(text, "udp {src}:{}>{dst}:{}", word(0), word(2)), 8),
            (6, _) => {
                let bits = flags(l4.get(13).copied().unwrap_or(0));
                (write!(text, "tcp {src}:{}>{dst}:{} {bits}", word(0), word(2)), 20)
            }
            (_, Icmp::None) => (write!(text, "ip {protocol} {src}>{dst}"), 0),
            (_, Icmp::Error(..)) if is_outer => (write!(text, "error {kind}/{code} {src}>{dst}"), 8),
            (_, Icmp::Request) => (write!(text, "ping {src}:{}>{dst}", word(4)), 8),
            (_, Icmp::Reply) => (write!(text, "pong {src}>{dst}:{}", word(4)), 8),
            _ => (write!(text, "icmp {kind}/{code} {src}>{dst}"), 8),
        };
        if is_outer {
            let _ = write!(text, " ttl={}", self.ttl);
        }
        if self.tos != 0 {
            let _ = write!(text, " tos={}", self.tos);
        }
        text.push_str(if self.df { " df" } else { "" });
        if let Some((offset, more, id)) = self.fragment {
            let _ = write!(text, " off={offset}");
            text.push_str(if more { " mf" } else { "" });
            if is_outer {
                let _ = write!(text, " id={id}");
            }
        }
        if *protocol == 17 && !is_later && l4.len() >= 8 && word(6) == 0 {
            text.push_str(" nocsum");
        }
        text.push_str(&self.own);
        match &self.icmp {
            Icmp::Error(said, quoted) if is_outer && self.fragment.is_none() => {
                text.push_str(said);
                let quoted = quoted.as_ref().map_or("nothing".into(), |inner| inner.text(false));
                let _ = write!(text, " about {quoted}");
            }
            _ if is_outer => {
                let _ = write!(text, " len={}", self.len.saturating_sub(header));
            }
            _ => {}
        }
        text
    }
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
