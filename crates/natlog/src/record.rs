//! One event as it is exported and stored: flat, of fixed size, with the calendar's time.

use core::net::{IpAddr, Ipv4Addr};

use carrack_base::{InstanceId, Proto, Reason};
use carrack_config::EventClass;
use carrack_nat::row::{Change, Endpoint, HostEndpoint, Mark, NatEvent};
use carrack_runtime::LoggedEvent;

use crate::context::Context;

/// What happened. Numbers up to 18 are those of RFC 8158 §4.3 for NAT44; those from 64 are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A pool has no address or block left.
    AddressesExhausted = 3,
    /// A session began.
    SessionCreated = 4,
    /// A session ended.
    SessionDeleted = 5,
    /// An inside endpoint got an outside endpoint.
    MappingCreated = 8,
    /// It gave it back.
    MappingDeleted = 9,
    /// An outside address has no port left.
    PortsExhausted = 12,
    /// A limit of the configuration was reached.
    QuotaExceeded = 13,
    /// A subscriber was tied to an outside address.
    AddressBound = 14,
    /// The tie ended.
    AddressReleased = 15,
    /// A subscriber got a port block.
    BlockAllocated = 16,
    /// It gave it back.
    BlockReleased = 17,
    /// Use of a pool crossed its threshold, or a subscriber's mappings theirs.
    ThresholdReached = 18,
    /// The daemon started: whatever was allocated before is free.
    Started = 64,
    /// The daemon ended in good order: whatever was allocated is free.
    Stopped = 65,
    /// Another configuration is in force; deterministic pools are answered from its text.
    Configured = 66,
    /// The machine's clock was set; `value` is by how many milliseconds, `count` is 1 when backwards.
    ClockSet = 67,
    /// Events were lost: `count` of them.
    EventsLost = 68,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::AddressesExhausted,
        Self::SessionCreated,
        Self::SessionDeleted,
        Self::MappingCreated,
        Self::MappingDeleted,
        Self::PortsExhausted,
        Self::QuotaExceeded,
        Self::AddressBound,
        Self::AddressReleased,
        Self::BlockAllocated,
        Self::BlockReleased,
        Self::ThresholdReached,
        Self::Started,
        Self::Stopped,
        Self::Configured,
        Self::ClockSet,
        Self::EventsLost,
    ];

    /// From its number.
    #[must_use]
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// The word for people and syslog.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AddressesExhausted => "addresses-exhausted",
            Self::SessionCreated => "session-created",
            Self::SessionDeleted => "session-deleted",
            Self::MappingCreated => "mapping-created",
            Self::MappingDeleted => "mapping-deleted",
            Self::PortsExhausted => "ports-exhausted",
            Self::QuotaExceeded => "quota-exceeded",
            Self::AddressBound => "address-bound",
            Self::AddressReleased => "address-released",
            Self::BlockAllocated => "block-allocated",
            Self::BlockReleased => "block-released",
            Self::ThresholdReached => "threshold-reached",
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Configured => "configured",
            Self::ClockSet => "clock-set",
            Self::EventsLost => "events-lost",
        }
    }

    /// What filters call it.
    #[must_use]
    pub const fn class(self) -> EventClass {
        match self {
            Self::SessionCreated | Self::SessionDeleted => EventClass::Sessions,
            Self::MappingCreated | Self::MappingDeleted => EventClass::Mappings,
            Self::AddressBound | Self::AddressReleased => EventClass::Bindings,
            Self::BlockAllocated | Self::BlockReleased => EventClass::Blocks,
            Self::AddressesExhausted
            | Self::PortsExhausted
            | Self::QuotaExceeded
            | Self::ThresholdReached => EventClass::Limits,
            Self::Started | Self::Stopped | Self::Configured | Self::ClockSet | Self::EventsLost => {
                EventClass::System
            }
        }
    }
}

/// Which limit, as RFC 8158 §4.4 numbers them; 0 for those it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Quota {
    /// Not one of RFC 8158's.
    Other = 0,
    /// Sessions, all together.
    Sessions = 1,
    /// Mappings, all together.
    Mappings = 2,
    /// Something of one subscriber.
    PerUser = 3,
    /// Subscribers.
    Subscribers = 4,
}

