//! `carrack bench setup`: new sessions a second, from empty and with expiry at the same rate.
//!
//! Time is simulated: the clock moves on by the packet, so that sessions expire exactly as fast as they are made,
//! however fast that is, and a run is the same work every time.

use std::collections::BTreeMap;
use std::sync::Barrier;

use carrack_base::BURST_PACKETS_MAX;
use clap::Args;
use serde::Serialize;

use crate::clock::{BurstMeter, BurstTimes, Moment, Tsc};
use crate::crew::Crew;
use crate::forward::{BenchError, difference, pin};
use crate::generator::Translation;
use crate::generator_cost::GeneratorCost;
use crate::layout::{Layout, Walk};
use crate::memory::Footprint;
use crate::options::{number, seconds, stateful};
use crate::progress::Progress;
use crate::rig::{Rig, RigSpec};
use crate::world::{FarEnds, InstanceSpec, Log, Mode};
use carrack_base::text::grouped;

/// Idle time of the sessions, simulated seconds.
const LIFETIME_S: u32 = 2;
/// Hold time of ports and blocks, simulated seconds: longer ones need a larger pool, not more work.
const HOLD_S: u32 = 4;
/// The table is filled once in so many simulated seconds: with expiry it never gets full.
const FILL_S: u64 = 4;
/// Ports of a block.
const BLOCK: u16 = 256;

/// Options of `bench setup`.
#[derive(Debug, Clone, Args)]
pub struct SetupArgs {
    /// What is translated
    #[arg(long, value_parser = stateful(), default_value = "nat44")]
    pub translation: Translation,
    /// How outside ports are given out
    #[arg(long, value_enum, default_value_t = Mode::Pba)]
    pub mode: Mode,
    /// Sessions made from empty, and room in the tables
    #[arg(long, default_value_t = 10_000_000, value_parser = number::<u32>(1_024..=100_000_000), allow_negative_numbers = true)]
    pub sessions: u32,
    /// Seconds to measure with expiry running
    #[arg(long, default_value_t = 10.0, value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Sessions to make with expiry running, instead of seconds: the same work in every run
    #[arg(long, conflicts_with = "seconds", value_parser = number::<u64>(1..=u64::MAX), allow_negative_numbers = true)]
    pub packets: Option<u64>,
    /// Source ports of a subscriber
    #[arg(long, default_value_t = 16, value_parser = number::<u32>(1..=1_024), allow_negative_numbers = true)]
    pub ports: u32,
    /// Remote endpoints of a source port, which are its sessions on one mapping
    #[arg(long, default_value_t = 1, value_parser = number::<u32>(1..=65_536), allow_negative_numbers = true)]
    pub remotes: u32,
    /// What is told to the log: what that takes from the worker. Where the events go is another core's work, here they are
    /// thrown away
    #[arg(long, value_enum, default_value_t = Log::Blocks)]
    pub log: Log,
    /// All sessions of a subscriber in a row, instead of any subscriber's next
    #[arg(long)]
    pub sequential: bool,
    /// Workers, each on a processor of its own with its share of the sessions and a generator of its own
    #[arg(long, default_value_t = 1, value_parser = number::<u8>(1..=16), allow_negative_numbers = true)]
    pub workers: u8,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One phase.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Phase {
    /// Sessions made or ended, or packets.
    pub sessions: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Millions a second, generator included.
    pub m_per_s: f64,
    /// Processor cycles (TSC) a session, generator included.
    pub cycles_per_session: f64,
    /// Share of the time that this thread had the processor, percent: below 95 others disturbed the measurement.
    pub processor_percent: f64,
    /// Millions a second of processor time: what it would have been alone.
    pub m_per_processor_s: f64,
}

impl Phase {
    /// So many sessions since then.
    pub fn since(start: &Moment, sessions: u64, tsc: Tsc) -> Self {
        let (cycles, cpu_s) = (start.cycles(), start.cpu_s());
        let seconds = tsc.s(cycles);
        Self {
            sessions,
            seconds,
            m_per_s: sessions as f64 / seconds.max(1e-9) / 1e6,
            cycles_per_session: cycles as f64 / sessions.max(1) as f64,
            processor_percent: (cpu_s / seconds.max(1e-9) * 100.0).min(100.0),
            m_per_processor_s: sessions as f64 / cpu_s.max(1e-9) / 1e6,
        }
    }

