//! What ICMP has in common for IPv4 (RFC 792) and IPv6 (RFC 4443): a header of eight octets, queries with identifier and
//! sequence number, errors that quote a packet, multi-part errors (RFC 4884). What differs is a [`Version`].

mod extension;

use core::fmt::{self, Debug, Display};
use core::marker::PhantomData;

pub use extension::{Extension, ExtensionError, ORIGINAL_LEN_MIN, Object};

use crate::checksum::Delta;
use crate::{be16, put16};

/// Octets of the header every message has; it includes the four octets that differ by type.
pub const HEADER_LEN: usize = 8;

/// What one of the two ICMPs does in its own way.
pub trait Version {
    /// Its name in messages to people.
    const NAME: &'static str;
    /// Where the length attribute of RFC 4884 is.
    const LENGTH_AT: usize;
    /// Octets that it counts in.
    const LENGTH_UNIT: usize;
    /// What messages are for.
    type Class: Copy + Debug + Eq;
    /// A packet that an error quotes.
    type Packet<'a>;
    /// Why quoted bytes are none.
    type PacketError: Copy + Debug + Eq + Display;

    /// The class of a message type.
    fn class_of(kind: u8) -> Self::Class;

    /// Is it the type of an error, which quotes a packet?
    fn is_error(kind: u8) -> bool;

    /// Whether messages of this type have the length attribute of RFC 4884.
    fn has_length_attribute(kind: u8) -> bool;

    /// The start of a packet; that its end is missing is no error.
    ///
    /// # Errors
    /// Fewer bytes than a header, or other ones.
    fn quoted(bytes: &[u8]) -> Result<Self::Packet<'_>, Self::PacketError>;
}

/// Why bytes are not an ICMP message, or an error not one that can be related to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError<V: Version> {
    /// Fewer than 8 octets.
    Truncated,
    /// Not an error message, so nothing is quoted.
    NotAnError,
    /// The length attribute of RFC 4884 reaches beyond the message.
    BadLengthAttribute,
    /// What is quoted has no whole IP header.
    BadQuotation(V::PacketError),
}

impl<V: Version> Display for IcmpError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "packet ends inside its {} header", V::NAME),
            Self::NotAnError => write!(f, "{} message is not an error and quotes no packet", V::NAME),
            Self::BadLengthAttribute => {
                write!(f, "{} length attribute reaches beyond the message (RFC 4884)", V::NAME)
            }
            Self::BadQuotation(error) => write!(f, "packet quoted in an {} error: {error}", V::NAME),
        }
    }
}

impl<V: Version + Debug> std::error::Error for IcmpError<V> {}

/// A checked ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct IcmpView<'a, V> {
    pub(crate) head: &'a [u8; HEADER_LEN],
    pub(crate) message: &'a [u8],
    version: PhantomData<V>,
}

impl<'a, V: Version> IcmpView<'a, V> {
    /// Checks the message that fills `bytes`: what stands behind the IP header and its extension headers.
    ///
    /// # Errors
    /// [`IcmpError::Truncated`] below 8 octets.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, IcmpError<V>> {
        let head = bytes.first_chunk().ok_or(IcmpError::Truncated)?;
        Ok(Self { head, message: bytes, version: PhantomData })
    }

    /// Message type.
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
    pub fn class(&self) -> V::Class {
        V::class_of(self.kind())
    }

    /// Checksum field.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        be16(self.head, 2)
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

    /// The octets behind the 8 of the header.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.message.get(HEADER_LEN..).unwrap_or(&[])
    }

    /// Octets of the "original datagram" field, padding included. Without a length attribute it is the whole
    /// payload (RFC 4884 §5.4); an old sender's extension without the attribute then counts as quoted octets.
    ///
    /// # Errors
    /// [`IcmpError::NotAnError`] or [`IcmpError::BadLengthAttribute`].
    #[inline]
    pub fn original_len(&self) -> Result<usize, IcmpError<V>> {
        if !V::is_error(self.kind()) {
            return Err(IcmpError::NotAnError);
        }
        let all = self.payload().len();
        let units = self.head.get(V::LENGTH_AT).map_or(0, |units| usize::from(*units));
        if units == 0 || !V::has_length_attribute(self.kind()) {
            return Ok(all);
        }
        let length = units * V::LENGTH_UNIT;
        if length > all { Err(IcmpError::BadLengthAttribute) } else { Ok(length) }
    }

    /// The packet this error is about, without the zero padding and the extension structure behind it
    /// (RFC 5508 REQ-3d). IPv4 options are walked past when its payload is asked for (RFC 5508 REQ-3b).
    ///
    /// # Errors
    /// [`IcmpError`], all but `Truncated`.
    #[inline]
    pub fn embedded(&self) -> Result<V::Packet<'a>, IcmpError<V>> {
        let original = self.payload().get(..self.original_len()?).ok_or(IcmpError::BadLengthAttribute)?;
        V::quoted(original).map_err(IcmpError::BadQuotation)
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
pub struct IcmpMut<'a, V> {
    pub(crate) head: &'a mut [u8; HEADER_LEN],
    pub(crate) payload: &'a mut [u8],
    version: PhantomData<V>,
}

impl<'a, V: Version> IcmpMut<'a, V> {
    /// As [`IcmpView::parse`].
    ///
    /// # Errors
    /// [`IcmpError::Truncated`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Self, IcmpError<V>> {
        let (head, payload) = bytes.split_first_chunk_mut().ok_or(IcmpError::Truncated)?;
        Ok(Self { head, payload, version: PhantomData })
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

    /// Applies a change to the checksum.
    #[inline(always)]
    pub fn apply(&mut self, delta: Delta) {
        let checksum = delta.apply(be16(self.head, 2));
        put16(self.head, 2, checksum);
    }

    /// The octets behind the 8 of the header.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }

    /// Makes an echo request its reply, with the checksum; false, and nothing has changed, when it is none.
    pub(crate) fn turn_echo(&mut self, request: u8, reply: u8) -> bool {
        let is_request = self.head[0] == request;
        if is_request {
            let old = be16(self.head, 0);
            self.head[0] = reply;
            self.apply(Delta::of_u16(old, be16(self.head, 0)));
        }
        is_request
    }
}
