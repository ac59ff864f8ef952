//! What translates: NAT instances and stateless translators.

use core::net::Ipv4Addr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One NAT instance with what is in use of it, all workers together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Instance {
    /// Its name.
    pub instance: String,
    /// Routing instance of the subscribers.
    pub inside_vrf: String,
    /// Routing instance of the pools.
    pub outside_vrf: String,
    /// NAT64 prefixes; empty without NAT64.
    pub prefixes: Vec<String>,
    /// Sources served, of either IP version.
    pub sources: Vec<String>,
    /// Address ranges of all pools, `first-last`.
    pub ranges: Vec<String>,
    /// Length of the prefix that is one IPv6 subscriber; absent without NAT64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscriber_prefix_length: Option<u8>,
    /// How ports are given out: `blocks`, `arbitrary` or `deterministic`.
    pub ports: String,
    /// Ports of a block, or of a subscriber's share in deterministic mode; 0 with neither.
    pub block_size: u32,
    /// Most blocks of a subscriber; 1 in deterministic mode, 0 without blocks.
    pub blocks_per_subscriber: u32,
    /// What deterministic mode has for subscribers that need more than their share, where it has something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<Overflow>,
    /// How outside addresses are chosen: `paired` or `arbitrary`.
    #[serde(default)]
    pub pooling: String,
    /// How endpoints are mapped and who may send to them, of TCP, UDP and ICMP.
    #[serde(default)]
    pub behaviours: Vec<Behaviour>,
    /// Port blocks there are.
    pub blocks_total: u64,
    /// Port blocks in use.
    pub blocks_used: u64,
    /// What an address of each pool has to give, where ports are given out in blocks.
    #[serde(default)]
    pub address_shares: Vec<AddressShare>,
    /// Subscribers with sessions, mappings or blocks.
    pub subscribers: u64,
    /// Subscribers that the tables of all workers hold at most, all instances together.
    #[serde(default)]
    pub subscribers_capacity: u64,
    /// Sessions.
    pub sessions: u64,
    /// Sessions that the tables of all workers hold at most, all instances together.
    #[serde(default)]
    pub sessions_capacity: u64,
    /// TCP sessions by state, every state, the most common first.
    pub tcp_states: Vec<StateCount>,
    /// UDP sessions.
    pub sessions_udp: u64,
    /// Sessions of ICMP queries.
    pub sessions_icmp: u64,
    /// Sessions of other protocols.
    pub sessions_other: u64,
    /// TCP mappings.
    pub mappings_tcp: u64,
    /// UDP mappings.
    pub mappings_udp: u64,
    /// ICMP mappings.
    pub mappings_icmp: u64,
    /// Mappings of other protocols.
    pub mappings_other: u64,
    /// Most sessions of a subscriber; 0 for any number.
    pub sessions_per_subscriber_max: u32,
    /// Most ports of a subscriber, all protocols together; 0 for any number.
    pub ports_per_subscriber_max: u32,
    /// Most TCP ports of a subscriber; 0 for any number.
    #[serde(default)]
    pub ports_tcp_max: u32,
    /// Most UDP ports of a subscriber; 0 for any number.
    #[serde(default)]
    pub ports_udp_max: u32,
    /// Most ICMP identifiers of a subscriber; 0 for any number.
    #[serde(default)]
    pub ports_icmp_max: u32,
    /// Most sessions of a mapping; 0 for any number.
    #[serde(default)]
    pub sessions_per_mapping_max: u32,
    /// Most mappings that a subscriber may create a second; 0 for any number.
    #[serde(default)]
    pub creations_per_s: u32,
    /// Most mappings that a subscriber may create in one go; 0 for any number.
    #[serde(default)]
    pub creations_burst: u32,
}

/// Ports beyond the shares of deterministic mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Overflow {
    /// Ports of each outside address.
    pub ports: u32,
    /// Ports of a block.
    pub block_size: u32,
    /// Most blocks of a subscriber.
    pub blocks_per_subscriber: u32,
}

/// What an instance does with a protocol (RFC 4787 §4.1, §5).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Behaviour {
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// `endpoint-independent` or `address-and-port-dependent`.
    pub mapping: String,
    /// `endpoint-independent`, `address-dependent` or `address-and-port-dependent`.
    pub filtering: String,
}

/// What one address of a pool has to give.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddressShare {
    /// The pool.
    pub pool: String,
    /// Ports of an address, per protocol.
    pub ports: u32,
    /// Port blocks of an address.
    pub blocks: u32,
}

/// TCP sessions in a state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StateCount {
    /// The state (RFC 6146 §3.5.2.2, the sides called inside and outside).
    pub state: String,
    /// How many.
    pub sessions: u64,
}

/// One stateless translator with what it has done since start, all workers together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Translator {
    /// Its name.
    pub name: String,
    /// Routing instance of both sides.
    pub vrf: String,
    /// Prefixes that embed IPv4 addresses; to IPv6 the first is used.
    pub prefixes: Vec<String>,
    /// IPv4 addresses that IPv6 hosts have by the first prefix.
    pub ipv4: Vec<String>,
    /// Explicit address mappings.
    pub mappings: Vec<AddressMapping>,
    /// Sources of ICMP errors from IPv6 addresses that stand for no IPv4 address, the first and last of each range.
    #[schema(value_type = Vec<Vec<String>>)]
    pub icmp_sources: Vec<(Ipv4Addr, Ipv4Addr)>,
    /// Packets that became IPv6.
    pub packets_to_v6: u64,
    /// Bytes of these, as IPv4 packets.
    pub bytes_to_v6: u64,
    /// Packets that became IPv4.
    pub packets_to_v4: u64,
    /// Bytes of these, as IPv6 packets.
    pub bytes_to_v4: u64,
    /// Packets that it did not translate, by reason.
    pub drops: Vec<DropCount>,
}

/// Packets dropped for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DropCount {
    /// The reason, as in `show counters`.
    pub reason: String,
    /// How many.
    pub packets: u64,
}

/// Addresses of both versions that are each other's translation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddressMapping {
    /// IPv4 prefix.
    pub v4: String,
    /// IPv6 prefix.
    pub v6: String,
}
