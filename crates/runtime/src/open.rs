//! Opens the ports a config names: all through DPDK, or all in process.

pub(crate) mod huge_pages;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use carrack_config::{Attach, Config, HugePages, InterfaceConfig, PortFacts};
use carrack_frame::{DEFAULT_HEADROOM_BYTES, FramePool, MemPool};
use carrack_io::{DeviceSpec, MemPeer, MemPort, PacketIo, PcapControl, PcapPort, PcapPortOptions};
use carrack_io_dpdk::{
    Dpdk, EalOptions, GuardOptions, OffloadGuard, OwnFiles, PortOptions, Spread, Steer, SteerBy,
    restore_stale,
};
use carrack_nat::Steering;
use carrack_pipeline::snapshot::Side;
use carrack_tables::PagePreference;
use carrack_wire::MacAddr;

use crate::control::InputProgress;
use crate::launch::{PortSetup, StartError, ThreadHook};
use crate::lock::RunLock;
use crate::starting::Starting;
use crate::stats::PortReport;

/// Frames a `mem` port holds in each direction.
const MEM_RING: usize = 4_096;
/// Frames a worker keeps at hand.
const POOL_CACHE: usize = 1_024;

/// The ports of a run, open, and what must outlive them.
pub(crate) struct OpenPorts {
    pub ports: Vec<PortSetup>,
    pub facts: Vec<PortFacts>,
    pub pools: Vec<Box<dyn FramePool>>,
    pub input: Option<InputProgress>,
    pub thread_hook: Option<ThreadHook>,
    pub keep: Keep,
    /// What an operator should know, one sentence each.
    pub notices: Vec<String>,
}

/// What must be dropped after the ports: guards restore interfaces, then DPDK ends.
#[derive(Default)]
pub(crate) struct Keep {
    pub mem_peers: BTreeMap<String, MemPeer>,
    pub mem_pool: Option<MemPool>,
    _guards: Vec<OffloadGuard>,
    _dpdk: Option<Arc<Dpdk>>,
    _files: Option<OwnFiles>,
    /// Another daemon may have the run directory when all else is gone.
    _lock: Option<RunLock>,
}

/// Which pages the tables may take.
pub(crate) fn page_preference(config: &Config) -> PagePreference {
    match config.memory.huge_pages {
        HugePages::Auto => PagePreference::Huge,
        HugePages::OneG => PagePreference::Only1G,
        HugePages::TwoM => PagePreference::Only2M,
        HugePages::Off => PagePreference::Transparent,
    }
}

/// Opens every port of `config`. `verbose` repeats DPDK's own log. `steering` says which worker's queue a packet belongs
/// in, for devices that can be told. `lock` is kept as long as the ports.
pub(crate) fn open(
    config: &Config,
    steering: &Steering,
    verbose: bool,
    lock: RunLock,
    starting: &Starting,
) -> Result<OpenPorts, StartError> {
    let devices: Vec<Device> = config
        .devices()
        .enumerate()
        .map(|(index, (interface, spec))| Device {
            index: index as u16,
            name: interface.name.value.clone(),
            spec: spec.clone(),
            mtu: interface.mtu.as_ref().map(|mtu| mtu.value),
            steer_by: steer_by(config, &interface.name.value),
        })
        .collect();
    let through_dpdk = devices.iter().filter(|device| device.spec.needs_dpdk()).count();
    if through_dpdk == 0 {
        let mut open = open_in_process(config, &devices)?;
        open.keep._lock = Some(lock);
        return Ok(open);
    }
    if through_dpdk < devices.len() {
        return Err(StartError::Failed(
            "ports of kinds `mem` and `pcap` cannot run beside DPDK ports; use `dpdk-pcap` or `memif` for those".into(),
        ));
    }
    open_dpdk(config, &devices, steering, verbose, lock, starting)
}

/// The subscriber's or pool's address among those of packets that come in by a port: of all its VLANs, unless these are
/// of both sides.
fn steer_by(config: &Config, port: &str) -> Option<SteerBy> {
    let is_of_port = |interface: &&InterfaceConfig| match &interface.attach {
        Attach::Device(_) => interface.name.value == port,
        Attach::Parent { parent, .. } => parent.value == port,
    };
    let sides = config.interfaces.iter().filter(is_of_port).filter_map(|interface| match interface.side {
        Side::Inside => Some(SteerBy::Source),
        Side::Outside => Some(SteerBy::Destination),
        Side::Plain => None,
    });
    let sides: Vec<SteerBy> = sides.collect();
    let first = sides.first().copied()?;
    sides.iter().all(|side| *side == first).then_some(first)
}

