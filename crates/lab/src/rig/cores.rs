//! Who runs on which CPU: the worker under test alone, as long as there are two.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;

/// CPUs of a laboratory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cores {
    /// The daemon's worker.
    pub worker: u16,
    /// The generator.
    pub generator: u16,
    /// The reflector.
    pub reflector: u16,
}

impl Cores {
    /// Spreads over the CPUs that this process may use.
    pub fn choose() -> Result<Cores> {
        let status = fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        Cores::spread(&parse(list.unwrap_or("0")))
    }

    fn spread(cpus: &[u16]) -> Result<Cores> {
        let first = *cpus.first().context("this process may use no CPU")?;
        let second = cpus.get(1).copied().unwrap_or(first);
        Ok(Cores { worker: first, generator: second, reflector: cpus.get(2).copied().unwrap_or(second) })
    }

    /// Whether generator and reflector have to share one CPU.
    pub fn shared(self) -> bool {
        self.generator == self.reflector
    }

    /// For people.
    pub fn describe(self) -> String {
        let Cores { worker, generator, reflector } = self;
        if worker == generator {
            format!("everything on CPU {worker}")
        } else if self.shared() {
            format!("carrack's worker on CPU {worker}, generator and reflector together on CPU {generator}")
        } else {
            format!("carrack's worker on CPU {worker}, generator on {generator}, reflector on {reflector}")
        }
    }
}

/// A list such as `0-2,5`.
fn parse(list: &str) -> Vec<u16> {
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse::<u16>().ok()?..=last.trim().parse().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_has_a_cpu_of_its_own_as_soon_as_there_are_two() {
        assert_eq!(parse("0-2,5\n"), [0, 1, 2, 5]);
        for (list, expected) in [("3", (3, 3, 3)), ("0-1", (0, 1, 1)), ("2-7", (2, 3, 4))] {
            let Cores { worker, generator, reflector } = Cores::spread(&parse(list)).unwrap();
            assert_eq!((worker, generator, reflector), expected, "{list}");
        }
        assert!(Cores::spread(&[]).is_err());
    }
}
