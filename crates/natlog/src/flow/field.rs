//! Information elements and the templates made of them (RFC 8158 §4.2, §4.6).

use core::net::IpAddr;

use crate::context::Context;
use crate::record::{Kind, Quota, Record, Threshold};

/// One information element of a data record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// observationTimeMilliseconds, which RFC 8158 calls timeStamp.
    Time,
    /// natEvent.
    Event,
    /// sourceIPv4Address: the subscriber.
    Inside4,
    /// sourceIPv6Address: the subscriber.
    Inside6,
    /// postNATSourceIPv4Address.
    Outside,
    /// protocolIdentifier.
    Protocol,
    /// sourceTransportPort.
    InsidePort,
    /// postNAPTSourceTransportPort.
    OutsidePort,
    /// destinationIPv4Address.
    Remote4,
    /// destinationIPv6Address.
    Remote6,
    /// postNATDestinationIPv4Address.
    PostRemote4,
    /// destinationTransportPort.
    RemotePort,
    /// postNAPTDestinationTransportPort.
    PostRemotePort,
    /// portRangeStart.
    First,
    /// portRangeEnd.
    Last,
    /// natInstanceID.
    Instance,
    /// ingressVRFID.
    Vrf,
    /// natPoolId.
    Pool,
    /// natQuotaExceededEvent.
    QuotaEvent,
    /// maxSessionEntries.
    SessionsMax,
    /// maxBIBEntries.
    MappingsMax,
    /// maxEntriesPerUser.
    PerUserMax,
    /// maxSubscribers.
    SubscribersMax,
    /// natThresholdEvent.
    ThresholdEvent,
    /// addressPoolHighThreshold.
    PoolHigh,
    /// addressPoolLowThreshold.
    PoolLow,
    /// addressPortMappingHighThreshold.
    PortsHigh,
    /// addressPortMappingPerUserHighThreshold.
    PerUserHigh,
    /// globalAddressMappingHighThreshold.
    PairedHigh,
}

impl Field {
    /// Number in the registry of IPFIX information elements, and octets.
    #[must_use]
    pub const fn element(self) -> (u16, u16) {
        match self {
            Self::Time => (323, 8),
            Self::Event => (230, 1),
            Self::Inside4 => (8, 4),
            Self::Inside6 => (27, 16),
            Self::Outside => (225, 4),
            Self::Protocol => (4, 1),
            Self::InsidePort => (7, 2),
            Self::OutsidePort => (227, 2),
            Self::Remote4 => (12, 4),
            Self::Remote6 => (28, 16),
            Self::PostRemote4 => (226, 4),
            Self::RemotePort => (11, 2),
            Self::PostRemotePort => (228, 2),
            Self::First => (361, 2),
            Self::Last => (362, 2),
            Self::Instance => (463, 4),
            Self::Vrf => (234, 4),
            Self::Pool => (283, 4),
            Self::QuotaEvent => (466, 4),
            Self::SessionsMax => (471, 4),
            Self::MappingsMax => (472, 4),
            Self::PerUserMax => (473, 4),
            Self::SubscribersMax => (474, 4),
            Self::ThresholdEvent => (467, 4),
            Self::PoolHigh => (476, 4),
            Self::PoolLow => (477, 4),
            Self::PortsHigh => (478, 4),
            Self::PerUserHigh => (480, 4),
            Self::PairedHigh => (481, 4),
        }
    }

    /// Appends the record's value, in network byte order.
    pub fn write(self, record: &Record, context: &Context, out: &mut Vec<u8>) {
        match self {
            Self::Time => out.extend(record.unix_ms.to_be_bytes()),
            Self::Event => out.push(event_number(record)),
            Self::Inside4 => v4(record.inside, out),
            Self::Inside6 => v6(record.inside, out),
            Self::Outside => out.extend(record.outside.to_be_bytes()),
            Self::Protocol => out.push(record.protocol),
            Self::InsidePort => out.extend(record.inside_port.to_be_bytes()),
            Self::OutsidePort | Self::First => out.extend(record.first.to_be_bytes()),
            Self::Last => out.extend(record.last.to_be_bytes()),
            Self::Remote4 => v4(record.remote, out),
            Self::PostRemote4 => out.extend(record.remote4.to_be_bytes()),
            Self::Remote6 => v6(record.remote, out),
            Self::RemotePort | Self::PostRemotePort => out.extend(record.remote_port.to_be_bytes()),
            Self::Instance => out.extend(u32::from(record.instance).to_be_bytes()),
            Self::Vrf => out.extend(u32::from(context.inside_vrf(record.instance)).to_be_bytes()),
            Self::Pool => out.extend(u32::from(record.pool).to_be_bytes()),
            Self::QuotaEvent => out.extend(u32::from(record.detail).to_be_bytes()),
            Self::ThresholdEvent => out.extend(record.threshold().number().to_be_bytes()),
            Self::SessionsMax
            | Self::MappingsMax
            | Self::PerUserMax
            | Self::SubscribersMax
            | Self::PoolHigh
            | Self::PoolLow
            | Self::PortsHigh
            | Self::PerUserHigh
            | Self::PairedHigh => out.extend(record.value.to_be_bytes()),
        }
    }
}

fn v4(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => out.extend(ip.octets()),
        // The template was chosen by the subscriber's family; an address of the other has no place in it.
        IpAddr::V6(_) => out.extend([0; 4]),
    }
}

fn v6(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => out.extend(ip.to_ipv6_mapped().octets()),
        IpAddr::V6(ip) => out.extend(ip.octets()),
    }
}

