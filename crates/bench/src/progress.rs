//! Progress on the error stream, for what takes longer than two seconds.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carrack_base::text::grouped;

/// Tells how far a long step is: on a terminal a line that is written over, else a line every ten seconds.
pub struct Progress {
    what: &'static str,
    total: u64,
    start: Instant,
    told: Instant,
    every: Duration,
    is_terminal: bool,
    has_told: bool,
}

impl Progress {
    /// Of `total` things.
    pub fn new(what: &'static str, total: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let every = if is_terminal { Duration::from_millis(500) } else { Duration::from_secs(10) };
        let now = Instant::now();
        Self { what, total, start: now, told: now, every, is_terminal, has_told: false }
    }

    /// So many are done; cheap enough to be called every few thousand packets.
    pub fn at(&mut self, done: u64) {
        if self.is_due() {
            self.tell(&line(self.what, done, self.total, self.start.elapsed().as_secs_f64()));
        }
    }

    /// So many are done of a step that ends with a time, after so many of its seconds.
    pub fn at_second(&mut self, done: u64, (second, of): (f64, f64)) {
        if self.is_due() {
            let rate = done as f64 / self.start.elapsed().as_secs_f64().max(1e-3) / 1e6;
            self.tell(&format!("{}: {second:.0} of {of} s, {rate:.2} M/s", self.what));
        }
    }

    fn is_due(&self) -> bool {
        self.told.elapsed() >= self.every
    }

    fn tell(&mut self, line: &str) {
        self.told = Instant::now();
        self.has_told = true;
        let mut out = std::io::stderr().lock();
        // A reader that went away is no reason to stop measuring.
        let _ = if self.is_terminal { write!(out, "\r{line}\x1b[K") } else { writeln!(out, "{line}") };
    }
}

/// A word to a person who waits: while it lives, what takes longer than two seconds is told on standard error, with the time it
/// took so far.
#[derive(Debug)]
pub struct Patience {
    done: Option<Sender<()>>,
    teller: Option<JoinHandle<()>>,
}

impl Patience {
    /// `what` is being done: "reading x.toml". Before a thread is pinned: the one that tells must not be in its way.
    #[must_use]
    pub fn with(what: String) -> Self {
        let (done, waits) = channel();
        let teller = std::thread::spawn(move || {
            let (start, is_terminal) = (Instant::now(), std::io::stderr().is_terminal());
            let mut pause = Duration::from_secs(2);
            while waits.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let line = format!("{what} … {} s", start.elapsed().as_secs());
                let mut out = std::io::stderr().lock();
                let _ = if is_terminal { write!(out, "\r{line}\x1b[K") } else { writeln!(out, "{line}") };
                pause = Duration::from_secs(if is_terminal { 1 } else { 10 });
            }
            if is_terminal && start.elapsed() >= Duration::from_secs(2) {
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

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal && self.has_told {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, total: u64, seconds: f64) -> String {
    let rate = done as f64 / seconds.max(1e-3);
    let left = total.saturating_sub(done) as f64 / rate.max(1.0);
    format!(
        "{what}: {} of {} ({} %), {:.2} M/s, {left:.0} s left",
        grouped(done),
        grouped(total),
        (done * 100).checked_div(total).unwrap_or(100),
        rate / 1e6
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_line_of_progress_says_how_far_how_fast_and_how_long() {
        let line = super::line("filling", 25_000_000, 100_000_000, 5.0);
        assert_eq!(line, "filling: 25,000,000 of 100,000,000 (25 %), 5.00 M/s, 15 s left");
    }
}
