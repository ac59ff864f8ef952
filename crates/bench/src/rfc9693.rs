//! `carrack bench rfc9693`: a stateful translator by the method of RFC 9693, "Benchmarking Methodology for Stateful NATxy
//! Gateways": the highest rate at which connections come about without loss, each of them validated; throughput with all
//! of them there; the rate at which they are torn down.
//!
//! Phase 1 sends a packet of each connection, once, at a constant rate, far apart in the tables. Phase 2 validates: every
//! connection is answered by the far end, and the answer must reach the subscriber by the entry that phase 1 made. Then
//! the table is emptied by management, out of band, before the next rate is tried.

use clap::Args;
use serde::Serialize;

use crate::clock::{Moment, Tsc};
use crate::crew::Crew;
use crate::forward::BenchError;
use crate::generator::Translation;
use crate::generator_cost::GeneratorCost;
use crate::labs::zero_loss;
use crate::layout::Layout;
use crate::offered::RING_PACKETS;
use crate::options::{number, seconds, stateful};
use crate::rfc2544::{Found, Search, Seen, search};
use crate::rig::RigSpec;
use crate::setup::Phase;
use crate::world::{InstanceSpec, Mode};
use carrack_base::text::grouped;

/// Ports of a block.
const BLOCK: u16 = 256;

/// Options of `bench rfc9693`.
#[derive(Debug, Clone, Args)]
pub struct Rfc9693Args {
    /// What is translated
    #[arg(long, value_parser = stateful(), default_value = "nat44")]
    pub translation: Translation,
    /// How outside ports are given out
    #[arg(long, value_enum, default_value_t = Mode::Pba)]
    pub mode: Mode,
    /// Connections: size of the connection tracking table, all workers together
    #[arg(long, default_value_t = 4_000_000, value_parser = number::<u32>(1_024..=100_000_000), allow_negative_numbers = true)]
    pub sessions: u32,
    /// Bytes of a frame, check sequence included; with nat64 at least 80
    #[arg(long, default_value_t = 84, value_parser = number::<u32>(64..=1_522), allow_negative_numbers = true)]
    pub frame: u32,
    /// Workers, each on a processor of its own with a generator of its own
    #[arg(long, default_value_t = 1, value_parser = number::<u8>(1..=16), allow_negative_numbers = true)]
    pub workers: u8,
    /// Seconds of each trial of throughput
    #[arg(long, default_value_t = 2.0, value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct Rfc9693Report {
    /// Always `rfc9693`.
    pub scenario: &'static str,
    /// What was translated.
    pub translation: &'static str,
    /// How outside ports were given out.
    pub mode: &'static str,
    /// Connections.
    pub sessions: u32,
    /// Workers.
    pub workers: u32,
    /// Bytes of a frame, check sequence included.
    pub frame_bytes: u32,
    /// Highest rate at which all connections came about and were validated, millions a second.
    pub establishment_m_per_s: f64,
    /// Every rate that was tried.
    pub establishment: Found,
    /// What generator and far end take of each packet, traffic both ways.
    #[serde(flatten)]
    pub generator: GeneratorCost,
    /// The generator alone, traffic from inside: of establishment and of throughput from inside.
    pub generator_from_inside: GeneratorCost,
    /// Highest rate both ways together without loss, all connections there, Mpps.
    pub throughput_both_mpps: f64,
    /// No rate that was tried lost anything: it is at least so much.
    pub throughput_both_is_at_least: bool,
    /// The same of packets from inside alone.
    pub throughput_out_mpps: f64,
    /// The same of it.
    pub throughput_out_is_at_least: bool,
    /// All connections deleted by management.
    pub tear_down: Phase,
    /// Translated packets verified bit by bit.
    pub packets_verified: u64,
    /// Every packet accounted for, nothing left in any table.
    pub ok: bool,
}

/// Runs the measurement.
pub fn rfc9693(args: &Rfc9693Args) -> Result<Rfc9693Report, BenchError> {
    let layout = Layout::for_sessions(args.sessions, 16, 1);
    let frame_bytes = args.frame.max(args.translation.frame_bytes_min());
    let instance = InstanceSpec {
        translation: args.translation,
        mode: args.mode,
        subscribers: layout.subscribers,
        ports: layout.ports,
        block: BLOCK,
        udp_s: 300,
        hold_s: 0,
        logged: Default::default(),
    };
    let sessions = layout.sessions();
    let spec = RigSpec { instance, layout, sessions, frame_bytes, tagged: false };
    let (mut crew, tsc) = (Crew::new(&spec, args.workers)?, Tsc::measure());
    let mut ok = true;
    let establishment = establish(&mut crew, tsc, &mut ok);
    crew.fill_all(tsc, true);
    let mut throughput = |crew: &mut Crew, both: bool| {
        let mut picks = crew.random(sessions);
        let most = crew.closed_loop(tsc, args.seconds.min(1.0), both, &mut picks).per_s();
        eprintln!("throughput, {}:", if both { "both ways" } else { "from inside" });
        zero_loss(crew, tsc, (most * 1.1, args.seconds, both), &mut picks, &mut ok)
    };
    let throughput_both = throughput(&mut crew, true);
    let throughput_out = throughput(&mut crew, false);
    let mut picks = crew.random(sessions);
    let [generator, generator_from_inside] = [true, false].map(|both| crew.generator(both, &mut picks));
    let tear_down = tear_down(&mut crew, tsc);
    ok &= tear_down.sessions == u64::from(sessions) && crew.expire_all() && crew.is_balanced();
    Ok(Rfc9693Report {
        scenario: "rfc9693",
        translation: args.translation.name(),
        mode: args.mode.name(),
        sessions,
        workers: crew.workers(),
        frame_bytes,
        establishment_m_per_s: establishment.rate / 1e6,
        establishment,
        generator,
        generator_from_inside,
        // Packets from inside and their answers.
        throughput_both_mpps: throughput_both.rate * 2.0 / 1e6,
        throughput_both_is_at_least: throughput_both.is_at_least(),
        throughput_out_mpps: throughput_out.rate / 1e6,
        throughput_out_is_at_least: throughput_out.is_at_least(),
        tear_down,
        packets_verified: crew.verified()?,
        ok,
    })
}

