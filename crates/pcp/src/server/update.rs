//! What a reload has moved: mappings repaired, and their clients told without being asked (RFC 6887 §14.2).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use carrack_base::{Now, Proto, Reason};
use carrack_nat::row::Endpoint;
use carrack_nat::{PortGrant, PortRefusal, PortWish};

use super::{Purpose, Server, wish};
use crate::frames::Return;
use crate::message::{self, Assigned, Body, Code, MapBody, Options, Request};
use crate::ports;
use crate::table::{Key, Origin, Record};

/// How often a client is told (RFC 6887 §14.2).
const TIMES: u8 = 3;
/// Time between the first two; the third comes after twice that.
const FIRST_NS: u64 = 250_000_000;
/// How soon the engine is asked again, while its workers change over one after the other.
const AGAIN_NS: u64 = 10_000_000;
/// Sent in one turn: they share the queue with answers to clients.
const A_TURN: usize = 256;

/// What a client is being told.
#[derive(Debug, Clone, Copy)]
struct Update {
    /// The mapping as it is now; as it was, where it could not be kept.
    record: Record,
    code: Code,
    /// Seconds, or what is left of the record's.
    lifetime_s: Option<u32>,
    left: u8,
    wait_ns: u64,
    due: Now,
}

/// Who is still to be told what.
#[derive(Debug, Default)]
pub(super) struct Updates {
    all: BTreeMap<Key, Update>,
    due: BTreeSet<(Now, Key)>,
    /// What is to be asked again, and when.
    again: Vec<Key>,
    again_due: Now,
    /// Until when a reload may be what is in the way.
    changing_until: Now,
}

impl Updates {
    fn insert(&mut self, key: Key, update: Update) {
        self.remove(&key);
        self.due.insert((update.due, key));
        self.all.insert(key, update);
    }

    fn remove(&mut self, key: &Key) -> Option<Update> {
        let update = self.all.remove(key)?;
        self.due.remove(&(update.due, *key));
        Some(update)
    }

    pub(super) fn next_due(&self) -> Option<Now> {
        let again = (!self.again.is_empty()).then_some(self.again_due);
        [self.due.first().map(|(due, _)| *due), again].into_iter().flatten().min()
    }

    /// A reload has begun.
    pub(super) fn changing(&mut self, until: Now) {
        self.changing_until = until;
    }

    /// Is anything to be asked again?
    pub(super) fn waits(&self) -> bool {
        !self.again.is_empty()
    }

    /// What is to be asked again now.
    pub(super) fn again(&mut self, now: Now) -> Vec<Key> {
        if now >= self.again_due { std::mem::take(&mut self.again) } else { Vec::new() }
    }
}

impl Server {
    /// The engine was asked to keep a mapping as it is.
    pub(super) fn kept(&mut self, now: Now, key: Key, answer: Result<PortGrant, PortRefusal>) {
        let Some(record) = self.table.get(&key).copied() else { return };
        let is_kept =
            answer.is_ok_and(|grant| (grant.outside, grant.ports) == (record.outside, record.ports));
        if is_kept {
            return;
        }
        let insists = record.prefer_failure;
        match (self.client_of(&key, &record), answer) {
            // Part of a port set, where it was.
            (Some(_), Ok(grant)) => self.moved(now, key, Ok(grant)),
            (Some(_), Err(_)) if !insists => {
                let lifetime_s = record.ends_s.saturating_sub(now.s());
                let what = match wish(&key, &record, lifetime_s) {
                    // Any address; the port it had, if that is free there.
                    PortWish::Map { suggested, filters, ports, parity, .. } => {
                        let suggested = Endpoint { ip: 0, ..suggested };
                        PortWish::Map { suggested, strict: false, lifetime_s, filters, ports, parity }
                    }
                    // What is suggested for a PEER is insisted on (RFC 6887 §12.3).
                    PortWish::Peer { remote, .. } => {
                        PortWish::Peer { suggested: Endpoint::default(), remote, lifetime_s }
                    }
                    other => other,
                };
                self.ask(now, Some((key, record.ports)), Purpose::Move, key.ask(what));
            }
            (Some(_), Err(refusal)) => self.moved(now, key, Err(refusal)),
            (None, answer) => {
                self.table.remove(&key);
                self.lose();
                if let Ok(grant) = answer {
                    self.end(now, key, &Record { ports: grant.ports, ..record });
                }
            }
        }
    }

