//! A small, obvious NAT that says what a right answer is. It does not predict which port a mapping gets: it is told
//! what the engine chose, and holds it to that.
//!
//! One instance: any mapping and filtering behaviour, any way of giving out ports, static rules, limits. Time is exact
//! to a few seconds: near its end a session may be there or not, and what the engine shows decides. Where that leaves
//! two histories possible, both are kept until they agree again.

mod judgement;
mod local;
mod policy;
mod reload;
mod state;
pub mod stateless;

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use carrack_base::{Proto, Reason};
use carrack_nat::policy::{Filtering, Instance, Mapping as MappingBehaviour};
use carrack_nat::row::{Endpoint, HostEndpoint};

pub use judgement::is_shortage;
pub use local::Local;
use policy::{forward_at, is_denied, is_exempt, one_to_one, one_to_one_back, opens_in, opens_out};
pub use policy::{seen_as, stands_for};
use state::{Life, Possible, Session};

/// Protocol, inside endpoint, remote endpoint: what a session is known by.
pub type Flow = (Proto, Local, Endpoint);

/// What the engine made of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Translated going out: the outside endpoint that was put in place.
    Translated(Endpoint),
    /// Translated coming in: whom it went to.
    Delivered(Local),
    /// Sent on as it was.
    Untouched,
    /// Dropped.
    Dropped(Reason),
    /// Held for a while (RFC 5382 REQ-4).
    Held,
}

#[derive(Debug, Clone)]
struct Mapping {
    proto: Proto,
    inside: Local,
    /// Not known when the engine made it for a packet that nobody saw leave.
    outside: Option<Endpoint>,
    /// Found from inside for any remote.
    independent: bool,
    kind: Kind,
    /// The reload after which it was made: what came before may have been made by other rules.
    epoch: u32,
    /// When it ended at the earliest; known once its sessions are gone.
    ended_s: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Dynamic,
    OneToOne,
    /// Lives as long as its rule.
    Forward,
}

impl Mapping {
    /// Is it this inside endpoint's, by whatever prefix (RFC 6146 §3.1: one entry for an IPv6 transport address)?
    fn is_of(&self, proto: Proto, inside: Local) -> bool {
        (self.proto, self.inside.endpoint()) == (proto, inside.endpoint())
    }
}

/// Creations of mappings of one subscriber, in seconds.
#[derive(Debug, Clone, Default)]
struct Creations {
    sure: Vec<u32>,
    perhaps: Vec<u32>,
}

/// The reference.
#[derive(Debug)]
pub struct Reference {
    policy: Instance,
    workers: u8,
    mappings: BTreeMap<u32, Mapping>,
    sessions: BTreeMap<Flow, Session>,
    next_id: u32,
    now_s: u32,
    reloaded_s: u32,
    epoch: u32,
    /// Endpoints that were given back: when at the earliest, and which subscriber's they were.
    freed: HashMap<(Proto, Endpoint), (u32, IpAddr)>,
    /// By subscriber.
    creations: HashMap<IpAddr, Creations>,
}

