//! Open-loop load: packets fall due at a given rate whether the router keeps up or not.
//!
//! Each packet has a due time. A burst takes what is due, at most 64; what waits longer is measured longer (no
//! coordinated omission), and what finds the receive ring full is lost, as it would be at a NIC.

use carrack_base::BURST_PACKETS_MAX;
use carrack_nat::Rng;
use carrack_tables::cycles;

use crate::clock::{Moment, Tsc, preemptions};
use crate::forward::difference;
use crate::histogram::Histogram;
use crate::rig::Rig;
use crate::setup::Phase;

/// Packets a NIC's receive ring holds.
pub const RING_PACKETS: u64 = 4_096;

/// A load.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Packets a second from inside.
    pub pps: f64,
    /// So many of them.
    pub packets: u64,
    /// The far end answers each.
    pub both: bool,
    /// Packets that may wait before more are lost; `u64::MAX` loses none.
    pub ring: u64,
}

impl Load {
    /// At this rate for so long.
    pub fn lasting(pps: f64, seconds: f64, both: bool, ring: u64) -> Self {
        Self { pps, packets: (pps * seconds) as u64, both, ring }
    }
}

/// What became of it.
#[derive(Default)]
pub struct Outcome {
    /// Packets that fell due, answers included.
    pub offered: u64,
    /// Packets that left the router at their side.
    pub arrived: u64,
    /// Packets that found the receive ring full.
    pub missed: u64,
    /// Packets the router dropped.
    pub dropped: u64,
    /// Due time to transmit queue of packets from inside, cycles.
    pub latency: Histogram,
    /// Their sum, for the mean.
    pub latency_sum: u128,
    /// The shortest of them.
    pub latency_min: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// How often the kernel ran something else meanwhile.
    pub preemptions: u64,
    /// The accounts balanced.
    pub is_balanced: bool,
}

impl Outcome {
    /// With what became of another worker's part of the load, at the same time.
    pub fn and(mut self, other: Self) -> Self {
        self.offered += other.offered;
        self.arrived += other.arrived;
        self.missed += other.missed;
        self.dropped += other.dropped;
        self.latency.add_all(&other.latency);
        self.latency_sum += other.latency_sum;
        self.latency_min = self.latency_min.min(other.latency_min);
        self.seconds = self.seconds.max(other.seconds);
        self.preemptions += other.preemptions;
        self.is_balanced &= other.is_balanced;
        self
    }

    /// Packets that did not arrive.
    pub const fn lost(&self) -> u64 {
        self.offered - self.arrived
    }

    /// Is each of the lost packets one that the ring or the router counts?
    pub const fn is_accounted(&self) -> bool {
        self.is_balanced && self.lost() == self.missed + self.dropped
    }
}

/// Which packets come next.
pub trait Picks {
    /// The next session's number.
    fn pick(&mut self) -> u32;
}

/// Any session, uniformly.
pub struct Random {
    rng: Rng,
    sessions: u32,
}

impl Random {
    /// Of sessions 0 to `sessions` - 1.
    pub fn new(sessions: u32) -> Self {
        Self { rng: Rng::new(0x0ffe_4ed0), sessions }
    }
}

impl Picks for Random {
    #[inline(always)]
    fn pick(&mut self) -> u32 {
        (((self.rng.next_u64() >> 32) * u64::from(self.sessions)) >> 32) as u32
    }
}

impl Picks for crate::layout::Walk {
    #[inline(always)]
    fn pick(&mut self) -> u32 {
        Self::pick(self)
    }
}

