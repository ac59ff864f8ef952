//! A small, obvious NAT that says what a right answer is. It does not predict which port a mapping gets: it is told
//! what the engine chose, and holds it to that.
//!
//! One instance, endpoint-independent mapping (RFC 4787 REQ-1), any filtering, any way of giving out ports. Time is
//! exact to a few seconds: near its end a session may be there or not, and what the engine shows decides.

use std::collections::HashMap;

use carrack_base::{Proto, Reason};
use carrack_nat::policy::{Filtering, Instance, Pooling};
use carrack_nat::row::Endpoint;
use carrack_wire::tcp::flag;

/// Protocol and inside endpoint.
type Inside = (Proto, Endpoint);

/// What the engine made of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// Translated: the endpoint that was put in place (outside going out, inside coming in).
    Translated(Endpoint),
    /// Dropped.
    Dropped(Reason),
    /// Held for a while (RFC 5382 REQ-4).
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Yes,
    Maybe,
    No,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tcp {
    syn_out: bool,
    syn_in: bool,
    fin_out: bool,
    fin_in: bool,
    reset: bool,
}

#[derive(Debug, Clone, Copy)]
struct Session {
    seen_s: u32,
    tcp: Tcp,
    /// It may have ended before a reload gave it a longer time.
    in_doubt: bool,
}

#[derive(Debug, Default)]
struct Mapping {
    /// Not known when the engine made it for a packet that nobody saw leave.
    outside: Option<Endpoint>,
    sessions: HashMap<Endpoint, Session>,
}

/// The reference.
#[derive(Debug)]
pub struct Reference {
    policy: Instance,
    mappings: HashMap<Inside, Mapping>,
    now_s: u32,
    reloaded_s: u32,
}

impl Tcp {
    /// The state after a segment; false when it was a repeated RST, which refreshes nothing (RFC 7857 §2.2).
    fn take(&mut self, bits: u8, outward: bool) -> bool {
        let (syn, fin, rst) = (bits & flag::SYN != 0, bits & flag::FIN != 0, bits & flag::RST != 0);
        if rst {
            return !std::mem::replace(&mut self.reset, true);
        }
        let closed = self.fin_out && self.fin_in;
        if syn && bits & flag::ACK == 0 && (self.reset || closed) {
            *self = Self { syn_out: outward, syn_in: !outward, ..Self::default() };
            return true;
        }
        if self.reset {
            if fin {
                return false;
            }
            *self = Self { syn_out: true, syn_in: true, ..Self::default() };
            return true;
        }
        let established = self.syn_out && self.syn_in;
        self.syn_out |= syn && outward;
        self.syn_in |= syn && !outward;
        if established {
            self.fin_out |= fin && outward;
            self.fin_in |= fin && !outward;
        }
        true
    }
}

impl Reference {
    /// An empty NAT of this policy.
    #[must_use]
    pub fn new(policy: Instance) -> Self {
        Self { policy, mappings: HashMap::new(), now_s: 0, reloaded_s: 0 }
    }

    /// Time goes on.
    pub fn at(&mut self, now_s: u32) {
        self.now_s = now_s;
    }

    fn timeout_s(&self, proto: Proto, session: &Session) -> u32 {
        let timeouts = &self.policy.timeouts;
        match proto {
            Proto::Udp => timeouts.udp_s,
            Proto::Icmp => timeouts.icmp_s,
            Proto::Other => timeouts.other_s,
            Proto::Tcp if session.tcp.reset => timeouts.tcp_reset_s,
            Proto::Tcp if session.tcp.fin_out && session.tcp.fin_in => timeouts.tcp_closing_s,
            Proto::Tcp if session.tcp.syn_out && session.tcp.syn_in => timeouts.tcp_established_s,
            Proto::Tcp => timeouts.tcp_opening_s,
        }
    }

    fn life(&self, proto: Proto, session: &Session) -> Life {
        let end = session.seen_s + self.timeout_s(proto, session);
        // The sweep takes a second or two; sessions that a reload gave less time are looked at within half a minute.
        let swept = (end + 4).max(self.reloaded_s + 40);
        if self.now_s + 2 < end {
            if session.in_doubt { Life::Maybe } else { Life::Yes }
        } else if self.now_s <= swept {
            Life::Maybe
        } else {
            Life::No
        }
    }

