//! Packets in and out: the [`PacketIo`] trait, the in-process `mem` and `pcap` ports, and the one-line
//! description of a device that a config names.
//!
//! A `PacketIo` is one queue pair of one port, used by one worker, called once a burst. Ports that need a driver
//! live in another crate; nothing here knows about them except their names in `DeviceSpec`.
#![forbid(unsafe_code)]

mod mem;
mod packet_io;

pub use mem::{MemPeer, MemPort};
pub use packet_io::{LinkInfo, MacAddress, PacketIo, PortStats};
