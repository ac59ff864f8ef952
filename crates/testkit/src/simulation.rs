//! Random scenarios over whole workers, the reference NAT beside them. A seed decides everything.
//!
//! One or two instances (in the second case with equal inside addresses in two routing instances), 1 to 16 workers,
//! small tables; subscribers of IPv4 and, by NAT64 prefixes of all lengths, of IPv6; packets of theirs and of
//! strangers, answers, hairpinned calls within and between the versions, ICMP errors both ways, fragments, garbage,
//! deletions, reloads, time. Beside them a stateless translator, in the same workers.

mod behaviour;
mod errors;
mod packets;
mod pieces;
mod stateless;
mod world;

use std::net::IpAddr;

use carrack_base::{Prefix4, Prefix6, Proto, Reason};
use carrack_nat::policy::Instance;
use carrack_nat::row::{Endpoint, Filter, HostEndpoint, SessionKey};
use carrack_wire::tcp::flag;

use crate::network::Sent;
use crate::random::Random;
use crate::reference::{Flow, Local, Reference, Shown, is_shortage, seen_as, stands_for};
use behaviour::{HOST_COUNT, REMOTES, pool_of};
use packets::{GRE, packet};
use world::{INSIDE, OUTSIDE, World, endpoints_of};

/// Steps of one scenario.
pub const STEPS: usize = 400;

/// What a scenario did, so that a test can see that it did anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets translated.
    pub translated: u64,
    /// Packets of these from IPv6 to IPv4.
    pub from_six: u64,
    /// Packets of these from IPv4 to IPv6.
    pub to_six: u64,
    /// Of these, packets with a port beyond their deterministic subscriber's own (RFC 7422 §2, step 4).
    pub overflowed: u64,
    /// Packets dropped for a shortage.
    pub shortages: u64,
    /// Packets dropped by filter or for want of a mapping.
    pub refused: u64,
    /// Packets of sessions answered from outside.
    pub answered: u64,
    /// Calls between subscribers that got through.
    pub hairpinned: u64,
    /// ICMP errors that got through.
    pub errors: u64,
    /// Datagrams in pieces that got through.
    pub pieces: u64,
    /// Packets translated without state.
    pub stateless: u64,
    /// ICMP errors of these.
    pub stateless_errors: u64,
    /// Sessions that management deleted.
    pub deleted: u64,
    /// Reloads.
    pub reloads: u64,
    /// Sessions that reloads left standing.
    pub survivors: u64,
}

impl Summary {
    /// Adds what another scenario did.
    pub fn add(&mut self, other: &Self) {
        self.translated += other.translated;
        self.from_six += other.from_six;
        self.to_six += other.to_six;
        self.overflowed += other.overflowed;
        self.shortages += other.shortages;
        self.refused += other.refused;
        self.answered += other.answered;
        self.hairpinned += other.hairpinned;
        self.errors += other.errors;
        self.pieces += other.pieces;
        self.stateless += other.stateless;
        self.stateless_errors += other.stateless_errors;
        self.deleted += other.deleted;
        self.reloads += other.reloads;
        self.survivors += other.survivors;
    }
}

/// Plays the scenario of a seed. With `tells`, prints each step.
///
/// # Panics
/// When workers and reference disagree, or a packet is unaccounted for; the message has the seed.
#[must_use]
pub fn play(seed: u64, tells: bool) -> Summary {
    play_with(seed, None, tells)
}

/// The same with so many workers in place of the seed's choice.
///
/// # Panics
/// As [`play`].
#[must_use]
pub fn play_with(seed: u64, workers: Option<u8>, tells: bool) -> Summary {
    let _told = Again(seed, workers);
    let mut it = Simulation::new(seed, workers);
    it.tells = tells;
    for step in 0..STEPS {
        if let Err(error) = it.step() {
            panic!("step {step}: {error}");
        }
        it.world.network.assert_balanced();
        // By choices of its own: what the NATs see is the seed's, with or without it.
        if it.chance.one_in(4) {
            if let Err(error) = it.stateless() {
                panic!("step {step}: {error}");
            }
            it.world.network.assert_balanced();
        }
    }
    if let Err(error) = it.end() {
        panic!("at the end: {error}");
    }
    it.summary
}

