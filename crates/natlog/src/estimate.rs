//! How much a NAT instance will log: simulated subscribers go through the engine for a day, and what it tells goes through the
//! encoders and the store's columns. The same every time.

mod crowd;
mod traffic;

use std::sync::Arc;

use carrack_base::{InstanceId, Now, WorkerId};
use carrack_config::SyslogFormat;
use carrack_nat::policy::{Assignment, Capacity, Instance, Logged, NatPolicy};
use carrack_nat::{Direction, Nat, Rng, WorkerGroup};
use carrack_runtime::LoggedEvent;
use carrack_tables::PagePreference;

use crate::clickhouse::Rows;
use crate::context::Context;
use crate::flow::{Emit, Encoder, Stamp, Version};
use crate::kafka::Messages;
use crate::radius::Radius;
use crate::record::Record;
use crate::store::columns;
use crate::syslog::Syslog;
use crowd::elsewhere;
use traffic::Traffic;

/// Sessions a day of a residential subscriber (RFC 7422 §1).
pub const SESSIONS_PER_DAY: u32 = 33_000;
/// Subscribers that are simulated.
const SAMPLE: u32 = 50;
/// Most outside addresses that are simulated: memory for ports is taken for each.
const ADDRESSES_MAX: u32 = 64;
/// Records that are encoded at once, and the fewest that a columnar file is judged by.
const RECORDS_MAX: usize = 1 << 20;
const FILE_RECORDS: usize = 1 << 18;
/// 2026-03-03T00:00:00Z.
const DAY_MS: u64 = 1_772_496_000_000;
const DAY_S: u64 = 86_400;
/// Looks for idle sessions in each simulated second.
const LOOKS: u64 = 4;

/// Where events go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sink {
    /// The store's columnar files.
    Store,
    /// IPFIX messages.
    Ipfix,
    /// NetFlow version 9 messages.
    NetFlow9,
    /// Syslog with structured data.
    SyslogStructured,
    /// Syslog in its compact form.
    SyslogCompact,
    /// RADIUS accounting.
    Radius,
    /// Rows for ClickHouse.
    ClickHouse,
    /// Messages for Kafka, as they are in its batches.
    Kafka,
}

impl Sink {
    /// All, in the order of [`Volume::bytes`].
    pub const ALL: [Self; 8] = [
        Self::Store,
        Self::Ipfix,
        Self::NetFlow9,
        Self::SyslogStructured,
        Self::SyslogCompact,
        Self::Radius,
        Self::ClickHouse,
        Self::Kafka,
    ];

    /// For tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Ipfix => "ipfix",
            Self::NetFlow9 => "netflow9",
            Self::SyslogStructured => "syslog structured",
            Self::SyslogCompact => "syslog compact",
            Self::Radius => "radius",
            Self::ClickHouse => "clickhouse",
            Self::Kafka => "kafka",
        }
    }
}

/// What one subscriber logs in one day.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Volume {
    /// Events.
    pub events: f64,
    /// Bytes in each of [`Sink::ALL`], without the headers of UDP, TCP and TLS.
    pub bytes: [f64; Sink::ALL.len()],
}

/// Simulates a day of the instance, with `sessions_per_day` of each subscriber.
///
/// # Errors
/// When memory for the simulation cannot be had, or a file cannot be encoded.
pub fn estimate(instance: &Instance, context: &Context, sessions_per_day: u32) -> Result<Volume, String> {
    if matches!(instance.assignment, Assignment::Deterministic { .. }) && instance.logged == Logged::Blocks {
        return Ok(Volume::default());
    }
    let context = &alone(context, instance);
    let instance = simulated(instance);
    let mut nat = engine(&instance, sessions_per_day)?;
    let mut traffic = Traffic::new(&instance, SAMPLE, sessions_per_day);
    let mut meter = Meter::new(context);
    let mut flows = Vec::new();
    for second in 0..DAY_S {
        let now = Now::from_s(second + 1);
        flows.clear();
        traffic.second(second, &mut flows);
        for flow in &flows {
            let hash = nat.hash(flow, Direction::Out);
            nat.expect_session(*flow, hash);
            // A refusal is part of the simulation: its events are.
            nat.open_expected(now, |_, _, _| true, |_, _| ());
            nat.settle();
        }
        for look in 0..LOOKS {
            nat.expire(now.plus_ns(look * 1_000_000_000 / LOOKS));
            meter.take(&mut nat, second);
        }
        if meter.records.len() >= RECORDS_MAX {
            meter.encode(context)?;
        }
    }
    meter.finish(context)
}

/// What events mean when this instance is the only one.
fn alone(context: &Context, instance: &Instance) -> Context {
    let mut one = context.clone();
    one.instances = context.instances.get(instance.id.index()).cloned().into_iter().collect();
    for found in &mut one.instances {
        found.block_ports = match instance.assignment {
            Assignment::Blocks { size, .. } => size.into(),
            _ => 0,
        };
    }
    one
}

