//! The management client: snapshots of all sessions, and random ones deleted in batches.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use carrack_api::RowFilter;
use carrack_api::client::{Client, ClientError};
use carrack_api::types::{BatchDelete, Deleted, SessionKey};
use serde::{Deserialize, Serialize};

/// Sessions of one request, as published.
pub(crate) const BATCH: usize = 40;
/// Requests under way at once: each waits for the worker's answer.
const CONNECTIONS: u64 = 8;

/// What the client did.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Churned {
    pub seconds: f64,
    /// Sessions that were asked to be deleted, and those that existed and went.
    pub asked: u64,
    pub deleted: u64,
    /// Whole snapshots taken, rows of the last, and how long it took.
    pub snapshots: u64,
    pub snapshot_rows: u64,
    pub snapshot_seconds: f64,
}

/// A session as the snapshot keeps it.
#[derive(Clone, Copy)]
struct Key {
    inside: IpAddr,
    remote: Ipv4Addr,
    inside_port: u16,
    remote_port: u16,
}

/// The part of a row that names the session.
#[derive(Deserialize)]
struct Row {
    inside: IpAddr,
    remote: Ipv4Addr,
    inside_port: u16,
    remote_port: u16,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    asked: AtomicU64,
    deleted: AtomicU64,
    snapshots: AtomicU64,
    snapshot_ms: AtomicU64,
    keys: Mutex<Arc<Vec<Key>>>,
}

impl Shared {
    fn keys(&self) -> Arc<Vec<Key>> {
        Arc::clone(&self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// The client under way.
pub(crate) struct Churn {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<(), ClientError>>>,
    started: Instant,
}

impl Churn {
    /// Takes a snapshot; then deletes at most `deletions` sessions a second until it is finished. `waits` is called while there is no
    /// snapshot yet.
    pub fn start(
        socket: &Path,
        deletions: u32,
        snapshot_every: u32,
        mut waits: impl FnMut() -> Result<()>,
    ) -> Result<Churn> {
        let shared = Arc::new(Shared::default());
        let (socket, every) = (socket.to_owned(), Duration::from_secs(u64::from(snapshot_every)));
        let mut threads = Vec::new();
        if deletions > 0 {
            let (shared, socket) = (Arc::clone(&shared), socket.clone());
            threads.push(thread::spawn(move || take_snapshots(&shared, &socket, every)));
        }
        let first = threads.first();
        while first.is_some_and(|thread| !thread.is_finished()) && shared.keys().is_empty() {
            if let Err(why) = waits() {
                shared.stop.store(true, Ordering::Release);
                return Err(why);
            }
            thread::sleep(Duration::from_millis(20));
        }
        for number in 0..if deletions > 0 { CONNECTIONS } else { 0 } {
            let (shared, socket) = (Arc::clone(&shared), socket.clone());
            let rate = f64::from(deletions) / CONNECTIONS as f64;
            threads.push(thread::spawn(move || delete(&shared, &socket, rate, number)));
        }
        Ok(Churn { shared, threads, started: Instant::now() })
    }

    /// What it has done by now.
    pub fn so_far(&self) -> Churned {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        Churned {
            seconds: self.started.elapsed().as_secs_f64(),
            asked: load(&self.shared.asked),
            deleted: load(&self.shared.deleted),
            snapshots: load(&self.shared.snapshots),
            snapshot_rows: self.shared.keys().len() as u64,
            snapshot_seconds: load(&self.shared.snapshot_ms) as f64 / 1e3,
        }
    }

    /// Stops and waits for the requests under way.
    pub fn finish(self) -> Result<Churned> {
        self.shared.stop.store(true, Ordering::Release);
        let seconds = self.started.elapsed().as_secs_f64();
        let so_far = |churn: &Churn| Churned { seconds, ..churn.so_far() };
        let mut churn = self;
        for thread in std::mem::take(&mut churn.threads) {
            thread.join().map_err(|_| anyhow!("a thread of the management client panicked"))??;
        }
        Ok(so_far(&churn))
    }
}

fn take_snapshots(shared: &Shared, socket: &Path, every: Duration) -> Result<(), ClientError> {
    let client = Client::new(socket)?;
    while !shared.stopped() {
        let started = Instant::now();
        let mut keys = Vec::new();
        let stream = client.stream("/v1/nat/sessions", &RowFilter::default(), "application/x-ndjson")?;
        let taken = stream.rows(|row: Row| {
            let Row { inside, remote, inside_port, remote_port } = row;
            keys.push(Key { inside, remote, inside_port, remote_port });
            if shared.stopped() { Err(Stop::Asked) } else { Ok(()) }
        });
        match taken {
            Ok(()) => {}
            Err(Stop::Asked) => break,
            Err(Stop::Failed(error)) => return Err(error),
        }
        *shared.keys.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        shared.snapshot_ms.store(started.elapsed().as_millis() as u64, Ordering::Relaxed);
        shared.snapshots.fetch_add(1, Ordering::Relaxed);
        while started.elapsed() < every && !shared.stopped() {
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

/// Why a snapshot ends early.
enum Stop {
    Asked,
    Failed(ClientError),
}

impl From<ClientError> for Stop {
    fn from(error: ClientError) -> Stop {
        Stop::Failed(error)
    }
}

fn delete(shared: &Shared, socket: &Path, rate: f64, number: u64) -> Result<(), ClientError> {
    let client = Client::new(socket)?;
    let mut connection = client.connect()?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (number + 1));
    let mut begun: Option<Instant> = None;
    let mut asked = 0u64;
    while !shared.stopped() {
        let keys = shared.keys();
        if keys.is_empty() {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        let since = *begun.get_or_insert_with(Instant::now);
        let due = since.elapsed().as_secs_f64() * rate;
        if due < asked as f64 {
            thread::sleep(Duration::from_micros(500));
            continue;
        }
        let sessions = (0..BATCH).filter_map(|_| keys.get(random.below(keys.len()))).map(|key| SessionKey {
            instance: "cgn".to_owned(),
            protocol: "udp".to_owned(),
            inside: key.inside,
            inside_port: key.inside_port,
            remote: key.remote,
            remote_port: key.remote_port,
        });
        let batch = BatchDelete { sessions: sessions.collect() };
        let body = serde_json::to_vec(&batch).unwrap_or_default();
        let Deleted { deleted } = connection.post("/v1/nat/sessions/delete", body)?;
        asked += BATCH as u64;
        shared.asked.fetch_add(BATCH as u64, Ordering::Relaxed);
        shared.deleted.fetch_add(deleted, Ordering::Relaxed);
    }
    Ok(())
}

/// Xorshift: which sessions go need not be unpredictable.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}
