//! From text to frames.

use std::net::{IpAddr, Ipv4Addr};

use carrack_wire::arp::ArpPacket;
use carrack_wire::icmpv6::Icmpv6Mut;
use carrack_wire::ipv4::protocol;
use carrack_wire::ipv6::{Ipv6View, next_header};
use carrack_wire::tcp::flag;
use carrack_wire::{Icmpv4View, MacAddr, PacketBuilder, checksum};

use crate::network::mac_of;

/// Address and port, or identifier.
type Endpoint = (IpAddr, u16);

const NOBODY: Endpoint = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// What a line says, in parts.
#[derive(Debug)]
struct Words<'a> {
    src: Endpoint,
    dst: Endpoint,
    pairs: Vec<(&'a str, &'a str)>,
    flags: Vec<&'a str>,
    about: Option<&'a str>,
}

impl<'a> Words<'a> {
    fn read(line: &'a str) -> Result<(Vec<&'a str>, Self), String> {
        let (line, about) = line.split_once(" about ").map_or((line, None), |(a, b)| (a, Some(b)));
        let mut words = Self { src: NOBODY, dst: NOBODY, pairs: vec![], flags: vec![], about };
        let mut head = vec![];
        for word in line.split_whitespace() {
            if let Some((src, dst)) = word.split_once('>') {
                (words.src, words.dst) = (endpoint(src)?, endpoint(dst)?);
            } else if let Some((key, value)) = word.split_once('=') {
                words.pairs.push((key, value));
            } else if words.src == NOBODY && head.len() < 2 {
                head.push(word);
            } else {
                words.flags.push(word);
            }
        }
        Ok((head, words))
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }

    fn number(&self, key: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.value(key) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("`{key}={value}` is not a number"))
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Extension headers: number and what stands behind their length octet.
    fn extensions(&self) -> Result<Vec<(u8, Vec<u8>)>, String> {
        let headers = self.pairs.iter().filter(|(key, _)| *key == "ext");
        let header = |(_, text): &(&str, &str)| {
            let (number, body) = text.split_once(':').unwrap_or((text, ""));
            let number = number.parse().map_err(|_| format!("`{number}` is no extension header"))?;
            Ok((number, hex(body)?))
        };
        headers.map(header).collect()
    }
}

fn endpoint(text: &str) -> Result<Endpoint, String> {
    let wrong = |ip: &str| format!("`{ip}` is not an address; write 10.0.0.5:53 or [2001:db8::5]:53");
    let (ip, port) = match text.strip_prefix('[').map(|text| text.split_once(']').ok_or_else(|| wrong(text)))
    {
        Some(parts) => {
            let (ip, port) = parts?;
            (ip, port.strip_prefix(':').unwrap_or("0"))
        }
        None => text.split_once(':').unwrap_or((text, "0")),
    };
    let ip = ip.parse().map_err(|_| wrong(ip))?;
    Ok((ip, port.parse().map_err(|_| format!("`{port}` is not a port"))?))
}

/// The last 32 bits of an address: what stations are known by.
fn low_bits(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits(),
        IpAddr::V6(ip) => ip.to_bits() as u32,
    }
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err(format!("`{text}` has an odd number of hex digits"));
    }
    let pair = |pair: &[u8]| {
        let text = std::str::from_utf8(pair).map_err(|e| e.to_string())?;
        u8::from_str_radix(text, 16).map_err(|_| format!("`{text}` is not hex"))
    };
    digits.chunks(2).map(pair).collect()
}

fn mac(text: &str) -> Result<MacAddr, String> {
    let bytes = hex(&text.replace(':', ""))?;
    bytes.try_into().map(MacAddr).map_err(|_| format!("`{text}` is not a MAC address"))
}

/// Flags by first letters: S, A, F, R, P, U.
fn tcp_flags(text: &str) -> Result<u8, String> {
    text.chars().try_fold(0, |bits, letter| {
        Ok(bits
            | match letter {
                'S' => flag::SYN,
                'A' => flag::ACK,
                'F' => flag::FIN,
                'R' => flag::RST,
                'P' => flag::PSH,
                'U' => flag::URG,
                '.' => 0,
                _ => return Err(format!("`{letter}` is no TCP flag; write some of SAFRPU")),
            })
    })
}