/// Says how to see a failure again, wherever it came from.
struct Again(u64, Option<u8>);

impl Drop for Again {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let workers = self.1.map_or(String::new(), |count| format!(" CARRACK_WORKERS={count}"));
            eprintln!(
                "to see it again: CARRACK_SEED={}{workers} cargo test -p carrack-testkit --test simulation one -- --nocapture",
                self.0
            );
        }
    }
}

/// Flags of TCP segments.
const FLAGS: [u8; 6] =
    [flag::SYN, flag::SYN, flag::SYN | flag::ACK, flag::ACK, flag::FIN | flag::ACK, flag::RST];

struct Simulation {
    random: Random,
    /// Choices of the stateless translator's.
    chance: Random,
    world: World,
    /// One an instance, in force or not.
    references: Vec<Reference>,
    two: bool,
    static_rules: bool,
    summary: Summary,
    tells: bool,
}

impl Simulation {
    fn new(seed: u64, workers: Option<u8>) -> Self {
        let mut random = Random::new(seed);
        let (two, static_rules) = (random.one_in(2), !random.one_in(3));
        let sides = 0..1 + usize::from(two);
        let policies: Vec<Instance> =
            sides.map(|side| behaviour::draw(&mut random, side, two, static_rules)).collect();
        let chosen = [1, 1, 2, 2, 3, 16][random.below(6)];
        let workers = workers.unwrap_or(chosen);
        let mut chance = Random::new(!seed);
        let known = stateless::draw(&mut chance);
        let world = World::new(&mut random, (policies.clone(), known), two, static_rules, workers);
        let now_s = world.network.now.s();
        let references = policies.into_iter().map(|policy| Reference::new(policy, workers, now_s)).collect();
        Self {
            random,
            chance,
            world,
            references,
            two,
            static_rules,
            summary: Summary::default(),
            tells: false,
        }
    }

    fn step(&mut self) -> Result<(), String> {
        match self.random.below(200) {
            0..74 => self.outbound(),
            74..124 => self.answer(),
            124..140 => self.stranger(),
            140..150 => self.hairpin(),
            150..157 => self.error_from_outside(),
            157..162 => self.error_from_inside(),
            162..166 => self.out_in_pieces(),
            166..170 => self.in_in_pieces(),
            170..174 => self.garbage(),
            174..176 => self.misaddressed(),
            176..180 => self.delete(),
            180..182 => self.clear(),
            182..196 => self.pass_time(),
            _ => self.reload(),
        }
    }

    fn tell(&self, what: &str) {
        if self.tells {
            let known: usize = self.references.iter().map(Reference::sessions_max).sum();
            let (now_s, sessions) = (self.world.network.now.s(), self.world.sessions());
            println!("{now_s} s, {sessions} sessions, {known} known: {what}");
        }
    }

    /// An instance that is in force.
    fn side(&mut self) -> usize {
        let side = self.random.below(self.references.len());
        if self.in_force(side) { side } else { 1 - side }
    }

    fn in_force(&self, side: usize) -> bool {
        self.world.number_of(&self.references[side].policy().name).is_some()
    }

    /// A host of either version, whichever the instance serves.
    fn host(&mut self, side: usize) -> IpAddr {
        let number = self.random.below(HOST_COUNT);
        let six = self.references[side].policy().nat64.is_some() && self.random.one_in(2);
        behaviour::host(number, six)
    }

