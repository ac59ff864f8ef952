//! What the generator takes, apart from the router: every rate includes it, so it stands beside every rate.
//!
//! Cache misses are not counted: that takes performance counters, which virtual machines seldom have. What can be said
//! without them is how much memory the generator has to look into, and how many lines of it a packet takes.

use carrack_base::BURST_PACKETS_MAX;
use carrack_tables::cycles;
use serde::Serialize;

use crate::offered::Picks;
use crate::rig::Rig;
use carrack_base::text::grouped;

/// Packets of which the generator's share is measured, in so many rounds: the median one is not that in which the kernel
/// ran something else.
const PACKETS: u64 = 1 << 20;
const ROUNDS: usize = 16;

/// What the generator takes; with traffic both ways, generator and far end together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct GeneratorCost {
    /// Processor cycles (TSC) a packet that it takes alone, measured in the same run, part of every rate.
    #[serde(rename = "generator_cycles_per_packet")]
    pub cycles_per_packet: f64,
    /// Bytes of tables that it looks into, all workers; 0 when packets are computed from their numbers. Not part of any
    /// figure of the router's memory.
    #[serde(rename = "generator_table_bytes")]
    pub table_bytes: u64,
    /// Lines of these tables that it reads a packet, cold ones when the tables are larger than the caches.
    #[serde(rename = "generator_table_lines_per_packet")]
    pub lines_per_packet: f64,
}

impl GeneratorCost {
    /// Packets of these sessions are written, with `both` turned round at the far end, and thrown away.
    pub fn measure(rig: &mut Rig, both: bool, picks: &mut impl Picks) -> Self {
        let mut rounds = [0.0; ROUNDS];
        rounds.iter_mut().for_each(|round| *round = cycles_per_packet(rig, both, picks));
        rounds.sort_by(f64::total_cmp);
        let table_bytes = rig.generator_table_bytes();
        Self {
            cycles_per_packet: rounds.get(ROUNDS / 2).copied().unwrap_or_default(),
            table_bytes,
            // The far end has its answer from the packet.
            lines_per_packet: if table_bytes == 0 {
                0.0
            } else if both {
                0.5
            } else {
                1.0
            },
        }
    }

    /// Of several workers: the mean of their cycles and lines, the sum of their tables.
    pub fn together(costs: &[Self]) -> Self {
        let mean = |of: fn(&Self) -> f64| costs.iter().map(of).sum::<f64>() / costs.len().max(1) as f64;
        Self {
            cycles_per_packet: mean(|cost| cost.cycles_per_packet),
            table_bytes: costs.iter().map(|cost| cost.table_bytes).sum(),
            lines_per_packet: mean(|cost| cost.lines_per_packet),
        }
    }

    /// For people: cycles and tables.
    pub fn line(&self) -> String {
        format!("{:.1} cycles a packet, {}", self.cycles_per_packet, self.tables())
    }

    /// For people: its tables.
    pub fn tables(&self) -> String {
        if self.table_bytes == 0 {
            return "no tables: packets are computed".into();
        }
        let (bytes, lines) = (grouped(self.table_bytes), self.lines_per_packet);
        format!("{bytes} bytes of tables of its own, lines of them a packet: {lines}")
    }
}

/// One round.
fn cycles_per_packet(rig: &mut Rig, both: bool, picks: &mut impl Picks) -> f64 {
    let mut numbers = [0; BURST_PACKETS_MAX];
    let (start, mut packets) = (cycles(), 0);
    while packets < PACKETS / ROUNDS as u64 {
        numbers.iter_mut().for_each(|number| *number = picks.pick());
        packets += rig.generate(&numbers, both).max(1) as u64;
    }
    cycles().wrapping_sub(start) as f64 / packets as f64
}

#[cfg(test)]
mod tests {
    use crate::crew::Crew;
    use crate::rig::RigSpec;

    #[test]
    fn one_worker_computes_its_packets_and_several_look_up_whose_they_are() {
        let spec = RigSpec::small(4_096, 1, 0);
        for (workers, bytes, lines) in [(1, 0, [1.0, 0.5]), (2, 256 * 4, [1.0, 0.5])] {
            let mut crew = Crew::new(&spec, workers).unwrap();
            for (both, lines) in [false, true].into_iter().zip(lines) {
                let mut picks = crew.random(4_096);
                let cost = crew.generator(both, &mut picks);
                assert!(cost.cycles_per_packet > 0.0, "{cost:?}");
                assert_eq!(cost.table_bytes, bytes, "{workers} workers, {cost:?}");
                assert_eq!(cost.lines_per_packet, if bytes == 0 { 0.0 } else { lines }, "{cost:?}");
            }
            // Nothing of it reached the router.
            assert_eq!((crew.sessions(), crew.dropped()), (0, 0));
            assert!(crew.is_balanced());
        }
    }
}
