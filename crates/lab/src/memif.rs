//! `carrack lab memif`: the forwarding rate as `dpdk-testpmd` sees it, over shared memory.
//!
//! ```text
//!   generator ──memif 0──▶ carrack ──memif 1──▶ reflector
//!   (testpmd,  ◀──────────         ◀──────────  (testpmd, 5tswap)
//!    flowgen)
//! ```
//!
//! `testpmd` makes flows that differ in the destination address, all of one subscriber; the reflector swaps stations,
//! addresses and ports, so that every packet passes the NAT twice.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use carrack_api::types::Counters;
use serde::Serialize;

use crate::command::interrupted;
use crate::report::number;
use crate::rig::cores::Cores;
use crate::rig::daemon::Daemon;
use crate::rig::pages::Pages;
use crate::rig::testpmd::{self, PortStats, Setup, Testpmd};
use crate::rig::{self, Directory};
use crate::traffic::client::{Place, Traffic};
use crate::traffic::{self, Role, TrafficArgs};

mod report;

pub(crate) use report::print;

/// How long both sides may take to be found: beside other work those who answer wait for a CPU.
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(30);

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The `carrack` executable.
    pub binary: PathBuf,
    /// Numbers of flows, one measurement each.
    pub flows: Vec<u32>,
    pub seconds: u32,
    /// Whole frame with its checksum, bytes.
    pub frame_bytes: u16,
    /// Whether the reflector is testpmd even where it must share the generator's CPU.
    pub testpmd_reflector: bool,
}

/// Everything measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub cores: Cores,
    pub generator: String,
    pub reflector: String,
    pub frame_bytes: u16,
    pub runs: Vec<Run>,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub flows: u32,
    pub seconds: f64,
    /// As the generator's port counted them.
    pub testpmd: PortStats,
    /// Means over the run, packets a second.
    pub testpmd_tx_pps: f64,
    pub testpmd_rx_pps: f64,
    /// Packets the daemon forwarded, both directions.
    pub carrack_forwarded: u64,
    pub carrack_forwarded_pps: f64,
    /// TSC clocks a packet, and the share of time without packets.
    pub carrack_clocks_per_packet: f64,
    pub carrack_idle_share: f64,
    pub carrack_sessions: u64,
    /// Packets the daemon dropped, by reason.
    pub carrack_drops: Vec<(String, u64)>,
    /// Packets of the daemon's own (ARP, ICMP) less those that went to it.
    pub carrack_own: i64,
    /// Packets the reflector could not send back.
    pub reflector_lost: u64,
    /// Sent less received, at the generator.
    pub generator_lost: i64,
    /// Whether the generator's loss is what the daemon and the reflector counted, the daemon's own packets aside.
    pub loss_explained: bool,
    pub conservation_ok: bool,
}

/// Slots of the rings, as a power of two: as many as a memif may have where programs share a CPU and wait for it.
const RING_LOG2: u8 = 11;
const RING_LOG2_SHARED: u8 = 14;
/// The daemon's packet buffers fill both rings of both ports and are in its hands.
const FRAMES: u32 = 131_071;
const DAEMON_MIB: u64 = 512;
/// testpmd counts destinations up from 10.253.0.0 and sends from 10.254.0.0.
pub(crate) const FLOWS_MAX: u32 = 65_536;

/// Programs this needs.
const PROGRAMS: [(&str, &str); 5] =
    [rig::PROGRAMS[0], rig::PROGRAMS[1], rig::PROGRAMS[2], rig::PROGRAMS[3], testpmd::PROGRAM];

/// Runs it; `tell` gets a line for each step.
pub(crate) fn run(options: &Options, mut tell: impl FnMut(&str)) -> Result<Report> {
    rig::require(&PROGRAMS)?;
    let cores = Cores::choose()?;
    let directory = Directory::create("memif")?;
    let _pages = Pages::reserve(DAEMON_MIB + 2 * testpmd::MEMORY_MIB.max(traffic::MEMORY_MIB) + 16)?;
    let ring_log2 = if cores.shared() { RING_LOG2_SHARED } else { RING_LOG2 };
    let own_reflector = cores.shared() && !options.testpmd_reflector;
    let mut report = Report {
        cores,
        generator: "dpdk-testpmd --forward-mode=flowgen".to_owned(),
        reflector: if own_reflector {
            "carrack lab traffic reflect"
        } else {
            "dpdk-testpmd --forward-mode=5tswap"
        }
        .to_owned(),
        frame_bytes: options.frame_bytes,
        runs: Vec::new(),
    };
    for flows in &options.flows {
        let title =
            if *flows == 1 { "1 flow".to_owned() } else { format!("{} flows", number(u64::from(*flows))) };
        tell(&format!("{title}: starting generator, reflector and carrack …"));
        let mut measured = || {
            let mut rig = Rig::start(options, &directory, cores, ring_log2, own_reflector, *flows)?;
            rig.introduce()?;
            tell(&format!("{title}: measuring for {} s …", options.seconds));
            rig.measure(*flows, options.seconds)
        };
        report.runs.push(measured().map_err(|error| directory.explain(error))?);
    }
    Ok(report)
}

