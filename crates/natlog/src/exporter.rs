//! One collector's queue, thread and counters.

mod format;
mod queue;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_config::{ExportTransport, ExporterConfig};

pub(crate) use self::queue::Queue;
use crate::context::Context;
use crate::flow::{Stamp, Unsent};
use crate::link::Link;
use crate::record::Record;
use format::Format;

/// Longest wait for events.
const WAIT: Duration = Duration::from_millis(50);
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
}

#[derive(Debug, Default)]
struct Counters {
    connected: AtomicBool,
    sent: AtomicU64,
    messages: AtomicU64,
    lost: AtomicU64,
}

/// A running exporter; dropping it ends it after what is left has been sent, or two seconds.
#[derive(Debug)]
pub(crate) struct Exporter {
    pub config: ExporterConfig,
    pub domain: u32,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    join: Option<JoinHandle<()>>,
}

impl Exporter {
    pub(crate) fn start(
        config: ExporterConfig,
        domain: u32,
        host: &str,
        context: Arc<Context>,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue::new(config.queue as usize));
        let counters = Arc::new(Counters::default());
        let work = Work {
            format: Format::new(&config, domain, host),
            queue: Arc::clone(&queue),
            counters: Arc::clone(&counters),
            context,
            link: None,
            started: Instant::now(),
            templates_due: Instant::now(),
            retry: RETRY_FIRST,
            retry_at: Instant::now(),
            unsent: Unsent::default(),
            complained: None,
            failing: false,
            config: config.clone(),
        };
        let name = format!("log-{}", config.name.value);
        let join = std::thread::Builder::new().name(name).spawn(move || work.run())?;
        Ok(Self { config, domain, queue, counters, join: Some(join) })
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
            waiting: self.queue.waiting() as u64,
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

/// Everything the exporter's thread owns.
struct Work {
    config: ExporterConfig,
    format: Format,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    context: Arc<Context>,
    link: Option<Link>,
    started: Instant,
    templates_due: Instant,
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
            let open = self.turn();
            if open {
                continue;
            }
            let since = *closing.get_or_insert_with(Instant::now);
            let waiting = self.link.as_ref().map_or(0, Link::waiting);
            let done = self.queue.waiting() == 0 && waiting == 0 && !self.failing;
            if done || since.elapsed() > GRACE {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.note_lost(self.queue.waiting() as u64);
    }

    /// One turn; false when no more events will come and none could be taken.
    fn turn(&mut self) -> bool {
        self.connect();
        if self.link.as_ref().is_some_and(|link| !link.is_ready()) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ready = self.link.as_ref().is_some_and(Link::is_ready);
        let taken = if ready {
            self.queue.pop(WAIT)
        } else {
            std::thread::sleep(Duration::from_millis(10));
            None
        };
        let open = taken.is_some() || !self.queue.is_closed();
        if let Some(batch) = taken {
            self.send_batch(&batch);
        }
        self.keep_up();
        open
    }

    fn connect(&mut self) {
        let now = Instant::now();
        if self.link.is_some() || now < self.retry_at {
            return;
        }
        match Link::open(self.config.transport, self.config.collector) {
            Ok(link) => {
                if self.failing {
                    tracing::info!("exporter {}: {} is back", self.config.name, self.config.collector);
                }
                self.link = Some(link);
                self.failing = false;
                self.retry = RETRY_FIRST;
                let unfinished = self.format.restart();
                self.note_lost(unfinished.into());
                self.templates_due = now;
                self.counters.connected.store(true, Ordering::Relaxed);
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
        self.retry_at = Instant::now() + self.retry;
        self.retry = (self.retry * 2).min(RETRY_MAX);
    }

    fn send_batch(&mut self, batch: &Batch) {
        if !Arc::ptr_eq(&self.context, &batch.context) {
            self.context = Arc::clone(&batch.context);
            // Names and numbers may have changed.
            self.templates_due = Instant::now();
        }
        self.templates();
        let now = self.stamp();
        let Self { format, link, counters, config, context, .. } = self;
        let mut outbox = Outbox { link, counters, lost: 0, failed: None };
        for record in batch.records.iter().filter(|record| wanted(config, context, record)) {
            format.event(record, context, now, &mut |message, events| outbox.send(message, events));
        }
        let (lost, failed) = (outbox.lost, outbox.failed);
        self.settle(lost, failed);
    }

    /// Sends what is not full yet, when nothing more waits, and templates when they are due.
    fn keep_up(&mut self) {
        if self.link.is_some() {
            self.templates();
        }
        if self.queue.waiting() > 0 {
            return;
        }
        let now = self.stamp();
        let Self { format, link, counters, .. } = self;
        let mut outbox = Outbox { link, counters, lost: 0, failed: None };
        if outbox.link.is_some() {
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
        let queue_lost = self.queue.lost();
        let mut unsent = self.unsent;
        unsent.records += queue_lost;
        if queue_lost > 0 {
            (unsent.first_ms, unsent.last_ms) = (unsent.first_ms.max(1), stamp.unix_ms);
        }
        let Self { format, link, counters, context, .. } = self;
        let mut outbox = Outbox { link, counters, lost: 0, failed: None };
        format.templates(context, unsent, stamp, &mut |message, events| outbox.send(message, events));
        let (lost, failed) = (outbox.lost, outbox.failed);
        self.settle(lost, failed);
    }

    fn settle(&mut self, lost: u64, failed: Option<io::Error>) {
        self.note_lost(lost);
        if let Some(error) = failed
            && (self.config.transport != ExportTransport::Udp || !is_passing(&error))
        {
            self.broken(&error);
        }
        if self.queue.lost() > 0 {
            self.complain();
        }
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
    lost: u64,
    failed: Option<io::Error>,
}

impl Outbox<'_> {
    fn send(&mut self, message: &[u8], events: u32) {
        let sent = match self.link.as_mut() {
            Some(link) => link.send(message),
            None => Ok(false),
        };
        match sent {
            Ok(true) => {
                self.counters.sent.fetch_add(u64::from(events), Ordering::Relaxed);
                self.counters.messages.fetch_add(1, Ordering::Relaxed);
            }
            Ok(false) => self.lost += u64::from(events),
            Err(error) => {
                self.lost += u64::from(events);
                self.failed = Some(error);
            }
        }
    }
}
