//! Everything that becomes of events: the sink of the logging thread, and its settings.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_config::{Config, Logging};
use carrack_runtime::{EventSink, LoggedEvent};

use crate::context::Context;
use crate::exporter::{Batch, Exporter, ExporterReport, Identity};
use crate::record::{Kind, Record};
use crate::store::{Store, StoreReport};

/// Distributes events. Clones are doors to the same service.
#[derive(Debug, Clone)]
pub struct Service {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    host: String,
    context: Arc<Context>,
    exporters: Vec<Exporter>,
    store: Option<Store>,
    lost: u64,
    cores: Arc<[usize]>,
    /// The calendar minus monotonic time, as of the last event.
    offset_ns: Option<u64>,
}

/// How far the clock may be off its own pace until it counts as set, milliseconds.
const CLOCK_SET_MS: u64 = 100;

/// Where threads that log run: where they are told to, else beside the control plane, which is placed only later.
fn cores_of(config: &Config) -> Arc<[usize]> {
    let (own, control) = (&config.logging.cores, &config.workers.control_cores);
    if own.is_empty() {
        control.iter().map(|core| usize::from(core.value)).collect()
    } else {
        own.iter().map(|core| usize::from(core.value)).collect()
    }
}

impl Service {
    /// Starts what the config asks for; the time is milliseconds since 1970.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub fn start(config: &Config, context: Context, unix_ms: u64) -> Result<Self, String> {
        let cores = cores_of(config);
        let inner = Inner {
            host: config.system.name.clone(),
            context: Arc::new(context),
            exporters: Vec::new(),
            store: config.logging.store.clone().map(|store| Store::start(store, &cores)).transpose()?,
            lost: 0,
            cores,
            offset_ns: None,
        };
        let service = Self { inner: Arc::new(Mutex::new(inner)) };
        let mut inner = service.lock();
        inner.set_exporters(&config.logging)?;
        inner.keep_config(config, 1, unix_ms);
        inner.distribute(vec![Record::new(unix_ms, Kind::Started), configured(unix_ms, 1)]);
        drop(inner);
        Ok(service)
    }

    /// Works by another configuration from the next event on. Exporters that did not change go on.
    ///
    /// # Errors
    /// A sentence that says what to do.
    pub fn reconfigure(
        &self,
        config: &Config,
        context: Context,
        generation: u64,
        unix_ms: u64,
    ) -> Result<(), String> {
        let mut inner = self.lock();
        inner.context = Arc::new(context);
        inner.keep_config(config, generation, unix_ms);
        inner.set_exporters(&config.logging)?;
        inner.distribute(vec![configured(unix_ms, generation)]);
        Ok(())
    }

    /// What each exporter has done.
    #[must_use]
    pub fn exporters(&self) -> Vec<ExporterReport> {
        self.lock().exporters.iter().map(Exporter::report).collect()
    }

    /// What the store has done, when there is one.
    #[must_use]
    pub fn store(&self) -> Option<StoreReport> {
        self.lock().store.as_ref().map(Store::report)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventSink for Service {
    fn begin(&mut self) {
        place(&self.lock().cores);
    }

    fn events(&mut self, batch: &[LoggedEvent]) {
        self.lock().events(batch);
    }

    fn tick(&mut self, unix_ns: u64, lost: u64) {
        self.lock().tick(unix_ns / 1_000_000, lost);
    }

    fn end(&mut self, unix_ns: u64) {
        let mut inner = self.lock();
        inner.distribute(vec![Record::new(unix_ns / 1_000_000, Kind::Stopped)]);
        // Each sends what it has, then ends.
        inner.exporters.clear();
        inner.store = None;
    }
}

impl Inner {
    fn set_exporters(&mut self, logging: &Logging) -> Result<(), String> {
        let identity = Identity {
            domain: logging.domain,
            host: self.host.clone(),
            enterprise: logging.enterprise,
            spool_dir: logging.spool_dir.clone(),
        };
        self.exporters
            .retain(|running| running.identity == identity && logging.exporters.contains(&running.config));
        for config in &logging.exporters {
            if self.exporters.iter().any(|running| running.config == *config) {
                continue;
            }
            let is_free = |number: &usize| self.exporters.iter().all(|running| running.number != *number);
            let number = (0..=self.exporters.len()).find(is_free).unwrap_or_default();
            let (identity, context) = (identity.clone(), Arc::clone(&self.context));
            self.exporters.push(Exporter::start(number, config.clone(), identity, context, &self.cores)?);
        }
        Ok(())
    }

    /// RFC 7422 §3: what ports were whose can be computed only from the configuration of the time.
    fn keep_config(&self, config: &Config, generation: u64, unix_ms: u64) {
        if let Some(store) = &self.store {
            store.configured(config.text(), generation, unix_ms);
        }
    }

    fn events(&mut self, batch: &[LoggedEvent]) {
        let Some(last) = batch.last() else { return };
        let mut records = Vec::with_capacity(batch.len() + 1);
        records.extend(self.clock_set(last.unix_ns.saturating_sub(last.at_ns), last.unix_ns / 1_000_000));
        records.extend(batch.iter().map(|logged| Record::of(logged, &self.context)));
        self.distribute(records);
    }

    /// Says so when the calendar left its pace: who asks about a time near it must know.
    fn clock_set(&mut self, offset_ns: u64, unix_ms: u64) -> Option<Record> {
        let before = self.offset_ns.replace(offset_ns)?;
        let by_ms = offset_ns.abs_diff(before) / 1_000_000;
        if by_ms < CLOCK_SET_MS {
            return None;
        }
        let backwards = offset_ns < before;
        tracing::warn!(
            "the machine's clock was set {by_ms} ms {}; answers about times near it name both candidates",
            if backwards { "back" } else { "forward" }
        );
        let value = u32::try_from(by_ms).unwrap_or(u32::MAX);
        Some(Record { value, count: u32::from(backwards), ..Record::new(unix_ms, Kind::ClockSet) })
    }

    fn tick(&mut self, unix_ms: u64, lost: u64) {
        let more = lost.saturating_sub(self.lost);
        self.lost = lost;
        if more > 0 {
            tracing::error!(
                "{more} NAT events are lost, because the logging thread was slower than the workers"
            );
            let count = u32::try_from(more).unwrap_or(u32::MAX);
            self.distribute(vec![Record { count, ..Record::new(unix_ms, Kind::EventsLost) }]);
        }
    }

    fn distribute(&mut self, records: Vec<Record>) {
        if records.is_empty() {
            return;
        }
        let batch = Arc::new(Batch { context: Arc::clone(&self.context), records });
        if let Some(store) = &self.store {
            store.take(&batch);
        }
        for exporter in &self.exporters {
            exporter.take(&batch);
        }
    }
}

fn configured(unix_ms: u64, generation: u64) -> Record {
    let value = u32::try_from(generation).unwrap_or(u32::MAX);
    Record { value, ..Record::new(unix_ms, Kind::Configured) }
}

/// Puts the calling thread where threads that log belong.
pub(crate) fn place(cores: &[usize]) {
    if let Err(why) = carrack_runtime::place_thread(cores) {
        tracing::error!(
            "a thread that logs runs anywhere, because {why}; choose others in logging.cores, or in workers.control_cores when that is empty"
        );
    }
}
