//! What a worker measures of itself.

use carrack_nat::GatewayCounts;

/// The stages, in the order a packet takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    /// Headers checked, interface found, policed and punted.
    Parse = 0,
    /// Fragments get the ports of their first fragment.
    Fragments = 1,
    /// Packets of other workers' subscribers leave for them.
    Steer = 2,
    /// Session looked up or made, packet rewritten.
    Nat = 3,
    /// Route, neighbour, link header, transmit queue.
    Forward = 4,
    /// Drops counted and answered, frames given back.
    Finish = 5,
}

/// All stages, in order. THE list that a packet's way can be read from.
pub const STAGES: [(Stage, &str, &str); 6] = [
    (Stage::Parse, "parse", "checks headers, finds the interface, punts ARP"),
    (Stage::Fragments, "fragments", "gives fragments the ports of their first fragment"),
    (Stage::Steer, "steer", "hands packets to the worker that owns the subscriber"),
    (Stage::Nat, "nat", "finds or makes the session and rewrites the packet"),
    (Stage::Forward, "forward", "routes, fragments, finds the neighbour, writes the link header"),
    (Stage::Finish, "finish", "counts and answers drops, gives frames back"),
];

/// One burst in so many is measured: reading the cycle counter costs about as much as a stage does for a packet.
pub const SAMPLE_EVERY: u64 = 16;

/// Cycles of one stage, over the sampled bursts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageStats {
    /// Packets that entered the stage.
    pub packets: u64,
    /// Cycles spent.
    pub cycles: u64,
}

/// A worker's figures since start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// Bursts processed.
    pub bursts: u64,
    /// Packets in them.
    pub packets: u64,
    /// Bursts by size: 1, 2-3, 4-7, 8-15, 16-31, 32-63, 64.
    pub burst_sizes: [u64; 7],
    /// By stage.
    pub stages: [StageStats; STAGES.len()],
    /// NAT events lost because the control plane was slow.
    pub events_lost: u64,
    /// Copies for captures that were lost because their reader was slow.
    pub captures_lost: u64,
    /// Sessions now.
    pub sessions: u64,
    /// Sessions that have ended.
    pub sessions_deleted: u64,
    /// Mappings now.
    pub mappings: u64,
    /// Subscribers now.
    pub subscribers: u64,
    /// What application gateways have seen.
    pub gateways: GatewayCounts,
}

impl WorkerStats {
    pub(crate) fn count_burst(&mut self, packets: usize) {
        self.bursts += 1;
        self.packets += packets as u64;
        let bucket = (usize::BITS - 1 - packets.max(1).leading_zeros()) as usize;
        if let Some(count) = self.burst_sizes.get_mut(bucket) {
            *count += 1;
        }
    }

    pub(crate) fn count_stage(&mut self, stage: Stage, packets: usize, cycles: u64) {
        if let Some(stats) = self.stages.get_mut(stage as usize) {
            stats.packets += packets as u64;
            stats.cycles += cycles;
        }
    }
}