/// The value of natEvent (RFC 8158 §4.3): NAT64 has numbers of its own for sessions and mappings.
fn event_number(record: &Record) -> u8 {
    let six = if record.inside.is_ipv6() { 2 } else { 0 };
    match record.kind {
        Kind::SessionCreated | Kind::SessionDeleted | Kind::MappingCreated | Kind::MappingDeleted => {
            record.kind as u8 + six
        }
        kind => kind as u8,
    }
}

/// Shape of one kind of data record.
#[derive(Debug, Clone, Copy)]
pub struct Template {
    /// Its number in messages.
    pub id: u16,
    /// Its fields, in order.
    pub fields: &'static [Field],
}

use Field::{
    Event, First, Inside4, Inside6, InsidePort, Instance, Last, MappingsMax, Outside, OutsidePort,
    PairedHigh, PerUserHigh, PerUserMax, Pool, PoolHigh, PoolLow, PortsHigh, PostRemote4, PostRemotePort,
    Protocol, QuotaEvent, Remote4, Remote6, RemotePort, SessionsMax, SubscribersMax, ThresholdEvent, Time,
    Vrf,
};

/// RFC 8158 §4.6, without what it does not demand except the instance and the subscriber's routing instance. The position of
/// each is known to [`template`].
#[rustfmt::skip]
pub const TEMPLATES: [Template; 23] = [
    Template { id: 256, fields: &[Time, Event, Inside4, Outside, Protocol, InsidePort, OutsidePort, Instance, Vrf] },
    Template { id: 257, fields: &[Time, Event, Inside4, Outside, Protocol, InsidePort, OutsidePort, Remote4, PostRemote4, RemotePort, PostRemotePort, Instance, Vrf] },
    Template { id: 258, fields: &[Time, Event, Inside6, Outside, Protocol, InsidePort, OutsidePort, Instance, Vrf] },
    Template { id: 259, fields: &[Time, Event, Inside6, Outside, Protocol, InsidePort, OutsidePort, Remote6, PostRemote4, RemotePort, PostRemotePort, Instance, Vrf] },
    Template { id: 260, fields: &[Time, Event, Inside4, Outside, Protocol, InsidePort, OutsidePort, Instance, Vrf] },
    Template { id: 261, fields: &[Time, Event, Inside6, Outside, Protocol, InsidePort, OutsidePort, Instance, Vrf] },
    Template { id: 262, fields: &[Time, Event, Pool, Instance] },
    Template { id: 263, fields: &[Time, Event, Outside, Protocol, Instance] },
    Template { id: 264, fields: &[Time, Event, QuotaEvent, SessionsMax, Instance] },
    Template { id: 265, fields: &[Time, Event, QuotaEvent, MappingsMax, Instance] },
    Template { id: 266, fields: &[Time, Event, QuotaEvent, PerUserMax, Inside4, Instance, Vrf] },
    Template { id: 267, fields: &[Time, Event, QuotaEvent, PerUserMax, Inside6, Instance, Vrf] },
    Template { id: 268, fields: &[Time, Event, QuotaEvent, SubscribersMax, Instance] },
    Template { id: 269, fields: &[Time, Event, ThresholdEvent, Pool, PoolHigh, Instance] },
    Template { id: 270, fields: &[Time, Event, ThresholdEvent, Pool, PoolLow, Instance] },
    Template { id: 271, fields: &[Time, Event, Inside4, Outside, Instance] },
    Template { id: 272, fields: &[Time, Event, Inside6, Outside, Instance] },
    Template { id: 273, fields: &[Time, Event, Inside4, Outside, First, Last, Instance, Vrf] },
    Template { id: 274, fields: &[Time, Event, Inside6, Outside, First, Last, Instance, Vrf] },
    Template { id: 275, fields: &[Time, Event, ThresholdEvent, PerUserHigh, Inside4, Instance, Vrf] },
    Template { id: 276, fields: &[Time, Event, ThresholdEvent, PerUserHigh, Inside6, Instance, Vrf] },
    Template { id: 277, fields: &[Time, Event, ThresholdEvent, PortsHigh, Instance] },
    Template { id: 278, fields: &[Time, Event, ThresholdEvent, PairedHigh, Instance, Vrf] },
];

/// The template of a record; `None` for events that RFC 8158 has no number for.
#[must_use]
pub fn template(record: &Record) -> Option<&'static Template> {
    let six = usize::from(record.inside.is_ipv6());
    let at = match record.kind {
        Kind::SessionCreated | Kind::SessionDeleted => 2 * six + usize::from(!record.remote.is_unspecified()),
        Kind::MappingCreated | Kind::MappingDeleted => 4 + six,
        Kind::AddressesExhausted => 6,
        Kind::PortsExhausted => 7,
        Kind::QuotaExceeded => match Quota::from_u8(record.detail) {
            Quota::Sessions => 8,
            Quota::Mappings => 9,
            Quota::PerUser => 10 + six,
            Quota::Subscribers => 12,
            Quota::Other => return None,
        },
        Kind::ThresholdReached => match record.threshold() {
            Threshold::PoolHigh => 13,
            Threshold::PoolLow => 14,
            Threshold::PerUser => 19 + six,
            Threshold::Ports => 21,
            Threshold::Paired => 22,
        },
        Kind::AddressBound | Kind::AddressReleased => 15 + six,
        Kind::BlockAllocated | Kind::BlockReleased => 17 + six,
        Kind::Started | Kind::Stopped | Kind::Configured | Kind::ClockSet | Kind::EventsLost => return None,
    };
    TEMPLATES.get(at)
}
