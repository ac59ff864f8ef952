//! IPv6 headers (RFC 8200).

mod extensions;
#[cfg(test)]
mod tests;

pub use extensions::{
    Action, CHAIN_LEN_MAX, ChainError, Extensions, FragmentHeader, HEADERS_MAX, Routing, UnknownOption,
};

use crate::{be16, be32, be128, put16, put32, put128};
use std::fmt;
use std::net::Ipv6Addr;

/// Octets of the header, extension headers not counted.
pub const HEADER_LEN: usize = 40;
/// Octets of a fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;
/// The smallest MTU a link may have, in octets of IPv6 packet (RFC 8200 §5).
pub const MTU_MIN: usize = 1280;

/// Numbers of the headers that may follow an IPv6 header, as far as they are told apart.
pub mod next_header {
    /// Hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// Routing header.
    pub const ROUTING: u8 = 43;
    /// Fragment header.
    pub const FRAGMENT: u8 = 44;
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: u8 = 50;
    /// Authentication header (RFC 4302).
    pub const AH: u8 = 51;
    /// ICMP for IPv6 (RFC 4443).
    pub const ICMPV6: u8 = 58;
    /// Nothing follows.
    pub const NONE: u8 = 59;
    /// Destination options.
    pub const DESTINATION: u8 = 60;
    /// Mobility header (RFC 6275).
    pub const MOBILITY: u8 = 135;
    /// Host identity protocol (RFC 7401).
    pub const HIP: u8 = 139;
    /// Shim6 (RFC 5533).
    pub const SHIM6: u8 = 140;

    /// Whether the number is one of an extension header (registry of RFC 7045 §4): what RFC 7915 §5.1.1 does
    /// not want behind a fragment header, ESP excepted.
    pub const fn is_extension(number: u8) -> bool {
        matches!(
            number,
            HOP_BY_HOP | ROUTING | FRAGMENT | ESP | AH | DESTINATION | MOBILITY | HIP | SHIM6 | 253 | 254
        )
    }
}

/// Why bytes are not an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv6Error {
    /// Fewer octets than the header, or than the payload length, claims.
    Truncated,
    /// The version is not 6.
    BadVersion,
    /// A payload beyond 65,535 octets (RFC 2675), which no link of this edge carries.
    Jumbogram,
}

impl fmt::Display for Ipv6Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ipv6Error::Truncated => "IPv6 packet is shorter than its header says",
            Ipv6Error::BadVersion => "IP version is not 6",
            Ipv6Error::Jumbogram => "IPv6 jumbograms are not supported (RFC 2675)",
        })
    }
}

impl std::error::Error for Ipv6Error {}

/// A checked IPv6 packet: the header and exactly the octets its payload length covers.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    head: &'a [u8; HEADER_LEN],
    packet: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// Checks the packet at the start of `bytes`; octets behind its payload length (Ethernet padding) are left
    /// out.
    ///
    /// # Errors
    /// [`Ipv6Error`], judged in the order version, jumbogram, truncation; fewer than 40 octets are always
    /// [`Ipv6Error::Truncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Ipv6View<'a>, Ipv6Error> {
        let head = checked_head(bytes)?;
        if be16(head, 4) == 0 && head[6] == next_header::HOP_BY_HOP && extensions::is_jumbogram(bytes) {
            return Err(Ipv6Error::Jumbogram);
        }
        let packet = bytes.get(..HEADER_LEN + usize::from(be16(head, 4))).ok_or(Ipv6Error::Truncated)?;
        Ok(Ipv6View { head, packet })
    }

    /// Checks the leading octets of a packet quoted in an ICMP error: the header must be whole, the payload
    /// may be cut off anywhere.
    ///
    /// # Errors
    /// As [`Ipv6View::parse`], but a missing payload is no error.
    #[inline]
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Ipv6View<'a>, Ipv6Error> {
        let head = checked_head(bytes)?;
        let end = (HEADER_LEN + usize::from(be16(head, 4))).min(bytes.len());
        Ok(Ipv6View { head, packet: bytes.get(..end).ok_or(Ipv6Error::Truncated)? })
    }

    /// The fields of a header alone, whose version the caller knows; there is no payload to be had.
    #[inline(always)]
    pub fn of_header(head: &'a [u8; HEADER_LEN]) -> Ipv6View<'a> {
        Ipv6View { head, packet: head }
    }

    /// Traffic class: DSCP and ECN together, as the type-of-service octet of IPv4.
    #[inline(always)]
    pub fn traffic_class(&self) -> u8 {
        (be16(self.head, 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    #[inline(always)]
    pub fn flow_label(&self) -> u32 {
        be32(self.head, 0) & 0x000f_ffff
    }

    /// Octets behind the header as it says, extension headers included; what a quoted packet holds may be less.
    #[inline(always)]
    pub fn payload_length(&self) -> u16 {
        be16(self.head, 4)
    }

    /// Number of the header behind this one, see [`mod@next_header`].
    #[inline(always)]
    pub fn next_header(&self) -> u8 {
        self.head[6]
    }

    /// Hop limit.
    #[inline(always)]
    pub fn hop_limit(&self) -> u8 {
        self.head[7]
    }

    /// Source address, host order.
    #[inline(always)]
    pub fn src(&self) -> u128 {
        be128(self.head, 8)
    }

    /// Destination address, host order.
    #[inline(always)]
    pub fn dst(&self) -> u128 {
        be128(self.head, 24)
    }

    /// Source address for people.
    #[inline]
    pub fn src_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.src())
    }

    /// Destination address for people.
    #[inline]
    pub fn dst_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.dst())
    }

    /// The 40 octets of the header.
    #[inline(always)]
    pub fn header(&self) -> &'a [u8; HEADER_LEN] {
        self.head
    }

    /// Header and payload, without padding of the link.
    #[inline(always)]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// The octets behind the header, extension headers included.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.packet.get(HEADER_LEN..).unwrap_or(&[])
    }

    /// Walks the extension headers to what they carry. Without any, the common packet, it costs a comparison.
    ///
    /// # Errors
    /// [`ChainError`].
    #[inline(always)]
    pub fn extensions(&self) -> Result<Extensions, ChainError> {
        Extensions::walk(self)
    }
}