impl Reference {
    /// A NAT of this policy without sessions.
    #[must_use]
    pub fn new(policy: Instance, workers: u8, now_s: u32) -> Self {
        let mut this = Self {
            policy,
            workers,
            mappings: BTreeMap::new(),
            sessions: BTreeMap::new(),
            next_id: 0,
            now_s,
            reloaded_s: 0,
            epoch: 0,
            freed: HashMap::new(),
            creations: HashMap::new(),
        };
        this.add_forwards();
        this
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Instance {
        &self.policy
    }

    /// The subscriber that an inside host belongs to: itself, or for IPv6 the prefix it is in.
    fn subscriber(&self, host: IpAddr) -> IpAddr {
        policy::subscriber_of(&self.policy, host)
    }

    /// Time goes on.
    pub fn at(&mut self, now_s: u32) {
        self.now_s = now_s;
        self.tidy();
    }

    fn life_of(&self, flow: &Flow, session: &Session) -> Life {
        session.life(&self.policy.timeouts, flow, self.now_s, self.reloaded_s)
    }

    fn session_life(&self, flow: &Flow) -> Life {
        self.sessions.get(flow).map_or(Life::No, |session| self.life_of(flow, session))
    }

    /// How surely each mapping that has a session or a rule lives.
    fn mapping_lives(&self) -> HashMap<u32, Life> {
        let mut lives = HashMap::new();
        for (id, mapping) in &self.mappings {
            if mapping.kind == Kind::Forward {
                lives.insert(*id, Life::Yes);
            }
        }
        for (flow, session) in &self.sessions {
            let life = self.life_of(flow, session);
            let best = lives.entry(session.mapping).or_insert(Life::No);
            *best = (*best).max(life);
        }
        lives
    }

    /// Forgets what has surely ended.
    fn tidy(&mut self) {
        let gone: Vec<Flow> =
            self.sessions.keys().copied().filter(|flow| self.session_life(flow) == Life::No).collect();
        for flow in gone {
            self.end_session(&flow, false);
        }
    }

    /// Ends a session, and its mapping with its last; `now` says that it is now that it ends.
    fn end_session(&mut self, flow: &Flow, now: bool) {
        let Some(session) = self.sessions.remove(flow) else { return };
        let ended_s = if now { self.now_s } else { session.ends_s(&self.policy.timeouts, flow) };
        if let Some(mapping) = self.mappings.get_mut(&session.mapping) {
            mapping.ended_s = mapping.ended_s.max(ended_s);
        }
        self.end_if_unused(session.mapping);
    }

    fn end_if_unused(&mut self, id: u32) {
        let in_use = self.sessions.values().any(|session| session.mapping == id);
        let ends = !in_use && self.mappings.get(&id).is_some_and(|mapping| mapping.kind != Kind::Forward);
        if !ends {
            return;
        }
        if let Some(mapping) = self.mappings.remove(&id)
            && let Some(outside) = mapping.outside.filter(|_| mapping.epoch == self.epoch)
        {
            let subscriber = self.subscriber(mapping.inside.ip);
            self.freed.insert((mapping.proto, outside), (mapping.ended_s, subscriber));
        }
        self.forget_creations_of_the_gone();
    }

    /// A subscriber without anything may be forgotten, and his rate with him.
    fn forget_creations_of_the_gone(&mut self) {
        let lives = self.mapping_lives();
        let alive = |subscriber: IpAddr| {
            self.mappings.iter().any(|(id, m)| {
                self.subscriber(m.inside.ip) == subscriber
                    && lives.get(id) == Some(&Life::Yes)
                    && m.kind != Kind::Forward
            })
        };
        let gone: Vec<IpAddr> = self.creations.keys().copied().filter(|host| !alive(*host)).collect();
        for host in gone {
            if let Some(creations) = self.creations.get_mut(&host) {
                let sure = std::mem::take(&mut creations.sure);
                creations.perhaps.extend(sure);
            }
        }
    }

    fn end_mapping(&mut self, id: u32) {
        let flows: Vec<Flow> =
            self.sessions.iter().filter(|(_, s)| s.mapping == id).map(|(flow, _)| *flow).collect();
        for flow in flows {
            self.end_session(&flow, false);
        }
    }

    fn add(&mut self, proto: Proto, inside: Local, outside: Option<Endpoint>, kind: Kind) -> u32 {
        let behaviour = self.policy.mapping.get(proto.index()).copied().unwrap_or_default();
        let independent = kind != Kind::Dynamic || behaviour == MappingBehaviour::EndpointIndependent;
        let id = self.next_id;
        self.next_id += 1;
        let epoch = self.epoch;
        self.mappings.insert(id, Mapping { proto, inside, outside, independent, kind, epoch, ended_s: 0 });
        id
    }

    /// A packet passed: its session is there now.
    fn keep(&mut self, flow: Flow, mapping: u32, bits: u8, outward: bool) {
        let life = self.session_life(&flow);
        let refreshes = outward || self.policy.inbound_refresh.get(flow.0.index()).copied().unwrap_or(true);
        let opens = if outward { opens_out(&self.policy, flow.0, bits) } else { opens_in(flow.0, bits) };
        let fresh = Possible::first(flow.0, bits, outward, self.now_s);
        match self.sessions.get_mut(&flow).filter(|s| life != Life::No && s.mapping == mapping) {
            Some(session) => {
                session.advance(flow.0, bits, outward, refreshes, self.now_s);
                if life == Life::Maybe && opens {
                    session.may_also_be(fresh);
                }
            }
            None => {
                self.sessions.insert(flow, Session::new(mapping, fresh));
            }
        }
    }

    /// A packet went out; was what the engine made of it right?
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn went_out(
        &mut self,
        proto: Proto,
        inside: Local,
        remote: Endpoint,
        bits: u8,
        shown: Shown,
    ) -> Result<(), String> {
        let flow = (proto, inside, remote);
        let session = self.session_life(&flow);
        let opens = opens_out(&self.policy, proto, bits);
        let exempt = is_exempt(&self.policy, inside.ip, remote.ip);
        let denied = is_denied(&self.policy, inside.ip);
        match shown {
            Shown::Translated(outside) => {
                if session == Life::No && (denied || exempt || !opens) {
                    return Err(format!(
                        "a packet that may not open a session did (denied {denied}, exempt {exempt}, opens {opens})"
                    ));
                }
                let mapping = self.mapping_for(&flow, outside, session)?;
                if session == Life::No && self.by_another_prefix(&flow, Life::Yes) == Some(mapping) {
                    return Err("by another prefix it talks to the same remote already".into());
                }
                self.keep(flow, mapping, bits, true);
                Ok(())
            }
            _ if session == Life::Yes => Err(format!("{shown:?} in spite of its session")),
            Shown::Delivered(_) => Err("it went out".into()),
            Shown::Untouched if exempt => Ok(()),
            Shown::Untouched => Err("an inside address left".into()),
            Shown::Dropped(Reason::NatSubscriberDenied) if denied => Ok(()),
            Shown::Dropped(reason) if denied => Err(format!("dropped for {reason}, but nobody serves him")),
            Shown::Dropped(Reason::NatTcpNoSession | Reason::NatNoMapping) if !opens => Ok(()),
            Shown::Dropped(_) if !opens && session == Life::No => {
                Err("another reason than that there is no session".into())
            }
            // RFC 6146 §3.4: TCP, UDP and ICMP, no more.
            Shown::Dropped(Reason::Nat64ProtocolUnsupported) if proto == Proto::Other && inside.is_six() => {
                Ok(())
            }
            Shown::Dropped(Reason::NatProtocolUnsupported) if proto == Proto::Other => {
                let known = one_to_one(&self.policy, inside.ip).is_some();
                if known { Err("it has a one-to-one mapping".into()) } else { Ok(()) }
            }
            Shown::Dropped(Reason::Nat64OtherPrefix) => {
                let other = self.by_another_prefix(&flow, Life::Maybe);
                other.map(|_| ()).ok_or_else(|| "nothing by another prefix is in its way".into())
            }
            Shown::Dropped(reason) if is_shortage(reason) => self.judge_shortage_out(&flow, reason),
            Shown::Dropped(reason) => Err(format!("dropped for {reason}, which is no shortage")),
            Shown::Held => Err("a packet from inside is never held".into()),
        }
    }

    /// The mapping of a session between the same two ends by another prefix, that lives at least so surely.
    fn by_another_prefix(&self, flow: &Flow, least: Life) -> Option<u32> {
        let (proto, inside, remote) = *flow;
        let others = self.sessions.iter().filter(|(other, _)| {
            (other.0, other.1.endpoint(), other.2) == (proto, inside.endpoint(), remote)
                && other.1.via != inside.via
                && self.session_life(other) >= least
        });
        others.map(|(_, session)| session.mapping).next()
    }

    /// The mapping by which a packet got this outside endpoint: RFC 4787 REQ-1, REQ-2, REQ-3.
    fn mapping_for(&mut self, flow: &Flow, outside: Endpoint, session: Life) -> Result<u32, String> {
        let (proto, inside, _) = *flow;
        let own = self.sessions.get(flow).map(|s| s.mapping).filter(|_| session != Life::No);
        if let Some(id) = own {
            let known = self.mappings.get(&id).and_then(|m| m.outside);
            match known {
                None => return self.learn(id, outside).map(|()| id),
                Some(known) if known == outside => return Ok(id),
                Some(known) if session == Life::Yes => {
                    return Err(format!("its session has {known}, not {outside}"));
                }
                Some(_) => self.end_session(flow, false),
            }
        }
        let lives = self.mapping_lives();
        let shared = self.mappings.iter().find(|(id, m)| {
            m.independent && m.is_of(proto, inside) && lives.get(id).is_some_and(|life| *life != Life::No)
        });
        if let Some((id, mapping)) = shared.map(|(id, m)| (*id, m.clone())) {
            match mapping.outside {
                // Perhaps it had ended and this is its successor: then what may be left of it ends in its time.
                None => return self.open(id, outside, true, flow),
                Some(known) if known == outside => return self.open(id, outside, false, flow),
                Some(known) if lives.get(&id) == Some(&Life::Yes) => {
                    return Err(format!("RFC 4787 REQ-1: mapped to {known} before, to {outside} now"));
                }
                // Another endpoint shows that it had ended.
                Some(_) => self.end_mapping(id),
            }
        }
        self.judge_new_session(flow, None)?;
        if let Some(ip) = one_to_one(&self.policy, inside.ip) {
            if (ip, inside.port) != (outside.ip, outside.port) {
                return Err(format!("one-to-one with {ip:x}, but sent as {outside}"));
            }
            return Ok(self.add(proto, inside, Some(outside), Kind::OneToOne));
        }
        self.judge_new_mapping(proto, inside, outside)?;
        self.creations.entry(self.subscriber(inside.ip)).or_default().sure.push(self.now_s);
        Ok(self.add(proto, inside, Some(outside), Kind::Dynamic))
    }

    /// One more session on a mapping that is there.
    fn open(&mut self, id: u32, outside: Endpoint, learn: bool, flow: &Flow) -> Result<u32, String> {
        self.judge_new_session(flow, Some(id))?;
        if learn {
            self.learn(id, outside)?;
        }
        Ok(id)
    }

    /// Where a mapping is that was made unseen.
    fn learn(&mut self, id: u32, outside: Endpoint) -> Result<(), String> {
        let Some(mapping) = self.mappings.get(&id).cloned() else { return Ok(()) };
        self.judge_endpoint(mapping.proto, mapping.inside, outside, Some(id))?;
        if let Some(mapping) = self.mappings.get_mut(&id) {
            mapping.outside = Some(outside);
        }
        Ok(())
    }

    /// The mapping at an outside endpoint: one that surely lives before one that may.
    fn behind(&self, proto: Proto, outside: Endpoint) -> Option<(u32, Life)> {
        let lives = self.mapping_lives();
        let at = self.mappings.iter().filter(|(_, m)| m.proto == proto && m.outside == Some(outside));
        at.map(|(id, _)| (*id, lives.get(id).copied().unwrap_or(Life::No))).max_by_key(|(_, life)| *life)
    }

    /// A packet came to an outside endpoint; was what the engine made of it right?
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn came_in(
        &mut self,
        proto: Proto,
        remote: Endpoint,
        outside: Endpoint,
        bits: u8,
        shown: Shown,
    ) -> Result<(), String> {
        let opens = opens_in(proto, bits);
        if let Shown::Delivered(inside) = shown {
            return self.delivered(proto, remote, outside, bits, inside);
        }
        let behind = self.behind(proto, outside);
        let flow = behind.and_then(|(id, _)| self.mappings.get(&id)).map(|m| (proto, m.inside, remote));
        let session = flow.map_or(Life::No, |flow| self.session_life(&flow));
        let own = flow.and_then(|flow| self.sessions.get(&flow)).map(|s| s.mapping);
        let on_it = own.is_some() && own == behind.map(|(id, _)| id);
        if session == Life::Yes && on_it {
            return Err(format!("{shown:?} in spite of its session"));
        }
        let elsewhere = session != Life::No && !on_it;
        let is_one_to_one = one_to_one_back(&self.policy, outside.ip).is_some();
        let admitted = opens
            && (is_one_to_one
                || behind
                    .is_some_and(|(id, life)| life == Life::Yes && self.admits(id, remote) == Life::Yes));
        match shown {
            Shown::Held if proto == Proto::Tcp && opens && !admitted => Ok(()),
            Shown::Dropped(Reason::NatTcpNoSession) if proto == Proto::Tcp && !opens => Ok(()),
            Shown::Dropped(Reason::NatFiltered) if elsewhere => Ok(()),
            Shown::Dropped(Reason::NatNoMapping | Reason::NatFiltered) if !admitted => Ok(()),
            Shown::Dropped(Reason::Nat64ProtocolUnsupported)
                if proto == Proto::Other && self.policy.nat64.is_some() && !admitted =>
            {
                Ok(())
            }
            Shown::Dropped(Reason::NatSynTableFull) if proto == Proto::Tcp && opens && !admitted => Ok(()),
            Shown::Dropped(reason) if is_shortage(reason) && (behind.is_some() || is_one_to_one) => {
                self.judge_shortage_in(flow, behind.map(|(id, _)| id), reason)
            }
            _ => Err(format!("{shown:?}, admitted {admitted}, opens {opens}, mapping {behind:?}")),
        }
    }

    /// A packet from outside reached this inside endpoint.
    fn delivered(
        &mut self,
        proto: Proto,
        remote: Endpoint,
        outside: Endpoint,
        bits: u8,
        inside: Local,
    ) -> Result<(), String> {
        let flow = (proto, inside, remote);
        let session = self.session_life(&flow);
        let at = self.mappings.iter().find(|(_, m)| m.is_of(proto, inside) && m.outside == Some(outside));
        let mut at = at.map(|(id, _)| *id);
        if at.is_none()
            && inside.v4().is_some_and(|ip| one_to_one_back(&self.policy, outside.ip) == Some(ip))
            && inside.port == outside.port
        {
            self.judge_new_session(&flow, None)?;
            at = Some(self.add(proto, inside, Some(outside), Kind::OneToOne));
        }
        if at.is_none() {
            // Perhaps one whose endpoint nobody saw.
            let unseen = self.mappings.iter().find(|(_, m)| m.is_of(proto, inside) && m.outside.is_none());
            at = unseen.map(|(id, _)| *id);
            if let Some(id) = at {
                self.learn(id, outside)?;
            }
        }
        let Some(id) = at else {
            return Err(format!("delivered to {inside}, who is not behind {outside}"));
        };
        let own = self.sessions.get(&flow).map(|s| s.mapping).filter(|_| session != Life::No);
        if own.is_some_and(|own| own != id) && session == Life::Yes {
            return Err("delivered by one mapping though they talk by another".into());
        }
        if own != Some(id) {
            let is_open = self.mappings.get(&id).is_some_and(|m| m.kind != Kind::Dynamic);
            if !is_open && self.admits(id, remote) == Life::No {
                return Err("RFC 4787 REQ-8: the filter does not admit this sender".into());
            }
            if !opens_in(proto, bits) {
                return Err("a packet that may not open a session from outside did".into());
            }
            self.judge_new_session(&flow, Some(id))?;
        }
        self.keep(flow, id, bits, false);
        Ok(())
    }

    /// RFC 4787 REQ-8.
    fn admits(&self, id: u32, remote: Endpoint) -> Life {
        let Some(mapping) = self.mappings.get(&id) else { return Life::No };
        if mapping.kind != Kind::Dynamic {
            return Life::Yes;
        }
        let best = |same: &dyn Fn(&Endpoint) -> bool| {
            let on_it = self.sessions.iter().filter(|(flow, s)| s.mapping == id && same(&flow.2));
            on_it.map(|(flow, s)| self.life_of(flow, s)).max().unwrap_or(Life::No)
        };
        match self.policy.filtering.get(mapping.proto.index()).copied().unwrap_or_default() {
            Filtering::EndpointIndependent => best(&|_| true),
            Filtering::AddressDependent => best(&|r| r.ip == remote.ip),
            Filtering::AddressAndPortDependent => best(&|r| *r == remote),
        }
    }

    /// A packet made a session whose outside endpoint nobody saw (the far leg of a hairpin was dropped).
    pub fn out_unseen(&mut self, proto: Proto, inside: Local, remote: Endpoint, bits: u8) {
        let flow = (proto, inside, remote);
        if self.session_life(&flow) == Life::Yes {
            let id = self.sessions.get(&flow).map(|s| s.mapping);
            return self.keep(flow, id.unwrap_or_default(), bits, true);
        }
        self.end_session(&flow, false);
        let lives = self.mapping_lives();
        let shared = self.mappings.iter().find(|(_, m)| m.independent && m.is_of(proto, inside));
        let id = match shared.map(|(id, _)| *id) {
            Some(id) if lives.get(&id) == Some(&Life::Yes) => id,
            Some(id) => {
                // A mapping that may have ended may now be another.
                if let Some(mapping) = self.mappings.get_mut(&id).filter(|m| m.kind == Kind::Dynamic) {
                    mapping.outside = None;
                }
                self.creations.entry(self.subscriber(inside.ip)).or_default().perhaps.push(self.now_s);
                id
            }
            None => {
                self.creations.entry(self.subscriber(inside.ip)).or_default().perhaps.push(self.now_s);
                match one_to_one(&self.policy, inside.ip) {
                    Some(ip) => {
                        self.add(proto, inside, Some(Endpoint { ip, port: inside.port }), Kind::OneToOne)
                    }
                    None => self.add(proto, inside, None, Kind::Dynamic),
                }
            }
        };
        self.keep(flow, id, bits, true);
    }

    /// May there be a session of this flow?
    #[must_use]
    pub fn may_have(&self, proto: Proto, inside: Local, remote: Endpoint) -> bool {
        self.session_life(&(proto, inside, remote)) != Life::No
    }

    /// The same as management shows it: by any prefix.
    #[must_use]
    pub fn may_show(&self, proto: Proto, inside: HostEndpoint, remote: Endpoint) -> bool {
        let same = |flow: &&Flow| (flow.0, flow.1.endpoint(), flow.2) == (proto, inside, remote);
        self.sessions.keys().filter(same).any(|flow| self.session_life(flow) != Life::No)
    }

    /// Sessions that may be there: no more can.
    #[must_use]
    pub fn sessions_max(&self) -> usize {
        self.sessions.len()
    }

    /// Sessions that surely live: (protocol, inside, outside, remote), in a fixed order.
    #[must_use]
    pub fn living(&self) -> Vec<(Proto, Local, Endpoint, Endpoint)> {
        let mut all = vec![];
        for (flow, session) in &self.sessions {
            let outside = self.mappings.get(&session.mapping).and_then(|m| m.outside);
            if let (Life::Yes, Some(outside)) = (self.life_of(flow, session), outside) {
                all.push((flow.0, flow.1, outside, flow.2));
            }
        }
        all
    }

    /// The endpoints that rules forward: (protocol, outside, inside).
    #[must_use]
    pub fn forwards(&self) -> Vec<(Proto, Endpoint, Local)> {
        let forwards = self.mappings.values().filter(|m| m.kind == Kind::Forward);
        forwards.filter_map(|m| Some((m.proto, m.outside?, m.inside))).collect()
    }

    /// Is the outside address one of the instance's, for this protocol?
    #[must_use]
    pub fn serves(&self, proto: Proto, outside: Endpoint) -> bool {
        let pools = self.policy.pools.iter().flat_map(|pool| &pool.ranges);
        let dynamic = proto != Proto::Other && pools.into_iter().any(|range| range.contains(outside.ip));
        let forwarded = policy::forwards(&self.policy).iter().any(|f| f.1.ip == outside.ip);
        dynamic || forwarded || one_to_one_back(&self.policy, outside.ip).is_some()
    }

    /// Management deleted these: each that surely lived was there. `deleted` is how many the engine says there were.
    ///
    /// # Errors
    /// When the number cannot be.
    pub fn deleted(&mut self, flows: &[Flow], deleted: u64) -> Result<(), String> {
        let count = |least: Life| flows.iter().filter(|flow| self.session_life(flow) >= least).count() as u64;
        let (sure, possible) = (count(Life::Yes), count(Life::Maybe));
        if !(sure..=possible).contains(&deleted) {
            return Err(format!("{deleted} deleted, not {sure} to {possible}"));
        }
        for flow in flows {
            self.end_session(flow, true);
        }
        Ok(())
    }

    /// Flows that may have a session and whose inside address is this.
    #[must_use]
    pub fn flows_of(&self, host: IpAddr) -> Vec<Flow> {
        self.sessions.keys().copied().filter(|flow| flow.1.ip == host).collect()
    }

    /// Is the endpoint of those beyond deterministic subscribers' own (RFC 7422 §2, step 4)?
    #[must_use]
    pub fn is_overflow(&self, outside: Endpoint) -> bool {
        policy::in_overflow(&self.policy, outside)
    }

    fn add_forwards(&mut self) {
        for (proto, outside, inside) in policy::forwards(&self.policy) {
            if !self
                .mappings
                .values()
                .any(|m| m.kind == Kind::Forward && m.proto == proto && m.outside == Some(outside))
            {
                self.add(proto, inside, Some(outside), Kind::Forward);
            }
        }
    }

    fn is_forwarded(&self, proto: Proto, outside: Endpoint) -> bool {
        forward_at(&self.policy, proto, outside).is_some()
    }
}