    fn inside(&mut self, side: usize, proto: Proto) -> Local {
        let port = 1_000 + self.random.below(30) as u16;
        let ip = self.host(side);
        let via = match &self.references[side].policy().nat64 {
            Some(nat64) if ip.is_ipv6() => self.random.pick(&nat64.prefixes).map_or(0, |entry| entry.via),
            _ => 0,
        };
        Local { ip, port: if proto == Proto::Other { 0 } else { port }, via }
    }

    /// An IPv4 endpoint as an inside host sees it.
    fn seen_by(&self, side: usize, host: Local, remote: Endpoint) -> HostEndpoint {
        seen_as(self.references[side].policy(), host.via, remote)
    }

    /// Whom a packet that left towards inside went to, and from which IPv4 endpoint.
    fn delivery(&self, side: usize, sent: &Sent) -> Result<(Local, Endpoint), String> {
        let (src, dst) = endpoints_of(&sent.frame);
        let found = stands_for(self.references[side].policy(), src);
        let (via, remote) = found.ok_or_else(|| format!("{src} is in no prefix of side {side}"))?;
        if src.ip.is_ipv6() != dst.ip.is_ipv6() {
            return Err(format!("of two versions: {src} to {dst}"));
        }
        Ok((Local { ip: dst.ip, port: dst.port, via }, remote))
    }

    fn proto(&mut self) -> Proto {
        let all = [Proto::Tcp, Proto::Tcp, Proto::Udp, Proto::Udp, Proto::Udp, Proto::Icmp, Proto::Icmp];
        if self.random.one_in(15) { Proto::Other } else { all[self.random.below(7)] }
    }

    fn remote(&mut self, proto: Proto) -> Endpoint {
        let port = match proto {
            Proto::Icmp => 0,
            Proto::Other => u16::from(GRE),
            Proto::Tcp | Proto::Udp => 50 + self.random.below(3) as u16,
        };
        Endpoint { ip: REMOTES + self.random.below(4) as u32, port }
    }

    fn flags(&mut self) -> u8 {
        FLAGS[self.random.below(FLAGS.len())]
    }

    /// A session that surely lives, and its instance.
    fn living(
        &mut self,
        is: impl Fn(&(Proto, Local, Endpoint, Endpoint)) -> bool,
    ) -> Option<(usize, (Proto, Local, Endpoint, Endpoint))> {
        let side = self.side();
        let mut living = self.references[side].living();
        living.retain(is);
        self.random.pick(&living).map(|found| (side, *found))
    }

    /// One packet in by a worker of chance; what the workers made of it.
    fn send(&mut self, port: u16, frame: &[u8]) -> Result<(Option<Sent>, Vec<Reason>), String> {
        let worker = self.random.below(self.world.network.workers.len());
        let (sent, drops) = self.world.send(worker, port, frame);
        // ICMP errors that the router makes about drops are its own business here.
        let mut passed: Vec<Sent> = sent.into_iter().filter(|s| !world::is_own_error(s)).collect();
        if passed.len() > 1 {
            return Err(format!("{} packets left for one", passed.len()));
        }
        for reason in &drops {
            self.summary.shortages += u64::from(is_shortage(*reason));
            self.summary.refused += u64::from(matches!(reason, Reason::NatFiltered | Reason::NatNoMapping));
            if !self.world.is_full(*reason) {
                return Err(format!("{reason}, but no worker's is"));
            }
        }
        self.summary.translated += u64::from(!passed.is_empty());
        Ok((passed.pop(), drops))
    }

    fn outbound(&mut self) -> Result<(), String> {
        let (side, proto) = (self.side(), self.proto());
        let (inside, remote, flags) = (self.inside(side, proto), self.remote(proto), self.flags());
        self.send_out(side, (proto, inside, remote), flags)
    }

