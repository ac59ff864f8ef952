//! From a config file to running threads, and from a changed file to changed threads.

#[cfg(test)]
mod tests;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use carrack_base::{Now, WorkerId};
use carrack_config::keys::Effect;
use carrack_config::{
    Change, Compiled, Config, ConfigError, Idle as ConfigIdle, PortFacts, Severity, Warning,
};
use carrack_frame::MemPool;
use carrack_io::MemPeer;
use carrack_nat::row::MemoryRow;
use carrack_nat::{Change as NatChange, WorkerGroup};
use carrack_pipeline::snapshot::{Snapshot, WorkerSizes};
use carrack_pipeline::{Handover, Plan, Worker, WorkerMail};
use carrack_tables::{Near, PagePreference, Until};

use crate::event_log::EventSink;
use crate::handle::Handle;
use crate::launch::{Setup, StartError, Threads, WorkerSetup, launch};
use crate::lock::RunLock;
use crate::mail::{MeshEnds, WorkerEnds, mesh};
use crate::memory::{self, Available, Budget};
use crate::open::{self, Keep};
use crate::plane::STATS_WORDS;
use crate::port_control::PortControlSetup;
use crate::processors::UsableCpus;
use crate::request::{InForce, Request, RequestError};
use crate::shared::{EndReason, lock};
use crate::starting::Starting;
use crate::worker_loop::Idle;

/// Packets on their way from one worker to another.
const HANDOVERS: usize = 2_048;
/// Longest wait for a reload. The control thread itself answers much sooner when a worker stands still.
const RELOAD: Duration = Duration::from_secs(3_600);

/// What the one who starts the daemon decides.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// End once all input files are read and nothing moves any more.
    pub exit_when_idle: bool,
    /// Repeat DPDK's own log.
    pub verbose_dpdk: bool,
    /// Ordinary memory that may be counted on, bytes; `None`: what the machine has.
    pub memory_available: Option<u64>,
    /// Ends the start from another thread.
    pub starting: Starting,
}

/// A running daemon. Dropping it ends it: threads first, then ports, then interfaces are set back.
pub struct Runtime {
    threads: Threads,
    keep: Keep,
    notices: Vec<String>,
    warnings: Vec<Warning>,
}

/// What the daemon was told to be, for the next reload.
pub(crate) struct Desired {
    path: PathBuf,
    config: Config,
    compiled: Compiled,
    facts: Vec<PortFacts>,
    making: Making,
}

/// What the workers' tables are made with.
struct Making {
    group: Arc<WorkerGroup>,
    sizes: WorkerSizes,
    pages: PagePreference,
}

impl Making {
    /// What every worker needs for a change of policy, reserved in this thread, near that worker.
    fn changes(
        &self,
        config: &Config,
        old: &Snapshot,
        new: &Snapshot,
    ) -> Result<Vec<Box<NatChange>>, RequestError> {
        let workers = (0..self.group.workers()).map(WorkerId);
        let change = |worker| {
            let _near = Near::node(node_of(config, worker));
            NatChange::prepare(worker, &self.group, self.sizes.nat, self.pages, &old.nat, new.nat.clone())
        };
        workers.map(change).collect::<Result<_, _>>().map_err(|error| {
            RequestError::Refused(format!(
                "{error}; nothing is changed: free memory, or ask for smaller pools"
            ))
        })
    }
}

/// What a reload did.
#[derive(Debug, Clone, PartialEq)]
pub struct ReloadReport {
    /// Snapshot in force now.
    pub generation: u64,
    /// Every difference, and what it did. Empty when nothing changed.
    pub changes: Vec<Change>,
    /// What is questionable about the new config.
    pub warnings: Vec<Warning>,
    /// Sessions that the change ended.
    pub sessions_ended: u64,
    /// Time until the last worker forwarded by it.
    pub took: Duration,
}

