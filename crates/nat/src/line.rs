//! The lines of the tables: session, mapping, subscriber, permission. Plain integers, one cache line or less each.

use core::net::IpAddr;

use carrack_base::{Proto, VrfId};
use carrack_tables::KeyedHasher;

use crate::flow::{Direction, Flow, Inside, hash_from_six, mapping_key, session_key};
use crate::policy::Instance;
use crate::row::{BLOCKS_MAX, Endpoint, TcpState};

/// "No line": never an id that a slab gives out.
pub const NONE: u32 = u32::MAX;
/// "No pool address".
pub const NO_ADDRESS: u16 = u16::MAX;

/// One session: both directions' rewrite and its state.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Session {
    // In this order each direction's source and destination are one word to load and compare (see `addresses`), and an
    // IPv6 address is one of 16 bytes (see `inside6`).
    pub(crate) outside_ip: u32,
    pub(crate) remote_ip: u32,
    /// The inside address; of an IPv6 one the lowest 32 bits.
    pub(crate) inside_ip: u32,
    /// The upper 96 bits of an IPv6 address, lowest first.
    pub(crate) inside_rest: [u32; 3],
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
    /// One's complement change of the IPv4 header checksum, going out; of a session with an IPv6 inside, whose headers
    /// are made anew, the number of its NAT64 prefix instead (see `via`).
    pub(crate) l3_delta: u16,
    /// The same for the transport checksum.
    pub(crate) l4_delta: u16,
    /// Of its instance, see `Slots`.
    pub(crate) slot: u16,
    /// Second of the last packet that refreshed it.
    pub(crate) seen_s: u32,
    pub(crate) mapping: u32,
    pub(crate) subscriber: u32,
    pub(crate) packets_out: u32,
    pub(crate) packets_in: u32,
}

const _: () = assert!(size_of::<Session>() == 64);

/// The session was opened from outside.
pub(crate) const INBOUND: u8 = 1;
/// Packets from outside refresh it.
pub(crate) const REFRESH_IN: u8 = 2;
/// Its remote endpoint is an outside endpoint of this NAT.
pub(crate) const HAIRPIN: u8 = 4;
/// Its inside is IPv6. The same bit as a mapping's.
pub(crate) const SIX: u8 = 8;
/// It holds an address permission.
pub(crate) const PERMITTED: u8 = 16;
/// A gateway reads its packets: none of them takes the express lane.
pub(crate) const CONTROL: u8 = 128;

/// The log was told that it began. The same bit of a session and a mapping.
pub(crate) const TOLD: u8 = 32;
/// The log was told of the session's remote endpoint.
pub(crate) const TOLD_REMOTE: u8 = 64;
const _: () = assert!((CONTROL | EXPECTED) & (PERMITTED | SIX | TOLD | TOLD_REMOTE) == 0);

impl Session {
    /// A session as one of this mapping's could be, with nobody. Its deltas, and an IPv6 host's address, are left to
    /// fill in.
    pub(crate) fn on(mapping: &Mapping) -> Self {
        Self {
            inside_ip: mapping.inside_ip,
            outside_ip: mapping.outside_ip,
            inside_port: mapping.inside_port,
            outside_port: mapping.outside_port,
            inside_vrf: mapping.inside_vrf,
            outside_vrf: mapping.outside_vrf,
            proto: mapping.proto,
            slot: mapping.slot,
            ..Self::default()
        }
    }

    /// The inside endpoint of an IPv4 session.
    pub(crate) const fn inside4(&self) -> Endpoint {
        Endpoint { ip: self.inside_ip, port: self.inside_port }
    }

    /// Is its inside IPv6?
    #[inline(always)]
    pub(crate) const fn is_six(&self) -> bool {
        self.flags & SIX != 0
    }

    /// The IPv6 inside address.
    #[inline(always)]
    pub(crate) const fn inside6(&self) -> u128 {
        let [a, b, c] = self.inside_rest;
        self.inside_ip as u128 | (a as u128) << 32 | (b as u128) << 64 | (c as u128) << 96
    }

    pub(crate) const fn set_inside6(&mut self, ip: u128) {
        self.inside_ip = ip as u32;
        self.inside_rest = [(ip >> 32) as u32, (ip >> 64) as u32, (ip >> 96) as u32];
    }

