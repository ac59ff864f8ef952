//! The verbs: what comes in, what goes out, when to call again.

mod mapping;
mod pmp;
#[cfg(test)]
mod tests;
mod update;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{IfIndex, Now, Prefix, VrfId};
use carrack_nat::{PortAsk, PortGrant, PortRefusal, PortWish};
use carrack_wire::MacAddr;

use crate::announce::Announcer;
use crate::config::Config;
use crate::frames::{self, Ends, Return};
use crate::message::{self, Code};
use crate::state::{Saved, SavedGrant};
use crate::table::{Key, MappingRow, Origin, Record, Table};

/// Questions to the engine without an answer yet.
const PENDING_MAX: usize = 4_096;
/// Of these, those that only keep what there is: the rest is for clients.
const KEEPING_MAX: usize = 256;
/// Frames waiting to be sent; more are dropped and counted.
const TRANSMIT_MAX: usize = 4_096;
/// How long the engine may take, nanoseconds.
const ANSWER_NS: u64 = 3_000_000_000;
/// Hops of an answer, and of an announcement, which stays on its link.
const HOPS: u8 = 64;
const LINK_HOPS: u8 = 255;
/// Where clients listen for announcements (RFC 6887 §14.1.3).
const CLIENT_PORT: u16 = 5_350;
const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// What the server did, since start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// PCP requests to map.
    pub map: u64,
    /// PCP requests to keep a session.
    pub peer: u64,
    /// PCP requests for the epoch.
    pub announce: u64,
    /// NAT-PMP requests.
    pub nat_pmp: u64,
    /// PCP answers by result code.
    pub answers: [u64; 14],
    /// NAT-PMP answers that were a success.
    pub nat_pmp_granted: u64,
    /// NAT-PMP answers that were not.
    pub nat_pmp_refused: u64,
    /// Datagrams that get no answer: damaged, or from where none are taken.
    pub ignored: u64,
    /// Requests discarded because too many were under way, or the same one was.
    pub discarded: u64,
    /// Questions that the engine did not answer in time.
    pub unanswered: u64,
    /// Restart announcements sent, all interfaces together.
    pub announced: u64,
    /// Mappings taken over from the run before.
    pub restored: u64,
    /// Mappings that a reload or restart could not keep.
    pub lost: u64,
    /// Mappings that a reload has given another place.
    pub moved: u64,
    /// Answers that nobody asked for: mappings that are elsewhere now, or gone.
    pub updates: u64,
    /// Mappings that ended because their time was over.
    pub expired: u64,
    /// Frames not sent because too many waited.
    pub transmit_full: u64,
}

/// What a question to the engine was for.
#[derive(Debug)]
enum Purpose {
    /// A MAP or PEER of PCP.
    Pcp(Box<mapping::Asked>),
    /// A mapping of NAT-PMP.
    Pmp(pmp::Asked),
    /// The outside address.
    Address(Return),
    /// To keep what there is.
    Keep,
    /// To have it elsewhere, as it cannot be kept.
    Move,
    /// To end it, and no one is told.
    End,
}

impl Purpose {
    /// Is it about what there is, after a reload or start?
    const fn keeps(&self) -> bool {
        matches!(self, Self::Keep | Self::Move)
    }
}

#[derive(Debug)]
struct Pending {
    key: Option<(Key, u16)>,
    purpose: Purpose,
    due: Now,
}

/// The server.
///
/// Call a verb, then drain [`Server::poll_ask`] and [`Server::poll_transmit`], then see [`Server::poll_timeout`]. Time
/// must not run backwards.
#[derive(Debug)]
pub struct Server {
    config: Config,
    table: Table,
    pending: BTreeMap<u64, Pending>,
    next_request: u64,
    asks: VecDeque<(u64, PortAsk)>,
    keeping: VecDeque<Key>,
    lost_any: bool,
    transmit: VecDeque<(IfIndex, Vec<u8>)>,
    announcer: Announcer,
    updates: update::Updates,
    /// Seconds since 1970 at second 0 of our time.
    unix_zero_s: i64,
    /// When the epoch began, in our time; before it, in a run that continues another's.
    epoch_zero_s: i64,
    changed: bool,
    counters: Counters,
}

