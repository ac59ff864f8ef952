//! One collector's queue, thread and counters.

mod format;
mod queue;
mod spool;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_base::thread::Thread;
use carrack_config::{ExportProtocol, ExportTransport, ExporterConfig};

pub(crate) use self::queue::Queue;
use crate::context::Context;
use crate::flow::{Stamp, Unsent};
use crate::link::Link;
use crate::record::Record;
use format::Format;
use spool::Spool;

/// Longest wait for events.
const WAIT: Duration = Duration::from_millis(50);
/// Rest while the collector takes nothing.
const PAUSE: Duration = Duration::from_millis(10);
/// Time between two looks at what a stream's collector has confirmed.
const CONFIRM: Duration = Duration::from_millis(100);
/// First and longest rest between two attempts to connect.
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long an ending exporter tries to send what is left.
const GRACE: Duration = Duration::from_secs(2);
/// Time between two complaints about losses.
const COMPLAIN: Duration = Duration::from_secs(10);

/// Events that belong together: what they mean is in the context.
#[derive(Debug)]
pub(crate) struct Batch {
    pub context: Arc<Context>,
    pub records: Vec<Record>,
}

/// What an exporter has done since its start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExporterReport {
    /// Name.
    pub name: String,
    /// Is there a way to the collector now?
    pub connected: bool,
    /// Events sent.
    pub sent: u64,
    /// Messages sent.
    pub messages: u64,
    /// Events lost: queue and spool were full, or the kernel took no datagram.
    pub lost: u64,
    /// Events that wait in memory.
    pub waiting: u64,
    /// Bytes that wait on disk.
    pub spooled_bytes: u64,
}

#[derive(Debug, Default)]
struct Counters {
    connected: AtomicBool,
    sent: AtomicU64,
    messages: AtomicU64,
    lost: AtomicU64,
    /// Events taken from the queue that the collector has not confirmed.
    held: AtomicU64,
    spooled_bytes: AtomicU64,
}

/// Everything about an exporter that its own table does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Observation domain.
    pub domain: u32,
    /// Name of this router.
    pub host: String,
    /// Private enterprise number.
    pub enterprise: u32,
    /// Where spools are.
    pub spool_dir: PathBuf,
}

/// A running exporter; dropping it ends it after what is left has been sent, or two seconds.
#[derive(Debug)]
pub(crate) struct Exporter {
    /// Which of those that run; no other has the same.
    pub number: usize,
    pub config: ExporterConfig,
    pub identity: Identity,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    join: Option<JoinHandle<()>>,
}

impl Exporter {
    pub(crate) fn start(
        number: usize,
        config: ExporterConfig,
        identity: Identity,
        context: Arc<Context>,
        cores: &Arc<[usize]>,
    ) -> Result<Self, String> {
        let queue = Arc::new(Queue::new(config.queue as usize));
        let counters = Arc::new(Counters::default());
        let spool = open_spool(&config, &identity.spool_dir)?;
        let work = Work {
            number,
            format: Format::new(&config, &identity),
            queue: Arc::clone(&queue),
            counters: Arc::clone(&counters),
            context,
            link: None,
            spool,
            sent: VecDeque::new(),
            again: VecDeque::new(),
            started: Instant::now(),
            templates_due: Instant::now(),
            confirmed: Instant::now(),
            retry: RETRY_FIRST,
            retry_at: Instant::now(),
            unsent: Unsent::default(),
            complained: None,
            failing: false,
            config: config.clone(),
        };
        let name = Thread::Exporter(number, &config.name.value).name();
        let cores = Arc::clone(cores);
        let body = move || {
            crate::service::place(&cores);
            work.run();
        };
        let join = std::thread::Builder::new().name(name).spawn(body).map_err(|error| {
            format!("exporter {}: cannot start its thread: {error}; raise the limit on threads", config.name)
        })?;
        Ok(Self { number, config, identity, queue, counters, join: Some(join) })
    }

    /// Takes a batch or counts its loss; never waits.
    pub(crate) fn take(&self, batch: &Arc<Batch>) {
        self.queue.push(batch);
    }

