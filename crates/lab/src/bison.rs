//! `carrack lab bison`: the published churn laboratory with programs of others around the daemon.
//!
//! Many subscribers with sixteen source ports each send through the NAT to `dpdk-testpmd`, which swaps addresses and ports
//! and sends everything back. First every session is made; then traffic goes on at a steady rate while a management
//! client takes snapshots of all sessions and deletes random ones. At the end the packets that the generator misses must
//! be the packets that the daemon says it dropped, one for one.

mod churn;
mod report;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::Serialize;

use crate::command::interrupted;
use crate::memif::{drops, own_packets};
use crate::report::{mpps, number};
use crate::rig::cores::Cores;
use crate::rig::daemon::Daemon;
use crate::rig::pages::Pages;
use crate::rig::testpmd::{self, Setup, Testpmd};
use crate::rig::{self, Directory};
use crate::traffic::client::{Place, Traffic};
use crate::traffic::packets::PREFIX6;
use crate::traffic::{self, Counts, Role, TrafficArgs};

use churn::{Churn, Churned};

pub(crate) use report::print;

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The `carrack` executable.
    pub binary: PathBuf,
    /// Sessions; a subscriber has sixteen.
    pub sessions: u32,
    /// How long sessions are churned.
    pub seconds: u32,
    /// Packets a second from the generator; `None` is as many as come back.
    pub rate: Option<u64>,
    /// Deletions a second at most.
    pub deletions: u32,
    /// Seconds between two snapshots.
    pub snapshot_every: u32,
    /// Whole frame with its checksum, bytes.
    pub frame_bytes: u16,
    /// Whether frames carry a VLAN tag, as published.
    pub tagged: bool,
    /// What is translated; NAT64 as published.
    pub translation: Translation,
}

/// What is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Translation {
    /// IPv6 subscribers, as published
    Nat64,
    /// As many IPv4 subscribers
    Nat44,
}

impl Translation {
    pub const fn title(self) -> &'static str {
        match self {
            Translation::Nat64 => "NAT64",
            Translation::Nat44 => "NAT44",
        }
    }

    /// The first subscriber.
    fn first(self) -> IpAddr {
        match self {
            Translation::Nat64 => Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0).into(),
            Translation::Nat44 => Ipv4Addr::new(100, 64, 0, 0).into(),
        }
    }

    /// Who is translated, in the config, and by which route they are reached; the subscribers' access router is the
    /// generator.
    fn config(self) -> (String, &'static str) {
        match self {
            Translation::Nat64 => (
                format!("[nat.nat64]\nprefixes = [\"{PREFIX6}/96\"]\nsubscribers = [\"2001:db8:1::/96\"]"),
                "prefix = \"2001:db8:1::/96\"\nvia = \"2001:db8:ffff::2\"",
            ),
            Translation::Nat44 => (
                "subscribers = [\"100.64.0.0/10\"]".to_owned(),
                "prefix = \"100.64.0.0/10\"\nvia = \"192.0.2.2\"",
            ),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub cores: Cores,
    pub translation: &'static str,
    pub subscribers: u32,
    pub sessions: u32,
    pub frame_bytes: u16,
    pub tagged: bool,
    /// What differs from the published test, and why.
    pub differences: Vec<String>,
    pub fill: Stage,
    pub steady: Stage,
    pub churned: Churned,
    pub deletions_per_second: f64,
    pub clocks_per_packet: f64,
    pub bytes_per_session: f64,
}

/// One stage: the generator's count beside the daemon's.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stage {
    pub seconds: f64,
    /// Packets the generator sent, and what came back to it as it should.
    pub sent: u64,
    pub received: u64,
    /// Came back changed or to the wrong subscriber.
    pub wrong: u64,
    /// Came back to another port of its subscriber, whose outside port was given anew while the packet was on its way.
    pub reused: u64,
    /// Sent less received.
    pub lost: i64,
    /// Packets the daemon forwarded, both directions.
    pub forwarded: u64,
    pub forwarded_pps: f64,
    /// Packets the daemon dropped, by reason.
    pub drops: Vec<(String, u64)>,
    pub dropped: u64,
    /// Packets the reflector could not send back.
    pub reflector_lost: u64,
    /// Whether the generator's loss is exactly what was counted elsewhere.
    pub equal: bool,
    /// Whether every packet is accounted for in the daemon.
    pub conservation_ok: bool,
    /// Sessions at its end.
    pub sessions: u64,
}

