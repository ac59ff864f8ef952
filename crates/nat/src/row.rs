//! What management sees of the engine: rows copied out of the tables, filters over them, and events.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{InstanceId, PoolId, Prefix, Prefix4, Prefix6, Proto, Reason};
use carrack_tables::{Backing, PageKind};

/// TCP connection state as the NAT sees it (RFC 6146 §3.5.2.2 names, sides called inside and outside).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum TcpState {
    /// Not TCP.
    #[default]
    None = 0,
    /// SYN seen from inside only.
    InsideInit = 1,
    /// SYN seen from outside only.
    OutsideInit = 2,
    /// SYN seen from both sides.
    Established = 3,
    /// FIN from inside.
    InsideFin = 4,
    /// FIN from outside.
    OutsideFin = 5,
    /// FIN from both sides.
    BothFin = 6,
    /// RST seen; data revives the session (RFC 7857 §2.2).
    Reset = 7,
}

impl TcpState {
    /// The word for CLI and API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "-",
            Self::InsideInit => "inside-init",
            Self::OutsideInit => "outside-init",
            Self::Established => "established",
            Self::InsideFin => "inside-fin",
            Self::OutsideFin => "outside-fin",
            Self::BothFin => "both-fin",
            Self::Reset => "reset",
        }
    }

    /// From the number kept in a session line; anything unknown is `None`.
    #[must_use]
    pub const fn from_u8(n: u8) -> Self {
        match n {
            1 => Self::InsideInit,
            2 => Self::OutsideInit,
            3 => Self::Established,
            4 => Self::InsideFin,
            5 => Self::OutsideFin,
            6 => Self::BothFin,
            7 => Self::Reset,
            _ => Self::None,
        }
    }
}

/// Address (host byte order) and port or ICMP identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address.
    pub ip: u32,
    /// Port or identifier; 0 for protocols without.
    pub port: u16,
}

impl core::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&format!("{}:{}", core::net::Ipv4Addr::from(self.ip), self.port))
    }
}

/// Address of either IP version and port or ICMP identifier: the inside of a session or mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostEndpoint {
    /// Address.
    pub ip: IpAddr,
    /// Port or identifier; 0 for protocols without.
    pub port: u16,
}

impl HostEndpoint {
    /// As an IPv4 endpoint; `None` when it is not one.
    #[must_use]
    pub fn v4(self) -> Option<Endpoint> {
        match self.ip {
            IpAddr::V4(ip) => Some(Endpoint { ip: ip.into(), port: self.port }),
            IpAddr::V6(_) => None,
        }
    }
}

/// An IPv4 address in host byte order as one of either version.
pub(crate) fn v4(ip: u32) -> IpAddr {
    Ipv4Addr::from(ip).into()
}

impl From<Endpoint> for HostEndpoint {
    fn from(endpoint: Endpoint) -> Self {
        Self { ip: v4(endpoint.ip), port: endpoint.port }
    }
}

impl core::fmt::Display for HostEndpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(&std::net::SocketAddr::new(self.ip, self.port).to_string())
    }
}

/// One session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRow {
    /// Instance.
    pub instance: InstanceId,
    /// Protocol.
    pub proto: Proto,
    /// IP protocol number, for `Proto::Other`.
    pub ip_proto: u8,
    /// TCP state.
    pub tcp: TcpState,
    /// Opened from outside?
    pub inbound: bool,
    /// Inside endpoint.
    pub inside: HostEndpoint,
    /// Outside endpoint.
    pub outside: Endpoint,
    /// Remote endpoint.
    pub remote: Endpoint,
    /// The IPv6 address that stands for the remote, of a session with an IPv6 inside.
    pub remote6: Option<Ipv6Addr>,
    /// Seconds since the last packet that refreshed it.
    pub idle_s: u32,
    /// Seconds until it expires if nothing comes.
    pub expires_s: u32,
    /// Packets from inside, wrapping.
    pub packets_out: u32,
    /// Packets from outside, wrapping.
    pub packets_in: u32,
}

/// One mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MappingRow {
    /// Instance.
    pub instance: InstanceId,
    /// Protocol.
    pub proto: Proto,
    /// Inside endpoint.
    pub inside: HostEndpoint,
    /// Of a mapping with an IPv6 inside, the NAT64 prefix by which its host sees those who begin a session with it: the
    /// one that it used last.
    pub via: Option<Prefix6>,
    /// Outside endpoint.
    pub outside: Endpoint,
    /// Sessions on it.
    pub sessions: u32,
    /// Made by config?
    pub is_static: bool,
    /// Did its host ask for it by port control?
    pub is_asked_for: bool,
}

/// One port block of a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockRow {
    /// Outside address, host byte order.
    pub ip: u32,
    /// First port.
    pub first: u16,
    /// Last port.
    pub last: u16,
}

/// Most blocks of one subscriber.
pub const BLOCKS_MAX: usize = 16;