impl Server {
    /// A server that begins at `now`, at which `unix_s` seconds have passed since 1970, with what a run before left. It
    /// announces itself (RFC 6887 §14.1.3).
    ///
    /// RFC 6887 §8.5: the epoch goes on only when nothing was lost.
    #[must_use]
    pub fn new(config: Config, now: Now, unix_s: u64, saved: Option<Saved>) -> Self {
        let unix_zero_s = unix_s as i64 - i64::from(now.s());
        let mut this = Self {
            config: Config::default(),
            table: Table::default(),
            pending: BTreeMap::new(),
            next_request: 0,
            asks: VecDeque::new(),
            keeping: VecDeque::new(),
            lost_any: false,
            transmit: VecDeque::new(),
            announcer: Announcer::default(),
            updates: update::Updates::default(),
            unix_zero_s,
            epoch_zero_s: now.s().into(),
            changed: true,
            counters: Counters::default(),
        };
        this.config = config;
        if let Some(saved) = saved {
            if saved.complete && saved.epoch_unix_s <= unix_s {
                this.epoch_zero_s = saved.epoch_unix_s as i64 - unix_zero_s;
            }
            this.restore(now, saved.grants);
        }
        this.announcer.start(now);
        this
    }

    fn restore(&mut self, now: Now, grants: Vec<SavedGrant>) {
        for grant in grants {
            let ends_s = grant.ends_unix_s as i64 - self.unix_zero_s;
            let Ok(ends_s) = u32::try_from(ends_s) else { continue };
            if ends_s <= now.s() {
                continue;
            }
            let vrf = self.config.vrf(&grant.vrf);
            let served = vrf.and_then(|vrf| Some((vrf, self.config.served(vrf, grant.key.inside)?.id)));
            let Some((vrf, instance)) = served else {
                self.lose();
                continue;
            };
            let record = Record {
                instance,
                outside: grant.outside,
                ports: grant.ports,
                ends_s,
                origin: grant.origin,
                filters: grant.filters,
                client: None,
                prefer_failure: false,
            };
            self.counters.restored += 1;
            self.table.insert(Key { vrf, ..grant.key }, record);
        }
        self.keep_all();
    }

    /// Works by `config` from now on. What it still allows is kept, after the engine has been asked whether it can.
    pub fn configure(&mut self, config: Config, now: Now) {
        let is_new = |old: &Config, id: IfIndex| old.inside(id).is_none();
        let appeared = config.interfaces.iter().any(|interface| is_new(&self.config, interface.id));
        self.config = config;
        let gone: Vec<Key> = self
            .table
            .all
            .keys()
            .filter(|key| self.config.served(key.vrf, key.inside).is_none())
            .copied()
            .collect();
        for key in gone {
            if let Some(record) = self.table.remove(&key) {
                self.end(now, key, &record);
                self.lose();
                let code = Code::NotAuthorized;
                self.tell(now, key, record, code, Some(code.lifetime_s()));
            }
        }
        self.updates.changing(now.plus_ns(ANSWER_NS));
        self.keep_all();
        if appeared {
            self.announcer.start(now);
        }
    }

    /// Asks the engine for everything again.
    fn keep_all(&mut self) {
        self.changed = true;
        self.keeping = self.table.all.keys().copied().collect();
    }

    /// Something that a client counts on is gone.
    fn lose(&mut self) {
        self.counters.lost += 1;
        (self.lost_any, self.changed) = (true, true);
    }

