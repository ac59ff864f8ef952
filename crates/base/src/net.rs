//! IPv4 prefixes and address ranges.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

/// An IPv4 prefix in host byte order. Host bits are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix4 {
    address: u32,
    len: u8,
}

/// Why a text is no prefix or range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixError(
    /// One sentence that says what is wrong and what to write.
    pub String,
);

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for PrefixError {}

/// The network mask of a prefix length; lengths over 32 count as 32.
#[inline]
const fn mask(len: u8) -> u32 {
    match len {
        0 => 0,
        1..=32 => u32::MAX << (32 - len),
        _ => u32::MAX,
    }
}

impl Prefix4 {
    /// `0.0.0.0/0`.
    pub const DEFAULT: Self = Self { address: 0, len: 0 };

    /// The prefix of `len` bits that holds `address`; host bits are cleared, lengths over 32 count as 32.
    #[must_use]
    pub const fn of(address: u32, len: u8) -> Self {
        let len = if len > 32 { 32 } else { len };
        Self { address: address & mask(len), len }
    }

    /// First address, host byte order.
    #[must_use]
    pub const fn address(self) -> u32 {
        self.address
    }

    /// Prefix length in bits, 0 to 32.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "the length of a prefix, not of a collection")]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// True for `/0`.
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.len == 0
    }

    /// Last address, host byte order.
    #[must_use]
    pub const fn last(self) -> u32 {
        self.address | !mask(self.len)
    }

    /// Is `address` inside?
    #[inline]
    #[must_use]
    pub const fn contains(self, address: u32) -> bool {
        address & mask(self.len) == self.address
    }

    /// The same addresses as a range.
    #[must_use]
    pub const fn range(self) -> Range4 {
        Range4 { first: self.address, last: self.last() }
    }

    /// The directed broadcast address of an ordinary subnet (`/30` and shorter).
    #[must_use]
    pub const fn broadcast(self) -> Option<u32> {
        if self.len <= 30 { Some(self.last()) } else { None }
    }
}

impl fmt::Display for Prefix4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", Ipv4Addr::from(self.address), self.len))
    }
}

impl FromStr for Prefix4 {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = text.split_once('/').unwrap_or((text, "32"));
        let ip: Ipv4Addr = address.parse().map_err(|_| {
            PrefixError(format!("`{text}` is not an IPv4 prefix; write it like 192.0.2.0/24"))
        })?;
        let len: u8 = len.parse().ok().filter(|len| *len <= 32).ok_or_else(|| {
            PrefixError(format!(
                "`{text}` has no valid prefix length; write a number from 0 to 32 after the slash"
            ))
        })?;
        let prefix = Self::of(ip.into(), len);
        if prefix.address != u32::from(ip) {
            return Err(PrefixError(format!("`{text}` has host bits set; did you mean {prefix}?")));
        }
        Ok(prefix)
    }
}

/// A closed range of IPv4 addresses, host byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range4 {
    /// First address.
    pub first: u32,
    /// Last address, not below `first`.
    pub last: u32,
}

impl Range4 {
    /// Number of addresses.
    #[must_use]
    pub const fn count(self) -> u64 {
        (self.last - self.first) as u64 + 1
    }

    /// Is `address` inside?
    #[inline]
    #[must_use]
    pub const fn contains(self, address: u32) -> bool {
        self.first <= address && address <= self.last
    }

    /// Do the two share an address?
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for Range4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (Ipv4Addr::from(self.first), Ipv4Addr::from(self.last));
        if first == last { f.pad(&first.to_string()) } else { f.pad(&format!("{first}-{last}")) }
    }
}

impl FromStr for Range4 {
    type Err = PrefixError;

    /// `192.0.2.1`, `192.0.2.1-192.0.2.9` or `192.0.2.0/24`.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let Some((first, last)) = text.split_once('-') else {
            return text.parse::<Prefix4>().map(Prefix4::range);
        };
        let parse = |part: &str| {
            part.trim().parse::<Ipv4Addr>().map(u32::from).map_err(|_| {
                PrefixError(format!("`{text}` is not an address range; write it like 192.0.2.1-192.0.2.9"))
            })
        };
        let range = Self { first: parse(first)?, last: parse(last)? };
        if range.first > range.last {
            return Err(PrefixError(format!("`{text}` runs backwards; put the lower address first")));
        }
        Ok(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_with_host_bits_names_the_right_one() {
        let error = "10.1.2.3/24".parse::<Prefix4>().unwrap_err();
        assert!(error.0.contains("10.1.2.0/24"), "{error}");
    }

    #[test]
    fn prefix_edges_hold() {
        assert_eq!("0.0.0.0/0".parse::<Prefix4>().unwrap(), Prefix4::DEFAULT);
        assert!(Prefix4::DEFAULT.contains(u32::MAX));
        let host: Prefix4 = "192.0.2.7".parse().unwrap();
        assert_eq!((host.len(), host.address(), host.last()), (32, 0xc000_0207, 0xc000_0207));
        assert_eq!("192.0.2.0/24".parse::<Prefix4>().unwrap().broadcast(), Some(0xc000_02ff));
        assert!("192.0.2.0/33".parse::<Prefix4>().is_err());
    }

    #[test]
    fn ranges_read_all_three_forms_and_refuse_backwards() {
        assert_eq!("10.0.0.0/30".parse::<Range4>().unwrap().count(), 4);
        assert_eq!("10.0.0.1-10.0.0.3".parse::<Range4>().unwrap().count(), 3);
        assert_eq!("10.0.0.1".parse::<Range4>().unwrap().count(), 1);
        assert!("10.0.0.3-10.0.0.1".parse::<Range4>().is_err());
    }
}
