//! `PacketIo` over the system's libdpdk, and the offload guard for kernel interfaces.
//!
//! [`Dpdk::init`] starts DPDK's environment once a process, with its one pool of packet buffers; [`Dpdk::open`] turns a
//! [`DeviceSpec`](carrack_io::DeviceSpec) into one `PacketIo` per queue. A kernel interface is first put under an
//! [`OffloadGuard`], which must be dropped after the port.

mod eal;
mod error;
mod ffi;
mod offload;
mod pool;
mod port;
mod stale;
mod vdev;

pub use eal::{Dpdk, EalOptions, dpdk_version};
pub use error::DpdkError;
pub use offload::{GuardOptions, OffloadChange, OffloadError, OffloadGuard, restore_stale};
pub use pool::{DpdkPool, PoolUsage};
pub use port::{PortOptions, PortWatch, Spread, Steer, SteerBy};
pub use stale::{OwnFiles, remove_stale_files};
