//! Management API: request and response types, HTTP server, client.
//!
//! The daemon gives a [`Backend`]; [`server::Server`] serves it as HTTP and JSON on a local socket, and on TCP with TLS
//! and a token when config says so. [`client::Client`] is what the command line uses. Long answers (sessions,
//! captures, traces) are streams: neither side ever holds more than a few chunks of one.
#![forbid(unsafe_code)]

pub mod backend;
pub mod client;
mod failure;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
mod filter;
mod params;
pub mod pcapng;
pub mod server;
pub mod types;

pub use backend::{Backend, Rows, Step};
pub use failure::{Failure, Kind};
pub use filter::{
    CounterQuery, DeleteQuery, DeterministicQuery, EventQuery, NetworkQuery, NoQuery, PacketQuery,
    PortMappingDelete, PortMappingQuery, RowFilter,
};
pub use params::{Param, Params, nearest};
