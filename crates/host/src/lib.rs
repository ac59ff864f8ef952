//! The router's own functions, sans-I/O: ARP (answer, proxy, resolve, age, announce, notice conflicts), neighbour
//! discovery (the same for IPv6, router advertisements, duplicate addresses), multicast listening and ICMP
//! echo of both versions, whose packets may come in pieces.
//!
//! [`Host`] is fed what the workers do not forward, and time. It gives back complete frames to send, events that keep
//! the workers' neighbour tables right, and the time at which it wants to be called again. It has no clock, no socket
//! and no thread, so a test is a list of calls.
#![forbid(unsafe_code)]

mod advertise;
mod announce;
mod asking;
mod config;
mod echo;
mod host;
mod l2;
mod listener;
mod nd;
mod neighbours;
mod own6;
mod pieces;
mod reassembly;

pub use config::{ArpTimers, HostConfig, HostInterface, RouterAdvertising};
pub use host::{Host, HostCounters, HostEvent};
pub use l2::frame as link_frame;
pub use neighbours::{NeighbourRow, NeighbourState};
pub use own6::{OwnRow, Use as OwnUse};
