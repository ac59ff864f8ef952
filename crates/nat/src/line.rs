//! The lines of the tables: session, mapping, subscriber, permission. Plain integers, one cache line or less each.

use core::net::IpAddr;

use carrack_base::{InstanceId, Proto, VrfId};

use crate::flow::{Direction, Flow, mapping_key, session_key};
use crate::row::{BLOCKS_MAX, Endpoint, TcpState, v4};

/// "No line": never an id that a slab gives out.
pub const NONE: u32 = u32::MAX;
/// "No pool address".
pub const NO_ADDRESS: u16 = u16::MAX;

/// One session: both directions' rewrite and its state.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Session {
    // In this order each direction's source and destination are one word to load and compare (see `addresses`).
    pub(crate) outside_ip: u32,
    pub(crate) remote_ip: u32,
    pub(crate) inside_ip: u32,
    pub(crate) outside_port: u16,
    pub(crate) remote_port: u16,
    pub(crate) inside_port: u16,
    pub(crate) outside_vrf: u16,
    pub(crate) inside_vrf: u16,
    // So are these two (see `state`).
    pub(crate) proto: u8,
    pub(crate) tcp: u8,
    pub(crate) flags: u8,
    pub(crate) ip_proto: u8,
    /// One's complement change of the IPv4 header checksum, going out.
    pub(crate) l3_delta: u16,
    /// The same for the transport checksum.
    pub(crate) l4_delta: u16,
    /// Second of the last packet that refreshed it.
    pub(crate) seen_s: u32,
    pub(crate) mapping: u32,
    pub(crate) subscriber: u32,
    pub(crate) packets_out: u32,
    pub(crate) packets_in: u32,
    pub(crate) created_s: u32,
    pub(crate) instance: u16,
    /// Line of the address permission it holds, or [`NONE`].
    pub(crate) permission: u32,
}

const _: () = assert!(size_of::<Session>() == 64);

/// The session was opened from outside.
pub(crate) const INBOUND: u8 = 1;
/// Packets from outside refresh it.
pub(crate) const REFRESH_IN: u8 = 2;
/// Its remote endpoint is an outside endpoint of this NAT.
pub(crate) const HAIRPIN: u8 = 4;

impl Session {
    pub(crate) const fn inside(&self) -> Endpoint {
        Endpoint { ip: self.inside_ip, port: self.inside_port }
    }

    pub(crate) const fn outside(&self) -> Endpoint {
        Endpoint { ip: self.outside_ip, port: self.outside_port }
    }

    pub(crate) const fn remote(&self) -> Endpoint {
        Endpoint { ip: self.remote_ip, port: self.remote_port }
    }

    pub(crate) const fn proto(&self) -> Proto {
        Proto::from_index(self.proto)
    }

    pub(crate) const fn tcp(&self) -> TcpState {
        TcpState::from_u8(self.tcp)
    }

    /// Is this the session of that packet?
    #[inline]
    pub(crate) fn is_of(&self, flow: &Flow, direction: Direction) -> bool {
        let (ip, port, vrf) = match direction {
            Direction::Out => (self.inside_ip, self.inside_port, self.inside_vrf),
            Direction::In => (self.outside_ip, self.outside_port, self.outside_vrf),
        };
        let (local, remote) = (flow.local(direction), flow.remote(direction));
        (ip == local.ip)
            & (self.remote_ip == remote.ip)
            & (port == local.port)
            & (self.remote_port == remote.port)
            & (vrf == flow.vrf.0)
            & (self.proto == flow.proto as u8)
    }

    /// Source and destination address of its packets in this direction, the source in the upper half.
    #[inline(always)]
    pub(crate) const fn addresses(&self, direction: Direction) -> u64 {
        let (from, to) = match direction {
            Direction::Out => (self.inside_ip, self.remote_ip),
            Direction::In => (self.remote_ip, self.outside_ip),
        };
        (from as u64) << 32 | to as u64
    }

    /// Source and destination port likewise.
    #[inline(always)]
    pub(crate) const fn ports(&self, direction: Direction) -> u32 {
        let (from, to) = match direction {
            Direction::Out => (self.inside_port, self.remote_port),
            Direction::In => (self.remote_port, self.outside_port),
        };
        (from as u32) << 16 | to as u32
    }

    /// Routing instance its packets come from in this direction.
    #[inline(always)]
    pub(crate) const fn vrf(&self, direction: Direction) -> u16 {
        match direction {
            Direction::Out => self.inside_vrf,
            Direction::In => self.outside_vrf,
        }
    }

    /// Protocol and TCP state in one word.
    #[inline(always)]
    pub(crate) const fn state(&self) -> u16 {
        Self::state_of(self.proto, self.tcp)
    }

    #[inline(always)]
    pub(crate) const fn state_of(proto: u8, tcp: u8) -> u16 {
        u16::from_le_bytes([proto, tcp])
    }

