//! `carrack bench forward`: fill N sessions, then forward packets of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use carrack_alg::Protocol;
use carrack_base::counters::Accounts;
use carrack_base::{BURST_PACKETS_MAX, Now, PortId, REASONS, VrfId, WorkerId};
use carrack_frame::{Frame, FramePool, MemPool};
use carrack_nat::{Directory, Inside, WorkerGroup};
use carrack_pipeline::{Plan, Worker};
use carrack_tables::{cycles, prefetch};
use carrack_wire::Ipv6View;
use carrack_wire::checksum::{pseudo_v4, pseudo_v6};
use carrack_wire::ipv4::Ipv4View;

use crate::crew::tell_of_processors;
use crate::generator::{
    Chooser, Order, PORTS, REMOTES, SESSIONS_PER_SUBSCRIBER, SUBSCRIBER_FIRST, Session, Translation, Writer,
    session,
};
use crate::generator_cost::GeneratorCost;
use crate::generator6::{remote6, subscriber6};
use crate::memory::{self, Footprint};
use crate::report::ForwardReport;
use crate::world::{self, FarEnds, INSIDE, OUTSIDE};

/// One translated packet in so many is verified bit by bit.
const VERIFY_EVERY: u64 = 4_096;
/// Share of the time that the generator alone is measured.
const GENERATOR_SHARE: f64 = 0.25;
/// Share of the time that is not measured, beforehand.
const WARM_UP_SHARE: f64 = 0.1;

/// What is measured.
#[derive(Debug, Clone)]
pub struct ForwardSpec {
    /// What is translated.
    pub translation: Translation,
    /// Sessions, all workers.
    pub sessions: u32,
    /// Frame bytes on the wire, check sequence included.
    pub frame_bytes: u32,
    /// Workers.
    pub workers: u8,
    /// Order.
    pub order: Order,
    /// Which way.
    pub direction: Way,
    /// Seconds.
    pub seconds: f64,
    /// Packets to measure instead of seconds, each worker: the same work in every run.
    pub packets: Option<u64>,
    /// Every application gateway is switched on; none of the packets is of a control connection.
    pub gateways: bool,
}

/// When a run is over.
#[derive(Debug, Clone, Copy)]
enum Until {
    Elapsed(Duration),
    Packets(u64),
}

impl ForwardSpec {
    /// This share of what is to be measured.
    fn until(&self, share: f64) -> Until {
        match self.packets {
            Some(packets) => Until::Packets((packets as f64 * share) as u64),
            None => Until::Elapsed(Duration::from_secs_f64(self.seconds * share)),
        }
    }
}

/// Which way packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// From subscribers.
    Out,
    /// To subscribers.
    In,
    /// Bursts in turn.
    Both,
}

/// What one worker measured.
struct Measured {
    offered: u64,
    accounts: Accounts,
    balance_ok: bool,
    seconds: f64,
    cycles: u64,
    generator: GeneratorCost,
    verified: u64,
    sessions: u64,
    memory: Footprint,
    pages: &'static str,
}

/// Why a measurement says nothing.
#[derive(Debug)]
pub struct BenchError(pub String);

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One worker, its share of the sessions and its generator.
struct Bench {
    worker: Worker,
    far: FarEnds,
    pool: MemPool,
    subscribers: Vec<u32>,
    sessions: u32,
    /// Outside endpoint by mapping number (session number ÷ REMOTES).
    outside: Vec<(u32, u16)>,
    writer: Writer,
    translation: Translation,
    /// Frames that left, for the next burst.
    spare: Vec<Frame>,
    start: Instant,
    verified: u64,
    seen: u64,
    wrong: Option<String>,
}