    fn send_out(&mut self, side: usize, flow: Flow, flags: u8) -> Result<(), String> {
        let (proto, inside, remote) = flow;
        let seen = self.seen_by(side, inside, remote);
        let frame = packet(proto, inside.endpoint(), seen, flags, INSIDE[side]);
        let (passed, drops) = self.send(INSIDE[side], &frame)?;
        let shown = match (passed, drops.as_slice()) {
            (Some(sent), []) => {
                let shown = sent_out(&sent, inside, remote)?;
                self.summary.from_six += u64::from(inside.is_six());
                shown
            }
            // Untouched, in a routing instance that does not lead there.
            (None, [Reason::NoRoute]) if self.two => Shown::Untouched,
            (None, [reason]) => Shown::Dropped(*reason),
            (passed, drops) => return Err(format!("two fates or none: {passed:?} and {drops:?}")),
        };
        if let Shown::Translated(outside) = shown {
            self.summary.overflowed += u64::from(self.references[side].is_overflow(outside));
        }
        self.tell(&format!("side {side} out {proto} {inside} > {remote} {flags:02x} {shown:?}"));
        let told = self.references[side].went_out(proto, inside, remote, flags, shown);
        told.map_err(|error| format!("{proto} {inside} to {remote}, flags {flags:02x}: {error}; {shown:?}"))
    }

    fn answer(&mut self) -> Result<(), String> {
        // Hairpinned flows have a step of their own: both legs decide there.
        let Some((side, (proto, inside, outside, remote))) = self.living(|l| !is_ours(l.3.ip)) else {
            return self.outbound();
        };
        let flags = [flag::ACK, flag::SYN | flag::ACK, flag::FIN | flag::ACK, flag::RST, flag::SYN];
        let flags = flags[self.random.below(flags.len())];
        if self.random.one_in(3) {
            return self.send_out(side, (proto, inside, remote), flags);
        }
        self.summary.answered += 1;
        self.send_in(side, proto, remote, outside, flags)
    }

    fn send_in(
        &mut self,
        side: usize,
        proto: Proto,
        remote: Endpoint,
        outside: Endpoint,
        flags: u8,
    ) -> Result<(), String> {
        let frame = packet(proto, remote.into(), outside.into(), flags, OUTSIDE);
        let (passed, drops) = self.send(OUTSIDE, &frame)?;
        let shown = match (passed, drops.as_slice()) {
            (Some(sent), []) if sent.port.0 != INSIDE[side] => {
                return Err(format!("{outside} of side {side} left by port {}", sent.port.0));
            }
            (Some(sent), []) => {
                let (to, from) = self.delivery(side, &sent)?;
                if from.ip != remote.ip {
                    return Err(format!("from {remote}, delivered as from {from}"));
                }
                self.summary.to_six += u64::from(to.is_six());
                Shown::Delivered(to)
            }
            (None, [reason]) => Shown::Dropped(*reason),
            (None, []) => Shown::Held,
            (passed, drops) => return Err(format!("two fates: {passed:?} and {drops:?}")),
        };
        self.tell(&format!("side {side} in {proto} {remote} > {outside} {flags:02x} {shown:?}"));
        let told = self.references[side].came_in(proto, remote, outside, flags, shown);
        told.map_err(|error| {
            format!("{proto} {remote} into {outside}, flags {flags:02x}: {error}; {shown:?}")
        })
    }

    /// Somebody unknown tries an outside endpoint, mostly one that is mapped.
    fn stranger(&mut self) -> Result<(), String> {
        let (side, proto) = (self.side(), self.proto());
        let (living, forwards) = (self.references[side].living(), self.references[side].forwards());
        let (proto, outside) = match self.random.below(6) {
            0 => (proto, Endpoint { ip: pool_of(side), port: 2_000 + self.random.below(300) as u16 }),
            1 => {
                let port = if proto == Proto::Other { 0 } else { 1_000 + self.random.below(30) as u16 };
                (proto, Endpoint { ip: pool_of(side) + 110 + self.random.below(2) as u32, port })
            }
            2 => match self.random.pick(&forwards) {
                Some((proto, outside, _)) => (*proto, *outside),
                None => return self.outbound(),
            },
            _ => match self.random.pick(&living) {
                Some((proto, _, outside, _)) => (*proto, *outside),
                None => return self.outbound(),
            },
        };
        if !self.references[side].serves(proto, outside) {
            return Ok(());
        }
        let remote = self.remote(proto);
        // For ICMP, flags of 0 make it a query, which may open; anything else an answer, which may not.
        let flags = if proto == Proto::Icmp { 0 } else { self.flags() };
        self.send_in(side, proto, remote, outside, flags)
    }

