//! Rows and packets that flow out of all workers while they forward: bounded rings, read at the reader's pace.

use std::sync::Arc;
use std::time::{Duration, Instant};

use carrack_base::WorkerId;
use carrack_pipeline::mailbox::Row;
use rtrb::Consumer;

use crate::shared::Shared;

/// Rest when all rings are empty.
const REST: Duration = Duration::from_micros(100);

/// What came out of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<T> {
    /// An item, and the worker it came from.
    Item(WorkerId, T),
    /// Nothing came in time; more may come.
    Idle,
    /// Every worker has ended its part.
    End,
}

/// Items from all workers, in each worker's order. Memory is bounded by the rings: a slow reader makes table walks
/// wait, while captures and traces lose what does not fit. Dropping a stream ends the workers' part of it.
pub struct Stream<T> {
    rings: Vec<(WorkerId, Consumer<T>)>,
    turn: usize,
    left: u64,
    shared: Arc<Shared>,
}

impl<T> Stream<T> {
    /// Over one ring of each worker, at most `items_max` items (0: all). The caller has counted the stream in.
    pub(crate) fn new(rings: Vec<Consumer<T>>, items_max: u64, shared: Arc<Shared>) -> Self {
        let rings = rings.into_iter().enumerate().map(|(n, ring)| (WorkerId(n as u8), ring)).collect();
        let left = if items_max == 0 { u64::MAX } else { items_max };
        Self { rings, turn: 0, left, shared }
    }

    /// The next item; waits at most `timeout` for it.
    pub fn next_timeout(&mut self, timeout: Duration) -> Next<T> {
        if let Some(ready) = self.poll() {
            return ready;
        }
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            std::thread::sleep(REST);
            if let Some(ready) = self.poll() {
                return ready;
            }
        }
        Next::Idle
    }

    /// An item or the end, when either is there.
    fn poll(&mut self) -> Option<Next<T>> {
        if self.left == 0 {
            self.rings.clear();
        }
        let mut looked_at = 0;
        while looked_at < self.rings.len() {
            self.turn %= self.rings.len();
            // Invariant: the list is not empty, and `turn` was just brought below its length.
            let (worker, ring) = &mut self.rings[self.turn];
            // Asked before the ring is looked into: what is pushed before the producer goes is never missed.
            let ended = ring.is_abandoned();
            if let Ok(item) = ring.pop() {
                self.left -= 1;
                let worker = *worker;
                self.turn += 1;
                return Some(Next::Item(worker, item));
            }
            if ended {
                self.rings.swap_remove(self.turn);
            } else {
                self.turn += 1;
                looked_at += 1;
            }
        }
        self.rings.is_empty().then_some(Next::End)
    }
}

impl<T> Iterator for Stream<T> {
    type Item = (WorkerId, T);

    /// Waits for the next item; `None` when every worker has ended its part.
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_timeout(Duration::from_secs(1)) {
                Next::Item(worker, item) => return Some((worker, item)),
                Next::Idle => {}
                Next::End => return None,
            }
        }
    }
}

impl<T> Drop for Stream<T> {
    fn drop(&mut self) {
        self.shared.close_stream();
    }
}

/// Rows of one kind, from all workers.
pub struct Rows<T> {
    stream: Stream<Row>,
    pick: fn(Row) -> Option<T>,
}

impl<T> Rows<T> {
    pub(crate) fn new(stream: Stream<Row>, pick: fn(Row) -> Option<T>) -> Self {
        Self { stream, pick }
    }

    /// The next row; waits at most `timeout` for it.
    pub fn next_timeout(&mut self, timeout: Duration) -> Next<T> {
        loop {
            match self.stream.next_timeout(timeout) {
                Next::Item(worker, row) => {
                    if let Some(row) = (self.pick)(row) {
                        return Next::Item(worker, row);
                    }
                }
                Next::Idle => return Next::Idle,
                Next::End => return Next::End,
            }
        }
    }
}

impl<T> Iterator for Rows<T> {
    type Item = (WorkerId, T);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (worker, row) = self.stream.next()?;
            if let Some(row) = (self.pick)(row) {
                return Some((worker, row));
            }
        }
    }
}