impl Bench {
    fn new(
        spec: &ForwardSpec,
        id: u8,
        plan: Arc<Plan>,
        group: Arc<WorkerGroup>,
        share: Vec<u32>,
        sessions: u32,
    ) -> Result<Self, BenchError> {
        let start = Instant::now();
        let sizes = world::sizes_for(spec.translation, sessions);
        let (worker, far) = world::worker_with(id, group, plan, sizes, Now::from_s(1))
            .map_err(|error| BenchError(format!("no memory for {sessions} sessions: {error}")))?;
        let bytes = (spec.frame_bytes as usize).saturating_sub(4);
        Ok(Self {
            worker,
            far,
            pool: MemPool::new(1_024, (bytes + 64).next_multiple_of(64) as u16, 128),
            subscribers: share,
            sessions,
            outside: vec![(0, 0); (sessions.div_ceil(REMOTES)) as usize],
            writer: Writer::of(spec.translation, bytes),
            translation: spec.translation,
            spare: Vec::with_capacity(BURST_PACKETS_MAX),
            start,
            verified: 0,
            seen: 0,
            wrong: None,
        })
    }

    fn now(&self) -> Now {
        Now { ns: 1_000_000_000 + self.start.elapsed().as_nanos() as u64 }
    }

    /// One burst of the sessions that `pick` names, through the router when `route` says so. Without a table of outside
    /// endpoints every host has its own.
    #[inline]
    fn burst<const SIX: bool, const TABLE: bool>(
        &mut self,
        way: Way,
        route: bool,
        packets: usize,
        mut pick: impl FnMut() -> u32,
    ) -> usize {
        let mut numbers = [0; BURST_PACKETS_MAX];
        let numbers = numbers.get_mut(..packets).unwrap_or(&mut []);
        numbers.iter_mut().for_each(|number| *number = pick());
        let bytes = self.writer.bytes();
        let Self { worker, pool, writer, subscribers, outside, spare, .. } = self;
        // The generator's own tables, small as they are, shall not be what is measured.
        for number in numbers.iter() {
            subscribers.get((*number / SESSIONS_PER_SUBSCRIBER) as usize).inspect(|line| prefetch(*line));
            if TABLE && way == Way::In {
                outside.get((*number / REMOTES) as usize).inspect(|line| prefetch(*line));
            }
        }
        let rx = worker.rx_buffer();
        // What left is written anew and comes in again, as long as it was; the pool makes up for what did not leave.
        for frame in spare.iter_mut().filter(|frame| SIX && frame.len() != bytes) {
            if frame.len() > bytes {
                frame.trim_front(frame.len() - bytes);
            } else {
                let _ = frame.prepend(bytes - frame.len());
            }
        }
        if spare.len() == numbers.len() && spare.iter().all(|frame| frame.len() == bytes) {
            std::mem::swap(rx, spare);
        } else {
            pool.free_all(spare);
            pool.alloc_burst(rx, numbers.len(), bytes as u16);
        }
        for (frame, number) in rx.iter_mut().zip(numbers.iter()) {
            let session = session(subscribers, *number);
            match way {
                Way::In => {
                    let endpoint = if TABLE {
                        outside.get((*number / REMOTES) as usize).copied().unwrap_or_default()
                    } else {
                        (session.inside, session.port)
                    };
                    writer.write_in(&session, endpoint, frame.bytes_mut());
                }
                Way::Out | Way::Both if SIX => writer.write_out6(&session, frame.bytes_mut()),
                Way::Out | Way::Both => writer.write_out4(&session, frame.bytes_mut()),
            }
        }
        let offered = rx.len();
        if !route {
            std::mem::swap(rx, spare);
            return offered;
        }
        let (from, to) = if way == Way::In { (OUTSIDE, INSIDE) } else { (INSIDE, OUTSIDE) };
        let now = self.now();
        self.worker.process(now, from, &mut self.pool);
        self.worker.background(now, &mut self.pool);
        self.collect(to, way, numbers);
        offered
    }

    /// The same for a stateless translator; apart, so that the others have the registers for themselves.
    #[inline(never)]
    fn burst_stateless(&mut self, way: Way, route: bool, pick: impl FnMut() -> u32) -> usize {
        self.burst::<true, false>(way, route, BURST_PACKETS_MAX, pick)
    }

