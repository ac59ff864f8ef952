//! What a run will take of the machine's memory, told before anything is taken, and refused when it is not there.

mod machine;
#[cfg(test)]
mod tests;

use carrack_config::{Compiled, Config, Diagnostic, HugePages, Severity};
use carrack_frame::DEFAULT_HEADROOM_BYTES;
use carrack_nat::policy::{Assignment, Instance};
use carrack_nat::{Extras, Nat};
use carrack_pipeline::budget::SmallTables;
use carrack_tables::PortMap;

pub(crate) use machine::socket_of_core;
pub use machine::{Available, available};

use crate::open::huge_pages;

/// What the bookkeeping of a pool address takes beside its port maps.
const ADDRESS_BYTES: u64 = 512;
/// What a port block takes: its owner, and places in the queues of free, idle and held blocks.
const BLOCK_BYTES: u64 = 48;
/// What a worker takes beside tables and ports: rings and stack.
const WORKER_BYTES: u64 = 16 << 20;
/// Memory from which on an arena is whole huge pages.
const WHOLE_PAGE: u64 = 2 << 20;
const MIB: u64 = 1 << 20;

/// Tables that a key of the configuration sizes, at one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// What they are, for people.
    pub name: &'static str,
    /// The key, for people who want less of them.
    pub key: &'static str,
    /// Bytes.
    pub bytes: u64,
}

/// Bytes that a run reserves at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Workers; each takes the same.
    pub workers: u64,
    /// Session, mapping and subscriber tables of one worker.
    pub tables: u64,
    /// Port maps and blocks of one worker.
    pub ports: u64,
    /// Its other tables; those that the configuration has no need of take nothing.
    pub others: [Part; 8],
    /// Its rings and stack.
    pub rest: u64,
    /// Packet buffers of all together.
    pub packets: u64,
    through_dpdk: bool,
    huge_pages: HugePages,
}

impl Budget {
    /// Of a config.
    #[must_use]
    pub fn of(config: &Config, compiled: &Compiled) -> Self {
        let (memory, instances) = (&config.memory, &compiled.snapshot.nat.instances);
        let through_dpdk = config.devices().any(|(_, spec)| spec.needs_dpdk());
        let frame = u64::from(memory.frame_bytes) + DEFAULT_HEADROOM_BYTES as u64;
        Self {
            workers: u64::from(config.workers.count),
            tables: Nat::bytes_for(compiled.sizes.nat) as u64,
            ports: instances.iter().map(ports_of).sum(),
            others: others_of(compiled),
            rest: WORKER_BYTES,
            packets: if through_dpdk {
                u64::from(memory.dpdk_mb) * MIB
            } else {
                u64::from(memory.frames) * frame
            },
            through_dpdk,
            huge_pages: memory.huge_pages,
        }
    }

    /// Bytes of one worker.
    #[must_use]
    pub fn per_worker(&self) -> u64 {
        self.tables + self.ports + self.beside()
    }

    /// Bytes of one worker's other tables, rings and stack.
    #[must_use]
    pub fn beside(&self) -> u64 {
        self.rest + self.others.iter().map(|part| part.bytes).sum::<u64>()
    }

