//! `carrack bench churn`: steady traffic while a management client deletes sessions, which come back with their next
//! packet.
//!
//! The client is a thread of its own at the far ends of the worker's rings: it takes a snapshot of all sessions every few
//! seconds by a table walk and deletes random ones of it in batches, by the commands that the API sends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carrack_nat::Rng;
use carrack_nat::row::{Filter, SessionKey};
use carrack_pipeline::mailbox::{Command, Dump, Event, Row, Table};
use clap::Args;
use serde::Serialize;

use crate::clock::Tsc;
use crate::forward::{BenchError, difference, drops_of, pin};
use crate::generator::Translation;
use crate::generator_cost::GeneratorCost;
use crate::layout::Layout;
use crate::memory;
use crate::offered::{Load, RING_PACKETS, Random, closed_loop, fill, offer};
use crate::options::{number, seconds, stateful};
use crate::rig::{Rig, RigSpec};
use crate::world::{FarEnds, InstanceSpec, Mode};
use carrack_base::text::grouped;

/// Sessions a command deletes at most.
const BATCH: usize = 40;
/// Commands a second before they get as large as that: of a low rate every part of a second has its deletions.
const COMMANDS_PER_S: f64 = 10.0;
/// Rows on their way from the worker to the client.
const ROWS: usize = 8_192;
/// A new snapshot is asked for so long after the last one.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(2);

/// Options of `bench churn`.
#[derive(Debug, Clone, Args)]
pub struct ChurnArgs {
    /// What is translated
    #[arg(long, value_parser = stateful(), default_value = "nat44")]
    pub translation: Translation,
    /// Sessions in the tables
    #[arg(long, default_value_t = 1_000_000, value_parser = number::<u32>(1_024..=100_000_000), allow_negative_numbers = true)]
    pub sessions: u32,
    /// Deletions a second
    #[arg(long, default_value_t = 70_000, value_parser = number::<u32>(1..=10_000_000), allow_negative_numbers = true)]
    pub rate: u32,
    /// Traffic both ways, as a share of the capacity measured first
    #[arg(long, default_value = "50%", value_parser = crate::latency::percent, allow_negative_numbers = true)]
    pub load: f64,
    /// Seconds to measure
    #[arg(long, default_value_t = 10.0, value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What traffic and client saw.
#[derive(Debug, Clone, Serialize)]
pub struct Churned {
    /// Packets that fell due, answers of the far end included.
    pub offered: u64,
    /// Packets that left the router.
    pub arrived: u64,
    /// Packets that did not arrive, as generator and far end count them.
    pub lost: u64,
    /// Packets that found the receive ring full.
    pub missed: u64,
    /// Packets the router dropped, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Million packets that left the router a second, both ways together.
    pub mpps: f64,
    /// Sessions that were asked to be deleted.
    pub asked: u64,
    /// Sessions that existed and were deleted.
    pub deleted: u64,
    /// Sessions deleted a second.
    pub deleted_per_s: f64,
    /// Sessions that came back, a second.
    pub recreated_per_s: f64,
    /// Snapshots of all sessions that were complete.
    pub snapshots: u64,
    /// Rows in all of them.
    pub rows: u64,
    /// Loss seen outside is loss counted inside, to the packet.
    pub is_accounted: bool,
}

/// Sessions that a command deletes at this rate.
fn batch_of(rate: f64) -> usize {
    ((rate / COMMANDS_PER_S) as usize).clamp(1, BATCH)
}

/// The client's tally.
#[derive(Default)]
struct Tally {
    asked: u64,
    deleted: u64,
    answers: u64,
    requests: u64,
    snapshots: u64,
    rows: u64,
}

/// The management client.
struct Client {
    far: FarEnds,
    rng: Rng,
    keys: Vec<SessionKey>,
    fresh: Vec<SessionKey>,
    rows: Option<rtrb::Consumer<Row>>,
    snapshot_due: Instant,
    tally: Tally,
}

impl Client {
    /// Bytes of two snapshots, the one that is chosen from and the one that is taken.
    fn bytes_for(sessions: u32) -> u64 {
        2 * u64::from(sessions) * size_of::<SessionKey>() as u64
    }

