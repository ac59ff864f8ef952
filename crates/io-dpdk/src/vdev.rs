//! What DPDK calls a device: bus, name and arguments for a [`DeviceSpec`].

use crate::error::DpdkError;
use carrack_io::{DeviceSpec, MemifRole};
use std::path::{Path, PathBuf};

/// A device in DPDK's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DpdkDevice {
    pub bus: &'static str,
    pub name: String,
    pub arguments: String,
}

/// What a virtual device's arguments depend on beside the line in the config.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VdevContext {
    /// Distinguishes devices of one kind.
    pub number: u32,
    pub queues: u16,
    /// Largest layer-3 packet, in bytes.
    pub mtu: u16,
}

/// Ethernet header and two VLAN tags.
const ETHERNET_OVERHEAD_BYTES: u32 = 14 + 8;
/// The packet socket's own header before a packet in its ring, generously.
const PACKET_SOCKET_OVERHEAD_BYTES: u32 = 128;
/// Of that, what the driver takes off when it compares a ring's frame with a buffer.
const PACKET_SOCKET_HEADER_BYTES: u32 = 32;
/// Frames in each packet socket ring.
const PACKET_SOCKET_FRAMES: u32 = 1024;
/// The driver expects a ring's frames side by side, so a block is a whole number of frames and of pages: eight frames
/// of a multiple of 512 bytes are both.
const PACKET_SOCKET_FRAMES_PER_BLOCK: u32 = 8;
const PACKET_SOCKET_FRAME_STEP_BYTES: u32 = 512;

/// Bytes a pool's frames need for a kernel interface of this MTU; 0 where the driver adapts to the pool.
pub(crate) fn frame_bytes_needed(device: &DeviceSpec, mtu: u16) -> u32 {
    match device {
        DeviceSpec::AfPacket { .. } => packet_socket_frame(mtu) - PACKET_SOCKET_HEADER_BYTES,
        DeviceSpec::AfXdp { .. } => u32::from(mtu) + ETHERNET_OVERHEAD_BYTES,
        _ => 0,
    }
}

/// Translates the config's line.
///
/// # Errors
/// For devices that live in the process and need no DPDK.
pub(crate) fn dpdk_device(device: &DeviceSpec, context: VdevContext) -> Result<DpdkDevice, DpdkError> {
    let VdevContext { number, queues, mtu } = context;
    let (name, arguments) = match device {
        DeviceSpec::Pci { address } => {
            return Ok(DpdkDevice { bus: "pci", name: address.clone(), arguments: String::new() });
        }
        DeviceSpec::AfPacket { interface } => {
            (format!("net_af_packet{number}"), packet_socket(interface, queues, mtu))
        }
        DeviceSpec::AfXdp { interface } => {
            (format!("net_af_xdp{number}"), format!("iface={interface},start_queue=0,queue_count={queues}"))
        }
        DeviceSpec::Tap { interface } => (format!("net_tap{number}"), format!("iface={interface}")),
        DeviceSpec::Memif { socket, id, role, zero_copy } => {
            (format!("net_memif{number}"), memif(socket, *id, *role, *zero_copy))
        }
        DeviceSpec::DpdkPcap { rx, tx } => (format!("net_pcap{number}"), captures(rx, tx)),
        DeviceSpec::Vdev { args } => {
            let (name, arguments) = args.split_once(',').unwrap_or((args, ""));
            (name.to_owned(), arguments.to_owned())
        }
        DeviceSpec::Pcap { .. } | DeviceSpec::Mem { .. } => {
            return Err(DpdkError::new(format!(
                "{device} lives in the process and does not mix with DPDK devices; use dpdk-pcap: or memif: beside them, \
                 or no DPDK device at all."
            )));
        }
    };
    Ok(DpdkDevice { bus: "vdev", name, arguments })
}

fn packet_socket(interface: &str, queues: u16, mtu: u16) -> String {
    let frame = packet_socket_frame(mtu);
    let block = frame * PACKET_SOCKET_FRAMES_PER_BLOCK;
    format!(
        "iface={interface},qpairs={queues},blocksz={block},framesz={frame},framecnt={PACKET_SOCKET_FRAMES}"
    )
}

fn packet_socket_frame(mtu: u16) -> u32 {
    let packet = u32::from(mtu) + ETHERNET_OVERHEAD_BYTES + PACKET_SOCKET_OVERHEAD_BYTES;
    packet.next_multiple_of(PACKET_SOCKET_FRAME_STEP_BYTES).max(2048)
}

fn memif(socket: &Path, id: u32, role: MemifRole, zero_copy: bool) -> String {
    let role = match role {
        MemifRole::Client => "client",
        MemifRole::Server => "server",
    };
    let zero_copy = if zero_copy { "yes" } else { "no" };
    format!("role={role},id={id},socket={},socket-abstract=no,zero-copy={zero_copy}", socket.display())
}

fn captures(rx: &Option<PathBuf>, tx: &Option<PathBuf>) -> String {
    let files = [("rx_pcap", rx), ("tx_pcap", tx)];
    let named =
        files.iter().filter_map(|(key, file)| file.as_ref().map(|file| format!("{key}={}", file.display())));
    named.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