impl Quota {
    /// From its number; what is unknown is `Other`.
    #[must_use]
    pub const fn from_u8(number: u8) -> Self {
        match number {
            1 => Self::Sessions,
            2 => Self::Mappings,
            3 => Self::PerUser,
            4 => Self::Subscribers,
            _ => Self::Other,
        }
    }
}

/// One event. What a kind does not have is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Milliseconds since 1970, UTC.
    pub unix_ms: u64,
    /// What.
    pub kind: Kind,
    /// The worker that saw it.
    pub worker: u8,
    /// NAT instance, an index of the [`Context`] that is in force.
    pub instance: u16,
    /// Pool.
    pub pool: u16,
    /// IP protocol number.
    pub protocol: u8,
    /// Quotas: a [`Quota`]; thresholds: a [`Threshold`]; mappings and sessions: 1 where port blocks tell the subscriber too.
    pub detail: u8,
    /// The subscriber.
    pub inside: IpAddr,
    /// Its port or ICMP identifier.
    pub inside_port: u16,
    /// What the Internet sees of it, host byte order.
    pub outside: u32,
    /// First outside port.
    pub first: u16,
    /// Last outside port.
    pub last: u16,
    /// The other party; only with destinations switched on.
    pub remote: IpAddr,
    /// Its IPv4 address: of a NAT64 session not the same.
    pub remote4: u32,
    /// Its port.
    pub remote_port: u16,
    /// Limits: the limit or threshold; configurations: their generation.
    pub value: u32,
    /// How often; 1 for most.
    pub count: u32,
    /// Why it was refused.
    pub reason: Option<Reason>,
}

/// Which threshold was reached. The numbers are those of stored records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Threshold {
    /// Use of a pool fell back under its threshold.
    PoolLow = 0,
    /// Use of a pool rose to its threshold.
    PoolHigh = 1,
    /// Mappings of a subscriber.
    PerUser = 2,
    /// Ports of the pools in use.
    Ports = 3,
    /// Mappings of a subscriber that share its one outside address.
    Paired = 5,
}

impl Threshold {
    /// The value of natThresholdEvent (RFC 8158 §4.5).
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::PoolHigh => 1,
            Self::PoolLow => 2,
            Self::Ports => 3,
            Self::PerUser => 4,
            Self::Paired => 5,
        }
    }
}

/// No address.
pub const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

impl Record {
    /// An event of that kind with nothing else in it.
    #[must_use]
    pub const fn new(unix_ms: u64, kind: Kind) -> Self {
        Self {
            unix_ms,
            kind,
            worker: 0,
            instance: 0,
            pool: 0,
            protocol: 0,
            detail: 0,
            inside: NOBODY,
            inside_port: 0,
            outside: 0,
            first: 0,
            last: 0,
            remote: NOBODY,
            remote4: 0,
            remote_port: 0,
            value: 0,
            count: 1,
            reason: None,
        }
    }