enum Reflector {
    Testpmd(Testpmd),
    /// Held for as long as it is needed.
    Own(#[allow(dead_code)] Traffic),
}

struct Rig {
    // Ends first: the daemon is the client of both others.
    daemon: Daemon,
    generator: Testpmd,
    reflector: Reflector,
}

impl Rig {
    fn start(
        options: &Options,
        directory: &Directory,
        cores: Cores,
        ring_log2: u8,
        own_reflector: bool,
        flows: u32,
    ) -> Result<Rig> {
        let setup = |what, socket: &str, id, cpu, options| Setup {
            what,
            socket: directory.file(socket),
            id,
            cpu,
            ring_log2,
            options,
        };
        let flags = vec![
            "--forward-mode=flowgen".to_owned(),
            format!("--flowgen-flows={flows}"),
            format!("--txpkts={}", options.frame_bytes),
        ];
        let generator = Testpmd::start(&setup("generator", "inside.sock", 0, cores.generator, flags))?;
        let reflector = if own_reflector {
            let args = reflector_args(directory.file("outside.sock"), ring_log2);
            let place = Place { cpu: cores.reflector, shared: true };
            Reflector::Own(Traffic::start(&args, place)?)
        } else {
            let setup = setup("reflector", "outside.sock", 1, cores.reflector, Vec::new());
            Reflector::Testpmd(Testpmd::start(&setup)?)
        };
        let config = config(cores.worker, ring_log2, flows);
        let daemon = Daemon::start(directory, &options.binary, &config)?;
        Ok(Rig { daemon, generator, reflector })
    }

    /// Lets the daemon find both neighbours. `testpmd` answers ARP only in its mode `icmpecho`, so each side is put into
    /// it while packets from the other side make the daemon ask.
    fn introduce(&mut self) -> Result<()> {
        if let Reflector::Testpmd(testpmd) = &mut self.reflector {
            testpmd.forward("icmpecho")?;
        }
        self.generator.forward("flowgen")?;
        self.await_neighbour("outside")?;
        if let Reflector::Testpmd(testpmd) = &mut self.reflector {
            testpmd.stop()?;
            testpmd.forward("5tswap")?;
        }
        // Packets come back and make the daemon look for the generator.
        thread::sleep(Duration::from_millis(50));
        self.generator.stop()?;
        self.generator.forward("icmpecho")?;
        self.await_neighbour("inside")?;
        self.generator.stop()?;
        self.drain()
    }

