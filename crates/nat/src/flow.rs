//! What the parse stage tells the engine about a packet, and the keys that tables are searched by.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{Family, Proto, VrfId};
use carrack_tables::KeyedHasher;

use crate::row::Endpoint;

/// What kind of packet it is for the NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// A whole packet (or a first fragment) with its transport header in place.
    #[default]
    Whole,
    /// A fragment without transport header; ports were learned from the first fragment.
    LaterFragment,
    /// An ICMP error: ports are not the outer packet's.
    IcmpError,
}

/// Which way a packet crosses the NAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Direction {
    /// From inside.
    Out = 0,
    /// From outside.
    In = 1,
}

/// A parsed packet. Addresses and ports in host byte order.
///
/// ICMP queries have their identifier as port of the inside endpoint and 0 as remote port. Protocols without ports
/// have 0 as inside port and the IP protocol number as remote port, which keeps them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flow {
    /// Source address.
    pub src: u32,
    /// Destination address.
    pub dst: u32,
    /// Source port.
    pub sport: u16,
    /// Destination port.
    pub dport: u16,
    /// Routing instance the packet is in.
    pub vrf: VrfId,
    /// Offset of the IPv4 header in the frame, bytes.
    pub l3: u16,
    /// Offset of the transport header in the frame, bytes; 0 when there is none.
    pub l4: u16,
    /// Protocol.
    pub proto: Proto,
    /// IP protocol number.
    pub ip_proto: u8,
    /// TCP control bits, or ICMP type.
    pub bits: u8,
    /// Kind.
    pub kind: Kind,
    /// IP version of the packet as it came in.
    pub family: Family,
    /// Source address of an IPv6 packet, host byte order; `src` is then 0.
    pub src6: u128,
    /// Destination address of an IPv6 packet, host byte order; `dst` is then 0 until a translator has found the IPv4
    /// address in it.
    pub dst6: u128,
    /// Number of the NAT64 prefix the destination is in (see [`crate::Nat::admit`]); 0 for an IPv4 packet.
    pub via: u16,
}

/// An inside address: a host's, or what identifies a subscriber (for IPv6 the first address of its prefix).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Inside {
    /// IPv4, host byte order.
    V4(u32),
    /// IPv6, host byte order.
    V6(u128),
}

impl From<Inside> for IpAddr {
    fn from(inside: Inside) -> Self {
        match inside {
            Inside::V4(ip) => Ipv4Addr::from(ip).into(),
            Inside::V6(ip) => Ipv6Addr::from(ip).into(),
        }
    }
}

impl From<IpAddr> for Inside {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::V4(ip.into()),
            IpAddr::V6(ip) => Self::V6(ip.into()),
        }
    }
}

impl Flow {
    /// Does it go from IPv6 to IPv4?
    #[inline(always)]
    #[must_use]
    pub const fn is_six(&self) -> bool {
        self.via != 0
    }

    /// The inside address of a packet going out.
    #[inline(always)]
    #[must_use]
    pub const fn inside(&self) -> Inside {
        if self.is_six() { Inside::V6(self.src6) } else { Inside::V4(self.src) }
    }

    /// The endpoint on the NAT's inner side of the packet: its source going out, its destination coming in. An IPv6
    /// source has no such endpoint: its sessions are found by all bits of it.
    #[inline]
    #[must_use]
    pub const fn local(&self, direction: Direction) -> Endpoint {
        match direction {
            Direction::Out => Endpoint { ip: self.src, port: self.sport },
            Direction::In => Endpoint { ip: self.dst, port: self.dport },
        }
    }

    /// The other endpoint.
    #[inline]
    #[must_use]
    pub const fn remote(&self, direction: Direction) -> Endpoint {
        match direction {
            Direction::Out => Endpoint { ip: self.dst, port: self.dport },
            Direction::In => Endpoint { ip: self.src, port: self.sport },
        }
    }

    /// The words of the session key in this direction.
    #[inline]
    #[must_use]
    pub const fn session_key(&self, direction: Direction) -> [u64; 2] {
        session_key(self.local(direction), self.remote(direction), self.vrf, self.proto, direction)
    }
}

