//! Instructions a packet, counted by callgrind: the same on a busy machine as on a quiet one, so that a regression of the
//! packet path is seen where times are only noise.
//!
//! Each case runs twice with different numbers of packets. The difference of the two counts divided by the difference of
//! the packets leaves start and end out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Where the baseline is.
pub const BASELINE_PATH: &str = "benches/instructions.toml";
/// Growth that fails, percent.
const GROWTH_MAX_PERCENT: f64 = 3.0;
/// Packets of the two runs: whole turns of the benches' loops, 256 bursts of 64.
const PACKETS: [u64; 2] = [2 * TURN, 8 * TURN];
const TURN: u64 = 256 * 64;

/// What is counted: name, arguments of `carrack bench`.
const CASES: [(&str, &[&str]); 13] = [
    (FORWARD, &["forward", "--sessions", "1000", "--direction", "out"]),
    (GATEWAYS, &["forward", "--sessions", "1000", "--direction", "out", "--gateways"]),
    ("forward-in", &["forward", "--sessions", "1000", "--direction", "in"]),
    ("nat64-out", &["forward", "--translation", "nat64", "--sessions", "1000", "--direction", "out"]),
    ("nat64-in", &["forward", "--translation", "nat64", "--sessions", "1000", "--direction", "in"]),
    ("siit-out", &["forward", "--translation", "siit", "--sessions", "1000", "--direction", "out"]),
    ("siit-in", &["forward", "--translation", "siit", "--sessions", "1000", "--direction", "in"]),
    ("setup-pba", &["setup", "--mode", "pba", "--sessions", "20000"]),
    ("setup-pba-logged", &["setup", "--mode", "pba", "--sessions", "20000", "--log", "sessions"]),
    ("setup-nat64", &["setup", "--translation", "nat64", "--sessions", "20000"]),
    ("setup-arbitrary", &["setup", "--mode", "arbitrary", "--sessions", "20000"]),
    ("setup-deterministic", &["setup", "--mode", "deterministic", "--sessions", "20000"]),
    ("setup-static", &["setup", "--mode", "static", "--sessions", "20000"]),
];

/// The same traffic without gateways, and with all of them switched on: whoever uses none pays nothing.
const FORWARD: &str = "forward-out";
const GATEWAYS: &str = "forward-out-gateways";

/// Counts by case.
pub type Counts = BTreeMap<String, f64>;

/// The committed counts.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Baseline {
    /// Version of the compiler they were made with.
    pub compiler: String,
    /// Instructions a packet (or a new session).
    pub instructions_per_packet: Counts,
}

impl Baseline {
    /// From the file's text.
    pub fn parse(text: &str) -> Result<Self> {
        toml::from_str(text).context("the baseline is not what `instructions --write` writes")
    }

    /// The file's text.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "# Instructions a packet (forward) or a new session (setup), generator included, as callgrind counts them.\n\
             # Written by: cargo run --release -p carrack-xtask -- instructions --write\n",
        );
        let _ = writeln!(text, "compiler = \"{}\"\n\n[instructions_per_packet]", self.compiler);
        for (case, count) in &self.instructions_per_packet {
            let _ = writeln!(text, "{case} = {count:.1}");
        }
        text
    }
}

/// What a comparison says.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// A table for people.
    pub table: String,
    /// Cases that grew too much, or are missing on one side.
    pub problems: Vec<String>,
}

/// Compares counts with the baseline. Those of another compiler are shown and fail nothing: it chooses other
/// instructions for the same program.
pub fn compare(baseline: &Baseline, counts: &Counts, compiler: &str) -> Comparison {
    let mut table = format!("{:<22}{:>12}{:>12}{:>10}\n", "CASE", "BASELINE", "NOW", "CHANGE");
    let mut problems = Vec::new();
    for (case, now) in counts {
        let Some(before) = baseline.instructions_per_packet.get(case) else {
            let _ = writeln!(table, "{case:<22}{:>12}{now:>12.1}{:>10}", "-", "new");
            problems.push(format!("{case} is not in the baseline"));
            continue;
        };
        let change = (now / before - 1.0) * 100.0;
        let word = match change {
            c if c > GROWTH_MAX_PERCENT => "  too many",
            c if c < -GROWTH_MAX_PERCENT => "  better: write the baseline anew",
            _ => "",
        };
        let _ = writeln!(table, "{case:<22}{before:>12.1}{now:>12.1}{change:>+9.1}%{word}");
        if change > GROWTH_MAX_PERCENT {
            problems.push(format!("{case}: {change:+.1} %, {GROWTH_MAX_PERCENT} % are the limit"));
        }
    }
    for case in baseline.instructions_per_packet.keys().filter(|case| !counts.contains_key(*case)) {
        problems.push(format!("{case} is in the baseline but not measured"));
    }
    if baseline.compiler != compiler {
        let _ = writeln!(
            table,
            "The baseline was made with rustc {}, this is {compiler}: differences fail nothing. Write it anew.",
            baseline.compiler
        );
        problems.clear();
    }
    if let (Some(off), Some(on)) = (counts.get(FORWARD), counts.get(GATEWAYS))
        && on / off - 1.0 > GROWTH_MAX_PERCENT / 100.0
    {
        problems.push(format!("{GATEWAYS}: {on:.1}, {GROWTH_MAX_PERCENT} % above {FORWARD} are the limit"));
    }
    Comparison { table, problems }
}

