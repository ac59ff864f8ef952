//! Things that happen: events, captured packets, traces, reloads; and what the daemon is.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// All kinds of events.
pub const EVENT_KINDS: [&str; 16] = [
    "block-allocated",
    "block-released",
    "address-bound",
    "address-released",
    "mapping-bound",
    "mapping-released",
    "refused",
    "pool-threshold",
    "ports-threshold",
    "subscriber-threshold",
    "mapping-created",
    "mapping-deleted",
    "session-created",
    "session-deleted",
    "address-duplicate",
    "address-conflict",
];

/// Something management wants to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Grows by one each event since start.
    pub sequence: u64,
    /// When: microseconds since 1970 (UTC).
    pub unix_us: u64,
    /// `block-allocated`, `block-released`, `address-bound`, `address-released`, `mapping-bound`, `mapping-released`,
    /// `refused`, `pool-threshold`, `ports-threshold`, `subscriber-threshold`, `mapping-created`, `mapping-deleted`,
    /// `session-created`, `session-deleted`, `address-duplicate` or `address-conflict`.
    pub kind: String,
    /// NAT instance, when it is about one.
    pub instance: Option<String>,
    /// `info`, `warning` or `error`.
    pub severity: String,
    /// One sentence for people.
    pub text: String,
}

/// One captured packet, before it becomes pcapng.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedPacket {
    /// When: nanoseconds since 1970 (UTC).
    pub unix_ns: u64,
    /// Interface.
    pub interface: String,
    /// `rx`, `tx` or `drop`.
    pub point: &'static str,
    /// Why it was dropped.
    pub reason: Option<carrack_base::Reason>,
    /// Length on the wire, bytes.
    pub original_len: u32,
    /// Packets that belong before this one and are missing, because the reader was too slow.
    pub lost: u64,
    /// The first bytes.
    pub bytes: Vec<u8>,
}

/// What one stage did to one traced packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TraceRecord {
    /// Worker.
    pub worker: u8,
    /// Which of the worker's traced packets, from 1.
    pub packet: u32,
    /// When: nanoseconds since 1970 (UTC).
    pub unix_ns: u64,
    /// Stage.
    pub stage: String,
    /// Interface known at that point.
    pub interface: String,
    /// `next`, `session-hit`, `session-created`, `exempt`, `hairpin`, `held`, `sent`, `punted`, `consumed`,
    /// `handed-over` or `dropped`.
    pub outcome: String,
    /// What belongs to the outcome: drop reason, outgoing interface, session line, other worker; may be empty.
    pub detail: String,
    /// The packet after the stage, as one line.
    pub summary: String,
    /// Length after the stage, bytes.
    pub len: u16,
    /// Its first bytes after the stage, hexadecimal.
    pub bytes: String,
}

/// The running configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConfigText {
    /// The file it came from.
    pub path: String,
    /// Generation: 1 at start, one more after each reload.
    pub generation: u64,
    /// The file's text as it was loaded.
    pub toml: String,
}

/// One difference between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReloadChange {
    /// Which key.
    pub path: String,
    /// What it was.
    pub from: String,
    /// What it is.
    pub to: String,
    /// `in-place`, `re-derived` or `needs-restart`.
    pub effect: String,
    /// What was re-derived, or why a restart is needed; may be empty.
    pub detail: String,
}

/// What a reload did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ReloadReport {
    /// Were the changes applied? A refused reload changes nothing.
    pub applied: bool,
    /// The generation now running.
    pub generation: u64,
    /// The differences.
    pub changes: Vec<ReloadChange>,
    /// Sessions that the change ended.
    pub sessions_ended: u64,
    /// Why it was refused, or warnings; rendered with file and line.
    pub messages: Vec<String>,
}

/// What is running.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// `carrack`.
    pub name: String,
    /// Version.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// The name of this system in config.
    pub system: String,
}

/// Is it well?
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok` or `degraded`.
    pub status: String,
    /// Seconds since start.
    pub uptime_s: u64,
    /// Configuration generation.
    pub generation: u64,
    /// Workers running.
    pub workers: u32,
    /// What is wrong; empty when it is well.
    pub problems: Vec<String>,
}