    /// The engine was asked for another place.
    pub(super) fn moved(&mut self, now: Now, key: Key, answer: Result<PortGrant, PortRefusal>) {
        let Some(record) = self.table.get(&key).copied() else { return };
        self.changed = true;
        match answer {
            Ok(grant) => {
                let before = (record.outside, record.ports);
                let (instance, outside) = (grant.instance, grant.outside);
                let record = Record { instance, outside, ports: grant.ports, ..record };
                let is_fixed = grant.lifetime_s == u32::MAX;
                if is_fixed {
                    self.table.remove(&key);
                } else {
                    self.table.insert(key, record);
                }
                if is_fixed || before != (record.outside, record.ports) {
                    self.counters.moved += 1;
                    self.tell(now, key, record, Code::Success, is_fixed.then_some(u32::MAX));
                }
            }
            // No port is given out before all workers have changed over: a moment.
            Err(PortRefusal::Short(Reason::NatPoolChanging)) if now < self.updates.changing_until => {
                if self.updates.again.is_empty() {
                    self.updates.again_due = now.plus_ns(AGAIN_NS);
                }
                self.updates.again.push(key);
            }
            Err(refusal) => {
                self.table.remove(&key);
                // A worker that was only slow may have it.
                self.end(now, key, &record);
                let code = ports::code_of(refusal);
                // Who insists on its place is told all there is to say; others shall ask again.
                if code == Code::CannotProvideExternal {
                    self.counters.lost += 1;
                } else {
                    self.lose();
                }
                self.tell(now, key, record, code, Some(code.lifetime_s()));
            }
        }
    }

    /// Who asked for the mapping, where the server can still answer from the address that it was asked at. NAT-PMP has no
    /// such message.
    fn client_of(&self, key: &Key, record: &Record) -> Option<Return> {
        let to = record.client.filter(|_| record.origin != Origin::NatPmp)?;
        let on = self.config.inside(to.interface)?;
        (on.vrf == key.vrf && self.config.is_own(on, to.ends.to)).then_some(to)
    }

    /// Begins to tell the client of a mapping, if there is a way to.
    pub(super) fn tell(&mut self, now: Now, key: Key, record: Record, code: Code, lifetime_s: Option<u32>) {
        let update = Update { record, code, lifetime_s, left: TIMES, wait_ns: FIRST_NS, due: now };
        self.updates.insert(key, update);
    }

    /// The client has heard: RFC 6887 §14.2 has the server say no more of it.
    pub(super) fn is_told(&mut self, key: &Key) {
        self.updates.remove(key);
    }

    /// Sends what is due, a bounded share of it.
    pub(super) fn send_updates(&mut self, now: Now) {
        for _ in 0..A_TURN {
            let due = self.updates.due.first().filter(|(due, _)| *due <= now).map(|(_, key)| *key);
            let Some((key, mut update)) = due.and_then(|key| Some((key, self.updates.remove(&key)?))) else {
                return;
            };
            // What has ended meanwhile, or come about anew, is not as it would be told.
            let stands = match self.table.get(&key) {
                Some(record) => update.code == Code::Success && record.outside == update.record.outside,
                None => update.code != Code::Success || update.lifetime_s.is_some(),
            };
            let Some(to) = self.client_of(&key, &update.record).filter(|_| stands) else { continue };
            let answer = self.update(now, &key, &update, to);
            self.counters.updates += 1;
            self.reply(to, &answer);
            update.left -= 1;
            if update.left > 0 {
                update.due = now.plus_ns(update.wait_ns);
                update.wait_ns *= 2;
                self.updates.insert(key, update);
            }
        }
    }

    /// "Identical to the MAP or PEER responses normally returned", with the mandatory options alone.
    fn update(&self, now: Now, key: &Key, update: &Update, to: Return) -> Vec<u8> {
        let record = &update.record;
        let nonce = match record.origin {
            Origin::Pcp(nonce) => nonce,
            Origin::NatPmp => Default::default(),
        };
        let protocol = if key.proto() == Proto::Tcp { 6 } else { 17 };
        let outside = Ipv4Addr::from(record.outside.ip).into();
        let (inside_port, outside_port) = (key.port, record.outside.port);
        let body = MapBody { nonce, protocol, inside_port, outside_port, outside };
        let body = key.peer.map_or(Body::Map(body), |(ip, port)| Body::Peer(body, ip, port));
        let prefixes = self.config.served(key.vrf, key.inside).map_or(&[][..], |served| &served.prefixes);
        let options = Options {
            third_party: (to.ends.from != key.inside).then_some(key.inside),
            prefer_failure: record.prefer_failure,
            filters: ports::filter_options(&record.filters, key.inside, prefixes),
            port_set: None,
        };
        let lifetime_s = update.lifetime_s.unwrap_or(record.ends_s.saturating_sub(now.s()));
        let assigned = Assigned { lifetime_s, inside_port, outside, outside_port, ports: record.ports };
        let request = Request { lifetime_s, body, options };
        message::told(&request, &assigned, update.code, self.epoch_s(now))
    }
}
