//! MAP, PEER and ANNOUNCE of PCP.

use std::net::IpAddr;

use carrack_base::{Now, Proto, VrfId};
use carrack_nat::row::{Endpoint, HostEndpoint};
use carrack_nat::{PortFilters, PortGrant, PortRefusal, PortWish};

use super::{Purpose, Server, end_of, is_same_client};
use crate::config::{Allowed, Served};
use crate::frames::Return;
use crate::message::{self, Assigned, Body, Code, MapBody, Request};
use crate::ports;
use crate::table::{Key, Origin, Record};

/// Where a request came from, and as what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Came<'a> {
    pub(super) vrf: VrfId,
    pub(super) to: Return,
    pub(super) bytes: &'a [u8],
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Asked {
    to: Return,
    bytes: Vec<u8>,
    request: Request,
    key: Key,
    record: Record,
    /// Does it end what there is?
    ends: bool,
}

/// Why a request is refused, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: Code,
    pub(super) lifetime_s: u32,
}

impl From<Code> for Refused {
    fn from(code: Code) -> Self {
        Self { code, lifetime_s: code.lifetime_s() }
    }
}

/// A protocol that mappings can be of.
pub(super) fn proto_of(number: u8) -> Option<Proto> {
    match number {
        6 => Some(Proto::Tcp),
        17 => Some(Proto::Udp),
        _ => None,
    }
}

impl Server {
    pub(super) fn handle_request(
        &mut self,
        now: Now,
        came: Came<'_>,
        request: Request,
    ) -> Result<(), Refused> {
        match request.body {
            Body::Announce => {
                self.counters.announce += 1;
                self.count(Code::Success);
                let answer = message::announcement(self.epoch_s(now));
                self.reply(came.to, &answer);
                Ok(())
            }
            Body::Map(body) => {
                self.counters.map += 1;
                self.handle_map(now, came, request, body)
            }
            Body::Peer(body, ip, port) => {
                self.counters.peer += 1;
                self.handle_peer(now, came, request, body, (ip, port))
            }
        }
    }

    /// The host that a request is about, the instance that serves it, and what it may ask for.
    fn host(
        &self,
        vrf: VrfId,
        to: &Return,
        third_party: Option<IpAddr>,
    ) -> Result<(IpAddr, &Served, &Allowed), Refused> {
        let client = to.ends.from;
        let host = third_party.unwrap_or(client);
        let served = self.config.served(vrf, host);
        if third_party.is_some() {
            // RFC 6887 §13.1: the client itself is no third party; and only for whom it is allowed.
            if host == client {
                return Err(Code::MalformedRequest.into());
            }
            let may = |served: &Served| served.third_party_from.iter().any(|from| from.contains(client));
            let allowed = match served {
                Some(served) => may(served),
                None => self.config.served.iter().any(may),
            };
            if !allowed {
                return Err(Code::UnsuppOption.into());
            }
        }
        let served = served.ok_or(Code::NotAuthorized)?;
        let allowed = served.allowed(host);
        if allowed.any { Ok((host, served, allowed)) } else { Err(Code::NotAuthorized.into()) }
    }

