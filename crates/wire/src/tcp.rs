//! TCP headers (RFC 9293).

mod options;
#[cfg(test)]
mod tests;

pub use options::{TcpOption, TcpOptions};

use crate::checksum::{self, Delta};
use crate::ipv4::protocol;
use crate::{be16, be32, put16, put32};
use std::fmt;

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Octets of the header that an ICMP error is sure to quote: ports and sequence number.
pub const QUOTED_LEN_MIN: usize = 8;

/// The control bits.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronise sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset the connection.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgement field counts.
    pub const ACK: u8 = 0x10;
    /// The urgent pointer counts.
    pub const URG: u8 = 0x20;
    /// ECN echo (RFC 3168).
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced (RFC 3168).
    pub const CWR: u8 = 0x80;
}

/// Why bytes are not a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpError {
    /// Fewer octets than the header needs.
    Truncated,
    /// The data offset is below 5 words.
    BadDataOffset,
}

impl fmt::Display for TcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TcpError::Truncated => "packet ends inside its TCP header",
            TcpError::BadDataOffset => "TCP data offset is below 20 octets",
        })
    }
}

impl std::error::Error for TcpError {}

/// A checked TCP segment, or the first fragment of one that holds the whole header.
#[derive(Clone, Copy, Debug)]
pub struct TcpView<'a> {
    head: &'a [u8; HEADER_LEN],
    segment: &'a [u8],
}

impl<'a> TcpView<'a> {
    /// Checks the segment that fills `bytes`, an IP payload.
    ///
    /// # Errors
    /// [`TcpError`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<TcpView<'a>, TcpError> {
        let head = bytes.first_chunk::<HEADER_LEN>().ok_or(TcpError::Truncated)?;
        let offset = usize::from(head[12] >> 4) * 4;
        if offset < HEADER_LEN {
            return Err(TcpError::BadDataOffset);
        }
        if offset > bytes.len() {
            return Err(TcpError::Truncated);
        }
        Ok(TcpView { head, segment: bytes })
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

    /// Sequence number.
    #[inline(always)]
    pub fn seq(&self) -> u32 {
        be32(self.head, 4)
    }

    /// Acknowledgement number.
    #[inline(always)]
    pub fn ack(&self) -> u32 {
        be32(self.head, 8)
    }

    /// Header length in octets: 20 to 60.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.head[12] >> 4) * 4
    }

    /// The control bits, see [`flag`].
    #[inline(always)]
    pub fn flags(&self) -> u8 {
        self.head[13]
    }

    /// Whether all bits of `mask` are set.
    #[inline(always)]
    pub fn has(&self, mask: u8) -> bool {
        self.head[13] & mask == mask
    }

    /// Whether this opens a connection: SYN without ACK, RST or FIN.
    #[inline(always)]
    pub fn is_opening(&self) -> bool {
        self.head[13] & (flag::SYN | flag::ACK | flag::RST | flag::FIN) == flag::SYN
    }

    /// Window field, not scaled.
    #[inline(always)]
    pub fn window(&self) -> u16 {
        be16(self.head, 14)
    }

    /// Checksum field.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        be16(self.head, 16)
    }

    /// The raw options area: 0 to 40 octets.
    #[inline]
    pub fn options_bytes(&self) -> &'a [u8] {
        self.segment.get(HEADER_LEN..self.header_len()).unwrap_or(&[])
    }

    /// The options one by one.
    #[inline]
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions::new(self.options_bytes())
    }

    /// The maximum segment size announced, if any.
    pub fn mss(&self) -> Option<u16> {
        self.options().find_map(|option| option.mss())
    }

    /// The octets behind the header.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.segment.get(self.header_len()..).unwrap_or(&[])
    }

    /// Whether the checksum is right, for a whole segment between these addresses.
    pub fn checksum_ok(&self, src: u32, dst: u32) -> bool {
        let Ok(length) = u16::try_from(self.segment.len()) else { return false };
        checksum::pseudo_v4(src, dst, protocol::TCP, length).with_bytes(self.segment).fold() == 0xffff
    }

    /// As [`TcpView::checksum_ok`], between IPv6 addresses.
    pub fn checksum_ok_v6(&self, src: u128, dst: u128) -> bool {
        let pseudo = checksum::pseudo_v6(src, dst, protocol::TCP, self.segment.len() as u32);
        pseudo.with_bytes(self.segment).fold() == 0xffff
    }
}

