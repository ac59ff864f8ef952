//! `[system]`, `[workers]`, `[memory]`, `[api]`, `[policers]`, `[arp]`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;

use carrack_host::ArpTimers;
use carrack_pipeline::snapshot::{Policer, Policers};

use crate::model::{Api, ApiTcp, Memory, System, Workers};
use crate::read::{Notes, Section};
use crate::source::At;

pub(super) fn system(section: &Section<'_>) -> System {
    System { name: section.value("name"), run_dir: section.value("run_dir") }
}

pub(super) fn workers(notes: &Notes, section: &Section<'_>) -> Workers {
    let count = section.need::<u8>("count");
    let cores = section.need::<Vec<At<u16>>>("cores");
    let mut seen = BTreeSet::new();
    for core in cores.iter().filter(|core| !seen.insert(core.value)) {
        notes.error(core.span, format!("core {core} is there twice; give each worker a core of its own"));
    }
    if count.value > 0 && !cores.is_empty() && cores.len() != usize::from(count.value) {
        let message = format!(
            "{} cores for {} workers; list one core for each worker, or none to leave placement to the kernel",
            cores.len(),
            count.value
        );
        notes.error(cores.span, message);
    }
    let control_cores = section.need::<Vec<At<u16>>>("control_cores");
    for core in control_cores.iter().filter(|core| cores.iter().any(|worker| worker.value == core.value)) {
        let message = format!(
            "core {} is a worker's, which shares it with nobody; take it out here or from workers.cores",
            core.value
        );
        notes.error(core.span, message);
    }
    Workers {
        count: count.value.max(1),
        control_cores: control_cores.value,
        cores: cores.value,
        idle: section.value("idle"),
        burst: section.value("burst"),
    }
}

/// Least lines of a table at one worker: who comes to which worker is chance, and of fewer the fullest worker has half as many
/// again as the others, and refuses while they have room.
const SHARE_MIN: u32 = 64;

/// A size is shared out among the workers: says when little is left for each.
fn shares(notes: &Notes, section: &Section<'_>, workers: u8) {
    for name in ["sessions", "mappings", "subscribers", "hosts"] {
        let Some(written) = section.written(name) else { continue };
        // What is wrong with the number itself is said where it is read.
        let Some(size) = section.peek::<u32>(name).map(|size| size.value) else { continue };
        let share = size.div_ceil(u32::from(workers));
        if share < SHARE_MIN {
            let message = format!(
                "memory.{name} = {size} leaves each of {workers} workers {share}; what comes to a worker beyond its share is \
                 refused, whatever room others have: write at least {}, or take fewer workers",
                SHARE_MIN * u32::from(workers)
            );
            notes.warning(written, message);
        }
    }
}

pub(super) fn memory(notes: &Notes, section: &Section<'_>, workers: u8) -> At<Memory> {
    shares(notes, section, workers);
    let memory = Memory {
        huge_pages: section.value("huge_pages"),
        dpdk_mb: section.value("dpdk_mb"),
        frames: section.value("frames"),
        frame_bytes: section.value("frame_bytes"),
        sessions: section.value("sessions"),
        mappings: section.value("mappings"),
        hosts: section.get("hosts").map(|hosts| hosts.value),
        subscribers: section.value("subscribers"),
        fragments: section.value("fragments"),
        held_fragments: section.value("held_fragments"),
        held_syns: section.value("held_syns"),
        gateway_connections: section.value("gateway_connections"),
        neighbours: section.value("neighbours"),
        held_for_neighbour: section.value("held_for_neighbour"),
    };
    At::new(memory, section.span)
}

pub(super) fn api(notes: &Notes, section: &Section<'_>, system: &System) -> Api {
    let socket = section.get::<PathBuf>("socket");
    Api {
        socket: socket.map_or_else(|| system.run_dir.join("api.sock"), |socket| socket.value),
        tcp: api_tcp(notes, &section.section("tcp")),
    }
}

fn api_tcp(notes: &Notes, section: &Section<'_>) -> Option<ApiTcp> {
    let listen = section.get::<SocketAddr>("listen");
    let [token_file, tls_cert, tls_key] =
        ["token_file", "tls_cert", "tls_key"].map(|key| section.get::<PathBuf>(key));
    let missing: Vec<String> = ["listen", "token_file", "tls_cert", "tls_key"]
        .into_iter()
        .filter(|key| section.written(key).is_none())
        .map(|key| format!("`{key}`"))
        .collect();
    if section.is_present() && !missing.is_empty() {
        let message = format!(
            "[api.tcp] has no {}; the API listens on TCP only with a token and TLS, so give all four keys or remove the table",
            missing.join(", ")
        );
        notes.error(section.span, message);
    }
    Some(ApiTcp {
        listen: listen?.value,
        token_file: token_file?.value,
        tls_cert: tls_cert?.value,
        tls_key: tls_key?.value,
    })
}

pub(super) fn policers(section: &Section<'_>) -> Policers {
    let default = Policers::default();
    let read = |key, fallback: Policer| section.get::<Policer>(key).map_or(fallback, |policer| policer.value);
    Policers {
        arp: read("arp", default.arp),
        nd: read("nd", default.nd),
        icmp: read("icmp", default.icmp),
        other: read("other", default.other),
        icmp_errors: read("icmp_errors", default.icmp_errors),
        port_control: read("port_control", default.port_control),
        port_control_host: read("port_control_host", default.port_control_host),
    }
}

pub(super) fn arp(section: &Section<'_>) -> ArpTimers {
    ArpTimers {
        reachable_s: section.value("reachable"),
        retry_ms: section.value("retry_ms"),
        tries: section.value("tries"),
        failed_s: section.value("failed"),
    }
}