    fn handle_map(
        &mut self,
        now: Now,
        came: Came<'_>,
        request: Request,
        body: MapBody,
    ) -> Result<(), Refused> {
        let Came { vrf, to, bytes } = came;
        let (inside, served, allowed) = self.host(vrf, &to, request.options.third_party)?;
        let id = served.id;
        let ends = request.lifetime_s == 0;
        let Some(proto) = proto_of(body.protocol).filter(|_| body.inside_port != 0 || ends) else {
            return Err(Code::UnsuppProtocol.into());
        };
        let key = Key { vrf, inside, proto: proto as u8, port: body.inside_port, peer: None };
        let origin = Origin::Pcp(body.nonce);
        let size = request.options.port_set.map_or(1, |set| set.size.max(1));
        if request.options.port_set.is_some_and(|set| set.first != body.inside_port) {
            return Err(Code::MalformedOption.into());
        }
        let before = self.table.overlapping(&key, size);
        self.may_change(now, &before, origin)?;
        if key.port == 0 {
            // There never is a mapping of all ports, so there is none to end (RFC 6887 §15.1).
            let record = no_record(id, origin);
            self.answer_end(now, &Asked { to, bytes: bytes.to_vec(), request, key, record, ends });
            return Ok(());
        }
        if ends {
            let found = before.first().copied().unwrap_or((key, no_record(id, origin)));
            return self.end_map(now, came, request, found);
        }
        if !allowed.port(key.port) {
            return Err(Code::NotAuthorized.into());
        }
        let lifetime_s = clamp(request.lifetime_s, allowed);
        let prefixes = served.prefixes.clone();
        let targets = if before.is_empty() {
            let size = self.room_for(served, allowed, &key, size)?;
            let fresh = Record { ports: size, ..no_record(id, origin) };
            vec![(key, fresh, ports::suggestion(body.outside, body.outside_port))]
        } else {
            // RFC 7753 §4.4.1: what is there is refreshed, each by itself.
            before.iter().map(|(key, record)| (*key, *record, record.outside)).collect()
        };
        let mut planned = Vec::new();
        for (key, record, suggested) in targets {
            let filters = ports::filters(record.filters, &request.options.filters, &prefixes)?;
            if before.len() == 1 && request.options.prefer_failure {
                let wished = ports::suggestion(body.outside, body.outside_port);
                planned.push((key, Record { filters, ..record }, wished));
            } else {
                planned.push((key, Record { filters, ..record }, suggested));
            }
        }
        if request.options.prefer_failure && body.outside_port == 0 {
            return Err(Code::MalformedOption.into());
        }
        for (key, record, suggested) in planned {
            let record = Record { ends_s: now.s().saturating_add(lifetime_s), ..record };
            let what = PortWish::Map {
                suggested,
                strict: request.options.prefer_failure,
                lifetime_s,
                filters: record.filters,
                ports: record.ports,
                parity: request.options.port_set.is_some_and(|set| set.parity),
            };
            let asked = Asked { to, bytes: bytes.to_vec(), request: request.clone(), key, record, ends };
            self.ask_once(now, asked, what);
        }
        Ok(())
    }

    /// RFC 6887 §11.3: with another nonce nobody changes a mapping.
    fn may_change(&self, now: Now, before: &[(Key, Record)], origin: Origin) -> Result<(), Refused> {
        let other = before.iter().find(|(_, record)| !is_same_client(record.origin, origin));
        other.map_or(Ok(()), |(_, record)| {
            let lifetime_s = record.ends_s.saturating_sub(now.s());
            Err(Refused { code: Code::NotAuthorized, lifetime_s })
        })
    }

    /// How many of so many ports a host may still get: what policy allows in a row, and what its quota leaves (RFC 6888
    /// REQ-9b).
    pub(super) fn room_for(
        &self,
        served: &Served,
        allowed: &Allowed,
        key: &Key,
        size: u16,
    ) -> Result<u16, Refused> {
        let hosts = served.subscriber(key.inside);
        let under_way: u32 = self
            .pending
            .values()
            .filter_map(|pending| pending.key)
            .filter(|(other, _)| other.vrf == key.vrf && (hosts.0..=hosts.1).contains(&other.inside))
            .map(|(_, ports)| u32::from(ports))
            .sum();
        let used = self.table.ports_of(key.vrf, hosts).saturating_add(under_way);
        let left = allowed.mappings_max.saturating_sub(used);
        if left == 0 {
            return Err(Code::UserExQuota.into());
        }
        if self.table.all.len() >= self.config.mappings_max as usize {
            return Err(Code::NoResources.into());
        }
        let in_a_row = (key.port..=u16::MAX).take(size.into()).take_while(|port| allowed.port(*port)).count();
        Ok(in_a_row.min(left as usize) as u16)
    }

    /// RFC 7753 §4.4: a set ends as one.
    fn end_map(
        &mut self,
        now: Now,
        came: Came<'_>,
        request: Request,
        (key, record): (Key, Record),
    ) -> Result<(), Refused> {
        let Came { to, bytes, .. } = came;
        let what = end_of(&key, record.ports);
        self.ask_once(now, Asked { to, bytes: bytes.to_vec(), request, key, record, ends: true }, what);
        Ok(())
    }

