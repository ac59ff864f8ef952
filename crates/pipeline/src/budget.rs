//! What the tables of a worker beside those of the NAT engine take.

use crate::snapshot::WorkerSizes;
use crate::{fragments, neighbours};

/// Bytes of the small tables of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmallTables {
    /// Datagrams in pieces.
    pub fragments: usize,
    /// Places of fragments that wait.
    pub held_fragments: usize,
    /// Neighbours, and places of packets that wait for them.
    pub neighbours: usize,
}

impl SmallTables {
    /// Of tables of these sizes.
    #[must_use]
    pub fn of(sizes: WorkerSizes) -> Self {
        Self {
            fragments: fragments::datagram_bytes(sizes.nat.fragments),
            held_fragments: fragments::waiting_bytes(sizes.nat.held_fragments),
            neighbours: neighbours::bytes_for(sizes.neighbours, sizes.held_for_neighbour),
        }
    }
}