/// A TCP header whose fields can be changed.
#[derive(Debug)]
pub struct TcpMut<'a> {
    head: &'a mut [u8; HEADER_LEN],
    rest: &'a mut [u8],
}

impl<'a> TcpMut<'a> {
    /// As [`TcpView::parse`].
    ///
    /// # Errors
    /// As [`TcpView::parse`].
    #[inline]
    pub fn parse(bytes: &'a mut [u8]) -> Result<TcpMut<'a>, TcpError> {
        TcpView::parse(bytes)?;
        let (head, rest) = bytes.split_first_chunk_mut().ok_or(TcpError::Truncated)?;
        Ok(TcpMut { head, rest })
    }

    /// Header length in octets.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.head[12] >> 4) * 4
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

    /// Checksum field.
    #[inline(always)]
    pub fn checksum(&self) -> u16 {
        be16(self.head, 16)
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

    /// Sets the sequence number and updates the checksum, for gateways that change the length of the stream.
    pub fn rewrite_seq(&mut self, seq: u32) {
        let delta = Delta::of_u32(be32(self.head, 4), seq);
        put32(self.head, 4, seq);
        self.apply(delta);
    }

    /// As [`TcpMut::rewrite_seq`], for the acknowledgement number.
    pub fn rewrite_ack(&mut self, ack: u32) {
        let delta = Delta::of_u32(be32(self.head, 8), ack);
        put32(self.head, 8, ack);
        self.apply(delta);
    }

    /// Applies a change to the checksum.
    #[inline(always)]
    pub fn apply(&mut self, delta: Delta) {
        let checksum = delta.apply(self.checksum());
        put16(self.head, 16, checksum);
    }

    /// Lowers the announced maximum segment size to `mss_max` octets, checksum included. Returns whether it did.
    pub fn clamp_mss(&mut self, mss_max: u16) -> bool {
        let options_len = self.header_len().saturating_sub(HEADER_LEN);
        let options = self.rest.get_mut(..options_len).unwrap_or(&mut []);
        let Some(at) = TcpOptions::mss_value_offset(options) else { return false };
        let Some(field) = options.get_mut(at..at + 2).and_then(|field| field.as_mut_array::<2>()) else {
            return false;
        };
        let old = u16::from_be_bytes(*field);
        if old <= mss_max {
            return false;
        }
        *field = mss_max.to_be_bytes();
        let odd = at % 2 == 1;
        self.apply(if odd { Delta::of_u16_at_odd_offset(old, mss_max) } else { Delta::of_u16(old, mss_max) });
        true
    }

    /// Computes the checksum from scratch, for a whole segment between these addresses.
    pub fn fill_checksum(&mut self, src: u32, dst: u32) {
        let length = u16::try_from(HEADER_LEN + self.rest.len()).unwrap_or(u16::MAX);
        self.fill_checksum_under(checksum::pseudo_v4(src, dst, protocol::TCP, length));
    }

    /// As [`TcpMut::fill_checksum`], between IPv6 addresses.
    pub fn fill_checksum_v6(&mut self, src: u128, dst: u128) {
        let length = (HEADER_LEN + self.rest.len()) as u32;
        self.fill_checksum_under(checksum::pseudo_v6(src, dst, protocol::TCP, length));
    }

    fn fill_checksum_under(&mut self, pseudo: checksum::Sum) {
        put16(self.head, 16, 0);
        put16(self.head, 16, pseudo.with_bytes(self.head).with_bytes(self.rest).checksum());
    }

    /// The octets behind the header.
    #[inline(always)]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let options_len = self.header_len().saturating_sub(HEADER_LEN);
        self.rest.get_mut(options_len..).unwrap_or(&mut [])
    }
}