struct Device {
    index: u16,
    name: String,
    spec: DeviceSpec,
    mtu: Option<u16>,
    steer_by: Option<SteerBy>,
}

impl Device {
    fn facts(&self, io: &dyn PacketIo) -> PortFacts {
        let link = io.link();
        PortFacts { name: self.name.clone(), mac: MacAddr(link.mac.0), mtu: link.mtu }
    }

    fn failed(&self, why: impl std::fmt::Display) -> StartError {
        StartError::Failed(format!("port {}: {why}", self.name))
    }
}

fn open_in_process(config: &Config, devices: &[Device]) -> Result<OpenPorts, StartError> {
    let workers = usize::from(config.workers.count);
    let pool = MemPool::new(config.memory.frames as usize, config.memory.frame_bytes, DEFAULT_HEADROOM_BYTES);
    let mut open = OpenPorts {
        ports: Vec::new(),
        facts: Vec::new(),
        pools: (0..workers).map(|_| Box::new(pool.handle(POOL_CACHE)) as Box<dyn FramePool>).collect(),
        input: None,
        thread_hook: None,
        keep: Keep::default(),
        notices: Vec::new(),
    };
    let mut controls = Vec::new();
    for device in devices {
        let io: Box<dyn PacketIo> = match &device.spec {
            DeviceSpec::Mem { name } => {
                let (port, peer) = MemPort::with_peer(&device.name, device.index, MEM_RING);
                open.keep.mem_peers.insert(name.clone(), peer);
                Box::new(port)
            }
            DeviceSpec::Pcap { rx, tx } => {
                let options = PcapPortOptions {
                    rx: rx.clone(),
                    tx: tx.clone(),
                    index: device.index,
                    mtu: device.mtu.unwrap_or(1_500),
                    paced: false,
                };
                let port = PcapPort::open(&device.name, options, pool.handle(POOL_CACHE))
                    .map_err(|error| device.failed(error))?;
                controls.push(port.control());
                Box::new(port)
            }
            other => return Err(device.failed(format!("`{}` is no in-process device", other.kind()))),
        };
        open.facts.push(device.facts(&*io));
        open.ports.push(PortSetup { queues: vec![io], watcher: None });
    }
    if !controls.is_empty() {
        open.input = Some(input_of(controls));
    }
    open.keep.mem_pool = Some(pool);
    Ok(open)
}

/// Tells all capture-file ports the time; says whether all files are read.
fn input_of(controls: Vec<PcapControl>) -> InputProgress {
    Box::new(move |since_start: Duration| {
        for control in &controls {
            control.set_now(since_start);
        }
        controls.iter().all(|control| control.remaining() == 0)
    })
}

fn open_dpdk(
    config: &Config,
    devices: &[Device],
    steering: &Steering,
    verbose: bool,
    lock: RunLock,
    starting: &Starting,
) -> Result<OpenPorts, StartError> {
    let workers = config.workers.count;
    let mut notices = Vec::new();
    let guards = guard(devices, &config.system.run_dir, &mut notices)?;
    // DPDK takes memory until it has all of it, and cannot be told to stop.
    let held = (guards, OwnFiles::default(), lock);
    let (held, dpdk) = starting.slowly(held, || init_dpdk(config, devices, verbose, &mut notices))?;
    let dpdk = Arc::new(dpdk?);
    let mut open = OpenPorts {
        ports: Vec::new(),
        facts: Vec::new(),
        pools: (0..workers).map(|_| Box::new(dpdk.pool()) as Box<dyn FramePool>).collect(),
        input: None,
        thread_hook: None,
        keep: Keep::default(),
        notices,
    };
    for device in devices {
        starting.check()?;
        let queues = open_queues(&dpdk, device, steering, u16::from(workers), &mut open.notices)?;
        if let Some(first) = queues.first() {
            open.facts.push(device.facts(&**first));
        }
        let watch = dpdk.watch(&device.name);
        if queues.len() > 1
            && let Some(told) = watch.as_ref().and_then(|watch| spread_of(device, watch.spread()))
        {
            open.notices.push(told);
        }
        let watcher = watch.map(|watch| -> crate::control::PortWatcher {
            Box::new(move || Some(PortReport { link: watch.link()?, stats: watch.stats()? }))
        });
        open.ports.push(PortSetup { queues, watcher });
    }
    let registrar = Arc::clone(&dpdk);
    open.thread_hook = Some(Arc::new(move || registrar.register_thread()));
    let (guards, files, lock) = held;
    open.keep = Keep {
        _guards: guards,
        _dpdk: Some(dpdk),
        _files: Some(files),
        _lock: Some(lock),
        ..Keep::default()
    };
    Ok(open)
}

