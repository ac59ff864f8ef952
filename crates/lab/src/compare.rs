//! `carrack lab compare`: the daemon and the kernel's own NAT in the same namespaces, side by side.

mod report;

use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::checks::{LIMIT, speed};
use crate::lab::{Lab, Options as LabOptions};
use crate::needs::missing_of;
use crate::plan::{self, Ns};
use crate::router::{self, Io, Router};

pub(crate) use report::print;

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub binary: PathBuf,
    pub io: Io,
    pub seconds: u32,
    /// New connections of each of the two subscribers.
    pub flows: u16,
}

/// Both routers' figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub carrack: Figures,
    pub linux_nft: Figures,
}

/// What one router reached.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub router: String,
    /// One TCP connection, Gbit/s received.
    pub tcp_up_gbps: f64,
    pub tcp_down_gbps: f64,
    /// UDP frames of 64 bytes with their checksum, packets a second that arrived, and the share that did not.
    pub small_packets_pps: f64,
    pub small_packets_lost: f64,
    /// Connections asked for and made, and how many a second.
    pub connections_asked: u64,
    pub connections_made: u64,
    pub connections_per_second: f64,
    /// Bytes that each session takes, as far as the router tells.
    pub bytes_per_session: f64,
    pub bytes_per_session_of: String,
}

/// Payload of a frame of 64 bytes: Ethernet 14, IPv4 20, UDP 8, checksum 4.
const SMALL_BYTES: &str = "18";
/// Nobody listens there; the server throws packets to it away instead of answering each with an ICMP error.
const FLOW_PORT: u16 = 20_000;
const FLOW_SOURCE_FIRST: u16 = 2_048;
/// Flows of a subscriber: its source ports.
pub(crate) const FLOWS_MAX: u16 = 60_000;

const PROGRAMS: [(&str, &str); 1] = [("nft", "nftables")];

/// Runs everything on both; `tell` gets a line for each step.
pub(crate) fn run(options: &Options, mut tell: impl FnMut(&str)) -> Result<Report> {
    if let Some(why) = missing_of(&PROGRAMS) {
        bail!(why);
    }
    let carrack =
        Router::Carrack { binary: options.binary.clone(), io: options.io, config: config(options.io) };
    Ok(Report {
        carrack: measure(options, carrack, &mut tell)?,
        linux_nft: measure(options, Router::LinuxNft, &mut tell)?,
    })
}

/// The lab's config with room for the connections, and ports given out one by one as the kernel does.
fn config(io: Io) -> String {
    router::config(io)
        .replace("sessions = 65536", "sessions = 262144")
        .replace("mappings = 65536", "mappings = 262144")
        .replace("mode = \"blocks\"\nblock_size = 512", "mode = \"arbitrary\"")
}

fn measure(options: &Options, router: Router, tell: &mut impl FnMut(&str)) -> Result<Figures> {
    let label = router.label();
    tell(&format!("{label}: bringing the lab up …"));
    let name = format!("compare-{}", std::process::id());
    let mut lab = Lab::up(LabOptions { name, router })?;
    let mut figures = Figures { router: label.clone(), ..Figures::default() };
    tell(&format!("{label}: TCP …"));
    figures.tcp_up_gbps = speed::measure(&lab, &[])?;
    figures.tcp_down_gbps = speed::measure(&lab, &["-R"])?;
    tell(&format!("{label}: small packets …"));
    (figures.small_packets_pps, figures.small_packets_lost) = small_packets(&lab, options.seconds)?;
    tell(&format!("{label}: new connections …"));
    connections(&mut lab, options.flows, &mut figures)?;
    lab.down()?;
    Ok(figures)
}

/// As many datagrams as one iperf3 sends: those that arrived a second, and the share that was lost.
fn small_packets(lab: &Lab, seconds: u32) -> Result<(f64, f64)> {
    let time = seconds.to_string();
    let argv = ["iperf3", "-c", plan::SERVER, "-u", "-b", "0", "-l", SMALL_BYTES, "-t", &time, "-J"];
    let done = lab.exec(Ns::Sub1, &argv, Duration::from_secs(15 + u64::from(seconds)))?.success()?;
    let report: Value = serde_json::from_str(&done.stdout).context("iperf3 printed no JSON")?;
    let figure = |key: &str| {
        report.pointer(&format!("/end/sum/{key}")).and_then(Value::as_f64).with_context(|| done.describe())
    };
    let (packets, lost, seconds) = (figure("packets")?, figure("lost_packets")?, figure("seconds")?);
    Ok(((packets - lost) / seconds, lost / packets))
}

