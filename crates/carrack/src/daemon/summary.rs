//! What is computed rather than copied: the stage graph, worker figures, counters.

use carrack_alg::{Note, Protocol};
use carrack_api::types::{EngineCounter, Graph, GraphNode, NamedCount, StageClocks, Thread, Worker};
use carrack_base::counters::Accounts;
use carrack_base::{REASONS, Reason};
use carrack_nat::GatewayCounts;
use carrack_natlog::{ExporterReport, StoreReport};
use carrack_pipeline::stats::{STAGES, Stage, WorkerStats};
use carrack_runtime::{ControlCounters, ThreadRow, WorkerReport};

/// The stages with what ended in each. `packets` of a stage are those that nothing before it ended; packets that come
/// from other workers join before the NAT, the router's own before forwarding.
pub(super) fn graph(total: &Accounts) -> Graph {
    let named = |name: &str, count: u64| NamedCount { name: name.into(), count };
    let rx = GraphNode {
        stage: "rx".into(),
        description: "takes packets from the ports".into(),
        packets: total.rx,
        ended: Vec::new(),
        drops: Vec::new(),
    };
    let mut stages = vec![rx];
    let mut packets = total.rx;
    for (stage, name, description) in STAGES {
        match stage {
            Stage::Nat => packets += total.handed_in,
            Stage::Forward => packets += total.originated,
            _ => {}
        }
        let ended: Vec<NamedCount> = match stage {
            Stage::Steer => vec![named("handed-out", total.handed_out)],
            Stage::Finish => vec![
                named("forwarded", total.forwarded),
                named("punted", total.punted),
                named("consumed", total.consumed),
                named("held", total.held),
            ],
            _ => Vec::new(),
        };
        let drops: Vec<NamedCount> = REASONS
            .iter()
            .zip(&total.drops)
            .filter(|(info, count)| **count > 0 && stage_of(info.reason) == stage)
            .map(|(info, count)| named(info.name, *count))
            .collect();
        let gone: u64 = ended.iter().chain(&drops).map(|end| end.count).sum();
        let ended = ended.into_iter().filter(|end| end.count > 0).collect();
        stages.push(GraphNode { stage: name.into(), description: description.into(), packets, ended, drops });
        packets = packets.saturating_sub(gone);
    }
    Graph { stages }
}

/// The stage that a reason belongs to.
fn stage_of(reason: Reason) -> Stage {
    let name = reason.name();
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    match reason {
        Reason::FragmentationNeeded => Stage::Forward,
        Reason::HandoverQueueFull => Stage::Steer,
        Reason::InterfaceDown | Reason::FrameOversized | Reason::UrpfFailed => Stage::Parse,
        _ if starts(&["l2-", "arp-", "ipv4-", "tcp-", "udp-", "icmp-"]) => Stage::Parse,
        _ if starts(&["fragment-"]) => Stage::Fragments,
        _ if starts(&["nat-"]) => Stage::Nat,
        _ => Stage::Forward,
    }
}

pub(super) fn thread(row: &ThreadRow) -> Thread {
    Thread {
        id: row.id,
        name: row.name.clone(),
        role: row.role.unwrap_or("other").into(),
        cpus: row.cpus.clone(),
        last_cpu: row.last_cpu,
    }
}

/// All but its thread.
pub(super) fn worker(report: &WorkerReport, generation: u64) -> Worker {
    let (stats, loops) = (&report.stats, &report.loops);
    let per = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
    let bursts = per(stats.packets, stats.bursts);
    let stages: Vec<StageClocks> = STAGES
        .iter()
        .zip(&stats.stages)
        .map(|((_, name, _), s)| StageClocks {
            stage: (*name).into(),
            packets: s.packets,
            clocks: s.cycles,
            clocks_per_packet: per(s.cycles, s.packets),
        })
        .collect();
    // Every packet enters at the first stage: the sampled clocks of all stages, over the packets sampled there.
    let sampled = stats.stages.first().map_or(0, |s| s.packets);
    let clocks = stats.stages.iter().map(|s| s.cycles).sum();
    Worker {
        worker: report.id.0,
        state: match report.state {
            carrack_runtime::WorkerState::Running => "running",
            carrack_runtime::WorkerState::Ended => "ended",
            carrack_runtime::WorkerState::Panicked => "failed",
        }
        .into(),
        thread: None,
        generation,
        bursts: stats.bursts,
        packets: stats.packets,
        packets_per_burst: bursts,
        clocks_per_packet: per(clocks, sampled),
        idle_share: loops.idle_share(),
        sessions: stats.sessions,
        subscribers: stats.subscribers,
        stages,
    }
}

