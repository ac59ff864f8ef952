//! `carrack bench trace-back`: how long a question takes over months of events.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use carrack_natlog::history::{History, PACKED_EVENTS, write_day, write_packed};
use carrack_natlog::record::{Kind, Record};
use carrack_natlog::search::{Question, of, who};
use clap::Args;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::forward::BenchError;
use crate::log::scatter;
use crate::options::number;
use crate::progress::Progress;
use crate::scratch::Scratch;
use carrack_base::text::grouped;

/// 2025-03-03T00:00:00Z.
const FIRST_MS: u64 = 1_740_960_000_000;
const DAY_MS: u64 = 86_400_000;
/// Blocks of 512 ports of an address.
const BLOCKS: u64 = 126;
const FIRST_ADDRESS: u32 = 0xcb00_0000;
/// Events of a block in a day, about: an address is given out anew that often.
const EVENTS_OF_BLOCK: u64 = 8;
const ADDRESSES_MAX: u64 = 32_768;
/// Events of the daemon itself in a day: a limit that is reached once a minute.
const OWN_EVENTS: u64 = 1_440;

/// Options of `bench trace-back`.
#[derive(Debug, Clone, Args)]
pub struct TraceBackArgs {
    /// Port block events, all days together; 6 to 8 bytes each on disk, and a day more of them that is not over
    #[arg(long, default_value_t = 100_000_000, value_parser = number::<u64>(100_000..=20_000_000_000), allow_negative_numbers = true)]
    pub rows: u64,
    /// Days they are spread over
    #[arg(long, default_value_t = 30, value_parser = number::<u64>(1..=3_650), allow_negative_numbers = true)]
    pub days: u64,
    /// Questions of each kind
    #[arg(long, default_value_t = 50, value_parser = number::<u64>(1..=10_000), allow_negative_numbers = true)]
    pub questions: u64,
    /// Directory in which a store is made and deleted again; a temporary one unless given
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Milliseconds of one kind of question.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Times {
    /// Half of them took less.
    pub median_ms: f64,
    /// The slowest.
    pub max_ms: f64,
    /// Of the processor's time, the median: what it would have been on a machine that does nothing else.
    pub processor_ms: f64,
    /// Kilobytes read from files, the median.
    pub read_kb: f64,
}

/// How long something took: milliseconds, and those in which its threads had a processor; and what they read.
#[derive(Debug, Clone, Copy)]
struct Took {
    read_kb: f64,
    ms: f64,
    processor_ms: f64,
}

/// What it found.
#[derive(Debug, Clone, Serialize)]
pub struct TraceBackReport {
    /// Always `trace-back`.
    pub scenario: &'static str,
    /// Events.
    pub rows: u64,
    /// Days.
    pub days: u64,
    /// Columnar files.
    pub files: usize,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes an event.
    pub bytes_per_row: f64,
    /// Seconds it took to write them.
    pub write_seconds: f64,
    /// Questions of each kind.
    pub questions: u64,
    /// Who had this address and port then: of any event.
    pub holder: Times,
    /// The same, when the disk must be read.
    pub holder_cold: Times,
    /// Of a port that nobody ever had: every day is looked into.
    pub every_day: Times,
    /// The same, when the disk must be read.
    pub every_day_cold: Times,
    /// What a subscriber had in a day.
    pub subscriber_day: Times,
    /// The same, when the disk must be read.
    pub subscriber_day_cold: Times,
    /// What a subscriber had in all days.
    pub subscriber_all: Times,
    /// Files of the day that is not over, the journal among them; only what follows was asked with them there.
    pub today_files: usize,
    /// Who had this address and port then: of any event of the day that is not over.
    pub holder_today: Times,
    /// What a subscriber had in the day that is not over.
    pub subscriber_today: Times,
    /// Questions whose answer was the right one.
    pub right: u64,
    /// All were.
    pub ok: bool,
}

/// The shape of a history: which events there are.
#[derive(Debug, Clone, Copy)]
struct Shape {
    days: u64,
    addresses: u64,
    /// Events of each block in a day.
    each: u64,
}

impl Shape {
    fn of(args: &TraceBackArgs) -> Self {
        let a_day = args.rows / args.days;
        let addresses = (a_day / (BLOCKS * EVENTS_OF_BLOCK)).clamp(1, ADDRESSES_MAX);
        Self { days: args.days, addresses, each: (a_day / (BLOCKS * addresses)).max(1) }
    }

