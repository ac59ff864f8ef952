//! Rows on their way into a database, or messages to Kafka: gathered to inserts of some size, one under way at a time, each
//! answered.
//!
//! A thread of its own waits for the answers, so that the exporter can move events to its spool meanwhile.

use std::io;
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

/// Rows wait for others up to this size or time: every insert is a file for the database to merge.
const INSERT_BYTES: usize = 4 << 20;
const INSERT_WAIT: Duration = Duration::from_secs(1);
/// Bytes that may wait while an insert is under way.
const BUFFER_BYTES: usize = 16 << 20;

/// Where inserts go. Its calls wait for the answer; what they return is a sentence.
pub(super) trait Target: Send + 'static {
    /// Is there somebody who will take them?
    fn look(&mut self) -> Result<(), String>;
    /// Takes what was put, one behind the other; it is safe there when this returns.
    fn insert(&mut self, rows: Vec<u8>) -> Result<(), String>;
}

/// Inserts and what became of them.
#[derive(Debug)]
pub(crate) struct Inserts {
    to: SyncSender<Vec<u8>>,
    answers: Receiver<Result<(), String>>,
    rows: Vec<u8>,
    /// Since when the first of them waits.
    since: Instant,
    accepted: u64,
    delivered: u64,
    /// What will have been delivered when the insert under way has been answered.
    under_way: Option<u64>,
    /// Has the database answered since the beginning?
    proven: bool,
}

impl Inserts {
    /// Looks at once, on a thread of this name: what is wrong is known before events are.
    pub(super) fn open(thread: &str, mut target: impl Target) -> io::Result<Self> {
        let (to, bodies) = sync_channel::<Vec<u8>>(1);
        let (done, answers) = sync_channel(1);
        std::thread::Builder::new().name(thread.to_owned()).spawn(move || {
            let mut answer = target.look();
            loop {
                if done.send(answer).is_err() {
                    return;
                }
                let Ok(body) = bodies.recv() else { return };
                answer = target.insert(body);
            }
        })?;
        Ok(Self {
            to,
            answers,
            rows: Vec::new(),
            since: Instant::now(),
            accepted: 0,
            delivered: 0,
            under_way: Some(0),
            proven: false,
        })
    }

    pub(crate) fn put(&mut self, row: &[u8]) {
        if self.rows.is_empty() {
            self.since = Instant::now();
        }
        self.rows.extend(row);
        self.accepted += 1;
    }

    /// Rows put so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The first so many are in the database.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.proven && self.rows.len() < BUFFER_BYTES
    }

    /// Is somebody there?
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Takes the answer, and sends what has waited long enough.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self.answers.try_recv() {
            Ok(answer) => {
                answer.map_err(io::Error::other)?;
                self.proven = true;
                self.delivered = self.under_way.take().unwrap_or(self.delivered);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the thread that inserts has ended"));
            }
        }
        let is_due = self.rows.len() >= INSERT_BYTES || self.since.elapsed() >= INSERT_WAIT;
        if self.under_way.is_none() && !self.rows.is_empty() && is_due {
            let body = mem::take(&mut self.rows);
            // One answer was taken for each body: there is room for one.
            self.to.send(body).map_err(|_| io::Error::other("the thread that inserts has ended"))?;
            self.under_way = Some(self.accepted);
        }
        Ok(())
    }
}