/// One subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriberRow {
    /// Instance.
    pub instance: InstanceId,
    /// Inside address; with a prefix length configured, the prefix that its hosts share.
    pub inside: Prefix,
    /// Paired outside address, when it has one.
    pub outside: Option<u32>,
    /// Sessions.
    pub sessions: u32,
    /// Mappings by protocol: TCP, UDP, ICMP, other.
    pub mappings: [u32; 4],
    /// Number of entries of `blocks` that are valid.
    pub block_count: u8,
    /// Port blocks.
    pub blocks: [BlockRow; BLOCKS_MAX],
}

/// One pool address as this worker sees it (its share only; sum over workers).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolRow {
    /// Instance.
    pub instance: InstanceId,
    /// Pool.
    pub pool: PoolId,
    /// Outside address.
    pub ip: u32,
    /// Subscribers paired to it.
    pub subscribers: u32,
    /// Ports of this worker's share, per protocol.
    pub ports_total: u32,
    /// Ports in use by protocol: TCP, UDP, ICMP.
    pub ports_used: [u32; 3],
    /// Blocks of this worker's share; 0 when not in block mode.
    pub blocks_total: u32,
    /// Blocks owned by subscribers or in their hold time.
    pub blocks_used: u32,
}

/// One table's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRow {
    /// Which table: `sessions`, `session-index`, `mappings`, …
    pub table: &'static str,
    /// Lines or entries it can hold.
    pub total: u64,
    /// In use.
    pub used: u64,
    /// Bytes reserved.
    pub bytes: u64,
    /// Page size behind it: "1G", "2M", "thp", "4K".
    pub pages: &'static str,
    /// NUMA node it is on, as the kernel says; `None` when it does not.
    pub node: Option<u32>,
}

impl MemoryRow {
    /// Of a table with so many lines in all, so many in use and so many bytes, in memory of an arena.
    #[must_use]
    pub const fn new(
        table: &'static str,
        (total, used, bytes): (usize, usize, usize),
        backing: Backing,
    ) -> Self {
        let pages = match backing.pages {
            PageKind::Huge1G => "1G",
            PageKind::Huge2M => "2M",
            PageKind::Transparent => "thp",
            PageKind::Small => "4K",
        };
        Self { table, total: total as u64, used: used as u64, bytes: bytes as u64, pages, node: backing.node }
    }
}

/// Which rows; `None` matches all. Prefixes match addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filter {
    /// Instance.
    pub instance: Option<InstanceId>,
    /// Protocol.
    pub proto: Option<Proto>,
    /// Inside address.
    pub inside: Option<Prefix>,
    /// Inside port.
    pub inside_port: Option<u16>,
    /// Outside address.
    pub outside: Option<Prefix4>,
    /// Outside port.
    pub outside_port: Option<u16>,
    /// Remote address: an IPv6 one is what stands for it behind a NAT64 prefix.
    pub remote: Option<Prefix>,
    /// Remote port.
    pub remote_port: Option<u16>,
    /// TCP state.
    pub tcp: Option<TcpState>,
}

impl Filter {
    fn inside(&self, inside: HostEndpoint) -> bool {
        self.inside.is_none_or(|p| p.contains(inside.ip)) && self.inside_port.is_none_or(|p| p == inside.port)
    }

    fn endpoint(prefix: Option<Prefix4>, port: Option<u16>, endpoint: Endpoint) -> bool {
        prefix.is_none_or(|p| p.contains(endpoint.ip)) && port.is_none_or(|p| p == endpoint.port)
    }

    /// Does the session match?
    #[must_use]
    pub fn session(&self, row: &SessionRow) -> bool {
        self.instance.is_none_or(|i| i == row.instance)
            && self.proto.is_none_or(|p| p == row.proto)
            && self.tcp.is_none_or(|t| t == row.tcp)
            && self.inside(row.inside)
            && Self::endpoint(self.outside, self.outside_port, row.outside)
            && self.remote_port.is_none_or(|p| p == row.remote.port)
            && self.remote.is_none_or(|p| {
                p.contains(v4(row.remote.ip)) || row.remote6.is_some_and(|ip| p.contains(ip.into()))
            })
    }

    /// Does the mapping match? Remote and TCP state are not asked.
    #[must_use]
    pub fn mapping(&self, row: &MappingRow) -> bool {
        self.instance.is_none_or(|i| i == row.instance)
            && self.proto.is_none_or(|p| p == row.proto)
            && self.inside(row.inside)
            && Self::endpoint(self.outside, self.outside_port, row.outside)
    }

    /// Does the subscriber match? Asked for instance and inside and outside address: of a subscriber with a prefix, any of
    /// its hosts will do.
    #[must_use]
    pub fn subscriber(&self, row: &SubscriberRow) -> bool {
        self.instance.is_none_or(|i| i == row.instance)
            && self.inside.is_none_or(|p| p.overlaps(row.inside))
            && self.outside.is_none_or(|p| {
                row.outside.is_some_and(|ip| p.contains(ip))
                    || row.blocks.iter().take(usize::from(row.block_count)).any(|b| p.contains(b.ip))
            })
    }
}