/// Why a reload changed nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum ReloadError {
    /// The config is wrong: everything that is, with places.
    Config(Vec<ConfigError>),
    /// These changes cannot be made while running.
    NeedsRestart(Vec<Change>),
    /// The daemon could not do it.
    Request(RequestError),
}

impl std::fmt::Display for ReloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&errors.join("\n"))
            }
            Self::NeedsRestart(changes) => {
                f.write_str("nothing was changed: restart the daemon for these, or take them back:")?;
                changes.iter().try_for_each(|change| write!(f, "\n  {change}"))
            }
            Self::Request(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReloadError {}

impl Runtime {
    /// Starts a daemon as the file at `path` says.
    ///
    /// # Errors
    /// [`StartError`]; then everything is as it was before.
    pub fn start(path: &Path, options: RunOptions) -> Result<Self, StartError> {
        let (config, warnings) = Config::from_file(path).map_err(StartError::Config)?;
        Self::start_config(path, config, warnings, options, None)
    }

    /// Starts a daemon with a config already read; `path` is where a reload without a path looks, `sink` gets all NAT
    /// events.
    ///
    /// # Errors
    /// As [`Runtime::start`].
    pub fn start_config(
        path: &Path,
        config: Config,
        warnings: Vec<Warning>,
        options: RunOptions,
        sink: Option<Box<dyn EventSink>>,
    ) -> Result<Self, StartError> {
        let starting = options.starting.clone();
        let started = Self::start_unless_ended(path, config, warnings, options, sink);
        // Whatever failed then: it was not let finish.
        let is_over = |error| if starting.is_over() { StartError::Ended } else { error };
        started.and_then(|runtime| starting.check().map(|()| runtime)).map_err(is_over)
    }

    fn start_unless_ended(
        path: &Path,
        config: Config,
        warnings: Vec<Warning>,
        options: RunOptions,
        sink: Option<Box<dyn EventSink>>,
    ) -> Result<Self, StartError> {
        refuse_missing_cpus(&config)?;
        let mut notices = budget(&config, options.memory_available)?;
        let told = notices.len();
        let lock = RunLock::take(&config.system.run_dir).map_err(|error| StartError::Failed(error.0))?;
        if let Some(pid) = lock.dead_predecessor() {
            notices.push(format!(
                "Process {pid} held the run directory and died; what it left behind is tidied up."
            ));
        }
        let starting = options.starting;
        let group = WorkerGroup::new(config.workers.count, seed()?);
        let mut open = open::open(&config, group.steering(), options.verbose_dpdk, lock, &starting)?;
        notices.append(&mut open.notices);
        let compiled = carrack_config::compile(&config, &open.facts, None).map_err(StartError::Config)?;
        starting.check()?;
        let pools = std::mem::take(&mut open.pools);
        let cores = &config.workers.cores;
        let workers = pools.into_iter().enumerate().map(|(index, pool)| WorkerSetup {
            core: cores.get(index).map(|core| usize::from(core.value)),
            pool,
        });
        let plan = Arc::new(Plan::new(Arc::new(compiled.snapshot.clone())));
        let setup = Setup {
            plan: Arc::clone(&plan),
            host: compiled.host.clone(),
            port_control: PortControlSetup {
                config: compiled.port_control.clone(),
                state_file: config.port_control.state_file.clone(),
            },
            ports: open.ports,
            workers: workers.collect(),
            control_cores: config.workers.control_cores.iter().map(|core| usize::from(core.value)).collect(),
            idle: idle_of(config.workers.idle),
            burst: usize::from(config.workers.burst),
            input: open.input,
            exit_when_idle: options.exit_when_idle,
            thread_hook: open.thread_hook,
            sink,
        };
        let making = Making { group, sizes: compiled.sizes, pages: open::page_preference(&config) };
        let mut threads = launch(setup, STATS_WORDS, builder(&making, plan, starting))?;
        let facts = open.facts;
        let desired = Desired { path: path.to_owned(), config, compiled, facts, making };
        threads.handle.desired = Some(Arc::new(Mutex::new(desired)));
        notices.extend(memory_budget(&threads.handle));
        for warning in memory_elsewhere(&threads.handle) {
            tracing::warn!("{warning}");
        }
        for notice in notices.iter().skip(told) {
            tracing::info!("{notice}");
        }
        Ok(Self { threads, keep: open.keep, notices, warnings })
    }

    /// A door for management.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.threads.handle.clone()
    }

    /// What was found and changed at the start, one sentence each: offloads, pages, memory.
    #[must_use]
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// What is questionable about the config.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The other end of the port `mem:NAME`, once.
    pub fn mem_peer(&mut self, name: &str) -> Option<MemPeer> {
        self.keep.mem_peers.remove(name)
    }

    /// A handle to the pool that all frames of in-process ports come from; `None` in a run through DPDK.
    #[must_use]
    pub fn mem_pool(&self) -> Option<MemPool> {
        self.keep.mem_pool.as_ref().map(|pool| pool.handle(0))
    }

    /// Waits until the daemon ends, for whatever reason.
    #[must_use]
    pub fn wait(&self) -> EndReason {
        loop {
            if let Some(reason) = self.threads.handle.wait(Duration::from_secs(3_600)) {
                return reason;
            }
        }
    }

    /// Ends the daemon: joins all threads, closes ports, sets interfaces back, flushes files.
    pub fn stop(mut self) {
        self.threads.stop();
    }
}

