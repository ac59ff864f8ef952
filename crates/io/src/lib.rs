//! Packets in and out: the [`PacketIo`] trait, the in-process `mem` and `pcap` ports, and the one-line
//! description of a device that a config names.
//!
//! A `PacketIo` is one queue pair of one port, used by one worker, called once a burst. Ports that need a driver
//! live in another crate; nothing here knows about them except their names in [`DeviceSpec`].
#![forbid(unsafe_code)]

mod capture_file;
mod mem;
mod packet_io;
mod pcap;
mod spec;

pub use capture_file::{CaptureError, CapturedPacket, read_capture};
pub use mem::{MemPeer, MemPort};
pub use packet_io::{LinkInfo, MacAddress, PacketIo, PortStats};
pub use pcap::{PcapControl, PcapPort, PcapPortOptions};
pub use spec::{DeviceSpec, DeviceSpecError, MemifRole};
