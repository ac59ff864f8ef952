//! `carrack bench stalls`: how long packets wait for what management asks of a worker.
//!
//! A worker lists its sessions and makes ready for another configuration a little between two bursts, and changes over at
//! once. Bursts of random sessions follow each other without a pause meanwhile; each is timed together with what the
//! worker does before the next: that is the longest that a packet can find nobody at the port.

use std::sync::Arc;

use carrack_base::{BURST_PACKETS_MAX, Prefix4, Proto};
use carrack_nat::Inside;
use carrack_nat::policy::{Instance, StaticRule};
use carrack_nat::row::Filter;
use carrack_pipeline::Plan;
use carrack_pipeline::mailbox::{Command, Dump, Event, Table};
use carrack_tables::cycles;
use clap::Args;
use serde::Serialize;

use crate::clock::{BurstMeter, BurstTimes, Tsc};
use crate::forward::{BenchError, difference, pin};
use crate::generator::{SUBSCRIBER_FIRST, Translation};
use crate::layout::Layout;
use crate::offered::{Picks, Random, fill};
use crate::options::{number, seconds};
use crate::rig::{Rig, RigSpec};
use crate::world::{self, InstanceSpec, Mode};
use carrack_base::text::grouped;

/// Outside ports of each subscriber, and remote endpoints of each port.
const PORTS: u32 = 16;
const REMOTES: u32 = 4;
/// Ports of a block.
const BLOCK: u16 = 256;
/// Rows on their way to the reader of a list.
const ROWS: usize = 8_192;
/// Ports that the last reload forwards, at most, and their address, which is no pool's.
const FORWARDED_MAX: u32 = 50_000;
const FORWARD_ADDRESS: u32 = 0xc000_02fa;
/// Nothing takes so many bursts; a worker that needs more hangs.
const BURSTS_MAX: u64 = 50_000_000;
/// Options of `bench stalls`.
#[derive(Debug, Clone, Args)]
pub struct StallsArgs {
    /// Sessions in the tables
    #[arg(long, default_value_t = 1_000_000, value_parser = number::<u32>(1_024..=100_000_000), allow_negative_numbers = true)]
    pub sessions: u32,
    /// Seconds to measure without any management, to compare with
    #[arg(long, default_value_t = 2.0, value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One thing that management asked for.
#[derive(Debug, Clone, Serialize)]
pub struct Asked {
    /// What.
    pub what: &'static str,
    /// Seconds until it was done.
    pub seconds: f64,
    /// A burst and what came before the next.
    #[serde(flatten)]
    pub times: BurstTimes,
    /// Packets forwarded meanwhile.
    pub forwarded: u64,
    /// Packets dropped meanwhile: those of sessions that the new configuration does not cover.
    pub dropped: u64,
    /// Rows listed.
    pub rows: u64,
    /// Sessions that the new configuration ended.
    pub sessions_ended: u64,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct StallsReport {
    /// Always `stalls`.
    pub scenario: &'static str,
    /// Sessions in the tables.
    pub sessions: u64,
    /// Outside addresses.
    pub addresses: u32,
    /// Each thing asked for, in turn.
    pub asked: Vec<Asked>,
    /// The longest that packets waited while anything was asked for, microseconds.
    pub longest_us: f64,
    /// Translated packets verified bit by bit.
    pub packets_verified: u64,
    /// Every packet accounted for, every row listed once, every session kept that a reload does not concern.
    pub ok: bool,
}

/// The worker, its traffic and the configuration it works by.
struct Bench {
    rig: Rig,
    tsc: Tsc,
    picks: Random,
    instance: Instance,
    generation: u64,
    started: u64,
}

/// What one turn brought.
#[derive(Default)]
struct News {
    prepared: bool,
    /// Sessions that ended, once the worker has changed over.
    reconfigured: Option<u64>,
}

impl Bench {
    /// One burst through the worker, with what comes before the next.
    fn turn(&mut self, meter: &mut BurstMeter) -> News {
        let mut numbers = [0; BURST_PACKETS_MAX];
        numbers.iter_mut().for_each(|number| *number = self.picks.pick());
        self.rig.receive(&numbers);
        let burst = self.rig.process();
        meter.add(burst.process + burst.background);
        self.rig.collect(&numbers);
        self.rig.now = carrack_base::Now::from_s(1)
            .plus_ns((self.tsc.s(cycles().wrapping_sub(self.started)) * 1e9) as u64);
        let mut news = News::default();
        let Some(far) = &mut self.rig.far else { return news };
        while far.nat_events.pop().is_ok() {}
        while let Ok(event) = far.events.pop() {
            match event {
                Event::Prepared { .. } => news.prepared = true,
                Event::Reconfigured { sessions_ended, .. } => news.reconfigured = Some(sessions_ended),
                _ => {}
            }
        }
        news
    }

