//! A port whose network is files: receives what one capture holds, writes what is sent to another.

use crate::capture_file::{CaptureError, CapturedPacket, read_capture};
use crate::{LinkInfo, MacAddress, PacketIo, PortStats};
use carrack_frame::{Frame, FramePool, MemPool};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What a [`PcapPort`] reads, writes and how fast.
#[derive(Clone, Debug)]
pub struct PcapPortOptions {
    /// Capture to receive from, pcap or pcapng; `None` receives nothing.
    pub rx: Option<PathBuf>,
    /// Capture to write what is sent, classic pcap with nanoseconds; an existing file is replaced. `None` discards.
    pub tx: Option<PathBuf>,
    /// Port index that received frames carry.
    pub index: u16,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u16,
    /// True delivers a packet only once the [`PcapControl`]'s time has passed the packet's offset from the first one;
    /// false delivers as fast as asked.
    pub paced: bool,
}

/// A port over capture files. The received file is read whole at the start.
pub struct PcapPort {
    name: String,
    index: u16,
    link: LinkInfo,
    pool: MemPool,
    packets: Vec<CapturedPacket>,
    next: usize,
    start: Duration,
    paced: bool,
    writer: Option<PcapWriter<BufWriter<File>>>,
    control: PcapControl,
    stats: PortStats,
}

/// Tells a [`PcapPort`] the time and how far it is; usable from anywhere while a worker owns the port.
#[derive(Clone, Default)]
pub struct PcapControl {
    now_ns: Arc<AtomicU64>,
    remaining: Arc<AtomicUsize>,
}

impl PcapControl {
    /// Sets the time since the port's start. It stamps sent packets and, in a paced port, releases received ones.
    pub fn set_now(&self, since_start: Duration) {
        let nanos = u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX);
        self.now_ns.store(nanos, Ordering::Release);
    }

    /// Packets of the file not received yet.
    pub fn remaining(&self) -> usize {
        self.remaining.load(Ordering::Acquire)
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns.load(Ordering::Acquire))
    }
}

impl PcapPort {
    /// Opens the files. Received frames come from `pool`, sent frames go back to it: a handle of the run's one pool.
    ///
    /// # Errors
    /// When a file cannot be read or created; see [`read_capture`].
    pub fn open(name: &str, options: PcapPortOptions, pool: MemPool) -> Result<PcapPort, CaptureError> {
        let packets = options.rx.as_deref().map(read_capture).transpose()?.unwrap_or_default();
        let writer = options.tx.as_deref().map(create_capture).transpose()?;
        let control = PcapControl::default();
        control.remaining.store(packets.len(), Ordering::Release);
        let [high, low] = options.index.to_be_bytes();
        let mac = MacAddress([2, 0, 0, 1, high, low]);
        Ok(PcapPort {
            name: name.to_owned(),
            index: options.index,
            link: LinkInfo { mac, mtu: options.mtu, up: true, speed_mbps: None },
            pool,
            start: packets.first().map_or(Duration::ZERO, |first| first.timestamp),
            packets,
            next: 0,
            paced: options.paced,
            writer,
            control,
            stats: PortStats::default(),
        })
    }

    /// A handle that sets the port's time and reads its progress.
    pub fn control(&self) -> PcapControl {
        self.control.clone()
    }

    /// The next packet, once its time has come.
    fn due(&self) -> Option<&CapturedPacket> {
        let packet = self.packets.get(self.next)?;
        let offset = packet.timestamp.saturating_sub(self.start);
        (!self.paced || offset <= self.control.now()).then_some(packet)
    }

    fn write(&mut self, frame: &Frame) {
        let Some(writer) = &mut self.writer else { return };
        let timestamp = self.start + self.control.now();
        let packet = PcapPacket::new(timestamp, frame.len() as u32, frame.bytes());
        if writer.write_packet(&packet).is_err() {
            self.stats.tx_errors += 1;
        }
    }
}

impl PacketIo for PcapPort {
    fn rx_burst(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let wanted = max.min(out.capacity() - out.len());
        let mut received = 0;
        while received < wanted {
            let Some(mut frame) = self.pool.alloc() else {
                // The packet is not lost: the file keeps it until a frame is free.
                self.stats.rx_nombuf += 1;
                break;
            };
            let Some(packet) = self.due() else {
                self.pool.free(frame);
                break;
            };
            let fits = frame.set_bytes(&packet.bytes);
            self.next += 1;
            if !fits {
                self.stats.rx_errors += 1;
                self.pool.free(frame);
                continue;
            }
            frame.set_port(self.index);
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += frame.len() as u64;
            out.push(frame);
            received += 1;
        }
        self.control.remaining.store(self.packets.len() - self.next, Ordering::Release);
        received
    }

    fn tx_burst(&mut self, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len();
        for frame in frames.drain(..) {
            self.stats.tx_packets += 1;
            self.stats.tx_bytes += frame.len() as u64;
            self.write(&frame);
            self.pool.free(frame);
        }
        count
    }

    fn link(&self) -> LinkInfo {
        self.link
    }

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.name
    }
}

fn create_capture(path: &Path) -> Result<PcapWriter<BufWriter<File>>, CaptureError> {
    let file =
        File::create(path).map_err(|error| CaptureError::new(path, format!("cannot create it: {error}")))?;
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        snaplen: u32::from(u16::MAX),
        ..PcapHeader::default()
    };
    PcapWriter::with_header(BufWriter::new(file), header)
        .map_err(|error| CaptureError::new(path, format!("cannot write to it: {error}")))
}

#[cfg(test)]
mod tests;