    /// What several workers did at the same time: it took as long as the slowest.
    pub fn together(phases: &[Self]) -> Self {
        let sessions = phases.iter().map(|phase| phase.sessions).sum();
        let seconds = phases.iter().map(|phase| phase.seconds).fold(0.0, f64::max);
        let least = phases.iter().map(|phase| phase.processor_percent).fold(100.0, f64::min);
        Self {
            sessions,
            seconds,
            m_per_s: sessions as f64 / seconds.max(1e-9) / 1e6,
            cycles_per_session: phases.iter().map(|phase| phase.cycles_per_session).sum::<f64>()
                / phases.len().max(1) as f64,
            processor_percent: least,
            m_per_processor_s: phases.iter().map(|phase| phase.m_per_processor_s).sum(),
        }
    }

    /// The rate a second.
    pub fn per_s(&self) -> f64 {
        self.m_per_s * 1e6
    }

    /// What others did to the figure, when it matters.
    pub fn disturbance(&self) -> String {
        if self.processor_percent >= 95.0 {
            return String::new();
        }
        format!(
            ", had the processor {:.0} % of the time: {:.2} M a second of its own",
            self.processor_percent, self.m_per_processor_s
        )
    }
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct SetupReport {
    /// Always `setup`.
    pub scenario: &'static str,
    /// What was translated.
    pub translation: &'static str,
    /// How outside ports were given out.
    pub mode: &'static str,
    /// Room in the tables.
    pub sessions: u32,
    /// Workers; rates are those of all of them, cycles those of one.
    pub workers: u32,
    /// Source ports of a subscriber.
    pub ports_per_subscriber: u32,
    /// Sessions of a mapping.
    pub sessions_per_mapping: u32,
    /// `random` or `sequential`.
    pub order: &'static str,
    /// What the generator takes of each.
    #[serde(flatten)]
    pub generator: GeneratorCost,
    /// What a session takes when the tables are full, with as many of them a mapping as above.
    #[serde(flatten)]
    pub memory: Footprint,
    /// From empty to full.
    pub fill: Phase,
    /// All of them ending, one after the other as their time comes.
    pub tear_down: Phase,
    /// Sessions made while as many expire.
    pub sustained: Phase,
    /// Sessions that expired meanwhile.
    pub expired: u64,
    /// Fewest sessions alive meanwhile.
    pub alive_min: u64,
    /// Most sessions alive meanwhile.
    pub alive_max: u64,
    /// Bursts of 64 new sessions, nothing expiring.
    pub burst_without_expiry: BurstTimes,
    /// Bursts of 64 new sessions, as many expiring.
    pub burst_with_expiry: BurstTimes,
    /// Of those, expiry and what else is done between bursts: what it adds to a burst.
    pub expiry_of_a_burst: BurstTimes,
    /// Packets dropped, by reason, in all phases.
    pub drops: BTreeMap<&'static str, u64>,
    /// Translated packets verified bit by bit.
    pub packets_verified: u64,
    /// In use when everything has timed out, by table.
    pub used_at_end: BTreeMap<&'static str, u64>,
    /// Every packet accounted for, none dropped, nothing in use at the end.
    pub ok: bool,
}

/// The scenario, all workers together.
pub fn spec(args: &SetupArgs) -> RigSpec {
    // Twice as many sessions as there is room for: one comes again only long after it expired.
    let layout = Layout::for_sessions(args.sessions * 2, args.ports, args.remotes);
    let instance = InstanceSpec {
        translation: args.translation,
        mode: args.mode,
        subscribers: layout.subscribers,
        ports: layout.ports,
        block: BLOCK,
        udp_s: LIFETIME_S,
        hold_s: HOLD_S,
        logged: args.log.logged(),
    };
    RigSpec {
        instance,
        layout,
        sessions: args.sessions,
        frame_bytes: args.translation.frame_bytes_min(),
        tagged: false,
    }
}

/// The run of one worker.
struct Setup {
    rig: Rig,
    /// Room in its tables.
    sessions: u32,
    tsc: Tsc,
    walk: Walk,
    numbers: [u32; BURST_PACKETS_MAX],
}

/// Bursts of one phase.
struct Meters {
    whole: BurstMeter,
    background: BurstMeter,
}

impl Setup {
    fn new(args: &SetupArgs) -> Result<Self, BenchError> {
        Ok(Self::over(Rig::new(&spec(args))?, args))
    }

