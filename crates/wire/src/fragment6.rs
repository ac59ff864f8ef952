//! Cutting an IPv6 packet (RFC 8200 §4.5). Only the source of a packet may do so, and a translator, which acts
//! for a source that allowed it (RFC 7915 §4.1).

#[cfg(test)]
mod tests;

use crate::ipv6::{FRAGMENT_HEADER_LEN, FragmentHeader, HEADER_LEN, Ipv6View};
use std::fmt;

/// Why a packet cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment6Error {
    /// The MTU leaves no room for 8 octets behind the headers.
    MtuTooSmall,
    /// The packet has extension headers other than a fragment header: only packets of this edge are cut.
    HasExtensions,
    /// The fragments would end beyond 65,535 octets of payload (RFC 8200 §4.5).
    BadOffset,
}

impl fmt::Display for Fragment6Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fragment6Error::MtuTooSmall => "MTU leaves no room for an IPv6 fragment",
            Fragment6Error::HasExtensions => "IPv6 packet with extension headers cannot be fragmented",
            Fragment6Error::BadOffset => "IPv6 fragment would end beyond 65,535 octets",
        })
    }
}

impl std::error::Error for Fragment6Error {}

/// One fragment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment6 {
    /// Where its octets start in the fragmentable part of the packet being cut.
    pub payload_offset: usize,
    /// Octets of the fragmentable part; a multiple of 8 except in the last.
    pub payload_len: usize,
    /// Its fragment header; `None` when the packet fits and had none.
    pub header: Option<FragmentHeader>,
}

impl Fragment6 {
    /// Octets of the whole fragment.
    pub fn total_len(&self) -> usize {
        HEADER_LEN + self.header.map_or(0, |_| FRAGMENT_HEADER_LEN) + self.payload_len
    }
}

/// The fragments of one packet, in order. A packet that fits gives itself as the only one.
#[derive(Clone, Debug)]
pub struct Fragments6<'a> {
    packet: Ipv6View<'a>,
    /// The fragmentable part.
    payload: &'a [u8],
    /// What the packet's own fragment header says, or one for a whole datagram.
    whole: FragmentHeader,
    is_as_it_is: bool,
    mtu: usize,
    next_offset: usize,
    done: bool,
}

impl<'a> Fragments6<'a> {
    /// Plans the fragments of `packet` for a path that takes IPv6 packets of `mtu` octets. A packet with a
    /// fragment header, an atomic one for instance, keeps its place and its identification; one without gets
    /// `identification`.
    ///
    /// # Errors
    /// [`Fragment6Error`]; none for a packet that fits.
    pub fn plan(
        packet: Ipv6View<'a>,
        mtu: usize,
        identification: u32,
    ) -> Result<Fragments6<'a>, Fragment6Error> {
        let is_as_it_is = packet.packet().len() <= mtu;
        let mut whole = FragmentHeader {
            at: HEADER_LEN as u16,
            next_header: packet.next_header(),
            offset: 0,
            more: false,
            identification,
        };
        let mut payload = packet.payload();
        if !is_as_it_is {
            let found = packet.extensions().map_err(|_| Fragment6Error::HasExtensions)?;
            if let Some(own) = found.fragment {
                whole = own;
                payload = payload.get(FRAGMENT_HEADER_LEN..).unwrap_or(&[]);
            }
            let is_foreign = found.is_any() && found.fragment.is_none();
            if is_foreign || usize::from(whole.at) != HEADER_LEN {
                return Err(Fragment6Error::HasExtensions);
            }
            if mtu < HEADER_LEN + FRAGMENT_HEADER_LEN + 8 {
                return Err(Fragment6Error::MtuTooSmall);
            }
            if usize::from(whole.offset) + payload.len() > usize::from(u16::MAX) {
                return Err(Fragment6Error::BadOffset);
            }
        }
        Ok(Fragments6 { packet, payload, whole, is_as_it_is, mtu, next_offset: 0, done: false })
    }

    /// Writes `fragment`, one of this plan's, into `out` and returns its length; `None` when `out` is too short.
    pub fn write(&self, fragment: &Fragment6, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..fragment.total_len())?;
        let (headers, payload) = out.split_at_mut_checked(fragment.total_len() - fragment.payload_len)?;
        let (head, behind) = headers.split_first_chunk_mut::<HEADER_LEN>()?;
        *head = *self.packet.header();
        let payload_length = u16::try_from(behind.len() + payload.len()).ok()?;
        crate::put16(head, 4, payload_length);
        if let Some(header) = &fragment.header {
            head[6] = crate::ipv6::next_header::FRAGMENT;
            *behind.first_chunk_mut()? = header.to_bytes();
        }
        let from = fragment.payload_offset;
        payload.copy_from_slice(self.payload.get(from..from + fragment.payload_len)?);
        Some(fragment.total_len())
    }
}

impl Iterator for Fragments6<'_> {
    type Item = Fragment6;

    fn next(&mut self) -> Option<Fragment6> {
        if self.done {
            return None;
        }
        let left = self.payload.len().saturating_sub(self.next_offset);
        if self.is_as_it_is {
            self.done = true;
            return Some(Fragment6 { payload_offset: 0, payload_len: left, header: None });
        }
        let room = self.mtu.saturating_sub(HEADER_LEN + FRAGMENT_HEADER_LEN);
        let is_last = left <= room;
        let payload_len = if is_last { left } else { room & !7 };
        let header = FragmentHeader {
            offset: self.whole.offset + self.next_offset as u16,
            more: !is_last || self.whole.more,
            ..self.whole
        };
        let fragment = Fragment6 { payload_offset: self.next_offset, payload_len, header: Some(header) };
        self.next_offset += payload_len;
        self.done = is_last;
        Some(fragment)
    }
}