    /// RFC 4787 REQ-9: one subscriber calls another, perhaps of the other instance, by the outside endpoint.
    fn hairpin(&mut self) -> Result<(), String> {
        let from = self.side();
        let Some((to, (proto, callee, outside, _))) = self.living(|l| l.0 == Proto::Udp) else {
            return Ok(());
        };
        let caller = self.inside(from, proto);
        let seen = self.seen_by(from, caller, outside);
        let frame = packet(proto, caller.endpoint(), seen, 0, INSIDE[from]);
        let before = self.world.sessions();
        let (passed, drops) = self.send(INSIDE[from], &frame)?;
        self.tell(&format!("side {from} calls {to}: {caller} > {outside} {passed:?} {drops:?}"));
        match (passed, drops.as_slice()) {
            (Some(sent), []) => {
                let (dst, src) = self.delivery(to, &sent)?;
                if dst.endpoint() != callee.endpoint() || sent.port.0 != INSIDE[to] {
                    return Err(format!("a call to {outside} reached {dst}, not {callee}"));
                }
                self.summary.hairpinned += 1;
                self.summary.from_six += u64::from(caller.is_six());
                self.summary.to_six += u64::from(callee.is_six());
                self.references[from].went_out(proto, caller, outside, 0, Shown::Translated(src))?;
                self.references[to].came_in(proto, src, outside, 0, Shown::Delivered(dst))
            }
            (None, [reason @ (Reason::NatHairpinDenied | Reason::NatSubscriberDenied)]) => {
                let hairpinning = self.references[from].policy().hairpinning;
                if *reason == Reason::NatHairpinDenied && hairpinning {
                    return Err("a call refused though calls are allowed".into());
                }
                Ok(())
            }
            // The caller's own leg failed, or the callee's limit refused it; then the first leg stands.
            (None, [reason]) if is_shortage(*reason) || *reason == Reason::NatFiltered => {
                let went_out = *reason == Reason::NatFiltered
                    || self.world.sessions() > before
                    || self.references[from].may_have(proto, caller, outside);
                if went_out {
                    self.references[from].out_unseen(proto, caller, outside, 0);
                }
                Ok(())
            }
            (passed, drops) => Err(format!("a hairpinned call: {passed:?}, {drops:?}")),
        }
    }

    /// Management deletes sessions by name, most of which are there (RFC 6888 REQ-10).
    fn delete(&mut self) -> Result<(), String> {
        let side = self.side();
        let host = self.host(side);
        let known = self.references[side].flows_of(host);
        let mut flows = known.clone();
        flows.truncate(1 + self.random.below(6));
        // A name says nothing of the prefix: whoever means one means all.
        let shown = |f: &Flow| (f.0, f.1.endpoint(), f.2);
        let named: Vec<_> = flows.iter().map(shown).collect();
        flows = known.into_iter().filter(|flow| named.contains(&shown(flow))).collect();
        let nobody = Local { ip: host, port: 999, via: 0 };
        flows.push((Proto::Udp, nobody, Endpoint { ip: REMOTES, port: 999 }));
        let Some(instance) = self.world.number_of(&self.references[side].policy().name) else {
            return Ok(());
        };
        let keys: Vec<SessionKey> = flows
            .iter()
            .map(|(proto, inside, remote)| SessionKey {
                instance,
                proto: *proto,
                inside: inside.endpoint(),
                remote: *remote,
            })
            .collect();
        let deleted = self.world.network.delete(&keys);
        self.tell(&format!("side {side} delete {flows:?}: {deleted}"));
        self.summary.deleted += deleted;
        self.references[side].deleted(&flows, deleted)?;
        self.world.check(&self.references)
    }