/// As published.
const SESSIONS: u32 = 2_097_152;
const FRAME_BYTES: u16 = 128;
/// Source ports of each subscriber, as published.
pub(crate) const PORTS: u32 = 16;
const FIRST_PORT: u16 = 20_000;
const VLAN_INSIDE: u16 = 100;
const VLAN_OUTSIDE: u16 = 200;
const RING_LOG2: u8 = 12;
/// Packets on their way at once; a ring holds twice as many.
const WINDOW: u64 = 2_048;
const FRAMES: u32 = 65_535;
const DPDK_MIB: u64 = 256;
/// More than the tables take for one session, bytes.
const TABLE_BYTES: u64 = 220;
/// Nothing else is asked of the daemon while it takes the first.
const FIRST_SNAPSHOT_MAX: Duration = Duration::from_secs(60);
/// As fast as the window allows.
const UNLIMITED: u64 = 1_000_000_000;

const PROGRAMS: [(&str, &str); 5] =
    [rig::PROGRAMS[0], rig::PROGRAMS[1], rig::PROGRAMS[2], rig::PROGRAMS[3], testpmd::PROGRAM];

/// Runs it; `tell` gets a line for each step.
pub(crate) fn run(options: &Options, mut tell: impl FnMut(&str)) -> Result<Report> {
    rig::require(&PROGRAMS)?;
    let cores = Cores::choose()?;
    let directory = Directory::create("bison")?;
    let tables = ((u64::from(options.sessions) * TABLE_BYTES) >> 20) + 64;
    let _pages = Pages::reserve(DPDK_MIB + tables + testpmd::MEMORY_MIB + traffic::MEMORY_MIB + 32)?;
    measure(options, cores, &directory, &mut tell).map_err(|error| directory.explain(error))
}

fn measure(
    options: &Options,
    cores: Cores,
    directory: &Directory,
    mut tell: impl FnMut(&str),
) -> Result<Report> {
    tell("starting generator, reflector and carrack …");
    let mut rig = Rig::start(options, directory, cores)?;
    rig.introduce()?;
    let fill = rig.fill(options, &mut tell)?;
    let (steady, churned, clocks) = rig.churn(options, &mut tell)?;
    let bytes: u64 = rig.daemon.memory()?.iter().filter(|row| grows(&row.table)).map(|row| row.bytes).sum();
    Ok(Report {
        cores,
        translation: options.translation.title(),
        subscribers: options.sessions / PORTS,
        sessions: options.sessions,
        frame_bytes: options.frame_bytes,
        tagged: options.tagged,
        differences: differences(options),
        deletions_per_second: churned.deleted as f64 / churned.seconds,
        bytes_per_session: bytes as f64 / f64::from(options.sessions),
        clocks_per_packet: clocks,
        fill,
        steady,
        churned,
    })
}

/// What differs from the published test, and why.
fn differences(options: &Options) -> Vec<String> {
    let mut differences = Vec::new();
    if options.translation == Translation::Nat64 {
        differences.push(format!(
            "prefix {PREFIX6}/96 instead of fd12:3456:789a:11:2233:4455::/96: bits 64 to 71 of a prefix must be zero (RFC 6052 \
             §2.2), and carrack refuses others"
        ));
    } else {
        differences.push("NAT44 instead of NAT64".to_owned());
    }
    differences.push(
        "the generator is the lab's own instead of dpdk-testpmd, which writes neither IPv6 nor random flows and does not know \
         which of them came back (docs/adr/0012); the reflector is dpdk-testpmd"
            .to_owned(),
    );
    differences.push(
        "memif instead of network cards: generator and reflector take CPUs of the same machine".to_owned(),
    );
    if options.sessions != SESSIONS {
        differences.push(format!(
            "{} sessions instead of {}",
            number(options.sessions.into()),
            number(SESSIONS.into())
        ));
    }
    if !options.tagged {
        differences.push("frames without a VLAN tag".to_owned());
    }
    if options.frame_bytes != FRAME_BYTES {
        differences.push(format!("frames of {} bytes instead of {FRAME_BYTES}", options.frame_bytes));
    }
    differences
}

/// Whether a table's size goes with the number of sessions, rather than of pool addresses.
fn grows(table: &str) -> bool {
    !table.starts_with("pool")
}

struct Rig {
    // Ends first: the daemon is the client of both others.
    daemon: Daemon,
    generator: Traffic,
    reflector: Testpmd,
    counts: Counts,
}