/// The frame a line describes. `to` is the MAC address of the port it comes in by, `via` the station that sends it
/// when that is not the packet's source (a gateway), `tags` the VLAN ids of the interface.
///
/// # Errors
/// A sentence that says what is wrong with the line.
pub fn frame(line: &str, to: MacAddr, via: Option<u32>, tags: &[u16]) -> Result<Vec<u8>, String> {
    if let Some(text) = line.trim().strip_prefix("hex ") {
        return hex(text);
    }
    let (head, words) = Words::read(line)?;
    let from = words
        .value("from")
        .map(mac)
        .transpose()?
        .unwrap_or_else(|| mac_of(via.unwrap_or(low_bits(words.src.0))));
    let to = words.value("to").map(mac).transpose()?.unwrap_or(to);
    let own_tags: Vec<u16> = match words.value("tags") {
        Some("none") => vec![],
        Some(text) => text
            .split(',')
            .map(|tag| tag.parse().map_err(|_| format!("`{tag}` is not a VLAN id")))
            .collect::<Result<_, _>>()?,
        None => tags.to_vec(),
    };
    let packet = match head.first() {
        Some(&"arp") => {
            ArpPacket::request(from, low_bits(words.src.0), low_bits(words.dst.0)).to_bytes().to_vec()
        }
        Some(_) => ip_packet(&head, &words)?,
        None => return Err(format!("`{line}` names no protocol")),
    };
    let ethertype = match words.src.0 {
        _ if head.first() == Some(&"arp") => 0x0806,
        IpAddr::V4(_) => 0x0800,
        IpAddr::V6(_) => 0x86dd,
    };
    let mut builder = PacketBuilder::new().ethernet(from, to).ethertype(ethertype).payload(&packet);
    for tag in &own_tags {
        builder = builder.vlan(*tag);
    }
    let mut frame = builder.build();
    let l3 = frame.len() - packet.len();
    patch(&mut frame, l3, &words)?;
    if let Some(len) = words.number("cut")? {
        frame.truncate(len as usize);
    }
    Ok(frame)
}

fn ip_packet(head: &[&str], words: &Words<'_>) -> Result<Vec<u8>, String> {
    let len = words.number("len")?.unwrap_or(20) as usize;
    let offset = words.number("off")?;
    let quoted = quoted(words)?;
    let mut payload: Vec<u8> = (0..len).map(|n| (n * 7 + n / 251 + 3) as u8).collect();
    if let Some(quoted) = &quoted {
        payload.clone_from(quoted);
    }
    let options = words.value("options").map(hex).transpose()?.unwrap_or_default();
    let plain = match (words.src.0, words.dst.0) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => PacketBuilder::new().ipv4(src, dst).ip_options(&options),
        (IpAddr::V6(src), IpAddr::V6(dst)) => PacketBuilder::new().ipv6(src, dst),
        (src, dst) => return Err(format!("{src} and {dst} are not of the same version")),
    };
    let number = protocol_of(head, words.src.0.is_ipv6())?;
    let (sport, dport) = (words.src.1, words.dst.1);
    // The IP payload of the whole datagram first: fragments are cut out of it.
    let base = plain.clone();
    let whole = match head[0] {
        "udp" if words.has("nocsum") => base.udp_without_checksum(sport, dport),
        "udp" => base.udp(sport, dport),
        "tcp" => base.tcp(sport, dport, tcp_flags(words.flags.first().copied().unwrap_or("S"))?),
        "ping" => base.echo_request(sport, 1),
        "pong" => base.echo_reply(dport, 1),
        "icmp" | "error" => icmp(base, head, words)?,
        _ => base.protocol(number),
    };
    let whole = whole.payload(&payload).build();
    let body = &whole[plain.len()..];
    let (from, more) = (offset.unwrap_or(0) as u16, words.has("mf"));
    let piece = match (offset, more) {
        (None, false) => body,
        // A fragment that is the whole datagram (RFC 6946).
        (Some(0), false) if words.src.0.is_ipv6() && head[0] != "ip" => body,
        // `len` octets of payload from there on; a first fragment carries its transport header in front of them.
        (Some(_), _) => &payload[..],
        (None, true) => &body[..body.len() & !7],
    };
    let extensions = words.extensions()?;
    let id = words.number("id")?.unwrap_or(0);
    let mut builder = plain.protocol(number).payload(piece);
    for (number, body) in &extensions {
        builder = builder.extension(*number, body);
    }
    if offset.is_some() || more {
        builder = builder.fragment(from, more).fragment6(from, more, id as u32);
    }
    if words.has("df") {
        builder = builder.dont_fragment();
    }
    builder = builder.ttl(words.number("ttl")?.unwrap_or(64) as u8);
    builder = builder.tos(words.number("tos")?.unwrap_or(0) as u8);
    builder = builder.flow_label(words.number("flow")?.unwrap_or(0) as u32);
    Ok(builder.identification(id as u16).build())
}

