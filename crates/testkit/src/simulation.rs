//! Random scenarios over whole workers, the reference NAT beside them. A seed decides everything.
//!
//! One or two instances (in the second case with equal inside addresses in two routing instances), 1 to 16 workers,
//! small tables; packets of subscribers and strangers, answers, hairpinned calls, ICMP errors both ways, fragments,
//! garbage, deletions, reloads, time.

mod behaviour;
mod errors;
mod pieces;
mod world;

use carrack_base::{Proto, Reason};
use carrack_nat::policy::Instance;
use carrack_nat::row::{Endpoint, Filter, SessionKey};
use carrack_wire::PacketBuilder;
use carrack_wire::tcp::flag;

use crate::network::{Sent, mac_of};
use crate::random::Random;
use crate::reference::{Flow, Reference, Shown, is_shortage};
use behaviour::{HOSTS, REMOTES, pool_of};
use world::{INSIDE, OUTSIDE, World, endpoint_of};

/// Steps of one scenario.
pub const STEPS: usize = 400;
/// GRE: a protocol without ports.
const GRE: u8 = 47;

/// What a scenario did, so that a test can see that it did anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Packets translated.
    pub translated: u64,
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
        self.shortages += other.shortages;
        self.refused += other.refused;
        self.answered += other.answered;
        self.hairpinned += other.hairpinned;
        self.errors += other.errors;
        self.pieces += other.pieces;
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

struct Simulation {
    random: Random,
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
        let world = World::new(&mut random, policies.clone(), two, static_rules, workers);
        let now_s = world.network.now.s();
        let references = policies.into_iter().map(|policy| Reference::new(policy, workers, now_s)).collect();
        Self { random, world, references, two, static_rules, summary: Summary::default(), tells: false }
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
            170..176 => self.garbage(),
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

    fn host(&mut self) -> u32 {
        HOSTS + self.random.below(10) as u32
    }

    fn inside(&mut self, proto: Proto) -> Endpoint {
        let port = 1_000 + self.random.below(30) as u16;
        Endpoint { ip: self.host(), port: if proto == Proto::Other { 0 } else { port } }
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
        let all = [flag::SYN, flag::SYN, flag::SYN | flag::ACK, flag::ACK, flag::FIN | flag::ACK, flag::RST];
        all[self.random.below(all.len())]
    }

    /// A session that surely lives, and its instance.
    fn living(
        &mut self,
        is: impl Fn(&(Proto, Endpoint, Endpoint, Endpoint)) -> bool,
    ) -> Option<(usize, (Proto, Endpoint, Endpoint, Endpoint))> {
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
        let (inside, remote, flags) = (self.inside(proto), self.remote(proto), self.flags());
        self.send_out(side, (proto, inside, remote), flags)
    }

