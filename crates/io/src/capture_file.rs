//! Reads a whole capture file, classic pcap or pcapng, whichever it is.

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};
use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One packet of a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedPacket {
    /// Time since 1970-01-01 00:00 UTC.
    pub timestamp: Duration,
    /// The bytes in the file, from the Ethernet header on.
    pub bytes: Vec<u8>,
    /// Whether the capture cut the packet short.
    pub cut_short: bool,
}

/// Why a capture file could not be read or written.
#[derive(Debug)]
pub struct CaptureError {
    path: PathBuf,
    message: String,
}

impl CaptureError {
    pub(crate) fn new(path: &Path, message: impl Into<String>) -> CaptureError {
        CaptureError { path: path.to_owned(), message: message.into() }
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capture file {}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for CaptureError {}

/// First bytes of a pcapng section header block, in either byte order.
const PCAPNG_MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// A timestamp's unit where an interface of a pcapng file names none: microseconds.
const TSRESOL_DEFAULT: u8 = 6;

/// Reads every packet of a pcap or pcapng file with Ethernet link type into memory.
///
/// # Errors
/// When the file cannot be opened, is neither format, ends inside a packet, or is of another link type.
pub fn read_capture(path: &Path) -> Result<Vec<CapturedPacket>, CaptureError> {
    let open =
        || File::open(path).map_err(|error| CaptureError::new(path, format!("cannot open it: {error}")));
    let mut magic = [0; 4];
    open()?
        .read_exact(&mut magic)
        .map_err(|_| CaptureError::new(path, "it is empty or too short; write it with tcpdump or tshark"))?;
    let input = BufReader::new(open()?);
    if magic == PCAPNG_MAGIC { read_pcapng(path, input) } else { read_pcap(path, input) }
}

fn read_pcap(path: &Path, input: impl Read) -> Result<Vec<CapturedPacket>, CaptureError> {
    let mut reader = PcapReader::new(input).map_err(|error| {
        CaptureError::new(path, format!("it is neither pcap nor pcapng ({})", reason(&error)))
    })?;
    require_ethernet(path, reader.header().datalink)?;
    let mut packets = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(|error| damaged(path, packets.len(), &error))?;
        packets.push(CapturedPacket {
            timestamp: packet.timestamp,
            cut_short: packet.orig_len as usize > packet.data.len(),
            bytes: packet.data.into_owned(),
        });
    }
    Ok(packets)
}

fn read_pcapng(path: &Path, input: impl Read) -> Result<Vec<CapturedPacket>, CaptureError> {
    let mut reader = PcapNgReader::new(input).map_err(|error| damaged(path, 0, &error))?;
    let mut packets: Vec<CapturedPacket> = Vec::new();
    let mut resolutions: Vec<u8> = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.map_err(|error| damaged(path, packets.len(), &error))? {
            Block::SectionHeader(_) => resolutions.clear(),
            Block::InterfaceDescription(interface) => {
                require_ethernet(path, interface.linktype)?;
                resolutions.push(resolution(&interface));
            }
            Block::EnhancedPacket(packet) => {
                let tsresol =
                    resolutions.get(packet.interface_id as usize).copied().unwrap_or(TSRESOL_DEFAULT);
                packets.push(CapturedPacket {
                    // The reader takes a unit for a nanosecond whatever the file says.
                    timestamp: scaled(packet.timestamp.as_nanos() as u64, tsresol),
                    cut_short: packet.original_len as usize > packet.data.len(),
                    bytes: packet.data.into_owned(),
                });
            }
            Block::SimplePacket(packet) => packets.push(CapturedPacket {
                // A simple packet has no time of its own; it follows the one before.
                timestamp: packets.last().map_or(Duration::ZERO, |last| last.timestamp),
                cut_short: packet.original_len as usize > packet.data.len(),
                bytes: packet.data.into_owned(),
            }),
            _ => {}
        }
    }
    Ok(packets)
}

fn resolution(interface: &InterfaceDescriptionBlock<'_>) -> u8 {
    let named = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(tsresol) => Some(*tsresol),
        _ => None,
    });
    named.unwrap_or(TSRESOL_DEFAULT)
}

/// A count of units since 1970 as a time; the unit is 10^-n s, or 2^-n s when the high bit of `tsresol` is set.
fn scaled(units: u64, tsresol: u8) -> Duration {
    let exponent = u32::from(tsresol & 0x7f);
    let base: u128 = if tsresol & 0x80 == 0 { 10 } else { 2 };
    let Some(units_per_second) = base.checked_pow(exponent) else { return Duration::ZERO };
    let nanos = u128::from(units).saturating_mul(1_000_000_000) / units_per_second;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

fn require_ethernet(path: &Path, link: DataLink) -> Result<(), CaptureError> {
    if link == DataLink::ETHERNET {
        return Ok(());
    }
    Err(CaptureError::new(
        path,
        format!("its link type is {link:?}; capture on an Ethernet interface instead"),
    ))
}

fn damaged(path: &Path, after: usize, error: &PcapError) -> CaptureError {
    CaptureError::new(path, format!("it is damaged or cut off after packet {after}: {}", reason(error)))
}

fn reason(error: &PcapError) -> String {
    match error {
        PcapError::IoError(source) => source.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
#[path = "capture_file/tests.rs"]
mod tests;
