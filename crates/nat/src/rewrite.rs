//! Rewrites of packets in place: addresses, ports and checksums, by the session's precomputed changes. Nothing behind
//! the transport header is touched: that is for application gateways, of which FTP's alone is on by default
//! (RFC 4787 REQ-10, RFC 5382 REQ-6).

use carrack_base::Proto;
use carrack_wire::checksum::Delta;
use carrack_wire::gre;
use carrack_wire::ipv4::protocol;

use crate::flow::{Direction, Flow, Kind};
use crate::line::Session;

/// Offset of the checksum in the transport header, by protocol; `None` for those without one that covers addresses.
const fn checksum_at(proto: Proto, ip_proto: u8) -> Option<usize> {
    match (proto, ip_proto) {
        (Proto::Tcp, _) => Some(16),
        (Proto::Udp, _) => Some(6),
        // DCCP (RFC 5597) and UDP-Lite (RFC 3828) cover the addresses by a pseudo-header; others do not.
        (Proto::Other, 33 | 136) => Some(6),
        // ICMP's covers none.
        (Proto::Icmp | Proto::Other, _) => None,
    }
}

/// The checksum changes of a new session, going out: (IPv4 header, transport header).
#[inline(always)]
pub(crate) const fn deltas(session: &Session) -> (u16, u16) {
    let address = Delta::of_u32(session.inside_ip, session.outside_ip);
    let port = Delta::of_u16(session.inside_port, session.outside_port);
    let transport = match session.proto() {
        Proto::Icmp => port,
        Proto::Other => address,
        Proto::Tcp | Proto::Udp => address.plus(port),
    };
    (address.to_bits(), transport.to_bits())
}

#[inline]
fn put16(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

#[inline]
fn get16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}

/// Bytes from the IPv4 header that the common rewrite touches: header without options, TCP up to its checksum.
const COMMON_BYTES: usize = 38;

/// Rewrites one packet of a session: source going out, destination coming in. Bounds were checked by parse; a packet
/// too short for a field keeps it.
#[inline(always)]
pub(crate) fn translate(session: &Session, flow: &Flow, direction: Direction, frame: &mut [u8]) {
    let (l3_delta, l4_delta) = (Delta::from_bits(session.l3_delta), Delta::from_bits(session.l4_delta));
    let (address, port, l3_delta, l4_delta) = match direction {
        Direction::Out => (session.outside_ip, session.outside_port, l3_delta, l4_delta),
        Direction::In => (session.inside_ip, session.inside_port, l3_delta.negated(), l4_delta.negated()),
    };
    let packet = frame.get_mut(usize::from(flow.l3)..).unwrap_or(&mut []);
    let common =
        flow.kind == Kind::Whole && flow.l4 == flow.l3 + 20 && matches!(flow.proto, Proto::Tcp | Proto::Udp);
    if let Some(head) = packet.first_chunk_mut::<COMMON_BYTES>()
        && common
    {
        let checksum = l3_delta.apply(u16::from_be_bytes([head[10], head[11]]));
        [head[10], head[11]] = checksum.to_be_bytes();
        let (address, port) = (address.to_be_bytes(), port.to_be_bytes());
        match direction {
            Direction::Out => {
                [head[12], head[13], head[14], head[15]] = address;
                [head[20], head[21]] = port;
            }
            Direction::In => {
                [head[16], head[17], head[18], head[19]] = address;
                [head[22], head[23]] = port;
            }
        }
        if flow.proto == Proto::Tcp {
            let checksum = l4_delta.apply(u16::from_be_bytes([head[36], head[37]]));
            [head[36], head[37]] = checksum.to_be_bytes();
        } else {
            let checksum = l4_delta.apply_udp(u16::from_be_bytes([head[26], head[27]]));
            [head[26], head[27]] = checksum.to_be_bytes();
        }
        return;
    }
    translate_uncommon(session, flow, direction, frame);
}

/// The same for IP options, fragments, ICMP, other protocols and very short packets.
#[cold]
fn translate_uncommon(session: &Session, flow: &Flow, direction: Direction, frame: &mut [u8]) {
    let (l3_delta, l4_delta) = (Delta::from_bits(session.l3_delta), Delta::from_bits(session.l4_delta));
    let (address, port, address_at, port_at, l3_delta, l4_delta) = match direction {
        Direction::Out => (session.outside_ip, session.outside_port, 12, 0, l3_delta, l4_delta),
        Direction::In => {
            (session.inside_ip, session.inside_port, 16, 2, l3_delta.negated(), l4_delta.negated())
        }
    };
    if let Some(head) = frame.get_mut(usize::from(flow.l3)..).and_then(|l3| l3.first_chunk_mut::<20>()) {
        let checksum = l3_delta.apply(u16::from_be_bytes([head[10], head[11]]));
        head[10..12].copy_from_slice(&checksum.to_be_bytes());
        // Invariant: `address_at` is 12 or 16, inside the 20 bytes.
        head[address_at..address_at + 4].copy_from_slice(&address.to_be_bytes());
    }
    if flow.kind == Kind::LaterFragment {
        return;
    }
    let Some(l4) = frame.get_mut(usize::from(flow.l4)..) else { return };
    rewrite_transport(session.proto(), session.ip_proto, port, port_at, l4_delta, l4);
}

