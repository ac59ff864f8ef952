//! ESP (RFC 4303) of hosts that share an address.
//!
//! A packet bears only a number that the end it goes to has chosen (the SPI, RFC 4303 §2.1), and the exchange in which the
//! ends tell each other is encrypted. So the number of what comes in is learned: the first packet with an unknown one from a
//! far end is for the host that has begun to send there and has not been answered. Only one host at a time may wait for a
//! far end, or its packets could become another's. Out and in are two sessions on one mapping, each by its own number, of
//! which the flow has one half in the place of either port.

use carrack_alg::{Note, Protocol};
use carrack_base::{Now, Proto, Reason, VrfId, WorkerId};
use carrack_wire::ipv4::protocol::ESP;

use crate::directory::{Directory, Outside};
use crate::engine::{Nat, Verdict};
use crate::flow::{Direction, Flow, Inside, Kind};
use crate::line::{INBOUND, INDEPENDENT, NONE, Session};
use crate::policy::Instance;
use crate::pool::Wish;
use crate::row::Endpoint;
use crate::spis::{Has, Pair};

/// Hosts of a worker that wait for an answer, at most.
pub(crate) const WAITING_MAX: usize = 256;
/// Numbers of one of them.
const NUMBERS_MAX: usize = 4;
/// How long one may wait.
const WAIT_S: u32 = 10;
/// RFC 4303 §2.1: lower numbers are reserved.
const FIRST: u32 = 256;

/// A host that waits for the first packet of its far end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pair: Pair,
    mapping: u32,
    until_s: u32,
    /// What it has begun with and is not answered: the oldest first, 0 is none.
    numbers: [u32; NUMBERS_MAX],
}

/// The number that stands in the place of the ports.
const fn number(flow: &Flow) -> u32 {
    (flow.sport as u32) << 16 | flow.dport as u32
}

/// Is it a packet whose number has to be learned?
fn is_learned(instance: &Instance, flow: &Flow) -> bool {
    is_numbered(flow) && flow.kind == Kind::Whole && instance.gateways.contains(&Protocol::Ipsec)
}

/// Is it ESP, and no NAT64's?
pub(crate) const fn is_numbered(flow: &Flow) -> bool {
    flow.ip_proto == ESP && !flow.is_six()
}

/// Is it a packet from inside that begins a tunnel? A host with an address of its own needs no help.
pub(crate) fn begins(directory: &Directory, instance: &Instance, flow: &Flow) -> bool {
    let has_own = || directory.one_to_one(instance.id, flow.src).is_some();
    is_learned(instance, flow) && number(flow) >= FIRST && !has_own()
}

impl Nat {
    /// The first packet from inside with a number.
    pub(crate) fn open_esp(
        &mut self,
        flow: &Flow,
        instance_at: usize,
        hairpin: bool,
        now: Now,
    ) -> Result<u32, Reason> {
        let policy = self.policy.clone();
        let instance = policy.instances.get(instance_at).ok_or(Reason::NatNoInstance)?;
        // What is made now might not stay.
        if self.is_changing() {
            return Err(Reason::NatPoolChanging);
        }
        self.tables.has_room(true)?;
        let subscriber = self.subscriber_for(instance, Inside::V4(flow.src))?;
        let opened = self.esp_mapping(instance, subscriber, flow, now).and_then(|mapping| {
            let opened = self
                .wait_for_answer(flow, mapping, now)
                .and_then(|()| self.open(instance, subscriber, mapping, flow, Direction::Out, hairpin, now));
            if opened.is_err() {
                self.drop_mapping_if_unused(mapping, now.s());
            }
            opened
        });
        match opened.ok().and_then(|id| self.tables.sessions.get(id)) {
            // For errors about its packets alone: whether it can be noted is of no consequence.
            Some(session) => {
                self.group.spis.claim(Pair::of(session), Has::Out(number(flow)), self.worker);
            }
            None => self.release_subscriber_if_unused(subscriber, now.s()),
        }
        opened
    }

    /// All tunnels of a host are on one mapping, whose number nobody sees: it holds the outside address.
    fn esp_mapping(
        &mut self,
        instance: &Instance,
        subscriber: u32,
        flow: &Flow,
        now: Now,
    ) -> Result<u32, Reason> {
        let inside = Endpoint { ip: flow.src, port: 0 };
        let known = self.tables.find_mapping_of(inside, flow.vrf, Proto::Other, Direction::Out, false);
        if let Some(id) = known.filter(|id| !self.has_static(*id)) {
            return Ok(id);
        }
        let wish = Wish {
            proto: Proto::Other,
            inside_port: 0,
            parity: false,
            contiguity: false,
            strict: false,
            exactly: None,
            only: false,
            home: self.home_of(instance, subscriber, flow.inside()),
        };
        self.mapping_with(instance, subscriber, inside, wish, INDEPENDENT, now)
    }

