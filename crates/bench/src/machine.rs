//! `carrack bench machine`: what the memory of this machine allows, to put every other figure in proportion.

use std::hint::black_box;

use carrack_nat::Rng;
use carrack_tables::{Arena, ArenaArray, PageKind, PagePreference, cycles, prefetch};
use clap::Args;
use serde::Serialize;

use crate::clock::Tsc;
use crate::forward::{BenchError, pin};
use crate::memory;

/// Prefetches in flight that are tried.
const DEPTHS: [usize; 6] = [1, 4, 8, 16, 32, 64];
/// Each figure is the better quartile of so many short slices: others on the machine only make it slower.
const SLICES: usize = 160;
/// Accesses of a slice.
const SLICE: usize = 4_096;

/// Options of `bench machine`.
#[derive(Debug, Clone, Args)]
pub struct MachineArgs {
    /// Smaller sizes, for a quick look
    #[arg(long)]
    pub quick: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One cache line.
type Line = [u64; 8];

/// Time of one access whose address the one before it gave.
#[derive(Debug, Clone, Serialize)]
pub struct Dependent {
    /// What the size stands for: `L2`, `L3` or `memory`.
    pub level: &'static str,
    /// Bytes gone about in.
    pub bytes: u64,
    /// Pages asked for and got.
    pub pages: String,
    /// Nanoseconds an access.
    pub ns: f64,
}

/// Lines a second at random, so many on their way at once.
#[derive(Debug, Clone, Serialize)]
pub struct Independent {
    /// Bytes gone about in.
    pub bytes: u64,
    /// Pages asked for and got.
    pub pages: String,
    /// Prefetches in flight.
    pub depth: usize,
    /// Millions of lines a second.
    pub m_lines_per_s: f64,
    /// The same when each is changed, and so goes back as well.
    pub m_lines_changed_per_s: f64,
}

/// What follows for a router.
#[derive(Debug, Clone, Serialize)]
pub struct Bound {
    /// Pages behind the tables.
    pub pages: String,
    /// What is done: `packet` reads its lines, `new session` changes them.
    pub what: &'static str,
    /// Cold lines that it touches.
    pub lines: u32,
    /// Millions a second at most, with everything else free.
    pub m_per_s: f64,
    /// Cycles of each.
    pub cycles: f64,
}

/// Cold lines that a new session with a mapping of its own changes when they come in random order: two of each index,
/// those of session, mapping and subscriber, of a port and its block, and what leads to them.
const LINES_OF_A_SESSION: u32 = 11;

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct MachineReport {
    /// Always `machine`.
    pub scenario: &'static str,
    /// What the processor calls itself.
    pub processor: String,
    /// Processors this process may use.
    pub processors: usize,
    /// The cycle counter, MHz.
    pub tsc_mhz: f64,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Of it to be had.
    pub memory_available_bytes: u64,
    /// Dependent accesses.
    pub dependent: Vec<Dependent>,
    /// Independent accesses.
    pub independent: Vec<Independent>,
    /// Bounds.
    pub bounds: Vec<Bound>,
}

/// Runs the probe.
pub fn machine(args: &MachineArgs) -> Result<MachineReport, BenchError> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    pin(0);
    let tsc = Tsc::measure();
    let largest: usize = if args.quick { 256 << 20 } else { 1 << 30 };
    // A power of two, for the ring.
    let largest = largest.min(1 << (memory::available() / 2).max(1 << 27).ilog2());
    let (mut dependent, mut independent, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
    for preference in [PagePreference::Small, PagePreference::Huge] {
        for (level, bytes) in [("L2", 1 << 20), ("L3", 64 << 20), ("memory", largest)] {
            let (mut lines, pages) = lines(bytes, preference)?;
            dependent.push(Dependent {
                level,
                bytes: bytes as u64,
                pages: pages.clone(),
                ns: chase(&lines, tsc),
            });
            if bytes != largest {
                continue;
            }
            let (mut read, mut changed): (f64, f64) = (0.0, 0.0);
            for depth in DEPTHS {
                let rates = [false, true].map(|changes| scattered(&mut lines, depth, changes, tsc));
                (read, changed) = (read.max(rates[0]), changed.max(rates[1]));
                let (bytes, pages) = (bytes as u64, pages.clone());
                let [m_lines_per_s, m_lines_changed_per_s] = rates.map(|rate| rate / 1e6);
                independent.push(Independent { bytes, pages, depth, m_lines_per_s, m_lines_changed_per_s });
            }
            for (what, lines, rate) in
                [("packet", 2, read), ("packet", 3, read), ("new session", LINES_OF_A_SESSION, changed)]
            {
                let (m_per_s, cycles) = (rate / f64::from(lines) / 1e6, tsc.hz / rate * f64::from(lines));
                bounds.push(Bound { pages: pages.clone(), what, lines, m_per_s, cycles });
            }
        }
    }
    Ok(MachineReport {
        scenario: "machine",
        processor: processor(),
        processors,
        tsc_mhz: tsc.hz / 1e6,
        memory_bytes: memory::total(),
        memory_available_bytes: memory::available(),
        dependent,
        independent,
        bounds,
    })
}

/// Cycles of a slice: the better quartile.
fn quartile(mut slice: impl FnMut()) -> u64 {
    let mut taken = [0; SLICES];
    for taken in &mut taken {
        let start = cycles();
        slice();
        *taken = cycles().wrapping_sub(start);
    }
    taken.sort_unstable();
    // Invariant: a quarter of SLICES is below SLICES.
    taken[SLICES / 4]
}

/// A ring through all lines: each holds the number of the next, far from it.
fn lines(bytes: usize, preference: PagePreference) -> Result<(ArenaArray<Line>, String), BenchError> {
    let count = (bytes / size_of::<Line>()).next_power_of_two();
    let no_memory = |error| BenchError(format!("the probe needs {bytes} bytes: {error}"));
    let mut arena = Arena::new("probe", Arena::bytes_for::<Line>(count), preference).map_err(no_memory)?;
    let mut lines = arena.array::<Line>(count).map_err(no_memory)?;
    for (number, line) in lines.iter_mut().enumerate() {
        line[0] = next_of(number as u64, count as u64);
    }
    Ok((lines, page_name(arena.page_kind())))
}

/// A linear congruential generator with the full period of a power of two (Hull and Dobell): a permutation without a
/// pattern that a prefetcher follows.
const fn next_of(number: u64, count: u64) -> u64 {
    number.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f) & (count - 1)
}