    fn send_out(&mut self, side: usize, flow: Flow, flags: u8) -> Result<(), String> {
        let (proto, inside, remote) = flow;
        let frame = packet(proto, inside, remote, flags, INSIDE[side]);
        let (passed, drops) = self.send(INSIDE[side], &frame)?;
        let shown = match (passed, drops.as_slice()) {
            (Some(sent), []) => match endpoint_of(&sent.frame).0 {
                source if source.ip == inside.ip => Shown::Untouched,
                source => Shown::Translated(source),
            },
            // Untouched, in a routing instance that does not lead there.
            (None, [Reason::NoRoute]) if self.two => Shown::Untouched,
            (None, [reason]) => Shown::Dropped(*reason),
            (passed, drops) => return Err(format!("two fates or none: {passed:?} and {drops:?}")),
        };
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
        let frame = packet(proto, remote, outside, flags, OUTSIDE);
        let (passed, drops) = self.send(OUTSIDE, &frame)?;
        let shown = match (passed, drops.as_slice()) {
            (Some(sent), []) if sent.port.0 != INSIDE[side] => {
                return Err(format!("{outside} of side {side} left by port {}", sent.port.0));
            }
            (Some(sent), []) => Shown::Translated(endpoint_of(&sent.frame).1),
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
        let caller = self.inside(proto);
        let frame = packet(proto, caller, outside, 0, INSIDE[from]);
        let before = self.world.sessions();
        let (passed, drops) = self.send(INSIDE[from], &frame)?;
        self.tell(&format!("side {from} calls {to}: {caller} > {outside} {passed:?} {drops:?}"));
        match (passed, drops.as_slice()) {
            (Some(sent), []) => {
                let (src, dst) = endpoint_of(&sent.frame);
                if dst != callee || sent.port.0 != INSIDE[to] {
                    return Err(format!("a call to {outside} reached {dst}, not {callee}"));
                }
                self.summary.hairpinned += 1;
                self.references[from].went_out(proto, caller, outside, 0, Shown::Translated(src))?;
                self.references[to].came_in(proto, src, outside, 0, Shown::Translated(dst))
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

    /// Octets that are no packet: dropped and counted, whatever they are.
    fn garbage(&mut self) -> Result<(), String> {
        let port = [INSIDE[0], OUTSIDE][self.random.below(2)];
        let mut frame: Vec<u8> = (0..self.random.below(120)).map(|_| self.random.bits() as u8).collect();
        if frame.len() >= 14 && !self.random.one_in(3) {
            frame[..6].copy_from_slice(&world::port_mac(port).0);
            frame[6..12].copy_from_slice(&[2, 9, 9, 9, 9, 9]);
            frame[12..14].copy_from_slice(&[8, 0]);
        }
        if frame.len() >= 34 && self.random.one_in(2) {
            // A header that is right but for its checksum.
            frame[14] = 0x45;
            let total = (frame.len() - 14) as u16;
            frame[16..18].copy_from_slice(&total.to_be_bytes());
        }
        let (sent, drops) = self.world.send(0, port, &frame);
        if sent.is_empty() && drops.len() == 1 { Ok(()) } else { Err(format!("garbage: {sent:?} {drops:?}")) }
    }

    /// Management deletes sessions by name, most of which are there (RFC 6888 REQ-10).
    fn delete(&mut self) -> Result<(), String> {
        let (side, host) = (self.side(), self.host());
        let mut flows = self.references[side].flows_of(host);
        flows.truncate(1 + self.random.below(6));
        flows.push((Proto::Udp, Endpoint { ip: host, port: 999 }, Endpoint { ip: REMOTES, port: 999 }));
        let Some(instance) = self.world.number_of(&self.references[side].policy().name) else {
            return Ok(());
        };
        let keys: Vec<SessionKey> = flows
            .iter()
            .map(|(proto, inside, remote)| SessionKey {
                instance,
                proto: *proto,
                inside: (*inside).into(),
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
        let (side, host) = (self.side(), self.host());
        let instance = self.world.number_of(&self.references[side].policy().name);
        let inside = Some(carrack_base::Prefix4::of(host, 32).into());
        let rows = self.world.network.clear(Filter { instance, inside, ..Filter::default() });
        self.tell(&format!("side {side} clear {host:x}: {}", rows.len()));
        let flows = self.references[side].flows_of(host);
        if let Some(row) = rows
            .iter()
            .find(|r| !r.inside.v4().is_some_and(|inside| flows.contains(&(r.proto, inside, r.remote))))
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
        self.world.reload(policies);
        self.summary.reloads += 1;
        self.summary.survivors += self.references.iter().map(|r| r.living().len() as u64).sum::<u64>();
        self.world.check(&self.references)
    }

    /// After all timeouts nothing is used.
    fn end(&mut self) -> Result<(), String> {
        let mut policies: Vec<Instance> = self.references.iter().map(|r| r.policy().clone()).collect();
        // A forward rule's mapping would stay.
        policies.iter_mut().for_each(|policy| policy.statics.clear());
        self.world.reload(policies);
        self.world.wait(1_200);
        self.world.assert_empty()
    }
}

/// Is it an address of any instance's pool or rules?
fn is_ours(ip: u32) -> bool {
    ip & 0xffff_ff00 == pool_of(0)
}

fn packet(proto: Proto, src: Endpoint, dst: Endpoint, flags: u8, port: u16) -> Vec<u8> {
    let builder = PacketBuilder::new()
        .ethernet(mac_of(src.ip), world::port_mac(port))
        .ipv4(src.ip, dst.ip)
        .payload(b"some words to carry");
    match proto {
        Proto::Tcp => builder.tcp(src.port, dst.port, flags),
        Proto::Udp => builder.udp(src.port, dst.port),
        Proto::Icmp if port != OUTSIDE => builder.echo_request(src.port, 1),
        Proto::Icmp if flags == 0 => builder.echo_request(dst.port, 1),
        Proto::Icmp => builder.echo_reply(dst.port, 1),
        Proto::Other => builder.protocol(GRE),
    }
    .build()
}