    fn await_neighbour(&mut self, interface: &str) -> Result<()> {
        let started = Instant::now();
        while !self.daemon.has_neighbour(interface)? {
            if started.elapsed() > NEIGHBOUR_LIMIT {
                bail!(
                    "carrack found no neighbour on its {interface} side in {} s",
                    NEIGHBOUR_LIMIT.as_secs()
                );
            }
            if interrupted() {
                bail!("interrupted");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Lets the generator receive what is still on its way.
    fn drain(&mut self) -> Result<()> {
        self.generator.forward("rxonly")?;
        let mut before = self.generator.stats()?.rx_packets;
        let mut quiet = 0;
        // On a busy machine the others wait for a CPU.
        while quiet < 5 {
            thread::sleep(Duration::from_millis(200));
            let now = self.generator.stats()?.rx_packets;
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
        }
        self.generator.stop()
    }

    fn measure(&mut self, flows: u32, seconds: u32) -> Result<Run> {
        let before = self.state()?;
        let started = Instant::now();
        self.generator.forward("flowgen")?;
        while started.elapsed() < Duration::from_secs(u64::from(seconds)) {
            if interrupted() {
                bail!("interrupted");
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.generator.stop()?;
        let elapsed = started.elapsed().as_secs_f64();
        let worker = self.daemon.workers()?.into_iter().next();
        let sessions = self.daemon.sessions()?;
        self.drain()?;
        let after = self.state()?;
        let stats = difference(after.generator, before.generator);
        let drops = drops(&after.carrack, &before.carrack);
        let forwarded = after.carrack.forwarded - before.carrack.forwarded;
        let reflector_lost = after.reflector_lost - before.reflector_lost;
        let lost = stats.tx_packets as i64 - stats.rx_packets as i64;
        let own = own_packets(&after.carrack, &before.carrack);
        let counted = drops.iter().map(|(_, count)| count).sum::<u64>() + reflector_lost;
        Ok(Run {
            flows,
            seconds: elapsed,
            testpmd: stats,
            testpmd_tx_pps: stats.tx_packets as f64 / elapsed,
            testpmd_rx_pps: stats.rx_packets as f64 / elapsed,
            carrack_forwarded: forwarded,
            carrack_forwarded_pps: forwarded as f64 / elapsed,
            carrack_clocks_per_packet: worker.as_ref().map_or(0.0, |worker| worker.clocks_per_packet),
            carrack_idle_share: worker.as_ref().map_or(0.0, |worker| worker.idle_share),
            carrack_sessions: sessions,
            loss_explained: lost == counted as i64 - own,
            carrack_own: own,
            carrack_drops: drops,
            reflector_lost,
            generator_lost: lost,
            conservation_ok: after.carrack.balance == 0,
        })
    }

    fn state(&mut self) -> Result<State> {
        let reflector_lost = match &mut self.reflector {
            Reflector::Testpmd(testpmd) => {
                let stats = testpmd.stats()?;
                stats.rx_packets - stats.tx_packets.min(stats.rx_packets)
            }
            // It keeps what the ring does not take.
            Reflector::Own(_) => 0,
        };
        Ok(State { generator: self.generator.stats()?, carrack: self.daemon.counters()?, reflector_lost })
    }
}

struct State {
    generator: PortStats,
    carrack: Counters,
    reflector_lost: u64,
}

/// A reflector of our own on a memif.
pub(crate) fn reflector_args(socket: PathBuf, ring_log2: u8) -> TrafficArgs {
    TrafficArgs {
        role: Role::Reflect,
        socket,
        id: 1,
        ring_log2,
        subscribers: 1,
        first: Ipv4Addr::new(100, 64, 0, 0).into(),
        ports: 1,
        first_port: 1,
        frame_bytes: 64,
        vlan: None,
        window: 1,
    }
}

fn difference(after: PortStats, before: PortStats) -> PortStats {
    PortStats {
        rx_packets: after.rx_packets - before.rx_packets,
        rx_missed: after.rx_missed - before.rx_missed,
        rx_errors: after.rx_errors - before.rx_errors,
        tx_packets: after.tx_packets - before.tx_packets,
        tx_errors: after.tx_errors - before.tx_errors,
        ..after
    }
}

/// What the daemon dropped between two looks, by reason.
pub(crate) fn drops(after: &Counters, before: &Counters) -> Vec<(String, u64)> {
    let earlier = |name: &str| {
        before.reasons.iter().find(|reason| reason.name == name).map_or(0, |reason| reason.count)
    };
    let counted =
        after.reasons.iter().map(|reason| (reason.name.clone(), reason.count - earlier(&reason.name)));
    counted.filter(|(_, count)| *count > 0).collect()
}

/// Packets the daemon made less those it kept, between two looks: a packet more or less for its neighbours.
pub(crate) fn own_packets(after: &Counters, before: &Counters) -> i64 {
    let kept = |counters: &Counters| counters.punted + counters.consumed + counters.held;
    (after.originated - before.originated) as i64 - (kept(after) as i64 - kept(before) as i64)
}

fn config(cpu: u16, ring_log2: u8, flows: u32) -> String {
    let sessions = (flows * 2).max(65_536);
    format!(
        include_str!("memif/carrack.toml"),
        cpu = cpu,
        dpdk_mb = DAEMON_MIB - 128,
        frames = FRAMES,
        sessions = sessions,
        ring_log2 = ring_log2
    )
}

#[cfg(test)]
mod tests;
