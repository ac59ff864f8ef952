//! Cutting an IPv4 packet to a link's MTU (RFC 791 §3.2, "An Example Fragmentation Procedure").

#[cfg(test)]
mod tests;

use crate::checksum;
use crate::ipv4::{FLAG_DF, FLAG_MF, HEADER_LEN, HEADER_LEN_MAX, Ipv4View, OFFSET_MASK, Options};
use crate::put16;
use std::fmt;

/// Why a packet cannot be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentError {
    /// The sender forbids it; a "fragmentation needed" is due (RFC 4787 REQ-13).
    DontFragment,
    /// The MTU leaves no room for 8 octets behind the header.
    MtuTooSmall,
    /// The options make no sense, so which to copy is unknown.
    BadOptions,
    /// The fragments would end beyond the longest datagram.
    BadOffset,
}

impl fmt::Display for FragmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FragmentError::DontFragment => "packet is too big for the link and forbids fragmenting",
            FragmentError::MtuTooSmall => "MTU leaves no room for a fragment",
            FragmentError::BadOptions => "malformed IPv4 options, packet cannot be fragmented",
            FragmentError::BadOffset => "fragment would end beyond 65,535 octets",
        })
    }
}

impl std::error::Error for FragmentError {}

/// One fragment to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Where its octets start in the payload of the packet being cut.
    pub payload_offset: usize,
    /// Octets of payload; a multiple of 8 except in the last.
    pub payload_len: usize,
    /// Octets of header: the first fragment has all options, later ones only the copied.
    pub header_len: usize,
    /// Flags and offset on the wire, counted from the start of the whole datagram.
    pub flags_and_offset: u16,
}

impl Fragment {
    /// Octets of the whole fragment.
    pub fn total_len(&self) -> usize {
        self.header_len + self.payload_len
    }
}

/// The fragments of one packet, in order. A packet that fits gives itself as the only one.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    packet: Ipv4View<'a>,
    mtu: usize,
    next_offset: usize,
    later_header: [u8; HEADER_LEN_MAX],
    later_header_len: usize,
    done: bool,
}

impl<'a> Fragments<'a> {
    /// Plans the fragments of `packet` for a link that takes IP packets of `mtu` octets. They come in order and
    /// each fits (RFC 4787 REQ-13a); a packet that is itself a fragment keeps its place in the whole datagram.
    ///
    /// # Errors
    /// [`FragmentError`]; none for a packet that fits.
    pub fn plan(packet: Ipv4View<'a>, mtu: usize) -> Result<Fragments<'a>, FragmentError> {
        let mut plan = Fragments {
            packet,
            mtu,
            next_offset: 0,
            later_header: [0; HEADER_LEN_MAX],
            later_header_len: HEADER_LEN,
            done: false,
        };
        if packet.packet().len() <= mtu {
            return Ok(plan);
        }
        if packet.dont_fragment() {
            return Err(FragmentError::DontFragment);
        }
        if mtu < packet.header_len() + 8 {
            return Err(FragmentError::MtuTooSmall);
        }
        if packet.fragment_offset() as usize + packet.payload().len() > usize::from(u16::MAX) {
            return Err(FragmentError::BadOffset);
        }
        plan.build_later_header()?;
        Ok(plan)
    }

    /// Writes `fragment`, one of this plan's, into `out`, checksum filled in, and returns its length; `None`
    /// when `out` is too short.
    pub fn write(&self, fragment: &Fragment, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..fragment.total_len())?;
        let (header, payload) = out.split_at_mut_checked(fragment.header_len)?;
        let source = if fragment.payload_offset == 0 {
            self.packet.header()
        } else {
            self.later_header.get(..fragment.header_len)?
        };
        header.copy_from_slice(source);
        let head = header.first_chunk_mut::<HEADER_LEN>()?;
        put16(head, 2, u16::try_from(fragment.total_len()).ok()?);
        put16(head, 6, fragment.flags_and_offset);
        put16(head, 10, 0);
        let sum = checksum::checksum(header);
        put16(header.first_chunk_mut::<HEADER_LEN>()?, 10, sum);
        let from = fragment.payload_offset;
        payload.copy_from_slice(self.packet.payload().get(from..from + fragment.payload_len)?);
        Some(fragment.total_len())
    }

    /// The header of every fragment but the first: only options with the copied flag, padded to a word.
    fn build_later_header(&mut self) -> Result<(), FragmentError> {
        let options = self.packet.options();
        if !Options::are_valid(options.clone()) {
            return Err(FragmentError::BadOptions);
        }
        let fixed = self.packet.header().get(..HEADER_LEN).ok_or(FragmentError::BadOptions)?;
        let mut at = HEADER_LEN;
        self.later_header.get_mut(..HEADER_LEN).ok_or(FragmentError::BadOptions)?.copy_from_slice(fixed);
        for option in options.filter(|option| option.is_copied()) {
            let to =
                self.later_header.get_mut(at..at + option.bytes.len()).ok_or(FragmentError::BadOptions)?;
            to.copy_from_slice(option.bytes);
            at += option.bytes.len();
        }
        // What is left of the last word is zero: the end of the option list.
        self.later_header_len = at.next_multiple_of(4);
        self.later_header[0] = 0x40 | (self.later_header_len / 4) as u8;
        Ok(())
    }
}

impl Iterator for Fragments<'_> {
    type Item = Fragment;

    fn next(&mut self) -> Option<Fragment> {
        if self.done {
            return None;
        }
        let is_first = self.next_offset == 0;
        let header_len = if is_first { self.packet.header_len() } else { self.later_header_len };
        let left = self.packet.payload().len().saturating_sub(self.next_offset);
        let is_last = header_len + left <= self.mtu;
        let payload_len = if is_last { left } else { self.mtu.saturating_sub(header_len) & !7 };
        let original = self.packet.flags_and_offset();
        let offset = (original & OFFSET_MASK) + (self.next_offset / 8) as u16;
        let more = if is_last { original & FLAG_MF } else { FLAG_MF };
        let fragment = Fragment {
            payload_offset: self.next_offset,
            payload_len,
            header_len,
            flags_and_offset: (original & FLAG_DF) | more | (offset & OFFSET_MASK),
        };
        self.next_offset += payload_len;
        self.done = is_last;
        Some(fragment)
    }
}
