//! The daemon between real programs: namespaces, veth, curl, ping, traceroute, dig, socat, iperf3.
//!
//! These need root and the programs that `make setup` installs. Elsewhere they say why they did not run; with
//! `CARRACK_NETWORK_TESTS=require` that is a failure.
#![forbid(unsafe_code)]

mod behaviour;
mod demo;
mod gateways;
mod ipv6;
mod life;
mod limits;
mod manage;
mod memif;
mod nat64;
mod nat_type;
mod outside;
mod overlap;
mod port_control;
mod siit;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Finished, Io, Lab, Options, Router};

/// More than any of the programs here takes, on a busy machine.
const LIMIT: Duration = Duration::from_secs(15);

/// A lab with the daemon in it, its config changed by `edit`; `None` where labs cannot run.
fn lab(name: &str, io: Io, edit: impl FnOnce(String) -> String) -> Option<Lab> {
    if !carrack_lab::can_run() {
        return None;
    }
    let router = Router::Carrack {
        binary: PathBuf::from(env!("CARGO_BIN_EXE_carrack")),
        io,
        config: edit(carrack_lab::config(io)),
    };
    // Other runs of these tests on the same machine must not meet.
    let name = format!("{name}-{}", std::process::id());
    match Lab::up(Options { name, router }) {
        Ok(lab) => Some(lab),
        Err(error) => panic!("the lab did not come up: {error:#}"),
    }
}

/// The usual lab.
fn plain(name: &str) -> Option<Lab> {
    lab(name, Io::AfXdp, |config| config)
}

/// Replaces the one place where `old` is in the config.
fn replace(config: &str, old: &str, new: &str) -> String {
    assert_eq!(config.matches(old).count(), 1, "`{old}` should be once in the lab's config");
    config.replace(old, new)
}

/// Runs a program in a namespace.
fn exec(lab: &Lab, ns: Ns, line: &str) -> Finished {
    let words: Vec<&str> = line.split(' ').collect();
    lab.exec(ns, &words, LIMIT).unwrap()
}

/// Runs one that must succeed; its output.
fn must(lab: &Lab, ns: Ns, line: &str) -> String {
    exec(lab, ns, line).success().unwrap_or_else(|error| panic!("{error}\n{}", lab.log("router"))).stdout
}

/// Waits until it holds; when it does not in good time, `what` should have come about.
fn until(lab: &Lab, what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}\n{}\n{}", lab.log("access"), lab.log("router"));
        thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until one echo request is answered, as by a router whose own addresses are not asked for any more (RFC 4862 §5.4).
fn until_pings(lab: &Lab, ns: Ns, address: &str) {
    until(lab, &format!("{address} answers"), || pings(lab, ns, address));
}

/// Whether one echo request to `address` is answered.
fn pings(lab: &Lab, ns: Ns, address: &str) -> bool {
    exec(lab, ns, &format!("ping -n -c 1 -W 2 {address}")).ok()
}

/// The outside address and port that the server sees of a UDP call from this source port; `None` when nothing answers.
fn outside_of(lab: &Lab, ns: Ns, source_port: u16) -> Option<String> {
    let target = format!("UDP4:{}:{},sourceport={source_port}", plan::SERVER, plan::WHOAMI_PORT);
    let argv = ["socat", "-t2", "-", &target];
    let done = lab.exec_until_answered(ns, &argv, b"who am I?\n", 0, LIMIT).unwrap();
    let answer = done.stdout.trim().to_owned();
    (!answer.is_empty()).then_some(answer)
}

/// The daemon's counters as JSON.
fn counters(lab: &Lab) -> serde_json::Value {
    let done = lab.carrack(&["show", "counters", "--json"], LIMIT).unwrap().success().unwrap();
    serde_json::from_str(&done.stdout).unwrap()
}

/// Asserts that every packet the daemon took is accounted for.
fn assert_conservation(lab: &Lab) {
    let counters = counters(lab);
    assert_eq!(counters["balance"], 0, "{counters:#}");
}
