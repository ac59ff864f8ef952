//! ICMP for IPv6 (RFC 4443), with multi-part errors (RFC 4884). Neighbour discovery has its own module.

mod error;
#[cfg(test)]
mod tests;

pub use error::{ERROR_LEN_MAX, ErrorMessage, may_cause_error, write_error, write_error_under};

use crate::checksum::{self, Delta};
use crate::icmpv4::{Extension, ExtensionError};
use crate::ipv6::{Ipv6Error, Ipv6View, next_header};
use crate::{be16, be32, put16, put32};
use std::fmt;

/// Octets of the header every message has; it includes the four octets that differ by type.
pub const HEADER_LEN: usize = 8;

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

/// Why bytes are not an ICMPv6 message, or an error not one that can be related to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv6Error {
    /// Fewer than 8 octets.
    Truncated,
    /// Not an error message, so nothing is quoted.
    NotAnError,
    /// The length attribute of RFC 4884 reaches beyond the message.
    BadLengthAttribute,
    /// What is quoted has no whole IPv6 header.
    BadQuotation(Ipv6Error),
}

impl fmt::Display for Icmpv6Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Icmpv6Error::Truncated => f.write_str("packet ends inside its ICMPv6 header"),
            Icmpv6Error::NotAnError => f.write_str("ICMPv6 message is not an error and quotes no packet"),
            Icmpv6Error::BadLengthAttribute => {
                f.write_str("ICMPv6 length attribute reaches beyond the message (RFC 4884)")
            }
            Icmpv6Error::BadQuotation(error) => write!(f, "packet quoted in an ICMPv6 error: {error}"),
        }
    }
}

impl std::error::Error for Icmpv6Error {}

/// A checked ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv6View<'a> {
    head: &'a [u8; HEADER_LEN],
    message: &'a [u8],
}

impl<'a> Icmpv6View<'a> {
    /// Checks the message that fills `bytes`, what stands behind the extension headers.
    ///
    /// # Errors
    /// [`Icmpv6Error::Truncated`] below 8 octets.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Icmpv6View<'a>, Icmpv6Error> {
        let head = bytes.first_chunk().ok_or(Icmpv6Error::Truncated)?;
        Ok(Icmpv6View { head, message: bytes })
    }

    /// Message type, see [`kind`].
    #[inline(always)]
    pub fn kind(&self) -> u8 {
        self.head[0]
    }

    /// Message code.
    #[inline(always)]
    pub fn code(&self) -> u8 {
        self.head[1]
    }

    /// What the message is for.
    #[inline(always)]
    pub fn class(&self) -> Class {
        class_of(self.kind())
    }

    /// Checksum field.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        be16(self.head, 2)
    }

    /// Whether the checksum over the whole message and the pseudo-header is right (RFC 4443 §2.3).
    pub fn checksum_ok(&self, src: u128, dst: u128) -> bool {
        pseudo(src, dst, self.message.len()).with_bytes(self.message).fold() == 0xffff
    }

    /// Identifier of an echo; meaningless in other classes.
    #[inline(always)]
    pub fn identifier(&self) -> u16 {
        be16(self.head, 4)
    }

    /// Sequence number of an echo; meaningless in other classes.
    #[inline(always)]
    pub fn sequence(&self) -> u16 {
        be16(self.head, 6)
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

    /// The octets behind the 8 of the header.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.message.get(HEADER_LEN..).unwrap_or(&[])
    }

    /// Octets of the "original datagram" field, padding included. Without a length attribute it is the whole
    /// payload (RFC 4884 §5.4).
    ///
    /// # Errors
    /// [`Icmpv6Error::NotAnError`] or [`Icmpv6Error::BadLengthAttribute`].
    #[inline]
    pub fn original_len(&self) -> Result<usize, Icmpv6Error> {
        if self.class() != Class::Error {
            return Err(Icmpv6Error::NotAnError);
        }
        let all = self.payload().len();
        let units = usize::from(self.head[4]);
        if units == 0 || !has_length_attribute(self.kind()) {
            return Ok(all);
        }
        if units * 8 > all { Err(Icmpv6Error::BadLengthAttribute) } else { Ok(units * 8) }
    }

    /// The packet this error is about, without the zero padding and the extension structure behind it.
    ///
    /// # Errors
    /// [`Icmpv6Error`], all but `Truncated`.
    #[inline]
    pub fn embedded(&self) -> Result<Ipv6View<'a>, Icmpv6Error> {
        let original = self.payload().get(..self.original_len()?).ok_or(Icmpv6Error::BadLengthAttribute)?;
        Ipv6View::parse_quoted(original).map_err(Icmpv6Error::BadQuotation)
    }

    /// The extension structure behind the "original datagram" field; `None` when there is none.
    ///
    /// # Errors
    /// [`ExtensionError`] when what stands there is no valid structure.
    pub fn extension(&self) -> Result<Option<Extension<'a>>, ExtensionError> {
        let Ok(original_len) = self.original_len() else { return Ok(None) };
        Extension::behind(self.payload(), original_len)
    }
}