    /// Takes a frame that a worker passed up. False when it is not for the server, which has not touched it.
    pub fn handle_packet(&mut self, now: Now, interface: IfIndex, frame: &[u8]) -> bool {
        let Some((ends, payload)) = frames::read(frame) else { return false };
        // RFC 6887 §8.2, RFC 6886 §3.3: from inside, to an inside address.
        let Some(on) = self.config.inside(interface).filter(|on| self.config.is_own(on, ends.to)) else {
            self.counters.ignored += 1;
            return true;
        };
        let (vrf, to) = (on.vrf, Return { interface, ends });
        if payload.first() == Some(&0) {
            self.handle_nat_pmp(now, vrf, to, payload);
        } else {
            self.handle_pcp(now, vrf, to, payload);
        }
        true
    }

    fn handle_pcp(&mut self, now: Now, vrf: VrfId, to: Return, payload: &[u8]) {
        match message::read(payload, to.ends.from) {
            Ok(request) => {
                let came = mapping::Came { vrf, to, bytes: payload };
                if let Err(refused) = self.handle_request(now, came, request) {
                    self.refuse(now, to, payload, refused.code, refused.lifetime_s);
                }
            }
            Err(Some(code)) => self.refuse(now, to, payload, code, code.lifetime_s()),
            Err(None) => self.counters.ignored += 1,
        }
    }

    /// The engine's answer to a question.
    pub fn handle_answer(&mut self, now: Now, request: u64, answer: Result<PortGrant, PortRefusal>) {
        let Some(pending) = self.pending.remove(&request) else { return };
        match pending.purpose {
            Purpose::Pcp(asked) => self.answered(now, *asked, answer),
            Purpose::Pmp(asked) => self.answered_pmp(now, asked, answer),
            Purpose::Address(to) => self.answered_address(now, to, answer),
            Purpose::Keep => {
                if let Some((key, _)) = pending.key {
                    self.kept(now, key, answer);
                }
            }
            Purpose::Move => {
                if let Some((key, _)) = pending.key {
                    self.moved(now, key, answer);
                }
            }
            Purpose::End => {}
        }
    }

    /// Does what is due at `now`. May be called at any time.
    pub fn handle_timeout(&mut self, now: Now) {
        while self.table.pop_ended(now.s()).is_some() {
            self.counters.expired += 1;
            self.changed = true;
        }
        self.give_up(now);
        let again = self.updates.again(now);
        self.keeping.extend(again);
        self.keep_some(now);
        self.send_updates(now);
        let asks = !self.keeping.is_empty() || self.updates.waits();
        let keeps = asks || self.pending.values().any(|p| p.purpose.keeps());
        if self.lost_any && !keeps {
            // RFC 6887 §8.5, §14.1.3: clients are told that they must ask anew.
            self.lost_any = false;
            self.epoch_zero_s = now.s().into();
            self.changed = true;
            self.announcer.start(now);
        }
        if self.announcer.step(now) {
            self.announce(now);
        }
    }

    fn give_up(&mut self, now: Now) {
        // Numbers and times grow together.
        while let Some(id) = self.pending.first_key_value().filter(|(_, p)| p.due <= now).map(|(id, _)| *id) {
            self.counters.unanswered += 1;
            self.handle_answer(now, id, Err(PortRefusal::Short(carrack_base::Reason::NatPoolChanging)));
        }
    }

    fn keep_some(&mut self, now: Now) {
        let under_way = self.pending.values().filter(|p| p.purpose.keeps()).count();
        for _ in under_way..KEEPING_MAX {
            let Some(key) = self.keeping.pop_front() else { return };
            let Some(record) = self.table.get(&key).copied() else { continue };
            let lifetime_s = record.ends_s.saturating_sub(now.s());
            let what = wish(&key, &record, lifetime_s);
            self.ask(now, Some((key, record.ports)), Purpose::Keep, key.ask(what));
        }
    }

    /// When [`Server::handle_timeout`] wants to be called next; `None` when nothing is under way.
    #[must_use]
    pub fn poll_timeout(&self, now: Now) -> Option<Now> {
        if !self.keeping.is_empty() || self.lost_any {
            return Some(now.plus_ns(1_000_000));
        }
        let ends = self.table.next_end_s().map(|s| Now::from_s(s.into()));
        let late = self.pending.first_key_value().map(|(_, p)| p.due);
        [ends, late, self.announcer.next_due(), self.updates.next_due()].into_iter().flatten().min()
    }

