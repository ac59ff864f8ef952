//! `carrack bench capacity`: how many sessions fit, what each takes, and how fast the router is with all of them.

use clap::Args;
use serde::Serialize;

use crate::clock::Tsc;
use crate::forward::{BenchError, pin};
use crate::generator::Translation;
use crate::generator_cost::GeneratorCost;
use crate::layout::Layout;
use crate::memory::{self, Footprint, TableMemory};
use crate::offered::{Random, closed_loop, fill};
use crate::options::{number, seconds, stateful};
use crate::rig::{Rig, RigSpec};
use crate::setup::Phase;
use crate::world::{InstanceSpec, Mode};
use carrack_base::text::grouped;

/// Options of `bench capacity`.
#[derive(Debug, Clone, Args)]
pub struct CapacityArgs {
    /// What is translated
    #[arg(long, value_parser = stateful(), default_value = "nat44")]
    pub translation: Translation,
    /// Sessions to hold at once
    #[arg(long, default_value_t = 100_000_000, value_parser = number::<u32>(1_024..=200_000_000), allow_negative_numbers = true)]
    pub sessions: u32,
    /// Source ports of a subscriber
    #[arg(long, default_value_t = 16, value_parser = number::<u32>(1..=1_024), allow_negative_numbers = true)]
    pub ports: u32,
    /// Remote endpoints of a source port, which are its sessions on one mapping
    #[arg(long, default_value_t = 4, value_parser = number::<u32>(1..=65_536), allow_negative_numbers = true)]
    pub remotes: u32,
    /// How outside ports are given out
    #[arg(long, value_enum, default_value_t = Mode::Pba)]
    pub mode: Mode,
    /// Seconds to forward packets of sessions at random, once all are there
    #[arg(long, default_value_t = 5.0, value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct CapacityReport {
    /// Always `capacity`.
    pub scenario: &'static str,
    /// What was translated.
    pub translation: &'static str,
    /// How outside ports were given out.
    pub mode: &'static str,
    /// Sessions held.
    pub sessions: u64,
    /// Source ports of a subscriber.
    pub ports_per_subscriber: u32,
    /// Sessions of a mapping.
    pub sessions_per_mapping: u32,
    /// Making them.
    pub fill: Phase,
    /// Every table.
    pub tables: Vec<TableMemory>,
    /// What the sessions take.
    #[serde(flatten)]
    pub memory: Footprint,
    /// The whole process, resident.
    pub resident_bytes: u64,
    /// Pages behind the session table: `1G`, `2M`, `thp`, `4K`.
    pub pages: &'static str,
    /// Seconds to get and touch the memory.
    pub start_s: f64,
    /// Million packets forwarded a second with all sessions there, in random order, generator included.
    pub forward_mpps: f64,
    /// Processor cycles (TSC) of each.
    pub forward_cycles_per_packet: f64,
    /// Of those, what the generator takes.
    #[serde(flatten)]
    pub generator: GeneratorCost,
    /// Share of that time that the thread had the processor, percent: below 95 others disturbed the measurement.
    pub processor_percent: f64,
    /// Million packets forwarded a second of processor time.
    pub forward_mpps_of_its_own: f64,
    /// The same in words.
    #[serde(skip)]
    pub disturbance: String,
    /// Translated packets verified bit by bit.
    pub packets_verified: u64,
    /// All sessions made, no packet lost, every packet accounted for.
    pub ok: bool,
}

/// The world of so many sessions.
fn spec(args: &CapacityArgs) -> RigSpec {
    let layout = Layout::for_sessions(args.sessions, args.ports, args.remotes);
    let instance = InstanceSpec {
        translation: args.translation,
        mode: args.mode,
        subscribers: layout.subscribers,
        ports: layout.ports,
        block: 256,
        // Nothing expires while it is measured.
        udp_s: 30_000,
        hold_s: 120,
        logged: Default::default(),
    };
    RigSpec {
        instance,
        layout,
        sessions: args.sessions,
        frame_bytes: args.translation.frame_bytes_min(),
        tagged: false,
    }
}

