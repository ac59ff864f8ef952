//! Ports and their queues.

use crate::eal::{Environment, register_thread};
use crate::error::{DpdkError, errno_text, take_log};
use crate::ffi;
use crate::offload::{interface_mtu, interface_rx_queues};
use crate::stale::remove_dead_socket;
use crate::vdev::{DpdkDevice, VdevContext, dpdk_device, frame_bytes_needed};
use carrack_frame::Frame;
use carrack_io::{DeviceSpec, LinkInfo, MacAddress, MemifRole, PacketIo, PortStats};
use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Which address of an IPv4 packet decides the queue that receives it, where the device can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerBy {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// How a device is asked to spread packets over its receive queues.
#[derive(Clone, Copy, Debug)]
pub struct Steer {
    /// By which address.
    pub by: SteerBy,
    /// Key of the Toeplitz hash, over and over.
    pub key: [u8; 4],
    /// The queue for each value of the hash's lowest seven bits.
    pub table: [u16; ffi::STEERING_SLOTS],
}

/// How packets come to the receive queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// As the device's driver has it: one queue, or nothing is known.
    #[default]
    Unknown,
    /// By a hash of the device's own.
    ByItsHash,
    /// As was asked.
    AsAsked,
}

/// How to open a port.
#[derive(Clone, Debug)]
pub struct PortOptions {
    /// The port's name in messages and for [`Dpdk::watch`](crate::Dpdk::watch); empty takes the device's line.
    pub name: String,
    /// Port index that received frames carry.
    pub index: u16,
    /// Queue pairs, one a worker.
    pub queues: u16,
    /// Packets each receive queue holds, before the driver's own limits.
    pub rx_descriptors: u16,
    /// Packets each transmit queue holds, before the driver's own limits.
    pub tx_descriptors: u16,
    /// Largest layer-3 packet, in bytes; `None` leaves it as the device has it.
    pub mtu: Option<u16>,
    /// Receives packets to any address.
    pub promiscuous: bool,
    /// Which queue is to receive what.
    pub steer: Option<Steer>,
}

impl Default for PortOptions {
    fn default() -> PortOptions {
        PortOptions {
            name: String::new(),
            index: 0,
            queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            promiscuous: true,
            steer: None,
        }
    }
}

/// Link and counters of a port whose queues workers own. It does not keep the port open.
#[derive(Clone)]
pub struct PortWatch {
    name: Arc<str>,
    spread: Spread,
    port: Weak<Port>,
}

impl PortWatch {
    /// The port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Address, size limit and state; `None` once the port is closed.
    pub fn link(&self) -> Option<LinkInfo> {
        Some(self.port.upgrade()?.link())
    }

    /// How packets come to the receive queues.
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// Counters since the port was opened; `None` once it is closed.
    pub fn stats(&self) -> Option<PortStats> {
        Some(self.port.upgrade()?.stats())
    }
}

/// Opens a device; the public documentation is at `Dpdk::open`.
pub(crate) fn open(
    environment: &Arc<Environment>,
    device: &DeviceSpec,
    options: PortOptions,
) -> Result<(Vec<Box<dyn PacketIo>>, PortWatch), DpdkError> {
    if options.queues == 0 {
        return Err(DpdkError::new(format!("{device}: a port needs at least one queue.")));
    }
    let kernel_mtu = device.kernel_interface().map(|interface| mtu_of(device, interface)).transpose()?;
    let mtu = options.mtu.or(kernel_mtu).unwrap_or(1500);
    require_all_queues(device, options.queues)?;
    let (needed, present) = (frame_bytes_needed(device, mtu), u32::from(environment.frame_bytes()));
    if needed > present {
        return Err(DpdkError::new(format!(
            "{device}: packets of its MTU, {mtu} bytes, need frames of {needed} bytes, and the pool's have {present}. \
             Use larger frames, or lower the MTU."
        )));
    }
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    let dpdk = dpdk_device(device, VdevContext { number, queues: options.queues, mtu })?;
    if dpdk.bus == "pci" && !environment.takes_pci(&dpdk.name) {
        return Err(DpdkError::new(format!(
            "{device} was not among the physical ports taken at the start; restart with it in the config."
        )));
    }
    let name: Arc<str> = match options.name.as_str() {
        "" => device.to_string().into(),
        name => name.into(),
    };
    let port = Arc::new(attach(environment.clone(), device, dpdk, name.clone(), kernel_mtu)?);
    let spread = start(&port, device, &options)?;
    let queue = |queue| -> Box<dyn PacketIo> {
        Box::new(DpdkQueue {
            port: port.clone(),
            id: port.id,
            queue,
            index: options.index,
            drops: ffi::RxDrops::default(),
        })
    };
    let watch = PortWatch { name, spread, port: Arc::downgrade(&port) };
    Ok(((0..options.queues).map(queue).collect(), watch))
}

