//! IPv4 and IPv6 prefixes.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

use crate::family::Family;

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

/// A prefix of one version. A macro, because what a generic type does cannot be `const` where traits are asked.
macro_rules! prefix_type {
    ($name:ident, $number:ty, $address:ty, $what:literal, $all:literal, $example:literal) => {
        #[doc = concat!("An ", $what, " prefix in host byte order. Host bits are zero.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            address: $number,
            len: u8,
        }

        impl $name {
            /// Bits of an address.
            const BITS: u8 = <$number>::BITS as u8;
            #[doc = concat!("`", $all, "`.")]
            pub const DEFAULT: Self = Self { address: 0, len: 0 };

            /// The network mask of a prefix length; lengths over the address's count as its.
            #[inline]
            const fn mask(len: u8) -> $number {
                match len {
                    0 => 0,
                    1..Self::BITS => <$number>::MAX << (Self::BITS - len),
                    _ => <$number>::MAX,
                }
            }

            /// The prefix of `len` bits that holds `address`; host bits are cleared, lengths over the address's count
            /// as its.
            #[must_use]
            pub const fn of(address: $number, len: u8) -> Self {
                let len = if len > Self::BITS { Self::BITS } else { len };
                Self { address: address & Self::mask(len), len }
            }

            /// First address, host byte order.
            #[must_use]
            pub const fn address(self) -> $number {
                self.address
            }

            /// Prefix length in bits.
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
            pub const fn last(self) -> $number {
                self.address | !Self::mask(self.len)
            }

            /// Is `address` inside?
            #[inline]
            #[must_use]
            pub const fn contains(self, address: $number) -> bool {
                address & Self::mask(self.len) == self.address
            }

            /// Do the two share an address?
            #[must_use]
            pub const fn overlaps(self, other: Self) -> bool {
                let shorter = if self.len < other.len { self.len } else { other.len };
                (self.address ^ other.address) & Self::mask(shorter) == 0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!("{}/{}", <$address>::from(self.address), self.len))
            }
        }

        impl FromStr for $name {
            type Err = PrefixError;

            fn from_str(text: &str) -> Result<Self, PrefixError> {
                let (address, len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
                let ip: $address = address.parse().map_err(|_| {
                    PrefixError(format!(
                        concat!("`{}` is not an ", $what, " prefix; write it like ", $example),
                        text
                    ))
                })?;
                let len = len.map_or(Some(Self::BITS), |len| len.parse().ok());
                let len = len.filter(|len| *len <= Self::BITS).ok_or_else(|| {
                    let most = Self::BITS;
                    PrefixError(format!(
                        "`{text}` has no valid prefix length; write a number from 0 to {most} after the slash"
                    ))
                })?;
                let prefix = Self::of(ip.into(), len);
                if prefix.address != <$number>::from(ip) {
                    return Err(PrefixError(format!("`{text}` has host bits set; did you mean {prefix}?")));
                }
                Ok(prefix)
            }
        }
    };
}

prefix_type!(Prefix4, u32, Ipv4Addr, "IPv4", "0.0.0.0/0", "192.0.2.0/24");
prefix_type!(Prefix6, u128, Ipv6Addr, "IPv6", "::/0", "2001:db8::/32");

impl Prefix4 {
    /// The directed broadcast address of an ordinary subnet (`/30` and shorter).
    #[must_use]
    pub const fn broadcast(self) -> Option<u32> {
        if self.len <= 30 { Some(self.last()) } else { None }
    }
}