/// Offers the load.
pub fn offer(rig: &mut Rig, tsc: Tsc, load: Load, picks: &mut impl Picks) -> Outcome {
    let interval = tsc.hz / load.pps.max(1.0);
    let ns_per_cycle = 1e9 / tsc.hz;
    let per_cycle = load.pps.max(1.0) / tsc.hz;
    let total = load.packets;
    let mut numbers = [0; BURST_PACKETS_MAX];
    let before = rig.accounts().clone();
    let preempted = preemptions();
    let mut outcome = Outcome { latency_min: u64::MAX, ..Outcome::default() };
    let (first, mut next, started) = (cycles(), 0, rig.now);
    while next < total {
        let elapsed = cycles().wrapping_sub(first);
        rig.now = started.plus_ns((elapsed as f64 * ns_per_cycle) as u64);
        let due = ((elapsed as f64 * per_cycle) as u64 + 1).min(total);
        let waiting = due - next;
        if waiting == 0 {
            rig.idle();
            continue;
        }
        let missed = waiting.saturating_sub(load.ring);
        outcome.missed += missed;
        outcome.offered += missed;
        next += missed;
        let packets = (waiting - missed).min(BURST_PACKETS_MAX as u64);
        let burst = numbers.get_mut(..packets as usize).unwrap_or(&mut []);
        burst.iter_mut().for_each(|number| *number = picks.pick());
        outcome.offered += rig.receive(burst) as u64;
        let done = rig.process().done_at.wrapping_sub(first);
        for packet in next..next + packets {
            let latency = done.saturating_sub((packet as f64 * interval) as u64);
            outcome.latency.add(latency);
            outcome.latency_sum += u128::from(latency);
            outcome.latency_min = outcome.latency_min.min(latency);
        }
        if load.both {
            let (answers, arrived) = rig.reflect(burst);
            outcome.offered += answers as u64;
            outcome.arrived += (answers + arrived) as u64;
        } else {
            outcome.arrived += rig.collect(burst) as u64;
        }
        rig.drain();
        next += packets;
    }
    outcome.seconds = tsc.s(cycles().wrapping_sub(first));
    outcome.preemptions = preemptions() - preempted;
    outcome.dropped = difference(rig.accounts(), &before).dropped();
    outcome.is_balanced = rig.is_balanced();
    outcome
}

/// How fast the router takes packets from inside when there is always a full burst waiting.
pub fn closed_loop(rig: &mut Rig, tsc: Tsc, seconds: f64, both: bool, picks: &mut impl Picks) -> Phase {
    let mut numbers = [0; BURST_PACKETS_MAX];
    let (start, end, mut packets) = (Moment::now(), tsc.cycles_in(seconds), 0u64);
    let started = rig.now;
    loop {
        for _ in 0..64 {
            numbers.iter_mut().for_each(|number| *number = picks.pick());
            rig.turn(&numbers, both);
            packets += numbers.len() as u64;
        }
        rig.drain();
        let elapsed = start.cycles();
        rig.now = started.plus_ns((tsc.s(elapsed) * 1e9) as u64);
        if elapsed >= end {
            return Phase::since(&start, packets, tsc);
        }
    }
}

/// Makes all sessions of the rig's layout from number `from` to before `to`, as fast as it goes.
pub fn fill(rig: &mut Rig, tsc: Tsc, from: u32, to: u32, both: bool) -> Phase {
    let mut numbers = [0; BURST_PACKETS_MAX];
    let mut progress = crate::progress::Progress::new("making sessions", u64::from(to - from));
    let (start, mut next) = (Moment::now(), from);
    let before = rig.sessions();
    while next < to {
        for _ in 0..256 {
            let packets = (to - next).min(BURST_PACKETS_MAX as u32);
            let burst = numbers.get_mut(..packets as usize).unwrap_or(&mut []);
            for number in burst.iter_mut() {
                *number = next;
                next += 1;
            }
            rig.turn(burst, both);
        }
        rig.drain();
        progress.at(u64::from(next - from));
    }
    Phase::since(&start, rig.sessions() - before, tsc)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::RigSpec;

    pub fn small_rig() -> Rig {
        let mut rig = Rig::new(&RigSpec { frame_bytes: 64, ..RigSpec::small(1_024, 4, 4) }).unwrap();
        fill(&mut rig, Tsc::measure(), 0, 1_024, false);
        rig
    }

    #[test]
    fn a_load_far_below_what_the_router_can_arrives_whole_and_one_far_above_loses_what_is_counted() {
        let (mut rig, tsc) = (small_rig(), Tsc::measure());
        let mut picks = Random::new(1_024);
        let low = Load::lasting(20_000.0, 0.1, true, u64::MAX);
        let outcome = offer(&mut rig, tsc, low, &mut picks);
        assert_eq!((outcome.offered, outcome.lost()), (4_000, 0));
        let high = Load::lasting(1e9, 0.05, true, RING_PACKETS);
        let outcome = offer(&mut rig, tsc, high, &mut picks);
        assert!(outcome.missed > 10_000_000 && outcome.is_accounted(), "{} missed", outcome.missed);
    }

    #[test]
    fn a_packet_that_starts_late_is_late_by_all_that_it_waited() {
        let (mut rig, tsc) = (small_rig(), Tsc::measure());
        // Ten times what any machine does: the last packets wait for nearly all the time it takes.
        let load = Load { pps: 2e8, packets: 1_000_000, both: false, ring: u64::MAX };
        let outcome = offer(&mut rig, tsc, load, &mut Random::new(1_024));
        let (took, longest) = (outcome.seconds, tsc.s(outcome.latency.max()));
        assert!(longest > (took - 0.005) * 0.9, "took {took} s, longest {longest} s");
        assert_eq!(outcome.latency.total(), 1_000_000);
    }
}
