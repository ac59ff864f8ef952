//! Token buckets toward the control plane: a flood must not starve it.

use carrack_base::Now;

use crate::snapshot::{Policer, Policers};

/// One bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    rate_pps: u32,
    burst: u32,
    /// Tokens in 1/1 000 packets.
    milli: u64,
    at_us: u64,
}

impl Bucket {
    pub(crate) fn new(policer: Policer, now: Now) -> Self {
        let Policer { rate_pps, burst } = policer;
        Self { rate_pps, burst, milli: u64::from(burst) * 1_000, at_us: now.ns / 1_000 }
    }

    /// Takes a token; false when there is none.
    pub(crate) fn take(&mut self, now: Now) -> bool {
        let now_us = now.ns / 1_000;
        let fresh = now_us.saturating_sub(self.at_us).saturating_mul(u64::from(self.rate_pps)) / 1_000;
        if fresh > 0 {
            self.milli = (self.milli + fresh).min(u64::from(self.burst) * 1_000);
            self.at_us = now_us;
        }
        let has = self.milli >= 1_000;
        if has {
            self.milli -= 1_000;
        }
        has
    }
}

/// The worker's buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buckets {
    pub(crate) arp: Bucket,
    pub(crate) nd: Bucket,
    pub(crate) icmp: Bucket,
    pub(crate) other: Bucket,
    pub(crate) icmp_errors: Bucket,
}

impl Buckets {
    pub(crate) fn new(policers: &Policers, now: Now) -> Self {
        Self {
            arp: Bucket::new(policers.arp, now),
            nd: Bucket::new(policers.nd, now),
            icmp: Bucket::new(policers.icmp, now),
            other: Bucket::new(policers.other, now),
            icmp_errors: Bucket::new(policers.icmp_errors, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_gets_the_burst_and_then_the_rate() {
        let mut bucket = Bucket::new(Policer { rate_pps: 100, burst: 10 }, Now::from_s(0));
        let at_once = (0..1_000).filter(|_| bucket.take(Now::from_s(0))).count();
        assert_eq!(at_once, 10);
        let in_a_second = (0..1_000_000u64).filter(|us| bucket.take(Now { ns: us * 1_000 })).count();
        assert!((99..=101).contains(&in_a_second), "{in_a_second}");
    }

    #[test]
    fn rate_zero_lets_nothing_but_the_burst_through() {
        let mut bucket = Bucket::new(Policer { rate_pps: 0, burst: 0 }, Now::from_s(0));
        assert!(!bucket.take(Now::from_s(100)));
    }
}