    fn handle_peer(
        &mut self,
        now: Now,
        came: Came<'_>,
        request: Request,
        body: MapBody,
        peer: (IpAddr, u16),
    ) -> Result<(), Refused> {
        let Came { vrf, to, bytes } = came;
        let (inside, served, allowed) = self.host(vrf, &to, request.options.third_party)?;
        let proto = proto_of(body.protocol).ok_or(Code::UnsuppProtocol)?;
        if body.inside_port == 0 || peer.1 == 0 {
            return Err(Code::MalformedRequest.into());
        }
        let key = Key { vrf, inside, proto: proto as u8, port: body.inside_port, peer: Some(peer) };
        let origin = Origin::Pcp(body.nonce);
        let found = self.table.get(&key).map(|record| (key, *record));
        self.may_change(now, found.as_slice(), origin)?;
        let ends = request.lifetime_s == 0;
        let mut record = found.map_or(no_record(served.id, origin), |(_, record)| record);
        let remote = HostEndpoint { ip: peer.0, port: peer.1 };
        let what = if ends {
            end_of(&key, 1)
        } else {
            if !allowed.port(key.port) {
                return Err(Code::NotAuthorized.into());
            }
            if found.is_none() {
                self.room_for(served, allowed, &key, 1)?;
            }
            let lifetime_s = clamp(request.lifetime_s, allowed);
            record.ends_s = now.s().saturating_add(lifetime_s);
            let suggested = ports::suggestion(body.outside, body.outside_port);
            PortWish::Peer { suggested, remote, lifetime_s }
        };
        self.ask_once(now, Asked { to, bytes: bytes.to_vec(), request, key, record, ends }, what);
        Ok(())
    }

    /// Asks the engine, unless it is being asked: the client will ask again (RFC 6887 §8.2).
    fn ask_once(&mut self, now: Now, asked: Asked, what: PortWish) {
        let (key, ports) = (asked.key, asked.record.ports);
        if self.is_under_way(&key, ports) {
            self.counters.discarded += 1;
            return;
        }
        self.ask(now, Some((key, ports)), Purpose::Pcp(Box::new(asked)), key.ask(what));
    }

    /// The engine has answered.
    pub(super) fn answered(&mut self, now: Now, asked: Asked, answer: Result<PortGrant, PortRefusal>) {
        self.is_told(&asked.key);
        let grant = match answer {
            Ok(grant) => grant,
            Err(refusal) => {
                let code = ports::code_of(refusal);
                self.refuse(now, asked.to, &asked.bytes, code, code.lifetime_s());
                return;
            }
        };
        if asked.ends {
            self.changed |= self.table.remove(&asked.key).is_some();
            self.answer_end(now, &asked);
            return;
        }
        let is_fixed = grant.lifetime_s == u32::MAX;
        if !is_fixed {
            let record = Record {
                instance: grant.instance,
                outside: grant.outside,
                ports: grant.ports,
                client: Some(asked.to),
                prefer_failure: asked.request.options.prefer_failure,
                ..asked.record
            };
            self.table.insert(asked.key, record);
            self.changed = true;
        }
        let assigned = Assigned {
            lifetime_s: grant.lifetime_s,
            inside_port: asked.key.port,
            outside: std::net::Ipv4Addr::from(grant.outside.ip).into(),
            outside_port: grant.outside.port,
            ports: grant.ports,
        };
        self.answer(now, &asked, &assigned);
    }

    /// RFC 6887 §15.1: lifetime 0, and the suggestion as it came.
    fn answer_end(&mut self, now: Now, asked: &Asked) {
        let body = match asked.request.body {
            Body::Map(body) | Body::Peer(body, ..) => body,
            Body::Announce => return,
        };
        let assigned = Assigned {
            lifetime_s: 0,
            inside_port: body.inside_port,
            outside: body.outside,
            outside_port: body.outside_port,
            ports: asked.record.ports,
        };
        self.answer(now, asked, &assigned);
    }

    fn answer(&mut self, now: Now, asked: &Asked, assigned: &Assigned) {
        let answer = message::success(&asked.request, assigned, self.epoch_s(now));
        self.count(Code::Success);
        self.reply(asked.to, &answer);
    }
}

/// A record of something that is not there yet.
pub(super) fn no_record(instance: carrack_base::InstanceId, origin: Origin) -> Record {
    let outside = Endpoint::default();
    let filters = PortFilters::default();
    Record { instance, outside, ports: 1, ends_s: 0, origin, filters, client: None, prefer_failure: false }
}

/// RFC 6887 §15: within the bounds of policy.
fn clamp(lifetime_s: u32, allowed: &Allowed) -> u32 {
    lifetime_s.max(allowed.lifetime_min_s).min(allowed.lifetime_max_s)
}