    const fn rows(&self) -> u64 {
        self.days * self.addresses * BLOCKS * self.each
    }

    /// Event `n` of a day of a block: given out and given back in turn, at any moment of its share of the day.
    fn event(&self, day: u64, place: u64, n: u64) -> Record {
        let round = day * self.each + n;
        let first = 1_024 + (place % BLOCKS) as u16 * 512;
        let share = DAY_MS / self.each;
        let chance = scatter(place ^ round << 40);
        Record {
            inside: Ipv4Addr::from(0x6440_0000 + (scatter(place + round / 2 * 7_919) % (1 << 22)) as u32)
                .into(),
            outside: FIRST_ADDRESS + (place / BLOCKS) as u32,
            first,
            last: first + 511,
            ..Record::new(
                FIRST_MS + day * DAY_MS + n * share + chance % share,
                if round.is_multiple_of(2) { Kind::BlockAllocated } else { Kind::BlockReleased },
            )
        }
    }

    /// A day's events, in the order of its files.
    fn day(self, day: u64) -> impl Iterator<Item = Record> {
        let begin = FIRST_MS + day * DAY_MS;
        let started = (day == 0).then(|| Record::new(begin, Kind::Started));
        let own = (0..OWN_EVENTS).map(move |n| Record {
            inside: Ipv4Addr::from(0x6440_0000 + n as u32).into(),
            ..Record::new(begin + 1 + n * (DAY_MS / OWN_EVENTS), Kind::QuotaExceeded)
        });
        let blocks = (0..self.addresses * BLOCKS)
            .flat_map(move |place| (0..self.each).map(move |n| self.event(day, place, n)));
        started.into_iter().chain(own).chain(blocks)
    }
}

/// Runs the measurement.
pub fn trace_back(args: &TraceBackArgs) -> Result<TraceBackReport, BenchError> {
    let shape = Shape::of(args);
    let scratch = Scratch::new(args.dir.as_deref())?;
    let dir = scratch.path();
    let began = Instant::now();
    let written = write(dir, shape)?;
    let write_seconds = began.elapsed().as_secs_f64();
    let parts = columnar(dir).map_err(|error| BenchError(error.to_string()))?;
    let bytes = parts.iter().map(|(_, bytes)| bytes).sum();
    let mut right = 0;
    let mut holders = |cold: bool| {
        asked(
            args.questions,
            |n| holder(dir, shape, any_day(shape, n), n, cold.then_some(&*parts)),
            &mut right,
        )
    };
    let (holder_cold, holder) = (holders(true)?, holders(false)?);
    let mut nobody = |cold: bool| {
        asked(args.questions.min(5), |n| nobody(dir, shape, n, cold.then_some(&*parts)), &mut right)
    };
    let (every_day_cold, every_day) = (nobody(true)?, nobody(false)?);
    let few = args.questions.min(10);
    let mut subscribers = |all: bool, cold: bool| {
        asked(few, |n| subscriber(dir, shape, any_day(shape, n), n, all, cold.then_some(&*parts)), &mut right)
    };
    let (subscriber_day_cold, subscriber_day) = (subscribers(false, true)?, subscribers(false, false)?);
    let subscriber_all = subscribers(true, false)?;
    let today_files = write_today(dir, shape)?;
    let holder_today = asked(args.questions, |n| self::holder(dir, shape, shape.days, n, None), &mut right)?;
    let subscriber_today = asked(few, |n| subscriber(dir, shape, shape.days, n, false, None), &mut right)?;
    let asked = 3 * args.questions + 2 * args.questions.min(5) + 4 * few;
    Ok(TraceBackReport {
        scenario: "trace-back",
        rows: written.events,
        days: shape.days,
        files: parts.len(),
        bytes,
        bytes_per_row: bytes as f64 / written.events as f64,
        write_seconds,
        questions: args.questions,
        holder,
        holder_cold,
        every_day,
        every_day_cold,
        subscriber_day,
        subscriber_day_cold,
        subscriber_all,
        today_files,
        holder_today,
        subscriber_today,
        right,
        ok: right == asked,
    })
}

/// Writes all days, on all processors.
fn write(dir: &Path, shape: Shape) -> Result<History, BenchError> {
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let all = Mutex::new(Ok(History::default()));
    let progress = Mutex::new(Progress::new("writing events", shape.rows()));
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(8));
    let work = || {
        loop {
            let day = next.fetch_add(1, Ordering::Relaxed);
            if day >= shape.days {
                return;
            }
            let events = shape.day(day).inspect(|event| {
                // Of every address the first.
                if event.first == 1_024 && event.outside != 0 {
                    let done = done.fetch_add(BLOCKS, Ordering::Relaxed);
                    if let Ok(mut progress) = progress.try_lock() {
                        progress.at(done);
                    }
                }
            });
            let day = write_day(dir, FIRST_MS + day * DAY_MS, "cgn", events);
            let Ok(mut all) = all.lock() else { return };
            match (&mut *all, day) {
                (Ok(all), Ok(day)) => {
                    all.days += 1;
                    all.files += day.files;
                    all.events += day.events;
                }
                (all, Err(why)) => {
                    *all = Err(why);
                    next.store(shape.days, Ordering::Relaxed);
                }
                (Err(_), Ok(_)) => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    all.into_inner().map_err(|_| BenchError("a thread that wrote events died".into()))?.map_err(BenchError)
}

/// Writes one day more, as the daemon does while it is not over: files in the order of time, the last one a journal.
fn write_today(dir: &Path, shape: Shape) -> Result<usize, BenchError> {
    let places = shape.addresses * BLOCKS;
    let parts = places.div_ceil(PACKED_EVENTS);
    let files = shape.each * parts;
    let share = DAY_MS / shape.each;
    let mut progress = Progress::new("writing a day that is not over", files);
    for file in 0..files {
        let (n, part) = (file / parts, file % parts);
        let is_in = |event: &Record| event.unix_ms % DAY_MS % share * parts / share == part;
        let mut events: Vec<Record> =
            (0..places).map(|place| shape.event(shape.days, place, n)).filter(is_in).collect();
        events.sort_by_key(|event| event.unix_ms);
        write_packed(dir, file as u32, "cgn", events, file + 1 == files).map_err(BenchError)?;
        progress.at(file);
    }
    Ok(files as usize)
}

/// One of the days that are over.
fn any_day(shape: Shape, n: u64) -> u64 {
    scatter(n * 3 + 2) % shape.days
}

/// Asks `question` so many times: how long each took, and whether the answer was right.
fn asked(
    questions: u64,
    question: impl Fn(u64) -> Result<(Took, bool), String>,
    right: &mut u64,
) -> Result<Times, BenchError> {
    let (mut times, mut processor, mut read) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..questions {
        let (took, is_right) = question(n).map_err(BenchError)?;
        times.push(took.ms);
        processor.push(took.processor_ms);
        read.push(took.read_kb);
        *right += u64::from(is_right);
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(0.0)
    };
    Ok(Times {
        median_ms: median(&mut times),
        max_ms: times.last().copied().unwrap_or(0.0),
        processor_ms: median(&mut processor),
        read_kb: median(&mut read),
    })
}

fn timed<T>(ask: impl FnOnce() -> Result<T, String>) -> Result<(Took, T), String> {
    let read = read_bytes()?;
    let (began, processor) = (Instant::now(), cpu_s());
    let answer = ask()?;
    let (ms, processor_ms) = (began.elapsed().as_secs_f64() * 1e3, (cpu_s() - processor) * 1e3);
    Ok((Took { ms, processor_ms, read_kb: read_bytes()?.saturating_sub(read) as f64 / 1e3 }, answer))
}

/// Seconds of processor time that this program has had: a question has threads of its own.
fn cpu_s() -> f64 {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map_or(0.0, |time| time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9)
}

/// Bytes that this program has read from files so far.
fn read_bytes() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/io").map_err(|error| error.to_string())?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse().ok());
    bytes.ok_or_else(|| "/proc/self/io does not say what was read".into())
}

/// Who had it, just after any event.
fn holder(
    dir: &Path,
    shape: Shape,
    day: u64,
    n: u64,
    cold: Option<&[(PathBuf, u64)]>,
) -> Result<(Took, bool), String> {
    let place = scatter(n * 2 + 1) % (shape.addresses * BLOCKS);
    let event = shape.event(day, place, scatter(n) % shape.each);
    let question = Question {
        outside: event.outside.into(),
        port: event.first + (scatter(n + 5) % 512) as u16,
        at_ms: event.unix_ms,
        protocol: None,
    };
    forget(cold)?;
    let (took, answer) = timed(|| who(dir, &question))?;
    let held = (event.kind == Kind::BlockAllocated).then_some(event.inside);
    Ok((took, answer.holding.map(|holding| holding.subscriber) == held))
}

/// A port that nobody ever had, asked about at the end.
fn nobody(dir: &Path, shape: Shape, n: u64, cold: Option<&[(PathBuf, u64)]>) -> Result<(Took, bool), String> {
    let question = Question {
        outside: (FIRST_ADDRESS + (scatter(n) % shape.addresses) as u32).into(),
        port: 80,
        at_ms: FIRST_MS + shape.days * DAY_MS,
        protocol: None,
    };
    forget(cold)?;
    let (took, answer) = timed(|| who(dir, &question))?;
    Ok((took, answer.holding.is_none() && answer.free_since_ms == Some(FIRST_MS)))
}

/// What the subscriber of an event had that day, or in all.
fn subscriber(
    dir: &Path,
    shape: Shape,
    day: u64,
    n: u64,
    all: bool,
    cold: Option<&[(PathBuf, u64)]>,
) -> Result<(Took, bool), String> {
    let event = shape.event(day, scatter(n) % (shape.addresses * BLOCKS), 0);
    let begin = FIRST_MS + day * DAY_MS;
    let (from_ms, days) = if all { (FIRST_MS, shape.days) } else { (begin, 1) };
    forget(cold)?;
    let (took, held) = timed(|| of(dir, event.inside, from_ms, from_ms + days * DAY_MS - 1))?;
    let is_event = |holding: &carrack_natlog::search::Holding| {
        u32::from(holding.outside) == event.outside && holding.first == event.first
    };
    Ok((took, held.iter().any(is_event)))
}

/// Has the kernel forget what it holds of the files, so that the disk must be read.
fn forget(parts: Option<&[(PathBuf, u64)]>) -> Result<(), String> {
    for (path, _) in parts.into_iter().flatten() {
        let file = File::open(path).map_err(|error| error.to_string())?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// The store's columnar files and their bytes.
pub fn columnar(dir: &Path) -> std::io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            found.extend(columnar(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            found.push((path, entry.metadata()?.len()));
        }
    }
    Ok(found)
}

impl TraceBackReport {
    /// For people.
    pub fn print(&self) {
        println!(
            "{} block events of {} days, {} files, {:.2} GB: {:.2} bytes an event",
            grouped(self.rows),
            self.days,
            self.files,
            self.bytes as f64 / 1e9,
            self.bytes_per_row
        );
        println!();
        println!("                                       median       worst   processor        read");
        let line = |what: &str, times: &Times| {
            println!(
                "  {what:<33}{:>7.1} ms{:>9.1} ms{:>9.1} ms{:>9.0} kB",
                times.median_ms, times.max_ms, times.processor_ms, times.read_kb
            );
        };
        line("who had an address and port", &self.holder);
        line("  from disk", &self.holder_cold);
        line("a port nobody ever had", &self.every_day);
        line("  from disk", &self.every_day_cold);
        line("what a subscriber had in a day", &self.subscriber_day);
        line("  from disk", &self.subscriber_day_cold);
        line("what a subscriber had in all days", &self.subscriber_all);
        println!("  and of a day that is not over, in {} files:", self.today_files);
        line("who had an address and port", &self.holder_today);
        line("what a subscriber had in it", &self.subscriber_today);
        println!();
        println!("  {:<32}{:>10.1} s", "written in", self.write_seconds);
        println!("  {:<32}{:>10}", "all answers right", if self.ok { "yes" } else { "NO" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_question_over_many_days_is_answered_right() {
        let args = TraceBackArgs { rows: 300_000, days: 12, questions: 60, dir: None, json: false };
        let report = trace_back(&args).unwrap();
        assert!(report.ok, "{report:#?}");
        assert!((280_000..=330_000).contains(&report.rows), "{report:#?}");
        assert_eq!(report.files, 24);
    }
}