    /// The inside address.
    pub(crate) const fn inside(&self) -> Inside {
        if self.is_six() { Inside::V6(self.inside6()) } else { Inside::V4(self.inside_ip) }
    }

    /// Number of its NAT64 prefix, 0 when it has none.
    #[inline(always)]
    pub(crate) const fn via(&self) -> u16 {
        if self.is_six() { self.l3_delta } else { 0 }
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
        if flow.is_six() && direction == Direction::Out {
            return self.is_of_six(flow);
        }
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
            & (direction == Direction::In || !self.is_six())
    }

    fn is_of_six(&self, flow: &Flow) -> bool {
        self.is_six()
            & (self.inside6() == flow.src6)
            & (self.via() == flow.via)
            & (self.remote_ip == flow.dst)
            & (self.inside_port == flow.sport)
            & (self.remote_port == flow.dport)
            & (self.inside_vrf == flow.vrf.0)
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

    /// The hash it is found by in this direction.
    #[inline(always)]
    pub(crate) fn hash(&self, hasher: &KeyedHasher, direction: Direction) -> u64 {
        let (local, vrf) = match direction {
            Direction::Out if self.is_six() => {
                let (source, vrf) = ((self.inside6(), self.via()), VrfId(self.inside_vrf));
                return hash_from_six(
                    hasher,
                    source,
                    self.remote_ip,
                    self.ports(direction),
                    vrf,
                    self.proto(),
                );
            }
            Direction::Out => (self.inside4(), self.inside_vrf),
            Direction::In => (self.outside(), self.outside_vrf),
        };
        let [a, b] = session_key(local, self.remote(), VrfId(vrf), self.proto(), direction);
        hasher.hash2(a, b)
    }
}

/// One mapping (BIB entry).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(32))]
pub struct Mapping {
    /// Inside address, or with [`SIX`] the number of its host's line.
    pub(crate) inside_ip: u32,
    pub(crate) outside_ip: u32,
    pub(crate) inside_port: u16,
    pub(crate) outside_port: u16,
    pub(crate) inside_vrf: u16,
    pub(crate) outside_vrf: u16,
    pub(crate) slot: u16,
    /// Pool address it took its port from, or [`NO_ADDRESS`].
    pub(crate) address: u16,
    pub(crate) subscriber: u32,
    pub(crate) sessions: u32,
    pub(crate) proto: u8,
    pub(crate) flags: u8,
    /// How often its host has asked for it by port control (see `pins`): above 0 it stays without sessions.
    pub(crate) pins: u8,
}

const _: () = assert!(size_of::<Mapping>() == 32);

/// Found from inside too (endpoint-independent); otherwise only from outside.
pub(crate) const INDEPENDENT: u8 = 1;
/// Made by a forward rule: lives as long as the rule.
pub(crate) const FORWARD: u8 = 2;
/// Of a one-to-one rule: open to everybody, ports kept.
pub(crate) const ONE_TO_ONE: u8 = 4;
/// A gateway expects a connection to it: it stays without sessions until that time is over.
pub(crate) const EXPECTED: u8 = 128;

impl Mapping {
    /// One of an instance between these endpoints, of no pool address, that nobody has used yet. `slot` is the instance's.
    #[inline(always)]
    pub(crate) const fn between(
        instance: &Instance,
        slot: u16,
        inside: Endpoint,
        outside: Endpoint,
        proto: Proto,
    ) -> Self {
        Self {
            inside_ip: inside.ip,
            outside_ip: outside.ip,
            inside_port: inside.port,
            outside_port: outside.port,
            inside_vrf: instance.inside_vrf.0,
            outside_vrf: instance.outside_vrf.0,
            slot,
            address: NO_ADDRESS,
            subscriber: NONE,
            sessions: 0,
            proto: proto as u8,
            flags: 0,
            pins: 0,
        }
    }

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
        let six = self.is_six() && direction as u8 == Direction::Out as u8;
        mapping_key(local, VrfId(vrf), self.proto(), direction, six)
    }

    /// Is its inside an IPv6 host?
    pub(crate) const fn is_six(&self) -> bool {
        self.flags & SIX != 0
    }

