//! The thread that turns journals into columnar files, merges days that are over, and deletes what is too old or too much.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use carrack_config::StoreConfig;

use super::merge::{self, Unmerged};
use super::{Counters, files, unix_ms};

/// Time between two looks for days to merge, and for journals that could not be packed.
const LOOK: Duration = Duration::from_secs(300);
/// Time until a day that could not be merged is tried again.
const RETRY: Duration = Duration::from_secs(6 * 3_600);

pub(super) struct Packer {
    config: StoreConfig,
    packing: Receiver<PathBuf>,
    counters: Arc<Counters>,
    looked: Instant,
    /// Is there more than at the last tidying up?
    has_packed: bool,
    /// Journals that could not be packed.
    failed: Vec<PathBuf>,
    /// Days that could not be merged, and when that was tried.
    unmerged: Vec<(PathBuf, Instant)>,
}

impl Packer {
    pub(super) fn new(config: StoreConfig, packing: Receiver<PathBuf>, counters: Arc<Counters>) -> Self {
        let looked = Instant::now();
        Self {
            config,
            packing,
            counters,
            looked,
            has_packed: false,
            failed: Vec::new(),
            unmerged: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        if let Err(error) = merge::recover(&self.config.dir) {
            tracing::warn!("cannot put {} in order: {error}", self.config.dir.display());
        }
        self.tidy();
        loop {
            match self.packing.recv_timeout(LOOK) {
                Ok(path) => self.pack(path),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !self.pack_waiting() {
                return;
            }
            if self.looked.elapsed() >= LOOK && !self.look() {
                return;
            }
        }
    }

    fn pack(&mut self, path: PathBuf) {
        if let Err(error) = files::pack(&self.config.dir, &path) {
            tracing::warn!(
                "cannot pack {}: {error}; it stays as it is and is searched all the same",
                path.display()
            );
            self.failed.push(path);
        }
        self.has_packed = true;
    }

    /// Packs what waits, before anything else is done; false when no more will come.
    fn pack_waiting(&mut self) -> bool {
        loop {
            match self.packing.try_recv() {
                Ok(path) => self.pack(path),
                Err(TryRecvError::Empty) if self.has_packed => self.tidy(),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    /// False when no more will come.
    fn look(&mut self) -> bool {
        self.failed.retain(|path| files::pack(&self.config.dir, path).is_err());
        self.tidy();
        self.unmerged.retain(|(_, tried)| tried.elapsed() < RETRY);
        let due = merge::due(&self.config.dir, unix_ms()).unwrap_or_else(|error| {
            tracing::warn!("cannot read {}: {error}", self.config.dir.display());
            Vec::new()
        });
        let is_going = due.into_iter().all(|day| self.is_unmerged(&day) || self.merge(&day));
        self.looked = Instant::now();
        is_going
    }

    fn is_unmerged(&self, day: &Path) -> bool {
        self.unmerged.iter().any(|(known, _)| known == day)
    }

    /// False when no more journals will come.
    fn merge(&mut self, day: &Path) -> bool {
        let began = Instant::now();
        match merge::merge(day, &mut || self.pack_waiting()) {
            Ok(merged) => tracing::info!(
                "{}: {} files became {}, {} events, in {:.1} s",
                day.display(),
                merged.files_before,
                merged.files,
                merged.events,
                began.elapsed().as_secs_f64()
            ),
            Err(Unmerged::Stopped) => return false,
            Err(Unmerged::Failed(why)) => {
                tracing::warn!(
                    "cannot merge the files of {}: {why}; they are searched all the same, and merged later",
                    day.display()
                );
                self.unmerged.push((day.to_owned(), Instant::now()));
            }
        }
        true
    }

    fn tidy(&mut self) {
        self.has_packed = false;
        let oldest_ms = unix_ms().saturating_sub(u64::from(self.config.keep_s) * 1_000);
        match files::tidy(&self.config.dir, oldest_ms, u64::from(self.config.max_mb) * 1_000_000) {
            Ok(bytes) => self.counters.bytes.store(bytes, Ordering::Relaxed),
            Err(error) => tracing::warn!("cannot tidy up {}: {error}", self.config.dir.display()),
        }
    }
}
