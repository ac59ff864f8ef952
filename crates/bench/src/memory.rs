//! What a run needs and what the machine has.

use carrack_nat::policy::{Assignment, Capacity, Instance, NatPolicy};
use carrack_nat::{Extras, Nat, row::MemoryRow};
use carrack_tables::PortMap;
use serde::Serialize;

use crate::forward::BenchError;
use crate::rig::RigSpec;

/// Left for the rest of the machine: at least so much, and this share of all memory.
const RESERVE_BYTES_MIN: u64 = 256 << 20;
const RESERVE_SHARE: u64 = 16;
/// What the bookkeeping of a pool address takes beside its port maps.
const ADDRESS_BYTES: u64 = 512;
/// What a port block takes: its owner, and places in the queues of free, idle and held blocks.
const BLOCK_BYTES: u64 = 48;

/// Bytes that a rig of this size will take.
pub fn needed(spec: &RigSpec) -> u64 {
    of_worker(&spec.instance.instance(), spec.sizes().nat)
}

/// The same of several workers that share the sessions: each has port maps of the whole pool, and a generator that looks
/// its subscribers up.
pub fn needed_by(spec: &RigSpec, workers: u8) -> u64 {
    let more = u64::from(workers.saturating_sub(1));
    let generators = if more == 0 { 0 } else { 4 * u64::from(spec.layout.subscribers) };
    needed(spec) + more * of_pools(&spec.instance.instance()) + generators
}

/// Bytes that a worker with these tables takes of this instance.
fn of_worker(instance: &Instance, tables: Capacity) -> u64 {
    let policy = NatPolicy { instances: vec![instance.clone()], ..NatPolicy::default() };
    let Extras { permissions, hosts, port_control, gateways, held_syns } = Extras::of(tables, &policy);
    let extras = permissions + hosts + port_control + gateways + held_syns;
    (Nat::bytes_for(tables) + extras) as u64 + of_pools(instance)
}

/// Bytes of a worker's port maps, and of what does not grow.
fn of_pools(instance: &Instance) -> u64 {
    let ranges = instance.pools.iter().flat_map(|pool| &pool.ranges);
    let addresses: u64 = ranges.map(|range| range.count()).sum();
    let block = match instance.assignment {
        Assignment::Blocks { size, .. } => size,
        Assignment::Arbitrary | Assignment::Deterministic { .. } => u16::MAX,
    };
    let blocks = addresses * u64::from(65_536 / u32::from(block.max(1)));
    // Single ports are held in this mode only.
    let held = if instance.assignment == Assignment::Arbitrary { instance.port_hold_s } else { 0 };
    addresses * (3 * PortMap::bytes_for(held) as u64 + ADDRESS_BYTES) + blocks * BLOCK_BYTES + (16 << 20)
}

/// Bytes that can be had: what the kernel would give within the control groups' limits, or reserved huge pages. Tables
/// are of one or of the other.
pub fn available() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let reserved = field(&info, "HugePages_Free:") * field(&info, "Hugepagesize:");
    carrack_runtime::available().bytes.max(reserved)
}

