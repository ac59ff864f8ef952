//! The server of port control in the control thread, and the file in which its mappings outlive the daemon.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};

use carrack_base::Now;
use carrack_base::thread::Thread;
use carrack_pcp::{Config, Saved, Server};

use crate::clock::Clock;

/// Least time between two writings of the file.
const WRITE_NS: u64 = 1_000_000_000;
/// A file longer than any that is written.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What the server starts from.
#[derive(Debug, Clone, Default)]
pub struct PortControlSetup {
    /// What it works by.
    pub config: Config,
    /// Where mappings outlive a restart.
    pub state_file: Option<PathBuf>,
}

/// The server and its file.
#[derive(Debug)]
pub(crate) struct PortControl {
    pub server: Server,
    keeper: Option<Keeper>,
}

/// Writes the file, on a thread of its own: disks are slow.
#[derive(Debug)]
struct Keeper {
    path: PathBuf,
    work: Option<SyncSender<Saved>>,
    thread: Option<std::thread::JoinHandle<()>>,
    written: Now,
}

impl PortControl {
    pub(crate) fn new(setup: PortControlSetup, clock: Clock) -> Self {
        let now = clock.now();
        let saved = setup.state_file.as_deref().and_then(read);
        let unix_s = clock.unix_ns(now.ns) / 1_000_000_000;
        let server = Server::new(setup.config, now, unix_s, saved);
        Self { server, keeper: setup.state_file.map(Keeper::start) }
    }

    /// Writes what has changed, once in a while.
    pub(crate) fn keep(&mut self, now: Now) {
        let Some(keeper) = &mut self.keeper else { return };
        if now.ns.saturating_sub(keeper.written.ns) < WRITE_NS {
            return;
        }
        keeper.written = now;
        let Some(work) = &keeper.work else { return };
        if let Some(saved) = self.server.poll_save()
            && work.try_send(saved).is_err()
        {
            // The disk is behind; what is there then is written next time.
            self.server.save_again();
        }
    }

    /// Writes all of it for the next run.
    pub(crate) fn finish(&mut self) {
        let Some(keeper) = &mut self.keeper else { return };
        drop(keeper.work.take());
        if let Some(thread) = keeper.thread.take() {
            let _ = thread.join();
        }
        write(&keeper.path, &self.server.save(true));
    }
}

impl Keeper {
    fn start(path: PathBuf) -> Self {
        let (work, queue) = sync_channel::<Saved>(1);
        let to = path.clone();
        let thread = std::thread::Builder::new().name(Thread::State.name());
        let thread = thread.spawn(move || queue.iter().for_each(|saved| write(&to, &saved)));
        let thread = thread.inspect_err(|error| {
            tracing::error!("cannot start a thread for {}: {error}; mappings are not kept", path.display());
        });
        Self { path, work: Some(work), thread: thread.ok(), written: Now { ns: 0 } }
    }
}

fn read(path: &Path) -> Option<Saved> {
    let told = |why: String| {
        tracing::warn!("{}: {why}; port control starts without the mappings of before", path.display());
    };
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            told(error.to_string());
            return None;
        }
        Ok(data) if data.len() > FILE_BYTES_MAX => {
            told("too long to be a state of port control".into());
            return None;
        }
        Ok(_) => {}
    }
    let text = std::fs::read_to_string(path).map_err(|error| told(error.to_string())).ok()?;
    Saved::of_text(&text).map_err(|error| told(error.to_string())).ok()
}

/// Whole or not at all; for nobody else to read, as it holds the secrets of clients.
fn write(path: &Path, saved: &Saved) {
    let new = path.with_extension("new");
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(saved.to_text().as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    });
    if let Err(error) = made {
        tracing::error!(
            "cannot write {}: {error}; mappings that hosts asked for end with the daemon until it can",
            path.display()
        );
    }
}
