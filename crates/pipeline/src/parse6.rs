//! The parse stage for IPv6: headers checked, extension headers walked, and whom the packet is for.

use carrack_base::{Family, IcmpReply, Proto, Reason};
use carrack_nat::Kind;
use carrack_wire::icmpv6::{Class, class_of};
use carrack_wire::ipv6::{
    ChainError, Extensions, FRAGMENT_HEADER_LEN, HEADER_LEN, Ipv6Error, Ipv6View, is_link_local,
    is_multicast, next_header,
};
use carrack_wire::ndp;

use crate::burst::Meta;
use crate::parse::{Parsed, overlaps_flags, set_icmp_identifier, transport};
use crate::plan::{Hop, Line, Plan};

/// Type 0, which could send a packet to and fro between two routers (RFC 5095 §1).
const ROUTING_TYPE_0: u8 = 0;

/// The protocol of an IPv6 next header number.
#[inline]
pub(crate) const fn proto6(number: u8) -> Proto {
    match number {
        next_header::ICMPV6 => Proto::Icmp,
        // ICMP for IPv4 has no business here, and no identifier.
        1 => Proto::Other,
        _ => Proto::from_ip(number),
    }
}

/// Fills `meta` from the IPv6 packet at `l3`; `meta.ingress` and what `line` says are in it already.
pub(crate) fn ipv6(
    plan: &Plan,
    line: &Line,
    frame: &[u8],
    l3: usize,
    meta: &mut Meta,
) -> Result<Parsed, Reason> {
    let parsed = describe(plan, line, frame, l3, meta);
    parsed.map_err(|reason| match reason.info().icmp {
        IcmpReply::Silent => reason,
        _ if is_forged(plan, meta) => Reason::UrpfFailed,
        _ => reason,
    })
}

fn describe(plan: &Plan, line: &Line, frame: &[u8], l3: usize, meta: &mut Meta) -> Result<Parsed, Reason> {
    (meta.family, meta.flow.family) = (Family::V6, Family::V6);
    // No NAT is between the two sides of IPv6.
    (meta.direction, meta.raw_from_outside) = (None, false);
    if !line.has_ipv6() {
        return Err(Reason::Ipv6Disabled);
    }
    let packet = checked(frame.get(l3..).unwrap_or(&[]))?;
    (meta.flow.src6, meta.flow.dst6) = (packet.src(), packet.dst());
    let found = packet.extensions().map_err(chain_reason)?;
    meta.flow.ip_proto = found.protocol;
    meta.flow.proto = proto6(found.protocol);
    check_addresses(meta)?;
    if let Some(routing) = found.routing.filter(|r| r.kind == ROUTING_TYPE_0 && r.segments_left != 0) {
        // RFC 7915 §5.1: which octet is at fault. At the router itself it is the type (RFC 8200 §4.4).
        let is_ours = plan.route6(meta.vrf, packet.dst()) == Some(Hop::Local);
        meta.mtu = routing.segments_left_at() - u16::from(is_ours);
        return Err(Reason::Ipv6RoutingHeader);
    }
    upper_layer(&packet, &found, l3, meta)?;
    let to = Audience::of(plan, line, meta);
    // RFC 4291 §2.8: what was sent to a group of stations is for the groups that the router is in.
    let is_to_group = frame.first().is_some_and(|first| first & 1 != 0);
    match to {
        Audience::Link => Ok(Parsed::Link6),
        Audience::Refused(reason) => Err(reason),
        Audience::Routed if is_to_group => Err(Reason::L2NotForUs),
        Audience::Routed => Ok(Parsed::Ipv6),
    }
}

/// What can be said of an IPv6 packet before it is routed: reverse path, hop limit.
pub(crate) fn check_path6(plan: &Plan, frame: &[u8], meta: &Meta) -> Result<(), Reason> {
    let flow = &meta.flow;
    if reverse_path_fails(plan, meta) {
        return Err(Reason::UrpfFailed);
    }
    let hop_limit = frame.get(usize::from(flow.l3) + 7).copied().unwrap_or(0);
    // RFC 8200 §3: a packet to the router itself may come with any.
    if hop_limit <= 1 && plan.route6(meta.vrf, flow.dst6) != Some(Hop::Local) {
        return Err(Reason::Ipv6HopLimitExpired);
    }
    Ok(())
}

/// Nobody gets an error because somebody else forged his address. A link-local one is on this link, whoever has it.
#[cold]
fn is_forged(plan: &Plan, meta: &Meta) -> bool {
    !is_link_local(meta.flow.src6) && reverse_path_fails(plan, meta)
}

/// RFC 3704 §2.2, where it is asked for: the source would not be reached by the interface the packet came from.
fn reverse_path_fails(plan: &Plan, meta: &Meta) -> bool {
    let holds = || {
        matches!(
            plan.route6(meta.vrf, meta.flow.src6),
            Some(Hop::Neighbour { interface, .. }) if interface == meta.ingress
        )
    };
    plan.line(meta.ingress).is_some_and(|line| line.urpf) && !holds()
}