    fn new(far: FarEnds, sessions: usize) -> Self {
        Self {
            far,
            rng: Rng::new(0xc1_1e47),
            keys: Vec::with_capacity(sessions),
            fresh: Vec::with_capacity(sessions),
            rows: None,
            snapshot_due: Instant::now(),
            tally: Tally::default(),
        }
    }

    fn run(mut self, rate: f64, stop: &AtomicBool) -> (FarEnds, Tally) {
        let (mut start, batch) = (Instant::now(), batch_of(rate));
        while !stop.load(Ordering::Relaxed) {
            self.snapshot();
            self.events();
            if self.keys.is_empty() {
                // The rate counts from the first snapshot on.
                start = Instant::now();
            }
            let due = (start.elapsed().as_secs_f64() * rate) as u64;
            while self.tally.asked + batch as u64 <= due && self.delete_batch(batch) {}
            std::thread::sleep(Duration::from_micros(100));
        }
        (self.far, self.tally)
    }

    fn snapshot(&mut self) {
        if self.rows.is_none() && self.snapshot_due <= Instant::now() {
            let (rows_out, rows) = rtrb::RingBuffer::new(ROWS);
            let (table, filter) = (Table::Sessions, Filter::default());
            let dump = Dump { table, filter, delete: false, rows_max: 0, rows: rows_out };
            if self.far.commands.push(Command::Dump(dump)).is_ok() {
                self.rows = Some(rows);
            }
        }
        let Some(rows) = &mut self.rows else { return };
        // Asked before the last rows are taken, so that none is missed.
        let is_over = rows.is_abandoned();
        while let Ok(row) = rows.pop() {
            if let Row::Session(row) = row {
                let (instance, proto) = (row.instance, row.proto);
                self.fresh.push(SessionKey { instance, proto, inside: row.inside, remote: row.remote });
            }
        }
        if is_over {
            std::mem::swap(&mut self.keys, &mut self.fresh);
            self.fresh.clear();
            self.rows = None;
            self.tally.snapshots += 1;
            self.tally.rows += self.keys.len() as u64;
            self.snapshot_due = Instant::now() + SNAPSHOT_EVERY;
        }
    }

    /// False when there is nothing to delete or no room to say so.
    fn delete_batch(&mut self, batch: usize) -> bool {
        if self.keys.is_empty() || self.far.commands.slots() < 2 {
            return false;
        }
        let keys: Vec<_> =
            (0..batch).filter_map(|_| self.keys.get(self.rng.below(self.keys.len())).copied()).collect();
        let count = keys.len() as u64;
        let sent = self.far.commands.push(Command::Delete { request: self.tally.requests, keys }).is_ok();
        if sent {
            self.tally.asked += count;
            self.tally.requests += 1;
        }
        sent
    }

