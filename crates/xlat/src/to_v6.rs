//! IPv4 to IPv6 (RFC 7915 §4), all but ICMP errors.

#[cfg(test)]
mod tests;

use crate::{Moved, Refused, Rules, V6Way, ZeroUdp, icmp, transport};
use carrack_wire::checksum::{self, Sum};
use carrack_wire::ipv4::{FLAG_DF, HEADER_LEN as V4_LEN, Options, protocol};
use carrack_wire::ipv6::{
    FRAGMENT_HEADER_LEN, FragmentHeader, HEADER_LEN as V6_LEN, Ipv6Header, next_header,
};
use carrack_wire::{Ipv4View, UdpMut};

/// Octets of IPv4 and transport header that the short path looks at: as far as UDP's checksum.
const HEADS_LEN: usize = V4_LEN + 8;
/// What the header of an IPv6 packet takes more.
pub(crate) const GROWTH: usize = V6_LEN - V4_LEN;

/// Translates the IPv4 packet in `buffer` from `l3` to its end to IPv6. There are [`crate::ROOM`] octets before it.
///
/// The common packet, whole TCP or UDP without options, takes a short path. The TTL is copied, options are left
/// out. The IPv6 packet ends where the IPv4 packet did; it has a fragment header when that was a fragment, or
/// when it must now be cut ([`Moved::cut_to`]).
///
/// # Errors
/// [`Refused`]; nothing is changed then. An ICMP error is [`Refused::OtherFunction`].
#[inline]
pub fn to_v6(buffer: &mut [u8], l3: usize, way: &V6Way, rules: &Rules) -> Result<Moved, Refused> {
    let end = buffer.len();
    let start = l3.checked_sub(GROWTH).ok_or(Refused::NoRoom)?;
    if end.saturating_sub(start) <= usize::from(way.mtu)
        && let Some(heads) = buffer.get(start..).and_then(|rest| rest.first_chunk())
        && let Some(number) = common_protocol(heads, end - start <= usize::from(rules.lowest_ipv6_mtu))
    {
        return common(buffer, start, number, way, rules);
    }
    general(buffer, l3, way, rules)
}

/// Whether a packet takes the short path: no options, not a fragment and not to be cut, TCP, or UDP with a
/// checksum.
#[inline(always)]
fn common_protocol(heads: &[u8; GROWTH + HEADS_LEN], is_short: bool) -> Option<u8> {
    // Invariant: constants inside the fixed-size heads.
    let number = heads[GROWTH + 9];
    let dont_fragment = heads[GROWTH + 6] & (FLAG_DF >> 8) as u8 != 0;
    let is_whole = heads[GROWTH] == 0x45
        && (heads[GROWTH + 6] & 0x3f) | heads[GROWTH + 7] == 0
        && (is_short || dont_fragment);
    let has_checksum = match number {
        protocol::TCP => true,
        protocol::UDP => heads[V6_LEN + 6] | heads[V6_LEN + 7] != 0,
        _ => false,
    };
    if is_whole && has_checksum { Some(number) } else { None }
}

#[inline(always)]
fn common(buffer: &mut [u8], start: usize, number: u8, way: &V6Way, rules: &Rules) -> Result<Moved, Refused> {
    let end = buffer.len();
    let rest = buffer.get_mut(start..).ok_or(Refused::NoRoom)?;
    let Some((head, payload)) = rest.split_first_chunk_mut::<V6_LEN>() else { return Err(Refused::NoRoom) };
    // Invariant: constants inside the fixed-size head.
    let change = addresses(way)
        .without_u32(u32::from_be_bytes([head[32], head[33], head[34], head[35]]))
        .without_u32(u32::from_be_bytes([head[36], head[37], head[38], head[39]]));
    let header = Ipv6Header {
        traffic_class: if rules.zero_traffic_class { 0 } else { head[GROWTH + 1] },
        flow_label: 0,
        payload_len: payload.len() as u16,
        next_header: number,
        hop_limit: head[GROWTH + 8],
        src: way.src,
        dst: way.dst,
    };
    transport::patch(payload, number, way.ports, change)?;
    header.write(head);
    Ok(Moved { start, end, cut_to: None })
}

/// Everything else.
#[inline(never)]
fn general(buffer: &mut [u8], l3: usize, way: &V6Way, rules: &Rules) -> Result<Moved, Refused> {
    let end = buffer.len();
    let packet = buffer.get(l3..).ok_or(Refused::NoRoom)?;
    let view = Ipv4View::parse_quoted(packet).map_err(|_| Refused::TransportCut)?;
    let change = addresses(way).without_u32(view.src()).without_u32(view.dst());
    let (is_later, is_fragment) = (view.is_later_fragment(), view.is_fragment());
    let headers = headers(&view, way, rules)?;
    let payload_at = l3 + view.header_len();
    let start = payload_at.checked_sub(headers.len()).ok_or(Refused::NoRoom)?;
    let cut_to = headers.judge_size(end - start, &view, way, rules)?;
    let payload = buffer.get_mut(payload_at..).ok_or(Refused::TransportCut)?;
    let number = headers.protocol;
    if number == protocol::ICMPV6 {
        icmp::query_to_v6(payload, is_fragment, way)?;
    } else if !is_later {
        if number == protocol::UDP && is_without_checksum(payload)? {
            fill_udp(payload, is_fragment, way, rules)?;
        } else {
            transport::patch(payload, number, way.ports, change)?;
        }
    }
    headers.write(buffer.get_mut(start..payload_at).unwrap_or(&mut []));
    Ok(Moved { start, end, cut_to })
}

