//! ICMP errors this edge sends itself (RFC 792, RFC 1812 §4.3.2 and §4.3.3).

use super::{HEADER_LEN, exceeded, kind, unreachable};
use crate::checksum;
use crate::ipv4::{self, Ipv4Header, Ipv4View, protocol};
use crate::put16;

/// Octets of the longest error, IP header included: what every host can reassemble (RFC 1812 §4.3.2.3).
pub const ERROR_LEN_MAX: usize = 576;

/// The bits of the type of service taken over from the packet: its diffserv class, not its ECN.
/// RFC 5508 REQ-10d (§7.7) wants the class copied, which supersedes the precedence 6 of RFC 1812 §4.3.2.5.
const DSCP_MASK: u8 = 0xfc;

/// What went wrong with the original packet. There is no source quench (RFC 5508 REQ-10c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorMessage {
    /// Destination unreachable with one of the codes of [`mod@unreachable`] but "fragmentation needed".
    Unreachable {
        /// The code.
        code: u8,
    },
    /// Too big and may not be fragmented (RFC 1191 §4).
    FragmentationNeeded {
        /// What the next link takes, in octets of IP packet.
        mtu: u16,
    },
    /// The time to live ran out in transit.
    TtlExceeded,
    /// Fragments did not arrive in time.
    ReassemblyTimeExceeded,
    /// A header field makes no sense.
    ParameterProblem {
        /// Offset of the octet in the original packet.
        pointer: u8,
    },
}

impl ErrorMessage {
    /// Type and code on the wire.
    pub const fn kind_and_code(self) -> (u8, u8) {
        match self {
            ErrorMessage::Unreachable { code } => (kind::DESTINATION_UNREACHABLE, code),
            ErrorMessage::FragmentationNeeded { .. } => {
                (kind::DESTINATION_UNREACHABLE, unreachable::FRAGMENTATION_NEEDED)
            }
            ErrorMessage::TtlExceeded => (kind::TIME_EXCEEDED, exceeded::TTL),
            ErrorMessage::ReassemblyTimeExceeded => (kind::TIME_EXCEEDED, exceeded::REASSEMBLY),
            ErrorMessage::ParameterProblem { .. } => (kind::PARAMETER_PROBLEM, 0),
        }
    }

    const fn rest_of_header(self) -> [u8; 4] {
        match self {
            ErrorMessage::FragmentationNeeded { mtu } => {
                let [high, low] = mtu.to_be_bytes();
                [0, 0, high, low]
            }
            ErrorMessage::ParameterProblem { pointer } => [pointer, 0, 0, 0],
            _ => [0; 4],
        }
    }
}

/// Writes the IPv4 packet of an error about `original` into `out`, from `src` to the original's source, and
/// returns its length. As much of the original is quoted as fits into 576 octets (RFC 1812 §4.3.2.3). Whether
/// an error may be sent at all is [`super::may_cause_error`]'s question.
///
/// `None` when `out` has no room for all of that; 576 octets always suffice.
pub fn write_error(
    out: &mut [u8],
    src: u32,
    ttl: u8,
    identification: u16,
    message: ErrorMessage,
    original: &Ipv4View<'_>,
) -> Option<usize> {
    write_error_under(out, ERROR_LEN_MAX, src, ttl, identification, message, original)
}

/// As [`write_error`], with at most `length_max` octets (IP header included) instead of 576.
pub fn write_error_under(
    out: &mut [u8],
    length_max: usize,
    src: u32,
    ttl: u8,
    identification: u16,
    message: ErrorMessage,
    original: &Ipv4View<'_>,
) -> Option<usize> {
    let overhead = ipv4::HEADER_LEN + HEADER_LEN;
    let quoted_len = original.packet().len().min(length_max.min(ERROR_LEN_MAX).saturating_sub(overhead));
    let quoted = original.packet().get(..quoted_len)?;
    let length = overhead + quoted_len;
    let header = Ipv4Header {
        tos: original.tos() & DSCP_MASK,
        payload_len: u16::try_from(HEADER_LEN + quoted_len).ok()?,
        identification,
        flags_and_offset: 0,
        ttl,
        protocol: protocol::ICMP,
        src,
        dst: original.src(),
    };
    let (kind, code) = message.kind_and_code();
    let [r0, r1, r2, r3] = message.rest_of_header();
    let mut icmp = [kind, code, 0, 0, r0, r1, r2, r3];
    let sum = checksum::Sum::ZERO.with_bytes(&icmp).with_bytes(quoted).checksum();
    put16(&mut icmp, 2, sum);

    let out = out.get_mut(..length)?;
    let (ip_out, rest) = out.split_first_chunk_mut::<{ ipv4::HEADER_LEN }>()?;
    let (icmp_out, quoted_out) = rest.split_first_chunk_mut::<HEADER_LEN>()?;
    *ip_out = header.to_bytes();
    *icmp_out = icmp;
    quoted_out.copy_from_slice(quoted);
    Some(length)
}
