//! The walk over an Ethernet header and up to two 802.1Q/802.1ad tags.

#[cfg(test)]
mod tests;

use crate::ethernet::{MacAddr, ethertype};
use std::fmt;

/// Octets of one tag.
pub const TAG_LEN: usize = 4;
/// Tags a frame may carry: one service and one customer tag.
pub const TAGS_MAX: usize = 2;

/// What the link layer says about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct L2 {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// VLAN identifiers (12 bits), outermost first; those from `vlan_count` on are 0.
    pub vlans: [u16; TAGS_MAX],
    /// Number of tags: 0, 1 or 2. A priority tag (identifier 0) counts.
    pub vlan_count: u8,
    /// Type of the payload; never a tag type.
    pub ethertype: u16,
    /// Octets from the start of the frame to the payload: 14, 18 or 22.
    pub payload_offset: u8,
}

impl L2 {
    /// The tags that are there, outermost first.
    #[inline]
    pub fn tags(&self) -> &[u16] {
        self.vlans.get(..usize::from(self.vlan_count)).unwrap_or(&[])
    }
}

/// Why a frame's link layer cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2Error {
    /// The frame ends inside its header or a tag.
    Truncated,
    /// More than two tags.
    TooManyTags,
}

impl fmt::Display for L2Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            L2Error::Truncated => "frame ends inside its Ethernet header or VLAN tag",
            L2Error::TooManyTags => "frame carries more than two VLAN tags",
        })
    }
}

impl std::error::Error for L2Error {}

/// Whether `ethertype` announces a tag. Either number is accepted at either place, as devices disagree.
#[inline(always)]
pub const fn is_tag(ethertype: u16) -> bool {
    ethertype == ethertype::VLAN || ethertype == ethertype::QINQ
}

/// Reads addresses, tags and payload type of `frame`.
///
/// # Errors
/// [`L2Error::Truncated`] when the frame ends before its payload type, [`L2Error::TooManyTags`] when a third
/// tag follows the second.
#[inline]
pub fn parse_l2(frame: &[u8]) -> Result<L2, L2Error> {
    let (head, mut rest) = frame.split_first_chunk::<14>().ok_or(L2Error::Truncated)?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *head;
    let mut l2 = L2 {
        dst: MacAddr([d0, d1, d2, d3, d4, d5]),
        src: MacAddr([s0, s1, s2, s3, s4, s5]),
        vlans: [0; TAGS_MAX],
        vlan_count: 0,
        ethertype: u16::from_be_bytes([t0, t1]),
        payload_offset: 14,
    };
    while is_tag(l2.ethertype) {
        let (tag, behind) = rest.split_first_chunk::<TAG_LEN>().ok_or(L2Error::Truncated)?;
        let slot = l2.vlans.get_mut(usize::from(l2.vlan_count)).ok_or(L2Error::TooManyTags)?;
        *slot = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
        l2.ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        l2.vlan_count += 1;
        l2.payload_offset += TAG_LEN as u8;
        rest = behind;
    }
    Ok(l2)
}

/// Writes a header with `vlans` (outermost first, at most two) into `out` and returns its length in octets, or
/// `None` when it does not fit. Two tags are written as service then customer tag (802.1ad), one as 802.1Q.
pub fn write_l2(out: &mut [u8], dst: MacAddr, src: MacAddr, vlans: &[u16], ethertype: u16) -> Option<usize> {
    let length = 14 + TAG_LEN * vlans.len();
    if vlans.len() > TAGS_MAX {
        return None;
    }
    let out = out.get_mut(..length)?;
    out.get_mut(..6)?.copy_from_slice(&dst.0);
    out.get_mut(6..12)?.copy_from_slice(&src.0);
    let mut at = 12;
    for (index, vid) in vlans.iter().enumerate() {
        let outer_of_two = index == 0 && vlans.len() == 2;
        let tpid = if outer_of_two { ethertype::QINQ } else { ethertype::VLAN };
        out.get_mut(at..at + 2)?.copy_from_slice(&tpid.to_be_bytes());
        out.get_mut(at + 2..at + 4)?.copy_from_slice(&(vid & 0x0fff).to_be_bytes());
        at += TAG_LEN;
    }
    out.get_mut(at..at + 2)?.copy_from_slice(&ethertype.to_be_bytes());
    Some(length)
}
