//! `carrack bench machine`: what the memory of this machine allows, to put every other figure in proportion.

mod lookup;

use std::hint::black_box;

use carrack_nat::Rng;
use carrack_tables::{Arena, ArenaArray, PageKind, PagePreference, cycles, prefetch};
use clap::Args;
use serde::Serialize;

use crate::clock::Tsc;
use crate::forward::{BenchError, pin};
use crate::memory;
use crate::progress::Progress;
pub use lookup::Lookup;

/// Prefetches in flight that are tried.
const DEPTHS: [usize; 6] = [1, 4, 8, 16, 32, 64];
/// Those with which sizes are compared: more gain nothing anywhere.
const DEPTH: usize = 32;
/// Sizes of tables that are compared, the last one as large as fits: about 100 bytes a session.
const SIZES: [usize; 5] = [64 << 20, 256 << 20, 1 << 30, 4 << 30, 16 << 30];
/// The smallest of them whose bounds are told: one to three million sessions.
const SIZE_MIN_OF_BOUNDS: usize = 256 << 20;
/// Lines gone about in at a time where they are near each other: those of a large page.
const NEAR: usize = (2 << 20) / size_of::<Line>();
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

/// Lines a second at random that are changed, by the size of what they are in.
#[derive(Debug, Clone, Serialize)]
pub struct Sized {
    /// Bytes gone about in.
    pub bytes: u64,
    /// Pages asked for and got.
    pub pages: String,
    /// Millions of lines a second, any line after any other.
    pub m_lines_per_s: f64,
    /// The same of lines that are near each other, 2 MiB at a time, the next 2 MiB anywhere: as cold, but their addresses are
    /// translated at once. Where this is much more, translation binds, in virtual machines above all: the host's pages may
    /// be small where the guest's are large.
    pub m_lines_near_per_s: f64,
}

/// What follows for a router.
#[derive(Debug, Clone, Serialize)]
pub struct Bound {
    /// Bytes of its tables.
    pub bytes: u64,
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
    /// Independent accesses by size.
    pub sizes: Vec<Sized>,
    /// Bounds.
    pub bounds: Vec<Bound>,
    /// Finding sessions and nothing else.
    pub lookups: Vec<Lookup>,
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
            let mut most: f64 = 0.0;
            for depth in DEPTHS {
                let everywhere = lines.len();
                let rates =
                    [false, true].map(|changes| scattered(&mut lines, everywhere, depth, changes, tsc));
                most = most.max(rates[1]);
                let (bytes, pages) = (bytes as u64, pages.clone());
                let [m_lines_per_s, m_lines_changed_per_s] = rates.map(|rate| rate / 1e6);
                independent.push(Independent { bytes, pages, depth, m_lines_per_s, m_lines_changed_per_s });
            }
            if preference == PagePreference::Small {
                bounds.extend(bounds_of(bytes, &pages, most, tsc));
            }
        }
    }
    let sizes = by_size(if args.quick { largest } else { usize::MAX }, tsc)?;
    for Sized { bytes, pages, m_lines_per_s, .. } in &sizes {
        if *bytes >= SIZE_MIN_OF_BOUNDS as u64 {
            bounds.extend(bounds_of(*bytes as usize, pages, m_lines_per_s * 1e6, tsc));
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
        sizes,
        bounds,
        lookups: lookup::lookups(args.quick, tsc)?,
    })
}

/// What so many lines a second allow.
fn bounds_of(bytes: usize, pages: &str, rate: f64, tsc: Tsc) -> impl Iterator<Item = Bound> {
    let each = [("packet", 2), ("new session", LINES_OF_A_SESSION)];
    each.into_iter().map(move |(what, lines)| {
        let cold = f64::from(lines);
        let (m_per_s, cycles) = (rate / cold / 1e6, tsc.hz / rate * cold);
        Bound { bytes: bytes as u64, pages: pages.to_owned(), what, lines, m_per_s, cycles }
    })
}

