//! Values as people write them: durations, sizes, port ranges, endpoints, interface addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use carrack_base::{Prefix4, Prefix6};

/// A closed range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// First port.
    pub first: u16,
    /// Last port, not below `first`.
    pub last: u16,
}

impl PortRange {
    /// Number of ports.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.last as u32 - self.first as u32 + 1
    }

    /// Do the two share a port?
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl Default for PortRange {
    /// Everything above the system ports.
    fn default() -> Self {
        Self { first: 1024, last: u16::MAX }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for PortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |part: &str| part.trim().parse::<u16>().ok().filter(|port| *port > 0);
        match (port(first), port(last)) {
            (Some(first), Some(last)) if first <= last => Ok(Self { first, last }),
            (Some(_), Some(_)) => Err(format!("`{text}` runs backwards; put the lower port first")),
            _ => Err(format!(
                "`{text}` is not a range of ports; write it like 1024-65535, with ports from 1 to 65535"
            )),
        }
    }
}

/// An IPv4 address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Endpoint {
    /// Address, host byte order.
    pub address: u32,
    /// Port, 1 to 65535.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", Ipv4Addr::from(self.address), self.port)
    }
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not an address and port; write it like 192.0.2.1:8080, with a port from 1 to 65535"
            )
        };
        let (address, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?;
        Ok(Self { address: address.into(), port })
    }
}

/// An inside address of either IP version and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostEndpoint {
    /// Address.
    pub address: IpAddr,
    /// Port, 1 to 65535.
    pub port: u16,
}

impl fmt::Display for HostEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

impl FromStr for HostEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = text.parse().ok().filter(|read: &SocketAddr| read.port() > 0);
        let Some(read) = read else {
            return Err(format!(
                "`{text}` is not an address and port; write it like 192.0.2.1:8080 or [2001:db8::1]:8080, with a port from 1 to 65535"
            ));
        };
        Ok(Self { address: read.ip(), port: read.port() })
    }
}

/// An interface's own address and its subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddress {
    /// The router's address, host byte order.
    pub address: u32,
    /// The subnet it is in.
    pub subnet: Prefix4,
}

impl fmt::Display for InterfaceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.address), self.subnet.len())
    }
}

impl FromStr for InterfaceAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not an address with a prefix length; write it like 192.0.2.1/24");
        let (address, len) = text.split_once('/').ok_or_else(wrong)?;
        let address = u32::from(address.parse::<Ipv4Addr>().map_err(|_| wrong())?);
        let len: u8 = len.parse().ok().filter(|len| (1..=32).contains(len)).ok_or_else(wrong)?;
        let subnet = Prefix4::of(address, len);
        if !is_host_address(address) {
            return Err(format!("`{text}` is no address that a host may have; give a unicast address"));
        }
        if len <= 30 && (address == subnet.address() || address == subnet.last()) {
            let which = if address == subnet.address() { "network" } else { "broadcast" };
            return Err(format!(
                "`{text}` is the {which} address of {subnet}; give one of the addresses between {} and {}",
                Ipv4Addr::from(subnet.address() + 1),
                Ipv4Addr::from(subnet.last() - 1)
            ));
        }
        Ok(Self { address, subnet })
    }
}

/// An interface's own IPv6 address and its subnet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddress6 {
    /// The router's address, host byte order; its link-local one when it is of `fe80::/10`.
    pub address: u128,
    /// The subnet it is in.
    pub subnet: Prefix6,
}

impl fmt::Display for InterfaceAddress6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from(self.address), self.subnet.len())
    }
}

impl FromStr for InterfaceAddress6 {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not an address with a prefix length; write it like 2001:db8::1/64");
        let (address, len) = text.split_once('/').ok_or_else(wrong)?;
        let address = u128::from(address.parse::<Ipv6Addr>().map_err(|_| wrong())?);
        let len: u8 = len.parse().ok().filter(|len| (1..=128).contains(len)).ok_or_else(wrong)?;
        let subnet = Prefix6::of(address, len);
        if !is_host_address6(address) {
            return Err(format!("`{text}` is no address that a host may have; give a unicast address"));
        }
        if subnet.router_anycast() == Some(address) {
            return Err(format!(
                "`{text}` is the address of all routers of {subnet}; give another one, like {}/{len}",
                Ipv6Addr::from(address + 1)
            ));
        }
        Ok(Self { address, subnet })
    }
}

/// An interface's own address of either version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnAddress {
    V4(InterfaceAddress),
    V6(InterfaceAddress6),
}

impl fmt::Display for OwnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(own) => own.fmt(f),
            Self::V6(own) => own.fmt(f),
        }
    }
}

impl FromStr for OwnAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(':') { text.parse().map(Self::V6) } else { text.parse().map(Self::V4) }
    }
}

/// May a host have this IPv6 address: neither unspecified, loopback, IPv4-mapped nor multicast (RFC 4291 §2.5, §2.7)?
pub(crate) const fn is_host_address6(address: u128) -> bool {
    address > 1 && address >> 32 != 0xffff && address >> 120 != 0xff
}

/// May a host have this address: neither `0.0.0.0/8`, loopback, multicast nor reserved (RFC 1122 §3.2.1.3)?
pub(crate) const fn is_host_address(address: u32) -> bool {
    let first = address >> 24;
    first != 0 && first != 127 && first < 224
}

/// Seconds from `300`, `"300"`, `"5m"`, `"2h4m"`, `"1d"`.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    if let Ok(plain) = text.parse::<u64>() {
        return Some(plain);
    }
    let (mut total, mut number, mut last_unit) = (0u64, None::<u64>, u64::MAX);
    for c in text.chars() {
        if let Some(digit) = c.to_digit(10) {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(u64::from(digit))?);
            continue;
        }
        let unit = match c {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => 86_400,
            _ => return None,
        };
        // Units go from large to small, each once: `4m2h` is more likely a mistake than a wish.
        if unit >= last_unit {
            return None;
        }
        last_unit = unit;
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    (number.is_none() && last_unit != u64::MAX).then_some(total)
}

/// A number from `"65536"`, `"64k"`, `"1M"`, `"2G"`; suffixes are decimal (1k is 1000).
pub(crate) fn count(text: &str) -> Option<u64> {
    let (digits, unit) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1_000),
        b'M' => (&text[..text.len() - 1], 1_000_000),
        b'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let digits = digits.replace('_', "");
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests;