impl Prefix6 {
    /// The address that all routers of a link with this prefix have, but on links between two of them (RFC 4291 §2.6.1,
    /// RFC 6164 §5).
    #[must_use]
    pub const fn router_anycast(self) -> Option<u128> {
        if self.len < 127 { Some(self.address) } else { None }
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

    /// Does one hold the other? Never where their versions differ.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        match (self, other) {
            (Self::V4(one), Self::V4(other)) => one.overlaps(other),
            (Self::V6(one), Self::V6(other)) => one.overlaps(other),
            _ => false,
        }
    }

    /// The prefix of that length that holds `address`; longer than an address is all of it.
    #[must_use]
    pub fn of(address: IpAddr, len: u8) -> Self {
        match address {
            IpAddr::V4(address) => Self::V4(Prefix4::of(address.into(), len)),
            IpAddr::V6(address) => Self::V6(Prefix6::of(address.into(), len)),
        }
    }

    /// Its first address.
    #[must_use]
    pub fn first(self) -> IpAddr {
        match self {
            Self::V4(prefix) => Ipv4Addr::from(prefix.address()).into(),
            Self::V6(prefix) => Ipv6Addr::from(prefix.address()).into(),
        }
    }

    /// Bits that addresses inside have in common.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a number of bits, no number of things")]
    pub const fn len(self) -> u8 {
        match self {
            Self::V4(prefix) => prefix.len(),
            Self::V6(prefix) => prefix.len(),
        }
    }

    /// Does it hold one address only?
    #[must_use]
    pub const fn is_host(self) -> bool {
        match self {
            Self::V4(prefix) => prefix.len() == 32,
            Self::V6(prefix) => prefix.len() == 128,
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

    #[test]
    fn ipv4_prefix_with_host_bits_names_the_right_one() {
        let error = "10.1.2.3/24".parse::<Prefix4>().unwrap_err();
        assert!(error.0.contains("10.1.2.0/24"), "{error}");
    }

    #[test]
    fn ipv4_prefix_edges_hold() {
        assert_eq!("0.0.0.0/0".parse::<Prefix4>().unwrap(), Prefix4::DEFAULT);
        assert!(Prefix4::DEFAULT.contains(u32::MAX));
        let host: Prefix4 = "192.0.2.7".parse().unwrap();
        assert_eq!((host.len(), host.address(), host.last()), (32, 0xc000_0207, 0xc000_0207));
        assert_eq!("192.0.2.0/24".parse::<Prefix4>().unwrap().broadcast(), Some(0xc000_02ff));
        assert!("192.0.2.0/33".parse::<Prefix4>().is_err());
    }

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
    fn link_between_two_routers_has_no_address_of_all_routers() {
        // RFC 4291 §2.6.1, RFC 6164 §5
        assert_eq!(prefix("2001:db8::/64").router_anycast(), Some(0x2001_0db8 << 96));
        assert_eq!(prefix("2001:db8::4/126").router_anycast(), Some(0x2001_0db8 << 96 | 4));
        assert_eq!(prefix("2001:db8::/127").router_anycast(), None);
        assert_eq!(prefix("2001:db8::/128").router_anycast(), None);
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
    fn prefixes_of_either_version_overlap_their_own_only() {
        let prefix = |text: &str| text.parse::<Prefix>().unwrap();
        let six = prefix("2001:db8:100::/56");
        assert_eq!(Prefix::of("2001:db8:100:0:9::5".parse().unwrap(), 56), six);
        assert!(six.overlaps(prefix("2001:db8:100:0:9::5")) && prefix("2001:db8:100:0:9::5").overlaps(six));
        assert!(!six.overlaps(prefix("2001:db8:100:100::5")) && !six.overlaps(prefix("0.0.0.0/0")));
        assert!(prefix("10.0.0.0/8").overlaps(prefix("10.1.0.0/16")));
        assert!(!six.is_host() && prefix("10.0.0.1").is_host() && prefix("2001:db8::1").is_host());
        assert_eq!((six.len(), prefix("10.0.0.1").len()), (56, 32));
    }

    #[test]
    fn a_prefix_holds_no_address_of_the_other_version() {
        let (four, six): (Prefix, Prefix) = ("0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap());
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "::ffff:192.0.2.1".parse().unwrap());
        assert!(four.contains(a) && !four.contains(b) && six.contains(b) && !six.contains(a));
        assert_eq!((four.to_string(), six.to_string()), ("0.0.0.0/0".into(), "::/0".into()));
    }
}