    fn session_life(&self, inside: Inside, remote: Endpoint) -> Life {
        let session = self.mappings.get(&inside).and_then(|m| m.sessions.get(&remote));
        session.map_or(Life::No, |session| self.life(inside.0, session))
    }

    fn mapping_life(&self, inside: Inside) -> Life {
        let Some(mapping) = self.mappings.get(&inside) else { return Life::No };
        let lives = || mapping.sessions.values().map(|session| self.life(inside.0, session));
        if lives().any(|life| life == Life::Yes) {
            Life::Yes
        } else if lives().any(|life| life == Life::Maybe) {
            Life::Maybe
        } else {
            Life::No
        }
    }

    /// Forgets what has surely ended.
    fn tidy(&mut self) {
        let gone: Vec<Inside> =
            self.mappings.keys().copied().filter(|inside| self.mapping_life(*inside) == Life::No).collect();
        for inside in gone {
            self.mappings.remove(&inside);
        }
    }

    fn keep(&mut self, inside: Inside, remote: Endpoint, bits: u8, outward: bool) {
        let life = self.session_life(inside, remote);
        let now_s = self.now_s;
        let mapping = self.mappings.entry(inside).or_default();
        if life == Life::No {
            mapping.sessions.remove(&remote);
        }
        let fresh = !mapping.sessions.contains_key(&remote);
        let session = mapping.sessions.entry(remote).or_insert(Session {
            seen_s: now_s,
            tcp: Tcp::default(),
            in_doubt: false,
        });
        session.in_doubt = false;
        let refreshes = inside.0 != Proto::Tcp || session.tcp.take(bits, outward);
        if refreshes || fresh {
            session.seen_s = now_s;
        }
    }

    /// A packet went out; was what the engine made of it right?
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn went_out(
        &mut self,
        proto: Proto,
        inside: Endpoint,
        remote: Endpoint,
        bits: u8,
        shown: Shown,
    ) -> Result<(), String> {
        self.tidy();
        let key = (proto, inside);
        let session = self.session_life(key, remote);
        let opens = proto != Proto::Tcp || bits & (flag::SYN | flag::ACK | flag::RST) == flag::SYN;
        match shown {
            Shown::Translated(outside) => {
                if session == Life::No && !opens {
                    return Err("a segment that may not open a session was translated".into());
                }
                self.check_outside(key, outside)?;
                self.restart_if_changed(key, outside);
                self.keep(key, remote, bits, true);
                if let Some(mapping) = self.mappings.get_mut(&key) {
                    mapping.outside = Some(outside);
                }
                Ok(())
            }
            Shown::Dropped(reason) if session == Life::Yes => {
                Err(format!("dropped for {reason} in spite of its session"))
            }
            Shown::Dropped(Reason::NatTcpNoSession) if !opens => Ok(()),
            Shown::Dropped(_) if !opens && session == Life::No => {
                Err("another reason than nat-tcp-no-session".into())
            }
            Shown::Dropped(reason) if is_shortage(reason) => self.check_shortage(key, reason),
            Shown::Dropped(reason) => Err(format!("dropped for {reason}, which is no shortage")),
            Shown::Held => Err("a packet from inside is never held".into()),
        }
    }

    /// A mapping that ended in doubt shows by another endpoint that it did.
    fn restart_if_changed(&mut self, key: Inside, outside: Endpoint) {
        let changed =
            self.mappings.get(&key).is_some_and(|m| m.outside.is_some_and(|known| known != outside));
        if changed {
            self.mappings.remove(&key);
        }
    }