    /// What a worker said, in the terms of the configuration in force.
    #[must_use]
    pub fn of(logged: &LoggedEvent, context: &Context) -> Self {
        let at = Self { worker: logged.worker.0, ..Self::new(logged.unix_ns / 1_000_000, Kind::EventsLost) };
        match logged.event {
            NatEvent::BlockAllocated { instance, inside, block } => Self {
                kind: Kind::BlockAllocated,
                instance: instance.index() as u16,
                inside,
                outside: block.ip,
                first: block.first,
                last: block.last,
                ..at
            },
            NatEvent::BlockReleased { instance, inside, block } => Self {
                kind: Kind::BlockReleased,
                instance: instance.index() as u16,
                inside,
                outside: block.ip,
                first: block.first,
                last: block.last,
                ..at
            },
            NatEvent::AddressBound { instance, inside, outside } => {
                Self { kind: Kind::AddressBound, instance: instance.index() as u16, inside, outside, ..at }
            }
            NatEvent::AddressReleased { instance, inside, outside } => {
                Self { kind: Kind::AddressReleased, instance: instance.index() as u16, inside, outside, ..at }
            }
            NatEvent::MappingBound { instance, proto, inside, outside } => {
                Self::of_mapping(Kind::MappingCreated, instance, proto, inside, outside, at)
            }
            NatEvent::MappingReleased { instance, proto, inside, outside } => {
                Self::of_mapping(Kind::MappingDeleted, instance, proto, inside, outside, at)
            }
            NatEvent::Refused { instance, inside, reason, count } => {
                let instance = instance.index() as u16;
                let (kind, quota, value) = context.refusal(instance, reason);
                let pool = context.pool_of(instance);
                Self {
                    kind,
                    instance,
                    pool,
                    inside,
                    detail: quota as u8,
                    value,
                    count,
                    reason: Some(reason),
                    ..at
                }
            }
            NatEvent::Translation { change, instance, protocol, inside, outside, remote, remote6 } => Self {
                kind: match change {
                    Change::MappingCreated => Kind::MappingCreated,
                    Change::MappingDeleted => Kind::MappingDeleted,
                    Change::SessionCreated => Kind::SessionCreated,
                    Change::SessionDeleted => Kind::SessionDeleted,
                },
                instance: instance.index() as u16,
                detail: u8::from(context.has_blocks(instance.index() as u16)),
                protocol,
                inside: inside.ip,
                inside_port: inside.port,
                outside: outside.ip,
                first: outside.port,
                last: outside.port,
                remote: match (remote, remote6) {
                    (None, _) => NOBODY,
                    (Some(remote), None) => Ipv4Addr::from(remote.ip).into(),
                    (Some(_), Some(six)) => six.into(),
                },
                remote4: remote.map_or(0, |remote| remote.ip),
                remote_port: remote.map_or(0, |remote| remote.port),
                ..at
            },
            NatEvent::PoolThreshold { instance, pool, percent, above } => Self {
                kind: Kind::ThresholdReached,
                instance: instance.index() as u16,
                pool: pool.index() as u16,
                detail: u8::from(above),
                value: context.threshold(instance.index() as u16, above),
                count: u32::from(percent),
                ..at
            },
            NatEvent::PortsThreshold { instance, pool, ports } => Self {
                kind: Kind::ThresholdReached,
                instance: instance.index() as u16,
                pool: pool.index() as u16,
                detail: Threshold::Ports as u8,
                value: context.ports_threshold(instance.index() as u16),
                count: ports,
                ..at
            },
            NatEvent::SubscriberThreshold { mark, instance, inside, mappings } => Self {
                kind: Kind::ThresholdReached,
                instance: instance.index() as u16,
                inside,
                detail: match mark {
                    Mark::PerUser => Threshold::PerUser,
                    Mark::Paired => Threshold::Paired,
                } as u8,
                value: context.mappings_threshold(instance.index() as u16, mark),
                count: mappings,
                ..at
            },
        }
    }

    /// Which threshold it is about, of a [`Kind::ThresholdReached`].
    #[must_use]
    pub const fn threshold(&self) -> Threshold {
        match self.detail {
            1 => Threshold::PoolHigh,
            2 => Threshold::PerUser,
            3 => Threshold::Ports,
            5 => Threshold::Paired,
            _ => Threshold::PoolLow,
        }
    }

    fn of_mapping(
        kind: Kind,
        instance: InstanceId,
        proto: Proto,
        inside: HostEndpoint,
        outside: Endpoint,
        at: Self,
    ) -> Self {
        Self {
            kind,
            instance: instance.index() as u16,
            protocol: if proto == Proto::Tcp { 6 } else { 17 },
            inside: inside.ip,
            inside_port: inside.port,
            outside: outside.ip,
            first: outside.port,
            last: outside.port,
            ..at
        }
    }
}

/// The protocol's number in an IPv4 header; 0 for those without ports.
pub(crate) const fn ip_number(proto: Proto) -> u8 {
    match proto {
        Proto::Icmp => 1,
        Proto::Tcp => 6,
        Proto::Udp => 17,
        Proto::Other => 0,
    }
}
