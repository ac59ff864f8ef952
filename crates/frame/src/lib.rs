//! Packet memory: an owned, bounded frame with headroom, whoever allocated it.
//!
//! A [`Frame`] is a 24-byte handle to one packet's bytes. It never knows who allocated it: its owner gives it
//! back through a [`FramePool`]. In an in-process run all frames come from a [`MemPool`], in a DPDK run all come
//! from that run's mbuf pool; the two are never mixed.

mod frame;
mod pool;
mod region;

pub use frame::{Frame, FrameParts};
pub use pool::{FramePool, MemPool};

/// Bytes kept free before a packet by default, for encapsulations to come.
pub const DEFAULT_HEADROOM_BYTES: u16 = 128;
/// Bytes for the packet itself by default: a 1500-byte IP packet, Ethernet, two VLAN tags and room to grow.
pub const DEFAULT_FRAME_BYTES: u16 = 2048;