impl Rig {
    fn start(options: &Options, directory: &Directory, cores: Cores) -> Result<Rig> {
        let reflector = Testpmd::start(&Setup {
            what: "reflector",
            socket: directory.file("outside.sock"),
            id: 1,
            cpu: cores.reflector,
            ring_log2: RING_LOG2,
            options: Vec::new(),
        })?;
        let args = TrafficArgs {
            role: Role::Generate,
            socket: directory.file("inside.sock"),
            id: 0,
            ring_log2: RING_LOG2,
            subscribers: options.sessions / PORTS,
            first: options.translation.first(),
            ports: PORTS as u16,
            first_port: FIRST_PORT,
            frame_bytes: options.frame_bytes,
            vlan: options.tagged.then_some(VLAN_INSIDE),
            window: WINDOW,
        };
        let generator = Traffic::start(&args, Place { cpu: cores.generator, shared: cores.shared() })?;
        let daemon = Daemon::start(directory, &options.binary, &config(options, cores.worker))?;
        Ok(Rig { daemon, generator, reflector, counts: Counts::default() })
    }

    /// Lets the daemon find both neighbours; `testpmd` answers ARP only in its mode `icmpecho`.
    fn introduce(&mut self) -> Result<()> {
        self.reflector.forward("icmpecho")?;
        self.generator.rate(200)?;
        self.await_that("the reflector", |rig| rig.daemon.has_neighbour("outside"))?;
        self.reflector.stop()?;
        self.reflector.forward("5tswap")?;
        self.await_that("the generator", |rig| Ok(rig.generator.counts().received > 0))?;
        self.counts = self.generator.drain()?;
        Ok(())
    }

