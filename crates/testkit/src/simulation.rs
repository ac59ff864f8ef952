//! Random scenarios over whole workers, the reference NAT beside them. A seed decides everything.

mod world;

use carrack_base::{Proto, Reason};
use carrack_nat::policy::{Assignment, Filtering, Instance};
use carrack_nat::row::Endpoint;
use carrack_wire::PacketBuilder;
use carrack_wire::tcp::flag;

use crate::network::{Sent, mac_of};
use crate::random::Random;
use crate::reference::{Reference, Shown};
use world::{INSIDE, OUTSIDE, World, endpoint_of};

/// Steps of one scenario.
pub const STEPS: usize = 400;

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
    let mut it = Simulation::new(seed, workers);
    it.tells = tells;
    for step in 0..STEPS {
        if let Err(error) = it.step() {
            panic!(
                "step {step}: {error}\nto see it again: CARRACK_SEED={seed} cargo test -p carrack-testkit --test simulation"
            );
        }
        it.world.network.assert_balanced();
    }
    if let Err(error) = it.end() {
        panic!(
            "at the end: {error}\nto see it again: CARRACK_SEED={seed} cargo test -p carrack-testkit --test simulation"
        );
    }
    it.summary
}

struct Simulation {
    random: Random,
    world: World,
    policy: Instance,
    reference: Reference,
    summary: Summary,
    tells: bool,
}

impl Simulation {
    fn new(seed: u64, workers: Option<u8>) -> Self {
        let mut random = Random::new(seed);
        let mut policy = world::instance();
        change_behaviour(&mut random, &mut policy);
        policy.assignment = match random.below(3) {
            0 => Assignment::Arbitrary,
            1 => Assignment::Blocks { size: 16, per_subscriber_max: 4, idle_release_s: 100 },
            _ => Assignment::Deterministic { ports_per_subscriber: 64 },
        };
        let chosen = 1 + random.below(3) as u8;
        let workers = workers.unwrap_or(chosen);
        let world = World::new(&mut random, policy.clone(), workers);
        let reference = Reference::new(policy.clone());
        Self { random, world, policy, reference, summary: Summary::default(), tells: false }
    }

    fn step(&mut self) -> Result<(), String> {
        self.reference.at(self.world.network.now.s());
        match self.random.below(100) {
            0..40 => self.outbound(),
            40..65 => self.answer(),
            65..73 => self.stranger(),
            73..78 => self.hairpin(),
            78..83 => self.error_from_outside(),
            83..86 => self.in_pieces(),
            86..90 => self.garbage(),
            90..98 => self.pass_time(),
            _ => self.reload(),
        }
    }

    fn tell(&self, what: &str) {
        if self.tells {
            println!("{} s: {what}", self.world.network.now.s());
        }
    }

    fn host(&mut self) -> u32 {
        world::HOSTS + self.random.below(10) as u32
    }

    fn proto(&mut self) -> Proto {
        [Proto::Tcp, Proto::Udp, Proto::Udp, Proto::Icmp][self.random.below(4)]
    }

    fn remote(&mut self, proto: Proto) -> Endpoint {
        let port = if proto == Proto::Icmp { 0 } else { 50 + self.random.below(3) as u16 };
        Endpoint { ip: world::REMOTES + self.random.below(4) as u32, port }
    }

    fn flags(&mut self) -> u8 {
        let all = [flag::SYN, flag::SYN, flag::SYN | flag::ACK, flag::ACK, flag::FIN | flag::ACK, flag::RST];
        all[self.random.below(all.len())]
    }

    fn packet(&self, proto: Proto, src: Endpoint, dst: Endpoint, flags: u8, port: u16) -> Vec<u8> {
        let builder = PacketBuilder::new()
            .ethernet(mac_of(src.ip), world::port_mac(port))
            .ipv4(src.ip, dst.ip)
            .payload(b"some words to carry");
        match proto {
            Proto::Tcp => builder.tcp(src.port, dst.port, flags),
            Proto::Udp => builder.udp(src.port, dst.port),
            Proto::Icmp if port == INSIDE => builder.echo_request(src.port, 1),
            Proto::Icmp if flags == 0 => builder.echo_request(dst.port, 1),
            Proto::Icmp | Proto::Other => builder.echo_reply(dst.port, 1),
        }
        .build()
    }