/// What the control plane counts.
pub(super) fn control_counters(c: &ControlCounters) -> Vec<EngineCounter> {
    let h = &c.host;
    let rows = [
        ("punts-handled", c.punts_handled, "Packets that workers passed up and the host has seen."),
        ("host-tx-full", c.host_tx_full, "The host's own packets that found the ring to the worker full."),
        ("arp-received", h.arp_received, "ARP requests and replies received well-formed."),
        ("arp-malformed-host", h.arp_malformed, "Malformed ARP packets ignored by the host."),
        ("arp-answered", h.arp_answered, "ARP requests answered, own addresses and proxied ones."),
        ("arp-answered-proxy", h.arp_answered_proxy, "Of those, for pool and static addresses."),
        ("arp-asked", h.arp_asked, "ARP requests sent."),
        ("arp-announced", h.arp_announced, "Announcements (gratuitous ARP) sent."),
        ("arp-conflicts", h.arp_conflicts, "Packets that claimed an address of ours."),
        ("nd-received", h.nd_received, "Neighbour discovery messages received well-formed."),
        ("nd-malformed", h.nd_malformed, "Malformed neighbour discovery messages ignored."),
        ("nd-answered", h.nd_answered, "Neighbour solicitations answered."),
        ("nd-asked", h.nd_asked, "Neighbour solicitations sent."),
        ("nd-announced", h.nd_announced, "Neighbour advertisements sent to all."),
        ("nd-conflicts", h.nd_conflicts, "Neighbour discovery messages that claimed an address of ours."),
        ("router-advertised", h.router_advertised, "Router advertisements sent."),
        ("listener-asked", h.listener_asked, "Multicast listener queries received."),
        ("listener-reported", h.listener_reported, "Multicast listener reports sent."),
        ("neighbours-full", h.neighbours_full, "Neighbours not entered because the table was full."),
        (
            "neighbours-pending-full",
            h.neighbours_pending_full,
            "Addresses not asked for: too many under way.",
        ),
        ("neighbours-failed", h.neighbours_failed, "Neighbours that did not answer."),
        ("echo-answered", h.echo_answered, "Echo requests answered."),
        ("host-fragments", h.fragments_received, "Pieces of ICMP to the router received."),
        ("host-fragments-malformed", h.fragments_malformed, "Of those, pieces of an impossible length."),
        ("reassembled", h.reassembled, "Datagrams to the router put together."),
        (
            "reassembly-overlap",
            h.reassembly_overlap,
            "Datagrams to the router given up: their pieces overlapped or contradicted each other.",
        ),
        (
            "reassembly-too-long",
            h.reassembly_too_long,
            "Datagrams to the router beyond 4,104 bytes, given up.",
        ),
        (
            "reassembly-full",
            h.reassembly_full,
            "Incomplete datagrams to the router given up, oldest first, as 64 were under way.",
        ),
        (
            "reassembly-timeout",
            h.reassembly_timeout,
            "Datagrams to the router whose rest did not come in time.",
        ),
        ("icmp-malformed-host", h.icmp_malformed, "ICMP to the router that was malformed."),
        ("host-unhandled", h.unhandled, "Packets for the router that it has no use for."),
        ("host-interface-unknown", h.interface_unknown, "Packets from interfaces that are gone."),
        ("host-transmit-full", h.transmit_full, "Frames of the host not sent because too many waited."),
    ];
    let p = &c.port_control;
    let port_control = [
        ("pcp-map-requests", p.map, "MAP requests of PCP."),
        ("pcp-peer-requests", p.peer, "PEER requests of PCP."),
        ("pcp-announce-requests", p.announce, "ANNOUNCE requests of PCP."),
        ("nat-pmp-requests", p.nat_pmp, "NAT-PMP requests."),
        ("nat-pmp-granted", p.nat_pmp_granted, "NAT-PMP requests granted."),
        ("nat-pmp-refused", p.nat_pmp_refused, "NAT-PMP requests refused."),
        (
            "pcp-ignored",
            p.ignored,
            "Datagrams to port control that get no answer: damaged, or not from inside.",
        ),
        ("pcp-discarded", p.discarded, "Requests of port control discarded while others were under way."),
        ("pcp-unanswered", p.unanswered, "Questions of port control that a worker did not answer in time."),
        ("pcp-announced", p.announced, "Restart announcements sent."),
        ("pcp-restored", p.restored, "Mappings taken over from the run before."),
        ("pcp-lost", p.lost, "Mappings that a reload or restart could not keep."),
        ("pcp-moved", p.moved, "Mappings that a reload has given another outside endpoint."),
        ("pcp-updates", p.updates, "Answers sent unasked: mappings that are elsewhere now, or gone."),
        ("pcp-expired", p.expired, "Mappings whose lifetime ended."),
        ("pcp-transmit-full", p.transmit_full, "Answers of port control not sent because too many waited."),
    ];
    let answers = carrack_pcp::Code::ALL.iter().zip(p.answers).map(|(code, count)| EngineCounter {
        name: format!("pcp-answers-{}", code.name()),
        description: format!("Answers of PCP with result code {} ({}).", *code as u8, code.name()),
        count,
    });
    rows.into_iter()
        .chain(port_control)
        .map(|(name, count, description)| EngineCounter {
            name: name.into(),
            description: description.into(),
            count,
        })
        .chain(answers)
        .collect()
}

