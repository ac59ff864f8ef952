//! The running daemon as the API's backend: ids become names, rows become answers.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use carrack_api::types::{
    CapturedPacket, ConfigText, Counters, Deleted, Deterministic, EVENT_KINDS, EngineCounter, Event, Graph,
    Health, Instance, Interface, Mapping, Memory, Neighbour, PoolAddress, PortMapping, ReloadChange,
    ReloadReport, Route, Session, SessionKey, Subscriber, Thread, TraceRecord, Translator, Version, Worker,
};
use carrack_api::{
    Backend, DeterministicQuery, EventQuery, Failure, Kind, PacketQuery, PortMappingDelete, PortMappingQuery,
    RowFilter, Rows, Step, nearest,
};
use carrack_base::{IfIndex, InstanceId, Proto};
use carrack_config::Change;
use carrack_config::keys::Effect;
use carrack_nat::policy::Assignment;
use carrack_nat::row::{Endpoint, HostEndpoint, MemoryRow};
use carrack_natlog::Service;
use carrack_natlog::context::Context;
use carrack_pipeline::mailbox::PacketFilter;
use carrack_pipeline::snapshot::Snapshot;
use carrack_runtime::{
    CaptureSpec, EVENTS_KEPT, Handle, ReloadError, RequestError, TraceSpec, WorkerReport, WorkerState,
};

use super::rows::{self, Names};
use super::{summary, translation};

/// Packets of a trace unless told.
const TRACE_PACKETS: u64 = 10;
/// Longest silence of a stream.
const SILENCE: Duration = Duration::from_millis(100);

/// The daemon behind the API.
pub struct Daemon {
    handle: Handle,
    log: Service,
    system: String,
    /// Devices by the name of the interface that declares them; no reload changes them.
    devices: Vec<(String, String)>,
}

impl Daemon {
    pub fn new(handle: Handle, log: Service, system: String, devices: Vec<(String, String)>) -> Self {
        Self { handle, log, system, devices }
    }

    /// Lets the log follow a reload that was applied; returns what went wrong with it.
    fn reload_log(&self) -> Option<String> {
        let config = self.handle.desired_config()?;
        let context = Context::of(&config, &self.handle.snapshot());
        self.log.reconfigure(&config, context, self.handle.generation(), super::unix_ms()).err()
    }

    fn device(&self, port: &str) -> String {
        let named = self.devices.iter().find(|(name, _)| name == port);
        named.map_or_else(|| port.to_owned(), |(_, device)| device.clone())
    }

    /// The id of the instance with that name.
    fn instance(&self, snapshot: &Snapshot, name: &str) -> Result<InstanceId, Failure> {
        let instances = &snapshot.nat.instances;
        instances.iter().find(|i| i.name == name).map(|i| i.id).ok_or_else(|| {
            let names = instances.iter().map(|i| i.name.as_str());
            unknown("NAT instance", name, names, "carrack show config")
        })
    }

    fn filter(&self, filter: &RowFilter) -> Result<carrack_nat::row::Filter, Failure> {
        let snapshot = self.handle.snapshot();
        let instance = filter.instance.as_deref().map(|name| self.instance(&snapshot, name)).transpose()?;
        Ok(filter.compile(instance))
    }

    fn packets(&self, query: &PacketQuery) -> Result<PacketFilter, Failure> {
        let snapshot = self.handle.snapshot();
        let interface = query.interface.as_deref().map(|name| interface(&snapshot, name)).transpose()?;
        let dropped = match (query.reason, query.drops_only) {
            (Some(reason), _) => Some(Some(reason)),
            (None, Some(true)) => Some(None),
            _ => None,
        };
        Ok(PacketFilter {
            interface,
            address: query.address,
            proto: query.protocol,
            port: query.port,
            dropped,
        })
    }

    fn names(&self) -> Arc<Names> {
        Arc::new(Names::of(&self.handle.snapshot()))
    }

    /// Copies rows out of the daemon as they come.
    fn rows<T: 'static, U: 'static>(
        &self,
        mut rows: carrack_runtime::Rows<T>,
        convert: impl Fn(&Names, u8, T) -> U + Send + 'static,
    ) -> Rows<U>
    where
        carrack_runtime::Rows<T>: Send,
    {
        let names = self.names();
        Box::new(core::iter::from_fn(move || match rows.next_timeout(SILENCE) {
            carrack_runtime::Next::Item(worker, row) => Some(Ok(Step::Row(convert(&names, worker.0, row)))),
            carrack_runtime::Next::Idle => Some(Ok(Step::Idle)),
            carrack_runtime::Next::End => None,
        }))
    }
}

