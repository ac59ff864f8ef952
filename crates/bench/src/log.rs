//! `carrack bench log`: how fast events reach the store, what they take there, how fast it answers.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use carrack_base::{InstanceId, WorkerId};
use carrack_config::{Config, PortFacts};
use carrack_nat::row::{BlockRow, Change, Endpoint, HostEndpoint, NatEvent};
use carrack_natlog::Service;
use carrack_natlog::context::Context;
use carrack_natlog::history::merge_all;
use carrack_natlog::search::{Question, who};
use carrack_runtime::{EventSink, LoggedEvent};
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::forward::BenchError;
use crate::options::number;
use crate::progress::Progress;
use crate::scratch::Scratch;
use carrack_base::text::grouped;

/// Events that the logging thread gets at once.
const BATCH: u64 = 8_192;
/// 2026-03-03T14:03:22.500Z.
const START_MS: u64 = 1_772_546_602_500;
/// Time between two events unless told otherwise, nanoseconds of the log's calendar: a million a second.
const EVENT_NS: u64 = 1_000;
const DAY_NS: u64 = 86_400_000_000_000;
/// Blocks of 512 ports of an address, and addresses.
const BLOCKS: u64 = 126;
const ADDRESSES: u64 = 4_096;
const FIRST_ADDRESS: u32 = 0xcb00_0000;
/// Most events that wait for the disk before the source rests: they would be lost.
const WAITING_MAX: u64 = 2_000_000;
/// Events of a columnar file.
const FILE_RECORDS: u64 = 2 << 20;

/// Which events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Events {
    /// Port blocks given out and given back
    Blocks,
    /// Sessions with their remote endpoints, begun and ended
    Sessions,
}

