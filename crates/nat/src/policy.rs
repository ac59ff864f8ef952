//! What a NAT instance is told to do: the compiled, validated form of the config's `[[nat.instance]]` tables.
//!
//! Everything here is immutable once built and shared by all workers. The config crate guarantees what each field's
//! comment demands; the engine relies on it.

use core::net::IpAddr;

use carrack_alg::Protocol;
use carrack_base::{InstanceId, PoolId, Prefix, Prefix4, Proto, Range4, VrfId};

use crate::flow::Inside;
use crate::nat64::Nat64;

/// All NAT configuration of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NatPolicy {
    /// Instances; the index is the [`InstanceId`].
    pub instances: Vec<Instance>,
    /// May hosts ask for mappings (see [`crate::PortAsk`])?
    pub port_control: bool,
}

impl NatPolicy {
    /// Are packets of ESP told apart by their numbers?
    #[must_use]
    pub fn learns_esp(&self) -> bool {
        self.instances.iter().any(|instance| instance.gateways.contains(&Protocol::Ipsec))
    }
}

/// How an inside endpoint gets its outside endpoint (RFC 4787 §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mapping {
    /// One outside endpoint for all destinations.
    #[default]
    EndpointIndependent,
    /// A new outside endpoint for each remote address and port.
    AddressAndPortDependent,
}

impl Mapping {
    /// The word for config, CLI and API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
        }
    }
}

/// Who may send to a mapping from outside (RFC 4787 §5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Filtering {
    /// Anybody.
    #[default]
    EndpointIndependent,
    /// Addresses the inside endpoint has sent to.
    AddressDependent,
    /// Endpoints the inside endpoint has sent to.
    AddressAndPortDependent,
}

impl Filtering {
    /// The word for config, CLI and API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EndpointIndependent => "endpoint-independent",
            Self::AddressDependent => "address-dependent",
            Self::AddressAndPortDependent => "address-and-port-dependent",
        }
    }
}

/// How a subscriber's outside addresses are chosen (RFC 4787 REQ-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooling {
    /// One outside address for all sessions of a subscriber, all protocols (RFC 6888 REQ-2).
    #[default]
    Paired,
    /// Any address that has a port.
    Arbitrary,
}

impl Pooling {
    /// The word for config, CLI and API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paired => "paired",
            Self::Arbitrary => "arbitrary",
        }
    }
}

/// How outside ports are given to subscribers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// A subscriber holds whole blocks of ports; one log line a block. `size` is a power of two from 8 to 32,768,
    /// `per_subscriber_max` 1 to 16. A block idle (no port used) for `idle_release_s` returns to the pool; 0 keeps it
    /// until the subscriber has no session left.
    Blocks {
        /// Ports in a block.
        size: u16,
        /// Most blocks a subscriber holds at once.
        per_subscriber_max: u8,
        /// Seconds an empty block stays with its subscriber.
        idle_release_s: u32,
    },
    /// Any free port of the address.
    Arbitrary,
    /// RFC 7422: the outside address and port range are a function of the inside address.
    Deterministic {
        /// Ports of each subscriber.
        ports_per_subscriber: u16,
        /// Ports for those who need more (RFC 7422 §2, step 4).
        overflow: Option<Overflow>,
    },
}

/// The dynamic ports of a deterministic instance: the last ones of each outside address, given out by the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overflow {
    /// Ports of each outside address; a multiple of the block's, fewer than the pool has.
    pub ports: u16,
    /// The blocks.
    pub blocks: BlockRules,
}

/// How blocks are given out, see [`Assignment::Blocks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRules {
    /// Ports in a block.
    pub size: u16,
    /// Most blocks a subscriber holds at once.
    pub per_subscriber_max: u8,
    /// Seconds an empty block stays with its subscriber.
    pub idle_release_s: u32,
}

