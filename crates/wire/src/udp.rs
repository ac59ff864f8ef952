//! UDP headers (RFC 768).

#[cfg(test)]
mod tests;

use crate::checksum::{self, Delta};
use crate::ipv4::protocol;
use crate::{be16, put16};
use std::fmt;

/// Octets of the header.
pub const HEADER_LEN: usize = 8;

/// Why bytes are not a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpError {
    /// Fewer octets than a header.
    Truncated,
    /// The length field is below 8 or beyond the end of the packet.
    BadLength,
}

impl fmt::Display for UdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UdpError::Truncated => "packet ends inside its UDP header",
            UdpError::BadLength => "UDP length is below 8 or beyond the end of the packet",
        })
    }
}

impl std::error::Error for UdpError {}

/// A checked UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct UdpView<'a> {
    head: &'a [u8; HEADER_LEN],
    datagram: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// Checks the datagram in an IP payload; octets behind its own length are left out.
    ///
    /// # Errors
    /// [`UdpError`]. The first fragment of a datagram fails with `BadLength`; read it with `parse_quoted`.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<UdpView<'a>, UdpError> {
        let head = bytes.first_chunk::<HEADER_LEN>().ok_or(UdpError::Truncated)?;
        let length = usize::from(be16(head, 4));
        if length < HEADER_LEN {
            return Err(UdpError::BadLength);
        }
        let datagram = bytes.get(..length).ok_or(UdpError::BadLength)?;
        Ok(UdpView { head, datagram })
    }

    /// Checks only that the header is there: for a first fragment or a quotation in an ICMP error.
    ///
    /// # Errors
    /// [`UdpError::Truncated`].
    #[inline]
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<UdpView<'a>, UdpError> {
        let head = bytes.first_chunk::<HEADER_LEN>().ok_or(UdpError::Truncated)?;
        Ok(UdpView { head, datagram: bytes })
    }

    /// Source port.
    #[inline(always)]
    pub fn src_port(&self) -> u16 {
        be16(self.head, 0)
    }

    /// Destination port.
    #[inline(always)]
    pub fn dst_port(&self) -> u16 {
        be16(self.head, 2)
    }

    /// Length field: header and payload in octets.
    #[inline(always)]
    pub fn length(&self) -> u16 {
        be16(self.head, 4)
    }

    /// Checksum field; 0 means "none".
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        be16(self.head, 6)
    }

    /// The octets behind the header.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.datagram.get(HEADER_LEN..).unwrap_or(&[])
    }

    /// Whether the checksum is absent or right, for a whole datagram between these addresses.
    pub fn checksum_ok(&self, src: u32, dst: u32) -> bool {
        self.checksum() == 0
            || self.checksum_ok_under(checksum::pseudo_v4(src, dst, protocol::UDP, self.length()))
    }

    /// As [`UdpView::checksum_ok`] for IPv6, where an absent checksum is wrong (RFC 8200 §8.1).
    pub fn checksum_ok_v6(&self, src: u128, dst: u128) -> bool {
        self.checksum() != 0
            && self.checksum_ok_under(checksum::pseudo_v6(src, dst, protocol::UDP, self.length().into()))
    }

    fn checksum_ok_under(&self, pseudo: checksum::Sum) -> bool {
        pseudo.with_bytes(self.datagram).fold() == 0xffff
    }
}

/// A UDP header whose fields can be changed.
#[derive(Debug)]
pub struct UdpMut<'a> {
    head: &'a mut [u8; HEADER_LEN],
    payload: &'a mut [u8],
}

impl<'a> UdpMut<'a> {
    /// As [`UdpView::parse`].
    ///
    /// # Errors
    /// As [`UdpView::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<UdpMut<'a>, UdpError> {
        let length = usize::from(UdpView::parse(bytes)?.length());
        UdpMut::parse_quoted(bytes.get_mut(..length).ok_or(UdpError::BadLength)?)
    }

    /// As [`UdpView::parse_quoted`].
    ///
    /// # Errors
    /// As [`UdpView::parse_quoted`].
    #[inline]
    pub fn parse_quoted(bytes: &'a mut [u8]) -> Result<UdpMut<'a>, UdpError> {
        let (head, payload) = bytes.split_first_chunk_mut().ok_or(UdpError::Truncated)?;
        Ok(UdpMut { head, payload })
    }

    /// Source port.
    #[inline(always)]
    pub fn src_port(&self) -> u16 {
        be16(self.head, 0)
    }

    /// Destination port.
    #[inline(always)]
    pub fn dst_port(&self) -> u16 {
        be16(self.head, 2)
    }

    /// Checksum field; 0 means "none".
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        be16(self.head, 6)
    }

    /// Sets the source port; the checksum is the caller's.
    #[inline(always)]
    pub fn set_src_port(&mut self, port: u16) {
        put16(self.head, 0, port);
    }

    /// Sets the destination port; the checksum is the caller's.
    #[inline(always)]
    pub fn set_dst_port(&mut self, port: u16) {
        put16(self.head, 2, port);
    }

    /// Applies a change to the checksum under UDP's rules for zero.
    #[inline(always)]
    pub fn apply(&mut self, delta: Delta) {
        let checksum = delta.apply_udp(self.checksum());
        put16(self.head, 6, checksum);
    }

    /// Computes the checksum from scratch, for a whole datagram between these addresses.
    pub fn fill_checksum(&mut self, src: u32, dst: u32) {
        self.fill_checksum_under(checksum::pseudo_v4(src, dst, protocol::UDP, be16(self.head, 4)));
    }

    /// As [`UdpMut::fill_checksum`], between IPv6 addresses.
    pub fn fill_checksum_v6(&mut self, src: u128, dst: u128) {
        self.fill_checksum_under(checksum::pseudo_v6(src, dst, protocol::UDP, be16(self.head, 4).into()));
    }

    fn fill_checksum_under(&mut self, pseudo: checksum::Sum) {
        put16(self.head, 6, 0);
        put16(self.head, 6, pseudo.with_bytes(self.head).with_bytes(self.payload).udp_checksum());
    }

    /// The octets behind the header.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        self.payload
    }
}
