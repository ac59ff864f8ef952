//! IPv4 address ranges.

use core::fmt;
use core::net::Ipv4Addr;
use core::str::FromStr;

use crate::prefix::{Prefix4, PrefixError};

/// A closed range of IPv4 addresses, host byte order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range4 {
    /// First address.
    pub first: u32,
    /// Last address, not below `first`.
    pub last: u32,
}

impl Prefix4 {
    /// The same addresses as a range.
    #[must_use]
    pub const fn range(self) -> Range4 {
        Range4 { first: self.address(), last: self.last() }
    }
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
    fn ranges_read_all_three_forms_and_refuse_backwards() {
        assert_eq!("10.0.0.0/30".parse::<Range4>().unwrap().count(), 4);
        assert_eq!("10.0.0.1-10.0.0.3".parse::<Range4>().unwrap().count(), 3);
        assert_eq!("10.0.0.1".parse::<Range4>().unwrap().count(), 1);
        assert!("10.0.0.3-10.0.0.1".parse::<Range4>().is_err());
    }
}
