//! ICMP errors, with the packet they quote (RFC 7915 §4.2, §4.3, §5.2, §5.3).

mod assemble;
#[cfg(test)]
mod tests;

use crate::icmp::{self, Head, Mtus};
use crate::{Moved, Refused, Rules, V4Way, V6Way, to_v4, to_v6, transport};
use assemble::{Message, Parts};
use carrack_wire::checksum::Sum;
use carrack_wire::ipv4::{self, protocol};
use carrack_wire::ipv6::{self, Extensions};
use carrack_wire::{Icmpv4View, Icmpv6View, Ipv4View, Ipv6View, icmpv4, icmpv6};

/// What becomes of an ICMPv4 error on its way to IPv6. Only the addresses of `outer` count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V6ErrorWay {
    /// The error itself.
    pub outer: V6Way,
    /// The packet it quotes, as that was before it became IPv4.
    pub inner: V6Way,
    /// For the MTU of a "packet too big".
    pub mtus: Mtus,
}

/// What becomes of an ICMPv6 error on its way to IPv4. Of `outer` the addresses and the identification count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V4ErrorWay {
    /// The error itself.
    pub outer: V4Way,
    /// The packet it quotes, as that was before it became IPv6.
    pub inner: V4Way,
    /// For the MTU of a "fragmentation needed".
    pub mtus: Mtus,
    /// The IPv6 address the error comes from, when `outer.src` does not stand for it: told in an extension, as
    /// RFC 6791 §4 recommends.
    pub reveal: Option<u128>,
}

/// Translates the ICMPv4 error in `buffer` from `l3` to its end to IPv6. There are [`crate::ROOM`] octets before it.
/// The quotation is cut so that the packet has at most 1280 octets.
///
/// # Errors
/// [`Refused`]; nothing is changed then. Anything but an ICMP error is [`Refused::OtherFunction`].
#[inline(never)]
pub fn error_to_v6(buffer: &mut [u8], l3: usize, way: &V6ErrorWay, rules: &Rules) -> Result<Moved, Refused> {
    let packet = buffer.get(l3..).ok_or(Refused::NoRoom)?;
    let view = Ipv4View::parse_quoted(packet).map_err(|_| Refused::TransportCut)?;
    if view.protocol() != protocol::ICMP {
        return Err(Refused::OtherFunction);
    }
    if view.is_fragment() {
        return Err(Refused::FragmentedIcmpV4);
    }
    let icmp = Icmpv4View::parse(view.payload()).map_err(|_| Refused::TransportCut)?;
    if icmp.class() != icmpv4::Class::Error {
        return Err(Refused::OtherFunction);
    }
    if !icmp.checksum_ok() {
        return Err(Refused::BadIcmpChecksum);
    }
    let (inner, structure) = quoted_v4(&icmp)?;
    let head = Head { kind: icmp.kind(), code: icmp.code(), rest: icmp.rest_of_header() };
    let head = icmp::error_head_to_v6(head, inner.total_length(), way.mtus)
        .ok_or(Refused::IcmpWithoutCounterpart)?;
    let mut outer = to_v6::headers(&view, &way.outer, rules)?;
    let headers = to_v6::headers(&inner, &way.inner, rules).map_err(|_| Refused::BadQuotation)?;
    let mut bytes = [0; ipv6::HEADER_LEN + ipv6::FRAGMENT_HEADER_LEN];
    let bytes = bytes.get_mut(..headers.len()).unwrap_or(&mut []);
    headers.write(bytes);
    let mut message = Message::assemble(Parts {
        head,
        inner_headers: bytes,
        inner_payload: inner.payload(),
        structure: if icmpv6::has_length_attribute(head.kind) { structure } else { &[] },
        reveal: None,
        // RFC 4884 §4.4 and §4.5: the first octet, in units of 8 octets.
        length_at: 4,
        unit: 8,
        length_max: icmpv6::ERROR_LEN_MAX - ipv6::HEADER_LEN,
    });
    if !inner.is_later_fragment() {
        let payload = message.inner_payload();
        if inner.protocol() == protocol::ICMP {
            let length = usize::from(inner.payload_length());
            icmp::echo_to_v6(payload, length, &way.inner).map_err(|_| Refused::BadQuotation)?;
        } else {
            let change = to_v6::addresses(&way.inner).without_u32(inner.src()).without_u32(inner.dst());
            transport::patch_quoted(payload, inner.protocol(), way.inner.ports, change);
        }
    }
    message.fill_checksum(to_v6::icmp_pseudo(&way.outer, message.bytes().len()));
    // A long error that might have been cut as a packet is short enough now.
    outer.ip.next_header = protocol::ICMPV6;
    outer.ip.payload_len = message.bytes().len() as u16;
    place(buffer, &outer.ip.to_bytes(), message.bytes())
}

