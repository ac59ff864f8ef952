//! Ids, prefixes, port ranges, ticks, limits, THE table of reasons and that of threads.
//!
//! Everything here is plain data that every other crate may name. Nothing here does I/O, reads a clock or allocates
//! on the packet path.
#![forbid(unsafe_code)]

pub mod counters;
mod family;
mod id;
mod prefix;
mod proto;
mod range;
pub mod reason;
pub mod text;
pub mod thread;
mod time;

pub use family::Family;
pub use id::{IfIndex, InstanceId, PoolId, PortId, VrfId, WorkerId};
pub use prefix::{Prefix, Prefix4, Prefix6, PrefixError};
pub use proto::Proto;
pub use range::Range4;
pub use reason::{IcmpReply, REASONS, Reason, ReasonInfo, Severity};
pub use time::Now;

/// Packets handled together by every stage; metadata arrays are sized by it.
pub const BURST_PACKETS_MAX: usize = 64;
/// Most physical ports of one daemon.
pub const PORTS_MAX: usize = 32;
/// Most logical interfaces (ports and their VLAN sub-interfaces).
pub const INTERFACES_MAX: usize = 4096;
/// Most workers of one daemon.
pub const WORKERS_MAX: usize = 64;
/// Most NAT instances of one daemon.
pub const INSTANCES_MAX: usize = 256;
/// Most routing instances (VRFs) of one daemon.
pub const VRFS_MAX: usize = 1024;