impl Handle {
    /// Reads the config again, from `path` or from where it came, and applies what changed.
    ///
    /// # Errors
    /// [`ReloadError`]; then nothing is changed.
    pub fn reload(&self, path: Option<&Path>) -> Result<ReloadReport, ReloadError> {
        let began = Instant::now();
        let desired = self.desired.as_ref().ok_or(ReloadError::Request(RequestError::Stopped))?;
        let mut desired = lock(desired);
        let path = path.unwrap_or(&desired.path).to_owned();
        let (config, warnings) = Config::from_file(&path).map_err(ReloadError::Config)?;
        let changes = carrack_config::diff(&desired.config, &config);
        let blocking: Vec<Change> =
            changes.iter().filter(|change| change.effect == Effect::NeedsRestart).cloned().collect();
        if !blocking.is_empty() {
            return Err(ReloadError::NeedsRestart(blocking));
        }
        if changes.is_empty() {
            // Another order or comment: nothing for the workers, but the text shown is the new one.
            let generation = desired.compiled.snapshot.generation;
            (desired.config, desired.path) = (config, path);
            return Ok(ReloadReport {
                generation,
                changes,
                warnings,
                sessions_ended: 0,
                took: began.elapsed(),
            });
        }
        let compiled = carrack_config::compile(&config, &desired.facts, Some(&desired.compiled))
            .map_err(ReloadError::Config)?;
        let generation = compiled.snapshot.generation;
        let plan = Arc::new(Plan::new(Arc::new(compiled.snapshot.clone())));
        let new = Box::new(InForce {
            plan,
            host: compiled.host.clone(),
            port_control: compiled.port_control.clone(),
        });
        let prepared =
            desired.making.changes(&desired.config, &desired.compiled.snapshot, &compiled.snapshot);
        let prepared = prepared.map_err(ReloadError::Request)?;
        let applied = self.ask_within(RELOAD, |reply| Request::Apply { new, changes: prepared, reply });
        // A worker that only changes over late works by the new config all the same.
        if applied.is_ok() || matches!(applied, Err(RequestError::Timeout(_))) {
            (desired.config, desired.compiled, desired.path) = (config, compiled, path);
        }
        let sessions_ended = applied.map_err(ReloadError::Request)?.sessions_ended;
        Ok(ReloadReport { generation, changes, warnings, sessions_ended, took: began.elapsed() })
    }

