//! The stages and the burst; owns one worker's state.
//!
//! [`Worker`] is sans-I/O: the runtime fills [`Worker::rx_buffer`], calls [`Worker::process`] and
//! [`Worker::background`], and sends what is in [`Worker::tx`]. [`stats::STAGES`] lists the stages; `worker` runs them
//! in that order. `plan` is configuration made ready, `mailbox` what crosses to the control plane.
#![forbid(unsafe_code)]

mod background;
pub mod budget;
mod burst;
mod cross;
mod dump;
mod exits;
mod express;
mod express6;
mod express_siit;
mod forward;
mod fragments;
mod local;
mod local6;
mod local_across;
pub mod mailbox;
mod mediate;
mod nat_stage;
mod neighbours;
mod parse;
mod parse6;
mod pieces;
pub mod plan;
pub mod policer;
mod reload;
mod siit;
pub mod snapshot;
pub mod stats;
mod taps;
pub mod translators;
mod worker;

pub use burst::Handover;
pub use plan::Plan;
pub use stats::WorkerStats;
pub use worker::{TX_QUEUE_PACKETS, Worker, WorkerMail};