/// The exact name of a session, for deletion by batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// Instance.
    pub instance: InstanceId,
    /// Protocol.
    pub proto: Proto,
    /// Inside endpoint.
    pub inside: HostEndpoint,
    /// Remote endpoint.
    pub remote: Endpoint,
}

/// What happened to a single translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// An inside endpoint got an outside endpoint.
    MappingCreated,
    /// It gave it back.
    MappingDeleted,
    /// A session began.
    SessionCreated,
    /// A session ended.
    SessionDeleted,
}

/// Thresholds of a subscriber's mappings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// However it pools (RFC 8158 §4.6.8.3).
    PerUser,
    /// Of those that share the one outside address of paired pooling (RFC 8158 §4.6.8.4).
    Paired,
}

impl Mark {
    /// Both.
    pub const ALL: [Self; 2] = [Self::PerUser, Self::Paired];
}

/// What an engine has to tell, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NatNews {
    /// Monotonic time, nanoseconds.
    pub at_ns: u64,
    /// What.
    pub event: NatEvent,
}

/// Something management wants to know (RFC 8158 kinds). None names a destination (RFC 6888 REQ-12) unless the instance's
/// [`Logged`](crate::policy::Logged) asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatEvent {
    /// A subscriber got a port block.
    BlockAllocated {
        /// Instance.
        instance: InstanceId,
        /// Inside address.
        inside: IpAddr,
        /// The block.
        block: BlockRow,
    },
    /// A subscriber gave a port block back.
    BlockReleased {
        /// Instance.
        instance: InstanceId,
        /// Inside address.
        inside: IpAddr,
        /// The block.
        block: BlockRow,
    },
    /// A subscriber was tied to an outside address.
    AddressBound {
        /// Instance.
        instance: InstanceId,
        /// Inside address.
        inside: IpAddr,
        /// Outside address.
        outside: u32,
    },
    /// The tie ended.
    AddressReleased {
        /// Instance.
        instance: InstanceId,
        /// Inside address.
        inside: IpAddr,
        /// Outside address.
        outside: u32,
    },
    /// A host asked for a mapping and got it (RFC 6887 §11, §12).
    MappingBound {
        /// Instance.
        instance: InstanceId,
        /// TCP or UDP.
        proto: Proto,
        /// Its host and port.
        inside: HostEndpoint,
        /// What the Internet sees of it.
        outside: Endpoint,
    },
    /// The last that a host had asked for of the mapping ended; sessions may keep it for a while.
    MappingReleased {
        /// Instance.
        instance: InstanceId,
        /// TCP or UDP.
        proto: Proto,
        /// Its host and port.
        inside: HostEndpoint,
        /// What the Internet saw of it.
        outside: Endpoint,
    },
    /// A mapping was refused; sent at most once a second per instance and reason, with the count since the last.
    Refused {
        /// Instance.
        instance: InstanceId,
        /// The subscriber refused last.
        inside: IpAddr,
        /// Why.
        reason: Reason,
        /// Refusals since the last event of this reason.
        count: u32,
    },
    /// Pool use crossed the instance's threshold upwards (`above`) or came back 5 points under it.
    PoolThreshold {
        /// Instance.
        instance: InstanceId,
        /// Pool.
        pool: PoolId,
        /// Use in percent, this worker's share.
        percent: u8,
        /// Crossed upwards?
        above: bool,
    },
    /// The ports in use have become as many as the instance's threshold; told anew after they were an eighth fewer.
    PortsThreshold {
        /// Instance.
        instance: InstanceId,
        /// Its first pool.
        pool: PoolId,
        /// This worker's, all protocols together, which has reached its share of the threshold.
        ports: u32,
    },
    /// A subscriber's mappings have become as many as its threshold; told anew after they were an eighth fewer.
    SubscriberThreshold {
        /// Which threshold.
        mark: Mark,
        /// Instance.
        instance: InstanceId,
        /// Inside address.
        inside: IpAddr,
        /// Its mappings, all protocols together.
        mappings: u32,
    },
    /// A single mapping or session came or went, where the instance's [`Logged`](crate::policy::Logged) asks for it.
    Translation {
        /// What.
        change: Change,
        /// Instance.
        instance: InstanceId,
        /// IP protocol number, as outside.
        protocol: u8,
        /// Inside endpoint.
        inside: HostEndpoint,
        /// Outside endpoint.
        outside: Endpoint,
        /// Remote endpoint; `None` where destinations are not logged.
        remote: Option<Endpoint>,
        /// The IPv6 address that stands for the remote, where it is logged and the inside is IPv6.
        remote6: Option<Ipv6Addr>,
    },
}
