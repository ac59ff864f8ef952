//! IPv4 headers (RFC 791).

mod options;
#[cfg(test)]
mod tests;

pub use options::{Ipv4Option, Options, kind as option_kind};

use crate::checksum::{self, Delta};
use crate::{be16, be32, put16, put32};
use std::fmt;
use std::net::Ipv4Addr;

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Octets of the longest header: 15 words.
pub const HEADER_LEN_MAX: usize = 60;
/// Flag "don't fragment", in the 16-bit word of flags and fragment offset.
pub const FLAG_DF: u16 = 0x4000;
/// Flag "more fragments", in the 16-bit word of flags and fragment offset.
pub const FLAG_MF: u16 = 0x2000;
/// The 13 bits of fragment offset, in units of 8 octets.
pub const OFFSET_MASK: u16 = 0x1fff;

/// Protocol numbers this edge tells apart.
pub mod protocol {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// IGMP.
    pub const IGMP: u8 = 2;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// GRE.
    pub const GRE: u8 = 47;
    /// ESP.
    pub const ESP: u8 = 50;
    /// ICMP for IPv6.
    pub const ICMPV6: u8 = 58;
    /// SCTP.
    pub const SCTP: u8 = 132;
}

/// Why bytes are not an IPv4 packet. The header checksum is judged apart, by [`Ipv4View::checksum_ok`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ipv4Error {
    /// Fewer octets than the header, or than the total length, claims.
    Truncated,
    /// The version is not 4.
    BadVersion,
    /// The header length is below 5 words.
    BadHeaderLength,
    /// The total length is below the header length.
    BadTotalLength,
}

impl fmt::Display for Ipv4Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ipv4Error::Truncated => "IPv4 packet is shorter than its header says",
            Ipv4Error::BadVersion => "IP version is not 4",
            Ipv4Error::BadHeaderLength => "IPv4 header length is below 20 octets",
            Ipv4Error::BadTotalLength => "IPv4 total length is below the header length",
        })
    }
}

impl std::error::Error for Ipv4Error {}

/// A checked IPv4 packet: the header and exactly the octets its total length covers.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    head: &'a [u8; HEADER_LEN],
    packet: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// Checks the packet at the start of `bytes`; octets behind its total length (Ethernet padding) are left out.
    ///
    /// # Errors
    /// One [`Ipv4Error`] per way to be malformed, judged in the order version, header length, total length,
    /// truncation; fewer than 20 octets are always [`Ipv4Error::Truncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Ipv4View<'a>, Ipv4Error> {
        let view = Ipv4View::parse_quoted(bytes)?;
        let packet = bytes.get(..usize::from(view.total_length())).ok_or(Ipv4Error::Truncated)?;
        Ok(Ipv4View { head: view.head, packet })
    }

    /// Checks the leading octets of a packet quoted in an ICMP error: the header must be whole, the payload
    /// may be cut off anywhere.
    ///
    /// # Errors
    /// As [`Ipv4View::parse`], but a missing payload is no error.
    #[inline]
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Ipv4View<'a>, Ipv4Error> {
        let head = bytes.first_chunk::<HEADER_LEN>().ok_or(Ipv4Error::Truncated)?;
        let header_len = check_head(head)?;
        if bytes.len() < header_len {
            return Err(Ipv4Error::Truncated);
        }
        let end = usize::from(be16(head, 2)).min(bytes.len());
        Ok(Ipv4View { head, packet: bytes.get(..end).ok_or(Ipv4Error::Truncated)? })
    }

    /// Header length in octets: 20 to 60.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.head[0] & 0x0f) * 4
    }

    /// The type-of-service octet: DSCP and ECN together.
    #[inline(always)]
    pub fn tos(&self) -> u8 {
        self.head[1]
    }

    /// Differentiated services code point, 6 bits (RFC 2474).
    #[inline(always)]
    pub fn dscp(&self) -> u8 {
        self.head[1] >> 2
    }

    /// Explicit congestion notification, 2 bits (RFC 3168).
    #[inline(always)]
    pub fn ecn(&self) -> u8 {
        self.head[1] & 3
    }

    /// Total length in octets as the header says; what a quoted packet holds may be less.
    #[inline(always)]
    pub fn total_length(&self) -> u16 {
        be16(self.head, 2)
    }

    /// Identification.
    #[inline(always)]
    pub fn identification(&self) -> u16 {
        be16(self.head, 4)
    }

    /// The 16-bit word of flags and fragment offset, as on the wire.
    #[inline(always)]
    pub fn flags_and_offset(&self) -> u16 {
        be16(self.head, 6)
    }

    /// Flag "don't fragment".
    #[inline(always)]
    pub fn dont_fragment(&self) -> bool {
        self.flags_and_offset() & FLAG_DF != 0
    }

    /// Flag "more fragments".
    #[inline(always)]
    pub fn more_fragments(&self) -> bool {
        self.flags_and_offset() & FLAG_MF != 0
    }

    /// Where this payload starts in the whole datagram, in octets.
    #[inline(always)]
    pub fn fragment_offset(&self) -> u32 {
        u32::from(self.flags_and_offset() & OFFSET_MASK) * 8
    }

    /// Whether this is a piece of a datagram: offset not 0, or more to follow.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.flags_and_offset() & (FLAG_MF | OFFSET_MASK) != 0
    }

    /// Whether this is a piece without the transport header.
    #[inline(always)]
    pub fn is_later_fragment(&self) -> bool {
        self.flags_and_offset() & OFFSET_MASK != 0
    }

    /// Time to live.
    #[inline(always)]
    pub fn ttl(&self) -> u8 {
        self.head[8]
    }

    /// Protocol number of the payload.
    #[inline(always)]
    pub fn protocol(&self) -> u8 {
        self.head[9]
    }

    /// The header checksum field.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        be16(self.head, 10)
    }

    /// Source address, host order.
    #[inline(always)]
    pub fn src(&self) -> u32 {
        be32(self.head, 12)
    }

    /// Destination address, host order.
    #[inline(always)]
    pub fn dst(&self) -> u32 {
        be32(self.head, 16)
    }

    /// Source address for people.
    #[inline]
    pub fn src_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.src())
    }

    /// Destination address for people.
    #[inline]
    pub fn dst_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.dst())
    }

    /// Whether the header checksum is right. The common header of 20 octets takes five additions.
    #[inline(always)]
    pub fn checksum_ok(&self) -> bool {
        if self.header_len() == HEADER_LEN {
            checksum::verify(self.head.as_slice())
        } else {
            checksum::verify(self.header())
        }
    }

    /// The header, options included.
    #[inline(always)]
    pub fn header(&self) -> &'a [u8] {
        self.packet.get(..self.header_len()).unwrap_or(&[])
    }

    /// Header and payload, without padding of the link.
    #[inline(always)]
    pub fn packet(&self) -> &'a [u8] {
        self.packet
    }

    /// The octets behind the header.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.packet.get(self.header_len()..).unwrap_or(&[])
    }

    /// Length of the payload the header announces, in octets; at least `payload().len()`.
    #[inline(always)]
    pub fn payload_length(&self) -> u16 {
        self.total_length() - self.header_len() as u16
    }

    /// Whether the header has options.
    #[inline(always)]
    pub fn has_options(&self) -> bool {
        self.head[0] & 0x0f > 5
    }

    /// The raw options area: 0 to 40 octets.
    #[inline]
    pub fn options_bytes(&self) -> &'a [u8] {
        self.packet.get(HEADER_LEN..self.header_len()).unwrap_or(&[])
    }

    /// The options one by one.
    #[inline]
    pub fn options(&self) -> Options<'a> {
        Options::new(self.options_bytes())
    }
}

