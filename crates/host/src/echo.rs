//! ICMP echo (RFC 792, RFC 1812 §4.3.3.6), and ICMPv6 echo (RFC 4443 §4.2).

use carrack_wire::checksum;
use carrack_wire::icmpv6;
use carrack_wire::ipv4::{FLAG_DF, Ipv4Header, Ipv4View, protocol};
use carrack_wire::ipv6::{Ipv6Header, Ipv6View, next_header};

/// Time to live of what the router sends: never taken from the request (RFC 1812 §4.3.2.2).
pub(crate) const TTL: u8 = 64;
const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;

/// Why an ICMP packet to the router gets no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// Too short, or its checksum is wrong.
    Malformed,
    /// Not a whole echo request.
    NotEcho,
}

/// The IPv4 packet that answers the echo request `request`: addresses swapped, data returned whole. Options are not
/// returned. With an `identification` it may be cut on its way, else it may not.
pub(crate) fn reply(request: &Ipv4View<'_>, identification: Option<u16>) -> Result<Vec<u8>, NoReply> {
    if request.protocol() != protocol::ICMP || request.is_fragment() {
        return Err(NoReply::NotEcho);
    }
    let message = request.payload();
    let Some((&[kind, code, ..], body)) = message.split_first_chunk::<4>() else {
        return Err(NoReply::Malformed);
    };
    if body.len() < 4 || !checksum::verify(message) {
        return Err(NoReply::Malformed);
    }
    // RFC 5508 REQ-10c, RFC 1812 §4.3.3.7: an information request is nothing to answer.
    if kind != ECHO_REQUEST || code != 0 {
        return Err(NoReply::NotEcho);
    }
    let header = Ipv4Header {
        // The service of the request (RFC 1812 §4.3.2.5), but a reply takes no part in congestion notification.
        tos: request.tos() & 0xfc,
        payload_len: message.len() as u16,
        // An atomic datagram needs no identification (RFC 6864 §4.1).
        identification: identification.unwrap_or(0),
        flags_and_offset: if identification.is_some() { 0 } else { FLAG_DF },
        ttl: TTL,
        protocol: protocol::ICMP,
        src: request.dst(),
        dst: request.src(),
    };
    let mut out = Vec::with_capacity(20 + message.len());
    out.extend_from_slice(&header.to_bytes());
    let sum = checksum::Sum::ZERO.with_u16(u16::from(ECHO_REPLY) << 8).with_bytes(body);
    out.extend_from_slice(&[ECHO_REPLY, 0]);
    out.extend_from_slice(&sum.checksum().to_be_bytes());
    out.extend_from_slice(body);
    Ok(out)
}

/// The IPv6 packet that answers the echo request `message` in `request`, from the address `own`: data returned whole, extension
/// headers not.
pub(crate) fn reply6(request: &Ipv6View<'_>, message: &[u8], own: u128) -> Result<Vec<u8>, NoReply> {
    let to = request.src();
    let sums_up = |src, dst| {
        let pseudo = checksum::pseudo_v6(src, dst, next_header::ICMPV6, message.len() as u32);
        pseudo.with_bytes(message).fold() == 0xffff
    };
    let Some((&[kind, code, ..], body)) = message.split_first_chunk::<4>() else {
        return Err(NoReply::Malformed);
    };
    if body.len() < 4 || !sums_up(to, request.dst()) {
        return Err(NoReply::Malformed);
    }
    if kind != icmpv6::kind::ECHO_REQUEST || code != 0 {
        return Err(NoReply::NotEcho);
    }
    let header = Ipv6Header {
        // A reply takes no part in congestion notification.
        traffic_class: request.traffic_class() & 0xfc,
        flow_label: 0,
        payload_len: message.len() as u16,
        next_header: next_header::ICMPV6,
        hop_limit: TTL,
        src: own,
        dst: to,
    };
    let mut out = Vec::with_capacity(40 + message.len());
    out.extend_from_slice(&header.to_bytes());
    let kind = icmpv6::kind::ECHO_REPLY;
    let sum = checksum::pseudo_v6(own, to, next_header::ICMPV6, message.len() as u32);
    let sum = sum.with_u16(u16::from(kind) << 8).with_bytes(body);
    out.extend_from_slice(&[kind, 0]);
    out.extend_from_slice(&sum.checksum().to_be_bytes());
    out.extend_from_slice(body);
    Ok(out)
}