/// Puts kernel interfaces under guard, after what a killed run left behind has been undone.
fn guard(
    devices: &[Device],
    run_dir: &Path,
    notices: &mut Vec<String>,
) -> Result<Vec<OffloadGuard>, StartError> {
    notices.extend(restore_stale(run_dir).iter().map(ToString::to_string));
    let mut guards = Vec::new();
    for device in devices {
        let Some(interface) = device.spec.kernel_interface() else { continue };
        let options = GuardOptions { state_directory: run_dir.to_owned(), mtu: device.mtu };
        let guard = OffloadGuard::take(interface, &options).map_err(|error| device.failed(error))?;
        notices.extend(guard.changes().iter().map(ToString::to_string));
        guards.push(guard);
    }
    Ok(guards)
}

fn init_dpdk(
    config: &Config,
    devices: &[Device],
    verbose: bool,
    notices: &mut Vec<String>,
) -> Result<Dpdk, StartError> {
    let memory = &config.memory;
    let huge_pages = match memory.huge_pages {
        HugePages::Off => false,
        HugePages::OneG | HugePages::TwoM => true,
        HugePages::Auto => huge_pages::free_mib() >= u64::from(memory.dpdk_mb),
    };
    let pci = devices.iter().filter_map(|device| match &device.spec {
        DeviceSpec::Pci { address } => Some(address.clone()),
        _ => None,
    });
    let options = EalOptions {
        huge_pages,
        memory_mib: Some(memory.dpdk_mb),
        frames: memory.frames,
        frame_bytes: memory.frame_bytes,
        pci: pci.collect(),
        verbose,
        extra: Vec::new(),
    };
    let dpdk = Dpdk::init(options).map_err(|error| StartError::Failed(error.to_string()))?;
    let pages = if huge_pages { "huge pages" } else { "ordinary pages" };
    notices.push(format!(
        "{}: {} MiB of {pages}, {} packet buffers of {} bytes.",
        carrack_io_dpdk::dpdk_version(),
        memory.dpdk_mb,
        memory.frames,
        memory.frame_bytes
    ));
    Ok(dpdk)
}

/// What there is to say of how a device with several queues fills them.
fn spread_of(device: &Device, spread: Spread) -> Option<String> {
    let name = &device.name;
    match (spread, device.steer_by) {
        (Spread::AsAsked, Some(by)) => {
            let address = if by == SteerBy::Source { "source" } else { "destination" };
            Some(format!("Port {name} steers IPv4 packets to their workers itself, by {address} address."))
        }
        (Spread::ByItsHash, _) => Some(format!(
            "Port {name} spreads packets over the workers' queues by a hash of its own: workers hand over what is not theirs."
        )),
        _ => None,
    }
}

/// One queue pair per worker where the device has so many, else a single one that worker 0 serves for all.
fn open_queues(
    dpdk: &Dpdk,
    device: &Device,
    steering: &Steering,
    workers: u16,
    notices: &mut Vec<String>,
) -> Result<Vec<Box<dyn PacketIo>>, StartError> {
    let options = |queues| PortOptions {
        name: device.name.clone(),
        index: device.index,
        queues,
        mtu: device.mtu,
        steer: device.steer_by.map(|by| Steer { by, key: steering.key(), table: steering.table() }),
        ..PortOptions::default()
    };
    match dpdk.open(&device.spec, options(workers)) {
        Ok(queues) => Ok(queues),
        Err(_) if workers > 1 => {
            let queues = dpdk.open(&device.spec, options(1)).map_err(|error| device.failed(error))?;
            notices.push(format!(
                "Port {} offers one queue for {workers} workers: worker 0 polls it and hands packets over.",
                device.name
            ));
            Ok(queues)
        }
        Err(error) => Err(device.failed(error)),
    }
}
