//! What a run needs and what the machine has.

use carrack_nat::policy::{Assignment, Capacity, Instance};
use carrack_nat::{Nat, row::MemoryRow};
use carrack_tables::PortMap;
use serde::Serialize;

use crate::forward::BenchError;
use crate::rig::RigSpec;

/// Left for the rest of the machine.
const RESERVE_BYTES: u64 = 256 << 20;
/// What the bookkeeping of a pool address takes beside its port maps.
const ADDRESS_BYTES: u64 = 512;
/// What a port block takes: its owner, and places in the queues of free, idle and held blocks.
const BLOCK_BYTES: u64 = 48;

/// Bytes that a rig of this size will take.
pub fn needed(spec: &RigSpec) -> u64 {
    of_worker(&spec.instance.instance(), spec.sizes().nat)
}

/// Bytes that a worker with these tables takes of this instance.
fn of_worker(instance: &Instance, tables: Capacity) -> u64 {
    let ranges = instance.pools.iter().flat_map(|pool| &pool.ranges);
    let addresses: u64 = ranges.map(|range| range.count()).sum();
    let block = match instance.assignment {
        Assignment::Blocks { size, .. } => size,
        Assignment::Arbitrary | Assignment::Deterministic { .. } => u16::MAX,
    };
    let blocks = addresses * u64::from(65_536 / u32::from(block.max(1)));
    // Single ports are held in this mode only.
    let held = if instance.assignment == Assignment::Arbitrary { instance.port_hold_s } else { 0 };
    Nat::bytes_for(tables) as u64
        + addresses * (3 * PortMap::bytes_for(held) as u64 + ADDRESS_BYTES)
        + blocks * BLOCK_BYTES
        + (16 << 20)
}

/// Bytes that can be had: what the kernel would give within the control groups' limits, and reserved huge pages.
pub fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let reserved = field(&info, "HugePages_Free:") * field(&info, "Hugepagesize:");
    carrack_runtime::available().bytes.saturating_add(reserved)
}

/// All of the machine's memory, bytes.
pub fn total() -> u64 {
    field(&std::fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemTotal:")
}

/// Bytes of this process that are resident, huge pages included.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, "VmRSS:") + field(&status, "HugetlbPages:")
}

/// Refuses as many workers with tables of this size as do not fit; `sessions` are those of all.
pub fn check_workers(
    workers: u8,
    instance: Option<&Instance>,
    tables: Capacity,
    sessions: u32,
) -> Result<(), BenchError> {
    let each = instance.map_or(0, |instance| of_worker(instance, tables));
    refuse(each * u64::from(workers), available(), sessions)
}

/// Refuses what does not fit, before anything is taken.
pub fn check(spec: &RigSpec) -> Result<(), BenchError> {
    refuse(needed(spec), available(), spec.sessions)
}

fn refuse(needed: u64, available: u64, sessions: u32) -> Result<(), BenchError> {
    if needed + RESERVE_BYTES <= available {
        return Ok(());
    }
    let fit = (f64::from(sessions) * available.saturating_sub(RESERVE_BYTES) as f64 / needed as f64) as u64;
    Err(BenchError(format!(
        "{} sessions need {:.1} GB of memory, and {:.1} GB are to be had. About {} sessions would fit: try --sessions {}",
        crate::report::grouped(u64::from(sessions)),
        needed as f64 / 1e9,
        available as f64 / 1e9,
        crate::report::grouped(fit),
        fit / 100_000 * 100_000,
    )))
}

/// The value of a line of /proc in bytes when it is in kB, else as it is.
fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
    let mut words = line.split_whitespace();
    let value: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    if words.next() == Some("kB") { value * 1_024 } else { value }
}

/// One table, for reports.
#[derive(Debug, Clone, Serialize)]
pub struct TableMemory {
    /// Which.
    pub table: &'static str,
    /// Lines or entries it can hold.
    pub total: u64,
    /// In use.
    pub used: u64,
    /// Bytes reserved.
    pub bytes: u64,
    /// The same, of each session.
    pub bytes_per_session: f64,
    /// Pages behind it: `1G`, `2M`, `thp`, `4K`.
    pub pages: &'static str,
}

impl TableMemory {
    /// Of a table, with so many sessions in all.
    pub fn of(row: &MemoryRow, sessions: u64) -> Self {
        Self {
            table: row.table,
            total: row.total,
            used: row.used,
            bytes: row.bytes,
            bytes_per_session: row.bytes as f64 / sessions.max(1) as f64,
            pages: row.pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_what_is_needed_and_what_there_is() {
        assert!(refuse(8_000_000_000, 9_000_000_000, 1).is_ok());
        let error = refuse(10_000_000_000, 6_000_000_000, 100_000_000).unwrap_err().0;
        assert!(error.contains("100 000 000 sessions need 10.0 GB of memory, and 6.0 GB"), "{error}");
        assert!(error.contains("--sessions 57300000"), "{error}");
    }

    #[test]
    fn lines_of_proc_are_read_in_their_unit() {
        let text = "MemTotal:       24684092 kB\nHugePages_Free:        3\n";
        assert_eq!((field(text, "MemTotal:"), field(text, "HugePages_Free:")), (24_684_092 * 1_024, 3));
        assert_eq!(field(text, "Nothing:"), 0);
    }
}
