//! The headers of a common packet exchanged in one go: whole TCP or UDP with a checksum, without options or extension
//! headers, that no link need cut. That it is one, its caller has found out, and the new addresses too; every other packet
//! is for [`crate::to_v4()`] and [`crate::to_v6()`], which do the same to these.

#[cfg(test)]
mod tests;

use crate::to_v4::flags_of;
use carrack_wire::checksum::Delta;
use carrack_wire::ipv4::{HEADER_LEN as V4_LEN, protocol};
use carrack_wire::ipv6::HEADER_LEN as V6_LEN;

/// Bytes of an IPv6 packet that an exchange reads: its header, and TCP up to its checksum. Of a shorter packet the last
/// ones are padding.
pub const SIX_BYTES: usize = 58;
/// By how much an IPv6 header is longer than one of IPv4.
pub const SIX_GROWTH: usize = V6_LEN - V4_LEN;

/// The addresses of the packet that is made, in host order, and what all that changes, ports included, changes in the
/// transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends<A> {
    /// Source address.
    pub src: A,
    /// Destination address.
    pub dst: A,
    /// RFC 1624 §3.
    pub change: Delta,
}

impl Ends<u32> {
    /// In place of those of an IPv6 packet, given as source and destination; the ports stay.
    #[inline(always)]
    #[must_use]
    pub fn instead_of((src6, dst6): (u128, u128), (src, dst): (u32, u32)) -> Self {
        Self { src, dst, change: change(!sum_of_six(src6, dst6), sum_of_four(src, dst)) }
    }

    /// Makes an IPv4 packet of the IPv6 packet at the start of `packet`: it begins [`SIX_GROWTH`] bytes further on. The
    /// TTL is one less than the hop limit (RFC 7915 §5.1); the type of service is the traffic class where none is given.
    #[inline(always)]
    pub fn put(&self, packet: &mut [u8; SIX_BYTES], tos: Option<u8>, identification: u16) {
        let word = word_at(packet, 0);
        let tos = tos.unwrap_or((word >> 52) as u8);
        let total = ((word >> 16) as u16).wrapping_add(V4_LEN as u16);
        let (number, ttl) = ((word >> 8) as u8, (word as u8).wrapping_sub(1));
        let first = 0x45 << 56
            | u64::from(tos) << 48
            | u64::from(total) << 32
            | u64::from(identification) << 16
            | u64::from(flags_of(total.into()));
        let second = u64::from(ttl) << 56 | u64::from(number) << 48 | u64::from(self.src);
        let second = second | u64::from(!fold(plus(plus(first, second), self.dst.into()))) << 32;
        // Invariant: constants within the 58 bytes.
        packet[SIX_GROWTH..SIX_GROWTH + 8].copy_from_slice(&first.to_be_bytes());
        packet[SIX_GROWTH + 8..SIX_GROWTH + 16].copy_from_slice(&second.to_be_bytes());
        packet[SIX_GROWTH + 16..SIX_GROWTH + 20].copy_from_slice(&self.dst.to_be_bytes());
        patch(number, self.change, packet);
    }
}

impl Ends<u128> {
    /// In place of those of an IPv4 packet, given as source and destination; the ports stay.
    #[inline(always)]
    #[must_use]
    pub fn instead_of((src4, dst4): (u32, u32), (src, dst): (u128, u128)) -> Self {
        Self { src, dst, change: change(!sum_of_four(src4, dst4), sum_of_six(src, dst)) }
    }

    /// Makes an IPv6 packet of the IPv4 packet that begins [`SIX_GROWTH`] bytes into `packet`: it begins at its start. The
    /// hop limit is one less than the TTL (RFC 7915 §4.1); the traffic class is the type of service where none is given.
    #[inline(always)]
    pub fn put(&self, packet: &mut [u8; SIX_BYTES], traffic_class: Option<u8>) {
        let word = word_at(packet, SIX_GROWTH);
        let class = traffic_class.unwrap_or((word >> 48) as u8);
        let payload = ((word >> 32) as u16).wrapping_sub(V4_LEN as u16);
        // Invariant: constants within the 58 bytes.
        let (ttl, number) = (packet[SIX_GROWTH + 8].wrapping_sub(1), packet[SIX_GROWTH + 9]);
        let first = 6 << 60
            | u64::from(class) << 52
            | u64::from(payload) << 16
            | u64::from(number) << 8
            | u64::from(ttl);
        packet[..8].copy_from_slice(&first.to_be_bytes());
        packet[8..24].copy_from_slice(&self.src.to_be_bytes());
        packet[24..40].copy_from_slice(&self.dst.to_be_bytes());
        patch(number, self.change, packet);
    }
}

/// Eight bytes of the packet as a number.
#[inline(always)]
fn word_at(packet: &[u8; SIX_BYTES], at: usize) -> u64 {
    packet.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_be_bytes(*word))
}

// Sums of ones' complement in 64-bit words: the width of what is added does not matter if carries come back in (RFC 1071
// §2), and the complement of a sum takes away what was added (RFC 1624 §3).

#[inline(always)]
const fn plus(a: u64, b: u64) -> u64 {
    let (sum, carry) = a.overflowing_add(b);
    sum + carry as u64
}

#[inline(always)]
const fn sum_of_four(src: u32, dst: u32) -> u64 {
    src as u64 + dst as u64
}

#[inline(always)]
const fn sum_of_six(src: u128, dst: u128) -> u64 {
    // Four halves in all; their carries wait in the upper half.
    let sum = (src >> 64) + (dst >> 64) + (src as u64 as u128) + (dst as u64 as u128);
    plus((sum >> 64) as u64, sum as u64)
}

/// What a checksum changes by; never zero, for what is taken away and what is added are never both.
#[inline(always)]
const fn change(less: u64, more: u64) -> Delta {
    Delta::from_bits(fold(plus(less, more)))
}

/// A sum as one of 16-bit words.
#[inline(always)]
const fn fold(sum: u64) -> u16 {
    // Halves added crosswise: what the lower sum carries goes to the upper one, where it belongs.
    let sum = (sum.wrapping_add(sum.rotate_left(32)) >> 32) as u32;
    (sum.wrapping_add(sum.rotate_left(16)) >> 16) as u16
}

/// Updates the checksum of the TCP or UDP header at byte 40.
#[inline(always)]
fn patch(number: u8, change: Delta, packet: &mut [u8; SIX_BYTES]) {
    // Invariant: constants within the 58 bytes.
    if number == protocol::UDP {
        let new = change.apply(u16::from_be_bytes([packet[46], packet[47]]));
        // RFC 768, RFC 8200 §8.1: a computed 0 is sent as 0xffff.
        let new = if new == 0 { 0xffff } else { new };
        [packet[46], packet[47]] = new.to_be_bytes();
    } else {
        let new = change.apply(u16::from_be_bytes([packet[56], packet[57]]));
        [packet[56], packet[57]] = new.to_be_bytes();
    }
}
