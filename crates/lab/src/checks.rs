//! What a demonstration tries with real programs, and what it expects to see at both ends.

mod ftp;
mod inbound;
mod manage;
mod path;
mod port_control;
pub mod rtsp;
pub mod sip;
pub(crate) mod speed;
mod tunnels;
mod udp;
mod web;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::command::interrupted;
use crate::lab::Lab;
use crate::plan::{self, Ns};
use crate::router::Router;

pub use manage::{Exhibit, exhibits};

/// Most checks' programs answer in milliseconds. A machine that is busy with other things needs seconds for those that
/// load many libraries; longer is a failure. What a program is told to wait itself is less, so that it says what it
/// waited for.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// One thing to try.
#[derive(Clone, Copy)]
pub struct Check {
    /// What is claimed, in a few words.
    pub name: &'static str,
    /// Only the daemon can do it; skipped with other routers.
    pub carrack_only: bool,
    /// Tries it: the measured detail, or an error with the failing program's output.
    pub run: fn(&mut Lab) -> Result<String>,
}

/// What came of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the check.
    pub name: String,
    /// Whether it passed.
    pub passed: bool,
    /// What was measured, or the first line of what went wrong.
    pub detail: String,
    /// Everything known about a failure; empty when it passed.
    pub failure: String,
    /// Wall time, seconds.
    pub seconds: f64,
}

/// All checks, in the order in which they are shown.
pub fn all() -> Vec<Check> {
    let any = |name, run| Check { name, carrack_only: false, run };
    let carrack = |name, run| Check { name, carrack_only: true, run };
    vec![
        any("ping", path::ping),
        any("traceroute, UDP", path::traceroute_udp),
        any("traceroute, ICMP", path::traceroute_icmp),
        any("DNS", web::dns),
        any("web download", web::download),
        any("UDP echo", udp::echo),
        any("two subscribers, one source port", udp::same_source_port),
        any("path MTU", path::path_mtu),
        any("upload over a narrow link", web::narrow_upload),
        any("FTP, passive", ftp::passive),
        carrack("FTP, active", ftp::active),
        carrack("SIP call", sip::call),
        carrack("RTSP stream", rtsp::stream),
        any("inbound port forward", inbound::forward),
        any("hairpin call", inbound::hairpin),
        any("unsolicited inbound", inbound::unsolicited),
        carrack("port opened by its host (NAT-PMP)", port_control::natpmpc),
        carrack("PPTP, one call number twice", tunnels::calls),
        carrack("ESP, two tunnels at once", tunnels::esp),
        any("TCP throughput", speed::tcp),
        carrack("session table", manage::sessions),
        carrack("subscribers", manage::subscribers),
        carrack("every packet accounted for", manage::conservation),
        carrack("packet capture", manage::capture),
    ]
}

/// Runs the checks that apply to this lab's router one after the other; `seen` is called after each. Stops early only
/// when interrupted.
pub fn run_all(lab: &mut Lab, mut seen: impl FnMut(&Outcome)) -> Vec<Outcome> {
    let is_carrack = matches!(lab.router(), Router::Carrack { .. });
    let mut outcomes = Vec::new();
    for check in all() {
        if check.carrack_only && !is_carrack {
            continue;
        }
        if interrupted() {
            break;
        }
        let outcome = run_one(lab, &check);
        seen(&outcome);
        outcomes.push(outcome);
    }
    outcomes
}

/// Runs one check.
pub fn run_one(lab: &mut Lab, check: &Check) -> Outcome {
    let started = Instant::now();
    let result = (check.run)(lab);
    let seconds = started.elapsed().as_secs_f64();
    let (passed, detail, failure) = match result {
        Ok(detail) => (true, detail, String::new()),
        Err(error) => {
            let text = format!("{error:#}");
            let first = text.lines().next().unwrap_or("failed").to_owned();
            (false, first, text)
        }
    };
    Outcome { name: check.name.to_owned(), passed, detail, failure, seconds }
}

/// Packets that arrived in a namespace and had somebody to take them, since it was made.
pub(crate) fn delivered(lab: &Lab, ns: Ns) -> Result<u64> {
    let all = lab.exec(ns, &["cat", "/proc/net/snmp", "/proc/net/snmp6"], LIMIT)?.success()?.stdout;
    // One file has a line of names above each line of figures, the other both in a line.
    let column = |table: &str, name: &str| {
        let mut lines = all.lines().filter_map(|line| line.strip_prefix(table));
        let (names, figures) = (lines.next()?, lines.next()?);
        let at = names.split(' ').position(|known| known == name)?;
        figures.split(' ').nth(at)?.parse::<u64>().ok()
    };
    let row = |name: &str| {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let found = all.lines().map(words).find(|words| words.first().is_some_and(|first| first == name));
        found.and_then(|words| words.get(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    let taken = column("Ip: ", "InDelivers").zip(column("Udp: ", "NoPorts"));
    let (four, refused) = taken.context("no such counters in /proc/net/snmp")?;
    Ok((four + row("Ip6InDelivers")).saturating_sub(refused + row("Udp6NoPorts")))
}

/// Fails unless `address` is one of the pool's.
pub(crate) fn expect_pool_address(address: &str, who: &str) -> Result<()> {
    if address.starts_with(plan::POOL_PREFIX) {
        Ok(())
    } else {
        bail!("{who} saw source address {address}, which is not of the pool {}", plan::POOL)
    }
}

/// The client addresses in the log of a Python web server that asked for `path`.
pub(crate) fn web_clients(log: &str, path: &str) -> Vec<String> {
    let request = format!("GET {path} ");
    log.lines()
        .filter(|line| line.contains(&request))
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests;