    pub(crate) fn report(&self) -> ExporterReport {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ExporterReport {
            name: self.config.name.value.clone(),
            connected: self.counters.connected.load(Ordering::Relaxed),
            sent: load(&self.counters.sent),
            messages: load(&self.counters.messages),
            lost: load(&self.counters.lost) + self.queue.lost(),
            waiting: self.queue.waiting() as u64 + load(&self.counters.held),
            spooled_bytes: load(&self.counters.spooled_bytes),
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.queue.close();
        if let Some(join) = self.join.take() {
            // A thread that died has said so on standard error.
            let _ = join.join();
        }
    }
}

fn open_spool(config: &ExporterConfig, dir: &Path) -> Result<Option<Spool>, String> {
    if config.spool_mb == 0 {
        return Ok(None);
    }
    let dir = dir.join(&config.name.value);
    let spool = Spool::open(dir.clone(), u64::from(config.spool_mb) * 1_000_000);
    spool.map(Some).map_err(|error| {
        format!(
            "exporter {}: cannot use the spool {}: {error}; make the directory writable, or set logging.spool_dir",
            config.name,
            dir.display()
        )
    })
}

/// A batch on its way to a collector that confirms.
struct Delivery {
    batch: Arc<Batch>,
    /// Where it is on disk.
    file: Option<PathBuf>,
    /// Events of it that this collector wants.
    events: u64,
    /// The stream's bytes after it.
    end: u64,
}

/// Everything the exporter's thread owns.
struct Work {
    number: usize,
    config: ExporterConfig,
    format: Format,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    context: Arc<Context>,
    link: Option<Link>,
    spool: Option<Spool>,
    /// Over a stream: sent, not yet confirmed.
    sent: VecDeque<Delivery>,
    /// To be sent again, because the stream broke before it was confirmed: before anything else.
    again: VecDeque<Delivery>,
    started: Instant,
    templates_due: Instant,
    confirmed: Instant,
    retry: Duration,
    retry_at: Instant,
    unsent: Unsent,
    complained: Option<Instant>,
    failing: bool,
}

impl Work {
    fn run(mut self) {
        let mut closing: Option<Instant> = None;
        loop {
            self.turn();
            if !self.queue.is_closed() {
                continue;
            }
            let since = *closing.get_or_insert_with(Instant::now);
            let spooled = self.spool.as_ref().is_some_and(Spool::is_waiting);
            let done = self.queue.waiting() == 0 && self.sent.is_empty() && self.again.is_empty();
            if (done && (!spooled || self.failing)) || since.elapsed() > GRACE {
                break;
            }
        }
        self.leave();
    }

    fn turn(&mut self) {
        self.connect();
        self.confirm();
        self.relieve();
        if self.link.as_ref().is_some_and(Link::is_ready) {
            if let Some(delivery) = self.next() {
                self.deliver(delivery);
            }
        } else {
            std::thread::sleep(PAUSE);
        }
        self.keep_up();
    }

    fn connect(&mut self) {
        let now = Instant::now();
        if self.link.is_some() || now < self.retry_at {
            return;
        }
        match Link::open(self.number, &self.config) {
            Ok(link) => {
                self.link = Some(link);
                // Of a stream nothing is unfinished: what was under way is sent again from its beginning.
                let unfinished = self.format.restart();
                self.note_lost(unfinished.into());
                self.templates_due = now;
            }
            Err(error) => self.broken(&error),
        }
    }

    fn broken(&mut self, error: &io::Error) {
        if !self.failing {
            tracing::warn!(
                "exporter {}: no way to {}: {error}; events wait until it is back",
                self.config.name,
                self.config.collector
            );
        }
        self.failing = true;
        self.link = None;
        self.counters.connected.store(false, Ordering::Relaxed);
        while let Some(delivery) = self.sent.pop_back() {
            self.again.push_front(delivery);
        }
        self.retry_at = Instant::now() + self.retry;
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }

    /// The collector takes events.
    fn working(&mut self) {
        if self.failing {
            tracing::info!("exporter {}: {} is back", self.config.name, self.config.collector);
        }
        self.failing = false;
        self.retry = RETRY_FIRST;
        self.counters.connected.store(true, Ordering::Relaxed);
    }

    /// What is next: what must be sent again, then what waits on disk, then what waits in memory.
    fn next(&mut self) -> Option<Delivery> {
        if let Some(delivery) = self.again.pop_front() {
            return Some(delivery);
        }
        if let Some(spool) = self.spool.as_mut().filter(|spool| spool.is_waiting()) {
            return match spool.take(&self.context) {
                Ok(taken) => taken.map(|(path, batch)| Delivery::of(batch, Some(path))),
                Err(error) => {
                    tracing::error!("exporter {}: cannot read its spool: {error}", self.config.name);
                    None
                }
            };
        }
        self.queue.pop(WAIT).map(|batch| Delivery::of(batch, None))
    }

