//! The Internet checksum (RFC 1071) and its incremental update (RFC 1624 equation 3).
//!
//! All values are in host order, as read with `u16::from_be_bytes`.

#[cfg(test)]
mod tests;

/// A running ones-complement sum. Every piece but the last must have an even number of octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The empty sum.
    pub const ZERO: Sum = Sum(0);

    /// Adds one 16-bit field.
    #[inline(always)]
    #[must_use]
    pub fn with_u16(self, value: u16) -> Sum {
        Sum(self.0 + u64::from(value))
    }

    /// Adds one 32-bit field, an IPv4 address for instance.
    #[inline(always)]
    #[must_use]
    pub fn with_u32(self, value: u32) -> Sum {
        // As 2^16 counts as 1 in ones-complement arithmetic, the halves need not be added one by one.
        Sum(self.0 + u64::from(value))
    }

    /// Adds one 128-bit field, an IPv6 address for instance.
    #[inline(always)]
    #[must_use]
    pub fn with_u128(self, value: u128) -> Sum {
        let (high, low) = ((value >> 64) as u64, value as u64);
        let (sum, carry) = high.overflowing_add(low);
        Sum(self.0 + (sum >> 32) + (sum & 0xffff_ffff) + u64::from(carry))
    }

    /// Takes away one 32-bit field that was added elsewhere: its complement is added (RFC 1624 equation 3).
    #[inline(always)]
    #[must_use]
    pub fn without_u32(self, value: u32) -> Sum {
        self.with_u32(!value)
    }

    /// Takes away one 128-bit field that was added elsewhere: its complement is added (RFC 1624 equation 3).
    #[inline(always)]
    #[must_use]
    pub fn without_u128(self, value: u128) -> Sum {
        self.with_u128(!value)
    }

    /// Adds `bytes`; an odd last octet is padded with a zero behind it (RFC 1071 §1).
    #[inline]
    #[must_use]
    pub fn with_bytes(self, bytes: &[u8]) -> Sum {
        Sum(self.0 + u64::from(sum(bytes)))
    }

    /// The field that was `checksum` before the changes that this sum holds: old values taken away, new ones
    /// added. As [`Delta::apply`], with one fold for all of them.
    #[inline(always)]
    pub fn update(self, checksum: u16) -> u16 {
        self.with_u16(!checksum).checksum()
    }

    /// As [`Sum::update`] under UDP's rules: 0 means "none" and stays 0; a result of 0 is sent as 0xffff.
    #[inline(always)]
    pub fn update_udp(self, checksum: u16) -> u16 {
        if checksum == 0 { 0 } else { udp_never_zero(self.update(checksum)) }
    }

    /// The sum folded to 16 bits: 0 only when everything added was zero.
    #[inline(always)]
    pub fn fold(self) -> u16 {
        fold64(self.0)
    }

    /// The checksum field for what was added: the complement of the folded sum.
    #[inline(always)]
    pub fn checksum(self) -> u16 {
        !self.fold()
    }

    /// The checksum field under UDP's rule: a computed 0 is sent as 0xffff (RFC 768), as 0 means "none".
    #[inline(always)]
    pub fn udp_checksum(self) -> u16 {
        udp_never_zero(self.checksum())
    }
}

/// The folded ones-complement sum of `bytes`, eight octets at a time.
#[inline]
pub fn sum(bytes: &[u8]) -> u16 {
    // Octets are added in native order and the result is swapped once: the sum does not depend on byte order
    // (RFC 1071 §2 B). Halves of 32 bits cannot overflow 64 bits below 2^33 words, so no carry is tracked.
    let mut total = 0u64;
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_ne_bytes(*word);
        total += (word & 0xffff_ffff) + (word >> 32);
    }
    let mut last = [0u8; 8];
    for (to, from) in last.iter_mut().zip(tail) {
        *to = *from;
    }
    let word = u64::from_ne_bytes(last);
    total += (word & 0xffff_ffff) + (word >> 32);
    u16::from_be(fold64(total))
}