    /// One packet in; what the workers made of it.
    fn send(&mut self, port: u16, frame: &[u8]) -> Result<(Option<Sent>, Vec<Reason>), String> {
        let worker = self.random.below(self.world.network.workers.len());
        let (sent, drops) = self.world.send(worker, port, frame);
        // ICMP errors that the router makes about drops are its own business here.
        let mut passed: Vec<Sent> = sent.into_iter().filter(|s| !world::is_own_error(s)).collect();
        if passed.len() > 1 {
            return Err(format!("{} packets left for one", passed.len()));
        }
        for reason in &drops {
            self.summary.shortages += u64::from(crate::reference::is_shortage(*reason));
            self.summary.refused += u64::from(matches!(reason, Reason::NatFiltered | Reason::NatNoMapping));
        }
        self.summary.translated += u64::from(!passed.is_empty());
        Ok((passed.pop(), drops))
    }

    fn outbound(&mut self) -> Result<(), String> {
        let proto = self.proto();
        let inside = Endpoint { ip: self.host(), port: 1_000 + self.random.below(30) as u16 };
        let (remote, flags) = (self.remote(proto), self.flags());
        self.send_out(proto, inside, remote, flags)
    }

    fn send_out(
        &mut self,
        proto: Proto,
        inside: Endpoint,
        remote: Endpoint,
        flags: u8,
    ) -> Result<(), String> {
        let frame = self.packet(proto, inside, remote, flags, INSIDE);
        let (passed, drops) = self.send(INSIDE, &frame)?;
        let shown = shown(passed.as_ref(), &drops, true)?;
        self.tell(&format!("out {proto} {inside} > {remote} {flags:02x} {shown:?}"));
        let told = self.reference.went_out(proto, inside, remote, flags, shown);
        told.map_err(|error| format!("{proto} {inside} to {remote}, flags {flags:02x}: {error}; {shown:?}"))
    }

    fn answer(&mut self) -> Result<(), String> {
        // Hairpinned flows have a step of their own: both legs decide there.
        let mut living = self.reference.living();
        living.retain(|(_, _, _, remote)| remote.ip & 0xffff_ff00 != world::POOL);
        let Some((proto, inside, outside, remote)) = self.random.pick(&living).copied() else {
            return self.outbound();
        };
        let flags =
            [flag::ACK, flag::SYN | flag::ACK, flag::FIN | flag::ACK, flag::RST][self.random.below(4)];
        if self.random.one_in(3) {
            return self.send_out(proto, inside, remote, flags);
        }
        self.summary.answered += 1;
        self.send_in(proto, remote, outside, flags)
    }

    fn send_in(
        &mut self,
        proto: Proto,
        remote: Endpoint,
        outside: Endpoint,
        flags: u8,
    ) -> Result<(), String> {
        let frame = self.packet(proto, remote, outside, flags, OUTSIDE);
        let (passed, drops) = self.send(OUTSIDE, &frame)?;
        let shown = shown(passed.as_ref(), &drops, false)?;
        self.tell(&format!("in {proto} {remote} > {outside} {flags:02x} {shown:?}"));
        let told = self.reference.came_in(proto, remote, outside, flags, shown);
        told.map_err(|error| {
            format!("{proto} {remote} into {outside}, flags {flags:02x}: {error}; {shown:?}")
        })
    }

    /// Somebody unknown tries an outside endpoint, mostly one that is mapped.
    fn stranger(&mut self) -> Result<(), String> {
        let living = self.reference.living();
        let (proto, outside) = match self.random.pick(&living).copied() {
            Some((proto, _, outside, _)) if !self.random.one_in(3) => (proto, outside),
            _ => (self.proto(), Endpoint { ip: world::POOL, port: 2_000 + self.random.below(300) as u16 }),
        };
        let remote = self.remote(proto);
        // For ICMP, flags of 0 make it a query, which may open; anything else an answer, which may not.
        let flags = if proto == Proto::Icmp { 0 } else { self.flags() };
        self.send_in(proto, remote, outside, flags)
    }

