//! The conservation law in numbers: one worker's packet accounts.

use crate::reason::{REASON_COUNT, Reason};

/// Where every packet of one worker went. Plain integers: the owner adds, readers get copies.
///
/// `rx + handed_in + originated = forwarded + punted + consumed + handed_out + held + Σ drops`, checked by
/// [`Accounts::balance`]. `originated` packets are those the router itself sends (ICMP errors, extra fragments,
/// replies from the host): they enter the law on the left so that what leaves can be compared with the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    /// Packets taken from ports.
    pub rx: u64,
    /// Packets taken over from other workers.
    pub handed_in: u64,
    /// Packets that this worker itself made.
    pub originated: u64,
    /// Packets given to ports.
    pub forwarded: u64,
    /// Packets copied up to the control plane.
    pub punted: u64,
    /// Packets that did their work here and ended (keep-alives, answered in place).
    pub consumed: u64,
    /// Packets handed to other workers.
    pub handed_out: u64,
    /// Packets waiting: fragments for their first fragment, packets for a neighbour.
    pub held: u64,
    /// Packets dropped, by reason.
    pub drops: [u64; REASON_COUNT],
    /// Bytes taken from ports (layer 2, without FCS).
    pub rx_bytes: u64,
    /// Bytes given to ports.
    pub forwarded_bytes: u64,
}

impl Default for Accounts {
    fn default() -> Self {
        Self {
            rx: 0,
            handed_in: 0,
            originated: 0,
            forwarded: 0,
            punted: 0,
            consumed: 0,
            handed_out: 0,
            held: 0,
            drops: [0; REASON_COUNT],
            rx_bytes: 0,
            forwarded_bytes: 0,
        }
    }
}

impl Accounts {
    /// Counts `n` packets dropped for `reason`.
    #[inline]
    pub fn drop_n(&mut self, reason: Reason, n: u64) {
        self.drops[reason as usize] += n;
    }

    /// All drops together.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Left minus right of the conservation law: 0 when every packet is accounted for.
    #[must_use]
    pub fn balance(&self) -> i128 {
        let into = i128::from(self.rx) + i128::from(self.handed_in) + i128::from(self.originated);
        let out = i128::from(self.forwarded)
            + i128::from(self.punted)
            + i128::from(self.consumed)
            + i128::from(self.handed_out)
            + i128::from(self.held)
            + i128::from(self.dropped());
        into - out
    }

    /// Adds another worker's accounts.
    pub fn add(&mut self, other: &Self) {
        self.rx += other.rx;
        self.handed_in += other.handed_in;
        self.originated += other.originated;
        self.forwarded += other.forwarded;
        self.punted += other.punted;
        self.consumed += other.consumed;
        self.handed_out += other.handed_out;
        self.held += other.held;
        self.rx_bytes += other.rx_bytes;
        self.forwarded_bytes += other.forwarded_bytes;
        for (mine, theirs) in self.drops.iter_mut().zip(&other.drops) {
            *mine += theirs;
        }
    }
}