    fn over(rig: Rig, args: &SetupArgs) -> Self {
        let count = rig.layout.sessions();
        let walk = if args.sequential { Walk::in_order(count) } else { Walk::scattered(count) };
        Self { sessions: rig.room(), rig, tsc: Tsc::measure(), walk, numbers: [0; BURST_PACKETS_MAX] }
    }

    /// A burst of packets of new sessions; returns the cycles of the worker.
    #[inline]
    fn burst(&mut self, packets: usize, meters: &mut Meters) -> u64 {
        let numbers = self.numbers.get_mut(..packets).unwrap_or(&mut []);
        numbers.iter_mut().for_each(|number| *number = self.walk.pick());
        self.rig.receive(numbers);
        let times = self.rig.process();
        meters.whole.add(times.process + times.background);
        meters.background.add(times.background);
        self.rig.collect(numbers);
        times.process + times.background
    }

    fn meters(&self) -> Meters {
        Meters { whole: BurstMeter::new(self.tsc), background: BurstMeter::new(self.tsc) }
    }

    /// From empty to `sessions`, time standing still.
    fn fill(&mut self, sessions: u64) -> (Phase, BurstTimes) {
        let mut meters = self.meters();
        let mut progress = Progress::new("making sessions", sessions);
        let (start, mut made) = (Moment::now(), 0);
        while made < sessions {
            for _ in 0..256 {
                let packets = (sessions - made).min(BURST_PACKETS_MAX as u64);
                self.burst(packets as usize, &mut meters);
                made += packets;
            }
            self.rig.drain();
            progress.at(made);
        }
        let phase = Phase::since(&start, self.rig.sessions(), self.tsc);
        (phase, meters.whole.times(self.tsc))
    }

    /// Everything expires, without packets.
    fn tear_down(&mut self) -> Phase {
        let sessions = self.rig.sessions();
        self.rig.now = self.rig.now.plus_ns(u64::from(LIFETIME_S + 1) * 1_000_000_000);
        let mut progress = Progress::new("ending sessions", sessions);
        let start = Moment::now();
        while self.rig.sessions() > 0 && start.cycles() < self.tsc.cycles_in(600.0) {
            // A thousandth of a sweep a turn.
            self.rig.now = self.rig.now.plus_ns(1_000_000);
            self.rig.idle();
            self.rig.drain();
            progress.at(sessions - self.rig.sessions());
        }
        Phase::since(&start, sessions - self.rig.sessions(), self.tsc)
    }

