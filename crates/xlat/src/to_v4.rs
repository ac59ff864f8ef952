//! IPv6 to IPv4 (RFC 7915 §5), all but ICMP errors.

#[cfg(test)]
mod tests;

use crate::{Moved, Refused, Rules, V4Way, icmp, transport};
use carrack_wire::Ipv6View;
use carrack_wire::checksum::Sum;
use carrack_wire::ipv4::{FLAG_DF, FLAG_MF, HEADER_LEN as V4_LEN, Ipv4Header, protocol};
use carrack_wire::ipv6::{Extensions, HEADER_LEN as V6_LEN, MTU_MIN};

/// Octets of the longest IPv4 packet sent without "don't fragment" (RFC 7915 §5 and §5.1).
pub(crate) const FRAGMENTABLE_MAX: usize = MTU_MIN - V6_LEN + V4_LEN;

/// Translates the IPv6 packet that fills `packet`, whose extension headers are `found`, to IPv4.
///
/// The common packet, TCP or UDP without extension headers, takes a short path. The hop limit is copied. The
/// IPv4 packet ends where the IPv6 packet did.
///
/// # Errors
/// [`Refused`]; nothing is changed then. An ICMPv6 error is [`Refused::OtherFunction`].
#[inline]
pub fn to_v4(packet: &mut [u8], found: &Extensions, way: &V4Way, rules: &Rules) -> Result<Moved, Refused> {
    let is_common = usize::from(found.offset) == V6_LEN
        && matches!(found.protocol, protocol::TCP | protocol::UDP)
        && packet.len() <= usize::from(way.mtu);
    if is_common { common(packet, found.protocol, way, rules) } else { general(packet, found, way, rules) }
}

/// TCP or UDP without extension headers that fits the next hop, whether or not it may be fragmented behind that.
#[inline(always)]
fn common(packet: &mut [u8], number: u8, way: &V4Way, rules: &Rules) -> Result<Moved, Refused> {
    let end = packet.len();
    let Some(view) = packet.first_chunk::<V6_LEN>().map(Ipv6View::of_header) else {
        return Err(Refused::TransportCut);
    };
    let change = addresses(way).without_u128(view.src()).without_u128(view.dst());
    let header = Ipv4Header {
        tos: rules.tos.unwrap_or(view.traffic_class()),
        payload_len: (end - V6_LEN) as u16,
        identification: way.identification,
        flags_and_offset: flags_of(end - V6_LEN + V4_LEN),
        ttl: view.hop_limit(),
        protocol: number,
        src: way.src,
        dst: way.dst,
    };
    let Some((head, payload)) = packet.split_first_chunk_mut::<V6_LEN>() else {
        return Err(Refused::TransportCut);
    };
    transport::patch(payload, number, way.ports, change)?;
    Ok(put(head, &header, end))
}

/// Everything else.
#[inline(never)]
fn general(packet: &mut [u8], found: &Extensions, way: &V4Way, rules: &Rules) -> Result<Moved, Refused> {
    let view = Ipv6View::parse_quoted(packet).map_err(|_| Refused::TransportCut)?;
    let header = header(&view, found, way, rules)?;
    let length = V4_LEN + usize::from(header.payload_len);
    let may_be_cut = header.flags_and_offset & FLAG_DF == 0;
    if length > usize::from(way.mtu) && !may_be_cut {
        return Err(Refused::TooBigForV4 { mtu: u32::from(way.mtu).saturating_add(20).max(MTU_MIN as u32) });
    }
    let (src, dst) = (view.src(), view.dst());
    let end = packet.len();
    let (head, payload) =
        packet.split_at_mut_checked(usize::from(found.offset)).ok_or(Refused::TransportCut)?;
    if header.protocol == protocol::ICMP {
        icmp::query_to_v4(payload, found.is_fragment(), way.ports, Sum::ZERO.with_u128(src).with_u128(dst))?;
    } else if !found.is_later_fragment() {
        let change = addresses(way).without_u128(src).without_u128(dst);
        transport::patch(payload, header.protocol, way.ports, change)?;
    }
    Ok(put(head, &header, end))
}

/// The IPv4 header for an IPv6 packet of which at least the headers are there (RFC 7915 §5.1 and §5.1.1); the
/// length is what the IPv6 header says, also of a packet quoted in part.
pub(crate) fn header(
    view: &Ipv6View<'_>,
    found: &Extensions,
    way: &V4Way,
    rules: &Rules,
) -> Result<Ipv4Header, Refused> {
    if let Some(routing) = found.routing.filter(|routing| routing.segments_left != 0) {
        return Err(Refused::SegmentsLeft { pointer: routing.segments_left_at() });
    }
    if found.has_header_behind_fragment() {
        return Err(Refused::HeaderBehindFragment);
    }
    if found.protocol == protocol::ICMP {
        return Err(Refused::ForeignProtocolV6);
    }
    let skipped = found.offset - V6_LEN as u16;
    let payload_len = view.payload_length().checked_sub(skipped).ok_or(Refused::TransportCut)?;
    if usize::from(payload_len) + V4_LEN > usize::from(u16::MAX) {
        return Err(Refused::TooBigForV4 { mtu: u16::MAX.into() });
    }
    let (identification, flags_and_offset) = match found.fragment {
        Some(fragment) => {
            let more = if fragment.more { FLAG_MF } else { 0 };
            (fragment.identification as u16, more | (fragment.offset / 8))
        }
        None => (way.identification, flags_of(usize::from(payload_len) + V4_LEN)),
    };
    Ok(Ipv4Header {
        tos: rules.tos.unwrap_or(view.traffic_class()),
        payload_len,
        identification,
        flags_and_offset,
        ttl: view.hop_limit(),
        protocol: if found.protocol == protocol::ICMPV6 { protocol::ICMP } else { found.protocol },
        src: way.src,
        dst: way.dst,
    })
}

/// The flags of an IPv4 packet of `length` octets that had no fragment header (RFC 7915 §5.1).
#[inline(always)]
pub(crate) const fn flags_of(length: usize) -> u16 {
    if length <= FRAGMENTABLE_MAX { 0 } else { FLAG_DF }
}

/// What the new addresses add to a checksum.
#[inline(always)]
pub(crate) fn addresses(way: &V4Way) -> Sum {
    Sum::ZERO.with_u32(way.src).with_u32(way.dst)
}

/// Writes the header to the end of `head`, which is at least 40 octets.
#[inline(always)]
fn put(head: &mut [u8], header: &Ipv4Header, end: usize) -> Moved {
    let start = head.len().saturating_sub(V4_LEN);
    if let Some(to) = head.last_chunk_mut::<V4_LEN>() {
        header.write(to);
    }
    Moved { start, end, cut_to: None }
}