    fn events(&mut self) {
        while let Ok(event) = self.far.events.pop() {
            if let Event::Deleted { count, .. } = event {
                self.tally.deleted += count;
                self.tally.answers += 1;
            }
        }
    }
}

/// Traffic over the rig's first `sessions` sessions while a client deletes `rate` of them a second.
pub fn churn_rig(
    rig: &mut Rig,
    tsc: Tsc,
    load: Load,
    rate: f64,
    sessions: u32,
) -> Result<Churned, BenchError> {
    let far = rig.far.take().ok_or_else(|| BenchError("the rig has a management client already".into()))?;
    let (sessions_before, before) = (rig.sessions(), rig.accounts().clone());
    let client = Client::new(far, sessions as usize);
    let stop = AtomicBool::new(false);
    let (outcome, joined) = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            pin(1);
            client.run(rate, &stop)
        });
        let outcome = offer(rig, tsc, load, &mut Random::new(sessions));
        stop.store(true, Ordering::Relaxed);
        (outcome, client.join())
    });
    let (far, mut tally) = joined.map_err(|_| BenchError("the management client panicked".into()))?;
    let sessions_after = rig.sessions();
    rig.far = Some(far);
    settle(rig, &mut tally);
    let deleted_late = sessions_after.saturating_sub(rig.sessions());
    let deleted_meanwhile = tally.deleted - deleted_late;
    let recreated = (sessions_after + deleted_meanwhile).saturating_sub(sessions_before);
    Ok(Churned {
        offered: outcome.offered,
        arrived: outcome.arrived,
        lost: outcome.lost(),
        missed: outcome.missed,
        drops: drops_of(&difference(rig.accounts(), &before)),
        mpps: outcome.arrived as f64 / outcome.seconds / 1e6,
        asked: tally.asked,
        deleted: tally.deleted,
        deleted_per_s: deleted_meanwhile as f64 / outcome.seconds,
        recreated_per_s: recreated as f64 / outcome.seconds,
        snapshots: tally.snapshots,
        rows: tally.rows,
        is_accounted: outcome.is_accounted() && tally.answers == tally.requests,
    })
}

/// Takes the answers to commands that were still on their way.
fn settle(rig: &mut Rig, tally: &mut Tally) {
    for _ in 0..1_000 {
        rig.idle();
        let Some(far) = &mut rig.far else { return };
        while let Ok(event) = far.events.pop() {
            if let Event::Deleted { count, .. } = event {
                tally.deleted += count;
                tally.answers += 1;
            }
        }
        if tally.answers == tally.requests {
            return;
        }
    }
}

/// One `churn` run.
#[derive(Debug, Clone, Serialize)]
pub struct ChurnReport {
    /// Always `churn`.
    pub scenario: &'static str,
    /// What was translated.
    pub translation: &'static str,
    /// Sessions in the tables.
    pub sessions: u32,
    /// Deletions asked for, a second.
    pub rate: u32,
    /// Share of the capacity that was offered, percent.
    pub load_percent: f64,
    /// Million packets a second, both ways together, when there is always a full burst waiting.
    pub capacity_mpps: f64,
    /// Processor cycles (TSC) a packet at that rate, generator and far end included.
    pub capacity_cycles_per_packet: f64,
    /// Of those, what generator and far end take.
    #[serde(flatten)]
    pub generator: GeneratorCost,
    /// What was seen.
    #[serde(flatten)]
    pub seen: Churned,
    /// Translated packets verified bit by bit.
    pub packets_verified: u64,
    /// Every packet accounted for, every deletion answered.
    pub ok: bool,
}

/// Runs the measurement.
pub fn churn(args: &ChurnArgs) -> Result<ChurnReport, BenchError> {
    let layout = Layout::for_sessions(args.sessions, 16, 4);
    let instance = InstanceSpec {
        translation: args.translation,
        mode: Mode::Pba,
        subscribers: layout.subscribers,
        ports: layout.ports,
        block: 256,
        udp_s: 300,
        hold_s: 0,
        logged: Default::default(),
    };
    let spec = RigSpec {
        instance,
        layout,
        sessions: args.sessions,
        frame_bytes: args.translation.frame_bytes_min(),
        tagged: false,
    };
    spec.instance.check()?;
    memory::check_beside(&spec, Client::bytes_for(args.sessions))?;
    pin(0);
    let (tsc, mut rig) = (Tsc::measure(), Rig::new(&spec)?);
    fill(&mut rig, tsc, 0, args.sessions, true);
    let mut picks = Random::new(args.sessions);
    let capacity = closed_loop(&mut rig, tsc, (args.seconds * 0.2).min(2.0), true, &mut picks);
    let generator = GeneratorCost::measure(&mut rig, true, &mut picks);
    let pps = capacity.per_s() * args.load / 100.0;
    let load = Load::lasting(pps, args.seconds, true, RING_PACKETS);
    let seen = churn_rig(&mut rig, tsc, load, f64::from(args.rate), args.sessions)?;
    Ok(ChurnReport {
        scenario: "churn",
        translation: args.translation.name(),
        sessions: args.sessions,
        rate: args.rate,
        load_percent: args.load,
        // A packet from inside and its answer.
        capacity_mpps: capacity.m_per_s * 2.0,
        capacity_cycles_per_packet: capacity.cycles_per_session / 2.0,
        generator,
        packets_verified: rig.verified()?,
        ok: seen.is_accounted && seen.deleted > 0,
        seen,
    })
}