    /// Takes what left; verifies one packet now and then.
    #[inline]
    fn collect(&mut self, to: PortId, way: Way, numbers: &[u32]) {
        let Self { worker, pool, spare, .. } = self;
        let Some(queue) = worker.tx(to) else { return };
        let before = self.seen / VERIFY_EVERY;
        self.seen += queue.len() as u64;
        if self.seen / VERIFY_EVERY != before && queue.len() == numbers.len() {
            let place = (self.seen % numbers.len() as u64) as usize;
            if let (Some(frame), Some(number)) = (queue.get(place), numbers.get(place)) {
                let session = session(&self.subscribers, *number);
                let outside = self.outside.get((*number / REMOTES) as usize).copied().unwrap_or_default();
                match verify(self.translation, frame.bytes(), way, &session, outside) {
                    Ok(()) => self.verified += 1,
                    Err(error) => self.wrong = Some(error),
                }
            }
        }
        if spare.is_empty() && queue.len() <= spare.capacity() {
            spare.append(queue);
        } else {
            pool.free_all(queue);
        }
        worker.done(pool);
    }

    /// Makes every session by its first packet and learns the outside endpoints.
    fn fill(&mut self) -> Result<(), BenchError> {
        if self.translation == Translation::Siit {
            return self.fill_stateless();
        }
        let mut next = 0;
        while next < self.sessions {
            let packets = (self.sessions - next).min(BURST_PACKETS_MAX as u32);
            let now = self.now();
            let bytes = self.writer.bytes();
            for number in next..next + packets {
                let Some(mut frame) = self.pool.alloc() else { break };
                let session = session(&self.subscribers, number);
                if let Some(room) = frame.append(bytes) {
                    self.writer.write_out(&session, room);
                }
                self.worker.rx_buffer().push(frame);
            }
            self.worker.process(now, INSIDE, &mut self.pool);
            self.worker.background(now, &mut self.pool);
            self.far.drain();
            let Some(queue) = self.worker.tx(OUTSIDE) else { break };
            for (frame, number) in queue.iter().zip(next..) {
                if let (Some((ip, port)), Some(place)) =
                    (source_of(frame.bytes()), self.outside.get_mut((number / REMOTES) as usize))
                {
                    *place = (ip, port);
                }
            }
            self.pool.free_all(queue);
            self.worker.done(&mut self.pool);
            next += packets;
        }
        let (made, drops) = (self.worker.nat().session_count(), drops_of(self.worker.accounts()));
        if made == self.sessions as usize {
            return Ok(());
        }
        Err(BenchError(format!("only {made} of {} sessions could be made; drops: {drops:?}", self.sessions)))
    }

    /// Nothing is to be made: every host has its address.
    fn fill_stateless(&mut self) -> Result<(), BenchError> {
        for (number, place) in (0..).step_by(REMOTES as usize).zip(&mut self.outside) {
            let Session { inside, port, .. } = session(&self.subscribers, number);
            *place = (inside, port);
        }
        Ok(())
    }

    /// Measures; the generator alone first, then with the router.
    fn measure(&mut self, spec: &ForwardSpec, barrier: &Barrier) -> Measured {
        let seed = 0xbe7c_0000 + u64::from(self.worker.nat().worker().0);
        let mut chooser = Chooser::new(spec.order, self.sessions, seed);
        let (generated, generator_cycles, _) =
            self.run(spec, false, spec.until(GENERATOR_SHARE), &mut chooser);
        // Caches and predictors get warm with what is measured.
        self.run(spec, true, spec.until(WARM_UP_SHARE), &mut chooser);
        let before = self.worker.accounts().clone();
        self.verified = 0;
        barrier.wait();
        let (offered, cycles, seconds) = self.run(spec, true, spec.until(1.0), &mut chooser);
        barrier.wait();
        let accounts = difference(self.worker.accounts(), &before);
        let memory = self.worker.nat().memory();
        Measured {
            offered,
            balance_ok: self.worker.accounts().balance() == 0 && accounts.rx == offered,
            accounts,
            seconds,
            cycles,
            generator: self.generator_cost(spec.direction, generator_cycles as f64 / generated.max(1) as f64),
            verified: self.verified,
            sessions: self.worker.nat().session_count() as u64,
            memory: Footprint::of(self.worker.nat(), self.worker.nat().session_count() as u64),
            pages: memory.first().map_or("?", |row| row.pages),
        }
    }