/// Judges the fixed part of a header and returns the header length in octets.
#[inline(always)]
fn check_head(head: &[u8; HEADER_LEN]) -> Result<usize, Ipv4Error> {
    if head[0] >> 4 != 4 {
        return Err(Ipv4Error::BadVersion);
    }
    let header_len = usize::from(head[0] & 0x0f) * 4;
    if header_len < HEADER_LEN {
        return Err(Ipv4Error::BadHeaderLength);
    }
    if usize::from(be16(head, 2)) < header_len {
        return Err(Ipv4Error::BadTotalLength);
    }
    Ok(header_len)
}

/// A checked IPv4 packet whose fields can be changed. Setters of addresses and TTL leave the checksum alone
/// unless their name says otherwise, as the fast path applies one [`Delta`] for all changes.
#[derive(Debug)]
pub struct Ipv4Mut<'a> {
    head: &'a mut [u8; HEADER_LEN],
    rest: &'a mut [u8],
}

impl<'a> Ipv4Mut<'a> {
    /// As [`Ipv4View::parse`].
    ///
    /// # Errors
    /// As [`Ipv4View::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<Ipv4Mut<'a>, Ipv4Error> {
        let length = Ipv4View::parse(bytes)?.packet.len();
        Ipv4Mut::split(bytes, length)
    }

    /// As [`Ipv4View::parse_quoted`].
    ///
    /// # Errors
    /// As [`Ipv4View::parse_quoted`].
    #[inline]
    pub fn parse_quoted(bytes: &'a mut [u8]) -> Result<Ipv4Mut<'a>, Ipv4Error> {
        let length = Ipv4View::parse_quoted(bytes)?.packet.len();
        Ipv4Mut::split(bytes, length)
    }

    #[inline]
    fn split(bytes: &'a mut [u8], length: usize) -> Result<Ipv4Mut<'a>, Ipv4Error> {
        let packet = bytes.get_mut(..length).ok_or(Ipv4Error::Truncated)?;
        let (head, rest) = packet.split_first_chunk_mut().ok_or(Ipv4Error::Truncated)?;
        Ok(Ipv4Mut { head, rest })
    }

    /// Header length in octets.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.head[0] & 0x0f) * 4
    }

    /// Source address, host order.
    #[inline(always)]
    pub fn src(&self) -> u32 {
        be32(self.head, 12)
    }

    /// Destination address, host order.
    #[inline(always)]
    pub fn dst(&self) -> u32 {
        be32(self.head, 16)
    }

    /// Time to live.
    #[inline(always)]
    pub fn ttl(&self) -> u8 {
        self.head[8]
    }

    /// The header checksum field.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        be16(self.head, 10)
    }

    /// Sets the source address; the checksum is the caller's.
    #[inline(always)]
    pub fn set_src(&mut self, address: u32) {
        put32(self.head, 12, address);
    }

    /// Sets the destination address; the checksum is the caller's.
    #[inline(always)]
    pub fn set_dst(&mut self, address: u32) {
        put32(self.head, 16, address);
    }

    /// Sets the time to live; the checksum is the caller's.
    #[inline(always)]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.head[8] = ttl;
    }

    /// Sets the source address, updates the header checksum and returns the change, which the transport
    /// checksum needs too because of the pseudo-header.
    #[inline(always)]
    pub fn rewrite_src(&mut self, address: u32) -> Delta {
        let delta = Delta::of_u32(self.src(), address);
        self.set_src(address);
        self.apply(delta);
        delta
    }

    /// As [`Ipv4Mut::rewrite_src`], for the destination.
    #[inline(always)]
    pub fn rewrite_dst(&mut self, address: u32) -> Delta {
        let delta = Delta::of_u32(self.dst(), address);
        self.set_dst(address);
        self.apply(delta);
        delta
    }

    /// Takes one from the TTL and updates the checksum; a TTL of 0 stays 0. Returns the new TTL.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) -> u8 {
        let ttl = self.head[8];
        let new = ttl.saturating_sub(1);
        self.head[8] = new;
        self.apply(Delta::of_u16(u16::from(ttl) << 8, u16::from(new) << 8));
        new
    }

    /// Sets the identification and updates the checksum.
    #[inline]
    pub fn rewrite_identification(&mut self, identification: u16) {
        let delta = Delta::of_u16(be16(self.head, 4), identification);
        put16(self.head, 4, identification);
        self.apply(delta);
    }

    /// Applies a change to the header checksum.
    #[inline(always)]
    pub fn apply(&mut self, delta: Delta) {
        let checksum = delta.apply(self.checksum());
        put16(self.head, 10, checksum);
    }

    /// Computes the header checksum from scratch.
    #[inline]
    pub fn fill_checksum(&mut self) {
        put16(self.head, 10, 0);
        let options_len = self.header_len().saturating_sub(HEADER_LEN);
        let options = self.rest.get(..options_len).unwrap_or(&[]);
        let sum = checksum::Sum::ZERO.with_bytes(self.head).with_bytes(options);
        put16(self.head, 10, sum.checksum());
    }

    /// The octets behind the header.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let options_len = self.header_len().saturating_sub(HEADER_LEN);
        self.rest.get_mut(options_len..).unwrap_or(&mut [])
    }

    /// The octets behind the header, for as long as the packet itself is borrowed.
    #[inline]
    pub fn into_payload(self) -> &'a mut [u8] {
        let options_len = self.header_len().saturating_sub(HEADER_LEN);
        self.rest.get_mut(options_len..).unwrap_or(&mut [])
    }
}

