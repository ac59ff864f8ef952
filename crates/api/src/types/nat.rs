//! What the NAT knows: sessions, mappings, subscribers, pools, memory.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Session {
    /// NAT instance.
    pub instance: String,
    /// `tcp`, `udp`, `icmp` or `other`.
    pub protocol: String,
    /// IP protocol number.
    pub ip_protocol: u8,
    /// TCP state, `-` for other protocols.
    pub tcp_state: String,
    /// Who opened it: `out` (a subscriber) or `in`.
    pub direction: String,
    /// Inside address.
    #[schema(value_type = String)]
    pub inside: IpAddr,
    /// Inside port or ICMP identifier.
    pub inside_port: u16,
    /// Outside address.
    #[schema(value_type = String)]
    pub outside: Ipv4Addr,
    /// Outside port or ICMP identifier.
    pub outside_port: u16,
    /// Remote address.
    #[schema(value_type = String)]
    pub remote: Ipv4Addr,
    /// Remote port.
    pub remote_port: u16,
    /// The IPv6 address that stands for the remote; only of sessions with an IPv6 inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub remote6: Option<Ipv6Addr>,
    /// Seconds since a packet last refreshed it.
    pub idle_s: u32,
    /// Seconds until it expires if nothing comes.
    pub expires_s: u32,
    /// Packets from inside, modulo 2^32.
    pub packets_out: u32,
    /// Packets from outside, modulo 2^32.
    pub packets_in: u32,
    /// The worker that owns it.
    pub worker: u8,
}

/// The exact name of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionKey {
    /// NAT instance.
    pub instance: String,
    /// `tcp`, `udp`, `icmp` or `other`.
    pub protocol: String,
    /// Inside address.
    #[schema(value_type = String)]
    pub inside: IpAddr,
    /// Inside port or ICMP identifier.
    pub inside_port: u16,
    /// Remote address.
    #[schema(value_type = String)]
    pub remote: Ipv4Addr,
    /// Remote port; the same as `inside_port` or 0 for ICMP, as the session list shows it.
    pub remote_port: u16,
}

/// Which sessions to delete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BatchDelete {
    /// At most 10,000 a request. Sessions that are already gone are not an error.
    pub sessions: Vec<SessionKey>,
}

/// How many are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deleted {
    /// Sessions, or mappings that hosts asked for, that existed and are gone.
    pub deleted: u64,
}

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Mapping {
    /// NAT instance.
    pub instance: String,
    /// `tcp`, `udp`, `icmp` or `other`.
    pub protocol: String,
    /// Inside address.
    #[schema(value_type = String)]
    pub inside: IpAddr,
    /// Inside port or ICMP identifier.
    pub inside_port: u16,
    /// Outside address.
    #[schema(value_type = String)]
    pub outside: Ipv4Addr,
    /// Outside port or ICMP identifier.
    pub outside_port: u16,
    /// Sessions on it.
    pub sessions: u32,
    /// The NAT64 prefix by which its host sees who begins a session with it, the one that it used last; only of mappings
    /// with an IPv6 inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat64_prefix: Option<String>,
    /// `dynamic`, `static` (made by config) or `asked` (by PCP or NAT-PMP).
    pub kind: String,
    /// The worker that owns it.
    pub worker: u8,
}

/// A block of outside ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Block {
    /// Outside address.
    #[schema(value_type = String)]
    pub address: Ipv4Addr,
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

/// One subscriber: an inside address of an instance, or with `subscriber_prefix_length` a prefix of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Subscriber {
    /// NAT instance.
    pub instance: String,
    /// Inside address; the first one of a subscriber that is a prefix.
    #[schema(value_type = String)]
    pub inside: IpAddr,
    /// Length of the prefix of inside addresses that the subscriber is: 32 (IPv4) or 128 (IPv6) for a single host.
    pub inside_prefix_length: u8,
    /// Paired outside address, when it has one.
    #[schema(value_type = Option<String>)]
    pub outside: Option<Ipv4Addr>,
    /// Sessions.
    pub sessions: u32,
    /// TCP mappings.
    pub mappings_tcp: u32,
    /// UDP mappings.
    pub mappings_udp: u32,
    /// ICMP mappings.
    pub mappings_icmp: u32,
    /// Mappings of other protocols.
    pub mappings_other: u32,
    /// Port blocks.
    pub blocks: Vec<Block>,
    /// The worker that owns it.
    pub worker: u8,
}

/// One outside address of a pool, all workers together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PoolAddress {
    /// NAT instance.
    pub instance: String,
    /// Pool.
    pub pool: String,
    /// Outside address.
    #[schema(value_type = String)]
    pub address: Ipv4Addr,
    /// Subscribers paired to it.
    pub subscribers: u32,
    /// Ports of the address, per protocol.
    pub ports_total: u32,
    /// TCP ports in use.
    pub ports_used_tcp: u32,
    /// UDP ports in use.
    pub ports_used_udp: u32,
    /// ICMP identifiers in use.
    pub ports_used_icmp: u32,
    /// Port blocks of the address; 0 when ports are not given out in blocks.
    pub blocks_total: u32,
    /// Blocks that belong to a subscriber or are in their hold time.
    pub blocks_used: u32,
}

/// One table's memory on one NUMA socket, the workers there added up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Memory {
    /// NUMA socket; 0 on machines without.
    pub socket: u32,
    /// Which table.
    pub table: String,
    /// Entries it can hold.
    pub total: u64,
    /// Entries in use.
    pub used: u64,
    /// Entries still free.
    pub free: u64,
    /// `used` in percent of `total`; 0 for a table without entries.
    pub load_percent: f64,
    /// Bytes reserved.
    pub bytes: u64,
    /// Page size behind it: `1G`, `2M`, `thp` or `4K`; several joined by `+` when workers got different ones.
    pub pages: String,
}

/// The answer of deterministic NAT's arithmetic (RFC 7422 §2): needs no state, so it is also right for the past as
/// long as config was the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deterministic {
    /// NAT instance.
    pub instance: String,
    /// Inside address.
    #[schema(value_type = String)]
    pub inside: IpAddr,
    /// Outside address.
    #[schema(value_type = String)]
    pub outside: Ipv4Addr,
    /// First outside port.
    pub port_first: u16,
    /// Last outside port.
    pub port_last: u16,
}