/// The instance as it is simulated: alone, with a small pool. How ports are computed makes no difference to sessions.
fn simulated(instance: &Instance) -> Instance {
    let mut it = instance.clone();
    it.id = InstanceId(0);
    it.statics = Vec::new();
    if matches!(it.assignment, Assignment::Deterministic { .. }) {
        it.assignment = Assignment::Arbitrary;
    }
    it.pools.truncate(1);
    for pool in &mut it.pools {
        pool.ranges.truncate(1);
        for range in &mut pool.ranges {
            range.last = range.last.min(range.first.saturating_add(ADDRESSES_MAX - 1));
        }
    }
    it
}

fn engine(instance: &Instance, sessions_per_day: u32) -> Result<Nat, String> {
    // Of a busy hour's sessions a tenth is open at a time, or less; four times that is room enough.
    let lines = (SAMPLE * sessions_per_day / 50).next_power_of_two().clamp(4_096, 1 << 20);
    let capacity = Capacity {
        sessions: lines,
        mappings: lines,
        subscribers: 1_024,
        hosts: 1_024,
        fragments: 16,
        held_fragments: 16,
        held_syns: 16,
        controls: 16,
    };
    let policy = Arc::new(NatPolicy { instances: vec![instance.clone()], ..Default::default() });
    let group = WorkerGroup::new(1, [1, 2, 3, 4]);
    Nat::new(WorkerId(0), group, capacity, PagePreference::Small, policy, Now::from_s(0))
        .map_err(|error| format!("no memory for the simulation: {error}"))
}

/// Turns events into bytes and adds them up.
struct Meter {
    context: Context,
    records: Vec<Record>,
    events: u64,
    bytes: [f64; Sink::ALL.len()],
    rng: Rng,
}

impl Meter {
    fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            records: Vec::new(),
            events: 0,
            bytes: [0.0; Sink::ALL.len()],
            rng: Rng::new(7),
        }
    }

    fn take(&mut self, nat: &mut Nat, second: u64) {
        let waiting = nat.events(Now::default());
        let count = waiting.len();
        for event in waiting.iter().map(|news| news.event) {
            let unix_ns = (DAY_MS + second * 1_000 + self.rng.below(1_000) as u64) * 1_000_000;
            let logged = LoggedEvent { sequence: 0, at_ns: 0, unix_ns, worker: WorkerId(0), event };
            self.records.push(Record::of(&logged, &self.context));
        }
        nat.take_events(count);
    }

    /// Measures what has come together and forgets it.
    fn encode(&mut self, context: &Context) -> Result<(), String> {
        self.events += self.records.len() as u64;
        for (bytes, sink) in self.bytes.iter_mut().zip(Sink::ALL) {
            *bytes += match sink {
                Sink::Store => stored(&self.records, context)?,
                Sink::Ipfix => flow(Version::Ipfix, &self.records, context),
                Sink::NetFlow9 => flow(Version::NetFlow9, &self.records, context),
                Sink::SyslogStructured => syslog(SyslogFormat::Structured, &self.records, context),
                Sink::SyslogCompact => syslog(SyslogFormat::Compact, &self.records, context),
                Sink::Radius => radius(&self.records, context),
                Sink::ClickHouse => rows(&self.records, context),
                Sink::Kafka => messages(&self.records, context),
            };
        }
        self.records.clear();
        Ok(())
    }

    fn finish(mut self, context: &Context) -> Result<Volume, String> {
        self.encode(context)?;
        let sample = f64::from(SAMPLE);
        Ok(Volume { events: self.events as f64 / sample, bytes: self.bytes.map(|bytes| bytes / sample) })
    }
}

/// Columnar files are large, so few records are judged as they would be among more of their kind.
fn stored(records: &[Record], context: &Context) -> Result<f64, String> {
    if records.is_empty() {
        return Ok(0.0);
    }
    let copies = FILE_RECORDS.div_ceil(records.len()) as u64;
    let names: Vec<String> = context.instances.iter().map(|instance| instance.name.clone()).collect();
    let mut many = Vec::with_capacity(copies as usize * records.len());
    for copy in 0..copies {
        many.extend(records.iter().map(|record| elsewhere(record, copy)));
    }
    let rows = many.len() as f64;
    let mut bytes = 0;
    for rows in many.chunks(2 * RECORDS_MAX) {
        bytes += columns::write_to(Vec::new(), rows, &names).map_err(|error| error.to_string())?.len();
    }
    Ok(bytes as f64 * records.len() as f64 / rows)
}

