//! A port that never leaves the process: two bounded rings of frames, for tests, simulation and benches.

use crate::{LinkInfo, MacAddress, PacketIo, PortStats};
use carrack_frame::{Frame, FramePool, MemPool};
use rtrb::{Consumer, Producer, RingBuffer};

/// The worker's end of an in-process port; see [`MemPort::with_peer`] and [`MemPort::cable`].
pub struct MemPort {
    name: String,
    index: u16,
    link: LinkInfo,
    rx: Consumer<Frame>,
    tx: Producer<Frame>,
    stats: PortStats,
}

/// The world's end of a [`MemPort`]: puts frames in and takes out what was sent.
pub struct MemPeer {
    to_port: Producer<Frame>,
    from_port: Consumer<Frame>,
}

impl MemPort {
    /// A port and the handle that plays the network around it. Each direction holds at most `depth` frames; received frames
    /// carry the port index `index`. The link is up, with an MTU of 1500 bytes and the address `02:00:00:00:xx:xx` of the index.
    pub fn with_peer(name: &str, index: u16, depth: usize) -> (MemPort, MemPeer) {
        let (to_port, rx) = RingBuffer::new(depth);
        let (tx, from_port) = RingBuffer::new(depth);
        (MemPort::over(name, index, rx, tx), MemPeer { to_port, from_port })
    }

    /// Two ports joined by a cable: what one sends, the other receives. Each direction holds at most `depth` frames.
    pub fn cable(first: (&str, u16), second: (&str, u16), depth: usize) -> (MemPort, MemPort) {
        let (tx_first, rx_second) = RingBuffer::new(depth);
        let (tx_second, rx_first) = RingBuffer::new(depth);
        (
            MemPort::over(first.0, first.1, rx_first, tx_first),
            MemPort::over(second.0, second.1, rx_second, tx_second),
        )
    }

    /// Changes what [`PacketIo::link`] reports.
    pub fn set_link(&mut self, link: LinkInfo) {
        self.link = link;
    }

    /// Frees every frame waiting to be received and returns how many: a port's end in a test that counts frames.
    pub fn drain(&mut self, pool: &mut dyn FramePool) -> usize {
        drain(&mut self.rx, pool)
    }

    fn over(name: &str, index: u16, rx: Consumer<Frame>, tx: Producer<Frame>) -> MemPort {
        let [high, low] = index.to_be_bytes();
        let mac = MacAddress([2, 0, 0, 0, high, low]);
        let link = LinkInfo { mac, mtu: 1500, up: true, speed_mbps: None };
        MemPort { name: name.to_owned(), index, link, rx, tx, stats: PortStats::default() }
    }
}

impl PacketIo for MemPort {
    fn rx_burst(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        let wanted = max.min(out.capacity() - out.len()).min(self.rx.slots());
        for received in 0..wanted {
            let Ok(mut frame) = self.rx.pop() else { return received };
            frame.set_port(self.index);
            self.stats.rx_packets += 1;
            self.stats.rx_bytes += frame.len() as u64;
            out.push(frame);
        }
        wanted
    }

    fn tx_burst(&mut self, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len().min(self.tx.slots());
        for frame in frames.drain(..count) {
            self.stats.tx_packets += 1;
            self.stats.tx_bytes += frame.len() as u64;
            // Invariant: this is the only producer, so the slots counted above are still free.
            if self.tx.push(frame).is_err() {
                self.stats.tx_errors += 1;
            }
        }
        count
    }

    fn link(&self) -> LinkInfo {
        LinkInfo { up: self.link.up && !self.tx.is_abandoned(), ..self.link }
    }

    fn stats(&self) -> PortStats {
        self.stats
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl MemPeer {
    /// Hands a frame to the port; gives it back when the ring is full.
    pub fn inject(&mut self, frame: Frame) -> Result<(), Frame> {
        self.to_port.push(frame).map_err(|rtrb::PushError::Full(frame)| frame)
    }

    /// Hands a copy of `packet` to the port. False when the ring is full, the pool is empty or the packet does not fit a frame.
    pub fn inject_bytes(&mut self, pool: &mut MemPool, packet: &[u8]) -> bool {
        let Some(frame) = pool.alloc_copy(packet) else { return false };
        match self.inject(frame) {
            Ok(()) => true,
            Err(frame) => {
                pool.free(frame);
                false
            }
        }
    }

    /// The oldest frame the port has sent and nobody has collected.
    pub fn collect(&mut self) -> Option<Frame> {
        self.from_port.pop().ok()
    }

    /// Copies of all packets the port has sent, oldest first; their frames go back to `pool`.
    pub fn collect_bytes(&mut self, pool: &mut dyn FramePool) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.collect())
            .map(|frame| {
                let packet = frame.bytes().to_vec();
                pool.free(frame);
                packet
            })
            .collect()
    }

    /// Frees every frame the port has sent and returns how many.
    pub fn drain(&mut self, pool: &mut dyn FramePool) -> usize {
        drain(&mut self.from_port, pool)
    }

    /// Frames the ring towards the port still takes.
    pub fn room(&self) -> usize {
        self.to_port.slots()
    }

    /// Frames the port has sent that wait to be collected.
    pub fn waiting(&self) -> usize {
        self.from_port.slots()
    }
}

fn drain(ring: &mut Consumer<Frame>, pool: &mut dyn FramePool) -> usize {
    let mut count = 0;
    while let Ok(frame) = ring.pop() {
        pool.free(frame);
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests;