    /// Makes the host the one that waits for its far end, unless another does.
    fn wait_for_answer(&mut self, flow: &Flow, mapping: u32, now: Now) -> Result<(), Reason> {
        let line = self.tables.mappings.get(mapping).ok_or(Reason::NatNoMapping)?;
        let pair = Pair { remote: flow.dst, outside: line.outside_ip, vrf: line.outside_vrf };
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.pair == pair) {
            let free = waiting.numbers.iter_mut().find(|place| **place == 0);
            let Some(place) = free.filter(|_| waiting.mapping == mapping) else {
                return Err(Reason::NatEspWaiting);
            };
            // Its own second number does not prolong the time that others wait.
            *place = number(flow);
            return Ok(());
        }
        if self.waiting.len() >= WAITING_MAX || !self.group.spis.claim(pair, Has::Waiting, self.worker) {
            return Err(Reason::NatEspWaiting);
        }
        let mut numbers = [0; NUMBERS_MAX];
        numbers[0] = number(flow);
        self.waiting.push(Waiting { pair, mapping, until_s: now.s().saturating_add(WAIT_S), numbers });
        Ok(())
    }

    /// A packet from outside with an unknown number.
    pub(crate) fn learn_esp(&mut self, instance: &Instance, flow: &Flow, now: Now) -> Result<u32, Verdict> {
        self.learn(instance, flow, now).map_err(Verdict::Drop)
    }

    fn learn(&mut self, instance: &Instance, flow: &Flow, now: Now) -> Result<u32, Reason> {
        // RFC 6146 §3.4: nobody learns numbers there, so ESP is as foreign to a NAT64 as any other protocol.
        if instance.nat64.is_some() && !instance.gateways.contains(&Protocol::Ipsec) {
            return Err(Reason::Nat64ProtocolUnsupported);
        }
        let pair = Pair { remote: flow.src, outside: flow.dst, vrf: flow.vrf.0 };
        let waiting = self.waiting.iter().position(|waiting| waiting.pair == pair);
        let at = waiting.filter(|_| is_learned(instance, flow) && number(flow) >= FIRST);
        let at = at.ok_or(Reason::NatNoMapping)?;
        if self.is_changing() {
            return Err(Reason::NatPoolChanging);
        }
        let mapping = self.waiting.get(at).map_or(NONE, |waiting| waiting.mapping);
        if !self.group.spis.claim(pair, Has::In(number(flow)), self.worker) {
            return Err(Reason::NatMappingTableFull);
        }
        let subscriber = self.tables.mappings.get(mapping).map_or(NONE, |line| line.subscriber);
        let hairpin = self.directory.outside(instance.outside_vrf, flow.src).is_some();
        let opened = self.open_in(instance, subscriber, mapping, flow, hairpin, now);
        if opened.is_err() {
            self.group.spis.release(pair, Has::In(number(flow)), self.worker);
            return opened;
        }
        self.answered(at);
        self.note_gateway(Protocol::Ipsec, Note::Opened);
        opened
    }

    /// One number of the host that waits has its answer.
    fn answered(&mut self, at: usize) {
        let Some(waiting) = self.waiting.get_mut(at) else { return };
        waiting.numbers.rotate_left(1);
        waiting.numbers[NUMBERS_MAX - 1] = 0;
        if waiting.numbers[0] == 0 {
            self.end_one(at);
        }
    }

    fn end_one(&mut self, at: usize) -> Waiting {
        let waiting = self.waiting.swap_remove(at);
        self.group.spis.release(waiting.pair, Has::Waiting, self.worker);
        waiting
    }

    /// A tunnel has ended.
    #[cold]
    pub(crate) fn forget_spi(&mut self, session: &Session) {
        let has = if session.flags & INBOUND != 0 {
            Has::In(u32::from(session.remote_port) << 16 | u32::from(session.outside_port))
        } else {
            Has::Out(u32::from(session.inside_port) << 16 | u32::from(session.remote_port))
        };
        self.group.spis.release(Pair::of(session), has, self.worker);
    }

    /// The mapping is gone, and nobody waits on it.
    #[cold]
    pub(crate) fn forget_waiting(&mut self, mapping: u32) {
        while let Some(at) = self.waiting.iter().position(|waiting| waiting.mapping == mapping) {
            self.end_one(at);
        }
    }

    /// Ends the time of those who have waited for long enough. What they began ends too: its next packet begins anew, and
    /// an answer that comes late finds its host waiting again.
    pub(crate) fn end_waiting(&mut self, now_s: u32) {
        while let Some(at) = self.waiting.iter().position(|waiting| waiting.until_s <= now_s) {
            let waiting = self.end_one(at);
            let Some(line) = self.tables.mappings.get(waiting.mapping).copied() else { continue };
            for spi in waiting.numbers.into_iter().filter(|number| *number != 0) {
                let flow = Flow {
                    src: line.inside_ip,
                    sport: (spi >> 16) as u16,
                    dst: waiting.pair.remote,
                    dport: spi as u16,
                    vrf: VrfId(line.inside_vrf),
                    proto: Proto::Other,
                    ip_proto: ESP,
                    ..Flow::default()
                };
                let hash = self.tables.session_hash(&flow, Direction::Out);
                if let Some(id) = self.tables.find_session(hash, &flow, Direction::Out) {
                    self.end_session(id, now_s);
                }
            }
        }
    }
}

impl Directory {
    /// The worker that a packet of ESP from outside belongs to; `quoted` is one that went out, turned round, as an error
    /// quotes it.
    #[cold]
    #[must_use]
    pub fn owner_of_esp(&self, flow: &Flow, quoted: bool) -> Option<WorkerId> {
        match self.outside(flow.vrf, flow.dst)? {
            Outside::OneToOne { .. } | Outside::Forward { .. } => {
                self.owner_of_outside(flow.vrf, flow.dst, flow.proto as u8, flow.dport)
            }
            Outside::Pool { .. } | Outside::Deterministic { .. } => {
                let pair = Pair { remote: flow.src, outside: flow.dst, vrf: flow.vrf.0 };
                let of = |has| self.spis.owner(pair, has);
                let known = if quoted {
                    of(Has::Out(u32::from(flow.dport) << 16 | u32::from(flow.sport)))
                } else {
                    of(Has::In(number(flow))).or_else(|| of(Has::Waiting))
                };
                Some(known.unwrap_or(WorkerId(0)))
            }
        }
    }
}