    /// RFC 4787 REQ-1, REQ-2, REQ-3: the endpoint the mapping has, or a fresh one of the pool that nobody else has.
    fn check_outside(&self, key: Inside, outside: Endpoint) -> Result<(), String> {
        let known = self.mappings.get(&key).and_then(|m| m.outside);
        if let Some(known) = known
            && known != outside
            && self.mapping_life(key) == Life::Yes
        {
            return Err(format!("RFC 4787 REQ-1: mapped to {known} before, to {outside} now"));
        }
        let in_pool = self.policy.pools.iter().any(|pool| {
            pool.ranges.iter().any(|range| range.contains(outside.ip))
                && (pool.port_first..=pool.port_last).contains(&outside.port)
        });
        if !in_pool {
            return Err(format!("{outside} is in no pool"));
        }
        for (other, mapping) in &self.mappings {
            let sure = self.mapping_life(*other) == Life::Yes;
            if *other == key || !sure {
                continue;
            }
            let Some(theirs) = mapping.outside else { continue };
            if other.0 == key.0 && theirs == outside {
                return Err(format!("RFC 4787 REQ-3: {outside} is {}'s already", other.1));
            }
            if self.policy.pooling == Pooling::Paired && other.1.ip == key.1.ip && theirs.ip != outside.ip {
                return Err(format!("RFC 4787 REQ-2: paired with {} before", theirs.ip));
            }
        }
        Ok(())
    }

    /// Limits refuse only those who reached them.
    fn check_shortage(&self, key: Inside, reason: Reason) -> Result<(), String> {
        let mine = || self.mappings.iter().filter(|(other, _)| other.1.ip == key.1.ip);
        let may_live = |proto: Proto, session: &Session| self.life(proto, session) != Life::No;
        let sessions: usize =
            mine().map(|(k, m)| m.sessions.values().filter(|s| may_live(k.0, s)).count()).sum();
        let limits = &self.policy.limits;
        let enough = match reason {
            Reason::NatPortLimit => mine().count() >= limits.ports_max as usize,
            Reason::NatSessionLimit => sessions >= limits.sessions_max as usize,
            _ => true,
        };
        if enough { Ok(()) } else { Err(format!("{reason}, but the limit is not reached")) }
    }

    /// The mapping at an outside endpoint.
    fn behind(&self, proto: Proto, outside: Endpoint) -> Option<Inside> {
        let mut found = self.mappings.iter().filter(|(key, m)| key.0 == proto && m.outside == Some(outside));
        let best =
            |life| found.clone().find(|(key, _)| self.mapping_life(**key) == life).map(|(key, _)| *key);
        best(Life::Yes).or_else(|| found.next().map(|(key, _)| *key))
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
        self.tidy();
        let key = self.behind(proto, outside);
        let (mapping, session) =
            key.map_or((Life::No, Life::No), |key| (self.mapping_life(key), self.session_life(key, remote)));
        let syn = proto == Proto::Tcp && bits & (flag::SYN | flag::ACK | flag::RST) == flag::SYN;
        match shown {
            Shown::Translated(inside) => {
                let key = (proto, inside);
                let learns = self.mappings.get(&key).is_some_and(|m| m.outside.is_none());
                if learns && let Some(mapping) = self.mappings.get_mut(&key) {
                    mapping.outside = Some(outside);
                }
                if self.mappings.get(&key).and_then(|m| m.outside) != Some(outside) {
                    return Err(format!("delivered to {inside}, whose outside endpoint is another"));
                }
                if self.session_life(key, remote) == Life::No && self.admits(key, remote) == Life::No {
                    return Err("RFC 4787 REQ-8: the filter does not admit this sender".into());
                }
                if proto == Proto::Tcp && !syn && self.session_life(key, remote) == Life::No {
                    return Err("a segment without SYN opened a session from outside".into());
                }
                self.keep(key, remote, bits, false);
                Ok(())
            }
            _ if session == Life::Yes => Err(format!("{shown:?} in spite of its session")),
            Shown::Held if syn => Ok(()),
            Shown::Held => Err("only a SYN is held".into()),
            Shown::Dropped(Reason::NatTcpNoSession) if proto == Proto::Tcp && !syn => Ok(()),
            Shown::Dropped(Reason::NatNoMapping | Reason::NatFiltered | Reason::NatSynTableFull) => {
                let admitted = key.is_some_and(|key| self.admits(key, remote) == Life::Yes);
                if mapping == Life::Yes && admitted && (proto != Proto::Tcp || syn) {
                    return Err(format!("{shown:?}, but the mapping lives and the filter admits the sender"));
                }
                Ok(())
            }
            Shown::Dropped(reason) if is_shortage(reason) && mapping != Life::No => Ok(()),
            Shown::Dropped(reason) => Err(format!("dropped for {reason}")),
        }
    }