/// Builds the bench and counts every case.
pub fn measure(root: &Path) -> Result<Counts> {
    let bench = build(root)?;
    let mut counts = Counts::new();
    for (case, arguments) in CASES {
        let [few, many] = PACKETS;
        let more = count(&bench, arguments, many)? - count(&bench, arguments, few)?;
        counts.insert(case.into(), more / (many - few) as f64);
        eprintln!("{case}: counted");
    }
    Ok(counts)
}

/// The version of the compiler in use, without what its packager adds.
pub fn compiler() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("running rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().nth(1).map(str::to_owned).context("rustc says no version")
}

fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--release", "--locked", "-p", "carrack-bench", "--example", "bench"])
        .current_dir(root)
        .status()
        .context("running cargo")?;
    if !status.success() {
        bail!("the bench does not build");
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(root.join(target).join("release/examples/bench"))
}

/// All instructions of one run.
fn count(bench: &Path, arguments: &[&str], packets: u64) -> Result<f64> {
    let out = std::env::temp_dir().join(format!("carrack-callgrind-{}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(bench)
        .args(arguments)
        .args(["--json", "--packets", &packets.to_string()])
        .output()
        .context("running valgrind: is it installed? `make setup` does that")?;
    let profile = std::fs::read_to_string(&out).unwrap_or_default();
    // Nothing to be done about a file that is not there.
    let _ = std::fs::remove_file(&out);
    if !output.status.success() {
        bail!("{} failed under valgrind:\n{}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    total(&profile).context("callgrind wrote no total")
}

/// The sum that a callgrind profile ends with.
fn total(profile: &str) -> Option<f64> {
    let line =
        profile.lines().find_map(|l| l.strip_prefix("totals:").or_else(|| l.strip_prefix("summary:")))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn baseline(count: f64) -> Baseline {
        let instructions_per_packet = Counts::from([("forward-out".into(), count)]);
        Baseline { compiler: "1.95.0".into(), instructions_per_packet }
    }

    fn counts(count: f64) -> Counts {
        baseline(count).instructions_per_packet
    }

    #[test]
    fn growth_above_three_percent_fails_and_less_does_not() {
        let compared = |now| compare(&baseline(400.0), &counts(now), "1.95.0");
        assert!(compared(411.0).problems.is_empty());
        assert_eq!(compared(413.0).problems, ["forward-out: +3.2 %, 3 % are the limit"]);
        assert!(
            compared(300.0).problems.is_empty() && compared(300.0).table.contains("write the baseline anew")
        );
    }

    #[test]
    fn a_case_on_one_side_only_is_a_problem() {
        let other = Counts::from([("other".into(), 1.0)]);
        assert_eq!(compare(&baseline(1.0), &other, "1.95.0").problems.len(), 2);
    }

    #[test]
    fn another_compiler_fails_nothing_and_says_so() {
        let compared = compare(&baseline(400.0), &counts(800.0), "1.96.0");
        assert!(compared.problems.is_empty() && compared.table.contains("rustc 1.95.0, this is 1.96.0"));
    }

    #[test]
    fn gateways_may_not_cost_others_more_than_three_percent() {
        let compared = |on| {
            let mut counts = counts(400.0);
            counts.insert(GATEWAYS.into(), on);
            let baseline = Baseline { instructions_per_packet: counts.clone(), ..baseline(400.0) };
            compare(&baseline, &counts, "1.96.0").problems
        };
        assert!(compared(411.0).is_empty());
        assert_eq!(compared(413.0), ["forward-out-gateways: 413.0, 3 % above forward-out are the limit"]);
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        assert_eq!(Baseline::parse(&baseline(412.5).text()).unwrap(), baseline(412.5));
        assert!(Baseline::parse("compiler = 1").is_err());
    }

    #[test]
    fn a_profile_ends_with_its_total() {
        assert_eq!(total("fn=(1) main\n16 3\nsummary: 12345 \n"), Some(12_345.0));
        assert_eq!(total("nothing"), None);
    }
}
