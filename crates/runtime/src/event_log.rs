//! The last NAT events, for any number of readers; who reads too slowly learns how many it missed.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use carrack_base::WorkerId;
use carrack_nat::row::NatEvent;

use crate::shared::lock;

/// Events kept.
pub const EVENTS_KEPT: usize = 4_096;

/// One NAT event with its place in the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedEvent {
    /// Number since start, from 1, without holes.
    pub sequence: u64,
    /// Monotonic time, nanoseconds.
    pub at_ns: u64,
    /// Nanoseconds since 1970, as the machine's clock stood.
    pub unix_ns: u64,
    /// The worker that saw it.
    pub worker: WorkerId,
    /// What.
    pub event: NatEvent,
}

/// Where NAT events go: the exporters and the store. Called by the logging thread only, which waits for it; workers never do.
pub trait EventSink: Send {
    /// Called once, first of all, on the logging thread.
    fn begin(&mut self) {}

    /// Events as they came: those of one worker in order.
    fn events(&mut self, batch: &[LoggedEvent]);

    /// Once in a while, with or without events: the calendar in nanoseconds since 1970, and the events lost so far because a
    /// worker's ring was full.
    fn tick(&mut self, unix_ns: u64, lost: u64);

    /// The daemon ends; no event follows.
    fn end(&mut self, unix_ns: u64);
}

/// Keeps the last [`EVENTS_KEPT`] events.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    kept: Mutex<Kept>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<LoggedEvent>,
    total: u64,
}

/// What a reader got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch {
    /// The events, oldest first.
    pub events: Vec<LoggedEvent>,
    /// Events that were overwritten before this reader came for them.
    pub lost: u64,
    /// Where to read on: pass it as `after` next time.
    pub next: u64,
}

impl EventLog {
    /// Takes a batch over and numbers it.
    pub(crate) fn push(&self, batch: &mut [LoggedEvent]) {
        let mut kept = lock(&self.kept);
        for (event, sequence) in batch.iter_mut().zip(kept.total + 1..) {
            event.sequence = sequence;
        }
        kept.total += batch.len() as u64;
        let last = batch.get(batch.len().saturating_sub(EVENTS_KEPT)..).unwrap_or_default();
        let too_many = (kept.events.len() + last.len()).saturating_sub(EVENTS_KEPT);
        kept.events.drain(..too_many);
        kept.events.extend(last);
        drop(kept);
        self.news.notify_all();
    }

    /// At most `max` events after number `after`; waits up to `wait` for the first.
    pub(crate) fn read(&self, after: u64, max: usize, wait: Duration) -> EventBatch {
        let kept = lock(&self.kept);
        let (kept, _) = self
            .news
            .wait_timeout_while(kept, wait, |kept| kept.total <= after)
            .unwrap_or_else(PoisonError::into_inner);
        let first = kept.total - kept.events.len() as u64 + 1;
        let lost = first.saturating_sub(after + 1);
        let events: Vec<LoggedEvent> =
            kept.events.iter().filter(|event| event.sequence > after).take(max).copied().collect();
        let next = events.last().map_or(after + lost, |event| event.sequence);
        EventBatch { events, lost, next }
    }
}
