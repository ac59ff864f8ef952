//! What the parse stage tells the engine about a packet, and the keys that tables are searched by.

use carrack_base::{Family, Proto, VrfId};

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
}

impl Flow {
    /// The endpoint on the NAT's inner side of the packet: its source going out, its destination coming in.
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

/// The two words a mapping is found by: its inside endpoint from inside, its outside endpoint from outside.
/// The protocol is part of it: RFC 7857 §5 for mappings, RFC 7857 §6 for who may send to them.
#[inline]
#[must_use]
pub const fn mapping_key(local: Endpoint, vrf: VrfId, proto: Proto, direction: Direction) -> [u64; 2] {
    [
        (local.ip as u64) << 32 | local.port as u64,
        (vrf.0 as u64) << 16 | (proto as u64) << 8 | 2 | direction as u64,
    ]
}

/// The two words a subscriber is found by.
#[inline]
#[must_use]
pub const fn subscriber_key(inside: u32, vrf: VrfId) -> [u64; 2] {
    [inside as u64, (vrf.0 as u64) << 16 | 4]
}
