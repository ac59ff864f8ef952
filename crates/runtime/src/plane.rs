//! The pipeline's worker as the loop's data plane.

use carrack_base::counters::Accounts;
use carrack_base::{Now, PortId};
use carrack_frame::{Frame, FramePool};
use carrack_nat::GatewayCounts;
use carrack_pipeline::stats::{STAGES, StageStats};
use carrack_pipeline::{Worker, WorkerStats};

use crate::stats::Words;
use crate::worker_loop::DataPlane;

impl DataPlane for Worker {
    fn rx_buffer(&mut self) -> &mut Vec<Frame> {
        Worker::rx_buffer(self)
    }

    fn process(&mut self, now: Now, port: PortId, pool: &mut dyn FramePool) {
        Worker::process(self, now, port, pool);
    }

    fn background(&mut self, now: Now, pool: &mut dyn FramePool) {
        Worker::background(self, now, pool);
    }

    fn tx(&mut self, port: PortId) -> Option<&mut Vec<Frame>> {
        Worker::tx(self, port)
    }

    fn tx_failed(&mut self, port: PortId, now: Now) {
        Worker::tx_failed(self, port, now);
    }

    fn done(&mut self, pool: &mut dyn FramePool) {
        Worker::done(self, pool);
    }

    fn goes_on(&self) -> bool {
        self.is_preparing() || self.is_deleting() || self.nat().is_behind()
    }

    fn accounts(&mut self) -> &Accounts {
        Worker::accounts(self)
    }

    fn write_stats(&mut self, out: &mut Vec<u64>) {
        write_stats(Worker::stats(self), out);
    }
}

fn write_stats(stats: &WorkerStats, out: &mut Vec<u64>) {
    let WorkerStats {
        bursts,
        packets,
        burst_sizes,
        stages,
        events_lost,
        captures_lost,
        sessions,
        sessions_deleted,
        mappings,
        subscribers,
        gateways,
    } = stats;
    out.extend_from_slice(&[*bursts, *packets, *events_lost, *captures_lost]);
    out.extend_from_slice(&[*sessions, *sessions_deleted, *mappings, *subscribers]);
    out.extend_from_slice(burst_sizes);
    for StageStats { packets, cycles } in stages {
        out.extend_from_slice(&[*packets, *cycles]);
    }
    gateways.iter().for_each(|counts| out.extend_from_slice(counts));
}

/// Words that [`DataPlane::write_stats`] writes.
pub(crate) const STATS_WORDS: usize =
    8 + 7 + 2 * STAGES.len() + size_of::<GatewayCounts>() / size_of::<u64>();

pub(crate) fn read_stats(words: &mut Words<'_>) -> WorkerStats {
    let [bursts, packets, events_lost, captures_lost] = words.take();
    let [sessions, sessions_deleted, mappings, subscribers] = words.take();
    let burst_sizes = words.take();
    let stages = std::array::from_fn(|_| {
        let [packets, cycles] = words.take();
        StageStats { packets, cycles }
    });
    let gateways: GatewayCounts = std::array::from_fn(|_| words.take());
    let figures = WorkerStats { bursts, packets, burst_sizes, stages, ..WorkerStats::default() };
    let figures = WorkerStats { events_lost, captures_lost, gateways, ..figures };
    WorkerStats { sessions, sessions_deleted, mappings, subscribers, ..figures }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_survive_the_board() {
        let figures = WorkerStats { bursts: 1, packets: 2, burst_sizes: [3; 7], ..WorkerStats::default() };
        let figures = WorkerStats { events_lost: 4, captures_lost: 5, sessions: 6, ..figures };
        let mut stats = WorkerStats { sessions_deleted: 7, mappings: 8, subscribers: 9, ..figures };
        stats.stages.fill(StageStats { packets: 10, cycles: 11 });
        stats.gateways.iter_mut().for_each(|counts| counts.fill(12));
        let mut words = Vec::new();
        write_stats(&stats, &mut words);
        assert_eq!(words.len(), STATS_WORDS);
        assert_eq!(read_stats(&mut Words(&words)), stats);
    }
}