    /// The generator's cycles with the tables that it looks into: who the subscriber is, and for what comes in, where the
    /// mapping is reached.
    fn generator_cost(&self, direction: Way, cycles_per_packet: f64) -> GeneratorCost {
        let subscribers = size_of_val(self.subscribers.as_slice());
        let outside = size_of_val(self.outside.as_slice());
        // A stateless translator's hosts have the same address outside.
        let (in_bytes, in_lines) =
            if self.translation == Translation::Siit { (0, 0.0) } else { (outside, 1.0) };
        let (table_bytes, lines_per_packet) = match direction {
            Way::Out => (subscribers, 1.0),
            Way::In => (subscribers + in_bytes, 1.0 + in_lines),
            Way::Both => (subscribers + in_bytes, 1.0 + in_lines / 2.0),
        };
        GeneratorCost { cycles_per_packet, table_bytes: table_bytes as u64, lines_per_packet }
    }

    /// Runs for some time or packets: (packets, cycles, seconds).
    fn run(
        &mut self,
        spec: &ForwardSpec,
        route: bool,
        until: Until,
        chooser: &mut Chooser,
    ) -> (u64, u64, f64) {
        let (start, start_cycles) = (Instant::now(), cycles());
        let (mut packets, mut inwards) = (0, spec.direction == Way::In);
        loop {
            for _ in 0..BURSTS_A_TURN {
                let way = if inwards { Way::In } else { Way::Out };
                let pick = || chooser.pick();
                packets += match self.translation {
                    Translation::Nat44 => self.burst::<false, true>(way, route, BURST_PACKETS_MAX, pick),
                    Translation::Nat64 => self.burst::<true, true>(way, route, BURST_PACKETS_MAX, pick),
                    Translation::Siit => self.burst_stateless(way, route, pick),
                } as u64;
                inwards = if spec.direction == Way::Both { !inwards } else { inwards };
            }
            self.far.drain();
            let is_over = match until {
                Until::Elapsed(span) => start.elapsed() >= span,
                Until::Packets(enough) => packets >= enough,
            };
            if is_over {
                return (packets, cycles().wrapping_sub(start_cycles), start.elapsed().as_secs_f64());
            }
        }
    }
}

/// Bursts between two looks at the clock.
const BURSTS_A_TURN: usize = 256;

/// The secret of every bench's worker.
pub const SEED: [u64; 4] = [0x0123_4567, 0x89ab_cdef, 0xfedc_ba98, 0x7654_3210];

fn source_of(frame: &[u8]) -> Option<(u32, u16)> {
    let packet = Ipv4View::parse(frame.get(14..)?).ok()?;
    let port = packet.payload().first_chunk::<2>()?;
    Some((packet.src(), u16::from_be_bytes(*port)))
}

/// Is this translated packet what it must be, to the last bit of its checksums?
pub fn verify(
    translation: Translation,
    frame: &[u8],
    way: Way,
    session: &Session,
    outside: (u32, u16),
) -> Result<(), String> {
    match (translation, way) {
        (Translation::Nat64 | Translation::Siit, Way::In) => verify6(frame, session),
        _ => verify4(frame, way, session, outside),
    }
}

