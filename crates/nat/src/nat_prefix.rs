//! IPv4 addresses within IPv6 prefixes (RFC 6052 §2.2).

use carrack_base::Prefix6;

/// A prefix of one of the six lengths that IPv4 addresses are embedded in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatPrefix {
    prefix: Prefix6,
}

impl NatPrefix {
    /// `None` unless it has 32, 40, 48, 56, 64 or 96 bits and bits 64 to 71 are zero.
    #[must_use]
    pub const fn new(prefix: Prefix6) -> Option<Self> {
        let octet_u = (prefix.address() >> 56) as u8;
        match prefix.len() {
            32 | 40 | 48 | 56 | 64 | 96 if octet_u == 0 => Some(Self { prefix }),
            _ => None,
        }
    }

    /// Is it 64:ff9b::/96 (RFC 6052 §2.1)?
    #[must_use]
    pub const fn is_well_known(&self) -> bool {
        self.prefix.address() == 0x0064_ff9b << 96 && self.prefix.len() == 96
    }

    /// The prefix itself.
    #[must_use]
    pub const fn prefix(&self) -> Prefix6 {
        self.prefix
    }

    /// The IPv6 address that stands for an IPv4 one.
    #[inline]
    #[must_use]
    pub const fn embed(&self, v4: u32) -> u128 {
        let len = self.prefix.len();
        let bits = if len == 96 {
            v4 as u128
        } else {
            // Before octet `u` what fits, the rest behind it.
            let before = 64 - len as u32;
            let wide = (v4 as u64) << before;
            ((wide >> 32) as u128) << 64 | (wide as u32 as u128) << 24
        };
        self.prefix.address() | bits
    }

    /// The IPv4 address in an IPv6 one; `None` when it is not of this prefix. Octet `u` and the suffix are not asked
    /// (RFC 6052 §2.2: to be ignored).
    #[inline]
    #[must_use]
    pub const fn extract(&self, v6: u128) -> Option<u32> {
        if !self.prefix.contains(v6) {
            return None;
        }
        let len = self.prefix.len();
        if len == 96 {
            return Some(v6 as u32);
        }
        let before = 64 - len as u32;
        let high = ((v6 >> 64) as u64) & ((1 << before) - 1);
        let low = (v6 >> 24) as u32;
        Some((((high << 32) | low as u64) >> before) as u32)
    }
}

/// Ranges that are not global, by first and last address (RFC 6890 §2.2.2).
const NOT_GLOBAL: [(u32, u32); 14] = [
    (0x0000_0000, 0x00ff_ffff),
    (0x0a00_0000, 0x0aff_ffff),
    (0x6440_0000, 0x647f_ffff),
    (0x7f00_0000, 0x7fff_ffff),
    (0xa9fe_0000, 0xa9fe_ffff),
    (0xac10_0000, 0xac1f_ffff),
    (0xc000_0000, 0xc000_00ff),
    (0xc000_0200, 0xc000_02ff),
    (0xc0a8_0000, 0xc0a8_ffff),
    (0xc612_0000, 0xc613_ffff),
    (0xc633_6400, 0xc633_64ff),
    (0xcb00_7100, 0xcb00_71ff),
    (0xe000_0000, 0xefff_ffff),
    (0xf000_0000, 0xffff_ffff),
];

/// Is it an address of the Internet?
pub(crate) fn is_global(v4: u32) -> bool {
    !NOT_GLOBAL.iter().any(|(first, last)| (*first..=*last).contains(&v4))
}
