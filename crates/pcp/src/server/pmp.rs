//! NAT-PMP: the same mappings, asked for with fewer words.

use std::net::Ipv4Addr;

use carrack_base::{Now, Proto, VrfId};
use carrack_nat::row::{Endpoint, HostEndpoint};
use carrack_nat::{PortAsk, PortFilters, PortGrant, PortRefusal, PortWish};

use super::mapping::no_record;
use super::{Purpose, Server, end_of, is_same_client};
use crate::frames::Return;
use crate::message::{self, Code};
use crate::natpmp::{self, MapRequest, Outcome, Request};
use crate::ports;
use crate::table::{Key, Origin, Record};

/// A request under way.
#[derive(Debug)]
pub(super) struct Asked {
    to: Return,
    request: MapRequest,
    key: Key,
    record: Record,
}

impl Server {
    pub(super) fn handle_nat_pmp(&mut self, now: Now, vrf: VrfId, to: Return, payload: &[u8]) {
        let Some(request) = natpmp::read(payload) else {
            self.counters.ignored += 1;
            return;
        };
        self.counters.nat_pmp += 1;
        let served = self.config.served(vrf, to.ends.from);
        if served.is_some_and(|served| !served.nat_pmp) {
            // RFC 6887 appendix A: whoever does not speak version 0 says so in version 2.
            self.refuse(now, to, payload, Code::UnsuppVersion, Code::UnsuppVersion.lifetime_s());
            return;
        }
        match request {
            Err(op) => {
                let answer = natpmp::refused(op, Outcome::UnsupportedOpcode, self.epoch_s(now));
                self.counters.nat_pmp_refused += 1;
                self.reply(to, &answer);
            }
            Ok(Request::Address) => self.handle_address(now, vrf, to),
            Ok(Request::Map(request)) => {
                if let Err(code) = self.handle_map_request(now, vrf, to, request) {
                    self.refuse_pmp(now, to, &request, code);
                }
            }
        }
    }

    fn handle_address(&mut self, now: Now, vrf: VrfId, to: Return) {
        let host = to.ends.from;
        let may = self.config.served(vrf, host).is_some_and(|served| served.allowed(host).any);
        if !may {
            self.answered_address(now, to, Err(PortRefusal::NotServed));
            return;
        }
        let inside = HostEndpoint { ip: host, port: message::HEADER_BYTES as u16 };
        let ask = PortAsk { vrf, proto: Proto::Udp, inside, what: PortWish::Address };
        self.ask(now, None, Purpose::Address(to), ask);
    }

    pub(super) fn answered_address(&mut self, now: Now, to: Return, answer: Result<PortGrant, PortRefusal>) {
        let outside = answer.map(|grant| Ipv4Addr::from(grant.outside.ip));
        let outside = outside.map_err(|refusal| Outcome::from(ports::code_of(refusal)));
        self.count_pmp(outside.is_ok());
        let answer = natpmp::address(outside, self.epoch_s(now));
        self.reply(to, &answer);
    }

    fn handle_map_request(
        &mut self,
        now: Now,
        vrf: VrfId,
        to: Return,
        request: MapRequest,
    ) -> Result<(), Code> {
        let inside = to.ends.from;
        let served = self.config.served(vrf, inside).ok_or(Code::NotAuthorized)?;
        let allowed = served.allowed(inside);
        let proto = if request.op == 1 { Proto::Udp } else { Proto::Tcp };
        let key = Key { vrf, inside, proto: proto as u8, port: request.inside_port, peer: None };
        let (origin, id) = (Origin::NatPmp, served.id);
        if request.lifetime_s == 0 && request.inside_port == 0 {
            return self.end_all(now, &key, to, &request);
        }
        let before = self.table.overlapping(&key, 1).first().copied();
        if before.is_some_and(|(_, record)| !is_same_client(record.origin, origin)) {
            return Err(Code::NotAuthorized);
        }
        let mut record = before.map_or(no_record(id, origin), |(_, record)| record);
        let what = if request.lifetime_s == 0 {
            end_of(&key, 1)
        } else {
            if !allowed.port(key.port) {
                return Err(Code::NotAuthorized);
            }
            if before.is_none() {
                self.room_for(served, allowed, &key, 1).map_err(|refused| refused.code)?;
            }
            // RFC 6886 §3.3: never longer than asked for.
            let lifetime_s = request.lifetime_s.min(allowed.lifetime_max_s);
            record.ends_s = now.s().saturating_add(lifetime_s);
            let suggested = Endpoint { ip: record.outside.ip, port: request.outside_port };
            let filters = PortFilters::default();
            PortWish::Map { suggested, strict: false, lifetime_s, filters, ports: 1, parity: false }
        };
        if self.is_under_way(&key, 1) {
            self.counters.discarded += 1;
            return Ok(());
        }
        self.ask(now, Some((key, 1)), Purpose::Pmp(Asked { to, request, key, record }), key.ask(what));
        Ok(())
    }

    /// RFC 6886 §3.4: all mappings of the host and protocol end; those with a nonce are not its to end this way.
    fn end_all(&mut self, now: Now, key: &Key, to: Return, request: &MapRequest) -> Result<(), Code> {
        let of_host = self.table.of(key.vrf, (key.inside, key.inside));
        let maps = of_host.filter(|(other, _)| other.proto == key.proto && other.peer.is_none());
        let (mine, others): (Vec<_>, Vec<_>) = maps
            .map(|(key, record)| (*key, *record))
            .partition(|(_, record)| record.origin == Origin::NatPmp);
        for (key, record) in mine {
            self.table.remove(&key);
            self.changed = true;
            self.end(now, key, &record);
        }
        if !others.is_empty() {
            return Err(Code::NotAuthorized);
        }
        self.count_pmp(true);
        let answer = natpmp::mapped(request, Outcome::Success, 0, 0, self.epoch_s(now));
        self.reply(to, &answer);
        Ok(())
    }

    pub(super) fn answered_pmp(&mut self, now: Now, asked: Asked, answer: Result<PortGrant, PortRefusal>) {
        let Asked { to, request, key, record } = asked;
        let grant = match answer {
            Ok(grant) => grant,
            Err(refusal) => return self.refuse_pmp(now, to, &request, ports::code_of(refusal)),
        };
        let (mut port, mut lifetime_s) = (0, 0);
        if request.lifetime_s == 0 {
            self.changed |= self.table.remove(&key).is_some();
        } else {
            port = grant.outside.port;
            lifetime_s = grant.lifetime_s.min(request.lifetime_s);
            if grant.lifetime_s != u32::MAX {
                let outside = grant.outside;
                self.table.insert(key, Record { instance: grant.instance, outside, ..record });
                self.changed = true;
            }
        }
        self.count_pmp(true);
        let answer = natpmp::mapped(&request, Outcome::Success, port, lifetime_s, self.epoch_s(now));
        self.reply(to, &answer);
    }

    fn refuse_pmp(&mut self, now: Now, to: Return, request: &MapRequest, code: Code) {
        self.count_pmp(false);
        let answer = natpmp::mapped(request, code.into(), 0, 0, self.epoch_s(now));
        self.reply(to, &answer);
    }

    fn count_pmp(&mut self, granted: bool) {
        let count =
            if granted { &mut self.counters.nat_pmp_granted } else { &mut self.counters.nat_pmp_refused };
        *count += 1;
    }
}