    /// The config in force: where it came from, and its text.
    #[must_use]
    pub fn config(&self) -> Option<(PathBuf, String)> {
        let desired = lock(self.desired.as_ref()?);
        Some((desired.path.clone(), desired.config.text().to_owned()))
    }

    /// The config in force, as it was read.
    #[must_use]
    pub fn desired_config(&self) -> Option<Config> {
        Some(lock(self.desired.as_ref()?).config.clone())
    }

    /// The NUMA socket whose memory a worker is to use: that of its processor, 0 when it has none of its own.
    #[must_use]
    pub fn socket(&self, worker: WorkerId) -> u32 {
        self.desired.as_ref().and_then(|desired| node_of(&lock(desired).config, worker)).unwrap_or(0)
    }

    /// Generation of the snapshot in force: 1 at the start, one more with each reload that changed something.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.snapshot().generation
    }
}

/// The NUMA node of the processor a worker is pinned to, if it is.
fn node_of(config: &Config, worker: WorkerId) -> Option<u32> {
    let core = config.workers.cores.get(usize::from(worker.0))?;
    Some(memory::socket_of_core(usize::from(core.value)))
}

/// What makes a worker in its own thread, unless the start is ended meanwhile.
fn builder(
    making: &Making,
    plan: Arc<Plan>,
    starting: Starting,
) -> impl Fn(usize, WorkerEnds, Now) -> Result<Worker, String> + Send + Sync + 'static {
    let (group, sizes, pages) = (Arc::clone(&making.group), making.sizes, making.pages);
    let count = group.workers();
    let handovers: Mutex<Vec<Option<MeshEnds<Handover>>>> =
        Mutex::new(mesh(usize::from(count), HANDOVERS).into_iter().map(Some).collect());
    move |index: usize, ends: WorkerEnds, now: Now| {
        // Large tables take their time.
        let _until = Until::set(starting.flag());
        let taken = lock(&handovers).get_mut(index).and_then(Option::take);
        let MeshEnds { incoming: hand_in, outgoing: hand_out } = taken.ok_or("started twice")?;
        let WorkerEnds { commands, events, nat_events, punts, host_tx } = ends;
        let mail = WorkerMail { commands, events, nat_events, punts, host_tx, hand_in, hand_out };
        Worker::new(WorkerId(index as u8), Arc::clone(&group), Arc::clone(&plan), sizes, pages, mail, now)
            // It says itself what to do.
            .map_err(|error| error.to_string())
    }
}

/// Secret numbers that hashes and port choice are keyed by (RFC 6056 §3.3.3).
fn seed() -> Result<[u64; 4], StartError> {
    let mut bytes = [[0u8; 8]; 4];
    let read = std::fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(bytes.as_flattened_mut()));
    read.map_err(|error| {
        StartError::Failed(format!(
            "cannot read random numbers from /dev/urandom: {error}; give the daemon access"
        ))
    })?;
    Ok(bytes.map(u64::from_ne_bytes))
}

fn idle_of(idle: ConfigIdle) -> Idle {
    match idle {
        ConfigIdle::Sleep => Idle::Sleep,
        ConfigIdle::Poll => Idle::Poll,
    }
}

/// Refuses processors that the machine does not have or this process may not use, before anything is touched.
///
/// # Errors
/// Each of them, at its place.
pub fn refuse_missing_cpus(config: &Config) -> Result<(), StartError> {
    let usable = UsableCpus::here();
    let missing = usable.map_or_else(Vec::new, |usable| usable.missing(config, Severity::Error));
    if missing.is_empty() { Ok(()) } else { Err(StartError::Config(missing)) }
}

/// Tells what memory the run will take, and refuses it when that is not to be had; nothing is touched yet.
fn budget(config: &Config, available: Option<u64>) -> Result<Vec<String>, StartError> {
    // What only the real ports can tell is told when they are open.
    let Ok(compiled) = carrack_config::compile(config, &PortFacts::assumed(config), None) else {
        return Ok(Vec::new());
    };
    let budget = Budget::of(config, &compiled);
    let lines = budget.lines();
    for line in &lines {
        tracing::info!("{line}");
    }
    let available = available.map_or_else(memory::available, |bytes| Available {
        bytes,
        by: "as the caller of the daemon says".into(),
    });
    budget.require(&available).map_err(StartError::Failed)?;
    Ok(lines.into())
}