    /// Bytes in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.workers * self.per_worker() + self.packets
    }

    /// The budget in sentences: a worker's, then all.
    #[must_use]
    pub fn lines(&self) -> [String; 2] {
        // What is little is not worth a word of its own.
        let large = self.others.iter().filter(|part| part.bytes >= MIB);
        let named: String =
            large.clone().map(|part| format!("{} {:.1}, ", part.name, mib(part.bytes))).collect();
        let rest = self.beside() - large.map(|part| part.bytes).sum::<u64>();
        let [tables, ports, rest, packets] = [self.tables, self.ports, rest, self.packets].map(mib);
        [
            format!(
                "Memory budget of {}: {:.1} MiB (tables {tables:.1}, ports {ports:.1}, {named}rings and \
                 small tables {rest:.1}).",
                if self.workers == 1 {
                    "the worker".into()
                } else {
                    format!("each of {} workers", self.workers)
                },
                mib(self.per_worker())
            ),
            format!(
                "Memory budget in all: {:.1} MiB, of which packet buffers {packets:.1}.",
                mib(self.total())
            ),
        ]
    }

    /// Bytes that must come from ordinary pages when so many MiB of huge pages are free.
    fn ordinary(&self, free_huge_mib: u64) -> u64 {
        let mut free = if self.huge_pages == HugePages::Off { 0 } else { free_huge_mib * MIB };
        // With one size of huge page asked for, nothing else is taken: its own refusal counts those pages.
        let only = matches!(self.huge_pages, HugePages::OneG | HugePages::TwoM);
        let mut ordinary = |bytes: u64, only: bool| {
            if only || bytes <= free {
                free = free.saturating_sub(bytes);
                0
            } else {
                bytes
            }
        };
        let packets = if self.through_dpdk { ordinary(self.packets, only) } else { self.packets };
        let tables: u64 = (0..self.workers).map(|_| ordinary(self.tables, only)).sum();
        // These take what is left, of whatever size.
        let every = (0..self.workers).flat_map(|_| &self.others);
        let others: u64 = every.map(|part| ordinary(part.bytes, false)).sum();
        packets + tables + others + self.workers * (self.ports + self.rest)
    }

    /// Refuses what does not fit into what the machine has, reserved huge pages included.
    ///
    /// # Errors
    /// A sentence: how much is needed, how much there is and by whose word, and what to lower.
    pub fn require(&self, available: &Available) -> Result<(), String> {
        self.fits(available, huge_pages::free_mib())
    }

    /// A warning at `[memory]` where [`Budget::require`] would refuse, of a file that may be meant for another machine.
    #[must_use]
    pub fn warn(&self, config: &Config, available: &Available) -> Option<Diagnostic> {
        let lacking = self.lacking(available, huge_pages::free_mib())?;
        let message = format!(
            "{lacking}: a daemon does not start here with it, beside what runs now; is the file for another machine? If not, {}",
            self.advice()
        );
        Some(config.about(Severity::Warning, &config.memory, message))
    }

    fn fits(&self, available: &Available, free_huge_mib: u64) -> Result<(), String> {
        match self.lacking(available, free_huge_mib) {
            None => Ok(()),
            Some(lacking) => Err(format!(
                "{lacking}; {}, reserve huge pages, or give the machine more memory",
                self.advice()
            )),
        }
    }

    /// How much is needed, and how much there is; `None` when that is enough.
    fn lacking(&self, available: &Available, free_huge_mib: u64) -> Option<String> {
        let needed = self.ordinary(free_huge_mib);
        (needed > available.bytes).then(|| {
            format!(
                "this configuration needs {:.1} MiB of ordinary memory, and {:.1} MiB are available ({})",
                mib(needed),
                mib(available.bytes),
                available.by
            )
        })
    }

    /// What to lower: the largest part.
    fn advice(&self) -> String {
        let of_all = |bytes: u64, words: String| (self.workers * bytes, words);
        let frames = if self.through_dpdk { "lower memory.dpdk_mb" } else { "lower memory.frames" };
        let parts = [
            of_all(self.tables, "lower memory.sessions and memory.mappings".into()),
            of_all(
                self.ports,
                "take addresses out of the pools (nat.pool.addresses), or lower workers.count".into(),
            ),
            (self.packets, frames.into()),
        ];
        let others = self.others.iter().map(|Part { name, key, bytes }| {
            let words = format!("lower {key} ({name} take {:.1} MiB)", mib(self.workers * bytes));
            of_all(*bytes, words)
        });
        let largest = others.chain(parts).max_by_key(|(bytes, _)| *bytes);
        largest.map(|(_, words)| words).unwrap_or_default()
    }
}

/// Tables beside those of sessions, mappings, subscribers and ports, at one worker.
fn others_of(compiled: &Compiled) -> [Part; 8] {
    let Extras { permissions, hosts, port_control, gateways, held_syns } =
        Extras::of(compiled.sizes.nat, &compiled.snapshot.nat);
    let SmallTables { fragments, held_fragments, neighbours } = SmallTables::of(compiled.sizes);
    [
        ("hosts", "memory.hosts", hosts),
        ("permissions", "memory.sessions", permissions),
        ("ports asked for", "memory.mappings", port_control),
        ("gateways", "memory.gateway_connections", gateways),
        ("held SYNs", "memory.held_syns", held_syns),
        ("fragments", "memory.fragments", fragments),
        ("held fragments", "memory.held_fragments", held_fragments),
        ("neighbours", "memory.neighbours", neighbours),
    ]
    .map(|(name, key, bytes)| Part { name, key, bytes: whole_pages(bytes as u64) })
}

/// What an arena of so many bytes takes: whole pages, huge ones when it is large.
const fn whole_pages(bytes: u64) -> u64 {
    if bytes < WHOLE_PAGE / 2 { bytes } else { bytes.next_multiple_of(WHOLE_PAGE) }
}

/// Port maps and blocks of an instance, at one worker.
fn ports_of(instance: &Instance) -> u64 {
    // Room for held ports, also where a reload would only then give them a hold time.
    let hold = if instance.assignment == Assignment::Arbitrary { instance.port_hold_s.max(1) } else { 0 };
    let address = 3 * PortMap::bytes_for(hold) as u64 + ADDRESS_BYTES;
    let of_pool = |pool: &carrack_nat::policy::Pool| {
        let cut = match instance.assignment {
            Assignment::Deterministic { overflow: Some(overflow), .. } => u64::from(overflow.ports),
            _ => u64::from(pool.port_last.saturating_sub(pool.port_first)) + 1,
        };
        let blocks = instance.assignment.blocks().map_or(0, |rules| cut / u64::from(rules.size.max(1)));
        let addresses: u64 = pool.ranges.iter().map(|range| range.count()).sum();
        addresses * (address + blocks * BLOCK_BYTES)
    };
    instance.pools.iter().map(of_pool).sum()
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB as f64
}