impl ChurnReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "{} with {} sessions, {} of them deleted a second, {} % load both ways",
            self.translation.to_uppercase(),
            grouped(u64::from(self.sessions)),
            grouped(u64::from(self.rate)),
            self.load_percent
        );
        println!();
        let line = |name: &str, value: String| println!("  {name:<26}{value}");
        line(
            "capacity, both ways",
            format!("{:.2} Mpps, {:.0} cycles a packet", self.capacity_mpps, self.capacity_cycles_per_packet),
        );
        line("  of which the generator", self.generator.line());
        self.seen.print();
        println!("  {:<26}{}", "verified bit by bit", grouped(self.packets_verified));
        println!("  {:<26}{}", "all as it must be", if self.ok { "yes" } else { "NO" });
        if self.seen.deleted == 0 {
            println!("  nothing was deleted: {}", self.seen.why_nothing());
        }
    }
}

impl Churned {
    /// Why nothing was deleted, and what to do.
    const fn why_nothing(&self) -> &'static str {
        if self.snapshots == 0 {
            "what goes is chosen from a snapshot of all sessions, and none was whole in time; let it run longer (--seconds) or \
             with fewer sessions"
        } else if self.asked == 0 {
            "between the first snapshot and the end not one deletion was due; let it run longer (--seconds) or delete more a \
             second (--rate)"
        } else {
            "all that were asked for had gone before; let it run longer (--seconds)"
        }
    }

    /// For people.
    pub fn print(&self) {
        let line = |name: &str, value: String| println!("  {name:<26}{value}");
        line("forwarded, both ways", format!("{} packets, {:.2} Mpps", grouped(self.arrived), self.mpps));
        line("deleted", format!("{} sessions, {:.0}/s", grouped(self.deleted), self.deleted_per_s));
        line("came back", format!("{:.0}/s", self.recreated_per_s));
        line("snapshots", format!("{} with {} rows", self.snapshots, grouped(self.rows)));
        line("lost, as seen outside", grouped(self.lost));
        line("  receive ring full", grouped(self.missed));
        for (reason, count) in &self.drops {
            println!("    {reason:<24}{}", grouped(*count));
        }
        line("loss accounted for", if self.is_accounted { "to the packet" } else { "NO" }.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_sessions_come_back_and_every_lost_packet_is_counted() {
        for translation in [Translation::Nat44, Translation::Nat64] {
            let args = ChurnArgs {
                translation,
                sessions: 2_048,
                rate: 20_000,
                load: 20.0,
                seconds: 1.5,
                json: false,
            };
            let report = churn(&args).unwrap();
            assert!(report.ok, "{report:#?}");
            assert!(report.seen.deleted > 0 && report.seen.recreated_per_s > 0.0, "{report:#?}");
            assert!(report.seen.snapshots > 0 && report.seen.rows > 1_000, "{report:#?}");
        }
    }

    #[test]
    fn at_a_low_rate_batches_are_small_and_a_few_seconds_have_their_deletions() {
        assert_eq!([1.0, 10.0, 55.0, 400.0, 70_000.0].map(batch_of), [1, 1, 5, 40, 40]);
        let args = ChurnArgs {
            translation: Translation::Nat44,
            sessions: 1_024,
            rate: 10,
            load: 10.0,
            seconds: 1.5,
            json: false,
        };
        let report = churn(&args).unwrap();
        assert!(report.ok && (1..=15).contains(&report.seen.deleted), "{report:#?}");
    }
}
