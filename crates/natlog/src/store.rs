//! Events on local disk.
//!
//! ```text
//! DIR/journal/TIME-N.log          what came last, in frames (journal.rs)
//! DIR/2026-03-03/FROM-TO-….parquet  the rest, in columns (columns.rs), a directory for each day
//! DIR/2026-03-03/merged-N/….parquet a day that is over, in few files (merge.rs)
//! DIR/config/TIME-GENERATION.toml   every configuration that was in force, for deterministic pools
//! ```

pub(crate) mod columns;
pub(crate) mod files;
pub(crate) mod index;
pub(crate) mod journal;
pub(crate) mod merge;
mod packer;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_base::thread::Thread;
use carrack_config::StoreConfig;

use crate::exporter::{Batch, Queue};
use journal::Journal;
use packer::Packer;

/// Events that may wait for the disk.
const QUEUE: usize = 4 << 20;
/// Events of one columnar file: what packing holds in memory.
pub(crate) const FILE_RECORDS: u64 = 2 << 20;
/// Longest time until a journal is packed.
const FILE_AGE: Duration = Duration::from_secs(3_600);
/// Time between two syncs: what a crash of the machine may cost.
const SYNC: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_millis(50);
const COMPLAIN: Duration = Duration::from_secs(10);

/// What the store has done since its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StoreReport {
    /// Events safe on disk.
    pub stored: u64,
    /// Events lost: the disk was full or too slow.
    pub lost: u64,
    /// Events that wait for the disk.
    pub waiting: u64,
    /// Bytes on disk, as of the last look.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    stored: AtomicU64,
    lost: AtomicU64,
    bytes: AtomicU64,
}

/// A running store; dropping it writes what waits.
#[derive(Debug)]
pub(crate) struct Store {
    config: StoreConfig,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    joins: Vec<JoinHandle<()>>,
}

impl Store {
    pub(crate) fn start(config: StoreConfig, cores: &Arc<[usize]>) -> Result<Self, String> {
        let shown = config.dir.display();
        let fail = |error: io::Error| {
            format!(
                "cannot write the store {shown}: {error}; make the directory writable, or set logging.store.dir"
            )
        };
        files::make(&config.dir).map_err(fail)?;
        let left = files::journals(&config.dir).map_err(fail)?;
        let (to_pack, packing) = channel();
        for path in left {
            let _ = to_pack.send(path);
        }
        let queue = Arc::new(Queue::new(QUEUE));
        let counters = Arc::new(Counters::default());
        let writer = Writer {
            dir: config.dir.clone(),
            queue: Arc::clone(&queue),
            counters: Arc::clone(&counters),
            to_pack,
            journal: None,
            opened: Instant::now(),
            synced: Instant::now(),
            unsynced: 0,
            number: 0,
            complained: None,
        };
        let packer = Packer::new(config.clone(), packing, Arc::clone(&counters));
        let joins = vec![
            spawn(Thread::Store, cores, move || writer.run()).map_err(fail)?,
            spawn(Thread::Pack, cores, move || packer.run()).map_err(fail)?,
        ];
        Ok(Self { config, queue, counters, joins })
    }

    /// Takes a batch or counts its loss; never waits.
    pub(crate) fn take(&self, batch: &Arc<Batch>) {
        self.queue.push(batch);
    }

    /// Keeps the text of a configuration that is in force from now on.
    pub(crate) fn configured(&self, text: &str, generation: u64, unix_ms: u64) {
        if let Err(error) = files::keep_config(&self.config.dir, text, generation, unix_ms) {
            tracing::error!(
                "cannot keep the configuration in {}: {error}; deterministic pools cannot be traced back",
                self.config.dir.display()
            );
        }
    }

    pub(crate) fn report(&self) -> StoreReport {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreReport {
            stored: load(&self.counters.stored),
            lost: load(&self.counters.lost) + self.queue.lost(),
            waiting: self.queue.waiting() as u64,
            bytes: load(&self.counters.bytes),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.queue.close();
        for join in self.joins.drain(..) {
            // A thread that died has said so on standard error.
            let _ = join.join();
        }
    }
}

fn spawn(
    thread: Thread<'_>,
    cores: &Arc<[usize]>,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let cores = Arc::clone(cores);
    std::thread::Builder::new().name(thread.name()).spawn(move || {
        crate::service::place(&cores);
        body();
    })
}

pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |unix| unix.as_millis() as u64)
}

/// The thread that writes the journal.
struct Writer {
    dir: PathBuf,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    to_pack: Sender<PathBuf>,
    journal: Option<Journal>,
    opened: Instant,
    synced: Instant,
    /// Records appended since the last sync.
    unsynced: u64,
    number: u32,
    complained: Option<Instant>,
}

impl Writer {
    fn run(mut self) {
        loop {
            let batch = self.queue.pop(WAIT);
            let over = batch.is_none() && self.queue.is_closed();
            if let Some(batch) = batch
                && let Err(error) = self.append(&batch)
            {
                self.counters.lost.fetch_add(batch.records.len() as u64, Ordering::Relaxed);
                self.complain(&error);
            }
            if over || self.synced.elapsed() >= SYNC {
                self.sync();
            }
            let full = self.journal.as_ref().is_some_and(|journal| {
                journal.records() >= FILE_RECORDS
                    || (journal.records() > 0 && self.opened.elapsed() >= FILE_AGE)
            });
            if full {
                self.rotate();
            }
            if over {
                break;
            }
        }
    }

    fn append(&mut self, batch: &Batch) -> io::Result<()> {
        if self.journal.is_none() {
            let path = files::journal_path(&self.dir, unix_ms(), self.number);
            self.number += 1;
            self.journal = Some(Journal::create(path)?);
            self.opened = Instant::now();
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.append(batch)?;
        self.unsynced += batch.records.len() as u64;
        Ok(())
    }

    /// Acknowledges what was appended.
    fn sync(&mut self) {
        self.synced = Instant::now();
        if self.unsynced == 0 {
            return;
        }
        match self.journal.as_ref().map_or(Ok(()), Journal::sync) {
            Ok(()) => {
                self.counters.stored.fetch_add(self.unsynced, Ordering::Relaxed);
                self.unsynced = 0;
            }
            Err(error) => {
                // After a failed sync nobody knows what is on disk: what was not acknowledged counts as lost.
                self.counters.lost.fetch_add(self.unsynced, Ordering::Relaxed);
                self.unsynced = 0;
                self.complain(&error);
                self.rotate();
            }
        }
    }

    fn rotate(&mut self) {
        self.sync();
        if let Some(journal) = self.journal.take() {
            let _ = self.to_pack.send(journal.path().to_owned());
        }
    }

    fn complain(&mut self, error: &io::Error) {
        if self.complained.is_some_and(|at| at.elapsed() < COMPLAIN) {
            return;
        }
        self.complained = Some(Instant::now());
        let lost = self.counters.lost.load(Ordering::Relaxed);
        tracing::error!(
            "the store {} takes nothing: {error}; {lost} events are lost so far: make room on that file system",
            self.dir.display()
        );
    }
}