impl Assignment {
    /// How blocks are given out, where any are.
    #[must_use]
    pub const fn blocks(&self) -> Option<BlockRules> {
        match *self {
            Self::Blocks { size, per_subscriber_max, idle_release_s } => {
                Some(BlockRules { size, per_subscriber_max, idle_release_s })
            }
            Self::Deterministic { overflow: Some(Overflow { blocks, .. }), .. } => Some(blocks),
            Self::Deterministic { overflow: None, .. } | Self::Arbitrary => None,
        }
    }

    /// The ports of a pool that are the subscribers' own by the rule of RFC 7422; all of them without overflow.
    pub(crate) fn last_of_shares(&self, pool: &Pool) -> u16 {
        match self {
            Self::Deterministic { overflow: Some(overflow), .. } => {
                pool.port_last.saturating_sub(overflow.ports)
            }
            _ => pool.port_last,
        }
    }

    /// First and last port of what is cut into blocks or slices.
    pub(crate) fn cut_range(&self, pool: &Pool) -> (u16, u16) {
        match self {
            Self::Deterministic { overflow: Some(_), .. } => {
                (self.last_of_shares(pool).saturating_add(1), pool.port_last)
            }
            _ => (pool.port_first, pool.port_last),
        }
    }
}

/// Most addresses of all pools of an instance: lines name one by a number of 16 bits, of which one stands for none.
pub const ADDRESSES_MAX: u32 = crate::line::NO_ADDRESS as u32;

/// A set of outside addresses with one range of ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Unique over all instances, stable over reloads by `name`.
    pub id: PoolId,
    /// As in config; identifies the pool over reloads.
    pub name: String,
    /// Address ranges, disjoint from every other pool and static rule of the same outside VRF; of all pools of an instance at
    /// most [`ADDRESSES_MAX`].
    pub ranges: Vec<Range4>,
    /// First port used for dynamic mappings, at least 1.
    pub port_first: u16,
    /// Last port used for dynamic mappings.
    pub port_last: u16,
}

/// Per-subscriber limits; 0 means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Sessions of a subscriber (RFC 6888 REQ-5).
    pub sessions_max: u32,
    /// Outside ports of a subscriber, all protocols together (RFC 6888 REQ-4).
    pub ports_max: u32,
    /// Outside ports of a subscriber by protocol: TCP, UDP, ICMP (RFC 6888 REQ-4b).
    pub ports_by_proto_max: [u32; 3],
    /// Mappings a subscriber may create a second (RFC 6888 REQ-4c, REQ-5b).
    pub creations_per_s: u32,
    /// Mappings it may create in one go; at least 1 when `creations_per_s` is set.
    pub creations_burst: u32,
    /// Sessions of one mapping (RFC 6888 REQ-5).
    pub sessions_per_mapping_max: u32,
    /// Mappings of a subscriber, all protocols together, at which an event is raised; 0 for none.
    pub mappings_threshold: u32,
    /// The same for the event of paired pooling (RFC 8158 §4.6.8.4), where it pools so.
    pub paired_mappings_threshold: u32,
}

/// Idle times in seconds, each 1 to 30,000.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// UDP (RFC 4787 REQ-5, REQ-5b, REQ-5c: default 300).
    pub udp_s: u32,
    /// UDP to particular remote ports below 1024 (RFC 4787 REQ-5a): (port, seconds).
    pub udp_port_s: Vec<(u16, u32)>,
    /// TCP with data able to flow (RFC 5382 REQ-5, REQ-5a: default 7,440).
    pub tcp_established_s: u32,
    /// TCP that has not finished its handshake (RFC 7857 §2.1: default 240).
    pub tcp_opening_s: u32,
    /// TCP after a FIN (RFC 7857 §2.1: default 240).
    pub tcp_closing_s: u32,
    /// TCP after a RST (RFC 7857 §2.2: default 240).
    pub tcp_reset_s: u32,
    /// How long an unsolicited SYN from outside is held (RFC 5382 REQ-4: 6).
    pub tcp_unsolicited_syn_s: u32,
    /// ICMP queries (RFC 5508 REQ-2, REQ-2a: default 60).
    pub icmp_s: u32,
    /// Other protocols under one-to-one mappings.
    pub other_s: u32,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            udp_s: 300,
            udp_port_s: Vec::new(),
            tcp_established_s: 7_440,
            tcp_opening_s: 240,
            tcp_closing_s: 240,
            tcp_reset_s: 240,
            tcp_unsolicited_syn_s: 6,
            icmp_s: 60,
            other_s: 300,
        }
    }
}