/// The fields of a header without options, to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// DSCP and ECN.
    pub tos: u8,
    /// Octets of payload behind the 20 of this header.
    pub payload_len: u16,
    /// Identification.
    pub identification: u16,
    /// Flags and fragment offset as on the wire.
    pub flags_and_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address, host order.
    pub src: u32,
    /// Destination address, host order.
    pub dst: u32,
}

impl Ipv4Header {
    /// The 20 octets, checksum filled in. A payload above 65,515 octets saturates the total length.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut head = [0u8; HEADER_LEN];
        self.write(&mut head);
        head
    }

    /// As [`Ipv4Header::to_bytes`], where the header is to be: whole words are stored, and the checksum is added up
    /// from the fields rather than read back.
    #[inline(always)]
    pub fn write(&self, out: &mut [u8; HEADER_LEN]) {
        let total = self.payload_len.saturating_add(HEADER_LEN as u16);
        let first = 0x4500_0000 | u32::from(self.tos) << 16 | u32::from(total);
        let second = u32::from(self.identification) << 16 | u32::from(self.flags_and_offset);
        let third = u32::from(self.ttl) << 24 | u32::from(self.protocol) << 16;
        let sum = checksum::Sum::ZERO.with_u32(first).with_u32(second).with_u32(third);
        let sum = sum.with_u32(self.src).with_u32(self.dst).checksum();
        put32(out, 0, first);
        put32(out, 4, second);
        put32(out, 8, third | u32::from(sum));
        put32(out, 12, self.src);
        put32(out, 16, self.dst);
    }
}
