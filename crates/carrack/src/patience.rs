//! A word to a person who waits.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long nothing is said.
const SILENCE: Duration = Duration::from_secs(2);
/// Time between two words after that: into a file, and to a terminal, where one is written over the other.
const PAUSE: Duration = Duration::from_secs(10);
const PAUSE_TERMINAL: Duration = Duration::from_secs(1);

/// While it lives, what takes longer than two seconds is told on standard error, with the time it took so far.
pub struct Patience {
    done: Option<Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Patience {
    /// `what` is being done: "reading x.toml".
    pub fn with(what: String) -> Self {
        let (done, waits) = channel();
        let teller = std::thread::spawn(move || {
            let (start, is_terminal) = (Instant::now(), std::io::stderr().is_terminal());
            let mut pause = SILENCE;
            while waits.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let line = format!("{what} … {} s", start.elapsed().as_secs());
                let mut out = std::io::stderr().lock();
                let _ = if is_terminal { write!(out, "\r{line}\x1b[K") } else { writeln!(out, "{line}") };
                pause = if is_terminal { PAUSE_TERMINAL } else { PAUSE };
            }
            if is_terminal && start.elapsed() >= SILENCE {
                let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
            }
        });
        Self { done: Some(done), teller: Some(teller) }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(teller) = self.teller.take() {
            let _ = teller.join();
        }
    }
}
