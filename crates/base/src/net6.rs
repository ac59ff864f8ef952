//! IPv6 prefixes, and which of the two IP versions a thing is of.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use crate::net::{Prefix4, PrefixError};

/// IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Family {
    /// IPv4.
    #[default]
    V4 = 0,
    /// IPv6.
    V6 = 1,
}

/// An IPv6 prefix in host byte order. Host bits are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix6 {
    address: u128,
    len: u8,
}

/// The network mask of a prefix length; lengths over 128 count as 128.
#[inline]
const fn mask(len: u8) -> u128 {
    match len {
        0 => 0,
        1..=128 => u128::MAX << (128 - len),
        _ => u128::MAX,
    }
}

impl Prefix6 {
    /// `::/0`.
    pub const DEFAULT: Self = Self { address: 0, len: 0 };

    /// The prefix of `len` bits that holds `address`; host bits are cleared, lengths over 128 count as 128.
    #[must_use]
    pub const fn of(address: u128, len: u8) -> Self {
        let len = if len > 128 { 128 } else { len };
        Self { address: address & mask(len), len }
    }

    /// First address, host byte order.
    #[must_use]
    pub const fn address(self) -> u128 {
        self.address
    }

    /// Prefix length in bits, 0 to 128.
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
    pub const fn last(self) -> u128 {
        self.address | !mask(self.len)
    }

    /// Is `address` inside?
    #[inline]
    #[must_use]
    pub const fn contains(self, address: u128) -> bool {
        address & mask(self.len) == self.address
    }

    /// Do the two share an address?
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        let shorter = if self.len < other.len { self.len } else { other.len };
        (self.address ^ other.address) & mask(shorter) == 0
    }
}

impl fmt::Display for Prefix6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", Ipv6Addr::from(self.address), self.len))
    }
}

impl FromStr for Prefix6 {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, len) = text.split_once('/').unwrap_or((text, "128"));
        let ip: Ipv6Addr = address.parse().map_err(|_| {
            PrefixError(format!("`{text}` is not an IPv6 prefix; write it like 2001:db8::/32"))
        })?;
        let len: u8 = len.parse().ok().filter(|len| *len <= 128).ok_or_else(|| {
            PrefixError(format!(
                "`{text}` has no valid prefix length; write a number from 0 to 128 after the slash"
            ))
        })?;
        let prefix = Self::of(ip.into(), len);
        if prefix.address != u128::from(ip) {
            return Err(PrefixError(format!("`{text}` has host bits set; did you mean {prefix}?")));
        }
        Ok(prefix)
    }
}

/// A prefix of either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Prefix {
    /// IPv4.
    V4(Prefix4),
    /// IPv6.
    V6(Prefix6),
}

impl Prefix {
    /// Is `address` inside? Never one of the other version.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match (self, address) {
            (Self::V4(prefix), IpAddr::V4(address)) => prefix.contains(address.into()),
            (Self::V6(prefix), IpAddr::V6(address)) => prefix.contains(address.into()),
            _ => false,
        }
    }

    /// IP version.
    #[must_use]
    pub const fn family(self) -> Family {
        match self {
            Self::V4(_) => Family::V4,
            Self::V6(_) => Family::V6,
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(prefix) => prefix.fmt(f),
            Self::V6(prefix) => prefix.fmt(f),
        }
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        if text.contains(':') { text.parse().map(Self::V6) } else { text.parse().map(Self::V4) }
    }
}

impl From<Prefix4> for Prefix {
    fn from(prefix: Prefix4) -> Self {
        Self::V4(prefix)
    }
}

impl From<Prefix6> for Prefix {
    fn from(prefix: Prefix6) -> Self {
        Self::V6(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix6 {
        text.parse().unwrap()
    }

    #[test]
    fn prefix_edges_hold() {
        assert_eq!(prefix("::/0"), Prefix6::DEFAULT);
        assert!(Prefix6::DEFAULT.contains(u128::MAX));
        let host = prefix("2001:db8::7");
        assert_eq!((host.len(), host.address(), host.last()), (128, host.last(), host.address()));
        assert!("2001:db8::/129".parse::<Prefix6>().is_err());
        assert_eq!(Prefix6::of(u128::MAX, 200).len(), 128);
    }

    #[test]
    fn prefix_with_host_bits_names_the_right_one() {
        let error = "2001:db8::1/64".parse::<Prefix6>().unwrap_err();
        assert!(error.0.contains("2001:db8::/64"), "{error}");
    }

    #[test]
    fn prefixes_overlap_only_when_one_holds_the_other() {
        assert!(prefix("2001:db8::/32").overlaps(prefix("2001:db8:1::/48")));
        assert!(prefix("2001:db8:1::/48").overlaps(prefix("2001:db8::/32")));
        assert!(!prefix("2001:db8:1::/48").overlaps(prefix("2001:db8:2::/48")));
        assert!(prefix("::/0").overlaps(prefix("2001:db8::/32")));
    }

    #[test]
    fn a_prefix_holds_no_address_of_the_other_version() {
        let (four, six): (Prefix, Prefix) = ("0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap());
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "::ffff:192.0.2.1".parse().unwrap());
        assert!(four.contains(a) && !four.contains(b) && six.contains(b) && !six.contains(a));
        assert_eq!((four.to_string(), six.to_string()), ("0.0.0.0/0".into(), "::/0".into()));
    }
}
