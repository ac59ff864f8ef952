//! Memory that nobody needs any more while it is still being made: large tables take seconds to touch.

use core::cell::RefCell;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

thread_local! {
    /// What ends the making of arenas in this thread.
    static UNTIL: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// While it lives, arenas that this thread makes are given up once the flag is set: within the time that a few MiB take.
#[derive(Debug)]
pub struct Until {
    before: Option<Arc<AtomicBool>>,
}

impl Until {
    /// Until this flag is set.
    #[must_use]
    pub fn set(flag: Arc<AtomicBool>) -> Self {
        Self { before: UNTIL.replace(Some(flag)) }
    }
}

impl Drop for Until {
    fn drop(&mut self) {
        UNTIL.set(self.before.take());
    }
}

/// Is nothing more to be made?
pub(crate) fn is_over() -> bool {
    UNTIL.with_borrow(|flag| flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}