/// Port (or ICMP identifier) and checksum of a transport header that may be cut short.
#[inline]
fn rewrite_transport(proto: Proto, ip_proto: u8, port: u16, port_at: usize, delta: Delta, l4: &mut [u8]) {
    match proto {
        Proto::Tcp | Proto::Udp => put16(l4, port_at, port),
        Proto::Icmp => {
            put16(l4, 4, port);
            return delta.apply_icmp(l4);
        }
        // A call's number is that of the end it goes to. Other packets have none.
        Proto::Other if ip_proto == protocol::GRE && port_at == 2 && port != 0 => {
            put16(l4, gre::CALL_AT, port)
        }
        Proto::Other => {}
    }
    let Some(at) = checksum_at(proto, ip_proto) else { return };
    if l4.len() < at + 2 {
        return;
    }
    let old = get16(l4, at);
    // RFC 768: a UDP checksum of zero means none was made; it stays zero.
    let new = if proto == Proto::Udp { delta.apply_udp(old) } else { delta.apply(old) };
    put16(l4, at, new);
}

/// Rewrites an ICMP error that carries a packet of the session (RFC 5508 REQ-4, REQ-5): the outer address
/// (RFC 5508 REQ-4c), the embedded packet's address, port and checksums (RFC 5508 REQ-4a, REQ-5a), then the ICMP
/// checksum over all of it. Type and code stay (RFC 5508 REQ-4b, REQ-5b).
///
/// `direction` is the error's own: an error coming in carries a packet that went out. `outer` replaces the outer
/// source of an error going out, the outer destination of one coming in.
pub(crate) fn translate_error(
    session: &Session,
    outer: u32,
    flow: &Flow,
    direction: Direction,
    embedded: Embedded,
    frame: &mut [u8],
) {
    let l3_delta = Delta::from_bits(session.l3_delta);
    let l4_delta = Delta::from_bits(session.l4_delta);
    // The embedded packet travelled the other way, translated; undo that (coming in) or do it (going out).
    let (address, port, outer_at, embedded_at, port_at, l3_delta, l4_delta) = match direction {
        Direction::In => {
            (session.inside_ip, session.inside_port, 16, 12, 0, l3_delta.negated(), l4_delta.negated())
        }
        Direction::Out => (session.outside_ip, session.outside_port, 12, 16, 2, l3_delta, l4_delta),
    };
    let (l3, l4) = (usize::from(flow.l3), usize::from(flow.l4));
    let Some(packet) = frame.get_mut(l3..).map(|p| {
        let len = usize::from(get16(p, 2)).min(p.len());
        &mut p[..len]
    }) else {
        return;
    };
    let l4 = l4 - l3;
    set_address(packet, outer_at, outer);
    if let Some(inner) = packet.get_mut(l4 + 8..) {
        let header_len = usize::from(inner.first().copied().unwrap_or(0x45) & 0x0f) * 4;
        if let Some(at) = inner.get_mut(embedded_at..embedded_at + 4) {
            at.copy_from_slice(&address.to_be_bytes());
        }
        let checksum = l3_delta.apply(get16(inner, 10));
        put16(inner, 10, checksum);
        // Never past the quotation: what follows may be an extension structure (RFC 4884).
        let end = embedded.quoted_len.min(inner.len());
        if let Some(inner_l4) = inner.get_mut(header_len..end) {
            rewrite_transport(session.proto(), session.ip_proto, port, port_at, l4_delta, inner_l4);
        }
    }
    if let Some(message) = packet.get_mut(l4..) {
        put16(message, 2, 0);
        let checksum = carrack_wire::checksum::checksum(message);
        put16(message, 2, checksum);
    }
}

/// How much of the payload of an ICMP error is the quoted packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Embedded {
    pub(crate) quoted_len: usize,
}

fn set_address(packet: &mut [u8], at: usize, address: u32) {
    let Some(head) = packet.first_chunk_mut::<20>() else { return };
    // Invariant: `at` is 12 or 16, inside the 20 bytes.
    let old = u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let checksum = Delta::of_u32(old, address).apply(u16::from_be_bytes([head[10], head[11]]));
    head[10..12].copy_from_slice(&checksum.to_be_bytes());
    head[at..at + 4].copy_from_slice(&address.to_be_bytes());
}