/// One line a table: how much of what, all workers together.
fn memory_budget(handle: &Handle) -> Vec<String> {
    let Ok(rows) = handle.memory() else { return Vec::new() };
    let mut tables: Vec<(&str, &str, u64, u64)> = Vec::new();
    for (_, row) in rows {
        match tables.iter_mut().find(|(table, pages, ..)| *table == row.table && *pages == row.pages) {
            Some((_, _, total, bytes)) => {
                *total += row.total;
                *bytes += row.bytes;
            }
            None => tables.push((row.table, row.pages, row.total, row.bytes)),
        }
    }
    let all: u64 = tables.iter().map(|(_, _, _, bytes)| bytes).sum();
    let line = |(table, pages, total, bytes): (&str, &str, u64, u64)| {
        format!("Memory of {table}: room for {total}, {:.1} MiB in {pages} pages.", mib(bytes))
    };
    let mut lines: Vec<String> = tables.into_iter().map(line).collect();
    lines.push(format!("Memory of all tables: {:.1} MiB.", mib(all)));
    lines
}

/// One line a worker whose memory is not all on the node of its processor, and one where huge pages ran out: the rows say where
/// memory is.
fn memory_elsewhere(handle: &Handle) -> Vec<String> {
    let desired = handle.desired.as_ref().map(|desired| lock(desired).config.clone());
    let (Some(config), Ok(rows)) = (desired, handle.memory()) else { return Vec::new() };
    let elsewhere = |worker: WorkerId| {
        let near = node_of(&config, worker)?;
        told_elsewhere(worker, near, rows.iter().filter(|(of, _)| *of == worker).map(|(_, row)| row))
    };
    let of_workers = (0..config.workers.count).map(WorkerId).filter_map(elsewhere);
    of_workers.chain(told_short(rows.iter().map(|(_, row)| row))).collect()
}

fn told_elsewhere<'a>(
    worker: WorkerId,
    near: u32,
    rows: impl Iterator<Item = &'a MemoryRow>,
) -> Option<String> {
    let other = rows.filter_map(|row| Some((row.table, row.node.filter(|node| *node != near)?)));
    let tables: Vec<String> = other.map(|(table, node)| format!("{table} on node {node}")).collect();
    (!tables.is_empty()).then(|| {
        format!(
            "worker {} runs on NUMA node {near}, and not all of its memory is there ({}): every packet pays for the way; \
             free memory or reserve huge pages on node {near}, or choose other processors in workers.cores",
            worker.0,
            tables.join(", ")
        )
    })
}

/// Tables that found no reserved huge page though others did: packets pay for them without a word.
fn told_short<'a>(rows: impl Iterator<Item = &'a MemoryRow> + Clone) -> Option<String> {
    // What is smaller would waste a page.
    const WORTH_A_PAGE: u64 = 2 << 20;
    let is_reserved = |row: &MemoryRow| matches!(row.pages, "1G" | "2M");
    let without = rows.clone().filter(|row| !is_reserved(row) && row.bytes >= WORTH_A_PAGE);
    let pages: u64 = without.clone().map(|row| row.bytes.div_ceil(2 << 20)).sum();
    let mut tables: Vec<&str> = without.map(|row| row.table).collect();
    tables.sort_unstable();
    tables.dedup();
    (rows.clone().any(is_reserved) && !tables.is_empty()).then(|| {
        format!(
            "not enough huge pages are reserved: {} have none; about {pages} more of 2 MiB would do (vm.nr_hugepages), or none at \
             all with memory.huge_pages = \"off\"",
            tables.join(", ")
        )
    })
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
