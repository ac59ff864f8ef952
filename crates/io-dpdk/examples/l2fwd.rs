//! Forwards between two devices, for hand tests: `l2fwd af_packet:eth1 memif:/run/m.sock,role=server [seconds]`.

use carrack_frame::FramePool;
use carrack_io::{DeviceSpec, PacketIo};
use carrack_io_dpdk::{
    Dpdk, EalOptions, GuardOptions, OffloadGuard, PortOptions, dpdk_version, restore_stale,
};
use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, Instant};

fn main() {
    if let Err(error) = run() {
        eprintln!("{error}");
        std::process::exit(2);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [first, second, rest @ ..] = &arguments[..] else {
        return Err("usage: l2fwd DEVICE DEVICE [SECONDS]; HUGE=1 in the environment uses huge pages".into());
    };
    let seconds = rest.first().map_or(Ok(u64::MAX), |seconds| seconds.parse())?;
    let state_directory = PathBuf::from("/run/carrack");
    restore_stale(&state_directory).iter().for_each(|change| println!("{change}"));
    let devices: [DeviceSpec; 2] = [first.parse()?, second.parse()?];
    let mut guards = Vec::new();
    for interface in devices.iter().filter_map(DeviceSpec::kernel_interface) {
        let options = GuardOptions { state_directory: state_directory.clone(), mtu: None };
        let guard = OffloadGuard::take(interface, &options)?;
        guard.changes().iter().for_each(|change| println!("{change}"));
        guards.push(guard);
    }
    let huge_pages = std::env::var_os("HUGE").is_some();
    let dpdk = Dpdk::init(EalOptions { huge_pages, ..EalOptions::default() })?;
    println!("{}", dpdk_version());
    let mut ports = Vec::new();
    for device in &devices {
        let port = dpdk.open(device, PortOptions::default())?.remove(0);
        println!("{device}: {:?}", port.link());
        ports.push(port);
    }
    forward(&dpdk, &mut ports, Duration::from_secs(seconds));
    for port in &ports {
        println!("{}: {:?}", port.name(), port.stats());
    }
    Ok(())
}

fn forward(dpdk: &Dpdk, ports: &mut [Box<dyn PacketIo>], limit: Duration) {
    let mut pool = dpdk.pool();
    let mut burst = Vec::with_capacity(64);
    let start = Instant::now();
    let mut idle = 0u32;
    while start.elapsed() < limit {
        idle = idle.saturating_add(1);
        for from in 0..ports.len() {
            if ports[from].rx_burst(&mut burst, 64) > 0 {
                idle = 0;
            }
            ports[(from + 1) % 2].tx_burst(&mut burst);
            pool.free_all(&mut burst);
        }
        if idle > 1000 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