/// The checksum of `bytes`, whose own checksum field must be zero or left out.
#[inline]
pub fn checksum(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// Whether `bytes`, checksum field included, sum to all ones (RFC 1071 §1 (3)).
#[inline]
pub fn verify(bytes: &[u8]) -> bool {
    sum(bytes) == 0xffff
}

/// The IPv4 pseudo-header of TCP and UDP: addresses, protocol and segment length in octets (RFC 793 §3.1).
#[inline(always)]
pub fn pseudo_v4(src: u32, dst: u32, protocol: u8, length: u16) -> Sum {
    Sum::ZERO.with_u32(src).with_u32(dst).with_u16(u16::from(protocol)).with_u16(length)
}

/// The IPv6 pseudo-header: addresses in host order, upper-layer packet length in octets, next header
/// (RFC 8200 §8.1). With a routing header the destination is the final one.
#[inline(always)]
pub fn pseudo_v6(src: u128, dst: u128, next_header: u8, length: u32) -> Sum {
    Sum::ZERO.with_u128(src).with_u128(dst).with_u32(length).with_u16(u16::from(next_header))
}

/// What a change of fields does to a checksum: the `~m + m'` of RFC 1624 equation 3, folded to 16 bits.
///
/// A session keeps one per direction: deltas of several fields add up, and the negated delta undoes the
/// change, so the reverse direction needs no second computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Delta(u16);

impl Delta {
    /// No change.
    pub const ZERO: Delta = Delta(0);

    /// The change of one 16-bit field at an even offset: a port, an identifier.
    #[inline(always)]
    pub const fn of_u16(old: u16, new: u16) -> Delta {
        Delta(fold32(!old as u32 + new as u32))
    }

    /// The change of one 32-bit field at an even offset: an IPv4 address.
    #[inline(always)]
    pub const fn of_u32(old: u32, new: u32) -> Delta {
        let old = !old;
        Delta(fold32((old >> 16) + (old & 0xffff) + (new >> 16) + (new & 0xffff)))
    }

    /// The change of one 16-bit field at an odd offset, where its octets sit in two different words.
    #[inline(always)]
    pub const fn of_u16_at_odd_offset(old: u16, new: u16) -> Delta {
        Delta::of_u16(old.swap_bytes(), new.swap_bytes())
    }

    /// The change of one 128-bit field at an even offset: an IPv6 address.
    #[inline(always)]
    pub fn of_u128(old: u128, new: u128) -> Delta {
        Delta::of_sums(Sum::ZERO.with_u128(old), Sum::ZERO.with_u128(new))
    }

    /// The change of fields that add up to `old` into fields that add up to `new`, not necessarily of the same
    /// sizes: a pair of IPv4 addresses into a pair of IPv6 addresses, as the pseudo-header of a translated
    /// packet changes (RFC 1624 equation 3; RFC 7915 §4.5 and §5.5).
    #[inline(always)]
    pub fn of_sums(old: Sum, new: Sum) -> Delta {
        Delta::of_u16(old.fold(), new.fold())
    }

    /// Both changes together.
    #[inline(always)]
    #[must_use]
    pub const fn plus(self, other: Delta) -> Delta {
        Delta(fold32(self.0 as u32 + other.0 as u32))
    }

    /// The change that undoes this one.
    #[inline(always)]
    #[must_use]
    pub const fn negated(self) -> Delta {
        Delta(!self.0)
    }

    /// Updates an IPv4, TCP or ICMP checksum: `HC' = ~(~HC + ~m + m')` (RFC 1624 §3).
    #[inline(always)]
    #[must_use]
    pub const fn apply(self, checksum: u16) -> u16 {
        let (sum, carry) = (!checksum).overflowing_add(self.0);
        !(sum + carry as u16)
    }

    /// Updates the checksum in an ICMP message, the rest of whose header is as it is to be. Of zeros alone the sum is +0,
    /// which no update makes (RFC 1624 §3): an echo reply may be that. Nothing happens to what is shorter than a header.
    #[inline]
    pub fn apply_icmp(self, message: &mut [u8]) {
        let Some([kind, code, c0, c1, rest @ ..]) = message.first_chunk_mut::<8>() else { return };
        let checksum = self.apply(u16::from_be_bytes([*c0, *c1]));
        let is_blank = (*kind, *code, *rest) == (0, 0, [0; 4]);
        // With anything else behind the header both are right.
        [*c0, *c1] = if checksum == 0 && is_blank { [0xff; 2] } else { checksum.to_be_bytes() };
    }

    /// Updates a UDP checksum: 0 means "none" and stays 0; a result of 0 is sent as 0xffff (RFC 768).
    #[inline(always)]
    #[must_use]
    pub const fn apply_udp(self, checksum: u16) -> u16 {
        if checksum == 0 { 0 } else { udp_never_zero(self.apply(checksum)) }
    }

    /// The 16 bits, for storage in a session line.
    #[inline(always)]
    pub const fn to_bits(self) -> u16 {
        self.0
    }

    /// The delta stored by [`Delta::to_bits`].
    #[inline(always)]
    pub const fn from_bits(bits: u16) -> Delta {
        Delta(bits)
    }
}

#[inline(always)]
const fn udp_never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[inline(always)]
const fn fold32(sum: u32) -> u16 {
    // Two folds suffice: the first leaves at most 0x1_fffe.
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[inline(always)]
const fn fold64(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    fold32(sum as u32)
}