/// Maximum connection establishment rate: binary search, each rate with an empty table and then validated.
fn establish(crew: &mut Crew, tsc: Tsc, ok: &mut bool) -> Found {
    let most = crew.fill_all(tsc, false).per_s();
    *ok &= empty(crew);
    search(&Search::from(most * 1.1), |pps| {
        let outcome = crew.offer_each_once(tsc, pps, RING_PACKETS);
        *ok &= outcome.is_accounted();
        let (lost, missing) = (outcome.lost(), validate(crew, tsc));
        *ok &= empty(crew);
        eprintln!(
            "  {:>6.2} M connections/s: {} lost, {} not validated{}",
            pps / 1e6,
            grouped(lost),
            grouped(missing),
            if outcome.preemptions > 0 { ", disturbed" } else { "" }
        );
        Seen { offered: outcome.offered, lost: lost + missing, disturbed: outcome.preemptions > 0 }
    })
}

/// Phase 2: how many of the connections there are do not carry an answer to their subscriber, or were not there before.
fn validate(crew: &mut Crew, tsc: Tsc) -> u64 {
    let (before, dropped) = (crew.sessions(), crew.dropped());
    crew.fill_all(tsc, true);
    (crew.sessions() - before) + (crew.dropped() - dropped)
}

/// Connection tear-down: all of them deleted by management, nothing else asked of the workers.
fn tear_down(crew: &mut Crew, tsc: Tsc) -> Phase {
    let mut nothing = vec![(); crew.workers() as usize];
    let phases = crew.each(&mut nothing, |rig, ()| {
        let (start, sessions) = (Moment::now(), rig.sessions());
        rig.delete_all();
        Phase::since(&start, sessions - rig.sessions(), tsc)
    });
    Phase::together(&phases)
}

/// Empties the table for the next rate.
fn empty(crew: &mut Crew) -> bool {
    let mut nothing = vec![(); crew.workers() as usize];
    crew.each(&mut nothing, |rig, ()| rig.delete_all() && rig.expire_all())
        .into_iter()
        .all(|is_empty| is_empty)
}

impl Rfc9693Report {
    /// For people.
    pub fn print(&self) {
        println!(
            "RFC 9693: {}, {}, {} connections, {}-byte frames, {}",
            self.translation.to_uppercase(),
            self.mode,
            grouped(self.sessions.into()),
            self.frame_bytes,
            if self.workers == 1 { "one worker".into() } else { format!("{} workers", self.workers) }
        );
        println!();
        let line = |name: &str, value: String| println!("  {name:<40}{value}");
        let rate = |rate: f64, unit: &str, is_at_least: bool| {
            format!("{}{rate:.2} {unit}", if is_at_least { "at least " } else { "" })
        };
        line(
            "maximum connection establishment rate",
            rate(self.establishment_m_per_s, "M/s", self.establishment.is_at_least()),
        );
        line(
            "throughput, both ways",
            rate(self.throughput_both_mpps, "Mpps", self.throughput_both_is_at_least),
        );
        line(
            "throughput, from inside",
            rate(self.throughput_out_mpps, "Mpps", self.throughput_out_is_at_least),
        );
        line("of these the generator, from inside", self.generator_from_inside.line());
        line("generator and far end, both ways", self.generator.line());
        line(
            "connection tear-down rate",
            format!("{:.2} M/s ({:.2} s for all)", self.tear_down.m_per_s, self.tear_down.seconds),
        );
        line("verified bit by bit", grouped(self.packets_verified));
        line("all as it must be", if self.ok { "yes" } else { "NO" }.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_made_validated_and_torn_down_and_nothing_is_left() {
        for (translation, workers) in
            [(Translation::Nat44, 1), (Translation::Nat44, 2), (Translation::Nat64, 1)]
        {
            let args = Rfc9693Args {
                translation,
                mode: Mode::Pba,
                sessions: 20_000,
                frame: 84,
                workers,
                seconds: 0.02,
                json: false,
            };
            let report = rfc9693(&args).unwrap();
            assert!(report.ok, "{report:#?}");
            assert_eq!(report.tear_down.sessions, 20_000);
            // Every connection is offered once at each rate, and some rate is slow enough for any machine.
            assert!(report.establishment.trials.iter().all(|trial| trial.offered == 20_000), "{report:#?}");
            assert!(report.establishment.rate > 0.0, "{report:#?}");
        }
    }

    #[test]
    fn a_connection_that_is_missing_is_not_validated() {
        let spec = RigSpec::small(1_024, 1, 0);
        let (mut crew, tsc) = (Crew::new(&spec, 1).unwrap(), Tsc::measure());
        crew.fill(tsc, 1_000, false);
        assert_eq!(validate(&mut crew, tsc), 24);
        assert_eq!(validate(&mut crew, tsc), 0);
        assert!(empty(&mut crew));
        assert_eq!(crew.sessions(), 0);
    }
}