/// The header of an ICMP message: type, code, and the number an error has.
fn icmp<'a>(base: PacketBuilder<'a>, head: &[&str], words: &Words<'_>) -> Result<PacketBuilder<'a>, String> {
    let (kind, code) = head.get(1).and_then(|t| t.split_once('/')).ok_or("write type and code as 3/1")?;
    let parse = |text: &str| text.parse().map_err(|_| format!("`{text}` is not a number to 255"));
    let (mtu, pointer) = (words.number("mtu")?.unwrap_or(0) as u32, words.number("ptr")?.unwrap_or(0) as u32);
    // ICMP has the pointer in the first octet, ICMPv6 in the whole word.
    let pointer = if words.src.0.is_ipv6() { pointer } else { pointer << 24 };
    Ok(base.icmp(parse(kind)?, parse(code)?, (mtu | pointer).to_be_bytes()))
}

fn protocol_of(head: &[&str], is_six: bool) -> Result<u8, String> {
    Ok(match head[0] {
        "udp" => protocol::UDP,
        "tcp" => protocol::TCP,
        "ping" | "pong" | "icmp" | "error" if is_six => next_header::ICMPV6,
        "ping" | "pong" | "icmp" | "error" => protocol::ICMP,
        "ip" => {
            let number = head.get(1).ok_or("write the protocol number behind `ip`")?;
            number.parse().map_err(|_| format!("`{number}` is not a protocol number"))?
        }
        other => return Err(format!("`{other}` is no kind of packet")),
    })
}

/// The packet that an error carries.
fn quoted(words: &Words<'_>) -> Result<Option<Vec<u8>>, String> {
    let Some(about) = words.about else { return Ok(None) };
    let inner = frame(about, MacAddr::ZERO, None, &[])?;
    let mut inner = inner.get(14..).unwrap_or(&[]).to_vec();
    if let Some(len) = words.number("quote")? {
        inner.truncate(len as usize);
    }
    Ok(Some(inner))
}

/// Writes octets over the finished frame.
fn patch(frame: &mut [u8], l3: usize, words: &Words<'_>) -> Result<(), String> {
    let six = frame.get(l3..).filter(|_| words.src.0.is_ipv6()).and_then(|packet| {
        let view = Ipv6View::parse(packet).ok()?;
        Some((view.extensions().ok()?, view.src(), view.dst()))
    });
    let l4 = match &six {
        Some((chain, ..)) => l3 + usize::from(chain.offset),
        None => l3 + usize::from(frame.get(l3).copied().unwrap_or(0x45) & 0x0f) * 4,
    };
    let is_icmp = six.is_none() && frame.get(l3 + 9) == Some(&protocol::ICMP);
    let (mut header, mut body) = (false, false);
    for (key, value) in &words.pairs {
        let Some((layer, at)) = key.strip_suffix(']').and_then(|key| key.split_once('[')) else { continue };
        let at: usize = at.parse().map_err(|_| format!("`{at}` is not an offset"))?;
        let start = match layer {
            "l2" => 0,
            "l3" => l3,
            "l4" => l4,
            _ => return Err(format!("`{layer}` is no layer; write l2, l3 or l4")),
        };
        header |= layer == "l3";
        body |= layer == "l4";
        let bytes = hex(value)?;
        let place =
            frame.get_mut(start + at..start + at + bytes.len()).ok_or(format!("`{key}` is outside"))?;
        place.copy_from_slice(&bytes);
    }
    if words.has("raw") {
        return Ok(());
    }
    if header
        && six.is_none()
        && let Some(head) = frame.get_mut(l3..l4).filter(|head| head.len() >= 20)
    {
        head[10..12].fill(0);
        let sum = checksum::checksum(head);
        head[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    if body
        && is_icmp
        && let Some(message) = frame.get_mut(l4..).filter(|m| Icmpv4View::parse(m).is_ok())
    {
        message[2..4].fill(0);
        let sum = checksum::checksum(message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
    }
    if let (true, Some((chain, src, dst))) = (body, six)
        && chain.protocol == next_header::ICMPV6
        && let Some(mut message) = frame.get_mut(l4..).and_then(|m| Icmpv6Mut::parse(m).ok())
    {
        message.fill_checksum(src, dst);
    }
    Ok(())
}
