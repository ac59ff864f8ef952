//! What all threads of the daemon can see.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carrack_host::{HostCounters, OwnRow};
use carrack_pipeline::snapshot::Snapshot;

use crate::board::Board;
use crate::clock::Clock;
use crate::event_log::EventLog;
use crate::stats::{ACCOUNTS_WORDS, LOOP_WORDS, PortReport};

/// Whether a worker's thread lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum WorkerState {
    /// It forwards.
    Running = 0,
    /// It ended in good order.
    Ended = 1,
    /// It ended by a defect of the program.
    Panicked = 2,
}

/// Why the daemon ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// Somebody asked for it.
    Stopped,
    /// All input is processed and the daemon was told to end then.
    Idle,
    /// A thread died: the sentence says which.
    Failed(String),
}

pub(crate) struct Shared {
    pub clock: Clock,
    pub events: EventLog,
    pub snapshot: Mutex<Arc<Snapshot>>,
    pub host: Mutex<ControlCounters>,
    /// Own IPv6 addresses and whether they may be used.
    pub own6: Mutex<Arc<[OwnRow]>>,
    boards: Vec<Board>,
    port_boards: Vec<Board>,
    port_resumed: Vec<AtomicU64>,
    board_words: usize,
    states: Vec<AtomicU8>,
    streams: AtomicUsize,
    stop: AtomicBool,
    end: Mutex<Option<EndReason>>,
    ended: Condvar,
}

/// What the control plane itself counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ControlCounters {
    /// The host's functions.
    pub host: HostCounters,
    /// Port control.
    pub port_control: carrack_pcp::Counters,
    /// Packets that the workers passed up and the host has seen.
    pub punts_handled: u64,
    /// The host's own packets that found the ring to the worker full.
    pub host_tx_full: u64,
}

/// Streams of rows, captures and traces open at once.
pub(crate) const STREAMS_MAX: usize = 16;

impl Shared {
    pub(crate) fn new(
        clock: Clock,
        snapshot: Arc<Snapshot>,
        workers: usize,
        ports: usize,
        stage_words: usize,
    ) -> Self {
        let board_words = ACCOUNTS_WORDS + LOOP_WORDS + stage_words;
        Self {
            clock,
            events: EventLog::default(),
            snapshot: Mutex::new(snapshot),
            host: Mutex::default(),
            own6: Mutex::new(Arc::new([])),
            boards: (0..workers).map(|_| Board::new(board_words)).collect(),
            port_boards: (0..ports).map(|_| Board::new(PortReport::WORDS)).collect(),
            port_resumed: (0..ports).map(|_| AtomicU64::new(0)).collect(),
            board_words,
            states: (0..workers).map(|_| AtomicU8::new(WorkerState::Running as u8)).collect(),
            streams: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            end: Mutex::new(None),
            ended: Condvar::new(),
        }
    }

    pub(crate) fn workers(&self) -> usize {
        self.boards.len()
    }

    pub(crate) fn ports(&self) -> usize {
        self.port_boards.len()
    }

    pub(crate) fn board_words(&self) -> usize {
        self.board_words
    }

    pub(crate) fn worker_board(&self, index: usize) -> Option<&Board> {
        self.boards.get(index)
    }

    pub(crate) fn port_board(&self, index: usize) -> Option<&Board> {
        self.port_boards.get(index)
    }

    /// How often the port's link came back.
    pub(crate) fn port_resumed(&self, index: usize) -> u64 {
        self.port_resumed.get(index).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn count_port_resumed(&self, index: usize) {
        if let Some(count) = self.port_resumed.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn worker_state(&self, index: usize) -> WorkerState {
        match self.states.get(index).map(|state| state.load(Ordering::Acquire)) {
            Some(0) => WorkerState::Running,
            Some(2) => WorkerState::Panicked,
            _ => WorkerState::Ended,
        }
    }

    pub(crate) fn set_worker_state(&self, index: usize, state: WorkerState) {
        if let Some(slot) = self.states.get(index) {
            slot.store(state as u8, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Tells all threads to end; the first reason given stays.
    pub(crate) fn stop(&self, reason: EndReason) {
        lock(&self.end).get_or_insert(reason);
        self.stop.store(true, Ordering::Relaxed);
        self.ended.notify_all();
    }

    /// Why the daemon ends, once it does; waits at most `timeout`.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<EndReason> {
        let end = lock(&self.end);
        let (end, _) = self
            .ended
            .wait_timeout_while(end, timeout, |end| end.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        end.clone()
    }

    pub(crate) fn streams_open(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }

    /// Counts a stream in, unless there are too many.
    pub(crate) fn open_stream(&self) -> bool {
        let room = |open: usize| (open < STREAMS_MAX).then_some(open + 1);
        self.streams.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    pub(crate) fn close_stream(&self) {
        self.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The lock, whether or not another thread died holding it: what is kept under locks here is replaced whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