    /// Turns until `is_done` says so, and what they took.
    fn measure(
        &mut self,
        what: &'static str,
        mut is_done: impl FnMut(&mut Self, News, &mut Asked) -> Result<bool, BenchError>,
    ) -> Result<Asked, BenchError> {
        let (before, start, mut meter) = (self.rig.accounts().clone(), cycles(), BurstMeter::new(self.tsc));
        let mut asked = Asked {
            what,
            seconds: 0.0,
            times: BurstTimes::default(),
            forwarded: 0,
            dropped: 0,
            rows: 0,
            sessions_ended: 0,
        };
        for _ in 0..BURSTS_MAX {
            let news = self.turn(&mut meter);
            if is_done(self, news, &mut asked)? {
                asked.seconds = self.tsc.s(cycles().wrapping_sub(start));
                asked.times = meter.times(self.tsc);
                let meanwhile = difference(self.rig.accounts(), &before);
                (asked.forwarded, asked.dropped) = (meanwhile.forwarded, meanwhile.dropped());
                return Ok(asked);
            }
        }
        Err(BenchError(format!("{what}: not done after {} bursts", grouped(BURSTS_MAX))))
    }

    fn nothing(&mut self, seconds: f64) -> Result<Asked, BenchError> {
        let (start, wanted) = (cycles(), self.tsc.cycles_in(seconds));
        self.measure("nothing", |_, _, _| Ok(cycles().wrapping_sub(start) >= wanted))
    }

    fn list(&mut self) -> Result<Asked, BenchError> {
        let (rows_out, mut rows) = rtrb::RingBuffer::new(ROWS);
        let (table, filter) = (Table::Sessions, Filter::default());
        self.command(Command::Dump(Dump { table, filter, delete: false, rows_max: 0, rows: rows_out }))?;
        self.measure("list all sessions", |_, _, asked| {
            // Asked before the last rows are taken, so that none is missed.
            let is_over = rows.is_abandoned();
            while rows.pop().is_ok() {
                asked.rows += 1;
            }
            Ok(is_over)
        })
    }

    /// A reload as the control plane has it: make ready, then change over.
    fn reload(&mut self, what: &'static str, change: impl Fn(&mut Instance)) -> Result<Asked, BenchError> {
        change(&mut self.instance);
        self.generation += 1;
        let generation = self.generation;
        let plan: Arc<Plan> = world::plan_of(generation, self.instance.clone());
        let prepared = self.rig.worker.nat().prepare_change(plan.snapshot.nat.clone());
        let change = prepared.map_err(|error| BenchError(format!("no memory for the change: {error}")))?;
        self.command(Command::Prepare { plan, change })?;
        self.measure(what, |bench, news, asked| {
            if news.prepared {
                bench.command(Command::Commit { generation })?;
            }
            asked.sessions_ended = news.reconfigured.unwrap_or(0);
            Ok(news.reconfigured.is_some())
        })
    }

