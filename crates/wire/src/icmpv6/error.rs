//! ICMPv6 errors this edge sends itself (RFC 4443 §2.4 and §3).

use super::{Class, HEADER_LEN, class_of, exceeded, kind, parameter};
use crate::ipv6::{self, Ipv6Header, Ipv6View, is_answerable, is_multicast, next_header};
use crate::{put16, put32};

/// Octets of the longest error, IPv6 header included: the minimum MTU (RFC 4443 §2.4 (c)).
pub const ERROR_LEN_MAX: usize = ipv6::MTU_MIN;

/// The bits of the traffic class taken over from the packet: its diffserv class, not its ECN.
const DSCP_MASK: u8 = 0xfc;

/// What went wrong with the original packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorMessage {
    /// Destination unreachable with one of the codes of [`mod@super::unreachable`].
    Unreachable {
        /// The code.
        code: u8,
    },
    /// Longer than the next link takes.
    PacketTooBig {
        /// What it takes, in octets of IPv6 packet; never below 1280 (RFC 8201 §4 lets receivers ignore less).
        mtu: u32,
    },
    /// The hop limit ran out in transit.
    HopLimitExceeded,
    /// Fragments did not arrive in time.
    ReassemblyTimeExceeded,
    /// A header cannot be processed, see [`mod@super::parameter`].
    ParameterProblem {
        /// The code.
        code: u8,
        /// Offset of the octet in the original packet, counted from its IPv6 header.
        pointer: u32,
    },
}

impl ErrorMessage {
    /// Type and code on the wire.
    pub const fn kind_and_code(self) -> (u8, u8) {
        match self {
            ErrorMessage::Unreachable { code } => (kind::DESTINATION_UNREACHABLE, code),
            ErrorMessage::PacketTooBig { .. } => (kind::PACKET_TOO_BIG, 0),
            ErrorMessage::HopLimitExceeded => (kind::TIME_EXCEEDED, exceeded::HOP_LIMIT),
            ErrorMessage::ReassemblyTimeExceeded => (kind::TIME_EXCEEDED, exceeded::REASSEMBLY),
            ErrorMessage::ParameterProblem { code, .. } => (kind::PARAMETER_PROBLEM, code),
        }
    }

    const fn rest_of_header(self) -> u32 {
        match self {
            ErrorMessage::PacketTooBig { mtu } => mtu,
            ErrorMessage::ParameterProblem { pointer, .. } => pointer,
            _ => 0,
        }
    }

    /// Whether the error is sent even about a packet to a multicast destination (RFC 4443 §2.4 (e.3)).
    const fn is_for_multicast_too(self) -> bool {
        matches!(
            self,
            ErrorMessage::PacketTooBig { .. }
                | ErrorMessage::ParameterProblem { code: parameter::UNRECOGNISED_OPTION, .. }
        )
    }
}

/// Whether RFC 4443 §2.4 (e) allows this error about `packet`, as far as it tells: the packet is no ICMPv6 error
/// and no redirect, its source is one node, its destination one too unless the error is one of the exceptions
/// for multicast. Of an option with action bits 11 the caller says nothing to a multicast destination. Link
/// broadcasts, anycast sources and the rate are the caller's to judge.
///
/// A packet whose extension headers cannot be followed, or a later fragment of ICMPv6, might be an error, so
/// nothing is said about it.
pub fn may_cause_error(packet: &Ipv6View<'_>, message: ErrorMessage) -> bool {
    if !is_answerable(packet.src()) || (is_multicast(packet.dst()) && !message.is_for_multicast_too()) {
        return false;
    }
    let Ok(found) = packet.extensions() else { return is_about_headers(message) };
    if found.protocol != next_header::ICMPV6 {
        return true;
    }
    let first = packet.packet().get(usize::from(found.offset)).filter(|_| !found.is_later_fragment());
    first.is_some_and(|kind| *kind != super::kind::REDIRECT && class_of(*kind) != Class::Error)
}

/// Whether the error is the very one that says why headers cannot be followed.
const fn is_about_headers(message: ErrorMessage) -> bool {
    matches!(message, ErrorMessage::ParameterProblem { .. })
}

/// Writes the IPv6 packet of an error about `original` into `out`, from `src` to the original's source, and
/// returns its length. As much of the original is quoted as fits into 1280 octets (RFC 4443 §2.4 (c)). Whether
/// an error may be sent at all is [`may_cause_error`]'s question, how often the caller's (§2.4 (f)).
///
/// `None` when `out` has no room for all of that; 1280 octets always suffice.
pub fn write_error(
    out: &mut [u8],
    src: u128,
    hop_limit: u8,
    message: ErrorMessage,
    original: &Ipv6View<'_>,
) -> Option<usize> {
    write_error_under(out, ERROR_LEN_MAX, src, hop_limit, message, original)
}

/// As [`write_error`], with at most `length_max` octets (IPv6 header included) instead of 1280.
pub fn write_error_under(
    out: &mut [u8],
    length_max: usize,
    src: u128,
    hop_limit: u8,
    message: ErrorMessage,
    original: &Ipv6View<'_>,
) -> Option<usize> {
    let overhead = ipv6::HEADER_LEN + HEADER_LEN;
    let quoted_len = original.packet().len().min(length_max.min(ERROR_LEN_MAX).saturating_sub(overhead));
    let quoted = original.packet().get(..quoted_len)?;
    let length = overhead + quoted_len;
    let header = Ipv6Header {
        traffic_class: original.traffic_class() & DSCP_MASK,
        flow_label: 0,
        payload_len: u16::try_from(HEADER_LEN + quoted_len).ok()?,
        next_header: next_header::ICMPV6,
        hop_limit,
        src,
        dst: original.src(),
    };
    let (kind, code) = message.kind_and_code();
    let mut icmp = [kind, code, 0, 0, 0, 0, 0, 0];
    put32(&mut icmp, 4, message.rest_of_header());
    let pseudo = super::pseudo(src, original.src(), HEADER_LEN + quoted_len);
    let sum = pseudo.with_bytes(&icmp).with_bytes(quoted).checksum();
    put16(&mut icmp, 2, sum);

    let out = out.get_mut(..length)?;
    let (ip_out, rest) = out.split_first_chunk_mut::<{ ipv6::HEADER_LEN }>()?;
    let (icmp_out, quoted_out) = rest.split_first_chunk_mut::<HEADER_LEN>()?;
    *ip_out = header.to_bytes();
    *icmp_out = icmp;
    quoted_out.copy_from_slice(quoted);
    Some(length)
}
