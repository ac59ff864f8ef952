//! Batches between the logging thread and an exporter's, bounded by the number of events.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Batch;

/// A bounded queue with one consumer.
#[derive(Debug)]
pub(crate) struct Queue {
    inner: Mutex<Inner>,
    news: Condvar,
    records_max: usize,
}

#[derive(Debug, Default)]
struct Inner {
    batches: VecDeque<Arc<Batch>>,
    records: usize,
    lost: u64,
    closed: bool,
}

impl Queue {
    pub(crate) fn new(records_max: usize) -> Self {
        Self { inner: Mutex::default(), news: Condvar::new(), records_max }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the batch, or counts its events as lost.
    pub(crate) fn push(&self, batch: &Arc<Batch>) {
        let mut inner = self.lock();
        let records = batch.records.len();
        // A batch larger than the queue passes when nothing else waits: the bound is then the batch.
        if inner.records > 0 && inner.records + records > self.records_max {
            inner.lost += records as u64;
            return;
        }
        inner.records += records;
        inner.batches.push_back(Arc::clone(batch));
        drop(inner);
        self.news.notify_one();
    }

    /// The oldest batch; waits for one.
    pub(crate) fn pop(&self, wait: Duration) -> Option<Arc<Batch>> {
        let inner = self.lock();
        let (mut inner, _) = self
            .news
            .wait_timeout_while(inner, wait, |inner| inner.batches.is_empty() && !inner.closed)
            .unwrap_or_else(PoisonError::into_inner);
        let batch = inner.batches.pop_front()?;
        inner.records -= batch.records.len();
        Some(batch)
    }

    /// Puts the batch taken last back to the front.
    pub(crate) fn give_back(&self, batch: Arc<Batch>) {
        let mut inner = self.lock();
        inner.records += batch.records.len();
        inner.batches.push_front(batch);
    }

    /// Events that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().records
    }

    /// Events that found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lock().lost
    }

    /// No more batches will come.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}