/// No such thing, and what was meant.
fn unknown<'a>(what: &str, name: &str, names: impl Iterator<Item = &'a str>, list: &str) -> Failure {
    let failure = Failure::not_found(format!("no {what} `{name}`"));
    match nearest(name, names.filter(|name| !name.is_empty())) {
        Some(near) => failure.hint(format!("did you mean `{near}`?")),
        None => failure.hint(format!("`{list}` lists them")),
    }
}

fn interface(snapshot: &Snapshot, name: &str) -> Result<IfIndex, Failure> {
    let all = || snapshot.interfaces.iter().flatten();
    all()
        .find(|i| i.name == name)
        .map(|i| i.id)
        .ok_or_else(|| unknown("interface", name, all().map(|i| i.name.as_str()), "carrack show interfaces"))
}

fn failure(error: RequestError) -> Failure {
    let text = error.to_string();
    // The runtime's sentences are "what; what to do".
    match text.split_once("; ") {
        Some((what, hint)) => Failure::unavailable(what).hint(hint),
        None => Failure::unavailable(text),
    }
}

fn limit(filter: &RowFilter) -> u64 {
    filter.limit.unwrap_or(0)
}

impl Backend for Daemon {
    fn version(&self) -> Version {
        Version {
            name: "carrack".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            system: self.system.clone(),
        }
    }

    fn health(&self) -> Health {
        let workers = self.handle.workers();
        let running = workers.iter().filter(|w| w.state == WorkerState::Running).count();
        let mut problems: Vec<String> = workers
            .iter()
            .filter(|w| w.state != WorkerState::Running)
            .map(|w| format!("worker {} has ended; see the daemon's log and restart it", w.id))
            .collect();
        let balance = self.handle.counters().balance;
        if balance != 0 {
            problems.push(format!("{balance} packets are unaccounted for: a defect, please report it"));
        }
        problems.extend(self.log.exporters().iter().filter(|e| !e.connected || e.lost > 0).map(|e| {
            if e.lost > 0 {
                format!("exporter {} lost {} events: its collector is too slow or away", e.name, e.lost)
            } else {
                format!("exporter {} cannot reach its collector; {} events wait", e.name, e.waiting)
            }
        }));
        if let Some(lost) = self.log.store().map(|store| store.lost).filter(|lost| *lost > 0) {
            problems.push(format!("the store lost {lost} events: its disk is full or too slow"));
        }
        let lost: u64 = workers.iter().map(|w| w.stats.events_lost).sum();
        if lost > 0 {
            problems.push(format!(
                "{lost} NAT events were lost before they could be logged; give the logging thread a core"
            ));
        }
        let interfaces = self.handle.interfaces();
        problems.extend(interfaces.iter().flat_map(rows::duplicates));
        problems.extend(
            interfaces
                .iter()
                .filter(|row| row.interface.up && !row.port.report.link.up)
                .map(|row| format!("interface {} has no link", row.interface.name)),
        );
        Health {
            status: if problems.is_empty() { "ok" } else { "degraded" }.into(),
            uptime_s: self.handle.uptime().as_secs(),
            generation: self.handle.generation(),
            workers: running as u32,
            problems,
        }
    }

    fn interfaces(&self) -> Result<Vec<Interface>, Failure> {
        let rows = self.handle.interfaces();
        Ok(rows.iter().map(|row| rows::interface(row, self.device(&row.port.name))).collect())
    }

    fn neighbours(&self) -> Result<Vec<Neighbour>, Failure> {
        let names = self.names();
        let rows = self.handle.neighbours().map_err(failure)?;
        Ok(rows.iter().map(|row| rows::neighbour(&names, row)).collect())
    }

    fn routes(&self) -> Result<Rows<Route>, Failure> {
        let names = self.names();
        let (four, names6) = (self.handle.routes().into_iter(), Arc::clone(&names));
        let four = four.map(move |row| rows::route::<_, _, Ipv4Addr>(&names, &row));
        let six = self.handle.routes6().into_iter();
        let six = six.map(move |row| rows::route::<_, _, Ipv6Addr>(&names6, &row));
        let nat64 = rows::routes_to_nat64(&self.handle.snapshot());
        Ok(Box::new(four.chain(six).chain(nat64).map(|route| Ok(Step::Row(route)))))
    }

