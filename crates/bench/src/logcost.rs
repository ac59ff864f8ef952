//! `carrack bench log-cost`: what telling the log takes from a worker.
//!
//! One table for each thing that can be told, side by side; they take turns of a thousand sessions, so that what else happens
//! on the machine happens to all of them. What counts is the worker's own time, with all that the other side does to it:
//! a thread on another processor takes the events out of the rings, as the logging thread does, so that their memory
//! comes from that processor's cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use carrack_base::BURST_PACKETS_MAX;
use clap::Args;
use serde::Serialize;

use crate::clock::Tsc;
use crate::forward::{BenchError, pin, pin_to, processors};
use crate::generator::Translation;
use crate::options::number;
use crate::progress::Progress;
use crate::setup::{SetupArgs, Steady};
use crate::world::{FarEnds, Log, Mode};
use carrack_base::text::grouped;

/// Bursts of a turn: shorter than what the machine does to one table and not to the others.
const TURN: usize = 16;
/// Pause of who listens after a turn without events, as the logging thread makes it.
const PAUSE: Duration = Duration::from_millis(1);
/// Most that telling every session may take from a worker, percent.
const MOST_PERCENT: f64 = 5.0;

/// Options of `bench log-cost`.
#[derive(Debug, Clone, Args)]
pub struct LogCostArgs {
    /// How outside ports are given out
    #[arg(long, value_enum, default_value_t = Mode::Arbitrary)]
    pub mode: Mode,
    /// Room in each of the three or four tables; half of it is in use
    #[arg(long, default_value_t = 1_000_000, value_parser = number::<u32>(1_024..=20_000_000), allow_negative_numbers = true)]
    pub sessions: u32,
    /// Turns of each table; a turn is 1,024 sessions begun and about as many ended
    #[arg(long, default_value_t = 1_001, value_parser = number::<u64>(1..=100_000), allow_negative_numbers = true)]
    pub turns: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What one table took.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// What was told.
    pub told: &'static str,
    /// Cycles of the worker for a session begun and one ended, the median of all turns.
    pub cycles: f64,
    /// More than the first table in the same turn, percent, the median of all turns.
    pub more_percent: f64,
    /// A quarter of the turns had less.
    pub more_percent_low: f64,
    /// A quarter had more.
    pub more_percent_high: f64,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct LogCostReport {
    /// Always `log-cost`.
    pub scenario: &'static str,
    /// How outside ports were given out.
    pub mode: &'static str,
    /// Room in each table.
    pub sessions: u32,
    /// Turns of each.
    pub turns: u64,
    /// The least told first.
    pub costs: Vec<Cost>,
    /// The most that telling sessions may take, percent.
    pub most_percent: f64,
    /// Does it take no more?
    pub within: bool,
    /// Does another processor take the events out of the rings? Where there is none, it is done between the measurements.
    pub listens_elsewhere: bool,
    /// Events that found a ring full: those tables cost less than they should.
    pub events_lost: u64,
    /// Every packet was accounted for, and no event lost.
    pub ok: bool,
}

/// Runs the measurement.
pub fn log_cost(args: &LogCostArgs) -> Result<LogCostReport, BenchError> {
    // Of a thread that is pinned nobody learns how many there are.
    let has_another = processors() > 1;
    pin(0);
    let logs = [Log::Blocks, Log::Mappings, Log::Sessions, Log::Destinations];
    let mut tables = Vec::new();
    let mut progress = Progress::new("filling tables", logs.len() as u64);
    for (done, log) in (0..).zip(logs) {
        progress.at(done);
        tables.push((log, Steady::new(&table(args, log))?, Vec::new()));
    }
    let listener = has_another.then(|| Listener::start(&mut tables));
    let mut progress = Progress::new("turns", args.turns);
    for turn in 0..args.turns {
        for (_, table, turns) in &mut tables {
            turns.push(cycles(table));
        }
        progress.at(turn);
    }
    let first = tables.first().map(|(.., turns)| turns.clone()).unwrap_or_default();
    let costs: Vec<Cost> =
        tables.iter().map(|(log, _, turns)| cost(*log, args.mode, turns, &first)).collect();
    let listens_elsewhere = listener.is_some();
    if let Some(listener) = listener {
        listener.end(&mut tables);
    }
    let events_lost = tables.iter_mut().map(|(_, table, _)| table.events_lost()).sum();
    let ok = tables.into_iter().fold(events_lost == 0, |ok, (_, table, _)| table.end() && ok);
    let within = costs.iter().all(|cost| cost.more_percent <= MOST_PERCENT);
    Ok(LogCostReport {
        scenario: "log-cost",
        mode: args.mode.name(),
        sessions: args.sessions,
        turns: args.turns,
        costs,
        most_percent: MOST_PERCENT,
        within,
        listens_elsewhere,
        events_lost,
        ok,
    })
}

/// What was told, its table, and what its turns took.
type Table = (Log, Steady, Vec<f64>);

/// Takes the events of all tables out of their rings on another processor.
struct Listener {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Option<FarEnds>>>,
}

impl Listener {
    fn start(tables: &mut [Table]) -> Self {
        let mut rings: Vec<Option<FarEnds>> =
            tables.iter_mut().map(|(_, table, _)| table.take_far()).collect();
        let ends = Arc::new(AtomicBool::new(false));
        let asked = Arc::clone(&ends);
        let thread = thread::spawn(move || {
            pin_to(1);
            let mut taken = Vec::new();
            while !asked.load(Ordering::Acquire) {
                if rings.iter_mut().flatten().map(|ring| ring.take(&mut taken)).sum::<usize>() == 0 {
                    thread::sleep(PAUSE);
                }
            }
            rings
        });
        Self { ends, thread }
    }