    /// RFC 4787 REQ-9: one subscriber calls another by the outside endpoint.
    fn hairpin(&mut self) -> Result<(), String> {
        let living: Vec<_> = self.reference.living().into_iter().filter(|l| l.0 == Proto::Udp).collect();
        let Some((proto, callee, outside, _)) = self.random.pick(&living).copied() else { return Ok(()) };
        let caller = Endpoint { ip: self.host(), port: 1_000 + self.random.below(30) as u16 };
        let frame = self.packet(proto, caller, outside, 0, INSIDE);
        let before = self.world.sessions();
        let (passed, drops) = self.send(INSIDE, &frame)?;
        self.tell(&format!("hairpin {caller} > {outside} {drops:?}"));
        match (passed, drops.as_slice()) {
            (Some(sent), []) => {
                let (src, dst) = endpoint_of(&sent.frame);
                if dst != callee {
                    return Err(format!("a call to {outside} reached {dst}, not {callee}"));
                }
                self.reference.went_out(proto, caller, outside, 0, Shown::Translated(src))?;
                self.reference.came_in(proto, src, outside, 0, Shown::Translated(dst))
            }
            // The caller's own leg failed, or the callee's limit refused it; then the first leg stands.
            (None, [reason]) if crate::reference::is_shortage(*reason) => {
                let went_out =
                    self.world.sessions() > before || self.reference.may_have(proto, caller, outside);
                if went_out {
                    self.reference.out_unseen(proto, caller, outside, 0);
                }
                Ok(())
            }
            (None, [Reason::NatFiltered]) => {
                self.reference.out_unseen(proto, caller, outside, 0);
                Ok(())
            }
            (passed, drops) => Err(format!("a hairpinned call: {passed:?}, {drops:?}")),
        }
    }

    /// RFC 5508 REQ-4: an error about a living session reaches its subscriber and changes nothing.
    fn error_from_outside(&mut self) -> Result<(), String> {
        let living = self.reference.living();
        let Some((proto, inside, outside, remote)) = self.random.pick(&living).copied() else {
            return Ok(());
        };
        if proto == Proto::Icmp {
            return Ok(());
        }
        let about = self.packet(proto, outside, remote, flag::ACK, INSIDE);
        let len = [28, 40, about.len() - 14][self.random.below(3)].min(about.len() - 14);
        let router = world::REMOTES + 99;
        let frame = PacketBuilder::new()
            .ethernet(mac_of(router), world::port_mac(OUTSIDE))
            .ipv4(router, outside.ip)
            .icmp(3, [1, 2, 3, 13][self.random.below(4)], [0; 4])
            .payload(&about[14..14 + len])
            .build();
        let (passed, drops) = self.send(OUTSIDE, &frame)?;
        let to = passed.as_ref().map(|sent| endpoint_of(&sent.frame).1.ip);
        if to == Some(inside.ip) {
            Ok(())
        } else {
            Err(format!("an error about {inside}: {passed:?}, {drops:?}"))
        }
    }