fn verify4(frame: &[u8], way: Way, session: &Session, outside: (u32, u16)) -> Result<(), String> {
    let bytes = frame.get(14..).unwrap_or(&[]);
    let packet =
        Ipv4View::parse(bytes).map_err(|error| format!("translated packet does not parse: {error}"))?;
    let udp = packet.payload();
    let word = |at: usize| udp.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let remote = (session.remote, session.remote_port);
    let (from, to) = match way {
        Way::In => (remote, (session.inside, session.port)),
        Way::Out | Way::Both => (outside, remote),
    };
    let got = ((packet.src(), word(0)), (packet.dst(), word(2)));
    let sum = pseudo_v4(packet.src(), packet.dst(), 17, udp.len() as u16).with_bytes(udp).checksum();
    if got != (from, to) || packet.ttl() != 63 || !packet.checksum_ok() || sum != 0 {
        return Err(format!(
            "translated packet is wrong: expected {from:?} to {to:?}, got {got:?}, TTL {}, UDP sum {sum:#06x}",
            packet.ttl()
        ));
    }
    Ok(())
}

/// The same of a packet that has become one of IPv6.
fn verify6(frame: &[u8], session: &Session) -> Result<(), String> {
    let packet = Ipv6View::parse(frame.get(14..).unwrap_or(&[]))
        .map_err(|error| format!("translated packet does not parse: {error}"))?;
    let udp = packet.payload();
    let word = |at: usize| udp.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
    let got = (packet.src(), word(0), packet.dst(), word(2), packet.hop_limit());
    let wanted = (remote6(session), session.remote_port, subscriber6(session), session.port, 63);
    let sum = pseudo_v6(packet.src(), packet.dst(), 17, udp.len() as u32).with_bytes(udp).checksum();
    if got != wanted || sum != 0 {
        return Err(format!(
            "translated packet is wrong: expected {wanted:?}, got {got:?}, UDP sum {sum:#06x}"
        ));
    }
    Ok(())
}

/// Dropped packets by reason, those that occurred.
pub fn drops_of(accounts: &Accounts) -> BTreeMap<&'static str, u64> {
    REASONS.iter().zip(&accounts.drops).filter(|(_, n)| **n > 0).map(|(row, n)| (row.name, *n)).collect()
}

/// What was counted between two moments.
pub fn difference(after: &Accounts, before: &Accounts) -> Accounts {
    let mut change = after.clone();
    change.rx -= before.rx;
    change.forwarded -= before.forwarded;
    change.rx_bytes -= before.rx_bytes;
    change.forwarded_bytes -= before.forwarded_bytes;
    for (now, then) in change.drops.iter_mut().zip(&before.drops) {
        *now -= then;
    }
    change
}

/// Subscribers by the worker that owns them, enough for each worker's share.
fn shares(spec: &ForwardSpec, plan: &Plan, group: &WorkerGroup, per_worker: u32) -> Vec<Vec<u32>> {
    let directory = Directory::new(&plan.snapshot.nat, group);
    let mut shares: Vec<Vec<u32>> =
        (0..group.workers()).map(|_| Vec::with_capacity(per_worker as usize)).collect();
    for address in SUBSCRIBER_FIRST.. {
        let subscriber = match spec.translation {
            Translation::Nat44 => Inside::V4(address),
            Translation::Nat64 | Translation::Siit => {
                Inside::V6(subscriber6(&Session { inside: address, port: 0, remote: 0, remote_port: 0 }))
            }
        };
        let WorkerId(owner) = directory.owner_of(VrfId(0), subscriber);
        if let Some(share) = shares.get_mut(usize::from(owner)).filter(|s| s.len() < per_worker as usize) {
            share.push(address);
        }
        if shares.iter().all(|share| share.len() == per_worker as usize) {
            break;
        }
    }
    shares
}