    fn deliver(&mut self, mut delivery: Delivery) {
        if !Arc::ptr_eq(&self.context, &delivery.batch.context) {
            self.context = Arc::clone(&delivery.batch.context);
            // Names and numbers may have changed.
            self.templates_due = Instant::now();
        }
        self.templates();
        let now = self.stamp();
        let is_confirmed = confirms(&self.config);
        let Self { format, link, counters, config, context, .. } = self;
        let mut outbox = Outbox { link, counters, confirmed_later: is_confirmed, lost: 0, failed: None };
        delivery.events = 0;
        for record in delivery.batch.records.iter().filter(|record| wanted(config, context, record)) {
            delivery.events += 1;
            format.event(record, context, now, &mut |message, events| outbox.send(message, events));
        }
        if is_confirmed {
            // What is confirmed is whole batches.
            format.finish(now, &mut |message, events| outbox.send(message, events));
        }
        let (lost, failed) = (outbox.lost, outbox.failed);
        if is_confirmed {
            delivery.end = link.as_ref().map_or(0, Link::accepted);
            self.sent.push_back(delivery);
        } else if let (Some(path), Some(spool)) = (&delivery.file, &mut self.spool) {
            spool.delivered(path);
        }
        self.settle(lost, failed);
    }

    /// Forgets what the collector's machine has confirmed.
    fn confirm(&mut self) {
        if self.sent.is_empty() || self.confirmed.elapsed() < CONFIRM {
            return;
        }
        self.confirmed = Instant::now();
        let Some(link) = &self.link else { return };
        let delivered = link.delivered();
        while let Some(delivery) = self.sent.pop_front_if(|delivery| delivery.end <= delivered) {
            self.counters.sent.fetch_add(delivery.events, Ordering::Relaxed);
            if let (Some(path), Some(spool)) = (&delivery.file, &mut self.spool) {
                spool.delivered(path);
            }
        }
    }

    /// Moves what waits in memory to disk before the queue is full; keeps numbers up to date.
    fn relieve(&mut self) {
        if let Some(spool) = &mut self.spool {
            let half = self.config.queue as usize / 2;
            while self.queue.waiting() > half {
                let Some(batch) = self.queue.pop(Duration::ZERO) else { break };
                let events = batch.records.len() as u64;
                match spool.push(&batch) {
                    Ok(true) => {}
                    Ok(false) => {
                        self.queue.give_back(batch);
                        break;
                    }
                    Err(error) => {
                        tracing::error!(
                            "exporter {}: the spool takes nothing: {error}; {events} events stay in memory",
                            self.config.name
                        );
                        self.queue.give_back(batch);
                        break;
                    }
                }
            }
            self.counters.spooled_bytes.store(spool.bytes(), Ordering::Relaxed);
        }
        let held = self.sent.iter().chain(&self.again).map(|delivery| delivery.batch.records.len() as u64);
        self.counters.held.store(held.sum(), Ordering::Relaxed);
        if self.queue.lost() > 0 {
            self.complain();
        }
    }

    /// Sends what is not full yet, when nothing more waits, and templates when they are due.
    fn keep_up(&mut self) {
        if self.link.as_ref().is_some_and(Link::is_ready) {
            self.templates();
        }
        let now = self.stamp();
        let idle = self.queue.waiting() == 0;
        let Self { format, link, counters, .. } = self;
        if link.is_none() {
            return;
        }
        let mut outbox = Outbox { link, counters, confirmed_later: false, lost: 0, failed: None };
        if idle {
            format.finish(now, &mut |message, events| outbox.send(message, events));
        }
        let (lost, mut failed) = (outbox.lost, outbox.failed);
        if let (Some(link), None) = (link.as_mut(), &failed) {
            failed = link.flush().err();
        }
        self.settle(lost, failed);
    }

    /// RFC 7011 §8.4: over UDP again and again; over a stream once, with options again and again.
    fn templates(&mut self) {
        let now = Instant::now();
        if now < self.templates_due {
            return;
        }
        self.templates_due = now + Duration::from_secs(self.config.template_refresh_s.into());
        let stamp = self.stamp();
        let mut unsent = self.unsent;
        let queue_lost = self.queue.lost();
        unsent.records += queue_lost;
        if queue_lost > 0 {
            (unsent.first_ms, unsent.last_ms) = (unsent.first_ms.max(1), stamp.unix_ms);
        }
        let Self { format, link, counters, context, .. } = self;
        let mut outbox = Outbox { link, counters, confirmed_later: false, lost: 0, failed: None };
        format.templates(context, unsent, stamp, &mut |message, events| outbox.send(message, events));
        let (lost, failed) = (outbox.lost, outbox.failed);
        self.settle(lost, failed);
    }