/// Both subscribers open connections as fast as they can; counts what the router has then.
fn connections(lab: &mut Lab, flows: u16, figures: &mut Figures) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this executable")?.display().to_string();
    let rules = format!(
        "table ip sink {{\nchain dropped {{\ntype filter hook input priority 0;\nudp dport {FLOW_PORT} drop\n}}\n}}\n"
    );
    lab.exec_with_input(Ns::Inet, &["nft", "-f", "-"], rules.as_bytes(), LIMIT)?.success()?;
    let before = sessions(lab)?;
    let started = Instant::now();
    let count = flows.to_string();
    let words = [program.as_str(), "lab", "flows", "--count", &count];
    for (ns, what) in [(Ns::Sub1, "flows1"), (Ns::Sub2, "flows2")] {
        lab.start(ns, what, &words)?;
    }
    for what in ["flows1", "flows2"] {
        if !lab.wait(what, Duration::from_secs(60)) {
            bail!("opening {flows} connections took more than 60 s");
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    std::thread::sleep(Duration::from_millis(200));
    figures.connections_asked = 2 * u64::from(flows);
    figures.connections_made = sessions(lab)?.saturating_sub(before);
    figures.connections_per_second = figures.connections_made as f64 / seconds;
    (figures.bytes_per_session, figures.bytes_per_session_of) = memory(lab)?;
    Ok(())
}

/// Sessions that the router has now.
fn sessions(lab: &Lab) -> Result<u64> {
    match lab.router() {
        Router::Carrack { .. } => {
            let workers = json(lab, &["show", "workers"])?;
            let count = |worker: &Value| worker.get("sessions").and_then(Value::as_u64);
            Ok(workers.as_array().into_iter().flatten().filter_map(count).sum())
        }
        Router::LinuxNft => {
            let count = "/proc/sys/net/netfilter/nf_conntrack_count";
            let done = lab.exec(Ns::Carrack, &["cat", count], LIMIT)?.success()?;
            done.stdout.trim().parse().context("the kernel told no number of connections")
        }
    }
}

/// Bytes a session, and of what.
fn memory(lab: &Lab) -> Result<(f64, String)> {
    match lab.router() {
        Router::Carrack { .. } => {
            let rows = json(lab, &["show", "nat", "memory"])?;
            let rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
            let number = |row: &Value, key: &str| row.get(key).and_then(Value::as_f64).unwrap_or(0.0);
            let grows = |row: &&&Value| {
                let table = row.get("table").and_then(Value::as_str).unwrap_or_default();
                table.starts_with("session") || table.starts_with("mapping")
            };
            let bytes: f64 = rows.iter().filter(grows).map(|row| number(row, "bytes")).sum();
            let room: f64 = rows
                .iter()
                .filter(|row| row.get("table").and_then(Value::as_str) == Some("sessions"))
                .map(|row| number(row, "total"))
                .sum();
            Ok((bytes / room.max(1.0), "session and mapping tables with indexes and timers".to_owned()))
        }
        Router::LinuxNft => {
            let slabs = std::fs::read_to_string("/proc/slabinfo").unwrap_or_default();
            let line = slabs.lines().find(|line| line.starts_with("nf_conntrack "));
            let size = line.and_then(|line| line.split_whitespace().nth(3)?.parse::<f64>().ok());
            // A hash chain's head for each direction comes on top.
            Ok(size.map_or((0.0, "not told by this kernel".to_owned()), |size| {
                (size + 16.0, "connection entry and hash chains, extensions not counted".to_owned())
            }))
        }
    }
}

fn json(lab: &Lab, args: &[&str]) -> Result<Value> {
    let done = lab.carrack(&[args, &["--json"]].concat(), LIMIT)?.success()?;
    serde_json::from_str(&done.stdout).with_context(|| done.describe())
}

/// What `carrack lab flows` is started with, in a subscriber's namespace.
#[derive(Clone, Debug, Args)]
pub struct FlowsArgs {
    /// Connections to open.
    #[arg(long)]
    count: u16,
}

/// Sends one datagram from each of `count` source ports.
pub(crate) fn flows(args: &FlowsArgs) -> Result<()> {
    for number in 0..args.count.min(FLOWS_MAX) {
        let Ok(socket) = UdpSocket::bind(("0.0.0.0", FLOW_SOURCE_FIRST + number)) else { continue };
        // A full queue is the measurement's business: what did not arrive is not counted.
        let _ = socket.send_to(b"hello", (plan::SERVER, FLOW_PORT));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use carrack_config::Config;

    use super::*;

    #[test]
    fn the_config_differs_from_the_labs_where_it_should_and_is_accepted() {
        let text = config(Io::AfXdp);
        assert!(text.contains("mode = \"arbitrary\"") && text.matches("262144").count() == 2, "{text}");
        let text = text.replace("@LAB@", "/run/carrack-lab/x");
        assert!(Config::from_str("carrack.toml", &text).is_ok());
    }
}