/// "4K" and so on; small pages may be anything where the kernel makes all memory huge.
fn page_name(kind: PageKind) -> String {
    let always = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    match kind {
        PageKind::Huge1G => "1G",
        PageKind::Huge2M => "2M",
        PageKind::Transparent => "thp",
        PageKind::Small if always.contains("[always]") => "4K or thp",
        PageKind::Small => "4K",
    }
    .into()
}

/// Nanoseconds of an access whose address depends on the one before it.
fn chase(lines: &[Line], tsc: Tsc) -> f64 {
    let mut at = 0;
    let taken = quartile(|| {
        for _ in 0..SLICE {
            at = lines.get(at as usize).map_or(0, |line| line[0]);
        }
    });
    black_box(at);
    tsc.s(taken) / SLICE as f64 * 1e9
}

/// Lines a second, each asked for `depth` accesses before it is read, and changed if so.
fn scattered(lines: &mut [Line], depth: usize, changes: bool, tsc: Tsc) -> f64 {
    let (mut rng, mut asked) = (Rng::new(depth as u64), [0usize; 64]);
    let asked = asked.get_mut(..depth.clamp(1, 64)).unwrap_or(&mut []);
    let rounds = SLICE / asked.len().max(1);
    let mut sum = 0u64;
    let taken = quartile(|| {
        for _ in 0..rounds {
            for place in asked.iter_mut() {
                if let Some(line) = lines.get_mut(*place) {
                    sum = sum.wrapping_add(line[1]);
                    if changes {
                        line[1] = sum;
                    }
                }
                *place = ((u128::from(rng.next_u64()) * lines.len() as u128) >> 64) as usize;
                if let Some(line) = lines.get(*place) {
                    prefetch(line);
                }
            }
        }
    });
    black_box(sum);
    (rounds * asked.len()) as f64 / tsc.s(taken)
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown");
    name.trim_start_matches(['\t', ' ', ':']).trim().to_owned()
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 30 { format!("{} GiB", bytes >> 30) } else { format!("{} MiB", bytes >> 20) }
}

impl MachineReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "{}, {} processors, cycle counter {:.0} MHz, {:.1} of {:.1} GB memory to be had",
            self.processor,
            self.processors,
            self.tsc_mhz,
            self.memory_available_bytes as f64 / 1e9,
            self.memory_bytes as f64 / 1e9
        );
        println!("\nDependent random access");
        println!("  {:<10}{:>10}{:>12}{:>10}{:>10}", "LEVEL", "SIZE", "PAGES", "NS", "CYCLES");
        for row in &self.dependent {
            let cycles = row.ns * self.tsc_mhz / 1e3;
            println!(
                "  {:<10}{:>10}{:>12}{:>10.1}{:>10.0}",
                row.level,
                size(row.bytes),
                row.pages,
                row.ns,
                cycles
            );
        }
        println!("\nIndependent random lines, by prefetches in flight");
        println!(
            "  {:<10}{:>10}{:>12}{:>14}{:>20}",
            "IN FLIGHT", "SIZE", "PAGES", "M LINES/S", "M LINES CHANGED/S"
        );
        for row in &self.independent {
            println!(
                "  {:<10}{:>10}{:>12}{:>14.1}{:>20.1}",
                row.depth,
                size(row.bytes),
                row.pages,
                row.m_lines_per_s,
                row.m_lines_changed_per_s
            );
        }
        println!("\nWhat that allows one core, with everything else free");
        println!(
            "  {:<10}{:<14}{:>12}{:>12}{:>10}",
            "PAGES", "OF EACH", "COLD LINES", "M A SECOND", "CYCLES"
        );
        for row in &self.bounds {
            let Bound { pages, what, lines, m_per_s, cycles } = row;
            println!("  {pages:<10}{what:<14}{lines:>12}{m_per_s:>12.1}{cycles:>10.0}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_goes_through_every_line() {
        for count in [2u64, 64, 4_096] {
            let (mut at, mut seen) = (0, vec![false; count as usize]);
            for _ in 0..count {
                at = next_of(at, count);
                seen[at as usize] = true;
            }
            assert!(at == 0 && seen.iter().all(|seen| *seen), "{count}");
        }
    }

    #[test]
    fn a_probe_gives_times_that_a_machine_can_have() {
        let tsc = Tsc::measure();
        let (mut lines, _) = lines(4 << 20, PagePreference::Small).unwrap();
        let ns = chase(&lines, tsc);
        assert!(ns > 0.1 && ns < 1e5, "{ns} ns");
        for depth in DEPTHS {
            for changes in [false, true] {
                let rate = scattered(&mut lines, depth, changes, tsc);
                assert!(rate > 1e4 && rate < 1e11, "{rate} lines a second, {depth} in flight");
            }
        }
    }
}
