//! Token buckets toward the control plane: a flood must not starve it.

use carrack_base::Now;

use crate::snapshot::{Policer, Policers};

/// One bucket.
///
/// ```
/// use carrack_base::Now;
/// use carrack_pipeline::policer::Bucket;
/// use carrack_pipeline::snapshot::Policer;
///
/// let mut bucket = Bucket::new(Policer { rate_pps: 1, burst: 1 }, Now::from_s(0));
/// assert!(bucket.take(Now::from_s(0)) && !bucket.take(Now::from_s(0)));
/// assert!(bucket.take(Now::from_s(1)));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Bucket {
    rate_pps: u32,
    burst: u32,
    /// Tokens in 1/1 000 packets.
    milli: u64,
    at_us: u64,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub fn new(policer: Policer, now: Now) -> Self {
        let Policer { rate_pps, burst } = policer;
        Self { rate_pps, burst, milli: u64::from(burst) * 1_000, at_us: now.ns / 1_000 }
    }

    /// Takes a token; false when there is none.
    pub fn take(&mut self, now: Now) -> bool {
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

/// Buckets of hosts, of which a host has one by its hash: those that share one share its rate.
const HOST_BUCKETS: usize = 256;

/// The worker's buckets.
#[derive(Debug)]
pub(crate) struct Buckets {
    pub(crate) arp: Bucket,
    pub(crate) nd: Bucket,
    pub(crate) icmp: Bucket,
    pub(crate) other: Bucket,
    pub(crate) icmp_errors: Bucket,
    port_control: Bucket,
    port_control_hosts: Vec<Bucket>,
    /// Nobody can choose whom he shares a bucket with.
    secret: u64,
}

impl Buckets {
    pub(crate) fn new(policers: &Policers, secret: u64, now: Now) -> Self {
        Self {
            arp: Bucket::new(policers.arp, now),
            nd: Bucket::new(policers.nd, now),
            icmp: Bucket::new(policers.icmp, now),
            other: Bucket::new(policers.other, now),
            icmp_errors: Bucket::new(policers.icmp_errors, now),
            port_control: Bucket::new(policers.port_control, now),
            port_control_hosts: vec![Bucket::new(policers.port_control_host, now); HOST_BUCKETS],
            secret: secret | 1,
        }
    }

    /// May a request of port control go up? A host that asks too often uses up only its own share.
    pub(crate) fn take_port_control(&mut self, host: u128, now: Now) -> bool {
        let folded = (host >> 64) as u64 ^ host as u64;
        let mixed = (folded ^ self.secret).wrapping_mul(self.secret);
        let at = (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let own = self.port_control_hosts.get_mut(at as usize % HOST_BUCKETS);
        own.is_some_and(|bucket| bucket.take(now)) && self.port_control.take(now)
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