/// What becomes of a control connection over TCP whose gateway can make no sense of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unreadable {
    /// It goes on as it is.
    #[default]
    Pass,
    /// It is reset.
    Reset,
}

/// What a sender is told when a mapping cannot be made (RFC 6888 REQ-11 says 3/1, RFC 5508 REQ-8 says 3/13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExhaustedIcmp {
    /// Nothing.
    Silent,
    /// Host unreachable, 3/1.
    #[default]
    HostUnreachable,
    /// Communication administratively prohibited, 3/13.
    AdminProhibited,
}

/// A mapping that config makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticRule {
    /// Whole addresses, one to one and in order, all protocols: `inside.count() == outside.count()`.
    OneToOne {
        /// Inside addresses.
        inside: Range4,
        /// Outside addresses.
        outside: Range4,
    },
    /// Ports of an outside address forwarded to an inside endpoint. May use a pool's address: the ports are then taken
    /// out of the pool.
    Forward {
        /// TCP, UDP or ICMP.
        proto: Proto,
        /// Outside address, host byte order.
        outside: u32,
        /// First outside port.
        outside_port: u16,
        /// Number of ports, at least 1.
        count: u16,
        /// Inside host. An IPv6 one sees its peers by the first prefix of the instance.
        inside: Inside,
        /// First inside port.
        inside_port: u16,
    },
}

/// Which single translations are told to the log, beside port blocks and address bindings, which always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Logged {
    /// None: a port block tells its subscriber already.
    #[default]
    Blocks,
    /// Mappings.
    Mappings,
    /// Sessions, and no mappings: RFC 8158 §3 wants only one of the two.
    Sessions,
    /// Sessions with their remote endpoints (RFC 6888 REQ-12: not unless somebody must).
    Destinations,
}

/// One NAT instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// Index in [`NatPolicy::instances`].
    pub id: InstanceId,
    /// As in config; identifies the instance over reloads.
    pub name: String,
    /// Where its subscribers are. No two instances share inside VRF and an inside prefix. Another routing instance than
    /// the outside one keeps equal addresses on both sides apart (RFC 4787 REQ-7).
    pub inside_vrf: VrfId,
    /// Where its pool is.
    pub outside_vrf: VrfId,
    /// IPv4 subscribers served; sources outside are refused (`nat-subscriber-denied`). Sorted, disjoint, empty only
    /// where there are none but IPv6 ones (`0.0.0.0/0` when config leaves it out).
    pub subscribers: Vec<Prefix4>,
    /// Destinations that pass untranslated (RFC 6888 REQ-6).
    pub exempt: Vec<Prefix4>,
    /// Pools, in order of use.
    pub pools: Vec<Pool>,
    /// How ports are given out.
    pub assignment: Assignment,
    /// Paired or arbitrary.
    pub pooling: Pooling,
    /// Mapping behaviour by protocol: TCP, UDP, ICMP.
    pub mapping: [Mapping; 3],
    /// Filtering behaviour by protocol: TCP, UDP, ICMP.
    pub filtering: [Filtering; 3],
    /// Give an even port to an even port (RFC 4787 REQ-4), UDP.
    pub parity: bool,
    /// Give port + 1 to port + 1 when its even neighbour is mapped (RTP and RTCP), UDP.
    pub contiguity: bool,
    /// May a subscriber reach another's outside endpoint (RFC 4787 REQ-9)?
    pub hairpinning: bool,
    /// Does a packet from outside keep a session alive (RFC 4787 REQ-6a)? By protocol: TCP, UDP, ICMP.
    pub inbound_refresh: [bool; 3],
    /// May a TCP segment without SYN open a session (after a restart, for asymmetric paths)?
    pub tcp_loose: bool,
    /// Seconds until a released port or block may go to another subscriber (RFC 6888 REQ-8).
    pub port_hold_s: u32,
    /// Most ports of one outside address and protocol that are held at once, all workers together; 0 is unlimited
    /// (RFC 6888 REQ-8).
    pub port_hold_ports_max: u32,
    /// Per-subscriber limits.
    pub limits: Limits,
    /// Idle times.
    pub timeouts: Timeouts,
    /// What a sender is told when resources are exhausted.
    pub exhausted_icmp: ExhaustedIcmp,
    /// Pool use in percent at which a threshold event is raised; 0 for none.
    pub pool_threshold_percent: u8,
    /// Ports in use, all protocols and workers together, at which an event is raised; 0 for none. A worker compares its own
    /// with its share.
    pub pool_ports_threshold: u32,
    /// What the log is told of mappings and sessions that begin from now on.
    pub logged: Logged,
    /// Static mappings.
    pub statics: Vec<StaticRule>,
    /// IPv6 subscribers, when it translates for them.
    pub nat64: Option<Nat64>,
    /// Application gateways that are switched on (RFC 4787 REQ-10, REQ-10a, RFC 5382 REQ-6).
    pub gateways: Vec<Protocol>,
    /// What becomes of connections that they cannot read.
    pub unreadable: [Unreadable; Protocol::ALL.len()],
}

