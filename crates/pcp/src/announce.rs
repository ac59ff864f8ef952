//! Restart announcements (RFC 6887 §14.1.3, RFC 6886 §3.2.1): ten, each after twice the time of the one before.

use carrack_base::Now;

/// Announcements of one restart.
const TIMES: u8 = 10;
/// Time between the first two.
const FIRST_NS: u64 = 250_000_000;

/// What is still to be announced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Announcer {
    left: u8,
    wait_ns: u64,
    due: Now,
}

impl Announcer {
    /// Begins anew.
    pub(crate) fn start(&mut self, now: Now) {
        *self = Self { left: TIMES, wait_ns: FIRST_NS, due: now };
    }

    /// Is one due?
    pub(crate) fn step(&mut self, now: Now) -> bool {
        if self.left == 0 || now < self.due {
            return false;
        }
        self.left -= 1;
        self.due = now.plus_ns(self.wait_ns);
        self.wait_ns = self.wait_ns.saturating_mul(2);
        true
    }

    pub(crate) fn next_due(&self) -> Option<Now> {
        (self.left > 0).then_some(self.due)
    }
}
