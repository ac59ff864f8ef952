//! `carrack bench latency`: how long a packet takes through the pipeline at a share of the capacity.

use clap::Args;
use serde::Serialize;

use crate::clock::Tsc;
use crate::forward::{BenchError, pin};
use crate::generator::Translation;
use crate::generator_cost::GeneratorCost;
use crate::layout::Layout;
use crate::offered::{Load, Outcome, Random, closed_loop, fill, offer};
use crate::options::{number, seconds, stateful};
use crate::rig::{Rig, RigSpec};
use crate::world::{InstanceSpec, Mode};
use carrack_base::text::grouped;

/// Options of `bench latency`.
#[derive(Debug, Clone, Args)]
pub struct LatencyArgs {
    /// What is translated
    #[arg(long, value_parser = stateful(), default_value = "nat44")]
    pub translation: Translation,
    /// Load as a share of the capacity, which is measured first
    #[arg(long, default_value = "50%", value_parser = percent, allow_negative_numbers = true)]
    pub load: f64,
    /// Sessions in the tables
    #[arg(long, default_value_t = 1_000_000, value_parser = number::<u32>(64..=100_000_000), allow_negative_numbers = true)]
    pub sessions: u32,
    /// Bytes of a frame, check sequence included
    #[arg(long, default_value_t = 64, value_parser = number::<u32>(64..=1_522), allow_negative_numbers = true)]
    pub frame: u32,
    /// Seconds to measure
    #[arg(long, default_value_t = 10.0, value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// "50%" or "50": percent, above 0 and at most 100. Below 1 only with its sign, for 0.5 may be meant as a half.
pub fn percent(text: &str) -> Result<f64, String> {
    let (number, has_sign) = text.strip_suffix('%').map_or((text, false), |number| (number, true));
    let value = number.trim().parse::<f64>().ok().filter(|value| *value > 0.0 && *value <= 100.0);
    match value {
        Some(value) if value < 1.0 && !has_sign => Err(format!("write {}% or {value}%", value * 100.0)),
        Some(value) => Ok(value),
        None => Err("it is a percentage above 0% and at most 100%, such as 50%".into()),
    }
}

/// Times of packets, microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Latency {
    /// The shortest.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// Half of the packets took at most this.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// All.
    pub max_us: f64,
}

