//! Which processors the machine has, and whether a configuration asks for others.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use carrack_config::{Config, Diagnostic, Severity};

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Processors by number, displayed as the kernel writes them: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Processors(Vec<RangeInclusive<u16>>);

impl Processors {
    /// Those of this machine that are in use; `None` where the kernel does not tell.
    #[must_use]
    pub fn online() -> Option<Self> {
        Self::read(Path::new(ONLINE))
    }

    fn read(file: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(file).ok()?)
    }

    fn parse(list: &str) -> Option<Self> {
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some(first.parse().ok()?..=last.parse().ok()?)
        };
        list.trim().split(',').map(range).collect::<Option<_>>().map(Self)
    }

    /// Is this one of them?
    #[must_use]
    pub fn has(&self, processor: u16) -> bool {
        self.0.iter().any(|range| range.contains(&processor))
    }

    /// A message for each processor that the configuration names and that is not among these, at its place in the file:
    /// errors for a daemon that is about to start, warnings for a file that may be meant for another machine.
    #[must_use]
    pub fn missing(&self, config: &Config, severity: Severity) -> Vec<Diagnostic> {
        let hint = match severity {
            Severity::Error => "; choose among those, or leave the key out",
            Severity::Warning => ": a daemon does not start here with it; is the file for another machine?",
        };
        let missing = config.cpus().filter(|(_, cpu)| !self.has(cpu.value));
        missing
            .map(|(key, cpu)| {
                config.about(
                    severity,
                    cpu,
                    format!("{key} has CPU {cpu}, and this machine has CPUs {self}{hint}"),
                )
            })
            .collect()
    }
}

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, range) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            match (range.start(), range.end()) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}