    fn instances(&self) -> Result<Vec<Instance>, Failure> {
        let snapshot = self.handle.snapshot();
        let mut all = translation::instances(&snapshot);
        let everything = RowFilter::default();
        translation::add_pools(&mut all, &self.pools(&everything)?);
        translation::add_capacity(&mut all, &self.memory()?);
        for step in self.subscribers(&everything)? {
            if let Step::Row(row) = step? {
                translation::add_subscriber(&mut all, &row);
            }
        }
        let states = self.handle.states(carrack_nat::row::Filter::default()).map_err(failure)?;
        translation::add_states(&mut all, &states);
        Ok(all)
    }

    fn translators(&self) -> Result<Vec<Translator>, Failure> {
        let mut all = translation::translators(&self.handle.snapshot());
        translation::add_figures(&mut all, &self.handle.translators().map_err(failure)?);
        Ok(all)
    }

    fn pools(&self, filter: &RowFilter) -> Result<Vec<PoolAddress>, Failure> {
        let (names, compiled) = (self.names(), self.filter(filter)?);
        let rows = self.handle.pools().map_err(failure)?;
        let most = if limit(filter) == 0 { usize::MAX } else { limit(filter) as usize };
        let matching = rows.iter().filter(|row| {
            compiled.instance.is_none_or(|i| i == row.instance)
                && compiled.outside.is_none_or(|p| p.contains(row.ip))
        });
        Ok(matching.take(most).map(|row| rows::pool(&names, row)).collect())
    }

    fn subscribers(&self, filter: &RowFilter) -> Result<Rows<Subscriber>, Failure> {
        let rows = self.handle.subscribers(self.filter(filter)?, limit(filter)).map_err(failure)?;
        Ok(self.rows(rows, |names, worker, row| rows::subscriber(names, worker, &row)))
    }

    fn mappings(&self, filter: &RowFilter) -> Result<Rows<Mapping>, Failure> {
        let rows = self.handle.mappings(self.filter(filter)?, limit(filter)).map_err(failure)?;
        Ok(self.rows(rows, |names, worker, row| rows::mapping(names, worker, &row)))
    }

    fn sessions(&self, filter: &RowFilter) -> Result<Rows<Session>, Failure> {
        let rows = self.handle.sessions(self.filter(filter)?, limit(filter)).map_err(failure)?;
        Ok(self.rows(rows, |names, worker, row| rows::session(names, worker, &row)))
    }

    fn delete_sessions(&self, filter: &RowFilter) -> Result<Deleted, Failure> {
        let deleted = self.handle.clear_sessions(self.filter(filter)?).map_err(failure)?;
        Ok(Deleted { deleted })
    }

    fn port_mappings(&self, query: &PortMappingQuery) -> Result<Vec<PortMapping>, Failure> {
        let names = self.names();
        let rows = self.handle.port_mappings().map_err(failure)?;
        let fits = |row: &carrack_pcp::MappingRow| {
            query.inside.is_none_or(|prefix| prefix.contains(row.key.inside))
                && query.protocol.is_none_or(|proto| proto == row.key.proto())
        };
        let most = query.limit.filter(|limit| *limit > 0).map_or(usize::MAX, |limit| limit as usize);
        Ok(rows
            .iter()
            .filter(|row| fits(row))
            .take(most)
            .map(|row| rows::port_mapping(&names, row))
            .collect())
    }

    fn delete_port_mappings(&self, query: &PortMappingDelete) -> Result<Deleted, Failure> {
        let deleted = self.handle.clear_port_mappings(query.inside).map_err(failure)?;
        Ok(Deleted { deleted })
    }