impl Instance {
    /// Do its IPv6 hosts reach IPv4 by more than one prefix?
    #[inline]
    pub(crate) fn has_several_prefixes(&self) -> bool {
        self.nat64.as_ref().is_some_and(|nat64| nat64.prefixes.len() > 1)
    }

    /// Bits that all addresses of one IPv6 subscriber have in common.
    #[must_use]
    pub fn subscriber_len6(&self) -> u8 {
        self.nat64.as_ref().map_or(128, |nat64| nat64.subscriber_len)
    }

    /// What the hosts of a subscriber have in common, by any of their addresses.
    #[must_use]
    pub fn subscriber_prefix(&self, inside: IpAddr) -> Prefix {
        Prefix::of(inside, if inside.is_ipv6() { self.subscriber_len6() } else { 32 })
    }

    /// Mappings of a subscriber at which its events are raised, in the order of [`Mark::ALL`]; 0 for none.
    #[inline]
    pub(crate) fn marks(&self) -> [u32; 2] {
        let paired = if self.pooling == Pooling::Paired { self.limits.paired_mappings_threshold } else { 0 };
        [self.limits.mappings_threshold, paired]
    }

    /// The gateway that reads what goes to this port of a server.
    #[inline]
    #[must_use]
    pub fn gateway_of(&self, proto: Proto, port: u16) -> Option<Protocol> {
        self.gateways.iter().copied().find(|gateway| gateway.is_served_at(proto, port))
    }
}

/// Table sizes of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Sessions.
    pub sessions: u32,
    /// Mappings.
    pub mappings: u32,
    /// Subscribers.
    pub subscribers: u32,
    /// IPv6 hosts with mappings; takes memory only where an instance translates from IPv6.
    pub hosts: u32,
    /// Fragmented packets in flight.
    pub fragments: u32,
    /// Fragments held for their first fragment, all together.
    pub held_fragments: u32,
    /// Unsolicited SYNs held.
    pub held_syns: u32,
    /// Control connections that gateways read, and as many connections that they expect.
    pub controls: u32,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            sessions: 1 << 20,
            mappings: 1 << 20,
            subscribers: 1 << 16,
            hosts: 1 << 16,
            fragments: 8_192,
            held_fragments: 1_024,
            held_syns: 4_096,
            controls: 16_384,
        }
    }
}
