//! The published tests, by name: their scenarios, their method, their figures beside ours.

pub mod bison;
pub mod eantc;
pub mod paper;

use clap::Args;
use serde::Serialize;

use crate::clock::Tsc;
use crate::crew::Crew;
use crate::forward::BenchError;
use crate::generator_cost::GeneratorCost;
use crate::memory;
use crate::offered::{Load, Picks, RING_PACKETS};
use crate::options::{number, seconds};
use crate::rfc2544::{Found, Search, Seen, search};
use crate::rig::RigSpec;
use carrack_base::text::grouped;

/// Options of a published test.
#[derive(Debug, Clone, Args)]
pub struct LabArgs {
    /// Scaled down to a few seconds: shows that it runs, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Seconds of each trial
    #[arg(long, value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: Option<f64>,
    /// Most sessions, where the published number takes too long or too much memory
    #[arg(long, value_parser = number::<u32>(1_024..=100_000_000), allow_negative_numbers = true)]
    pub sessions: Option<u32>,
    /// Workers, each on a processor of its own with a generator of its own
    #[arg(long, default_value_t = 1, value_parser = number::<u8>(1..=16), allow_negative_numbers = true)]
    pub workers: u8,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl LabArgs {
    /// Seconds of a trial: what was asked for, else `full`, else a tenth for a quick look.
    pub fn trial_s(&self, full: f64) -> f64 {
        self.seconds.unwrap_or(if self.quick { 0.1 } else { full })
    }
}

/// One figure beside its published one.
#[derive(Debug, Clone, Serialize)]
pub struct Kpi {
    /// What is measured: no other row of the report has this name.
    pub name: String,
    /// For people it is a detail of the row above.
    #[serde(skip)]
    is_detail: bool,
    /// Unit of all figures in the row.
    pub unit: &'static str,
    /// As published, the whole machine.
    pub published: f64,
    /// The same of one of its processors; of a time or a size, the same as published.
    pub published_per_core: f64,
    /// Ours, all workers.
    pub ours: f64,
    /// No rate that was tried lost anything: ours is at least so much.
    pub is_at_least: bool,
    /// Ours, of one of them, each with a processor of its own; of a time or a size, the same.
    pub ours_per_core: f64,
    /// Ours, all workers, when there is always a full burst waiting, where that differs from what is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_loop: Option<f64>,
    /// Of a rate of packets: what the generator takes of each of ours, and with answers the far end.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub generator: Option<GeneratorCost>,
    /// How many times better ours is, of one processor; below 1 is worse. `null` when ours is 0 and less is better: then
    /// it is as good as can be.
    pub ratio: Option<f64>,
}

impl Kpi {
    /// A rate, which grows with processors: more is better. `cores` are the published machine's and our workers.
    pub fn rate(
        name: impl Into<String>,
        unit: &'static str,
        published: f64,
        cores: (u32, u32),
        ours: f64,
    ) -> Self {
        let published_per_core = published / f64::from(cores.0);
        let ours_per_core = ours / f64::from(cores.1.max(1));
        let ratio = Some(ours_per_core / published_per_core);
        Self {
            name: name.into(),
            is_detail: false,
            unit,
            published,
            published_per_core,
            ours,
            is_at_least: false,
            ours_per_core,
            closed_loop: None,
            generator: None,
            ratio,
        }
    }

    /// A time or a size: less is better, and processors make no difference.
    pub fn cost(name: impl Into<String>, unit: &'static str, published: f64, ours: f64) -> Self {
        let ratio = (ours > 0.0).then(|| published / ours);
        Self {
            name: name.into(),
            is_detail: false,
            unit,
            published,
            published_per_core: published,
            ours,
            is_at_least: false,
            ours_per_core: ours,
            closed_loop: None,
            generator: None,
            ratio,
        }
    }

    /// How many times better, for people.
    fn better(&self) -> String {
        self.ratio.map_or("best".into(), |ratio| format!("{} x", figure(ratio)))
    }

    /// Of the rate that a search found; `value` has its unit.
    pub fn found(
        name: impl Into<String>,
        unit: &'static str,
        published: f64,
        cores: (u32, u32),
        (found, value): (&Found, f64),
    ) -> Self {
        Self { is_at_least: found.is_at_least(), ..Self::rate(name, unit, published, cores, value) }
    }

    /// As a detail of the row above, for people.
    pub fn detail(self) -> Self {
        Self { is_detail: true, ..self }
    }

