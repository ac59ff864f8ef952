//! Demonstration networks in network namespaces.
//!
//! A [`Lab`] is five namespaces joined by veth pairs:
//!
//! ```text
//!  sub1 100.64.0.11 ─┐        inside        outside                 ┌─ wan    mtu 1500  203.0.113.10
//!                    ├ lan ─────────┤ carrack ├───────────── isp ───┤                    inet
//!  sub2 100.64.0.12 ─┘   100.64.0.1           192.0.2.2  192.0.2.1  └─ narrow mtu 1300  203.0.113.130
//! ```
//!
//! `lan` is a switch, `isp` a router that sends the pool 198.51.100.0/28 towards `carrack`, `inet` holds real servers
//! (web, DNS, UDP echo, iperf3). In `carrack` runs either the daemon on the two veth ends, or, for comparison, the
//! kernel's own NAT.
//!
//! Nothing is created outside these namespaces, `/run/carrack-lab` and `/etc/netns`. Everything that a lab starts is
//! recorded with process id and start time, so that a later [`Lab::down`] also clears what a killed lab left.
#![forbid(unsafe_code)]

pub mod checks;
pub mod cli;
pub mod nat64;
pub mod plan;
pub mod report;
pub mod siit;

mod bison;
mod command;
mod compare;
mod lab;
mod links;
mod memif;
mod needs;
mod process;
mod rig;
mod router;
mod servers;
mod state;
mod traffic;

pub use command::{Finished, interrupted};
pub use lab::{Lab, Options};
pub use needs::{can_run, missing};
pub use rig::pages::Pages as HugePages;
pub use router::{Io, Router, config};
