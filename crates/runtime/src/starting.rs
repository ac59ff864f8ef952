//! A start that is under way, and the way to end it from another thread.

#[cfg(test)]
mod tests;

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::launch::StartError;
use crate::shared::lock;

/// Ends a start before it is finished. Clones are one and the same.
///
/// Most of a start looks now and then whether it is to go on. What cannot look, such as DPDK's own start, is done with what is to
/// be set back laid down here; who ends the start meanwhile sets it back, and then ends the process.
#[derive(Clone, Default)]
pub struct Starting(Arc<Inner>);

#[derive(Default)]
struct Inner {
    over: Arc<AtomicBool>,
    held: Mutex<Held>,
}

/// What the thread that starts has laid down.
#[derive(Default)]
enum Held {
    /// Nothing: it looks whether it is to go on.
    #[default]
    Nothing,
    /// This, until it is back from something slow.
    While(Box<dyn Any + Send>),
    /// It was taken up: nothing goes on.
    Taken,
}

impl std::fmt::Debug for Starting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Starting").field("over", &self.is_over()).finish_non_exhaustive()
    }
}

impl Starting {
    /// Ends the start. True: it is in something slow that does not look; what it held is set back, and the process has to end
    /// now, for the thread that starts will not go on. False: it ends by itself.
    #[must_use]
    pub fn end(&self) -> bool {
        self.0.over.store(true, Ordering::Relaxed);
        let taken = {
            let mut held = lock(&self.0.held);
            if matches!(*held, Held::Nothing) {
                return false;
            }
            std::mem::replace(&mut *held, Held::Taken)
        };
        drop(taken);
        true
    }

    /// Has somebody ended it?
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed)
    }

    /// Goes on unless it is over.
    pub(crate) fn check(&self) -> Result<(), StartError> {
        if self.is_over() { Err(StartError::Ended) } else { Ok(()) }
    }

    /// Set once it is over.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0.over)
    }

    /// Does something slow that does not look whether it is to go on, while `held` is what has to be dropped if it is not.
    ///
    /// # Errors
    /// [`StartError::Ended`] when it is over already; then nothing is done.
    pub fn slowly<H: Send + 'static, T>(
        &self,
        held: H,
        act: impl FnOnce() -> T,
    ) -> Result<(H, T), StartError> {
        {
            let mut place = lock(&self.0.held);
            // Looked at under the lock: who ends it after this finds what is held.
            self.check()?;
            *place = Held::While(Box::new(held));
        }
        let done = act();
        let held = std::mem::take(&mut *lock(&self.0.held));
        if let Held::While(held) = held
            && let Ok(held) = held.downcast::<H>()
        {
            return Ok((*held, done));
        }
        loop {
            // Whoever took it ends the process.
            std::thread::park();
        }
    }
}