    /// RFC 4787 REQ-8.
    fn admits(&self, key: Inside, remote: Endpoint) -> Life {
        let Some(mapping) = self.mappings.get(&key) else { return Life::No };
        let filtering = self.policy.filtering.get(key.0.index()).copied().unwrap_or_default();
        let lives = |same: &dyn Fn(&Endpoint) -> bool| {
            let lives = mapping.sessions.iter().filter(|(r, _)| same(r)).map(|(_, s)| self.life(key.0, s));
            lives.fold(Life::No, |best, life| match (best, life) {
                (Life::Yes, _) | (_, Life::Yes) => Life::Yes,
                (Life::Maybe, _) | (_, Life::Maybe) => Life::Maybe,
                _ => Life::No,
            })
        };
        match filtering {
            Filtering::EndpointIndependent => lives(&|_| true),
            Filtering::AddressDependent => lives(&|r| r.ip == remote.ip),
            Filtering::AddressAndPortDependent => lives(&|r| *r == remote),
        }
    }

    /// A packet made a session whose outside endpoint nobody saw (the far leg of a hairpin was dropped).
    pub fn out_unseen(&mut self, proto: Proto, inside: Endpoint, remote: Endpoint, bits: u8) {
        self.tidy();
        let key = (proto, inside);
        // A mapping that may have ended may now be another.
        let sure = self.mapping_life(key) == Life::Yes;
        if let Some(mapping) = self.mappings.get_mut(&key).filter(|_| !sure) {
            mapping.outside = None;
        }
        self.keep(key, remote, bits, true);
    }

    /// May there be a session of this flow?
    #[must_use]
    pub fn may_have(&self, proto: Proto, inside: Endpoint, remote: Endpoint) -> bool {
        self.session_life((proto, inside), remote) != Life::No
    }

    /// Sessions that surely live: (protocol, inside, outside, remote), in a fixed order.
    #[must_use]
    pub fn living(&self) -> Vec<(Proto, Endpoint, Endpoint, Endpoint)> {
        let mut all = vec![];
        for ((proto, inside), mapping) in &self.mappings {
            for (remote, session) in &mapping.sessions {
                if let (Life::Yes, Some(outside)) = (self.life(*proto, session), mapping.outside) {
                    all.push((*proto, *inside, outside, *remote));
                }
            }
        }
        all.sort();
        all
    }

    /// A new policy is in force: what it does not cover has ended.
    pub fn reload(&mut self, policy: Instance) {
        self.tidy();
        let anew = policy.assignment != self.policy.assignment;
        let lives: Vec<(Inside, Endpoint, Life)> = self
            .mappings
            .iter()
            .flat_map(|(key, m)| m.sessions.iter().map(|(remote, s)| (*key, *remote, self.life(key.0, s))))
            .collect();
        for (key, remote, life) in lives {
            let Some(mapping) = self.mappings.get_mut(&key) else { continue };
            match (life, mapping.sessions.get_mut(&remote)) {
                (Life::No, _) => {
                    mapping.sessions.remove(&remote);
                }
                (Life::Maybe, Some(session)) => session.in_doubt = true,
                _ => {}
            }
        }
        self.policy = policy;
        self.reloaded_s = self.now_s;
        let pools = self.policy.pools.clone();
        let in_pool = |ip: u32| pools.iter().any(|pool| pool.ranges.iter().any(|range| range.contains(ip)));
        self.mappings.retain(|_, m| !anew && m.outside.is_none_or(|outside| in_pool(outside.ip)));
        // An endpoint nobody saw may be anywhere: whether it went shows later.
        for mapping in self.mappings.values_mut().filter(|m| m.outside.is_none()) {
            mapping.sessions.values_mut().for_each(|session| session.in_doubt = true);
        }
    }
}

/// Is it a reason that names a shortage (RFC 6888 REQ-11)?
#[must_use]
pub fn is_shortage(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NatPoolExhausted
            | Reason::NatPoolChanging
            | Reason::NatPortsExhausted
            | Reason::NatBlockLimit
            | Reason::NatPortLimit
            | Reason::NatSessionLimit
            | Reason::NatMappingSessionLimit
            | Reason::NatRateLimit
            | Reason::NatSessionTableFull
            | Reason::NatMappingTableFull
            | Reason::NatSubscriberTableFull
            | Reason::NatIndexFull
    )
}
