//! Port control, sans-I/O: a server of PCP (RFC 6887, port sets of RFC 7753) and NAT-PMP (RFC 6886).
//!
//! Hosts ask for mappings, [`Server`] decides whether they may have them and for how long, and the NAT engine of the
//! worker that owns the host makes them. The server is fed frames, answers of the engine, and time; it gives back
//! frames to send, questions to the engine, and what is to be kept over a restart. It has no clock, no socket and no
//! file, so a test is a list of calls.
#![forbid(unsafe_code)]

mod announce;
mod config;
mod frames;
mod message;
mod natpmp;
mod ports;
mod server;
mod state;
mod table;

pub use config::{Allowed, Config, Served};
pub use message::{Code, MESSAGE_BYTES_MAX};
pub use server::{Counters, Server};
pub use state::{Saved, StateError};
pub use table::{Key, MappingRow, Nonce, Origin};