/// What stays free of it.
fn reserve() -> u64 {
    (total() / RESERVE_SHARE).max(RESERVE_BYTES_MIN)
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

/// Refuses as many workers with tables of this size as do not fit, each with its generator, which takes `generator_bytes`;
/// `sessions` are those of all.
pub fn check_workers(
    workers: u8,
    instance: Option<&Instance>,
    tables: Capacity,
    (generator_bytes, sessions): (u64, u32),
) -> Result<(), BenchError> {
    let each = instance.map_or(0, |instance| of_worker(instance, tables)) + generator_bytes;
    refuse(each * u64::from(workers), (available(), reserve()), sessions)
}

/// Refuses what does not fit, before anything is taken: the worker or workers of a scenario.
pub fn check(spec: &RigSpec, workers: u8) -> Result<(), BenchError> {
    refuse(needed_by(spec, workers), (available(), reserve()), spec.sessions)
}

/// The same of one worker with what takes so many bytes beside it.
pub fn check_beside(spec: &RigSpec, bytes: u64) -> Result<(), BenchError> {
    refuse(needed(spec) + bytes, (available(), reserve()), spec.sessions)
}

fn refuse(needed: u64, (available, reserve): (u64, u64), sessions: u32) -> Result<(), BenchError> {
    if needed + reserve <= available {
        return Ok(());
    }
    let fit = (f64::from(sessions) * available.saturating_sub(reserve) as f64 / needed as f64) as u64;
    Err(BenchError(format!(
        "{} sessions need {:.1} GB of memory, and {:.1} GB are to be had, of which {:.1} GB stay free. About {} sessions would fit: try --sessions {}",
        carrack_base::text::grouped(u64::from(sessions)),
        needed as f64 / 1e9,
        available as f64 / 1e9,
        reserve as f64 / 1e9,
        carrack_base::text::grouped(fit),
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

/// What sessions take, all workers.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Footprint {
    /// Tables' memory divided by the sessions in them.
    pub bytes_per_session: f64,
    /// The same with the pool's port maps.
    pub bytes_per_session_with_pool: f64,
    /// Tables' memory: sessions, mappings, subscribers, indexes and timers.
    pub memory_bytes: u64,
    /// The same with the pool's port maps and all other tables of the translation.
    pub memory_bytes_with_pool: u64,
}

impl Footprint {
    /// Of one worker, with so many sessions.
    pub fn of(nat: &Nat, sessions: u64) -> Self {
        let all = nat.memory().iter().map(|row| row.bytes).sum();
        Self::new(nat.table_bytes() as u64, all, sessions)
    }

    /// Of several workers, with so many sessions in all.
    pub fn together(all: impl IntoIterator<Item = Self>, sessions: u64) -> Self {
        let (tables, with_pool) = all.into_iter().fold((0, 0), |(tables, with_pool), one| {
            (tables + one.memory_bytes, with_pool + one.memory_bytes_with_pool)
        });
        Self::new(tables, with_pool, sessions)
    }

    fn new(memory_bytes: u64, memory_bytes_with_pool: u64, sessions: u64) -> Self {
        let of_each = |bytes: u64| bytes as f64 / sessions.max(1) as f64;
        Self {
            bytes_per_session: of_each(memory_bytes),
            bytes_per_session_with_pool: of_each(memory_bytes_with_pool),
            memory_bytes,
            memory_bytes_with_pool,
        }
    }
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
    use crate::generator::Translation;
    use crate::layout::Layout;
    use crate::world::{InstanceSpec, Mode};

    #[test]
    fn what_does_not_fit_is_refused_with_what_is_needed_and_what_there_is() {
        assert!(refuse(8_000_000_000, (9_000_000_000, 1_000_000_000), 1).is_ok());
        // What would leave less than the reserve does not fit.
        assert!(refuse(8_000_000_001, (9_000_000_000, 1_000_000_000), 1).is_err());
        let error = refuse(10_000_000_000, (6_000_000_000, 300_000_000), 100_000_000).unwrap_err().0;
        assert!(error.contains("100,000,000 sessions need 10.0 GB of memory, and 6.0 GB"), "{error}");
        assert!(error.contains("0.3 GB stay free") && error.contains("--sessions 57000000"), "{error}");
    }

    #[test]
    fn every_worker_has_the_port_maps_of_the_whole_pool_and_its_generator_counts() {
        let layout = Layout::for_sessions(1_000_000, 16, 1);
        let instance = InstanceSpec {
            translation: Translation::Nat64,
            mode: Mode::Pba,
            subscribers: layout.subscribers,
            ports: layout.ports,
            block: 256,
            udp_s: 300,
            hold_s: 0,
            logged: Default::default(),
        };
        let spec = RigSpec { instance, layout, sessions: 1_000_000, frame_bytes: 80, tagged: false };
        let said = [1, 2, 4].map(|workers| needed_by(&spec, workers));
        let pool = of_pools(&spec.instance.instance());
        assert!(pool > 372 * 3 * 8_192, "{pool}");
        assert_eq!((said[1] - said[0], said[2] - said[1]), (pool + 4 * 62_500, 2 * pool));
        // What a NAT64 needs beside the tables of every NAT is counted.
        let hosts = said[0] - pool - Nat::bytes_for(spec.sizes().nat) as u64;
        assert!(hosts > 62_500 * 32, "{hosts}");
    }

    #[test]
    fn lines_of_proc_are_read_in_their_unit() {
        let text = "MemTotal:       24684092 kB\nHugePages_Free:        3\n";
        assert_eq!((field(text, "MemTotal:"), field(text, "HugePages_Free:")), (24_684_092 * 1_024, 3));
        assert_eq!(field(text, "Nothing:"), 0);
    }
}
