//! How fast the cycle counter runs, and whether somebody else had the processor meanwhile.

use std::time::{Duration, Instant};

use carrack_tables::cycles;
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::histogram::Histogram;

/// The cycle counter's rate.
#[derive(Debug, Clone, Copy)]
pub struct Tsc {
    /// Cycles a second.
    pub hz: f64,
}

impl Tsc {
    /// Measures it for 50 ms; the shortest pair of readings of many keeps interruptions out.
    pub fn measure() -> Self {
        let from = Self::reading();
        std::thread::sleep(Duration::from_millis(50));
        let to = Self::reading();
        let seconds = to.1.duration_since(from.1).as_secs_f64();
        Self { hz: to.0.wrapping_sub(from.0) as f64 / seconds }
    }

    fn reading() -> (u64, Instant) {
        let mut best = (u64::MAX, 0, Instant::now());
        for _ in 0..100 {
            let before = cycles();
            let instant = Instant::now();
            let after = cycles();
            if after.wrapping_sub(before) < best.0 {
                best = (after.wrapping_sub(before), before + (after - before) / 2, instant);
            }
        }
        (best.1, best.2)
    }

    /// Cycles as microseconds.
    pub fn us(&self, cycles: u64) -> f64 {
        cycles as f64 / self.hz * 1e6
    }

    /// Cycles as seconds.
    pub fn s(&self, cycles: u64) -> f64 {
        cycles as f64 / self.hz
    }

    /// Cycles in so many seconds.
    pub fn cycles_in(&self, seconds: f64) -> u64 {
        (seconds * self.hz) as u64
    }
}

/// Seconds of processor time this thread has had.
pub fn cpu_s() -> f64 {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// A moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    cycles: u64,
    cpu_s: f64,
}

impl Moment {
    /// Now.
    pub fn now() -> Self {
        Self { cycles: cycles(), cpu_s: cpu_s() }
    }

    /// Cycles since.
    pub fn cycles(&self) -> u64 {
        cycles().wrapping_sub(self.cycles)
    }

    /// Seconds of processor time since.
    pub fn cpu_s(&self) -> f64 {
        cpu_s() - self.cpu_s
    }
}

/// How often the kernel took the processor away from this thread, since it started.
pub fn preemptions() -> u64 {
    getrusage(UsageWho::RUSAGE_THREAD).map_or(0, |usage| usage.involuntary_context_switches() as u64)
}

/// Durations of bursts. Those during which the kernel ran something else are counted apart: they say nothing about the
/// router.
pub struct BurstMeter {
    times: Histogram,
    disturbed: Histogram,
    /// Only bursts longer than this are worth asking the kernel about.
    suspicious: u64,
    preemptions: u64,
}

/// What a [`BurstMeter`] says, microseconds.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct BurstTimes {
    /// Bursts measured.
    pub bursts: u64,
    /// Half of them took at most this.
    pub p50_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    pub p999_us: f64,
    /// All.
    pub max_us: f64,
    /// Bursts not among those above: the kernel gave the processor to somebody else meanwhile.
    pub preempted: u64,
    /// The longest of these.
    pub preempted_max_us: f64,
}

impl BurstTimes {
    /// Of each time the longer one, of bursts of two workers at the same time.
    pub fn or(&self, other: &Self) -> Self {
        Self {
            bursts: self.bursts + other.bursts,
            p50_us: self.p50_us.max(other.p50_us),
            p99_us: self.p99_us.max(other.p99_us),
            p999_us: self.p999_us.max(other.p999_us),
            max_us: self.max_us.max(other.max_us),
            preempted: self.preempted + other.preempted,
            preempted_max_us: self.preempted_max_us.max(other.preempted_max_us),
        }
    }
}

impl BurstMeter {
    /// An empty one.
    pub fn new(tsc: Tsc) -> Self {
        Self {
            times: Histogram::default(),
            disturbed: Histogram::default(),
            suspicious: tsc.cycles_in(50e-6),
            preemptions: preemptions(),
        }
    }

    /// Counts a burst of so many cycles.
    #[inline(always)]
    pub fn add(&mut self, cycles: u64) {
        if cycles > self.suspicious {
            self.add_suspicious(cycles);
        } else {
            self.times.add(cycles);
        }
    }

    #[cold]
    fn add_suspicious(&mut self, cycles: u64) {
        let now = preemptions();
        if std::mem::replace(&mut self.preemptions, now) == now {
            self.times.add(cycles);
        } else {
            self.disturbed.add(cycles);
        }
    }

    /// The figures.
    pub fn times(&self, tsc: Tsc) -> BurstTimes {
        BurstTimes {
            bursts: self.times.total(),
            p50_us: tsc.us(self.times.quantile(0.5)),
            p99_us: tsc.us(self.times.quantile(0.99)),
            p999_us: tsc.us(self.times.quantile(0.999)),
            max_us: tsc.us(self.times.max()),
            preempted: self.disturbed.total(),
            preempted_max_us: tsc.us(self.disturbed.max()),
        }
    }
}

impl BurstTimes {
    /// For people.
    pub fn line(&self) -> String {
        let mut line = format!(
            "p50 {:>6.1}  p99 {:>6.1}  p99.9 {:>6.1}  max {:>7.1} us",
            self.p50_us, self.p99_us, self.p999_us, self.max_us
        );
        if self.preempted > 0 {
            line += &format!("  (+ {} preempted, max {:.0} us)", self.preempted, self.preempted_max_us);
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cycle_counter_agrees_with_the_clock() {
        let tsc = Tsc::measure();
        let off_by = || {
            let (start, from) = (Instant::now(), cycles());
            std::thread::sleep(Duration::from_millis(100));
            let (seconds, counted) = (start.elapsed().as_secs_f64(), cycles() - from);
            (tsc.s(counted) / seconds - 1.0).abs()
        };
        // Who is interrupted between the two readings has to read again.
        let off: Vec<f64> = (0..5).map(|_| off_by()).collect();
        assert!(off.iter().any(|off| *off < 0.05), "{off:?}");
    }
}