    /// The next question for the engine, and its number.
    pub fn poll_ask(&mut self) -> Option<(u64, PortAsk)> {
        self.asks.pop_front()
    }

    /// The next frame to send, whole with Ethernet header and tags, and the interface it leaves by.
    pub fn poll_transmit(&mut self) -> Option<(IfIndex, Vec<u8>)> {
        self.transmit.pop_front()
    }

    /// What is to be kept over a restart, if that is not what was taken last.
    pub fn poll_save(&mut self) -> Option<Saved> {
        std::mem::take(&mut self.changed).then(|| self.save(false))
    }

    /// What was taken last could not be kept.
    pub fn save_again(&mut self) {
        self.changed = true;
    }

    /// What is to be kept over a restart; `complete` at the end of a run.
    #[must_use]
    pub fn save(&self, complete: bool) -> Saved {
        let name = |vrf: VrfId| self.config.vrfs.get(vrf.index()).cloned().unwrap_or_default();
        let grants = self.table.all.iter().map(|(key, record)| SavedGrant {
            vrf: name(key.vrf),
            key: *key,
            outside: record.outside,
            ports: record.ports,
            ends_unix_s: (i64::from(record.ends_s) + self.unix_zero_s).max(0) as u64,
            origin: record.origin,
            filters: record.filters,
        });
        let epoch_unix_s = (self.epoch_zero_s + self.unix_zero_s).max(0) as u64;
        Saved { epoch_unix_s, complete: complete && !self.lost_any, grants: grants.collect() }
    }

    /// All grants.
    pub fn mappings(&self, now: Now) -> impl Iterator<Item = MappingRow> {
        self.table.all.iter().map(move |(key, record)| MappingRow {
            instance: record.instance,
            key: *key,
            outside: record.outside,
            ports: record.ports,
            expires_s: record.ends_s.saturating_sub(now.s()),
            origin: record.origin,
            filters: record.filters,
        })
    }

    /// Ends the grants of these hosts, all when `None`; how many those were. Their clients are told, as if they had ended
    /// them themselves.
    pub fn clear(&mut self, now: Now, inside: Option<Prefix>) -> usize {
        let matches = |key: &&Key| inside.is_none_or(|prefix| prefix.contains(key.inside));
        let keys: Vec<Key> = self.table.all.keys().filter(matches).copied().collect();
        for key in &keys {
            if let Some(record) = self.table.remove(key) {
                self.end(now, *key, &record);
                self.tell(now, *key, record, Code::Success, Some(0));
            }
        }
        self.changed |= !keys.is_empty();
        keys.len()
    }

    /// What was done since start.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// RFC 6887 §8.5: seconds since the epoch began.
    #[must_use]
    pub fn epoch_s(&self, now: Now) -> u32 {
        u32::try_from(i64::from(now.s()) - self.epoch_zero_s).unwrap_or(0)
    }

    fn end(&mut self, now: Now, key: Key, record: &Record) {
        self.ask(now, Some((key, record.ports)), Purpose::End, key.ask(end_of(&key, record.ports)));
    }

    /// Asks the engine. What only ends or keeps is always asked; clients may be too many.
    fn ask(&mut self, now: Now, key: Option<(Key, u16)>, purpose: Purpose, ask: PortAsk) -> bool {
        let of_client = !purpose.keeps() && !matches!(purpose, Purpose::End);
        if of_client && self.pending.len() >= PENDING_MAX {
            self.counters.discarded += 1;
            return false;
        }
        let request = self.next_request;
        self.next_request += 1;
        self.pending.insert(request, Pending { key, purpose, due: now.plus_ns(ANSWER_NS) });
        self.asks.push_back((request, ask));
        true
    }

