//! Ethernet II addresses, type numbers and header.

#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

/// Octets of an Ethernet header without tags.
pub const HEADER_LEN: usize = 14;

/// Type numbers this edge tells apart.
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// 802.1Q customer tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag.
    pub const QINQ: u16 = 0x88a8;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
}

/// A 48-bit hardware address.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);
    /// `00:00:00:00:00:00`, not a valid station.
    pub const ZERO: MacAddr = MacAddr([0; 6]);

    /// Whether the group bit is set: multicast or broadcast.
    #[inline(always)]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether this is the broadcast address.
    #[inline(always)]
    pub fn is_broadcast(self) -> bool {
        self == MacAddr::BROADCAST
    }

    /// Whether one station can own this address: neither a group nor all zeros.
    #[inline(always)]
    pub fn is_station(self) -> bool {
        !self.is_group() && self != MacAddr::ZERO
    }
}

impl From<[u8; 6]> for MacAddr {
    fn from(octets: [u8; 6]) -> MacAddr {
        MacAddr(octets)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a hardware address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadMacAddr;

impl fmt::Display for BadMacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a hardware address: write six pairs of hex digits, like 02:00:00:00:00:01")
    }
}

impl std::error::Error for BadMacAddr {}

impl FromStr for MacAddr {
    type Err = BadMacAddr;

    fn from_str(text: &str) -> Result<MacAddr, BadMacAddr> {
        let mut octets = [0u8; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts.next().ok_or(BadMacAddr)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(BadMacAddr);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| BadMacAddr)?;
        }
        if parts.next().is_some() { Err(BadMacAddr) } else { Ok(MacAddr(octets)) }
    }
}

/// An Ethernet header as seen, tags not looked into. [`crate::parse_l2`] walks the tags too.
#[derive(Clone, Copy, Debug)]
pub struct EthernetView<'a> {
    head: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> EthernetView<'a> {
    /// The header at the start of `frame`, or `None` when it is shorter than 14 octets.
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Option<EthernetView<'a>> {
        let (head, payload) = frame.split_first_chunk()?;
        Some(EthernetView { head, payload })
    }

    /// Destination address.
    #[inline(always)]
    pub fn dst(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = *self.head;
        MacAddr([a, b, c, d, e, f])
    }

    /// Source address.
    #[inline(always)]
    pub fn src(&self) -> MacAddr {
        let [_, _, _, _, _, _, a, b, c, d, e, f, _, _] = *self.head;
        MacAddr([a, b, c, d, e, f])
    }

    /// The type field.
    #[inline(always)]
    pub fn ethertype(&self) -> u16 {
        crate::be16(self.head, 12)
    }

    /// Everything behind the 14 octets.
    #[inline(always)]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}
