//! ICMP for IPv4 (RFC 792), with multi-part errors (RFC 4884).

mod error;
#[cfg(test)]
mod tests;

pub use crate::icmp::{Extension, ExtensionError, HEADER_LEN, ORIGINAL_LEN_MIN, Object};
pub use error::{ERROR_LEN_MAX, ErrorMessage, write_error, write_error_under};

use crate::checksum::{self, Delta};
use crate::icmp::{IcmpError, IcmpMut, IcmpView, Version};
use crate::ipv4::{Ipv4Error, Ipv4View};
use crate::{be16, be32, put16};

/// Message types.
pub mod kind {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const DESTINATION_UNREACHABLE: u8 = 3;
    /// Source quench (deprecated by RFC 6633).
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO_REQUEST: u8 = 8;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Timestamp request.
    pub const TIMESTAMP: u8 = 13;
    /// Timestamp reply.
    pub const TIMESTAMP_REPLY: u8 = 14;
    /// Information request (deprecated by RFC 6918).
    pub const INFORMATION_REQUEST: u8 = 15;
    /// Information reply (deprecated by RFC 6918).
    pub const INFORMATION_REPLY: u8 = 16;
    /// Address mask request (deprecated by RFC 6918).
    pub const MASK_REQUEST: u8 = 17;
    /// Address mask reply (deprecated by RFC 6918).
    pub const MASK_REPLY: u8 = 18;
}

/// Codes of destination unreachable.
pub mod unreachable {
    /// No route to the network.
    pub const NET: u8 = 0;
    /// The host does not answer.
    pub const HOST: u8 = 1;
    /// The host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nobody listens on the port.
    pub const PORT: u8 = 3;
    /// Too big for the next link and may not be fragmented.
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// The source route failed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// Communication administratively prohibited (RFC 1812 §5.2.7.1).
    pub const ADMIN_PROHIBITED: u8 = 13;
}

/// Codes of time exceeded.
pub mod exceeded {
    /// The time to live ran out in transit.
    pub const TTL: u8 = 0;
    /// Fragments did not arrive in time.
    pub const REASSEMBLY: u8 = 1;
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A request with an identifier: echo, timestamp, information, address mask.
    Request,
    /// The reply to such a request.
    Reply,
    /// An error that quotes the packet it is about.
    Error,
    /// Anything else: router discovery, unassigned types.
    Other,
}

/// The class of a message type.
#[inline(always)]
pub const fn class_of(kind: u8) -> Class {
    match kind {
        kind::ECHO_REQUEST | kind::TIMESTAMP | kind::INFORMATION_REQUEST | kind::MASK_REQUEST => {
            Class::Request
        }
        kind::ECHO_REPLY | kind::TIMESTAMP_REPLY | kind::INFORMATION_REPLY | kind::MASK_REPLY => Class::Reply,
        kind::DESTINATION_UNREACHABLE
        | kind::SOURCE_QUENCH
        | kind::REDIRECT
        | kind::TIME_EXCEEDED
        | kind::PARAMETER_PROBLEM => Class::Error,
        _ => Class::Other,
    }
}

/// Whether messages of this type have the length attribute of RFC 4884 §4.6.
#[inline(always)]
pub const fn has_length_attribute(kind: u8) -> bool {
    matches!(kind, kind::DESTINATION_UNREACHABLE | kind::TIME_EXCEEDED | kind::PARAMETER_PROBLEM)
}

/// ICMP of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V4;

impl Version for V4 {
    const NAME: &'static str = "ICMP";
    const LENGTH_AT: usize = 5;
    const LENGTH_UNIT: usize = 4;
    type Class = Class;
    type Packet<'a> = Ipv4View<'a>;
    type PacketError = Ipv4Error;

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
    fn quoted(bytes: &[u8]) -> Result<Ipv4View<'_>, Ipv4Error> {
        Ipv4View::parse_quoted(bytes)
    }
}

/// Why bytes are not an ICMP message, or an error not one that can be related to a packet.
pub type Icmpv4Error = IcmpError<V4>;
/// A checked ICMP message.
pub type Icmpv4View<'a> = IcmpView<'a, V4>;
/// An ICMP message whose fields can be changed.
pub type Icmpv4Mut<'a> = IcmpMut<'a, V4>;

impl Icmpv4View<'_> {
    /// Whether the checksum over the whole message, extensions included, is right.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        checksum::verify(self.message)
    }

    /// Next-hop MTU in octets of a "fragmentation needed" (RFC 1191 §4); 0 from routers that do not tell.
    #[inline(always)]
    pub fn next_hop_mtu(&self) -> u16 {
        be16(self.head, 6)
    }

    /// The "rest of header" word.
    #[inline(always)]
    pub fn rest_of_header(&self) -> u32 {
        be32(self.head, 4)
    }
}

impl Icmpv4Mut<'_> {
    /// Sets the next-hop MTU and updates the checksum.
    pub fn rewrite_next_hop_mtu(&mut self, mtu: u16) {
        let delta = Delta::of_u16(be16(self.head, 6), mtu);
        put16(self.head, 6, mtu);
        self.apply(delta);
    }

    /// Computes the checksum from scratch.
    #[inline]
    pub fn fill_checksum(&mut self) {
        put16(self.head, 2, 0);
        let sum = checksum::Sum::ZERO.with_bytes(self.head).with_bytes(self.payload);
        put16(self.head, 2, sum.checksum());
    }
}

/// Turns the echo request in `message`, an IP payload, into its reply in place; addresses are the caller's.
/// Returns false, and changes nothing, when it is not an echo request.
pub fn echo_reply_in_place(message: &mut [u8]) -> bool {
    Icmpv4Mut::parse(message).is_ok_and(|mut icmp| icmp.turn_echo(kind::ECHO_REQUEST, kind::ECHO_REPLY))
}

/// Whether RFC 1812 §4.3.2.7 (RFC 5508 REQ-10e) allows an ICMP error about `packet`, as far as it tells: no ICMP
/// error (nor an ICMP message of unknown type), no later fragment, has a source one can answer and a single
/// destination. Link broadcasts and subnet broadcasts are the caller's to judge.
pub fn may_cause_error(packet: &Ipv4View<'_>) -> bool {
    if packet.is_later_fragment() || !is_answerable(packet.src()) || !is_unicast(packet.dst()) {
        return false;
    }
    if packet.protocol() != crate::ipv4::protocol::ICMP {
        return true;
    }
    match packet.payload().first() {
        Some(kind) => matches!(class_of(*kind), Class::Request | Class::Reply),
        None => false,
    }
}

/// A source address an error can be sent to: no "this network", no loopback, no multicast, no class E.
fn is_answerable(address: u32) -> bool {
    address >> 24 != 0 && address >> 24 != 127 && is_unicast(address)
}

fn is_unicast(address: u32) -> bool {
    address < 0xe000_0000
}
