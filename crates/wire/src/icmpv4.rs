//! ICMP for IPv4 (RFC 792), with multi-part errors (RFC 4884).

mod error;
mod extension;
#[cfg(test)]
mod tests;

pub use error::{ERROR_LEN_MAX, ErrorMessage, write_error, write_error_under};
pub use extension::{Extension, ExtensionError, ORIGINAL_LEN_MIN, Object};

use crate::checksum::{self, Delta};
use crate::ipv4::{Ipv4Error, Ipv4View};
use crate::{be16, be32, put16};
use std::fmt;

/// Octets of the header every message has; it includes the "rest of header" word.
pub const HEADER_LEN: usize = 8;

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

/// Why bytes are not an ICMP message, or an error not one that can be related to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv4Error {
    /// Fewer than 8 octets.
    Truncated,
    /// Not an error message, so nothing is quoted.
    NotAnError,
    /// The length attribute of RFC 4884 reaches beyond the message.
    BadLengthAttribute,
    /// What is quoted has no whole IPv4 header.
    BadQuotation(Ipv4Error),
}

impl fmt::Display for Icmpv4Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Icmpv4Error::Truncated => f.write_str("packet ends inside its ICMP header"),
            Icmpv4Error::NotAnError => f.write_str("ICMP message is not an error and quotes no packet"),
            Icmpv4Error::BadLengthAttribute => {
                f.write_str("ICMP length attribute reaches beyond the message (RFC 4884)")
            }
            Icmpv4Error::BadQuotation(error) => write!(f, "packet quoted in an ICMP error: {error}"),
        }
    }
}

impl std::error::Error for Icmpv4Error {}

/// A checked ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct Icmpv4View<'a> {
    head: &'a [u8; HEADER_LEN],
    message: &'a [u8],
}

impl<'a> Icmpv4View<'a> {
    /// Checks the message that fills `bytes`, an IP payload.
    ///
    /// # Errors
    /// [`Icmpv4Error::Truncated`] below 8 octets.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Icmpv4View<'a>, Icmpv4Error> {
        let head = bytes.first_chunk().ok_or(Icmpv4Error::Truncated)?;
        Ok(Icmpv4View { head, message: bytes })
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

    /// Whether the checksum over the whole message, extensions included, is right.
    #[inline]
    pub fn checksum_ok(&self) -> bool {
        checksum::verify(self.message)
    }

    /// Identifier of a query; meaningless in other classes.
    #[inline(always)]
    pub fn identifier(&self) -> u16 {
        be16(self.head, 4)
    }

    /// Sequence number of a query; meaningless in other classes.
    #[inline(always)]
    pub fn sequence(&self) -> u16 {
        be16(self.head, 6)
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

    /// The octets behind the 8 of the header.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.message.get(HEADER_LEN..).unwrap_or(&[])
    }

    /// Octets of the "original datagram" field, padding included. Without a length attribute it is the whole
    /// payload (RFC 4884 §5.4); an old sender's extension without the attribute then counts as quoted octets.
    ///
    /// # Errors
    /// [`Icmpv4Error::NotAnError`] or [`Icmpv4Error::BadLengthAttribute`].
    #[inline]
    pub fn original_len(&self) -> Result<usize, Icmpv4Error> {
        if self.class() != Class::Error {
            return Err(Icmpv4Error::NotAnError);
        }
        let all = self.payload().len();
        let words = usize::from(self.head[5]);
        if words == 0 || !has_length_attribute(self.kind()) {
            return Ok(all);
        }
        if words * 4 > all { Err(Icmpv4Error::BadLengthAttribute) } else { Ok(words * 4) }
    }

    /// The packet this error is about, without the zero padding and the extension structure behind it
    /// (RFC 5508 REQ-3d). Options are walked past when its payload is asked for (RFC 5508 REQ-3b).
    ///
    /// # Errors
    /// [`Icmpv4Error`], all but `Truncated`.
    #[inline]
    pub fn embedded(&self) -> Result<Ipv4View<'a>, Icmpv4Error> {
        let original = self.payload().get(..self.original_len()?).ok_or(Icmpv4Error::BadLengthAttribute)?;
        Ipv4View::parse_quoted(original).map_err(Icmpv4Error::BadQuotation)
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

/// An ICMP message whose fields can be changed.
#[derive(Debug)]
pub struct Icmpv4Mut<'a> {
    head: &'a mut [u8; HEADER_LEN],
    payload: &'a mut [u8],
}

impl<'a> Icmpv4Mut<'a> {
    /// As [`Icmpv4View::parse`].
    ///
    /// # Errors
    /// [`Icmpv4Error::Truncated`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Icmpv4Mut<'a>, Icmpv4Error> {
        let (head, payload) = bytes.split_first_chunk_mut().ok_or(Icmpv4Error::Truncated)?;
        Ok(Icmpv4Mut { head, payload })
    }

    /// Sets type and code; the checksum is the caller's.
    #[inline]
    pub fn set_kind(&mut self, kind: u8, code: u8) {
        self.head[0] = kind;
        self.head[1] = code;
    }

    /// Sets the identifier of a query and updates the checksum.
    #[inline(always)]
    pub fn rewrite_identifier(&mut self, identifier: u16) {
        let delta = Delta::of_u16(be16(self.head, 4), identifier);
        put16(self.head, 4, identifier);
        self.apply(delta);
    }

    /// Sets the next-hop MTU and updates the checksum.
    pub fn rewrite_next_hop_mtu(&mut self, mtu: u16) {
        let delta = Delta::of_u16(be16(self.head, 6), mtu);
        put16(self.head, 6, mtu);
        self.apply(delta);
    }

    /// Applies a change to the checksum.
    #[inline(always)]
    pub fn apply(&mut self, delta: Delta) {
        let checksum = delta.apply(be16(self.head, 2));
        put16(self.head, 2, checksum);
    }

    /// Computes the checksum from scratch.
    #[inline]
    pub fn fill_checksum(&mut self) {
        put16(self.head, 2, 0);
        let sum = checksum::Sum::ZERO.with_bytes(self.head).with_bytes(self.payload);
        put16(self.head, 2, sum.checksum());
    }

    /// The octets behind the 8 of the header.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }
}

/// Turns the echo request in `message`, an IP payload, into its reply in place; addresses are the caller's.
/// Returns false, and changes nothing, when it is not an echo request.
pub fn echo_reply_in_place(message: &mut [u8]) -> bool {
    let Ok(mut icmp) = Icmpv4Mut::parse(message) else { return false };
    if icmp.head[0] != kind::ECHO_REQUEST {
        return false;
    }
    let old = be16(icmp.head, 0);
    icmp.head[0] = kind::ECHO_REPLY;
    icmp.apply(Delta::of_u16(old, be16(icmp.head, 0)));
    true
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
