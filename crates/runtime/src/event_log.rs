//! The last events, for any number of readers; who reads too slowly learns how many it missed.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use std::net::IpAddr;

use carrack_base::{IfIndex, WorkerId};
use carrack_nat::row::NatEvent;
use carrack_wire::MacAddr;

use crate::shared::lock;

/// Events kept.
pub const EVENTS_KEPT: usize = 4_096;

/// Another station has an address of the router's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressEvent {
    /// Interface it was heard on.
    pub interface: IfIndex,
    /// The address.
    pub ip: IpAddr,
    /// Who has it.
    pub mac: MacAddr,
    /// Did it have the address first, so that the router does not use it (RFC 4862 §5.4.5)?
    pub is_unused: bool,
}

/// Whatever there is to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    /// Something of the NAT.
    Nat(NatEvent),
    /// Something of the router's own addresses, which no collector is told of.
    Address(AddressEvent),
}

/// One event, of the NAT unless told otherwise, with its place in the sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedEvent<E = NatEvent> {
    /// Number since start, from 1, without holes among all that happened.
    pub sequence: u64,
    /// Monotonic time, nanoseconds.
    pub at_ns: u64,
    /// Nanoseconds since 1970, as the machine's clock stood.
    pub unix_ns: u64,
    /// The worker that saw it; 0 for the control thread.
    pub worker: WorkerId,
    /// What.
    pub event: E,
}

impl<E> LoggedEvent<E> {
    /// Another event at the same place.
    const fn of<F>(&self, event: F) -> LoggedEvent<F> {
        let Self { sequence, at_ns, unix_ns, worker, .. } = *self;
        LoggedEvent { sequence, at_ns, unix_ns, worker, event }
    }
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
    events: VecDeque<LoggedEvent<Happened>>,
    total: u64,
}

/// What a reader got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch {
    /// The events, oldest first.
    pub events: Vec<LoggedEvent<Happened>>,
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
        kept.events.extend(last.iter().map(|logged| logged.of(Happened::Nat(logged.event))));
        drop(kept);
        self.news.notify_all();
    }

    /// Takes over what happened to an own address.
    pub(crate) fn push_address(&self, at_ns: u64, unix_ns: u64, event: AddressEvent) {
        let mut kept = lock(&self.kept);
        kept.total += 1;
        let (sequence, event) = (kept.total, Happened::Address(event));
        if kept.events.len() == EVENTS_KEPT {
            kept.events.pop_front();
        }
        kept.events.push_back(LoggedEvent { sequence, at_ns, unix_ns, worker: WorkerId(0), event });
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
        let events: Vec<LoggedEvent<Happened>> =
            kept.events.iter().filter(|event| event.sequence > after).take(max).copied().collect();
        let next = events.last().map_or(after + lost, |event| event.sequence);
        EventBatch { events, lost, next }
    }
}