impl Latency {
    /// Of what was measured.
    pub fn of(outcome: &Outcome, tsc: Tsc) -> Self {
        let times = &outcome.latency;
        if times.total() == 0 {
            return Self::default();
        }
        let mean = outcome.latency_sum as f64 / times.total() as f64;
        Self {
            min_us: tsc.us(outcome.latency_min),
            mean_us: mean / tsc.hz * 1e6,
            p50_us: tsc.us(times.quantile(0.5)),
            p99_us: tsc.us(times.quantile(0.99)),
            p999_us: tsc.us(times.quantile(0.999)),
            max_us: tsc.us(times.max()),
        }
    }
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct LatencyReport {
    /// Always `latency`.
    pub scenario: &'static str,
    /// What was translated.
    pub translation: &'static str,
    /// Sessions in the tables.
    pub sessions: u64,
    /// Bytes of a frame, check sequence included.
    pub frame_bytes: u32,
    /// Million packets a second when there is always a full burst waiting.
    pub capacity_mpps: f64,
    /// Processor cycles (TSC) a packet at that rate, generator included.
    pub capacity_cycles_per_packet: f64,
    /// Of those, what the generator takes.
    #[serde(flatten)]
    pub generator: GeneratorCost,
    /// Share of it that was offered, percent.
    pub load_percent: f64,
    /// Million packets a second offered, evenly spaced.
    pub offered_mpps: f64,
    /// Packets measured.
    pub packets: u64,
    /// Packets that did not arrive.
    pub packets_lost: u64,
    /// Due time to transmit queue.
    #[serde(flatten)]
    pub latency: Latency,
    /// How often the kernel ran something else meanwhile; what waited is in the figures.
    pub preemptions: u64,
    /// Translated packets verified bit by bit.
    pub packets_verified: u64,
    /// No packet lost, every one accounted for.
    pub ok: bool,
}

/// Runs the measurement.
pub fn latency(args: &LatencyArgs) -> Result<LatencyReport, BenchError> {
    let layout = Layout::for_sessions(args.sessions, 16, 4);
    let instance = InstanceSpec {
        translation: args.translation,
        mode: Mode::Pba,
        subscribers: layout.subscribers,
        ports: layout.ports,
        block: 256,
        udp_s: 30_000,
        hold_s: 120,
        logged: Default::default(),
    };
    let spec = RigSpec {
        instance,
        layout,
        sessions: args.sessions,
        frame_bytes: args.frame.max(args.translation.frame_bytes_min()),
        tagged: false,
    };
    pin(0);
    let (tsc, mut rig) = (Tsc::measure(), Rig::new(&spec)?);
    fill(&mut rig, tsc, 0, args.sessions, false);
    let mut picks = Random::new(args.sessions);
    closed_loop(&mut rig, tsc, (args.seconds * 0.05).min(0.5), false, &mut picks);
    let capacity = closed_loop(&mut rig, tsc, (args.seconds * 0.2).min(2.0), false, &mut picks);
    let generator = GeneratorCost::measure(&mut rig, false, &mut picks);
    let pps = capacity.per_s() * args.load / 100.0;
    let load = Load::lasting(pps, args.seconds, false, u64::MAX);
    let outcome = offer(&mut rig, tsc, load, &mut picks);
    Ok(LatencyReport {
        scenario: "latency",
        translation: args.translation.name(),
        sessions: rig.sessions(),
        frame_bytes: spec.frame_bytes,
        capacity_mpps: capacity.m_per_s,
        capacity_cycles_per_packet: capacity.cycles_per_session,
        generator,
        load_percent: args.load,
        offered_mpps: pps / 1e6,
        packets: outcome.latency.total(),
        packets_lost: outcome.lost(),
        latency: Latency::of(&outcome, tsc),
        preemptions: outcome.preemptions,
        packets_verified: rig.verified()?,
        ok: outcome.lost() == 0 && outcome.is_accounted() && rig.sessions() == u64::from(args.sessions),
    })
}

impl LatencyReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "{} latency, {} sessions in random order, {}-byte frames",
            self.translation.to_uppercase(),
            grouped(self.sessions),
            self.frame_bytes
        );
        println!();
        let line = |name: &str, value: String| println!("  {name:<26}{value}");
        line(
            "capacity",
            format!(
                "{:>8.2} Mpps, {:.0} cycles a packet",
                self.capacity_mpps, self.capacity_cycles_per_packet
            ),
        );
        line("  of which the generator", self.generator.line());
        line(
            "offered, evenly spaced",
            format!("{:>8.2} Mpps   ({} %)", self.offered_mpps, self.load_percent),
        );
        for (name, us) in [
            ("shortest", self.latency.min_us),
            ("mean", self.latency.mean_us),
            ("p50", self.latency.p50_us),
            ("p99", self.latency.p99_us),
            ("p99.9", self.latency.p999_us),
            ("longest", self.latency.max_us),
        ] {
            line(name, format!("{us:>8.1} us"));
        }
        line("packets", format!("{}, {} lost", grouped(self.packets), grouped(self.packets_lost)));
        line("kernel ran others", format!("{} times", grouped(self.preemptions)));
        line("verified bit by bit", grouped(self.packets_verified));
        line("all as it must be", if self.ok { "yes" } else { "NO" }.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_a_percentage() {
        assert_eq!((percent("50%"), percent("12.5")), (Ok(50.0), Ok(12.5)));
        for text in ["0%", "101", "half", "50%%", "-10%", "nan"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!((percent("0.5%"), percent("0.5")), (Ok(0.5), Err("write 50% or 0.5%".into())));
    }

    #[test]
    fn at_a_low_load_nothing_is_lost_and_quantiles_are_in_order() {
        for translation in [Translation::Nat44, Translation::Nat64] {
            let args = LatencyArgs {
                translation,
                load: 10.0,
                sessions: 1_024,
                frame: 64,
                seconds: 0.2,
                json: false,
            };
            let report = latency(&args).unwrap();
            let Latency { min_us, p50_us, p99_us, p999_us, max_us, .. } = report.latency;
            assert!(report.ok && report.packets > 0, "{report:#?}");
            assert!(
                min_us > 0.0 && p50_us <= p99_us && p99_us <= p999_us && p999_us <= max_us,
                "{report:#?}"
            );
        }
    }
}