    /// Sessions made while others expire: as many as before for nothing, then measured.
    fn sustain(&mut self, args: &SetupArgs, report: &mut SetupReport, barrier: &Barrier) {
        let burst_ns = burst_ns(self.sessions);
        let mut unmeasured = self.meters();
        for _ in 0..u64::from(self.sessions) / BURST_PACKETS_MAX as u64 {
            self.timed_burst(burst_ns, &mut unmeasured);
        }
        let mut meters = self.meters();
        let limit = args.packets.unwrap_or(u64::MAX);
        let mut progress = Progress::new("with expiry", args.packets.unwrap_or(0));
        barrier.wait();
        let before = self.rig.accounts().clone();
        let alive_before = self.rig.sessions();
        let (mut made, start) = (0, Moment::now());
        let end = self.tsc.cycles_in(args.seconds);
        report.alive_min = alive_before;
        loop {
            for _ in 0..256 {
                self.timed_burst(burst_ns, &mut meters);
                made += BURST_PACKETS_MAX as u64;
            }
            let (alive, elapsed) = (self.rig.sessions(), start.cycles());
            report.alive_min = report.alive_min.min(alive);
            report.alive_max = report.alive_max.max(alive);
            match args.packets {
                Some(most) => progress.at(made.min(most)),
                None => progress.at_second(made, (self.tsc.s(elapsed), args.seconds)),
            }
            if made >= limit || (args.packets.is_none() && elapsed >= end) {
                break;
            }
        }
        let made = difference(self.rig.accounts(), &before).forwarded;
        report.sustained = Phase::since(&start, made, self.tsc);
        report.expired = (alive_before + made).saturating_sub(self.rig.sessions());
        report.burst_with_expiry = meters.whole.times(self.tsc);
        report.expiry_of_a_burst = meters.background.times(self.tsc);
    }

    fn timed_burst(&mut self, burst_ns: u64, meters: &mut Meters) -> u64 {
        self.rig.now = self.rig.now.plus_ns(burst_ns);
        let cycles = self.burst(BURST_PACKETS_MAX, meters);
        self.rig.drain();
        cycles
    }
}

/// Simulated time from burst to burst.
fn burst_ns(sessions: u32) -> u64 {
    FILL_S * 1_000_000_000 * BURST_PACKETS_MAX as u64 / u64::from(sessions)
}

/// A table in which as many sessions end as begin, to be measured in parts.
pub struct Steady {
    run: Setup,
    meters: Meters,
    burst_ns: u64,
}

impl Steady {
    /// The first have begun to end.
    pub fn new(args: &SetupArgs) -> Result<Self, BenchError> {
        let run = Setup::new(args)?;
        let mut steady = Self { meters: run.meters(), run, burst_ns: burst_ns(args.sessions) };
        for _ in 0..u64::from(args.sessions) / BURST_PACKETS_MAX as u64 {
            steady.burst();
        }
        Ok(steady)
    }

    /// Makes the sessions of a burst, while about as many end; returns the cycles of the worker, without those of the
    /// generator.
    #[inline]
    pub fn burst(&mut self) -> u64 {
        self.run.timed_burst(self.burst_ns, &mut self.meters)
    }

    /// The other ends of the worker's rings, for somebody else to listen at.
    pub fn take_far(&mut self) -> Option<FarEnds> {
        self.run.rig.far.take()
    }

    /// Gives them back.
    pub fn give_far(&mut self, far: Option<FarEnds>) {
        self.run.rig.far = far;
    }

    /// Events that found the ring full, so far.
    pub fn events_lost(&mut self) -> u64 {
        self.run.rig.worker.stats().events_lost
    }