    fn command(&mut self, command: Command) -> Result<(), BenchError> {
        let far = self.rig.far.as_mut().ok_or_else(|| BenchError("the rig has no control plane".into()))?;
        far.commands.push(command).map_err(|_| BenchError("the worker takes no commands".into()))
    }
}

/// Runs the measurement.
pub fn stalls(args: &StallsArgs) -> Result<StallsReport, BenchError> {
    let layout = Layout::for_sessions(args.sessions, PORTS, REMOTES);
    let instance = InstanceSpec {
        translation: Translation::Nat44,
        mode: Mode::Pba,
        subscribers: layout.subscribers,
        ports: layout.ports,
        block: BLOCK,
        udp_s: 20_000,
        hold_s: 0,
        logged: Default::default(),
    };
    let addresses = instance.addresses();
    let compiled = instance.instance();
    let spec = RigSpec { instance, layout, sessions: args.sessions, frame_bytes: 64, tagged: false };
    pin(0);
    let (tsc, mut rig) = (Tsc::measure(), Rig::new(&spec)?);
    fill(&mut rig, tsc, 0, args.sessions, false);
    let sessions = rig.sessions();
    let picks = Random::new(args.sessions);
    let mut bench = Bench { rig, tsc, picks, instance: compiled, generation: 1, started: cycles() };
    let mut asked = vec![
        bench.nothing(args.seconds)?,
        bench.list()?,
        bench.reload("reload: other timers", |instance| instance.timeouts.udp_s = 25_000)?,
        bench.reload("reload: a larger pool", |instance| {
            if let Some(range) = instance.pools.iter_mut().flat_map(|pool| &mut pool.ranges).next_back() {
                range.last += 1;
            }
        })?,
        bench.reload("reload: fewer ports", |instance| {
            instance.pools.iter_mut().for_each(|pool| pool.port_last -= BLOCK);
        })?,
    ];
    // Those who stay are a prefix of at most half of the subscribers.
    let bits = (layout.subscribers / 2).max(1).ilog2();
    bench.picks = Random::new((PORTS * REMOTES) << bits);
    let before = bench.rig.sessions();
    asked.push(bench.reload("reload: half the subscribers", |instance| {
        instance.subscribers = vec![Prefix4::of(SUBSCRIBER_FIRST, 32 - bits as u8)];
    })?);
    let ended = asked.last().map_or(0, |asked| asked.sessions_ended);
    let ports = (args.sessions / 64).min(FORWARDED_MAX) as u16;
    asked.push(bench.reload("reload: ports forwarded", |instance| {
        instance.statics.push(StaticRule::Forward {
            proto: Proto::Tcp,
            outside: FORWARD_ADDRESS,
            outside_port: 1_024,
            count: ports,
            inside: Inside::V4(SUBSCRIBER_FIRST),
            inside_port: 1_024,
        });
    })?);
    let listed = asked.iter().map(|asked| asked.rows).sum::<u64>();
    let longest_us = asked.iter().skip(1).map(|asked| asked.times.max_us).fold(0.0, f64::max);
    Ok(StallsReport {
        scenario: "stalls",
        sessions,
        addresses,
        longest_us,
        packets_verified: bench.rig.verified()?,
        ok: listed == sessions
            && bench.rig.is_balanced()
            // Those that fewer ports ended come back with their next packet.
            && bench.rig.sessions() + ended >= before,
        asked,
    })
}

impl StallsReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "What packets wait for while management asks; {} sessions, {} outside addresses, 64-byte frames, full load",
            grouped(self.sessions),
            grouped(u64::from(self.addresses))
        );
        println!();
        for asked in &self.asked {
            println!("  {:<30}{:>7.2} s  {}", asked.what, asked.seconds, asked.times.line());
            let mut notes = vec![];
            for (count, what) in [
                (asked.rows, "rows"),
                (asked.sessions_ended, "sessions ended"),
                (asked.dropped, "packets dropped"),
            ] {
                if count > 0 {
                    notes.push(format!("{} {what}", grouped(count)));
                }
            }
            if !notes.is_empty() {
                println!("  {:<30}{}", "", notes.join(", "));
            }
        }
        println!();
        println!("  {:<30}{:.1} us", "longest wait", self.longest_us);
        println!("  {:<30}{}", "verified bit by bit", grouped(self.packets_verified));
        println!("  {:<30}{}", "all as it must be", if self.ok { "yes" } else { "NO" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_management_asks_is_done_while_packets_go_on() {
        let report = stalls(&StallsArgs { sessions: 8_192, seconds: 0.05, json: false }).unwrap();
        assert_eq!(report.asked.len(), 7, "{report:#?}");
        for asked in &report.asked {
            assert!(asked.forwarded > 0 && asked.times.bursts > 0, "{report:#?}");
        }
        let of = |what: &str| report.asked.iter().find(|asked| asked.what.contains(what)).unwrap();
        assert_eq!(of("list").rows, 8_192, "{report:#?}");
        for untouched in ["timers", "larger", "forwarded"] {
            assert_eq!((of(untouched).sessions_ended, of(untouched).dropped), (0, 0), "{report:#?}");
        }
        assert!(of("half").sessions_ended >= 4_096 && of("half").dropped == 0, "{report:#?}");
        assert!(report.packets_verified > 0, "{report:#?}");
    }
}
