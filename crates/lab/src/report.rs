//! The demonstration's report, for people and as JSON.

use std::io::{IsTerminal, Write};

pub(crate) use carrack_base::text::grouped as number;
use serde::Serialize;

use crate::checks::{Exhibit, Outcome};

/// A whole demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What routed.
    pub router: String,
    /// Each check in order.
    pub checks: Vec<Outcome>,
    /// Whether nothing was left behind; the error when something was.
    pub tidy: Result<(), String>,
    /// What the daemon showed.
    pub exhibits: Vec<Exhibit>,
    /// Wall time from nothing to nothing, seconds.
    pub seconds: f64,
    /// Whether it was broken off.
    pub interrupted: bool,
}

impl Report {
    /// Whether everything passed and nothing is left.
    pub fn passed(&self) -> bool {
        !self.interrupted
            && self.tidy.is_ok()
            && !self.checks.is_empty()
            && self.checks.iter().all(|check| check.passed)
    }

    /// The closing lines: failures in full, then the sum.
    pub fn closing(&self) -> String {
        let mut text = String::new();
        for check in self.checks.iter().filter(|check| !check.passed) {
            text.push_str(&format!("\n✗ {}\n{}\n", check.name, indent(&check.failure, 3)));
        }
        if let Err(left) = &self.tidy {
            text.push_str(&format!("\n✗ nothing left behind\n{}\n", indent(left, 3)));
        }
        let passed = self.checks.iter().filter(|check| check.passed).count();
        let ending = if self.interrupted {
            "broken off; everything was taken down"
        } else if self.passed() {
            "all passed; nothing is left behind"
        } else {
            "NOT everything passed"
        };
        text.push_str(&format!(
            "\n{passed} of {} checks passed in {:.1} s: {ending}.\n",
            self.checks.len(),
            self.seconds
        ));
        text
    }
}

/// Width of the names' column.
const NAME_WIDTH: usize = 33;

/// One line for a check.
pub fn line(outcome: &Outcome, colour: bool) -> String {
    let (mark, on, off) = match (outcome.passed, colour) {
        (true, true) => ("✓", "\x1b[32m", "\x1b[0m"),
        (false, true) => ("✗", "\x1b[31m", "\x1b[0m"),
        (true, false) => ("✓", "", ""),
        (false, false) => ("✗", "", ""),
    };
    format!("  {on}{mark}{off} {:<NAME_WIDTH$} {:>5.2} s  {}", outcome.name, outcome.seconds, outcome.detail)
}

/// Whether standard output shows colours.
pub fn colour() -> bool {
    std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// An exhibit, its output cut to `lines_max` lines.
pub fn exhibit(exhibit: &Exhibit, lines_max: usize) -> String {
    let mut text = format!("\n{}\n  $ {}\n", exhibit.title, exhibit.command);
    let lines: Vec<&str> = exhibit.output.lines().collect();
    for line in lines.iter().take(lines_max) {
        text.push_str(&format!("  {line}\n"));
    }
    if lines.len() > lines_max {
        text.push_str(&format!("  … {} more lines\n", lines.len() - lines_max));
    }
    text
}

/// Prints without failing when nobody reads any more.
pub fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}

/// Millions a second, two places.
pub(crate) fn mpps(pps: f64) -> String {
    format!("{:.2}", pps / 1e6)
}

fn indent(text: &str, by: usize) -> String {
    let margin = " ".repeat(by);
    text.lines().map(|line| format!("{margin}{line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
