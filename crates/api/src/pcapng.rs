//! Captured packets as pcapng: one interface block for each interface and point (`inside.rx`, `inside.drop`, …), the
//! drop reason as the packet's comment.

use std::borrow::Cow;
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};

use crate::failure::Failure;
use crate::types::CapturedPacket;

/// Longest packet copy that the file announces, bytes.
const SNAPLEN_BYTES: u32 = 65_535;

/// Writes a capture into memory, block by block; take the bytes with [`Writer::take`].
pub struct Writer {
    inner: PcapNgWriter<Vec<u8>>,
    interfaces: Vec<(String, &'static str)>,
}

impl Writer {
    /// A writer that holds the section header.
    ///
    /// # Errors
    /// The header does not encode; a fault.
    pub fn new() -> Result<Self, Failure> {
        let inner = PcapNgWriter::new(Vec::with_capacity(8_192)).map_err(|e| fault(&e))?;
        Ok(Self { inner, interfaces: Vec::new() })
    }

    /// Adds a packet, and its interface block when it is the first one there.
    ///
    /// # Errors
    /// The packet does not encode; a fault.
    pub fn packet(&mut self, packet: &CapturedPacket) -> Result<(), Failure> {
        let interface_id = self.interface(&packet.interface, packet.point)?;
        let mut options = Vec::new();
        if let Some(reason) = packet.reason {
            let comment = format!("dropped: {} - {}", reason.name(), reason.info().description);
            options.push(EnhancedPacketOption::Comment(Cow::Owned(comment)));
        }
        if packet.lost > 0 {
            options.push(EnhancedPacketOption::DropCount(packet.lost));
        }
        self.inner
            .write_pcapng_block(EnhancedPacketBlock {
                interface_id,
                timestamp: Duration::from_nanos(packet.unix_ns),
                original_len: packet.original_len,
                data: Cow::Borrowed(&packet.bytes),
                options,
            })
            .map_err(|e| fault(&e))?;
        Ok(())
    }

    /// Bytes written since the last [`Writer::take`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.get_ref().len()
    }

    /// Nothing written since?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole blocks written since the last time.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        core::mem::take(self.inner.get_mut())
    }

    fn interface(&mut self, name: &str, point: &'static str) -> Result<u32, Failure> {
        if let Some(id) = self.interfaces.iter().position(|(n, p)| n == name && *p == point) {
            return Ok(id as u32);
        }
        self.inner
            .write_pcapng_block(InterfaceDescriptionBlock {
                linktype: DataLink::ETHERNET,
                snaplen: SNAPLEN_BYTES,
                options: vec![
                    InterfaceDescriptionOption::IfName(Cow::Owned(format!("{name}.{point}"))),
                    InterfaceDescriptionOption::IfTsResol(9),
                ],
            })
            .map_err(|e| fault(&e))?;
        self.interfaces.push((name.to_owned(), point));
        Ok(self.interfaces.len() as u32 - 1)
    }
}

fn fault(error: &PcapError) -> Failure {
    Failure::internal(format!("a captured packet does not fit pcapng: {error}"))
}

#[cfg(test)]
mod tests;