/// Translates the ICMPv6 error in `buffer` from `l3` to its end, whose extension headers are `found`, to IPv4. The
/// quotation is cut so that the packet has at most 576 octets. Room before it is needed only to reveal an address,
/// up to 96 octets; with less, the error goes without.
///
/// # Errors
/// [`Refused`]; nothing is changed then. Anything but an ICMPv6 error is [`Refused::OtherFunction`].
#[inline(never)]
pub fn error_to_v4(
    buffer: &mut [u8],
    l3: usize,
    found: &Extensions,
    way: &V4ErrorWay,
    rules: &Rules,
) -> Result<Moved, Refused> {
    let packet = buffer.get(l3..).ok_or(Refused::NoRoom)?;
    let view = Ipv6View::parse_quoted(packet).map_err(|_| Refused::TransportCut)?;
    if found.protocol != protocol::ICMPV6 {
        return Err(Refused::OtherFunction);
    }
    if found.is_fragment() {
        return Err(Refused::FragmentedIcmpV6);
    }
    let message = view.packet().get(usize::from(found.offset)..).ok_or(Refused::TransportCut)?;
    let icmp = Icmpv6View::parse(message).map_err(|_| Refused::TransportCut)?;
    if icmp.class() != icmpv6::Class::Error {
        return Err(Refused::OtherFunction);
    }
    if !icmp.checksum_ok(view.src(), view.dst()) {
        return Err(Refused::BadIcmpChecksum);
    }
    let (inner, inner_found, structure) = quoted_v6(&icmp)?;
    let head = Head { kind: icmp.kind(), code: icmp.code(), rest: icmp.mtu() };
    let head = icmp::error_head_to_v4(head, inner_found.fragment.is_some(), way.mtus)
        .ok_or(Refused::IcmpWithoutCounterpart)?;
    let mut outer = to_v4::header(&view, found, &way.outer, rules)?;
    let header = to_v4::header(&inner, &inner_found, &way.inner, rules).map_err(|_| Refused::BadQuotation)?;
    let inner_payload = inner.packet().get(usize::from(inner_found.offset)..).unwrap_or(&[]);
    let parts = Parts {
        head,
        inner_headers: &header.to_bytes(),
        inner_payload,
        structure,
        reveal: way.reveal,
        // RFC 4884 §4.1 to §4.3: the second octet, in words.
        length_at: 5,
        unit: 4,
        length_max: icmpv4::ERROR_LEN_MAX - ipv4::HEADER_LEN,
    };
    let mut message = Message::assemble(parts);
    if message.bytes().len() + ipv4::HEADER_LEN > buffer.len() {
        message = Message::assemble(Parts { reveal: None, ..parts });
    }
    if !inner_found.is_later_fragment() {
        let payload = message.inner_payload();
        if header.protocol == protocol::ICMP {
            let length = usize::from(header.payload_len);
            let old = Sum::ZERO.with_u128(inner.src()).with_u128(inner.dst());
            icmp::echo_to_v4(payload, length, way.inner.ports, old).map_err(|_| Refused::BadQuotation)?;
        } else {
            let change = to_v4::addresses(&way.inner).without_u128(inner.src()).without_u128(inner.dst());
            transport::patch_quoted(payload, header.protocol, way.inner.ports, change);
        }
    }
    message.fill_checksum(Sum::ZERO);
    outer.payload_len = message.bytes().len() as u16;
    outer.flags_and_offset = 0;
    place(buffer, &outer.to_bytes(), message.bytes())
}

/// The packet an ICMPv4 error quotes, and the extension structure behind it.
fn quoted_v4<'a>(icmp: &Icmpv4View<'a>) -> Result<(Ipv4View<'a>, &'a [u8]), Refused> {
    let inner = icmp.embedded().map_err(|_| Refused::BadQuotation)?;
    if inner.protocol() == protocol::ICMP {
        let kind = *inner.payload().first().ok_or(Refused::BadQuotation)?;
        if inner.is_fragment() {
            return Err(Refused::BadQuotation);
        }
        if icmpv4::class_of(kind) == icmpv4::Class::Error {
            return Err(Refused::NestedError);
        }
    }
    let original_len = icmp.original_len().map_err(|_| Refused::BadQuotation)?;
    Ok((inner, structure_behind(icmp.payload(), original_len)))
}

/// The packet an ICMPv6 error quotes, its extension headers, and the extension structure behind it.
fn quoted_v6<'a>(icmp: &Icmpv6View<'a>) -> Result<(Ipv6View<'a>, Extensions, &'a [u8]), Refused> {
    let inner = icmp.embedded().map_err(|_| Refused::BadQuotation)?;
    let found = inner.extensions().map_err(|_| Refused::BadQuotation)?;
    if found.protocol == protocol::ICMPV6 {
        let kind = *inner.packet().get(usize::from(found.offset)).ok_or(Refused::BadQuotation)?;
        if found.is_fragment() {
            return Err(Refused::BadQuotation);
        }
        if icmpv6::class_of(kind) == icmpv6::Class::Error {
            return Err(Refused::NestedError);
        }
    }
    let original_len = icmp.original_len().map_err(|_| Refused::BadQuotation)?;
    Ok((inner, found, structure_behind(icmp.payload(), original_len)))
}

/// What stands behind the quotation: opaque octets to the translator (RFC 7915 §4.2).
fn structure_behind(payload: &[u8], original_len: usize) -> &[u8] {
    if original_len < icmpv4::ORIGINAL_LEN_MIN {
        return &[];
    }
    payload.get(original_len..).unwrap_or(&[])
}

/// Puts a packet of header and message where the old one was: it ends where that ended.
fn place(buffer: &mut [u8], header: &[u8], message: &[u8]) -> Result<Moved, Refused> {
    let end = buffer.len();
    let start = end.checked_sub(header.len() + message.len()).ok_or(Refused::NoRoom)?;
    let (head, body) = buffer
        .get_mut(start..)
        .and_then(|to| to.split_at_mut_checked(header.len()))
        .ok_or(Refused::NoRoom)?;
    head.copy_from_slice(header);
    body.copy_from_slice(message);
    Ok(Moved { start, end, cut_to: None })
}