    pub(crate) const fn key(&self, direction: Direction) -> [u64; 2] {
        let (local, vrf) = match direction {
            Direction::Out => (self.inside(), self.inside_vrf),
            Direction::In => (self.outside(), self.outside_vrf),
        };
        session_key(local, self.remote(), VrfId(vrf), self.proto(), direction)
    }
}

/// One mapping (BIB entry).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(32))]
pub struct Mapping {
    pub(crate) inside_ip: u32,
    pub(crate) outside_ip: u32,
    pub(crate) inside_port: u16,
    pub(crate) outside_port: u16,
    pub(crate) inside_vrf: u16,
    pub(crate) outside_vrf: u16,
    pub(crate) instance: u16,
    /// Pool address it took its port from, or [`NO_ADDRESS`].
    pub(crate) address: u16,
    pub(crate) subscriber: u32,
    pub(crate) sessions: u32,
    pub(crate) proto: u8,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Mapping>() == 32);

/// Found from inside too (endpoint-independent); otherwise only from outside.
pub(crate) const INDEPENDENT: u8 = 1;
/// Made by a forward rule: lives as long as the rule.
pub(crate) const FORWARD: u8 = 2;
/// Of a one-to-one rule: open to everybody, ports kept.
pub(crate) const ONE_TO_ONE: u8 = 4;

impl Mapping {
    pub(crate) const fn inside(&self) -> Endpoint {
        Endpoint { ip: self.inside_ip, port: self.inside_port }
    }

    pub(crate) const fn outside(&self) -> Endpoint {
        Endpoint { ip: self.outside_ip, port: self.outside_port }
    }

    pub(crate) const fn proto(&self) -> Proto {
        Proto::from_index(self.proto)
    }

    pub(crate) const fn is_static(&self) -> bool {
        self.flags & (FORWARD | ONE_TO_ONE) != 0
    }

    pub(crate) const fn key(&self, direction: Direction) -> [u64; 2] {
        let (local, vrf) = match direction {
            Direction::Out => (self.inside(), self.inside_vrf),
            Direction::In => (self.outside(), self.outside_vrf),
        };
        mapping_key(local, VrfId(vrf), self.proto(), direction)
    }

    #[inline]
    pub(crate) fn is_at(&self, local: Endpoint, vrf: VrfId, proto: Proto, direction: Direction) -> bool {
        let (mine, my_vrf) = match direction {
            Direction::Out => (self.inside(), self.inside_vrf),
            Direction::In => (self.outside(), self.outside_vrf),
        };
        mine == local && my_vrf == vrf.0 && self.proto == proto as u8
    }
}

/// A port block by name: pool address and number of the block within it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockRef {
    pub(crate) address: u16,
    pub(crate) block: u16,
}

/// One subscriber.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
pub struct Subscriber {
    pub(crate) inside_ip: u32,
    pub(crate) inside_vrf: u16,
    pub(crate) instance: u16,
    pub(crate) sessions: u32,
    /// By protocol: TCP, UDP, ICMP, other.
    pub(crate) mappings: [u32; 4],
    /// Paired pool address, or [`NO_ADDRESS`].
    pub(crate) address: u16,
    pub(crate) block_count: u8,
    pub(crate) blocks: [BlockRef; BLOCKS_MAX],
    /// Creations left, in 1/1000.
    pub(crate) tokens_milli: u32,
    /// When tokens were last added, milliseconds.
    pub(crate) tokens_at_ms: u64,
}

const _: () = assert!(size_of::<Subscriber>() == 128);

impl Default for Subscriber {
    fn default() -> Self {
        Self {
            inside_ip: 0,
            inside_vrf: 0,
            instance: 0,
            sessions: 0,
            mappings: [0; 4],
            address: NO_ADDRESS,
            block_count: 0,
            blocks: [BlockRef::default(); BLOCKS_MAX],
            tokens_milli: 0,
            tokens_at_ms: 0,
        }
    }
}

impl Subscriber {
    /// Its address.
    pub(crate) fn inside(&self) -> IpAddr {
        v4(self.inside_ip)
    }

    pub(crate) fn instance(&self) -> InstanceId {
        InstanceId(self.instance)
    }

    pub(crate) fn mapping_count(&self) -> u32 {
        self.mappings.iter().sum()
    }

    pub(crate) fn blocks(&self) -> &[BlockRef] {
        self.blocks.get(..usize::from(self.block_count)).unwrap_or(&[])
    }

    /// Nothing holds it any more.
    pub(crate) fn is_unused(&self) -> bool {
        self.sessions == 0 && self.block_count == 0 && self.mapping_count() == 0
    }
}

/// "This mapping has sent to this address": what address-dependent filtering asks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Permission {
    pub(crate) mapping: u32,
    pub(crate) remote_ip: u32,
    pub(crate) sessions: u32,
}