/// Options of `bench log`.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Which events
    #[arg(long, value_enum, default_value_t = Events::Blocks)]
    pub events: Events,
    /// How many, each about 10 to 20 bytes on disk
    #[arg(long, default_value_t = 10_000_000, value_parser = number::<u64>(BATCH..=2_000_000_000), allow_negative_numbers = true)]
    pub count: u64,
    /// Days of the log's calendar that they are spread over, instead of a million a second
    #[arg(long, value_parser = number::<u64>(1..=3_650), allow_negative_numbers = true)]
    pub days: Option<u64>,
    /// Questions asked afterwards
    #[arg(long, default_value_t = 50)]
    pub questions: u64,
    /// Directory in which a store is made and deleted again; a temporary one unless given
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Questions asked of the store.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Asked {
    /// Answers with a holder.
    pub found: u64,
    /// Milliseconds, the half and the worst of them.
    pub median_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// Milliseconds of a question whose answer is behind all files: every one of them is looked into.
    pub all_files_ms: f64,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct LogReport {
    /// Always `log`.
    pub scenario: &'static str,
    /// `blocks` or `sessions`.
    pub events: &'static str,
    /// Events.
    pub count: u64,
    /// Seconds until all of them were acknowledged: synced to disk.
    pub seconds: f64,
    /// Millions a second of them.
    pub m_per_s: f64,
    /// Nanoseconds an event that the logging thread itself takes, and what follows: the most it can take in.
    pub logging_thread_ns: f64,
    /// Millions a second of that.
    pub logging_thread_m_per_s: f64,
    /// Events lost.
    pub lost: u64,
    /// Columnar files.
    pub files: usize,
    /// Bytes an event in them.
    pub bytes_per_event: f64,
    /// Seconds to pack what was not packed yet when the last event was acknowledged.
    pub packing_behind_seconds: f64,
    /// Questions asked, of any time and port.
    pub questions: u64,
    /// The answers.
    pub asked: Asked,
    /// Days whose files were merged then.
    pub days: usize,
    /// Millions of events a second of that.
    pub merging_m_per_s: f64,
    /// Columnar files afterwards.
    pub files_merged: usize,
    /// Bytes an event in them.
    pub bytes_per_event_merged: f64,
    /// The same questions.
    pub asked_merged: Asked,
    /// Nothing was lost.
    pub ok: bool,
}

impl LogArgs {
    /// Time between two events.
    fn event_ns(&self) -> u64 {
        self.days.map_or(EVENT_NS, |days| (days * DAY_NS / self.count).max(1))
    }
}

fn config(dir: &Path, events: Events) -> Result<Config, BenchError> {
    // Of sessions within port blocks, the blocks would tell whose they are.
    let assignment = match events {
        Events::Blocks => "",
        Events::Sessions => "ports = { mode = \"arbitrary\" }\n",
    };
    let text = format!(
        "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\n\n[[interface]]\nname = \"b\"\n\
         device = \"mem:b\"\nside = \"outside\"\n\n[[nat]]\nname = \"cgn\"\n{assignment}\n[[nat.pool]]\nname = \"p\"\n\
         addresses = [\"203.0.113.0/24\"]\n\n[logging.store]\ndir = \"{}\"\nkeep = 315_360_000\n",
        dir.display()
    );
    Config::from_str("bench", &text).map(|(config, _)| config).map_err(|faults| failed(format!("{faults:?}")))
}

fn failed(why: String) -> BenchError {
    BenchError(why)
}

/// A number that looks like chance.
pub fn scatter(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ (n >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d) >> 20
}

impl Events {
    const fn name(self) -> &'static str {
        match self {
            Self::Blocks => "blocks",
            Self::Sessions => "sessions",
        }
    }

    /// Event number `n`: blocks and ports go from subscriber to subscriber.
    fn event(self, n: u64, event_ns: u64) -> LoggedEvent {
        let places = BLOCKS * ADDRESSES;
        let (round, place) = (n / places, scatter(n % places) % places);
        let ip = FIRST_ADDRESS + (place / BLOCKS) as u32;
        let first = 1_024 + (place % BLOCKS) as u16 * 512;
        let inside = Ipv4Addr::from(0x6440_0000 + (scatter(place + round / 2) % (1 << 22)) as u32).into();
        let (instance, begins) = (InstanceId(0), round.is_multiple_of(2));
        let block = BlockRow { ip, first, last: first + 511 };
        let event = match self {
            Self::Blocks if begins => NatEvent::BlockAllocated { instance, inside, block },
            Self::Blocks => NatEvent::BlockReleased { instance, inside, block },
            Self::Sessions => {
                let chance = scatter(place ^ (round / 2) << 32);
                NatEvent::Translation {
                    change: if begins { Change::SessionCreated } else { Change::SessionDeleted },
                    instance,
                    protocol: if chance.is_multiple_of(3) { 6 } else { 17 },
                    inside: HostEndpoint { ip: inside, port: 49_152 + chance as u16 % 16_384 },
                    outside: Endpoint { ip, port: first + (chance >> 8) as u16 % 512 },
                    remote: Some(Endpoint { ip: 0x0808_0000 + (chance >> 16) as u32 % 50_000, port: 443 }),
                    remote6: None,
                }
            }
        };
        let ns = n * event_ns;
        LoggedEvent { sequence: n, at_ns: ns, unix_ns: START_MS * 1_000_000 + ns, worker: WorkerId(0), event }
    }

    /// The outside address and port of an event.
    fn place(self, n: u64) -> (u32, u16) {
        match self.event(n, EVENT_NS).event {
            NatEvent::BlockAllocated { block, .. } | NatEvent::BlockReleased { block, .. } => {
                (block.ip, block.first + 7)
            }
            NatEvent::Translation { outside, .. } => (outside.ip, outside.port),
            _ => (0, 0),
        }
    }
}

