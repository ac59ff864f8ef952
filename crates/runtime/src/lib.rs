//! Worker threads, pinning, steering rings, mailboxes; the one place that reads the clock.
#![forbid(unsafe_code)]
