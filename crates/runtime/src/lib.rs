//! Worker threads, pinning, steering rings, mailboxes; the one place that reads the clock.
//!
//! Two planes in one process. *Workers* are threads that each own a share of the packets and never wait for anybody. The *control
//! thread* owns the [`Host`](carrack_host::Host), empties the workers' mailboxes and answers [`Handle`]s. Numbers leave a worker over
//! a [`Board`], rows over bounded rings.
#![forbid(unsafe_code)]
#![allow(clippy::vec_box, reason = "changes of policy cross to their workers in the boxes they were made in")]

mod apply;
mod board;
mod clock;
mod control;
mod daemon;
mod event_log;
mod handle;
mod launch;
mod links;
mod lock;
mod logger;
mod mail;
mod memory;
mod open;
mod plane;
mod port_control;
mod processors;
mod request;
mod shared;
mod starting;
mod stats;
mod stream;
mod threads;
mod worker_loop;

pub use board::Board;
pub use clock::Clock;
pub use control::{InputProgress, PortWatcher};
pub use daemon::{ReloadError, ReloadReport, RunOptions, Runtime, refuse_missing_cpus};
pub use event_log::{AddressEvent, EVENTS_KEPT, EventBatch, EventSink, Happened, LoggedEvent};
pub use handle::{Counters, Handle, InterfaceRow, PortRow, WorkerReport};
pub use launch::{PortSetup, Setup, StartError, ThreadHook, WorkerSetup, place_thread};
pub use lock::{LockError, RunLock};
pub use memory::{Available, Budget, Part, available};
pub use port_control::PortControlSetup;
pub use processors::UsableCpus;
pub use request::{CaptureSpec, RequestError, TraceSpec};
pub use shared::{ControlCounters, EndReason, WorkerState};
pub use starting::Starting;
pub use stats::{LoopStats, PortReport};
pub use stream::{Next, Rows, Stream};
pub use threads::{ThreadRow, threads};
pub use worker_loop::Idle;