    fn settle(&mut self, lost: u64, failed: Option<io::Error>) {
        self.note_lost(lost);
        match failed {
            Some(error) if confirms(&self.config) || !is_passing(&error) => {
                self.broken(&error);
            }
            _ if self.link.as_ref().is_some_and(Link::is_working) => self.working(),
            _ => {}
        }
    }

    /// The end: what could not be sent goes to disk when there is a spool, and is lost otherwise.
    fn leave(&mut self) {
        self.confirm();
        let mut left: Vec<Arc<Batch>> = Vec::new();
        // What came from disk is still there.
        let under_way = self.sent.drain(..).chain(self.again.drain(..));
        left.extend(under_way.filter(|delivery| delivery.file.is_none()).map(|delivery| delivery.batch));
        while let Some(batch) = self.queue.pop(Duration::ZERO) {
            left.push(batch);
        }
        let mut lost = 0;
        for batch in left {
            let kept = self.spool.as_mut().is_some_and(|spool| matches!(spool.push(&batch), Ok(true)));
            lost += if kept { 0 } else { batch.records.len() as u64 };
        }
        if let Some(spool) = &mut self.spool {
            spool.close();
        }
        self.note_lost(lost);
    }

    fn note_lost(&mut self, lost: u64) {
        if lost == 0 {
            return;
        }
        let now_ms = self.stamp().unix_ms;
        self.counters.lost.fetch_add(lost, Ordering::Relaxed);
        self.unsent.records += lost;
        self.unsent.last_ms = now_ms;
        if self.unsent.first_ms == 0 {
            self.unsent.first_ms = now_ms;
        }
        self.complain();
    }

    fn complain(&mut self) {
        if self.complained.is_some_and(|at| at.elapsed() < COMPLAIN) {
            return;
        }
        self.complained = Some(Instant::now());
        let lost = self.counters.lost.load(Ordering::Relaxed) + self.queue.lost();
        tracing::error!(
            "exporter {}: {lost} events are lost so far, because {} takes them too slowly or not at all",
            self.config.name,
            self.config.collector
        );
    }

    fn stamp(&self) -> Stamp {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Stamp { unix_ms: unix.as_millis() as u64, uptime_ms: self.started.elapsed().as_millis() as u64 }
    }
}

impl Delivery {
    fn of(batch: Arc<Batch>, file: Option<PathBuf>) -> Self {
        Self { batch, file, events: 0, end: 0 }
    }
}

/// Does the other side, or its machine, confirm what it got?
fn confirms(config: &ExporterConfig) -> bool {
    config.transport != ExportTransport::Udp || config.protocol == ExportProtocol::Radius
}

/// An ICMP error to an earlier datagram: the collector may come any moment.
fn is_passing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

fn wanted(config: &ExporterConfig, context: &Context, record: &Record) -> bool {
    config.events.contains(&record.kind.class())
        && (config.instances.is_empty()
            || record.kind.class() == carrack_config::EventClass::System
            || config.instances.iter().any(|name| name.value == context.instance(record.instance)))
}

/// Sends messages and notes what became of them.
struct Outbox<'a> {
    link: &'a mut Option<Link>,
    counters: &'a Counters,
    /// Events count as sent, or are sent again, when the collector has confirmed them or not.
    confirmed_later: bool,
    lost: u64,
    failed: Option<io::Error>,
}

impl Outbox<'_> {
    fn send(&mut self, message: &[u8], events: u32) {
        // After a failure nothing more is sent: a stream would have a hole.
        let sent = match self.link.as_mut().filter(|_| self.failed.is_none()) {
            Some(link) => link.send(message),
            None => Ok(false),
        };
        let events = if self.confirmed_later { 0 } else { u64::from(events) };
        match sent {
            Ok(true) => {
                self.counters.sent.fetch_add(events, Ordering::Relaxed);
                self.counters.messages.fetch_add(1, Ordering::Relaxed);
            }
            Ok(false) => self.lost += events,
            Err(error) => {
                self.lost += events;
                self.failed = Some(error);
            }
        }
    }
}
