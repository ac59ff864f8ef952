//! Paced announcements: the router tells each link which addresses it answers for (RFC 5227 §2.3).

use std::collections::VecDeque;

use carrack_base::{IfIndex, Now, Range4};

/// Pool addresses announced for one interface; the others are found by asking, which always works.
const POOL_ADDRESSES_MAX: u32 = 1_024;
/// Announcements sent in one step.
const STEP_FRAMES_MAX: usize = 16;
/// Time between two steps.
const STEP_NS: u64 = 50_000_000;
/// Time between the rounds of one address: `ANNOUNCE_INTERVAL`.
const ROUND_NS: u64 = 2_000_000_000;
/// Rounds: `ANNOUNCE_NUM`.
const ROUNDS: u8 = 2;

#[derive(Debug, Clone, Copy)]
struct Job {
    interface: IfIndex,
    range: Range4,
    next: u32,
    round: u8,
    not_before: Now,
}

/// What is still to be announced.
#[derive(Debug, Default)]
pub(crate) struct Announcer {
    jobs: VecDeque<Job>,
    next_step: Option<Now>,
}

impl Announcer {
    /// Announces `range` on `interface`, from `now` on; only its first addresses when it is a large one.
    pub(crate) fn add(&mut self, now: Now, interface: IfIndex, range: Range4) {
        let last = range.last.min(range.first.saturating_add(POOL_ADDRESSES_MAX - 1));
        let range = Range4 { first: range.first, last };
        self.jobs.push_back(Job { interface, range, next: range.first, round: 1, not_before: now });
        self.plan(now);
    }

    /// Forgets what was to be announced on interfaces that `keep` refuses.
    pub(crate) fn retain(&mut self, keep: impl Fn(IfIndex) -> bool) {
        self.jobs.retain(|job| keep(job.interface));
    }

    /// When the next step is due.
    pub(crate) fn next_due(&self) -> Option<Now> {
        self.next_step
    }

    /// The announcements of the step that is due at `now`, if one is.
    pub(crate) fn step(&mut self, now: Now) -> Vec<(IfIndex, u32)> {
        if self.next_step.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let mut out = Vec::with_capacity(STEP_FRAMES_MAX);
        for _ in 0..self.jobs.len() {
            let Some(mut job) = self.jobs.pop_front() else { break };
            while job.not_before <= now && out.len() < STEP_FRAMES_MAX && job.next <= job.range.last {
                out.push((job.interface, job.next));
                let Some(next) = job.next.checked_add(1) else { break };
                job.next = next;
            }
            self.put_back(now, job);
        }
        self.plan(now.plus_ns(STEP_NS));
        out
    }

    fn put_back(&mut self, now: Now, mut job: Job) {
        if job.next > job.range.last || job.next == u32::MAX {
            if job.round >= ROUNDS {
                return;
            }
            job.round += 1;
            job.next = job.range.first;
            job.not_before = now.plus_ns(ROUND_NS);
        }
        self.jobs.push_back(job);
    }

    fn plan(&mut self, earliest: Now) {
        let first = self.jobs.iter().map(|job| job.not_before).min();
        self.next_step = first.map(|due| due.max(earliest));
    }
}