/// Lines a second in parts of one array on large pages, of at most `bytes_max` and half of the memory to be had.
fn by_size(bytes_max: usize, tsc: Tsc) -> Result<Vec<Sized>, BenchError> {
    let fits = 1 << (memory::available() / 2).max(1 << 27).ilog2();
    let largest = bytes_max.min(fits).min(SIZES[SIZES.len() - 1]);
    let (mut lines, pages) = lines(largest, PagePreference::Huge)?;
    let smaller = SIZES.into_iter().filter(|bytes| *bytes < largest);
    let sizes = smaller.chain([largest]).map(|bytes| {
        let end = (bytes / size_of::<Line>()).min(lines.len());
        let part = lines.get_mut(..end).unwrap_or(&mut []);
        let [m_lines_per_s, m_lines_near_per_s] =
            [end, NEAR].map(|reach| scattered(part, reach, DEPTH, true, tsc) / 1e6);
        Sized { bytes: bytes as u64, pages: pages.clone(), m_lines_per_s, m_lines_near_per_s }
    });
    Ok(sizes.collect())
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
    let mut progress = Progress::new("filling the probe's memory", bytes as u64);
    for (number, line) in lines.iter_mut().enumerate() {
        line[0] = next_of(number as u64, count as u64);
        if number.is_multiple_of(1 << 16) {
            progress.at((number * size_of::<Line>()) as u64);
        }
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

/// Lines a second, each asked for `depth` accesses before it is read, and changed if so: those of a slice within `reach`
/// lines of each other, of all `lines`.
fn scattered(lines: &mut [Line], reach: usize, depth: usize, changes: bool, tsc: Tsc) -> f64 {
    let (mut rng, mut asked) = (Rng::new(depth as u64), [0usize; 64]);
    let asked = asked.get_mut(..depth.clamp(1, 64)).unwrap_or(&mut []);
    let rounds = SLICE / asked.len().max(1);
    let mut sum = 0u64;
    let mut any = |of: usize| rng.below(of);
    let taken = quartile(|| {
        let first = any(lines.len() / reach.max(1)) * reach;
        for _ in 0..rounds {
            for place in asked.iter_mut() {
                if let Some(line) = lines.get_mut(*place) {
                    sum = sum.wrapping_add(line[1]);
                    if changes {
                        line[1] = sum;
                    }
                }
                *place = first + any(reach);
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
    let (unit, name) = match bytes {
        0..0x10_0000 => (1 << 10, "KiB"),
        0x10_0000..0x4000_0000 => (1 << 20, "MiB"),
        _ => (1 << 30, "GiB"),
    };
    if bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        format!("{:.1} {name}", bytes as f64 / unit as f64)
    }
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
        println!(
            "\nIndependent random lines that are changed, {DEPTH} in flight, by the size of what they are in"
        );
        println!("  {:<10}{:>12}{:>14}{:>22}", "SIZE", "PAGES", "M LINES/S", "2 MIB AT A TIME");
        for row in &self.sizes {
            println!(
                "  {:<10}{:>12}{:>14.1}{:>22.1}",
                size(row.bytes),
                row.pages,
                row.m_lines_per_s,
                row.m_lines_near_per_s
            );
        }
        println!("\nWhat that allows one core, with everything else free, by the size of its tables");
        println!(
            "  {:<10}{:>12}  {:<14}{:>10}{:>12}{:>10}",
            "SIZE", "PAGES", "OF EACH", "COLD LINES", "M A SECOND", "CYCLES"
        );
        for row in &self.bounds {
            let Bound { bytes, pages, what, lines, m_per_s, cycles } = row;
            let size = size(*bytes);
            println!("  {size:<10}{pages:>12}  {what:<14}{lines:>10}{m_per_s:>12.1}{cycles:>10.0}");
        }
        println!(
            "\nPackets that find their sessions in bursts, bucket and then line, with nothing else done"
        );
        println!("  {:<12}{:>10}{:>12}{:>12}{:>10}", "SESSIONS", "SIZE", "PAGES", "M A SECOND", "CYCLES");
        for row in &self.lookups {
            let Lookup { sessions, bytes, pages, m_per_s, cycles } = row;
            let size = size(*bytes);
            println!("  {sessions:<12}{size:>10}{pages:>12}{m_per_s:>12.1}{cycles:>10.0}");
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
                for reach in [NEAR, lines.len()] {
                    let rate = scattered(&mut lines, reach, depth, changes, tsc);
                    assert!(rate > 1e4 && rate < 1e11, "{rate} lines a second, {depth} in flight");
                }
            }
        }
    }
}