/// An ICMPv6 message whose fields can be changed.
#[derive(Debug)]
pub struct Icmpv6Mut<'a> {
    head: &'a mut [u8; HEADER_LEN],
    payload: &'a mut [u8],
}

impl<'a> Icmpv6Mut<'a> {
    /// As [`Icmpv6View::parse`].
    ///
    /// # Errors
    /// [`Icmpv6Error::Truncated`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Icmpv6Mut<'a>, Icmpv6Error> {
        let (head, payload) = bytes.split_first_chunk_mut().ok_or(Icmpv6Error::Truncated)?;
        Ok(Icmpv6Mut { head, payload })
    }

    /// Sets type and code; the checksum is the caller's.
    #[inline]
    pub fn set_kind(&mut self, kind: u8, code: u8) {
        self.head[0] = kind;
        self.head[1] = code;
    }

    /// Sets the identifier of an echo and updates the checksum.
    #[inline(always)]
    pub fn rewrite_identifier(&mut self, identifier: u16) {
        let delta = Delta::of_u16(be16(self.head, 4), identifier);
        put16(self.head, 4, identifier);
        self.apply(delta);
    }

    /// Sets the MTU of a "packet too big" and updates the checksum.
    pub fn rewrite_mtu(&mut self, mtu: u32) {
        let delta = Delta::of_u32(be32(self.head, 4), mtu);
        put32(self.head, 4, mtu);
        self.apply(delta);
    }

    /// Applies a change to the checksum.
    #[inline(always)]
    pub fn apply(&mut self, delta: Delta) {
        let checksum = delta.apply(be16(self.head, 2));
        put16(self.head, 2, checksum);
    }

    /// Computes the checksum from scratch, for a whole message between these addresses.
    pub fn fill_checksum(&mut self, src: u128, dst: u128) {
        put16(self.head, 2, 0);
        let sum = pseudo(src, dst, HEADER_LEN + self.payload.len());
        put16(self.head, 2, sum.with_bytes(self.head).with_bytes(self.payload).checksum());
    }

    /// The octets behind the 8 of the header.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }
}

/// Turns the echo request in `message` into its reply in place; swapping the addresses, which leaves the
/// checksum alone, is the caller's. Returns false, and changes nothing, when it is not an echo request.
pub fn echo_reply_in_place(message: &mut [u8]) -> bool {
    let Ok(mut icmp) = Icmpv6Mut::parse(message) else { return false };
    if icmp.head[0] != kind::ECHO_REQUEST {
        return false;
    }
    let old = be16(icmp.head, 0);
    icmp.head[0] = kind::ECHO_REPLY;
    icmp.apply(Delta::of_u16(old, be16(icmp.head, 0)));
    true
}

/// The pseudo-header of a message of `length` octets.
fn pseudo(src: u128, dst: u128, length: usize) -> checksum::Sum {
    checksum::pseudo_v6(src, dst, next_header::ICMPV6, length as u32)
}