/// The header, when there is a whole one of version 6.
#[inline(always)]
fn checked_head(bytes: &[u8]) -> Result<&[u8; HEADER_LEN], Ipv6Error> {
    let head = bytes.first_chunk::<HEADER_LEN>().ok_or(Ipv6Error::Truncated)?;
    if head[0] >> 4 != 6 { Err(Ipv6Error::BadVersion) } else { Ok(head) }
}

/// A checked IPv6 packet whose fields can be changed. There is no header checksum; what a change of address
/// does to the transport checksum is [`crate::Delta::of_u128`].
#[derive(Debug)]
pub struct Ipv6Mut<'a> {
    head: &'a mut [u8; HEADER_LEN],
    payload: &'a mut [u8],
}

impl<'a> Ipv6Mut<'a> {
    /// As [`Ipv6View::parse`].
    ///
    /// # Errors
    /// As [`Ipv6View::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Ipv6Mut<'a>, Ipv6Error> {
        let length = Ipv6View::parse(bytes)?.packet.len();
        Ipv6Mut::split(bytes, length)
    }

    /// As [`Ipv6View::parse_quoted`].
    ///
    /// # Errors
    /// As [`Ipv6View::parse_quoted`].
    #[inline]
    pub fn parse_quoted(bytes: &'a mut [u8]) -> Result<Ipv6Mut<'a>, Ipv6Error> {
        let length = Ipv6View::parse_quoted(bytes)?.packet.len();
        Ipv6Mut::split(bytes, length)
    }

    #[inline]
    fn split(bytes: &'a mut [u8], length: usize) -> Result<Ipv6Mut<'a>, Ipv6Error> {
        let packet = bytes.get_mut(..length).ok_or(Ipv6Error::Truncated)?;
        let (head, payload) = packet.split_first_chunk_mut().ok_or(Ipv6Error::Truncated)?;
        Ok(Ipv6Mut { head, payload })
    }

    /// Source address, host order.
    #[inline(always)]
    pub fn src(&self) -> u128 {
        be128(self.head, 8)
    }

    /// Destination address, host order.
    #[inline(always)]
    pub fn dst(&self) -> u128 {
        be128(self.head, 24)
    }

    /// Hop limit.
    #[inline(always)]
    pub fn hop_limit(&self) -> u8 {
        self.head[7]
    }

    /// Sets the source address; the transport checksum is the caller's.
    #[inline(always)]
    pub fn set_src(&mut self, address: u128) {
        put128(self.head, 8, address);
    }

    /// Sets the destination address; the transport checksum is the caller's.
    #[inline(always)]
    pub fn set_dst(&mut self, address: u128) {
        put128(self.head, 24, address);
    }

    /// Sets the octets behind the header.
    #[inline(always)]
    pub fn set_payload_length(&mut self, length: u16) {
        put16(self.head, 4, length);
    }

    /// Sets the number of the header behind this one.
    #[inline(always)]
    pub fn set_next_header(&mut self, number: u8) {
        self.head[6] = number;
    }

    /// Sets the hop limit.
    #[inline(always)]
    pub fn set_hop_limit(&mut self, hop_limit: u8) {
        self.head[7] = hop_limit;
    }

    /// Takes one from the hop limit; 0 stays 0. Returns the new one.
    #[inline(always)]
    pub fn decrement_hop_limit(&mut self) -> u8 {
        self.head[7] = self.head[7].saturating_sub(1);
        self.head[7]
    }

    /// The octets behind the header, extension headers included.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }

    /// The octets behind the header, for as long as the packet itself is borrowed.
    #[inline]
    pub fn into_payload(self) -> &'a mut [u8] {
        self.payload
    }
}

/// The fields of a header, to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label; the low 20 bits count.
    pub flow_label: u32,
    /// Octets behind the 40 of this header, extension headers included.
    pub payload_len: u16,
    /// Number of the next header.
    pub next_header: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address, host order.
    pub src: u128,
    /// Destination address, host order.
    pub dst: u128,
}

impl Ipv6Header {
    /// The 40 octets.
    #[inline]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut head = [0u8; HEADER_LEN];
        self.write(&mut head);
        head
    }

    /// As [`Ipv6Header::to_bytes`], where the header is to be.
    #[inline(always)]
    pub fn write(&self, out: &mut [u8; HEADER_LEN]) {
        let first = 0x6000_0000 | u32::from(self.traffic_class) << 20 | (self.flow_label & 0x000f_ffff);
        let second =
            u32::from(self.payload_len) << 16 | u32::from(self.next_header) << 8 | u32::from(self.hop_limit);
        put32(out, 0, first);
        put32(out, 4, second);
        put128(out, 8, self.src);
        put128(out, 24, self.dst);
    }
}

/// Whether packets to the address may go to several nodes: `ff00::/8`.
#[inline(always)]
pub const fn is_multicast(address: u128) -> bool {
    address >> 120 == 0xff
}

/// Whether the address means one link only: `fe80::/10`.
#[inline(always)]
pub const fn is_link_local(address: u128) -> bool {
    address >> 118 == 0xfe80 >> 6
}

/// Whether a packet may be sent back to the address: not unspecified, not loopback, not multicast.
#[inline(always)]
pub const fn is_answerable(address: u128) -> bool {
    address > 1 && !is_multicast(address)
}
