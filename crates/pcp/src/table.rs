//! What was granted to whom: all that the protocol must remember of a mapping. Its port is the NAT engine's.

use std::collections::BTreeMap;
use std::net::IpAddr;

use carrack_base::{InstanceId, Proto, VrfId};
use carrack_nat::row::Endpoint;
use carrack_nat::{PortAsk, PortFilters, PortWish};

use crate::frames::Return;

/// A client's secret for a mapping (RFC 6887 §11.1).
pub type Nonce = [u8; 12];

/// What a mapping is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Routing instance of the host.
    pub vrf: VrfId,
    /// Host.
    pub inside: IpAddr,
    /// TCP or UDP, as [`Proto`] numbers them.
    pub proto: u8,
    /// First inside port.
    pub port: u16,
    /// The peer, of a PEER.
    pub peer: Option<(IpAddr, u16)>,
}

/// Who asked, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// By NAT-PMP.
    NatPmp,
    /// By PCP, with that nonce.
    Pcp(Nonce),
}

/// One grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) instance: InstanceId,
    pub(crate) outside: Endpoint,
    pub(crate) ports: u16,
    /// Second at which it ends.
    pub(crate) ends_s: u32,
    pub(crate) origin: Origin,
    pub(crate) filters: PortFilters,
    /// To whom the last answer went; `None` after a restart.
    pub(crate) client: Option<Return>,
    /// Did the last request insist on its place (RFC 6887 §13.2)?
    pub(crate) prefer_failure: bool,
}

/// A grant as management shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingRow {
    /// Instance.
    pub instance: InstanceId,
    /// Routing instance, host, protocol, port and peer.
    pub key: Key,
    /// Outside endpoint.
    pub outside: Endpoint,
    /// Ports in a row.
    pub ports: u16,
    /// Seconds left.
    pub expires_s: u32,
    /// How it was asked for.
    pub origin: Origin,
    /// Who may come in.
    pub filters: PortFilters,
}

impl Key {
    /// TCP or UDP.
    #[must_use]
    pub const fn proto(&self) -> Proto {
        Proto::from_index(self.proto)
    }

    /// The question to the engine about it.
    pub(crate) fn ask(&self, what: PortWish) -> PortAsk {
        let inside = carrack_nat::row::HostEndpoint { ip: self.inside, port: self.port };
        PortAsk { vrf: self.vrf, proto: self.proto(), inside, what }
    }
}

/// All grants.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) all: BTreeMap<Key, Record>,
    /// By second of their end.
    ends: std::collections::BTreeSet<(u32, Key)>,
}

impl Table {
    pub(crate) fn get(&self, key: &Key) -> Option<&Record> {
        self.all.get(key)
    }

    pub(crate) fn insert(&mut self, key: Key, record: Record) {
        self.ends.insert((record.ends_s, key));
        if let Some(old) = self.all.insert(key, record)
            && old.ends_s != record.ends_s
        {
            self.ends.remove(&(old.ends_s, key));
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Record> {
        let old = self.all.remove(key)?;
        self.ends.remove(&(old.ends_s, *key));
        Some(old)
    }

    pub(crate) fn next_end_s(&self) -> Option<u32> {
        self.ends.first().map(|(s, _)| *s)
    }

    /// The next grant that has ended.
    pub(crate) fn pop_ended(&mut self, now_s: u32) -> Option<Key> {
        let key = self.ends.first().filter(|(s, _)| *s <= now_s).map(|(_, key)| *key)?;
        self.remove(&key).map(|_| key)
    }

    /// Grants of a range of hosts.
    pub(crate) fn of(
        &self,
        vrf: VrfId,
        (first, last): (IpAddr, IpAddr),
    ) -> impl Iterator<Item = (&Key, &Record)> {
        let from = Key { vrf, inside: first, proto: 0, port: 0, peer: None };
        self.all.range(from..).take_while(move |(key, _)| key.vrf == vrf && key.inside <= last)
    }

    /// Ports that a range of hosts has.
    pub(crate) fn ports_of(&self, vrf: VrfId, hosts: (IpAddr, IpAddr)) -> u32 {
        self.of(vrf, hosts).map(|(_, record)| u32::from(record.ports)).sum()
    }

    /// MAP grants of a host and protocol that share inside ports with these, the first one first.
    pub(crate) fn overlapping(&self, key: &Key, ports: u16) -> Vec<(Key, Record)> {
        let last = key.port.saturating_add(ports.max(1) - 1);
        self.of(key.vrf, (key.inside, key.inside))
            .filter(|(other, record)| {
                let other_last = other.port.saturating_add(record.ports.max(1) - 1);
                other.peer.is_none()
                    && other.proto == key.proto
                    && other.port <= last
                    && other_last >= key.port
            })
            .map(|(key, record)| (*key, *record))
            .collect()
    }
}
