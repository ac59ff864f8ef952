//! IPv4 addresses embedded in IPv6 addresses (RFC 6052).

#[cfg(test)]
mod tests;

use crate::global::is_global;
use carrack_base::{Prefix4, Prefix6};
use std::fmt;

/// `64:ff9b::/96` (RFC 6052 §2.1).
pub const WELL_KNOWN: Prefix6 = Prefix6::of(0x0064_ff9b << 96, 96);
/// `64:ff9b:1::/48`, for local use with any algorithm and any IPv4 address (RFC 8215).
pub const LOCAL_USE: Prefix6 = Prefix6::of(0x0064_ff9b_0001 << 80, 48);
/// The lengths a prefix may have, in bits (RFC 6052 §2.2).
pub const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

/// Octet `u`: bits 64 to 71.
const U: u128 = 0xff << 56;
/// What of the lower half is behind the octet `u`.
const BEHIND_U: u64 = (1 << 56) - 1;

/// Why a prefix cannot embed IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadPrefix {
    /// The length is none of [`LENGTHS`].
    Length(u8),
    /// Bits 64 to 71 of a /96 are not zero.
    OctetU,
    /// Part of the well-known prefix, or around it: that is 96 bits long and nothing else.
    NotWellKnown,
    /// Multicast, link local, unspecified or loopback.
    NotUnicast,
}

impl fmt::Display for BadPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadPrefix::Length(len) => {
                write!(f, "a translation prefix has 32, 40, 48, 56, 64 or 96 bits, not {len} (RFC 6052 §2.2)")
            }
            BadPrefix::OctetU => f.write_str("bits 64 to 71 of a /96 prefix must be zero (RFC 6052 §2.2)"),
            BadPrefix::NotWellKnown => f.write_str(
                "64:ff9b::/96 can only be used with 96 bits; for private use take a part of 64:ff9b:1::/48 (RFC 8215)",
            ),
            BadPrefix::NotUnicast => f.write_str("a translation prefix must be unicast, and not link local"),
        }
    }
}

impl std::error::Error for BadPrefix {}

/// Why an IPv6 address does not stand for an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEmbedded {
    /// It is outside the prefix.
    Outside,
    /// It pairs the well-known prefix with a non-global IPv4 address: the packet is dropped (RFC 6052 §3.1).
    NonGlobal,
}

/// A prefix that embeds IPv4 addresses (RFC 6052 §2.2), with the shifts that its length needs, so that both ways
/// take a few instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NatPrefix {
    prefix: Prefix6,
    network: u128,
    mask: u128,
    /// How far the octets before `u` are from the low end of an IPv4 address; 32 when there are none.
    high_shift: u8,
    /// How far the octets behind `u` are from the low end of the IPv6 address.
    low_shift: u8,
    low_mask: u64,
    /// Bits that are the same in all that [`NatPrefix::embed`] gives.
    fixed: u128,
    is_well_known: bool,
}

impl NatPrefix {
    /// Prepares `prefix`.
    ///
    /// # Errors
    /// [`BadPrefix`].
    pub const fn new(prefix: Prefix6) -> Result<NatPrefix, BadPrefix> {
        let len = prefix.len();
        if !matches!(len, 32 | 40 | 48 | 56 | 64 | 96) {
            return Err(BadPrefix::Length(len));
        }
        if prefix.address() & U != 0 {
            return Err(BadPrefix::OctetU);
        }
        let is_well_known = len == 96 && prefix.address() == WELL_KNOWN.address();
        if prefix.overlaps(WELL_KNOWN) && !is_well_known {
            return Err(BadPrefix::NotWellKnown);
        }
        let first = prefix.address() >> 96;
        if first == 0 || first >> 24 == 0xff || first >> 22 == 0xfe80 >> 6 {
            return Err(BadPrefix::NotUnicast);
        }
        let (high_shift, low_shift, low_mask) =
            if len == 96 { (32, 0, u64::MAX) } else { (len - 32, 88 - len, BEHIND_U) };
        let mask = u128::MAX << (128 - len);
        let (network, fixed) = (prefix.address(), u128::MAX);
        let all = NatPrefix { prefix, network, mask, high_shift, low_shift, low_mask, fixed, is_well_known };
        Ok(NatPrefix { fixed: !(all.embed(u32::MAX) ^ network), ..all })
    }

    /// The prefix as configured.
    pub const fn prefix(&self) -> Prefix6 {
        self.prefix
    }

    /// Whether this is `64:ff9b::/96`, under which only global IPv4 addresses may stand.
    pub const fn is_well_known(&self) -> bool {
        self.is_well_known
    }

    /// Whether the address starts with the prefix.
    #[inline(always)]
    pub const fn contains(&self, address: u128) -> bool {
        (address ^ self.network) & self.mask == 0
    }

    /// The IPv6 address that stands for `address` (host order); octet `u` and suffix are zero
    /// (RFC 6052 §2.3). Of a /96 it may be written with a dotted quad (RFC 6052 §2.4).
    #[inline(always)]
    pub const fn embed(&self, address: u32) -> u128 {
        let address = address as u64;
        let high = address >> self.high_shift;
        let low = (address << self.low_shift) & self.low_mask;
        self.network | (high as u128) << 64 | low as u128
    }

    /// The IPv6 prefix of all addresses that stand for one of `prefix`; octet `u`, where those bits reach it, counts among
    /// its bits.
    pub const fn embed_prefix(&self, prefix: Prefix4) -> Prefix6 {
        let (own, end) = (self.prefix.len(), self.prefix.len() + prefix.len());
        let len = if own < 96 && end > 64 { end + 8 } else { end };
        Prefix6::of(self.embed(prefix.address()), len)
    }

    /// The IPv4 address (host order) in an address of this prefix, which the caller has checked with
    /// [`NatPrefix::contains`]. Octet `u` is left out and the suffix ignored (RFC 6052 §2.2 and §2.3).
    #[inline(always)]
    pub const fn extract_unchecked(&self, address: u128) -> u32 {
        let high = ((address >> 64) as u64) << self.high_shift;
        let low = (address as u64 & self.low_mask) >> self.low_shift;
        (high | low) as u32
    }

    /// Whether [`NatPrefix::embed`] gives this address for some IPv4 address: octet `u` and suffix are zero.
    #[inline(always)]
    pub const fn is_canonical(&self, address: u128) -> bool {
        (address ^ self.network) & self.fixed == 0
    }

    /// The IPv4 address (host order) for which `address` stands.
    ///
    /// # Errors
    /// [`NotEmbedded`].
    #[inline(always)]
    pub const fn extract(&self, address: u128) -> Result<u32, NotEmbedded> {
        if !self.contains(address) {
            return Err(NotEmbedded::Outside);
        }
        let inner = self.extract_unchecked(address);
        if self.is_well_known && !is_global(inner) { Err(NotEmbedded::NonGlobal) } else { Ok(inner) }
    }

    /// As [`NatPrefix::embed`], unless RFC 6052 §3.1 forbids the pair.
    ///
    /// # Errors
    /// [`NotEmbedded::NonGlobal`].
    #[inline(always)]
    pub const fn embed_checked(&self, address: u32) -> Result<u128, NotEmbedded> {
        if self.is_well_known && !is_global(address) {
            Err(NotEmbedded::NonGlobal)
        } else {
            Ok(self.embed(address))
        }
    }
}