/// The IPv6 header of a packet, and its fragment header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Headers {
    pub(crate) ip: Ipv6Header,
    fragment: Option<FragmentHeader>,
    /// Number of what follows both.
    pub(crate) protocol: u8,
}

impl Headers {
    pub(crate) const fn len(&self) -> usize {
        V6_LEN + if self.fragment.is_some() { FRAGMENT_HEADER_LEN } else { 0 }
    }

    /// Writes the headers into `out`, which has their length.
    pub(crate) fn write(&self, out: &mut [u8]) {
        if let Some((head, rest)) = out.split_first_chunk_mut::<V6_LEN>() {
            self.ip.write(head);
            if let (Some(fragment), Some(to)) = (self.fragment, rest.first_chunk_mut()) {
                *to = fragment.to_bytes();
            }
        }
    }

    /// To what size a packet of `length` octets must be cut (RFC 7915 §4.1).
    fn judge_size(
        &self,
        length: usize,
        view: &Ipv4View<'_>,
        way: &V6Way,
        rules: &Rules,
    ) -> Result<Option<u16>, Refused> {
        if view.dont_fragment() {
            if length > usize::from(way.mtu) {
                let growth = (self.len() - V4_LEN) as u16;
                return Err(Refused::TooBigForV6 { mtu: way.mtu.saturating_sub(growth) });
            }
            return Ok(None);
        }
        let limit = way.mtu.min(rules.lowest_ipv6_mtu);
        Ok(if length > usize::from(limit) { Some(limit) } else { None })
    }
}

/// The IPv6 headers for an IPv4 packet of which at least the header is there (RFC 7915 §4.1); the length is what
/// the IPv4 header says, also of a packet quoted in part.
pub(crate) fn headers(view: &Ipv4View<'_>, way: &V6Way, rules: &Rules) -> Result<Headers, Refused> {
    if view.has_options() {
        judge_options(view.options())?;
    }
    if is_foreign(view.protocol()) {
        return Err(Refused::ForeignProtocolV4);
    }
    // RFC 7915 §4.2: meant for one link, or a mistake.
    if view.protocol() == protocol::IGMP {
        return Err(Refused::IcmpWithoutCounterpart);
    }
    let limit = usize::from(way.mtu.min(rules.lowest_ipv6_mtu));
    let payload_len = view.payload_length();
    let is_cut = !view.dont_fragment() && usize::from(payload_len) + V6_LEN > limit;
    let protocol = if view.protocol() == protocol::ICMP { protocol::ICMPV6 } else { view.protocol() };
    let fragment = (view.is_fragment() || is_cut).then(|| FragmentHeader {
        at: V6_LEN as u16,
        next_header: protocol,
        offset: view.fragment_offset() as u16,
        more: view.more_fragments(),
        identification: view.identification().into(),
    });
    let added = if fragment.is_some() { FRAGMENT_HEADER_LEN as u16 } else { 0 };
    let ip = Ipv6Header {
        traffic_class: if rules.zero_traffic_class { 0 } else { view.tos() },
        flow_label: 0,
        payload_len: payload_len.checked_add(added).ok_or(Refused::NoRoom)?,
        next_header: if fragment.is_some() { next_header::FRAGMENT } else { protocol },
        hop_limit: view.ttl(),
        src: way.src,
        dst: way.dst,
    };
    Ok(Headers { ip, fragment, protocol })
}

/// Whether the number means something in IPv6 that it does not mean in IPv4.
const fn is_foreign(number: u8) -> bool {
    matches!(
        number,
        next_header::HOP_BY_HOP
            | next_header::ROUTING
            | next_header::FRAGMENT
            | next_header::ICMPV6
            | next_header::DESTINATION
    )
}

/// Options are ignored, but for a source route that is not at its end.
#[cold]
fn judge_options(mut options: Options<'_>) -> Result<(), Refused> {
    if !Options::are_valid(options.clone()) {
        return Err(Refused::BadOptions);
    }
    let has_route = options.any(|option| option.is_unexpired_source_route());
    if has_route { Err(Refused::SourceRoute) } else { Ok(()) }
}

fn is_without_checksum(udp: &[u8]) -> Result<bool, Refused> {
    let field = udp.get(6..8).ok_or(Refused::TransportCut)?;
    Ok(field == [0, 0])
}

/// Gives a datagram without checksum one (RFC 7915 §4.5).
#[cold]
fn fill_udp(payload: &mut [u8], is_fragment: bool, way: &V6Way, rules: &Rules) -> Result<(), Refused> {
    if rules.zero_udp == ZeroUdp::Drop {
        return Err(Refused::ZeroUdp);
    }
    if is_fragment {
        return Err(Refused::ZeroUdpFragment);
    }
    let mut udp = UdpMut::parse(payload).map_err(|_| Refused::TransportCut)?;
    if let Some(port) = way.ports.src {
        udp.set_src_port(port);
    }
    if let Some(port) = way.ports.dst {
        udp.set_dst_port(port);
    }
    udp.fill_checksum_v6(way.src, way.dst);
    Ok(())
}

/// What the new addresses add to a checksum.
#[inline(always)]
pub(crate) fn addresses(way: &V6Way) -> Sum {
    Sum::ZERO.with_u128(way.src).with_u128(way.dst)
}

/// The pseudo-header of an ICMPv6 message of `length` octets between the new addresses.
pub(crate) fn icmp_pseudo(way: &V6Way, length: usize) -> Sum {
    checksum::pseudo_v6(way.src, way.dst, protocol::ICMPV6, length as u32)
}