/// Runs the measurement.
pub fn capacity(args: &CapacityArgs) -> Result<CapacityReport, BenchError> {
    let spec = spec(args);
    memory::check(&spec, 1)?;
    pin(0);
    eprintln!("taking {:.1} GB of memory and touching it …", memory::needed(&spec) as f64 / 1e9);
    let (tsc, start) = (Tsc::measure(), std::time::Instant::now());
    let mut rig = Rig::new(&spec)?;
    let start_s = start.elapsed().as_secs_f64();
    let fill = fill(&mut rig, tsc, 0, args.sessions, false);
    let sessions = rig.sessions();
    let mut picks = Random::new(args.sessions);
    // Caches and predictors get warm with what is measured.
    closed_loop(&mut rig, tsc, args.seconds * 0.1, false, &mut picks);
    let forward = closed_loop(&mut rig, tsc, args.seconds, false, &mut picks);
    let generator = GeneratorCost::measure(&mut rig, false, &mut picks);
    let rows = rig.worker.nat().memory();
    let ok = sessions == u64::from(args.sessions) && rig.accounts().dropped() == 0 && rig.is_balanced();
    if !ok {
        eprintln!("drops: {:?}", rig.drops());
    }
    Ok(CapacityReport {
        scenario: "capacity",
        translation: args.translation.name(),
        mode: args.mode.name(),
        sessions,
        ports_per_subscriber: args.ports,
        sessions_per_mapping: args.remotes,
        fill,
        tables: rows.iter().map(|row| TableMemory::of(row, sessions)).collect(),
        memory: Footprint::of(rig.worker.nat(), sessions),
        resident_bytes: memory::resident(),
        pages: rows.first().map_or("?", |row| row.pages),
        start_s,
        forward_mpps: forward.m_per_s,
        forward_cycles_per_packet: forward.cycles_per_session,
        generator,
        processor_percent: forward.processor_percent,
        forward_mpps_of_its_own: forward.m_per_processor_s,
        disturbance: forward.disturbance(),
        packets_verified: rig.verified()?,
        ok,
    })
}

impl CapacityReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "{}, {} sessions held, {}, {} ports a subscriber, {} a mapping",
            self.translation.to_uppercase(),
            grouped(self.sessions),
            self.mode,
            self.ports_per_subscriber,
            self.sessions_per_mapping
        );
        println!();
        println!("  {:<20}{:>14}{:>14}{:>15}{:>10}  PAGES", "TABLE", "TOTAL", "USED", "BYTES", "/SESSION");
        for row in &self.tables {
            println!(
                "  {:<20}{:>14}{:>14}{:>15}{:>10.1}  {}",
                row.table,
                grouped(row.total),
                grouped(row.used),
                grouped(row.bytes),
                row.bytes_per_session,
                row.pages
            );
        }
        println!();
        let line = |name: &str, value: String| println!("  {name:<26}{value}");
        line("memory of a session", format!("{:.1} bytes", self.memory.bytes_per_session));
        line("  with the pool's ports", format!("{:.1} bytes", self.memory.bytes_per_session_with_pool));
        line("process, resident", format!("{:.2} GB", self.resident_bytes as f64 / 1e9));
        line("memory had after", format!("{:.1} s", self.start_s));
        line(
            "filled in",
            format!(
                "{:.1} s, {:.2} M sessions/s{}",
                self.fill.seconds,
                self.fill.m_per_s,
                self.fill.disturbance()
            ),
        );
        line(
            "forwarding, random order",
            format!(
                "{:.2} Mpps, {:.0} cycles a packet{}",
                self.forward_mpps, self.forward_cycles_per_packet, self.disturbance
            ),
        );
        line("  of which the generator", self.generator.line());
        line("verified bit by bit", grouped(self.packets_verified));
        line("all as it must be", if self.ok { "yes" } else { "NO" }.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sessions_fit_and_what_they_were_said_to_need_is_what_they_take() {
        for translation in [Translation::Nat44, Translation::Nat64] {
            let args = CapacityArgs {
                translation,
                sessions: 100_000,
                ports: 16,
                remotes: 4,
                mode: Mode::Pba,
                seconds: 0.1,
                json: false,
            };
            let report = capacity(&args).unwrap();
            assert!(report.ok, "{report:#?}");
            let taken: u64 = report.tables.iter().map(|row| row.bytes).sum();
            let said = memory::needed(&spec(&args));
            assert!(said >= taken && said < taken * 3 / 2 + (32 << 20), "{said} said, {taken} taken");
        }
    }
}