/// Runs the measurement.
pub fn forward(spec: &ForwardSpec) -> Result<ForwardReport, BenchError> {
    let per_worker = (spec.sessions / u32::from(spec.workers)).max(1);
    let subscribers = per_worker.div_ceil(SESSIONS_PER_SUBSCRIBER);
    let gateways = if spec.gateways { Protocol::ALL.to_vec() } else { Vec::new() };
    let plan = world::plan(spec.translation, subscribers * u32::from(spec.workers), spec.workers, gateways);
    let tables = world::sizes_for(spec.translation, per_worker).nat;
    tell_of_processors(spec.workers);
    let generator_bytes = 4 * u64::from(subscribers) + 8 * u64::from(per_worker.div_ceil(REMOTES));
    let beside = (generator_bytes, spec.sessions);
    memory::check_workers(spec.workers, plan.snapshot.nat.instances.first(), tables, beside)?;
    let group = WorkerGroup::new(spec.workers, SEED);
    let shares = shares(spec, &plan, &group, subscribers);
    let barrier = Barrier::new(usize::from(spec.workers));
    let measured: Vec<Result<Measured, BenchError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0u8..)
            .zip(shares)
            .map(|(id, share)| {
                let (plan, group, barrier) = (plan.clone(), group.clone(), &barrier);
                scope.spawn(move || {
                    pin(id);
                    let mut bench = Bench::new(spec, id, plan, group, share, per_worker);
                    let filled = bench.as_mut().map_err(|e| BenchError(e.0.clone())).and_then(Bench::fill);
                    match (bench, filled) {
                        (Ok(mut bench), Ok(())) => {
                            let measured = bench.measure(spec, barrier);
                            bench.wrong.map_or(Ok(measured), |wrong| Err(BenchError(wrong)))
                        }
                        (Err(error), _) | (_, Err(error)) => {
                            barrier.wait();
                            barrier.wait();
                            Err(error)
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread.join().unwrap_or_else(|_| Err(BenchError("a worker thread panicked".into())))
            })
            .collect()
    });
    let measured = measured.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(summary(spec, &measured))
}

/// Each worker on a processor of its own where there are enough.
pub fn pin(worker: u8) {
    pin_to(usize::from(worker) % processors());
}

/// Processors that this thread may run on.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pins the calling thread to one processor, of those the machine has.
pub fn pin_to(processor: usize) {
    let mut set = nix::sched::CpuSet::new();
    if set.set(processor).is_ok() {
        // Unpinned it still measures, only less steadily.
        let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
    }
}

fn summary(spec: &ForwardSpec, measured: &[Measured]) -> ForwardReport {
    let total = |of: fn(&Measured) -> u64| measured.iter().map(of).sum::<u64>();
    let mut accounts = Accounts::default();
    measured.iter().for_each(|m| accounts.add(&m.accounts));
    let seconds = measured.iter().map(|m| m.seconds).fold(0.0, f64::max);
    let offered = total(|m| m.offered);
    let mpps = accounts.forwarded as f64 / seconds / 1e6;
    let sessions = match spec.translation {
        // Flows: there are no sessions.
        Translation::Siit => u64::from(spec.sessions),
        Translation::Nat44 | Translation::Nat64 => total(|m| m.sessions),
    };
    ForwardReport {
        scenario: "forward",
        translation: spec.translation.name(),
        sessions,
        frame_bytes: spec.frame_bytes,
        workers: spec.workers,
        order: if spec.order == Order::Random { "random" } else { "sequential" },
        direction: match spec.direction {
            Way::Out => "out",
            Way::In => "in",
            Way::Both => "both",
        },
        seconds,
        packets_offered: offered,
        packets_forwarded: accounts.forwarded,
        packets_dropped: accounts.dropped(),
        drops: drops_of(&accounts),
        mpps,
        mpps_per_worker: mpps / f64::from(spec.workers),
        cycles_per_packet: total(|m| m.cycles) as f64 / offered.max(1) as f64,
        generator: GeneratorCost::together(&measured.iter().map(|m| m.generator).collect::<Vec<_>>()),
        gbps_l2: mpps * f64::from(spec.frame_bytes) * 8.0 / 1e3,
        memory: Footprint::together(measured.iter().map(|m| m.memory), sessions),
        pages: measured.first().map_or("?", |m| m.pages),
        packets_verified: total(|m| m.verified),
        conservation_ok: measured.iter().all(|m| m.balance_ok)
            && offered == accounts.forwarded + accounts.dropped(),
    }
}

/// Sessions of one mapping in this scenario: how the per-session figure comes about.
pub const fn sessions_per_mapping() -> u32 {
    SESSIONS_PER_SUBSCRIBER / PORTS
}