    /// Everything ends; was every packet accounted for, and none dropped?
    pub fn end(mut self) -> bool {
        self.run.rig.expire_all() && self.run.rig.drops().is_empty() && self.run.rig.is_balanced()
    }
}

/// Runs the measurement.
pub fn setup(args: &SetupArgs) -> Result<SetupReport, BenchError> {
    let crew = Crew::new(&spec(args), args.workers)?;
    let mut runs: Vec<_> = crew.into_rigs().into_iter().map(|rig| Setup::over(rig, args)).collect();
    let barrier = Barrier::new(runs.len());
    // One alone stays on this thread, which is pinned.
    if let [run] = runs.as_mut_slice() {
        return run.measure(args, &barrier);
    }
    let reports = std::thread::scope(|scope| {
        let start = |(id, run): (u8, _)| {
            let (run, barrier): (&mut Setup, _) = (run, &barrier);
            scope.spawn(move || {
                pin(id);
                run.measure(args, barrier)
            })
        };
        let threads: Vec<_> = (0..).zip(&mut runs).map(start).collect();
        let panicked = |_| Err(BenchError("a worker thread panicked".into()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect::<Vec<_>>()
    });
    let reports = reports.into_iter().collect::<Result<Vec<_>, _>>()?;
    together(args, &reports).ok_or_else(|| BenchError("there is no worker".into()))
}

impl Setup {
    /// All phases; workers begin each of them together.
    fn measure(&mut self, args: &SetupArgs, barrier: &Barrier) -> Result<SetupReport, BenchError> {
        let generator = GeneratorCost::measure(&mut self.rig, false, &mut self.walk);
        barrier.wait();
        let (fill, burst_without_expiry) = self.fill(u64::from(self.sessions));
        let memory = Footprint::of(self.rig.worker.nat(), self.rig.sessions());
        barrier.wait();
        let tear_down = self.tear_down();
        let is_torn_down = self.rig.expire_all();
        let mut report = SetupReport {
            scenario: "setup",
            translation: args.translation.name(),
            mode: args.mode.name(),
            sessions: self.sessions,
            workers: 1,
            ports_per_subscriber: args.ports,
            sessions_per_mapping: args.remotes,
            order: if args.sequential { "sequential" } else { "random" },
            generator,
            memory,
            fill,
            tear_down,
            sustained: Phase::default(),
            expired: 0,
            alive_min: 0,
            alive_max: 0,
            burst_without_expiry,
            burst_with_expiry: BurstTimes::default(),
            expiry_of_a_burst: BurstTimes::default(),
            drops: BTreeMap::new(),
            packets_verified: 0,
            used_at_end: BTreeMap::new(),
            ok: false,
        };
        self.sustain(args, &mut report, barrier);
        let is_empty = self.rig.expire_all();
        report.drops = self.rig.drops();
        report.used_at_end = self.rig.used();
        report.packets_verified = self.rig.verified()?;
        report.ok = is_torn_down
            && is_empty
            && report.drops.is_empty()
            && report.used_at_end.values().all(|used| *used == 0)
            && report.fill.sessions == u64::from(self.sessions)
            && self.rig.is_balanced();
        Ok(report)
    }
}

/// What several workers found: sums, and of times the longest.
fn together(args: &SetupArgs, reports: &[SetupReport]) -> Option<SetupReport> {
    let mut all = reports.first()?.clone();
    let phases = |of: fn(&SetupReport) -> &Phase| {
        Phase::together(&reports.iter().map(|report| of(report).clone()).collect::<Vec<_>>())
    };
    let worst = |of: fn(&SetupReport) -> &BurstTimes| {
        reports.iter().map(of).fold(BurstTimes::default(), |worst, times| worst.or(times))
    };
    let generators: Vec<_> = reports.iter().map(|report| report.generator).collect();
    all.generator = GeneratorCost::together(&generators);
    all.fill = phases(|report| &report.fill);
    all.memory = Footprint::together(reports.iter().map(|report| report.memory), all.fill.sessions);
    all.tear_down = phases(|report| &report.tear_down);
    all.sustained = phases(|report| &report.sustained);
    all.burst_without_expiry = worst(|report| &report.burst_without_expiry);
    all.burst_with_expiry = worst(|report| &report.burst_with_expiry);
    all.expiry_of_a_burst = worst(|report| &report.expiry_of_a_burst);
    for more in reports.iter().skip(1) {
        all.expired += more.expired;
        all.alive_min += more.alive_min;
        all.alive_max += more.alive_max;
        all.packets_verified += more.packets_verified;
        all.ok &= more.ok;
        more.drops.iter().for_each(|(reason, count)| *all.drops.entry(reason).or_default() += count);
        more.used_at_end.iter().for_each(|(table, used)| *all.used_at_end.entry(table).or_default() += used);
    }
    all.sessions = args.sessions;
    all.workers = args.workers.into();
    Some(all)
}

impl SetupReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "{} session set-up, {}, {}, room for {} sessions, {} order, {} a mapping",
            self.translation.to_uppercase(),
            self.mode,
            if self.workers == 1 { "one worker".into() } else { format!("{} workers", self.workers) },
            grouped(u64::from(self.sessions)),
            self.order,
            self.sessions_per_mapping
        );
        println!();
        let phase = |name: &str, phase: &Phase, more: String| {
            println!(
                "  {name:<26}{:>8.2} M/s  {:>7.0} cycles each{more}{}",
                phase.m_per_s,
                phase.cycles_per_session,
                phase.disturbance()
            );
        };
        phase("from empty to full", &self.fill, String::new());
        phase("tear-down", &self.tear_down, String::new());
        let alive = format!(
            ", {} made, {} expired, {} to {} alive",
            grouped(self.sustained.sessions),
            grouped(self.expired),
            grouped(self.alive_min),
            grouped(self.alive_max)
        );
        phase("with expiry at that rate", &self.sustained, alive);
        println!("  {:<26}{}", "of all that the generator", self.generator.line());
        println!("  {:<26}{}", "64 set-ups", self.burst_without_expiry.line());
        println!("  {:<26}{}", "64 set-ups with expiry", self.burst_with_expiry.line());
        println!("  {:<26}{}", "  of which expiry", self.expiry_of_a_burst.line());
        println!(
            "  {:<26}{:.1} bytes, {:.1} with the pool's ports",
            "memory of a session", self.memory.bytes_per_session, self.memory.bytes_per_session_with_pool
        );
        crate::report::print_drops(&self.drops);
        println!("  {:<26}{}", "verified bit by bit", grouped(self.packets_verified));
        let left: Vec<_> = self.used_at_end.iter().filter(|(_, used)| **used > 0).collect();
        let left = if left.is_empty() { "nothing in any table".into() } else { format!("LEFT {left:?}") };
        println!("  {:<26}{left}", "after all timeouts");
        println!("  {:<26}{}", "all as it must be", if self.ok { "yes" } else { "NO" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_every_mode_sessions_expire_as_fast_as_they_are_made_and_none_is_left() {
        let modes = [Mode::Pba, Mode::Arbitrary, Mode::Deterministic, Mode::Static];
        let four = modes.iter().map(|mode| (Translation::Nat44, *mode));
        for (translation, mode) in four.chain(modes.iter().take(3).map(|mode| (Translation::Nat64, *mode))) {
            let args = SetupArgs {
                translation,
                mode,
                sessions: 20_000,
                seconds: 1.0,
                packets: Some(60_000),
                ports: 16,
                remotes: 1,
                log: Log::Blocks,
                sequential: mode == Mode::Arbitrary,
                workers: 1,
                json: false,
            };
            for workers in [1, 2] {
                let report = setup(&SetupArgs { workers, ..args.clone() }).unwrap();
                assert!(report.ok, "{report:#?}");
                // Subscribers are not quite the same number for each worker; no worker has less room for it.
                let filled = 19_900..=20_000;
                assert!(filled.contains(&report.fill.sessions), "{report:#?}");
                let memory = report.memory;
                assert_eq!(
                    memory.bytes_per_session,
                    memory.memory_bytes as f64 / report.fill.sessions as f64
                );
                assert!(memory.bytes_per_session > 64.0, "{report:#?}");
                assert!(memory.bytes_per_session_with_pool > memory.bytes_per_session, "{report:#?}");
                assert!(report.sustained.sessions >= 60_000 && report.expired >= 50_000, "{report:#?}");
                // Room was left all the time, and there was always something to expire.
                assert!(report.alive_max < 20_000 && report.alive_min > 5_000, "{report:#?}");
            }
        }
    }
}