    /// Is it the mapping of that inside (`Out`) or outside (`In`) endpoint? `six` says that the inside address is the
    /// number of an IPv6 host.
    #[inline]
    pub(crate) fn is_at(
        &self,
        local: Endpoint,
        vrf: VrfId,
        proto: Proto,
        direction: Direction,
        six: bool,
    ) -> bool {
        let (mine, my_vrf) = match direction {
            Direction::Out => (self.inside(), self.inside_vrf),
            Direction::In => (self.outside(), self.outside_vrf),
        };
        let same_version = direction == Direction::In || self.is_six() == six;
        mine == local && my_vrf == vrf.0 && self.proto == proto as u8 && same_version
    }
}

/// One IPv6 address as one instance knows it, RFC 6146 §5.2 (mapping), by whatever prefix, RFC 6052 §3.4: what mappings name by its number, for the length of a line. It lives as long
/// as it has mappings.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(32))]
pub struct Host {
    pub(crate) address: u128,
    pub(crate) vrf: u16,
    /// Number of the NAT64 prefix by which it last began a session: it sees those by it who begin one from outside.
    pub(crate) via: u16,
    pub(crate) mappings: u32,
    /// Of its instance, see `Slots`.
    pub(crate) slot: u16,
}

const _: () = assert!(size_of::<Host>() == 32);

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
    /// IPv4 address; of an IPv6 subscriber 0, see `inside6`.
    pub(crate) inside_ip: u32,
    pub(crate) inside_vrf: u16,
    pub(crate) slot: u16,
    pub(crate) sessions: u32,
    /// By protocol: TCP, UDP, ICMP, other.
    pub(crate) mappings: [u32; 4],
    /// Paired pool address, or [`NO_ADDRESS`].
    pub(crate) address: u16,
    pub(crate) block_count: u8,
    pub(crate) is_six: bool,
    pub(crate) blocks: [BlockRef; BLOCKS_MAX],
    /// Creations left, in 1/1000.
    pub(crate) tokens_milli: u32,
    /// Were the events of the thresholds of mappings raised?
    pub(crate) is_above: [bool; 2],
    /// When tokens were last added, milliseconds.
    pub(crate) tokens_at_ms: u64,
    /// First address of an IPv6 subscriber.
    pub(crate) inside6: [u64; 2],
}

const _: () = assert!(size_of::<Subscriber>() == 128);

impl Default for Subscriber {
    fn default() -> Self {
        Self {
            inside_ip: 0,
            inside_vrf: 0,
            slot: 0,
            sessions: 0,
            mappings: [0; 4],
            address: NO_ADDRESS,
            block_count: 0,
            blocks: [BlockRef::default(); BLOCKS_MAX],
            tokens_milli: 0,
            is_above: [false; 2],
            tokens_at_ms: 0,
            is_six: false,
            inside6: [0; 2],
        }
    }
}

impl Subscriber {
    /// One of an instance that nobody knew before. `slot` is the instance's.
    pub(crate) fn of(instance: &Instance, who: Inside, slot: u16) -> Self {
        let tokens_milli = instance.limits.creations_burst.saturating_mul(1_000);
        let mut line = Self { inside_vrf: instance.inside_vrf.0, slot, tokens_milli, ..Self::default() };
        line.set_who(who);
        line
    }

    /// Its address.
    #[inline(always)]
    pub(crate) const fn who(&self) -> Inside {
        let [high, low] = self.inside6;
        if self.is_six { Inside::V6((high as u128) << 64 | low as u128) } else { Inside::V4(self.inside_ip) }
    }

    pub(crate) fn set_who(&mut self, who: Inside) {
        match who {
            Inside::V4(ip) => self.inside_ip = ip,
            Inside::V6(ip) => {
                self.inside6 = [(ip >> 64) as u64, ip as u64];
                self.is_six = true;
            }
        }
    }

    /// The same for rows and events.
    pub(crate) fn inside(&self) -> IpAddr {
        self.who().into()
    }

    pub(crate) fn mapping_count(&self) -> u32 {
        self.mappings.iter().sum()
    }

    pub(crate) fn blocks(&self) -> &[BlockRef] {
        self.blocks.get(..usize::from(self.block_count)).unwrap_or(&[])
    }

    /// Where its next port is asked for first; [`NO_ADDRESS`] when it has had none.
    #[inline(always)]
    pub(crate) fn last_address(&self) -> u16 {
        self.blocks().last().map_or(self.address, |block| block.address)
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
