//! What a worker asks of a port.

use carrack_frame::Frame;
use std::fmt;

/// One queue pair of one port, used by one worker.
///
/// The two burst calls are the packet path: they never block, allocate, or grow a vector beyond the capacity it came with. The other calls
/// may take a system call and are for the control plane's pace.
pub trait PacketIo: Send {
    /// Appends at most `max` received frames to `out`, never beyond its capacity, and returns how many.
    fn rx_burst(&mut self, out: &mut Vec<Frame>, max: usize) -> usize;

    /// Sends from the front of `frames` as many as the port takes now and returns how many. Those are removed (the port owns
    /// them); the rest stay, in order, for the caller to retry or free.
    fn tx_burst(&mut self, frames: &mut Vec<Frame>) -> usize;

    /// Address, size limit and state of the whole port.
    fn link(&self) -> LinkInfo;

    /// Counters of the whole port since it was opened: every queue pair of a port reports the same numbers.
    fn stats(&self) -> PortStats;

    /// The port's name, for messages.
    fn name(&self) -> &str;
}

impl<P: PacketIo + ?Sized> PacketIo for Box<P> {
    fn rx_burst(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        (**self).rx_burst(out, max)
    }

    fn tx_burst(&mut self, frames: &mut Vec<Frame>) -> usize {
        (**self).tx_burst(frames)
    }

    fn link(&self) -> LinkInfo {
        (**self).link()
    }

    fn stats(&self) -> PortStats {
        (**self).stats()
    }

    fn name(&self) -> &str {
        (**self).name()
    }
}

/// A 48-bit Ethernet address; displays as `02:00:00:00:00:01`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Address, size limit and state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkInfo {
    /// The port's own Ethernet address.
    pub mac: MacAddress,
    /// Largest layer-3 packet in bytes: without Ethernet header, VLAN tags and frame check sequence.
    pub mtu: u16,
    /// Whether the far end is there.
    pub up: bool,
    /// Megabits per second; `None` where the port has no rate of its own.
    pub speed_mbps: Option<u32>,
}

/// Counters of a port. Packets and bytes count whole Ethernet frames without frame check sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Packets received and handed to workers.
    pub rx_packets: u64,
    /// Bytes of those packets.
    pub rx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes of those packets.
    pub tx_bytes: u64,
    /// Packets the port dropped because no worker fetched them in time.
    pub rx_missed: u64,
    /// Packets the port received damaged or larger than a frame.
    pub rx_errors: u64,
    /// Packets not received because no frame was free.
    pub rx_nombuf: u64,
    /// Packets the port took but failed to send.
    pub tx_errors: u64,
}
