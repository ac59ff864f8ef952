//! Why a packet is not translated, and what its sender hears.

#[cfg(test)]
mod tests;

use carrack_wire::{icmpv4, icmpv6};
use std::fmt;

/// Why a packet is not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The transport header that has to be changed is not whole.
    TransportCut,
    /// Less than the room promised before the packet, or a packet longer than the other protocol can carry.
    NoRoom,
    /// IPv6: a routing header has nodes left to visit (RFC 7915 §5.1).
    SegmentsLeft {
        /// Where the "segments left" octet is.
        pointer: u16,
    },
    /// IPv6: an extension header follows the fragment header (RFC 7915 §5.1.1).
    HeaderBehindFragment,
    /// IPv4: a source route that has not run out (RFC 7915 §4.1).
    SourceRoute,
    /// IPv4: options that cannot be read, so whether there is a source route is unknown.
    BadOptions,
    /// IPv4: the protocol number means ICMPv6 or an extension header in IPv6, so that copying it would let an IPv4
    /// sender forge those.
    ForeignProtocolV4,
    /// IPv6: the next header is ICMPv4, which would reach IPv4 without having been translated.
    ForeignProtocolV6,
    /// A piece of an ICMP message (RFC 7915 §1.2): its checksum cannot be brought over.
    FragmentedIcmpV4,
    /// As [`Refused::FragmentedIcmpV4`], of ICMPv6.
    FragmentedIcmpV6,
    /// An ICMP or IGMP message that has no counterpart: RFC 7915 §4.2 and §5.2 say "silently drop".
    IcmpWithoutCounterpart,
    /// An ICMP error, which [`crate::error_to_v4`] and [`crate::error_to_v6`] translate; or given to those, none.
    OtherFunction,
    /// UDP without a checksum, and the configuration says drop (RFC 7915 §4.5).
    ZeroUdp,
    /// The first fragment of UDP without a checksum (RFC 7915 §4.5).
    ZeroUdpFragment,
    /// IPv6: would not fit the IPv4 next hop and must not be fragmented.
    TooBigForV4 {
        /// The MTU to tell the sender, in octets of IPv6 packet.
        mtu: u32,
    },
    /// IPv4: would not fit the IPv6 next hop and must not be fragmented (RFC 7915 §4.1).
    TooBigForV6 {
        /// The MTU to tell the sender, in octets of IPv4 packet.
        mtu: u16,
    },
    /// An ICMP error whose checksum is wrong.
    BadIcmpChecksum,
    /// An ICMP error that quotes no packet which can be read and translated.
    BadQuotation,
    /// An ICMP error about an ICMP error (RFC 7915 §4.3, §5.3).
    NestedError,
}

/// What the sender of a refused packet hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing.
    Silence,
    /// An ICMP error, if `icmpv4::may_cause_error` allows.
    Icmpv4(icmpv4::ErrorMessage),
    /// An ICMPv6 error, if `icmpv6::may_cause_error` allows.
    Icmpv6(icmpv6::ErrorMessage),
}

impl Refused {
    /// What the RFC has the translator answer. Where it names nothing, an IPv4 sender hears "administratively
    /// prohibited" (RFC 7915 §4.4), an IPv6 sender the same unless the packet is ICMPv6 (RFC 7915 §5.4).
    pub const fn answer(self) -> Answer {
        match self {
            Refused::SegmentsLeft { pointer } => Answer::Icmpv6(icmpv6::ErrorMessage::ParameterProblem {
                code: icmpv6::parameter::ERRONEOUS_FIELD,
                pointer: pointer as u32,
            }),
            Refused::SourceRoute => Answer::Icmpv4(icmpv4::ErrorMessage::Unreachable {
                code: icmpv4::unreachable::SOURCE_ROUTE_FAILED,
            }),
            Refused::ForeignProtocolV4
            | Refused::FragmentedIcmpV4
            | Refused::ZeroUdp
            | Refused::ZeroUdpFragment => Answer::Icmpv4(icmpv4::ErrorMessage::Unreachable {
                code: icmpv4::unreachable::ADMIN_PROHIBITED,
            }),
            Refused::HeaderBehindFragment | Refused::ForeignProtocolV6 => {
                Answer::Icmpv6(icmpv6::ErrorMessage::Unreachable {
                    code: icmpv6::unreachable::ADMIN_PROHIBITED,
                })
            }
            Refused::TooBigForV4 { mtu } => Answer::Icmpv6(icmpv6::ErrorMessage::PacketTooBig { mtu }),
            Refused::TooBigForV6 { mtu } => Answer::Icmpv4(icmpv4::ErrorMessage::FragmentationNeeded { mtu }),
            Refused::TransportCut
            | Refused::NoRoom
            | Refused::BadOptions
            | Refused::FragmentedIcmpV6
            | Refused::IcmpWithoutCounterpart
            | Refused::OtherFunction
            | Refused::BadIcmpChecksum
            | Refused::BadQuotation
            | Refused::NestedError => Answer::Silence,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::TransportCut => "transport header is not whole",
            Refused::NoRoom => "no room for the longer header",
            Refused::SegmentsLeft { .. } => "routing header with segments left",
            Refused::HeaderBehindFragment => "extension header behind the fragment header",
            Refused::SourceRoute => "unexpired IPv4 source route",
            Refused::BadOptions => "malformed IPv4 options",
            Refused::ForeignProtocolV4 => "IPv4 protocol number of an IPv6 header or ICMPv6",
            Refused::ForeignProtocolV6 => "ICMPv4 over IPv6",
            Refused::FragmentedIcmpV4 => "fragment of an ICMP message",
            Refused::FragmentedIcmpV6 => "fragment of an ICMPv6 message",
            Refused::IcmpWithoutCounterpart => {
                "ICMP or IGMP message without counterpart in the other version"
            }
            Refused::OtherFunction => "ICMP errors and other packets are translated apart",
            Refused::ZeroUdp => "UDP without checksum",
            Refused::ZeroUdpFragment => "fragment of UDP without checksum",
            Refused::TooBigForV4 { .. } => "too big for the IPv4 next hop",
            Refused::TooBigForV6 { .. } => "too big for the IPv6 next hop",
            Refused::BadIcmpChecksum => "ICMP error with a wrong checksum",
            Refused::BadQuotation => "ICMP error quotes no packet that can be translated",
            Refused::NestedError => "ICMP error about an ICMP error",
        })
    }
}

impl std::error::Error for Refused {}