static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);

/// An attached device; dropping it closes and removes it.
struct Port {
    // Keeps the pool's memory until the driver has given its buffers back.
    environment: Arc<Environment>,
    id: u16,
    name: Arc<str>,
    bus: CString,
    dpdk_name: CString,
    /// The kernel's limit, which a packet-socket driver does not report.
    kernel_mtu: Option<u16>,
    /// Packets the shim dropped after the driver had counted them as received.
    unusable: AtomicU64,
}

impl Port {
    fn link(&self) -> LinkInfo {
        let mut link = ffi::Link::default();
        // SAFETY: the port is attached until this value drops, and the structure is writable. On failure it stays zero.
        let _ = unsafe { ffi::carrack_port_link(self.id, &mut link) };
        LinkInfo {
            mac: MacAddress(link.mac),
            mtu: self.kernel_mtu.unwrap_or(link.mtu),
            up: link.up != 0,
            speed_mbps: (link.speed_mbps > 0).then_some(link.speed_mbps),
        }
    }

    fn stats(&self) -> PortStats {
        let mut stats = ffi::Stats::default();
        // SAFETY: as in `link`.
        let _ = unsafe { ffi::carrack_port_stats(self.id, &mut stats) };
        let unusable = self.unusable.load(Ordering::Relaxed);
        PortStats {
            rx_packets: stats.rx_packets.saturating_sub(unusable),
            rx_bytes: stats.rx_bytes,
            tx_packets: stats.tx_packets,
            tx_bytes: stats.tx_bytes,
            rx_missed: stats.rx_missed,
            rx_errors: stats.rx_errors + unusable,
            rx_nombuf: stats.rx_nombuf,
            tx_errors: stats.tx_errors,
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: this is the last owner of the port: no queue of it is in use any more. A failure leaves the device to
        // the end of the environment.
        let _ = unsafe { ffi::carrack_port_close(self.id, self.bus.as_ptr(), self.dpdk_name.as_ptr()) };
    }
}

/// One queue pair.
struct DpdkQueue {
    port: Arc<Port>,
    id: u16,
    queue: u16,
    index: u16,
    drops: ffi::RxDrops,
}

impl PacketIo for DpdkQueue {
    fn rx_burst(&mut self, out: &mut Vec<Frame>, max: usize) -> usize {
        register_thread();
        let room = out.spare_capacity_mut();
        let max = max.min(room.len()).min(usize::from(u16::MAX)) as u16;
        if max == 0 {
            return 0;
        }
        // SAFETY: the spare capacity holds at least `max` frames; `&mut self` makes this the queue's only user.
        let received = unsafe {
            ffi::carrack_rx(self.id, self.queue, self.index, room.as_mut_ptr().cast(), max, &mut self.drops)
        };
        let received = usize::from(received.min(max));
        // SAFETY: the shim has filled that many frames of the spare capacity, each owning its mbuf.
        unsafe { out.set_len(out.len() + received) };
        if self.drops.packets > 0 {
            self.port.unusable.fetch_add(std::mem::take(&mut self.drops.packets), Ordering::Relaxed);
        }
        received
    }

    fn tx_burst(&mut self, frames: &mut Vec<Frame>) -> usize {
        let count = frames.len().min(usize::from(u16::MAX)) as u16;
        // SAFETY: the vector holds `count` frames of this run's pool; `&mut self` makes this the queue's only user.
        let sent = unsafe { ffi::carrack_tx(self.id, self.queue, frames.as_ptr(), count) };
        let sent = usize::from(sent.min(count));
        // The driver owns these now. A frame has no destructor, so draining only closes the gap.
        frames.drain(..sent);
        sent
    }

    fn link(&self) -> LinkInfo {
        self.port.link()
    }

    fn stats(&self) -> PortStats {
        self.port.stats()
    }