    fn delete_session_keys(&self, keys: &[SessionKey]) -> Result<Deleted, Failure> {
        let snapshot = self.handle.snapshot();
        let key = |key: &SessionKey| {
            let proto = Proto::from_name(&key.protocol)
                .ok_or_else(|| Failure::bad_request(format!("`{}` is no protocol", key.protocol)))?;
            Ok(carrack_nat::row::SessionKey {
                instance: self.instance(&snapshot, &key.instance)?,
                proto,
                inside: HostEndpoint { ip: key.inside, port: key.inside_port },
                remote: Endpoint { ip: key.remote.into(), port: key.remote_port },
            })
        };
        let keys = keys.iter().map(key).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Deleted { deleted: self.handle.delete_sessions(keys).map_err(failure)? })
    }

    fn deterministic(&self, query: &DeterministicQuery) -> Result<Vec<Deterministic>, Failure> {
        let snapshot = self.handle.snapshot();
        let wanted = query.instance.as_deref().map(|name| self.instance(&snapshot, name)).transpose()?;
        let instances = snapshot.nat.instances.iter().filter(|i| wanted.is_none_or(|id| id == i.id));
        let deterministic =
            |i: &&carrack_nat::policy::Instance| matches!(i.assignment, Assignment::Deterministic { .. });
        if wanted.is_some() && !instances.clone().any(|i| deterministic(&i)) {
            return Err(Failure::bad_request("this instance does not assign ports deterministically")
                .hint("ask `show nat mappings` or the log who had an address and port"));
        }
        let answer = |i: &carrack_nat::policy::Instance| {
            let function = carrack_nat::Deterministic::of(i)?;
            let inside = match (query.inside, query.outside, query.outside_port) {
                (Some(inside), ..) => inside.into(),
                (None, Some(outside), Some(port)) => function.inverse(outside.into(), port)?,
                _ => return None,
            };
            let share = function.share(inside)?;
            Some(Deterministic {
                instance: i.name.clone(),
                inside: inside.into(),
                outside: Ipv4Addr::from(share.outside),
                port_first: share.first,
                port_last: share.last,
            })
        };
        Ok(instances.filter(deterministic).filter_map(answer).collect())
    }

    fn memory(&self) -> Result<Vec<Memory>, Failure> {
        let rows = self.handle.memory().map_err(failure)?;
        // Where it really is; where the kernel does not tell, where it was asked for.
        let socket = |worker, row: &MemoryRow| row.node.unwrap_or_else(|| self.handle.socket(worker));
        Ok(rows::memory(rows.iter().map(|(worker, row)| (socket(*worker, row), row))))
    }

    fn counters(&self) -> Result<Counters, Failure> {
        let counters = self.handle.counters();
        let mut answer = Counters::from_accounts(&counters.workers);
        rows::add_lost_by_devices(&mut answer, &counters.ports);
        let events_lost: u64 = self.handle.workers().iter().map(|w| w.stats.events_lost).sum();
        answer.engine = summary::control_counters(&counters.control);
        answer.engine.push(EngineCounter {
            name: "events-lost".into(),
            description: "NAT events lost because the logging thread was slow: nobody will be told of them."
                .into(),
            count: events_lost,
        });
        answer.engine.push(EngineCounter {
            name: "captures-lost".into(),
            description:
                "Copies of packets that a capture should have had, lost because its reader was slow.".into(),
            count: self.handle.workers().iter().map(|w| w.stats.captures_lost).sum(),
        });
        let workers = self.handle.workers();
        answer.engine.extend(summary::session_counters(workers.iter().map(|w| &w.stats)));
        answer.engine.extend(summary::gateway_counters(workers.iter().map(|w| &w.stats.gateways)));
        answer.engine.extend(self.log.store().iter().flat_map(summary::store_counters));
        answer.engine.extend(self.log.exporters().iter().flat_map(summary::exporter_counters));
        Ok(answer)
    }

    fn workers(&self) -> Result<Vec<Worker>, Failure> {
        let generation = self.handle.generation();
        let threads = carrack_runtime::threads();
        let worker = |report: &WorkerReport| Worker {
            thread: threads.iter().find(|row| row.is_of(report.id)).map(summary::thread),
            ..summary::worker(report, generation)
        };
        Ok(self.handle.workers().iter().map(worker).collect())
    }

    fn threads(&self) -> Result<Vec<Thread>, Failure> {
        Ok(carrack_runtime::threads().iter().map(summary::thread).collect())
    }

    fn graph(&self) -> Result<Graph, Failure> {
        Ok(summary::graph(&self.handle.counters().total))
    }

    fn events(&self, query: &EventQuery) -> Result<Vec<Event>, Failure> {
        if let Some(kind) = query.kind.as_ref().filter(|kind| !EVENT_KINDS.contains(&kind.as_str())) {
            return Err(Failure::bad_request(format!("no event is of kind `{kind}`"))
                .hint(format!("there are {}", EVENT_KINDS.join(", "))));
        }
        let names = self.names();
        let batch = self.handle.events(query.after.unwrap_or(0), EVENTS_KEPT, Duration::ZERO);
        let mut events: Vec<Event> = batch
            .events
            .iter()
            .map(|logged| rows::event(&names, logged))
            .filter(|event| query.kind.as_ref().is_none_or(|kind| *kind == event.kind))
            .collect();
        let most = query.limit.filter(|n| *n > 0).map_or(usize::MAX, |n| n as usize);
        Ok(events.split_off(events.len().saturating_sub(most)))
    }

    fn capture(&self, query: &PacketQuery) -> Result<Rows<CapturedPacket>, Failure> {
        let filter = self.packets(query)?;
        let packets_max = query.count.filter(|n| *n > 0).unwrap_or(u64::MAX);
        let whole = filter.dropped.is_none();
        let spec = CaptureSpec { filter, rx: whole, tx: whole, drops: true, packets_max };
        let mut stream = self.handle.capture(spec).map_err(failure)?;
        let (names, handle) = (self.names(), self.handle.clone());
        Ok(Box::new(core::iter::from_fn(move || match stream.next_timeout(SILENCE) {
            carrack_runtime::Next::Item(_, slot) => {
                Some(Ok(Step::Row(rows::captured(&names, handle.unix_ns(slot.at_ns), &slot))))
            }
            carrack_runtime::Next::Idle => Some(Ok(Step::Idle)),
            carrack_runtime::Next::End => None,
        })))
    }

    fn trace(&self, query: &PacketQuery) -> Result<Rows<TraceRecord>, Failure> {
        let filter = self.packets(query)?;
        if filter.dropped.is_some() {
            return Err(Failure::bad_request("a trace cannot know beforehand which packets are dropped")
                .hint(
                    "capture drops instead (`carrack capture --drops-only`), or trace without that filter",
                ));
        }
        let most = query.count.filter(|n| *n > 0).unwrap_or(TRACE_PACKETS);
        let spec = TraceSpec { filter, packets_max: u32::try_from(most).unwrap_or(u32::MAX) };
        let mut stream = self.handle.trace(spec).map_err(failure)?;
        let (names, handle) = (self.names(), self.handle.clone());
        let mut traced = rows::Traced::new(most);
        Ok(Box::new(core::iter::from_fn(move || {
            if traced.complete() {
                return None;
            }
            match stream.next_timeout(SILENCE) {
                carrack_runtime::Next::Item(worker, step) => Some(Ok(if traced.admits(worker.0, &step) {
                    Step::Row(rows::traced(&names, worker.0, handle.unix_ns(step.at_ns), &step))
                } else {
                    Step::Idle
                })),
                carrack_runtime::Next::Idle => Some(Ok(Step::Idle)),
                carrack_runtime::Next::End => None,
            }
        })))
    }

    fn config(&self) -> Result<ConfigText, Failure> {
        let (path, toml) =
            self.handle.config().ok_or_else(|| Failure::unavailable("this daemon runs without a file"))?;
        Ok(ConfigText { path: path.display().to_string(), generation: self.handle.generation(), toml })
    }

    fn reload(&self) -> Result<ReloadReport, Failure> {
        let refused = |changes: Vec<Change>, messages: Vec<String>| ReloadReport {
            applied: false,
            generation: self.handle.generation(),
            changes: changes.iter().map(change).collect(),
            sessions_ended: 0,
            messages,
        };
        match self.handle.reload(None) {
            Ok(report) => {
                let warnings = report.warnings.iter().map(ToString::to_string);
                Ok(ReloadReport {
                    applied: true,
                    generation: report.generation,
                    changes: report.changes.iter().map(change).collect(),
                    sessions_ended: report.sessions_ended,
                    messages: warnings.chain(self.reload_log()).collect(),
                })
            }
            Err(ReloadError::Config(errors)) => {
                Ok(refused(Vec::new(), errors.iter().map(ToString::to_string).collect()))
            }
            Err(ReloadError::NeedsRestart(changes)) => {
                let why = "these changes need a restart; restart the daemon, or take them back".into();
                Ok(refused(changes, vec![why]))
            }
            Err(ReloadError::Request(error)) => {
                let Failure { error, hint, .. } = failure(error);
                Err(Failure::new(Kind::Unavailable, error).hint(hint))
            }
        }
    }
}

fn change(change: &Change) -> ReloadChange {
    let (effect, detail) = match change.effect {
        Effect::InPlace => ("in-place", String::new()),
        Effect::ReDerived(what) => ("re-derived", what.to_owned()),
        Effect::NeedsRestart => ("needs-restart", String::new()),
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".into());
    ReloadChange {
        path: change.path.clone(),
        from: text(&change.from),
        to: text(&change.to),
        effect: effect.into(),
        detail,
    }
}
