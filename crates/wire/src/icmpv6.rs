//! ICMP for IPv6 (RFC 4443), with multi-part errors (RFC 4884). Neighbour discovery has its own module.

mod error;
#[cfg(test)]
mod tests;

pub use crate::icmp::HEADER_LEN;
pub use error::{ERROR_LEN_MAX, ErrorMessage, may_cause_error, write_error, write_error_under};

use crate::checksum::{self, Delta};
use crate::icmp::{IcmpError, IcmpMut, IcmpView, Version};
use crate::ipv6::{Ipv6Error, Ipv6View, next_header};
use crate::{be32, put16, put32};

/// Message types.
pub mod kind {
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 1;
    /// Packet too big.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Multicast listener query (RFC 2710).
    pub const LISTENER_QUERY: u8 = 130;
    /// Multicast listener report (RFC 2710).
    pub const LISTENER_REPORT: u8 = 131;
    /// Multicast listener done (RFC 2710).
    pub const LISTENER_DONE: u8 = 132;
    /// Router solicitation (RFC 4861).
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router advertisement (RFC 4861).
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbour solicitation (RFC 4861).
    pub const NEIGHBOUR_SOLICITATION: u8 = 135;
    /// Neighbour advertisement (RFC 4861).
    pub const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    /// Redirect (RFC 4861).
    pub const REDIRECT: u8 = 137;
    /// Version 2 multicast listener report (RFC 3810).
    pub const LISTENER_REPORT_V2: u8 = 143;
}

/// Codes of destination unreachable.
pub mod unreachable {
    /// No route to the destination.
    pub const NO_ROUTE: u8 = 0;
    /// Communication administratively prohibited.
    pub const ADMIN_PROHIBITED: u8 = 1;
    /// Beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The host does not answer.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens on the port.
    pub const PORT: u8 = 4;
    /// The source address failed the policy for what may come in or go out.
    pub const SOURCE_POLICY: u8 = 5;
    /// The route says reject.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Codes of time exceeded.
pub mod exceeded {
    /// The hop limit ran out in transit.
    pub const HOP_LIMIT: u8 = 0;
    /// Fragments did not arrive in time.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of parameter problem.
pub mod parameter {
    /// A header field makes no sense.
    pub const ERRONEOUS_FIELD: u8 = 0;
    /// A next header is not recognised.
    pub const UNRECOGNISED_NEXT_HEADER: u8 = 1;
    /// An option is not recognised.
    pub const UNRECOGNISED_OPTION: u8 = 2;
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A request with an identifier: echo.
    Request,
    /// The reply to such a request.
    Reply,
    /// An error that quotes the packet it is about: every type below 128, known or not.
    Error,
    /// Neighbour and router discovery, redirect: meant for one link.
    NeighbourDiscovery,
    /// Multicast listener discovery: meant for one link.
    ListenerDiscovery,
    /// Any other informational type.
    Other,
}

/// The class of a message type.
#[inline(always)]
pub const fn class_of(kind: u8) -> Class {
    match kind {
        0..128 => Class::Error,
        kind::ECHO_REQUEST => Class::Request,
        kind::ECHO_REPLY => Class::Reply,
        kind::ROUTER_SOLICITATION..=kind::REDIRECT => Class::NeighbourDiscovery,
        kind::LISTENER_QUERY..=kind::LISTENER_DONE | kind::LISTENER_REPORT_V2 => Class::ListenerDiscovery,
        _ => Class::Other,
    }
}

/// Whether messages of this type have the length attribute of RFC 4884 §4.6, here in units of 8 octets.
#[inline(always)]
pub const fn has_length_attribute(kind: u8) -> bool {
    matches!(kind, kind::DESTINATION_UNREACHABLE | kind::TIME_EXCEEDED)
}

/// ICMP of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V6;

impl Version for V6 {
    const NAME: &'static str = "ICMPv6";
    const LENGTH_AT: usize = 4;
    const LENGTH_UNIT: usize = 8;
    type Class = Class;
    type Packet<'a> = Ipv6View<'a>;
    type PacketError = Ipv6Error;

    #[inline(always)]
    fn class_of(kind: u8) -> Class {
        class_of(kind)
    }

    #[inline(always)]
    fn is_error(kind: u8) -> bool {
        class_of(kind) == Class::Error
    }

    #[inline(always)]
    fn has_length_attribute(kind: u8) -> bool {
        has_length_attribute(kind)
    }

    #[inline(always)]
    fn quoted(bytes: &[u8]) -> Result<Ipv6View<'_>, Ipv6Error> {
        Ipv6View::parse_quoted(bytes)
    }
}

/// Why bytes are not an ICMPv6 message, or an error not one that can be related to a packet.
pub type Icmpv6Error = IcmpError<V6>;
/// A checked ICMPv6 message.
pub type Icmpv6View<'a> = IcmpView<'a, V6>;
/// An ICMPv6 message whose fields can be changed.
pub type Icmpv6Mut<'a> = IcmpMut<'a, V6>;

impl Icmpv6View<'_> {
    /// Whether the checksum over the whole message and the pseudo-header is right (RFC 4443 §2.3).
    pub fn checksum_ok(&self, src: u128, dst: u128) -> bool {
        pseudo(src, dst, self.message.len()).with_bytes(self.message).fold() == 0xffff
    }

    /// The MTU in octets of a "packet too big".
    #[inline(always)]
    pub fn mtu(&self) -> u32 {
        be32(self.head, 4)
    }

    /// The pointer of a parameter problem.
    #[inline(always)]
    pub fn pointer(&self) -> u32 {
        be32(self.head, 4)
    }
}

impl Icmpv6Mut<'_> {
    /// Sets the MTU of a "packet too big" and updates the checksum.
    pub fn rewrite_mtu(&mut self, mtu: u32) {
        let delta = Delta::of_u32(be32(self.head, 4), mtu);
        put32(self.head, 4, mtu);
        self.apply(delta);
    }

    /// Computes the checksum from scratch, for a whole message between these addresses.
    pub fn fill_checksum(&mut self, src: u128, dst: u128) {
        put16(self.head, 2, 0);
        let sum = pseudo(src, dst, HEADER_LEN + self.payload.len());
        put16(self.head, 2, sum.with_bytes(self.head).with_bytes(self.payload).checksum());
    }
}

/// Turns the echo request in `message` into its reply in place; swapping the addresses, which leaves the
/// checksum alone, is the caller's. Returns false, and changes nothing, when it is not an echo request.
pub fn echo_reply_in_place(message: &mut [u8]) -> bool {
    Icmpv6Mut::parse(message).is_ok_and(|mut icmp| icmp.turn_echo(kind::ECHO_REQUEST, kind::ECHO_REPLY))
}

/// The pseudo-header of a message of `length` octets.
fn pseudo(src: u128, dst: u128, length: usize) -> checksum::Sum {
    checksum::pseudo_v6(src, dst, next_header::ICMPV6, length as u32)
}