/// Runs the measurement.
pub fn log(args: &LogArgs) -> Result<LogReport, BenchError> {
    let scratch = Scratch::new(args.dir.as_deref())?;
    let dir = scratch.path().join("store");
    let config = config(&dir, args.events)?;
    let event_ns = args.event_ns();
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None)
        .map_err(|faults| failed(format!("{faults:?}")))?;
    let start =
        || Service::start(&config, Context::of(&config, &compiled.snapshot), START_MS).map_err(failed);
    let mut service = start()?;
    let (began, mut busy, mut lost) = (Instant::now(), Duration::ZERO, 0);
    let mut progress = Progress::new("storing events", args.count);
    let mut batch: Vec<LoggedEvent> = Vec::with_capacity(BATCH as usize);
    let sent = args.count / BATCH * BATCH;
    for number in 0..sent / BATCH {
        batch.clear();
        batch.extend((number * BATCH..(number + 1) * BATCH).map(|n| args.events.event(n, event_ns)));
        let given = Instant::now();
        service.events(&batch);
        busy += given.elapsed();
        while service.store().is_some_and(|store| store.waiting > WAITING_MAX) {
            std::thread::sleep(Duration::from_millis(1));
        }
        progress.at(number * BATCH);
    }
    while let Some(store) = service.store().filter(|store| store.stored + store.lost < sent) {
        lost = store.lost;
        std::thread::sleep(Duration::from_millis(1));
    }
    let seconds = began.elapsed().as_secs_f64();
    let behind = Instant::now();
    service.end(START_MS * 1_000_000 + sent * event_ns);
    drop(service);
    // What is left in journals is packed by the next start.
    drop(start()?);
    let packing_behind_seconds = behind.elapsed().as_secs_f64();
    let (files, bytes) = columnar(&dir)?;
    let asked = ask(&dir, args, sent);
    let merging = Instant::now();
    let merged = merge_all(&dir).map_err(failed)?;
    let merging_seconds = merging.elapsed().as_secs_f64();
    let (files_merged, bytes_merged) = columnar(&dir)?;
    let asked_merged = ask(&dir, args, sent);
    Ok(LogReport {
        scenario: "log",
        events: args.events.name(),
        count: sent,
        seconds,
        m_per_s: sent as f64 / seconds / 1e6,
        logging_thread_ns: busy.as_nanos() as f64 / sent as f64,
        logging_thread_m_per_s: sent as f64 / busy.as_secs_f64() / 1e6,
        lost,
        files,
        bytes_per_event: bytes as f64 / sent as f64,
        packing_behind_seconds,
        questions: args.questions,
        asked,
        days: merged.days,
        merging_m_per_s: merged.events as f64 / merging_seconds.max(1e-9) / 1e6,
        files_merged,
        bytes_per_event_merged: bytes_merged as f64 / sent as f64,
        asked_merged,
        ok: lost == 0,
    })
}

/// Number and bytes of the store's columnar files.
fn columnar(dir: &Path) -> Result<(usize, u64), BenchError> {
    let files = crate::traceback::columnar(dir).map_err(|error| failed(error.to_string()))?;
    Ok((files.len(), files.iter().map(|(_, bytes)| bytes).sum()))
}

fn ask(dir: &Path, args: &LogArgs, sent: u64) -> Asked {
    let mut times = Vec::new();
    let mut asked = Asked::default();
    for n in 0..args.questions {
        let at = scatter(n) % sent;
        let (ip, port) = args.events.place(at);
        let at_ms = START_MS + at * args.event_ns() / 1_000_000 + 1;
        let began = Instant::now();
        let answer = who(dir, &Question { outside: ip.into(), port, at_ms, protocol: None });
        times.push(began.elapsed());
        asked.found += u64::from(answer.is_ok_and(|answer| answer.holding.is_some()));
    }
    times.sort_unstable();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |time| time.as_secs_f64() * 1e3);
    (asked.median_ms, asked.max_ms) = (ms(times.get(times.len() / 2)), ms(times.last()));
    let nobody = Question {
        // An address between two that events are of, at the end of time.
        outside: Ipv4Addr::from(FIRST_ADDRESS + ADDRESSES as u32 / 2),
        port: 80,
        at_ms: START_MS + sent * args.event_ns() / 1_000_000,
        protocol: None,
    };
    let began = Instant::now();
    let _ = who(dir, &nobody);
    asked.all_files_ms = began.elapsed().as_secs_f64() * 1e3;
    asked
}

impl LogReport {
    /// For people.
    pub fn print(&self) {
        println!("{} {} events into the store", grouped(self.count), self.events);
        println!();
        println!("acknowledged        {:>10.2} M a second, {} lost", self.m_per_s, grouped(self.lost));
        println!(
            "logging thread      {:>10.2} M a second at most, {:.0} ns an event",
            self.logging_thread_m_per_s, self.logging_thread_ns
        );
        println!(
            "on disk             {:>10.2} bytes an event, {} files of {} events at most",
            self.bytes_per_event,
            self.files,
            grouped(FILE_RECORDS)
        );
        println!("packing behind      {:>10.1} s", self.packing_behind_seconds);
        self.asked.print(self.questions);
        if self.days > 0 {
            println!();
            println!(
                "merged by days      {:>10.2} M a second: {} days; {} files became {}, {:.2} bytes an event",
                self.merging_m_per_s, self.days, self.files, self.files_merged, self.bytes_per_event_merged
            );
            self.asked_merged.print(self.questions);
        }
    }
}

impl Asked {
    fn print(&self, questions: u64) {
        println!(
            "trace-back          {:>10.1} ms, {:.1} at worst, of {questions} questions ({} with a holder)",
            self.median_ms, self.max_ms, self.found
        );
        println!("  behind all files  {:>10.1} ms", self.all_files_ms);
    }
}