    fn await_that(&mut self, what: &str, holds: impl Fn(&Rig) -> Result<bool>) -> Result<()> {
        let started = Instant::now();
        while !holds(self)? {
            if started.elapsed() > Duration::from_secs(8) {
                bail!("carrack does not reach {what} within 8 s");
            }
            if interrupted() {
                bail!("interrupted");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Stage 1: one packet of each session.
    fn fill(&mut self, options: &Options, tell: &mut impl FnMut(&str)) -> Result<Stage> {
        tell(&format!("stage 1: {} sessions, one packet each …", number(u64::from(options.sessions))));
        let before = self.look()?;
        let started = Instant::now();
        let from = self.counts.sent;
        let mut told = Instant::now();
        self.counts = self.generator.fill(|counts| {
            if told.elapsed() > Duration::from_secs(2) {
                told = Instant::now();
                tell(&format!("  {} sent", number(counts.sent - from)));
            }
        })?;
        self.stage(&before, started.elapsed())
    }

    /// Stage 2: steady traffic while sessions are deleted.
    fn churn(&mut self, options: &Options, tell: &mut impl FnMut(&str)) -> Result<(Stage, Churned, f64)> {
        tell(&format!(
            "stage 2: {} s of traffic, up to {} deletions a second in batches of {} …",
            options.seconds,
            number(u64::from(options.deletions)),
            churn::BATCH
        ));
        let before = self.look()?;
        // The first snapshot is taken before packets are in its way, so that sessions are deleted from the first second on.
        let asked = Instant::now();
        let churn = Churn::start(self.daemon.socket(), options.deletions, options.snapshot_every, || {
            if interrupted() {
                bail!("interrupted");
            }
            if asked.elapsed() > FIRST_SNAPSHOT_MAX {
                bail!("no snapshot of all sessions within {} s", FIRST_SNAPSHOT_MAX.as_secs());
            }
            Ok(())
        })?;
        let worker_before = self.daemon.workers()?;
        let started = Instant::now();
        self.generator.rate(options.rate.unwrap_or(UNLIMITED))?;
        let mut told = Instant::now();
        let mut last = (self.generator.counts(), churn.so_far());
        while started.elapsed() < Duration::from_secs(u64::from(options.seconds)) {
            if interrupted() {
                bail!("interrupted");
            }
            thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= Duration::from_secs(2) {
                let (counts, churned) = (self.generator.counts(), churn.so_far());
                let seconds = told.elapsed().as_secs_f64();
                told = Instant::now();
                tell(&format!(
                    "  {:>5.1} s  sent {} Mpps, back {} Mpps, {} deletions/s, snapshots {}",
                    started.elapsed().as_secs_f64(),
                    mpps((counts.sent - last.0.sent) as f64 / seconds),
                    mpps((counts.received - last.0.received) as f64 / seconds),
                    number(((churned.deleted - last.1.deleted) as f64 / seconds) as u64),
                    churned.snapshots
                ));
                last = (counts, churned);
            }
        }
        let elapsed = started.elapsed();
        let worker_after = self.daemon.workers()?;
        let churned = churn.finish()?;
        self.counts = self.generator.drain()?;
        let stage = self.stage(&before, elapsed)?;
        let clocks = |workers: &[carrack_api::types::Worker]| {
            let sum = |value: fn(&carrack_api::types::Worker) -> f64| workers.iter().map(value).sum::<f64>();
            (
                sum(|worker| worker.clocks_per_packet * worker.packets as f64),
                sum(|worker| worker.packets as f64),
            )
        };
        let ((c1, p1), (c2, p2)) = (clocks(&worker_before), clocks(&worker_after));
        Ok((stage, churned, (c2 - c1) / (p2 - p1).max(1.0)))
    }

    fn look(&mut self) -> Result<Look> {
        let reflector = self.reflector.stats()?;
        Ok(Look {
            counts: self.counts,
            reflector_lost: reflector.rx_packets.saturating_sub(reflector.tx_packets),
            carrack: self.daemon.counters()?,
        })
    }

    fn stage(&mut self, before: &Look, took: Duration) -> Result<Stage> {
        let after = self.look()?;
        let drops = drops(&after.carrack, &before.carrack);
        let dropped: u64 = drops.iter().map(|(_, count)| count).sum();
        let reflector_lost = after.reflector_lost - before.reflector_lost;
        let (sent, received) =
            (after.counts.sent - before.counts.sent, after.counts.received - before.counts.received);
        let wrong = after.counts.wrong - before.counts.wrong;
        // ARP and ICMP errors that reached the generator are not of its population.
        let other = (after.counts.other - before.counts.other) as i64;
        let reused = after.counts.reused - before.counts.reused;
        let lost = sent as i64 - (received + wrong + reused) as i64;
        let forwarded = after.carrack.forwarded - before.carrack.forwarded;
        let unaccounted =
            lost + own_packets(&after.carrack, &before.carrack) - other - (dropped + reflector_lost) as i64;
        Ok(Stage {
            seconds: took.as_secs_f64(),
            sent,
            received,
            wrong,
            reused,
            lost,
            forwarded,
            forwarded_pps: forwarded as f64 / took.as_secs_f64(),
            drops,
            dropped,
            reflector_lost,
            equal: unaccounted == 0,
            conservation_ok: after.carrack.balance == 0,
            sessions: self.daemon.sessions()?,
        })
    }
}

struct Look {
    counts: Counts,
    reflector_lost: u64,
    carrack: carrack_api::types::Counters,
}

fn config(options: &Options, cpu: u16) -> String {
    let sessions = options.sessions + options.sessions / 16 + 4_096;
    // The pool as published for two million sessions; a subscriber takes one block of 256.
    let (subscribers, route) = options.translation.config();
    let interfaces = |name: &str, device: &str, side: &str, address: &str, vlan: u16| {
        let port = if options.tagged { format!("{name}-port") } else { name.to_owned() };
        let own = format!("side = \"{side}\"\naddress = [{address}]\n");
        let mut text = format!("[[interface]]\nname = \"{port}\"\ndevice = \"{device}\"\n");
        if options.tagged {
            text.push_str(&format!(
                "\n[[interface]]\nname = \"{name}\"\nparent = \"{port}\"\nvlan = {vlan}\n"
            ));
        }
        text + &own
    };
    let device = |number: u8, side: &str, more: &str| {
        format!(
            "vdev:net_memif{number},role=client,id={number},socket=@LAB@/{side}.sock,socket-abstract=no,zero-copy=yes,\
             rsize={RING_LOG2}{more}"
        )
    };
    format!(
        include_str!("bison/carrack.toml"),
        cpu = cpu,
        dpdk_mb = DPDK_MIB,
        frames = FRAMES,
        sessions = sessions,
        subscribers = options.sessions / PORTS + 1_024,
        inside = interfaces(
            "inside",
            &device(0, "inside", ",mac=00:01:02:03:04:01"),
            "inside",
            "\"192.0.2.1/30\", \"2001:db8:ffff::1/64\"",
            VLAN_INSIDE
        ),
        outside =
            interfaces("outside", &device(1, "outside", ""), "outside", "\"192.0.2.5/30\"", VLAN_OUTSIDE),
        inside_route = route,
        translated = subscribers,
    )
}

#[cfg(test)]
mod tests;