    /// Is a request of this host under way that this one could meet?
    fn is_under_way(&self, key: &Key, ports: u16) -> bool {
        self.pending.values().filter_map(|pending| pending.key).any(|(other, other_ports)| {
            let same = (other.vrf, other.inside, other.proto, other.peer)
                == (key.vrf, key.inside, key.proto, key.peer);
            same && other.port <= key.port.saturating_add(ports.max(1) - 1)
                && key.port <= other.port.saturating_add(other_ports.max(1) - 1)
        })
    }

    fn refuse(&mut self, now: Now, to: Return, request: &[u8], code: Code, lifetime_s: u32) {
        let answer = message::error(request, code, lifetime_s, self.epoch_s(now));
        self.count(code);
        self.reply(to, &answer);
    }

    fn count(&mut self, code: Code) {
        if let Some(count) = self.counters.answers.get_mut(usize::from(code as u8)) {
            *count += 1;
        }
    }

    fn reply(&mut self, to: Return, payload: &[u8]) {
        let Ends { mac, from, from_port, to: own } = to.ends;
        let frame = self
            .config
            .inside(to.interface)
            .and_then(|on| frames::write(on, mac, (own, from), from_port, HOPS, payload));
        if let Some(frame) = frame {
            self.send(to.interface, frame);
        }
    }

    fn send(&mut self, interface: IfIndex, frame: Vec<u8>) {
        if self.transmit.len() < TRANSMIT_MAX {
            self.transmit.push_back((interface, frame));
        } else {
            self.counters.transmit_full += 1;
        }
    }

    /// Tells all hosts of all inside links of the epoch, from every address that requests are taken at there: a client
    /// believes the one it asks alone (RFC 6887 §14.1.3).
    fn announce(&mut self, now: Now) {
        let payload = message::announcement(self.epoch_s(now));
        let mut frames = Vec::new();
        let serves = |vrf: VrfId| self.config.served.iter().any(|served| served.vrf == vrf);
        for on in self.config.interfaces.iter().filter(|on| serves(on.vrf)) {
            let v4 = on.addresses.iter().map(|(own, _)| IpAddr::from(Ipv4Addr::from(*own)));
            let v6 = on.ipv6.iter().flat_map(|v6| v6.own()).map(|own| Ipv6Addr::from(own).into());
            for own in v4.chain(v6) {
                let (mac, all) = match own {
                    IpAddr::V4(_) => (MacAddr([0x01, 0x00, 0x5e, 0, 0, 1]), ALL_HOSTS.into()),
                    IpAddr::V6(_) => (MacAddr([0x33, 0x33, 0, 0, 0, 1]), ALL_NODES.into()),
                };
                let frame = frames::write(on, mac, (own, all), CLIENT_PORT, LINK_HOPS, &payload);
                frames.extend(frame.map(|frame| (on.id, frame)));
            }
        }
        for (interface, frame) in frames {
            self.counters.announced += 1;
            self.send(interface, frame);
        }
    }
}

/// What ends a grant.
fn end_of(key: &Key, ports: u16) -> PortWish {
    match key.peer {
        None => PortWish::EndMap { ports },
        Some((ip, port)) => PortWish::EndPeer { remote: carrack_nat::row::HostEndpoint { ip, port } },
    }
}

/// What asks for a grant as it was.
fn wish(key: &Key, record: &Record, lifetime_s: u32) -> PortWish {
    let suggested = record.outside;
    match key.peer {
        None => PortWish::Map {
            suggested,
            strict: true,
            lifetime_s,
            filters: record.filters,
            ports: record.ports,
            parity: false,
        },
        Some((ip, port)) => {
            PortWish::Peer { suggested, remote: carrack_nat::row::HostEndpoint { ip, port }, lifetime_s }
        }
    }
}

/// May whoever asks this way change what was asked for that way (RFC 6887 §11.3, simple threat model)?
fn is_same_client(origin: Origin, other: Origin) -> bool {
    origin == other
}
