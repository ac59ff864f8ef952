//! Which processors the machine has, which of them this process may use, and whether a configuration asks for others.

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;

use carrack_config::{Config, Diagnostic, Severity};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Processors by number, displayed as the kernel writes them: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Processors(Vec<RangeInclusive<u16>>);

/// The processors that a daemon may be given here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableCpus {
    /// What the machine has and uses.
    machine: Processors,
    /// What a cpuset, a container's mostly, leaves of them to this process, where it leaves less.
    cpuset: Option<Processors>,
}

impl UsableCpus {
    /// As the kernel tells; `None` where it does not.
    #[must_use]
    pub fn here() -> Option<Self> {
        let machine = Processors::read(Path::new(ONLINE))?;
        let cpuset = Processors::of_cpuset().filter(|left| *left != machine);
        Some(Self { machine, cpuset })
    }

    /// A message for each processor that the configuration names and that is not among these, at its place in the file:
    /// errors for a daemon that is about to start, warnings for a file that may be meant for another machine.
    #[must_use]
    pub fn missing(&self, config: &Config, severity: Severity) -> Vec<Diagnostic> {
        let hint = match severity {
            Severity::Error => "; choose among those, or leave the key out",
            Severity::Warning => ": a daemon does not start here with it; is the file for another machine?",
        };
        let mut all = Vec::new();
        for (key, cpu) in config.cpus() {
            let what = match &self.cpuset {
                _ if !self.machine.has(cpu.value) => format!("this machine has CPUs {}", self.machine),
                Some(left) if !left.has(cpu.value) => {
                    format!("the cpuset of this process leaves it CPUs {left} of {}", self.machine)
                }
                _ => continue,
            };
            all.push(config.about(severity, cpu, format!("{key} has CPU {cpu}, and {what}{hint}")));
        }
        all
    }
}

impl Processors {
    /// Those that the kernel leaves of all when a thread asks for all: cpusets bound that, of either version and at any depth;
    /// what this process was started with (`taskset`) does not.
    fn of_cpuset() -> Option<Self> {
        let ask = || {
            let mut all = CpuSet::new();
            (0..CpuSet::count()).try_for_each(|cpu| all.set(cpu)).ok()?;
            sched_setaffinity(Pid::from_raw(0), &all).ok()?;
            let left = sched_getaffinity(Pid::from_raw(0)).ok()?;
            Some(Self::of(
                (0..CpuSet::count() as u16).filter(|cpu| left.is_set(usize::from(*cpu)) == Ok(true)),
            ))
        };
        // A thread of its own, so that nobody else runs elsewhere afterwards.
        std::thread::spawn(ask).join().ok()?.filter(|left| !left.0.is_empty())
    }

    /// These, in rising order.
    fn of(all: impl Iterator<Item = u16>) -> Self {
        let mut ranges: Vec<RangeInclusive<u16>> = Vec::new();
        for cpu in all {
            match ranges.last_mut() {
                Some(last) if *last.end() + 1 == cpu => *last = *last.start()..=cpu,
                _ => ranges.push(cpu..=cpu),
            }
        }
        Self(ranges)
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
    fn has(&self, processor: u16) -> bool {
        self.0.iter().any(|range| range.contains(&processor))
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