    /// Gives the rings back.
    fn end(self, tables: &mut [Table]) {
        self.ends.store(true, Ordering::Release);
        let rings = self.thread.join().unwrap_or_default();
        for ((_, table, _), ring) in tables.iter_mut().zip(rings) {
            table.give_far(ring);
        }
    }
}

fn table(args: &LogCostArgs, log: Log) -> SetupArgs {
    SetupArgs {
        translation: Translation::Nat44,
        mode: args.mode,
        sessions: args.sessions,
        seconds: 1.0,
        packets: None,
        ports: 16,
        remotes: 1,
        log,
        sequential: false,
        workers: 1,
        json: false,
    }
}

/// Cycles of a session in one turn. Bursts in which the processor was somebody else's are left out.
fn cycles(table: &mut Steady) -> f64 {
    let mut bursts: Vec<u64> = (0..TURN).map(|_| table.burst()).collect();
    bursts.sort_unstable();
    let most = bursts.get(TURN / 2).map_or(0, |median| median * 3);
    let kept = bursts.partition_point(|cycles| *cycles <= most).max(1);
    bursts.iter().take(kept).sum::<u64>() as f64 / (kept * BURST_PACKETS_MAX) as f64
}

fn cost(log: Log, mode: Mode, turns: &[f64], first: &[f64]) -> Cost {
    let mut more: Vec<f64> =
        turns.iter().zip(first).map(|(this, first)| (this / first - 1.0) * 100.0).collect();
    more.sort_by(f64::total_cmp);
    let mut turns = turns.to_vec();
    turns.sort_by(f64::total_cmp);
    Cost {
        told: told(log, mode),
        cycles: quantile(&turns, 0.5),
        more_percent: quantile(&more, 0.5),
        more_percent_low: quantile(&more, 0.25),
        more_percent_high: quantile(&more, 0.75),
    }
}

fn told(log: Log, mode: Mode) -> &'static str {
    match (log, mode) {
        (Log::Blocks, Mode::Pba) => "blocks",
        (Log::Blocks, _) => "nothing",
        (Log::Mappings, _) => "mappings",
        (Log::Sessions, _) => "sessions",
        (Log::Destinations, _) => "sessions and destinations",
    }
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted.get((sorted.len() as f64 * share) as usize).copied().unwrap_or(0.0)
}

impl LogCostReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "what telling the log takes from a worker, {}, tables for {} sessions, {} turns each",
            self.mode,
            grouped(u64::from(self.sessions)),
            self.turns
        );
        println!();
        println!("  {:<28}{:>12}{:>12}{:>22}", "told", "cycles", "more", "half of the turns");
        for cost in &self.costs {
            println!(
                "  {:<28}{:>12.0}{:>10.1} %{:>9.1} to {:>5.1} %",
                cost.told, cost.cycles, cost.more_percent, cost.more_percent_low, cost.more_percent_high
            );
        }
        println!();
        println!(
            "  at most {} % more: {}; cycles of a session begun and one ended ({:.2} GHz), without generator and logging thread, which {}",
            self.most_percent,
            if self.within { "yes" } else { "no" },
            Tsc::measure().cycles_in(1.0) as f64 / 1e9,
            if self.listens_elsewhere {
                "had another processor"
            } else {
                "took turns with it on the only processor"
            }
        );
        if self.events_lost > 0 {
            println!("  events lost because nobody took them in time: {}", grouped(self.events_lost));
        }
        println!("  every packet accounted for: {}", if self.ok { "yes" } else { "NO" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_measured_against_the_first_and_none_loses_a_packet() {
        let args = LogCostArgs { mode: Mode::Pba, sessions: 20_000, turns: 3, json: false };
        let report = log_cost(&args).unwrap();
        assert!(report.ok, "{report:#?}");
        assert_eq!(report.events_lost, 0);
        let told: Vec<&str> = report.costs.iter().map(|cost| cost.told).collect();
        assert_eq!(told, ["blocks", "mappings", "sessions", "sessions and destinations"]);
        assert!(report.costs[0].more_percent == 0.0 && report.costs.iter().all(|cost| cost.cycles > 0.0));
    }
}
