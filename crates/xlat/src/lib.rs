//! IPv4/IPv6 header translation (RFC 7915), for stateless and stateful use alike, and the address mappings of
//! stateless use (RFC 6052, RFC 7757). No state, no I/O, no allocation after the plan is built.
//!
//! # How to call it
//! 1. The caller has the packet in a buffer, starting at its IP header and ending where the IP length says
//!    (Ethernet padding cut off), checked by `Ipv6View::parse` or `Ipv4View::parse`; the IPv4 header checksum has
//!    been verified. For IPv6 it has walked the extension headers once ([`carrack_wire::ipv6::Extensions`]).
//! 2. It finds the new addresses and ports by its own means (sessions, [`NatPrefix`], [`EamTable`]), has dropped
//!    illegal sources ([`global`]), and fills in a [`V4Way`] or [`V6Way`].
//! 3. It calls [`to_v4()`] or [`to_v6()`], or for an ICMP error [`error_to_v4`] or [`error_to_v6`]. The new
//!    header is written directly before the transport header; the payload is not moved. What comes back says
//!    where the new packet starts and ends ([`Moved`]); the link header in front of it is the caller's to write
//!    anew. To IPv6 a packet grows towards the front: the caller leaves [`ROOM`] octets there.
//! 4. A refusal leaves the packet as it was and says by [`Refused::answer`] whether the sender is told.
//!
//! # What is whose
//! * **TTL and hop limit** are copied. Decrementing, and answering when it runs out, is the forwarding stage's,
//!   once per packet, before or after (RFC 7915 §4.1, §5.1).
//! * **MTU**: the caller gives what the next hop takes. A packet that may not be cut and is too big is refused with
//!   the right error for its sender, as only here both sizes are known. An IPv4 result that may be fragmented is
//!   cut by the forwarding stage as any other. An IPv6 result that must be cut comes back with
//!   [`Moved::cut_to`]: it has a fragment header already, and `carrack_wire::fragment6` cuts it.
//! * **Checksums** of TCP, UDP, UDP-Lite, DCCP and ICMP queries are updated incrementally: a wrong one stays wrong.
//!   That of an ICMP error is verified first and then computed.
//! * **Identifications** of IPv4 packets without a fragment header come from the caller's generator.
#![forbid(unsafe_code)]

pub mod eam;
mod error;
pub mod exchange;
pub mod global;
mod hosts;
pub mod icmp;
pub mod prefix;
mod refused;
pub mod siit;
mod to_v4;
mod to_v6;
mod transport;

pub use eam::EamTable;
pub use error::{V4ErrorWay, V6ErrorWay, error_to_v4, error_to_v6};
pub use hosts::Hosts;
pub use icmp::Mtus;
pub use prefix::NatPrefix;
pub use refused::{Answer, Refused};
pub use siit::Siit;
pub use to_v4::to_v4;
pub use to_v6::to_v6;

use carrack_wire::ipv6;

/// Octets of room a packet needs before its IPv4 header to become IPv6: 20 for the header and 8 for a fragment
/// header; in an ICMP error the same once more for the packet quoted, and up to 4 of padding.
pub const ROOM: usize = 60;

/// New ports. For an ICMP query the identifier, given as either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Source port; `None` keeps it.
    pub src: Option<u16>,
    /// Destination port; `None` keeps it.
    pub dst: Option<u16>,
}

impl Ports {
    /// As they are: stateless translation.
    pub const KEEP: Ports = Ports { src: None, dst: None };

    /// The identifier of an ICMP query.
    #[inline(always)]
    const fn identifier(self) -> Option<u16> {
        match self.src {
            None => self.dst,
            src => src,
        }
    }
}

/// What becomes of one packet on its way to IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V4Way {
    /// Source address, host order.
    pub src: u32,
    /// Destination address, host order.
    pub dst: u32,
    /// New ports.
    pub ports: Ports,
    /// Identification of a packet without fragment header, unique as RFC 6864 §4.3 wants it.
    pub identification: u16,
    /// Octets of IPv4 packet the next hop takes; `u16::MAX` when that is not known yet.
    pub mtu: u16,
}

/// What becomes of one packet on its way to IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V6Way {
    /// Source address, host order.
    pub src: u128,
    /// Destination address, host order.
    pub dst: u128,
    /// New ports.
    pub ports: Ports,
    /// Octets of IPv6 packet the next hop takes; `u16::MAX` when that is not known yet.
    pub mtu: u16,
}

/// What to do with UDP over IPv4 without a checksum, which IPv6 does not have (RFC 7915 §4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroUdp {
    /// Compute one over a whole packet; a fragment is dropped.
    #[default]
    Compute,
    /// Drop the packet.
    Drop,
}

/// What is configured about translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Type of service of every IPv4 packet; `None` copies the traffic class (RFC 7915 §5.1).
    pub tos: Option<u8>,
    /// Whether the traffic class is zero instead of a copy of the type of service (RFC 7915 §4.1).
    pub zero_traffic_class: bool,
    /// To what size IPv4 packets that may be fragmented are cut: the smallest MTU of the IPv6 network, 1280 or
    /// more (RFC 7915 §4.1, "lowest-ipv6-mtu").
    pub lowest_ipv6_mtu: u16,
    /// UDP without a checksum.
    pub zero_udp: ZeroUdp,
}

impl Default for Rules {
    /// As RFC 7915 has it.
    fn default() -> Rules {
        Rules {
            tos: None,
            zero_traffic_class: false,
            lowest_ipv6_mtu: ipv6::MTU_MIN as u16,
            zero_udp: ZeroUdp::Compute,
        }
    }
}

/// Where the translated packet is in the buffer that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Where its IP header starts.
    pub start: usize,
    /// Where the packet ends.
    pub end: usize,
    /// The packet must be cut into fragments of at most this many octets (`carrack_wire::fragment6`) before it is
    /// sent; it has a fragment header for that.
    pub cut_to: Option<u16>,
}