    /// RFC 4787 REQ-14: a datagram in pieces, in any order.
    fn in_pieces(&mut self) -> Result<(), String> {
        let inside = Endpoint { ip: self.host(), port: 1_000 + self.random.below(30) as u16 };
        let remote = self.remote(Proto::Udp);
        let payload = [0x5a; 600];
        let whole = PacketBuilder::new()
            .ipv4(inside.ip, remote.ip)
            .udp(inside.port, remote.port)
            .payload(&payload)
            .build();
        let id = self.random.bits() as u16;
        let piece = |from: usize, to: usize, more: bool| {
            PacketBuilder::new()
                .ethernet(mac_of(inside.ip), world::port_mac(INSIDE))
                .ipv4(inside.ip, remote.ip)
                .protocol(17)
                .identification(id)
                .fragment(from as u16, more)
                .payload(&whole[20 + from..20 + to])
                .build()
        };
        let mut pieces = vec![piece(0, 200, true), piece(200, 400, true), piece(400, 608, false)];
        let turn = self.random.below(3);
        pieces.rotate_left(turn);
        let mut sent = vec![];
        let mut drops = vec![];
        for frame in &pieces {
            // Pieces may come in by different workers.
            let worker = self.random.below(self.world.network.workers.len());
            let (left, dropped) = self.world.send(worker, INSIDE, frame);
            sent.extend(left.into_iter().filter(|s| !world::is_own_error(s)));
            drops.extend(dropped);
        }
        self.tell(&format!("pieces {inside} > {remote} {drops:?}"));
        if drops.is_empty() {
            if sent.len() != 3 {
                return Err(format!("{} of 3 pieces left", sent.len()));
            }
            let first =
                sent.iter().find(|s| s.frame[14 + 6..14 + 8] == [0x20, 0]).ok_or("no first fragment left")?;
            let outside = endpoint_of(&first.frame).0;
            return self.reference.went_out(Proto::Udp, inside, remote, 0, Shown::Translated(outside));
        }
        let shortage = drops.iter().copied().find(|r| crate::reference::is_shortage(*r));
        match shortage {
            Some(reason) => self.reference.went_out(Proto::Udp, inside, remote, 0, Shown::Dropped(reason)),
            None => Err(format!("pieces dropped for {drops:?}")),
        }
    }

    /// Octets that are no packet: dropped and counted, whatever they are.
    fn garbage(&mut self) -> Result<(), String> {
        let port = [INSIDE, OUTSIDE][self.random.below(2)];
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

    fn pass_time(&mut self) -> Result<(), String> {
        let seconds = [1, 2, 7, 20, 65, 130, 320][self.random.below(7)];
        self.tell(&format!("wait {seconds}"));
        self.world.wait(seconds);
        self.reference.at(self.world.network.now.s());
        self.world.check(&self.reference)
    }

    fn reload(&mut self) -> Result<(), String> {
        let before = self.policy.clone();
        change_behaviour(&mut self.random, &mut self.policy);
        self.policy.assignment = before.assignment;
        // Deterministic shares move with the pool; the others only lose what leaves it.
        if matches!(before.assignment, Assignment::Deterministic { .. }) {
            self.policy.pools = before.pools;
        }
        self.tell(&format!("reload {:?}", self.policy));
        self.world.reload(self.policy.clone());
        self.reference.reload(self.policy.clone());
        self.world.check(&self.reference)
    }

    /// After all timeouts nothing is used.
    fn end(&mut self) -> Result<(), String> {
        self.world.wait(1_200);
        self.world.assert_empty()
    }
}

/// Everything that a reload may change: filters, limits, timeouts, pools.
fn change_behaviour(random: &mut Random, policy: &mut Instance) {
    let all =
        [Filtering::EndpointIndependent, Filtering::AddressDependent, Filtering::AddressAndPortDependent];
    policy.filtering = [0; 3].map(|_| all[random.below(3)]);
    policy.limits.ports_max = [0, 0, 12][random.below(3)];
    policy.limits.sessions_max = [0, 0, 20][random.below(3)];
    policy.timeouts.udp_s = [120, 300][random.below(2)];
    policy.pools[0].ranges = world::ranges(random.below(3));
}

/// What one packet's fate says.
fn shown(passed: Option<&Sent>, drops: &[Reason], outward: bool) -> Result<Shown, String> {
    match (passed, drops) {
        (Some(sent), []) => {
            let (src, dst) = endpoint_of(&sent.frame);
            Ok(Shown::Translated(if outward { src } else { dst }))
        }
        (None, [reason]) => Ok(Shown::Dropped(*reason)),
        (None, []) => Ok(Shown::Held),
        (passed, drops) => Err(format!("two fates: {passed:?} and {drops:?}")),
    }
}