/// What an exporter counts.
pub(super) fn exporter_counters(report: &ExporterReport) -> Vec<EngineCounter> {
    let rows = [
        ("sent", report.sent, "NAT events sent to the collector."),
        ("messages", report.messages, "Messages sent to the collector, templates included."),
        ("lost", report.lost, "NAT events lost because the collector was too slow or away."),
        ("waiting", report.waiting, "NAT events that wait in memory for the collector."),
        ("spooled-bytes", report.spooled_bytes, "Bytes of NAT events that wait on disk for the collector."),
    ];
    counters(&format!("exporter-{}", report.name), &rows)
}

/// What the store counts.
pub(super) fn store_counters(report: &StoreReport) -> Vec<EngineCounter> {
    let rows = [
        ("stored", report.stored, "NAT events that are safe on disk."),
        ("lost", report.lost, "NAT events lost because the disk was full or too slow."),
        ("waiting", report.waiting, "NAT events that wait in memory for the disk."),
        ("bytes", report.bytes, "Bytes of columnar files on disk."),
    ];
    counters("store", &rows)
}

/// Sessions that began and ended on all workers. A session lives or has ended: only ends need be counted.
pub(super) fn session_counters<'a>(
    workers: impl Iterator<Item = &'a WorkerStats> + Clone,
) -> [EngineCounter; 2] {
    let deleted: u64 = workers.clone().map(|stats| stats.sessions_deleted).sum();
    let live: u64 = workers.map(|stats| stats.sessions).sum();
    let counter = |name: &str, description: &str, count| EngineCounter {
        name: name.into(),
        description: description.into(),
        count,
    };
    [
        counter("sessions-created", "NAT sessions that began.", live + deleted),
        counter("sessions-deleted", "NAT sessions that ended, by time, command or reload.", deleted),
    ]
}

/// What the application gateways of all workers count.
pub(super) fn gateway_counters<'a>(
    workers: impl Iterator<Item = &'a GatewayCounts> + Clone,
) -> Vec<EngineCounter> {
    let rows = Protocol::ALL.iter().flat_map(|protocol| Note::ALL.iter().map(move |note| (*protocol, *note)));
    let sum = |protocol: Protocol, note: Note| {
        workers.clone().filter_map(|counts| counts.get(protocol as usize)?.get(note as usize)).sum()
    };
    rows.map(|(protocol, note)| EngineCounter {
        name: format!("gateway-{}-{}", protocol.name(), note.name()),
        description: note.description().into(),
        count: sum(protocol, note),
    })
    .collect()
}

fn counters(of: &str, rows: &[(&str, u64, &str)]) -> Vec<EngineCounter> {
    let counter = |(what, count, description): &(&str, u64, &str)| EngineCounter {
        name: format!("{of}-{what}"),
        description: (*description).into(),
        count: *count,
    };
    rows.iter().map(counter).collect()
}

#[cfg(test)]
mod tests;