fn checked(bytes: &[u8]) -> Result<Ipv6View<'_>, Reason> {
    Ipv6View::parse(bytes).map_err(|error| match error {
        Ipv6Error::Truncated if bytes.len() < HEADER_LEN => Reason::Ipv6Truncated,
        Ipv6Error::Truncated => Reason::Ipv6BadLength,
        Ipv6Error::BadVersion => Reason::Ipv6BadVersion,
        Ipv6Error::Jumbogram => Reason::Ipv6Jumbogram,
    })
}

fn chain_reason(error: ChainError) -> Reason {
    match error {
        ChainError::TooLong => Reason::Ipv6ExtensionLimit,
        ChainError::Truncated
        | ChainError::MisplacedHopByHop { .. }
        | ChainError::SecondFragmentHeader
        | ChainError::MisplacedJumbo => Reason::Ipv6ExtensionInvalid,
    }
}

/// Addresses that no packet on a link has (RFC 4291 §2.5.2, §2.5.3 and §2.7). Nobody but a host that is still looking
/// for its address, and a multicast listener without one, sends from none (RFC 4861 §4.1, §4.3; RFC 3810 §5.2.13).
fn check_addresses(meta: &Meta) -> Result<(), Reason> {
    let (src, dst) = (meta.flow.src6, meta.flow.dst6);
    let is_nowhere = |address: u128| address <= 1 || address >> 32 == 0xffff;
    let is_unspecified = src == 0 && is_multicast(dst) && meta.flow.proto == Proto::Icmp;
    if is_multicast(src) || (is_nowhere(src) && !is_unspecified) {
        return Err(Reason::Ipv6SourceInvalid);
    }
    if is_nowhere(dst) {
        return Err(Reason::Ipv6DestinationInvalid);
    }
    Ok(())
}

/// Where the transport header is, and what is in it.
fn upper_layer(packet: &Ipv6View<'_>, found: &Extensions, l3: usize, meta: &mut Meta) -> Result<(), Reason> {
    meta.is_fragment = found.is_fragment();
    meta.flow.l4 = (l3 + usize::from(found.offset)) as u16;
    if let Some(header) = found.fragment {
        meta.fragment_at = l3 as u16 + header.at;
        let behind = usize::from(header.at) + FRAGMENT_HEADER_LEN;
        let len = packet.packet().len().saturating_sub(behind);
        // RFC 8200 §4.5: all but the last are multiples of eight, and the whole fits its length field.
        let bad_length = meta.is_fragment && (len == 0 || (header.more && !len.is_multiple_of(8)));
        let offset = usize::from(header.offset);
        let is_beyond = offset + len > usize::from(u16::MAX);
        if bad_length || is_beyond || overlaps_flags(meta.flow.proto, offset) {
            return Err(Reason::Ipv6FragmentInvalid);
        }
        if header.is_later() {
            meta.flow.kind = Kind::LaterFragment;
            meta.flow.l4 = 0;
            return Ok(());
        }
    }
    let l4 = packet.packet().get(usize::from(found.offset)..).unwrap_or(&[]);
    if meta.flow.proto != Proto::Icmp {
        return transport(l4, meta);
    }
    let Some(head) = l4.first_chunk::<8>() else {
        return Err(if meta.is_fragment { Reason::Ipv6FragmentInvalid } else { Reason::IcmpMalformed });
    };
    meta.flow.bits = head[0];
    match class_of(head[0]) {
        Class::Request | Class::Reply => set_icmp_identifier(meta, u16::from_be_bytes([head[4], head[5]])),
        Class::Error if !meta.is_fragment => meta.flow.kind = Kind::IcmpError,
        Class::Error | Class::NeighbourDiscovery | Class::ListenerDiscovery | Class::Other => {}
    }
    Ok(())
}

/// Whom a packet is for, as far as its addresses tell without a route.
enum Audience {
    /// This link alone, and the router on it.
    Link,
    /// Whoever the route says.
    Routed,
    /// Nobody here.
    Refused(Reason),
}

impl Audience {
    fn of(plan: &Plan, line: &Line, meta: &Meta) -> Self {
        let (src, dst) = (meta.flow.src6, meta.flow.dst6);
        if dst == line.link_local {
            return Self::Link;
        }
        if is_multicast(dst) {
            let is_member = is_member(plan, meta, dst);
            return if is_member { Self::Link } else { Self::Refused(Reason::Ipv6Multicast) };
        }
        // RFC 4291 §2.5.6. A link-local station may well speak to another address of the router.
        let leaves_scope = is_link_local(src) && plan.route6(meta.vrf, dst) != Some(Hop::Local);
        if is_link_local(dst) || leaves_scope { Self::Refused(Reason::Ipv6Scope) } else { Self::Routed }
    }
}

/// RFC 4291 §2.8: all nodes, all routers, and the solicited-node groups of all own addresses, anycast ones among them.
fn is_member(plan: &Plan, meta: &Meta, group: u128) -> bool {
    group == ndp::ALL_NODES
        || group == ndp::ALL_ROUTERS
        || plan.ipv6_of(meta.ingress).is_some_and(|v6| v6.solicited_nodes().any(|own| own == group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icmp_of_the_other_version_is_no_icmp() {
        assert_eq!(
            [1, 6, 17, 58, 50].map(proto6),
            [Proto::Other, Proto::Tcp, Proto::Udp, Proto::Icmp, Proto::Other]
        );
    }
}