    fn name(&self) -> &str {
        &self.port.name
    }
}

fn mtu_of(device: &DeviceSpec, interface: &str) -> Result<u16, DpdkError> {
    let mtu = interface_mtu(interface).map_err(|error| {
        DpdkError::new(format!(
            "{device}: cannot read interface {interface}: {error}. `ip link` lists the interfaces."
        ))
    })?;
    // The loopback's 65,536 and the like are beyond any frame anyway.
    Ok(u16::try_from(mtu).unwrap_or(u16::MAX))
}

/// An XDP socket takes the packets of its queue only; those of a queue without one would go to the kernel unseen.
fn require_all_queues(device: &DeviceSpec, queues: u16) -> Result<(), DpdkError> {
    let DeviceSpec::AfXdp { interface } = device else { return Ok(()) };
    match interface_rx_queues(interface) {
        Some(present) if present > u32::from(queues) => Err(DpdkError::new(format!(
            "{device}: the interface has {present} receive queues, of which {queues} would be served. Run \
             `ethtool -L {interface} combined {queues}` (or `rx {queues} tx {queues}`), or use {present} workers on it."
        ))),
        _ => Ok(()),
    }
}

fn attach(
    environment: Arc<Environment>,
    device: &DeviceSpec,
    dpdk: DpdkDevice,
    name: Arc<str>,
    kernel_mtu: Option<u16>,
) -> Result<Port, DpdkError> {
    let text = |text: &str| {
        CString::new(text)
            .map_err(|_| DpdkError::new(format!("{device}: the line contains a zero byte; remove it.")))
    };
    if let DeviceSpec::Memif { socket, role: MemifRole::Server, .. } = device {
        remove_dead_socket(socket);
    }
    let (bus, dpdk_name, arguments) = (text(dpdk.bus)?, text(&dpdk.name)?, text(&dpdk.arguments)?);
    let mut id = 0;
    take_log();
    // SAFETY: the environment runs, the strings end in zero, the number is writable.
    let result =
        unsafe { ffi::carrack_port_attach(bus.as_ptr(), dpdk_name.as_ptr(), arguments.as_ptr(), &mut id) };
    if result != 0 {
        let message = format!("cannot open {device}: {}. {}", errno_text(result), help(device));
        return Err(DpdkError::with_log(message));
    }
    let unusable = AtomicU64::new(0);
    Ok(Port { environment, id, name, bus, dpdk_name, kernel_mtu, unusable })
}

fn start(port: &Port, device: &DeviceSpec, options: &PortOptions) -> Result<Spread, DpdkError> {
    // A kernel interface's limit is the kernel's to keep: the guard sets it, and sets it back.
    let mtu = if device.kernel_interface().is_some() { None } else { options.mtu };
    let mut start = ffi::StartOptions {
        queues: options.queues,
        rx_descriptors: options.rx_descriptors,
        tx_descriptors: options.tx_descriptors,
        mtu: mtu.unwrap_or(0),
        promiscuous: c_int::from(options.promiscuous),
        client: c_int::from(matches!(device, DeviceSpec::Memif { role: MemifRole::Client, .. })),
        steer_by: match options.steer.map(|steer| steer.by) {
            None => 0,
            Some(SteerBy::Source) => 1,
            Some(SteerBy::Destination) => 2,
        },
        steer_key: options.steer.map_or([0; 4], |steer| steer.key),
        steer_table: options.steer.map_or([0; ffi::STEERING_SLOTS], |steer| steer.table),
        spread: 0,
    };
    take_log();
    // SAFETY: the port is attached, the options are writable, the pool lives as long as the environment.
    let result = unsafe { ffi::carrack_port_start(port.id, &mut start, port.environment.pool()) };
    match result {
        0 => Ok(match start.spread {
            2 => Spread::AsAsked,
            1 => Spread::ByItsHash,
            _ => Spread::Unknown,
        }),
        result if result == -libc::ERANGE => Err(DpdkError::new(format!(
            "{device} has fewer than the {} queues asked for. Use fewer workers on it.",
            options.queues
        ))),
        result => Err(DpdkError::with_log(format!(
            "cannot start {device}: {}. {}",
            errno_text(result),
            help(device)
        ))),
    }
}

/// What to look at first when a device of this kind does not open.
fn help(device: &DeviceSpec) -> &'static str {
    match device {
        DeviceSpec::Pci { .. } => {
            "Check with `lspci` that it is there, bind it to vfio-pci with `dpdk-devbind.py`, and run as root."
        }
        DeviceSpec::AfPacket { .. } => "Check with `ip link` that the interface is there, and run as root.",
        DeviceSpec::AfXdp { .. } => {
            "Check that the interface is there, has at least as many queues as workers (`ethtool -l`) and no other XDP program \
             (`ip link`), and run as root; af_packet: works on any interface."
        }
        DeviceSpec::Tap { .. } => {
            "Check that /dev/net/tun is there, that no interface has this name, and run as root."
        }
        DeviceSpec::Memif { .. } => {
            "Check that the socket's directory is there, and that one end is client and the other server."
        }
        DeviceSpec::DpdkPcap { .. } | DeviceSpec::Pcap { .. } => {
            "Check that the input is a capture file and the output's directory is there."
        }
        DeviceSpec::Vdev { .. } | DeviceSpec::Mem { .. } => {
            "Check the device's name and arguments in DPDK's guide of network drivers."
        }
    }
}