    /// Management clears what a filter says.
    fn clear(&mut self) -> Result<(), String> {
        let side = self.side();
        let host = self.host(side);
        let instance = self.world.number_of(&self.references[side].policy().name);
        let inside = Some(match host {
            IpAddr::V4(ip) => Prefix4::of(ip.into(), 32).into(),
            IpAddr::V6(ip) => Prefix6::of(ip.into(), 128).into(),
        });
        let rows = self.world.network.clear(Filter { instance, inside, ..Filter::default() });
        self.tell(&format!("side {side} clear {host}: {}", rows.len()));
        let flows = self.references[side].flows_of(host);
        if let Some(row) = rows
            .iter()
            .find(|r| !flows.iter().any(|f| (f.0, f.1.endpoint(), f.2) == (r.proto, r.inside, r.remote)))
        {
            return Err(format!("{row:?} was deleted, of which nobody knows"));
        }
        self.references[side].deleted(&flows, rows.len() as u64)?;
        self.world.check(&self.references)
    }

    fn pass_time(&mut self) -> Result<(), String> {
        let seconds = [1, 2, 7, 20, 65, 130, 320][self.random.below(7)];
        self.tell(&format!("wait {seconds}"));
        self.world.wait(seconds);
        self.references.iter_mut().for_each(|reference| reference.at(self.world.network.now.s()));
        self.world.check(&self.references)
    }

    /// A reload may change one instance's behaviour, the order of instances, or take one out of force.
    fn reload(&mut self) -> Result<(), String> {
        let mut policies: Vec<Instance> = self.references.iter().map(|r| r.policy().clone()).collect();
        let side = self.random.below(policies.len());
        behaviour::change(&mut self.random, side, &mut policies[side], self.static_rules);
        for (reference, policy) in self.references.iter_mut().zip(&policies) {
            if *reference.policy() != *policy {
                reference.reload(policy.clone());
            }
        }
        let gone = (self.two && self.random.one_in(5)).then(|| self.random.below(2));
        self.references.iter_mut().for_each(Reference::resume);
        if let Some(gone) = gone {
            self.references[gone].cease();
            policies.remove(gone);
        } else if self.random.one_in(3) {
            policies.reverse();
        }
        self.tell(&format!("reload, without {gone:?}: {policies:#?}"));
        let known = stateless::draw(&mut self.chance);
        self.world.reload(policies, known);
        self.summary.reloads += 1;
        self.summary.survivors += self.references.iter().map(|r| r.living().len() as u64).sum::<u64>();
        self.world.check(&self.references)
    }

    /// After all timeouts nothing is used.
    fn end(&mut self) -> Result<(), String> {
        let mut policies: Vec<Instance> = self.references.iter().map(|r| r.policy().clone()).collect();
        // A forward rule's mapping would stay.
        policies.iter_mut().for_each(|policy| policy.statics.clear());
        let known = self.world.stateless.clone();
        self.world.reload(policies, known);
        self.world.wait(1_200);
        self.world.assert_empty()
    }
}

/// Is it an address of any instance's pool or rules?
fn is_ours(ip: u32) -> bool {
    ip & 0xffff_ff00 == pool_of(0)
}

/// What became of a packet of this host that left.
fn sent_out(sent: &Sent, inside: Local, remote: Endpoint) -> Result<Shown, String> {
    let (source, destination) = endpoints_of(&sent.frame);
    let (Some(source), Some(destination)) = (source.v4(), destination.v4()) else {
        return Err(format!("left as IPv6: {source} to {destination}"));
    };
    if destination.ip != remote.ip {
        return Err(format!("to {remote}, left for {destination}"));
    }
    Ok(if inside.v4() == Some(source.ip) { Shown::Untouched } else { Shown::Translated(source) })
}
