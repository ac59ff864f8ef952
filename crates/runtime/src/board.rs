//! A bulletin board: one thread publishes a set of numbers, any thread reads the last set whole.
//!
//! The publisher never waits, so a worker can use it; readers retry while a publication is under way.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

/// A fixed number of `u64` words, published and read as one.
#[derive(Debug)]
pub struct Board {
    /// Odd while a publication is under way; grows by two with each.
    sequence: AtomicU64,
    words: Box<[AtomicU64]>,
}

impl Board {
    /// A board of `words` words, all zero.
    #[must_use]
    pub fn new(words: usize) -> Self {
        Self { sequence: AtomicU64::new(0), words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Publishes `values`; missing ones keep their last value, those past the board's end are left out. Only one thread
    /// may publish.
    pub fn publish(&self, values: &[u64]) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence + 1, Ordering::Relaxed);
        // A reader that sees one of the words below also sees the odd sequence above.
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(values) {
            word.store(*value, Ordering::Relaxed);
        }
        self.sequence.store(sequence + 2, Ordering::Release);
    }

    /// The last set published, never parts of two.
    #[must_use]
    pub fn read(&self) -> Vec<u64> {
        let mut values = vec![0; self.words.len()];
        loop {
            let before = self.sequence.load(Ordering::Acquire);
            for (value, word) in values.iter_mut().zip(&self.words) {
                *value = word.load(Ordering::Relaxed);
            }
            // The words are read before the sequence is looked at again.
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == before {
                return values;
            }
            // Who writes may be waiting for this very processor. No yield: see the worker's loop.
            std::thread::sleep(Duration::from_micros(10));
        }
    }

    /// Number of publications so far.
    #[must_use]
    pub fn publications(&self) -> u64 {
        self.sequence.load(Ordering::Acquire) / 2
    }
}