/// The two words a session is found by: inside endpoint and remote from inside, remote and outside endpoint from
/// outside; source first in either case, as packets have them. The routing instance keeps overlapping addresses apart.
#[inline]
#[must_use]
pub const fn session_key(
    local: Endpoint,
    remote: Endpoint,
    vrf: VrfId,
    proto: Proto,
    direction: Direction,
) -> [u64; 2] {
    let (from, to) = match direction {
        Direction::Out => (local, remote),
        Direction::In => (remote, local),
    };
    let addresses = (from.ip as u64) << 32 | to.ip as u64;
    packed_key(addresses, (from.port as u32) << 16 | to.port as u32, vrf, proto, direction)
}

/// `session_key` from fields as a packet has them: `addresses` is source and destination, `ports` source and
/// destination port, each in host byte order with the source in the upper half.
#[inline(always)]
#[must_use]
pub const fn packed_key(
    addresses: u64,
    ports: u32,
    vrf: VrfId,
    proto: Proto,
    direction: Direction,
) -> [u64; 2] {
    [addresses, (ports as u64) << 32 | (vrf.0 as u64) << 16 | (proto as u64) << 8 | direction as u64]
}

/// What tells keys of IPv6 hosts from others, in their second word.
const SIX: u64 = 8;

/// The hash of a packet's session in this direction. An IPv6 source takes part with all its bits, the prefix of its
/// destination by its number.
#[inline]
#[must_use]
pub fn session_hash(hasher: &KeyedHasher, flow: &Flow, direction: Direction) -> u64 {
    if flow.is_six() && direction as u8 == Direction::Out as u8 {
        let ports = (flow.sport as u32) << 16 | flow.dport as u32;
        return hash_from_six(hasher, (flow.src6, flow.via), flow.dst, ports, flow.vrf, flow.proto);
    }
    let [a, b] = flow.session_key(direction);
    hasher.hash2(a, b)
}

/// The same from fields: source and prefix number, IPv4 destination, ports with the source's in the upper half.
#[inline(always)]
#[must_use]
pub fn hash_from_six(
    hasher: &KeyedHasher,
    (source, via): (u128, u16),
    destination: u32,
    ports: u32,
    vrf: VrfId,
    proto: Proto,
) -> u64 {
    let [_, rest] = packed_key(0, ports, vrf, proto, Direction::Out);
    let source = hasher.hash2((source >> 64) as u64, source as u64);
    hasher.hash2(source ^ u64::from(via) << 32 ^ u64::from(destination), rest | SIX)
}

/// The two words a mapping is found by: its inside endpoint from inside, its outside endpoint from outside.
/// The protocol is part of it: RFC 7857 §5 for mappings, RFC 7857 §6 for who may send to them. `six` says that the
/// inside address is the number of an IPv6 host.
#[inline]
#[must_use]
pub const fn mapping_key(
    local: Endpoint,
    vrf: VrfId,
    proto: Proto,
    direction: Direction,
    six: bool,
) -> [u64; 2] {
    [
        (local.ip as u64) << 32 | local.port as u64,
        (vrf.0 as u64) << 16 | (proto as u64) << 8 | (six as u64 * SIX) | 2 | direction as u64,
    ]
}

/// The hash a subscriber is found by.
#[inline]
#[must_use]
pub fn subscriber_hash(hasher: &KeyedHasher, inside: Inside, vrf: VrfId) -> u64 {
    let word = match inside {
        Inside::V4(ip) => u64::from(ip),
        Inside::V6(ip) => hasher.hash2((ip >> 64) as u64, ip as u64),
    };
    hasher.hash2(word, u64::from(vrf.0) << 16 | 4 | if matches!(inside, Inside::V6(_)) { SIX } else { 0 })
}

/// The hash an IPv6 host is found by: its address as one instance knows it, which has this slot.
#[inline]
#[must_use]
pub fn host_hash(hasher: &KeyedHasher, address: u128, slot: u16, vrf: VrfId) -> u64 {
    let word = hasher.hash2((address >> 64) as u64, address as u64);
    hasher.hash2(word, u64::from(slot) << 32 | u64::from(vrf.0) << 16 | 5 | SIX)
}
