//! Signals, on a thread of their own from the very beginning: while the daemon starts, and while it runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use carrack_api::Failure;
use carrack_base::thread::Thread;
use carrack_natlog::Service;
use carrack_runtime::{EventSink, Handle, Starting};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle as Closer, Signals};
use tracing::{error, info, warn};

use super::backend::Daemon;
use super::unix_ms;

/// What a signal finds.
enum Phase {
    /// A daemon that is starting; what logs, and whether it is to read its configuration again when it is ready.
    Starting { log: Option<Service>, reload: bool },
    /// One that runs.
    Running { daemon: Arc<Daemon>, handle: Handle },
}

/// The thread that obeys.
pub(super) struct Obedience {
    phase: Arc<Mutex<Phase>>,
    starting: Starting,
    closer: Closer,
    thread: JoinHandle<()>,
}

impl Obedience {
    /// From now on signals are obeyed.
    ///
    /// # Errors
    /// A sentence, when the system gives no signals or no thread.
    pub(super) fn start() -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
            .map_err(|e| Failure::internal(format!("cannot take signals: {e}")))?;
        let closer = signals.handle();
        let phase = Arc::new(Mutex::new(Phase::Starting { log: None, reload: false }));
        let starting = Starting::default();
        let (seen, start) = (Arc::clone(&phase), starting.clone());
        let obey = move || signals.forever().for_each(|signal| obey(signal, &seen, &start));
        let thread = std::thread::Builder::new()
            .name(Thread::Signals.name())
            .spawn(obey)
            .map_err(|e| Failure::internal(format!("cannot start a thread for signals: {e}")))?;
        Ok(Self { phase, starting, closer, thread })
    }

    /// What a signal ends while the daemon starts.
    pub(super) fn starting(&self) -> Starting {
        self.starting.clone()
    }

    /// Events are logged, and are to be finished also when the start is not.
    pub(super) fn logs_to(&self, service: &Service) {
        if let Phase::Starting { log, .. } = &mut *lock(&self.phase) {
            *log = Some(service.clone());
        }
    }

    /// The daemon runs: does what signals have asked for meanwhile.
    pub(super) fn started(&self, daemon: &Arc<Daemon>, handle: Handle) {
        let before = {
            let mut phase = lock(&self.phase);
            // A signal that came since the start was over found nobody to obey it.
            if self.starting.is_over() {
                handle.shutdown();
            }
            std::mem::replace(&mut *phase, Phase::Running { daemon: Arc::clone(daemon), handle })
        };
        if let Phase::Starting { reload: true, .. } = before {
            reload(daemon);
        }
    }

    /// Obeys no more.
    pub(super) fn stop(self) {
        self.closer.close();
        // A thread that died has said so on standard error.
        let _ = self.thread.join();
    }
}

fn lock(phase: &Mutex<Phase>) -> MutexGuard<'_, Phase> {
    phase.lock().unwrap_or_else(PoisonError::into_inner)
}

fn obey(signal: i32, phase: &Mutex<Phase>, starting: &Starting) {
    let mut phase = lock(phase);
    match &mut *phase {
        Phase::Starting { reload, .. } if signal == SIGHUP => *reload = true,
        Phase::Starting { log, .. } => {
            info!("told to end while starting");
            if starting.end() {
                // The thread that starts is in something that cannot be told to stop, and all else is tidied up.
                if let Some(log) = log {
                    log.end(unix_ms() * 1_000_000);
                }
                std::process::exit(0);
            }
        }
        Phase::Running { daemon, .. } if signal == SIGHUP => {
            let daemon = Arc::clone(daemon);
            drop(phase);
            reload(&daemon);
        }
        Phase::Running { handle, .. } => handle.shutdown(),
    }
}

fn reload(daemon: &Daemon) {
    use carrack_api::Backend;
    match daemon.reload() {
        Ok(report) => {
            for message in &report.messages {
                warn!("{}", message.trim_end());
            }
            for c in &report.changes {
                info!("{}: {} -> {} ({})", c.path, c.from, c.to, c.effect);
            }
            if report.applied {
                info!("reloaded: {} changes, generation {}", report.changes.len(), report.generation);
            } else {
                error!("reload refused: nothing changed, generation {} goes on", report.generation);
            }
        }
        Err(failure) => error!("reload failed: {failure}"),
    }
}
