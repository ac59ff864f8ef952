//! The stages and the burst; owns one worker's state.
#![forbid(unsafe_code)]

pub mod mailbox;
pub mod snapshot;