fn flow(version: Version, records: &[Record], context: &Context) -> f64 {
    let (mut encoder, mut bytes) = (Encoder::new(version, 1, 1_400), 0);
    let mut emit = |message: &[u8], _| bytes += message.len();
    for record in records {
        let now = Stamp { unix_ms: record.unix_ms, uptime_ms: 0 };
        encoder.event(record, context, now, &mut emit);
    }
    encoder.finish(Stamp::default(), &mut emit);
    bytes as f64
}

fn syslog(format: SyslogFormat, records: &[Record], context: &Context) -> f64 {
    let mut syslog = Syslog::new(16, format, false, "carrack", 32_473);
    emitted(records, |record, emit| syslog.event(record, context, emit))
}

fn radius(records: &[Record], context: &Context) -> f64 {
    let mut radius = Radius::new("carrack");
    emitted(records, |record, emit| radius.event(record, context, emit))
}

fn messages(records: &[Record], context: &Context) -> f64 {
    let mut messages = Messages::new("carrack");
    emitted(records, |record, emit| messages.event(record, context, emit))
}

fn rows(records: &[Record], context: &Context) -> f64 {
    let mut rows = Rows::new("carrack");
    emitted(records, |record, emit| rows.event(record, context, emit))
}

/// Bytes that `write` makes of the records.
fn emitted(records: &[Record], mut write: impl FnMut(&Record, &mut Emit<'_>)) -> f64 {
    let mut bytes = 0;
    for record in records {
        write(record, &mut |message, _| bytes += message.len());
    }
    bytes as f64
}

/// The same instance in every mode, to compare them.
#[must_use]
pub fn modes(instance: &Instance) -> Vec<Instance> {
    let idle_release_s = match instance.assignment {
        Assignment::Blocks { idle_release_s, .. } => idle_release_s,
        _ => 60,
    };
    // So many that nobody is refused in small ones either.
    let per_subscriber_max = 16;
    let with = |assignment, logged| Instance { assignment, logged, ..instance.clone() };
    let blocks = [64, 128, 256, 512, 1_024, 2_048]
        .map(|size| with(Assignment::Blocks { size, per_subscriber_max, idle_release_s }, Logged::Blocks));
    let singles = [Logged::Mappings, Logged::Sessions, Logged::Destinations]
        .map(|logged| with(Assignment::Arbitrary, logged));
    let computed =
        with(Assignment::Deterministic { ports_per_subscriber: 512, overflow: None }, Logged::Blocks);
    std::iter::once(computed).chain(blocks).chain(singles).collect()
}

/// What an instance does, in words.
#[must_use]
pub fn mode(instance: &Instance) -> String {
    let ports = match instance.assignment {
        Assignment::Blocks { size, .. } => format!("blocks of {size}"),
        Assignment::Arbitrary => "arbitrary".into(),
        Assignment::Deterministic { .. } => "deterministic".into(),
    };
    let logged = match instance.logged {
        Logged::Blocks => "",
        Logged::Mappings => ", mappings",
        Logged::Sessions => ", sessions",
        Logged::Destinations => ", destinations",
    };
    format!("{ports}{logged}")
}

#[cfg(test)]
mod tests {
    use carrack_config::{Config, PortFacts};

    use super::*;

    fn volume(ports: &str, log: &str) -> Volume {
        let text = format!(
            "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\n\n[[interface]]\nname = \"b\"\n\
             device = \"mem:b\"\nside = \"outside\"\n\n[[nat]]\nname = \"d\"\nlog = \"{log}\"\nsubscribers = [\"100.64.0.0/20\"]\n\n\
             [nat.ports]\n{ports}\n[[nat.pool]]\nname = \"p\"\naddresses = [\"203.0.112.0/22\"]\n"
        );
        let (config, _) = Config::from_str("test", &text).unwrap();
        let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).unwrap();
        let context = Context::of(&config, &compiled.snapshot);
        estimate(&compiled.snapshot.nat.instances[0], &context, 300).unwrap()
    }

    /// RFC 7422 §1: what each mode is for.
    #[test]
    fn larger_blocks_log_less_and_computed_ports_nothing() {
        let blocks = |size| volume(&format!("mode = \"blocks\"\nblock_size = {size}\n"), "blocks");
        let small = blocks(8);
        let large = blocks(512);
        assert!(small.events > large.events && large.events > 0.0, "{small:?} {large:?}");
        let none = volume("mode = \"deterministic\"\nports_per_subscriber = 512\n", "blocks");
        assert_eq!(none, Volume::default());
        let sessions = volume("mode = \"arbitrary\"\n", "sessions");
        // About two events a session; chance makes it so many sessions this day.
        assert!((480.0..=720.0).contains(&sessions.events), "{sessions:?}");
        let named = volume("mode = \"arbitrary\"\n", "destinations");
        assert!(sessions.events == named.events && sessions.bytes[1] < named.bytes[1], "{named:?}");
    }
}