    /// With what it is when there is always a full burst waiting.
    pub fn with_closed_loop(self, closed_loop: f64) -> Self {
        Self { closed_loop: Some(closed_loop), ..self }
    }

    /// With what the generator takes of each packet.
    pub fn with_generator(self, generator: GeneratorCost) -> Self {
        Self { generator: Some(generator), ..self }
    }
}

/// What a published test gave here.
#[derive(Debug, Clone, Serialize)]
pub struct LabReport {
    /// `eantc`, `paper` or `bison`.
    pub scenario: &'static str,
    /// What was translated here; the published test may have used another.
    pub translation: &'static str,
    /// What was published, in a sentence.
    pub published: &'static str,
    /// Sessions of the published scenario.
    pub sessions_published: u32,
    /// Sessions here.
    pub sessions: u32,
    /// Workers here.
    pub workers: u32,
    /// What differs from the published test, and why.
    pub differences: Vec<String>,
    /// The figures.
    pub kpis: Vec<Kpi>,
    /// Translated packets verified bit by bit.
    pub packets_verified: u64,
    /// Every packet accounted for.
    pub ok: bool,
}

impl LabReport {
    /// For people.
    pub fn print(&self) {
        println!("{}: {}", self.scenario, self.published);
        println!(
            "{} sessions and {} here, {} sessions there\n",
            grouped(self.sessions.into()),
            if self.workers == 1 { "one worker".into() } else { format!("{} workers", self.workers) },
            grouped(self.sessions_published.into())
        );
        println!(
            "  {:<41}{:<8}{:>10}{:>10}{:>10}{:>11}{:>11}{:>11}{:>10}",
            "KPI", "UNIT", "PUBLISHED", "PER CORE", "OURS", "PER CORE", "NEVER IDLE", "GENERATOR", "RATIO"
        );
        for kpi in &self.kpis {
            let closed_loop = kpi.closed_loop.map_or("-".into(), figure);
            let generator = kpi.generator.map_or("-".into(), |cost| figure(cost.cycles_per_packet));
            println!(
                "  {:<41}{:<8}{:>10}{:>10}{:>10}{:>11}{:>11}{:>11}{:>10}",
                if kpi.is_detail { format!("  {}", kpi.name) } else { kpi.name.clone() },
                kpi.unit,
                figure(kpi.published),
                figure(kpi.published_per_core),
                format!("{}{}", if kpi.is_at_least { ">=" } else { "" }, figure(kpi.ours)),
                figure(kpi.ours_per_core),
                closed_loop,
                generator,
                kpi.better()
            );
        }
        println!(
            "\n  OURS is all workers without any loss (a receive ring of {RING_PACKETS} packets each), generator and far end"
        );
        println!(
            "  included; NEVER IDLE the same with a full burst always waiting. GENERATOR is the processor cycles (TSC) a packet"
        );
        println!(
            "  that generator and far end take alone, measured in this run. RATIO is of one core to one core,"
        );
        println!("  `best` where ours is nothing of what should be little.");
        if self.kpis.iter().any(|kpi| kpi.is_at_least) {
            println!("  * `>=` is the highest rate tried; it lost nothing either");
        }
        if let Some(generator) = self.kpis.iter().find_map(|kpi| kpi.generator) {
            println!("  * the generator has {}", generator.tables());
        }
        for difference in &self.differences {
            println!("  * {difference}");
        }
        println!("  * {} packets verified bit by bit", grouped(self.packets_verified));
        println!("  * every packet accounted for: {}", if self.ok { "yes" } else { "NO" });
    }
}

/// Three digits that matter.
fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 || v == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The largest scale that memory allows: `make` gives the world of so many sessions. Says why when it is less.
fn fitting(
    published: u32,
    args: &LabArgs,
    quick: u32,
    make: impl Fn(u32) -> RigSpec,
) -> Result<(RigSpec, Option<String>), BenchError> {
    let wanted = if args.quick { quick } else { args.sessions.map_or(published, |most| most.min(published)) };
    let spec = make(wanted);
    if memory::check(&spec, args.workers).is_ok() {
        let why = (wanted < published).then(|| {
            let reason = if args.quick { "--quick" } else { "--sessions" };
            instead(&spec, published, reason)
        });
        return Ok((spec, why));
    }
    let (mut low, mut high) = (1_024, wanted);
    while high - low > wanted / 64 {
        let middle = low.midpoint(high);
        if memory::check(&make(middle), args.workers).is_ok() {
            low = middle;
        } else {
            high = middle;
        }
    }
    let fits = make(low);
    memory::check(&fits, args.workers)?;
    let reason = format!(
        "these need {:.1} GB of memory, {:.1} GB are to be had",
        memory::needed_by(&spec, args.workers) as f64 / 1e9,
        memory::available() as f64 / 1e9
    );
    let why = instead(&fits, published, &reason);
    Ok((fits, Some(why)))
}

/// Sessions as there are, which are whole subscribers' and so fewer than were asked for, and why not the published ones.
fn instead(spec: &RigSpec, published: u32, reason: &str) -> String {
    let sessions = spec.layout.sessions();
    format!("{} sessions instead of {}: {reason}", grouped(sessions.into()), grouped(published.into()))
}

/// Zero-loss rate over sessions that exist, packets a second from inside to all workers (RFC 2544 §26.1).
pub fn zero_loss<P: Picks + Send>(
    crew: &mut Crew,
    tsc: Tsc,
    (rate_max, seconds, both): (f64, f64, bool),
    picks: &mut [P],
    ok: &mut bool,
) -> Found {
    search(&Search::from(rate_max), |pps| {
        let outcome = crew.offer(tsc, Load::lasting(pps, seconds, both, RING_PACKETS), picks);
        *ok &= outcome.is_accounted();
        eprintln!(
            "  {:>8.3} Mpps: {} of {} lost{}",
            pps / 1e6,
            grouped(outcome.lost()),
            grouped(outcome.offered),
            if outcome.preemptions > 0 { ", disturbed" } else { "" }
        );
        Seen { offered: outcome.offered, lost: outcome.lost(), disturbed: outcome.preemptions > 0 }
    })
}

/// What disturbs every figure of a machine that is not ours alone.
fn note_on_preemption() -> String {
    "a trial with loss during which the kernel ran something else is repeated twice at most; on a shared machine rates \
     without any loss say more about the neighbours than about the router"
        .into()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_processor_and_above_one_is_better() {
        let rate = Kpi::rate("throughput", "Mpps", 84.0, (84, 1), 3.0);
        assert_eq!((rate.published_per_core, rate.ratio), (1.0, Some(3.0)));
        let two = Kpi::rate("throughput", "Mpps", 84.0, (84, 2), 5.0);
        assert_eq!((two.ours, two.ours_per_core, two.ratio), (5.0, 2.5, Some(2.5)));
        let time = Kpi::cost("latency", "us", 80.0, 20.0);
        assert_eq!((time.published_per_core, time.ratio), (80.0, Some(4.0)));
    }

    #[test]
    fn a_rate_at_which_nothing_was_lost_is_at_least_what_there_is() {
        let of = |rate_with_loss| {
            let found = Found { rate: 5e6, rate_with_loss, trials: Vec::new() };
            Kpi::found("throughput", "Mpps", 84.0, (84, 1), (&found, 5.0)).is_at_least
        };
        assert_eq!((of(None), of(Some(6e6))), (true, false));
    }

    /// Each figure can be asked for by its name.
    pub fn assert_named(report: &LabReport) {
        let names: std::collections::BTreeSet<_> = report.kpis.iter().map(|kpi| kpi.name.as_str()).collect();
        assert_eq!(names.len(), report.kpis.len(), "{names:?}");
        assert!(names.iter().all(|name| name.trim() == *name), "{names:?}");
    }

    #[test]
    fn no_loss_at_all_is_best_and_no_ratio() {
        let loss = Kpi::cost("loss under churn", "ppm", 0.385, 0.0);
        assert_eq!((loss.ratio, loss.better()), (None, "best".into()));
        assert_eq!(serde_json::to_value(&loss).unwrap()["ratio"], serde_json::Value::Null);
        assert_eq!(Kpi::cost("loss under churn", "ppm", 0.4, 0.8).better(), "0.50 x");
        // Nothing of what should be much is not good.
        assert_eq!(Kpi::rate("throughput", "Mpps", 24.0, (14, 1), 0.0).better(), "0.00 x");
    }

    #[test]
    fn figures_have_three_digits_that_matter() {
        assert_eq!([1_750.0, 23.456, 0.857, 0.0833].map(figure), ["1750", "23.5", "0.86", "0.0833"]);
    }
}
