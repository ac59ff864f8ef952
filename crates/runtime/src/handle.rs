//! What management may ask of a running daemon.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use carrack_base::counters::Accounts;
use carrack_base::{PortId, WorkerId};
use carrack_host::{NeighbourRow, OwnRow};
use carrack_nat::row::{Filter, MappingRow, MemoryRow, PoolRow, SessionKey, SessionRow, SubscriberRow};
use carrack_pipeline::WorkerStats;
use carrack_pipeline::mailbox::{CaptureSlot, Row, StateRow, Table, TraceStep};
use carrack_pipeline::snapshot::{Interface, Route, Route6, Snapshot};
use carrack_pipeline::translators::TranslatorRow;

use crate::daemon::Desired;
use crate::event_log::EventBatch;
use crate::plane::read_stats;
use crate::request::{CaptureSpec, DumpSpec, Reply, Request, RequestError, TraceSpec};
use crate::shared::{ControlCounters, EndReason, STREAMS_MAX, Shared, WorkerState, lock};
use crate::stats::{LoopStats, PortReport, Words, read_accounts};
use crate::stream::{Rows, Stream};

/// Longest wait for an answer of the control thread: more than it grants the workers.
const ANSWER: Duration = Duration::from_secs(15);

/// A door to the running daemon, for any thread. Methods may wait a few milliseconds for the control thread.
#[derive(Clone)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) requests: SyncSender<Request>,
    pub(crate) desired: Option<Arc<Mutex<Desired>>>,
}

/// A port with its link and counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortRow {
    /// Index.
    pub id: PortId,
    /// Name of the interface that declared it.
    pub name: String,
    /// Link and counters, a second old at most.
    pub report: PortReport,
    /// How often the link came back after it was lost.
    pub resumed: u64,
}

/// An interface with its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterfaceRow {
    /// The interface.
    pub interface: Interface,
    /// Name of its routing instance.
    pub vrf: String,
    /// The port it lives on.
    pub port: PortRow,
    /// Its IPv6 addresses and whether they may be used; none while it is down.
    pub own6: Vec<OwnRow>,
}

/// Where every packet went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// By worker.
    pub workers: Vec<Accounts>,
    /// All workers together.
    pub total: Accounts,
    /// Left minus right of the conservation law over all workers: 0, or the program has a defect. Each worker's accounts are
    /// taken between two bursts, where they balance.
    pub balance: i128,
    /// By port, with what the port itself missed.
    pub ports: Vec<PortRow>,
    /// The control plane.
    pub control: ControlCounters,
}

/// One worker's numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkerReport {
    /// Index.
    pub id: WorkerId,
    /// Does its thread live?
    pub state: WorkerState,
    /// Where its packets went.
    pub accounts: Accounts,
    /// How its loop spent its time.
    pub loops: LoopStats,
    /// What the pipeline measured: bursts, cycles by stage, table use.
    pub stats: WorkerStats,
}

impl Handle {
    /// What the workers forward by.
    #[must_use]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&lock(&self.shared.snapshot))
    }

    /// All interfaces, in config order.
    #[must_use]
    pub fn interfaces(&self) -> Vec<InterfaceRow> {
        let snapshot = self.snapshot();
        let own6 = Arc::clone(&lock(&self.shared.own6));
        let rows = snapshot.interfaces.iter().flatten().filter_map(|interface| {
            let vrf = snapshot.vrfs.get(interface.vrf.index()).cloned().unwrap_or_default();
            let port = self.port(&snapshot, interface.port)?;
            let own6 = own6.iter().filter(|own| own.interface == interface.id).copied().collect();
            Some(InterfaceRow { interface: interface.clone(), vrf, port, own6 })
        });
        rows.collect()
    }

    /// All IPv6 routes.
    #[must_use]
    pub fn routes6(&self) -> Vec<Route6> {
        self.snapshot().routes6.clone()
    }

    /// All IPv4 routes.
    #[must_use]
    pub fn routes(&self) -> Vec<Route> {
        self.snapshot().routes.clone()
    }

    /// All neighbours, by interface and address.
    ///
    /// # Errors
    /// [`RequestError`], as for every question that goes to the control thread.
    pub fn neighbours(&self) -> Result<Vec<NeighbourRow>, RequestError> {
        self.ask(|reply| Request::Neighbours { reply })
    }

    /// Sessions that match `filter`, at most `rows_max` (0: all).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn sessions(&self, filter: Filter, rows_max: u64) -> Result<Rows<SessionRow>, RequestError> {
        self.dump(Table::Sessions, filter, rows_max, |row| match row {
            Row::Session(row) => Some(row),
            _ => None,
        })
    }

    /// Mappings that match `filter`, at most `rows_max` (0: all).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn mappings(&self, filter: Filter, rows_max: u64) -> Result<Rows<MappingRow>, RequestError> {
        self.dump(Table::Mappings, filter, rows_max, |row| match row {
            Row::Mapping(row) => Some(row),
            _ => None,
        })
    }

    /// Subscribers that match `filter`, at most `rows_max` (0: all).
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn subscribers(&self, filter: Filter, rows_max: u64) -> Result<Rows<SubscriberRow>, RequestError> {
        self.dump(Table::Subscribers, filter, rows_max, |row| match row {
            Row::Subscriber(row) => Some(row),
            _ => None,
        })
    }

    /// All pool addresses, the workers' shares added up.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn pools(&self) -> Result<Vec<PoolRow>, RequestError> {
        let rows = self.dump(Table::Pools, Filter::default(), 0, |row| match row {
            Row::Pool(row) => Some(row),
            _ => None,
        })?;
        let mut sums: BTreeMap<_, PoolRow> = BTreeMap::new();
        for (_, row) in rows {
            let sum = sums.entry((row.instance, row.pool, row.ip));
            sum.and_modify(|sum| add_pool(sum, &row)).or_insert(row);
        }
        Ok(sums.into_values().collect())
    }

    /// Every worker's tables.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn memory(&self) -> Result<Vec<(WorkerId, MemoryRow)>, RequestError> {
        let rows = self.dump(Table::Memory, Filter::default(), 0, |row| match row {
            Row::Memory(row) => Some(row),
            _ => None,
        })?;
        // Workers answer side by side; what is read is one worker's tables after another's.
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|(worker, _)| *worker);
        Ok(rows)
    }

    /// How many sessions there are of each kind, all workers together.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn states(&self, filter: Filter) -> Result<Vec<StateRow>, RequestError> {
        let rows = self.dump(Table::States, filter, 0, |row| match row {
            Row::State(row) => Some(row),
            _ => None,
        })?;
        let mut sums: Vec<StateRow> = Vec::new();
        for (_, row) in rows {
            let same = |sum: &&mut StateRow| {
                (sum.instance, sum.proto, sum.tcp) == (row.instance, row.proto, row.tcp)
            };
            match sums.iter_mut().find(same) {
                Some(sum) => sum.sessions += row.sessions,
                None => sums.push(row),
            }
        }
        Ok(sums)
    }

    /// What stateless translators have done, the workers' figures one after the other.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn translators(&self) -> Result<Vec<TranslatorRow>, RequestError> {
        let rows = self.dump(Table::Translators, Filter::default(), 0, |row| match row {
            Row::Translator(row) => Some(row),
            _ => None,
        })?;
        Ok(rows.map(|(_, row)| row).collect())
    }

    /// Deletes the sessions that match `filter` and returns how many those were.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn clear_sessions(&self, filter: Filter) -> Result<u64, RequestError> {
        let spec = DumpSpec { table: Table::Sessions, filter, delete: true, rows_max: 0 };
        let stream = self.open(|reply| Request::Dump { spec, reply }, 0)?;
        Ok(stream.count() as u64)
    }

    /// Deletes exactly these sessions and returns how many of them existed.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn delete_sessions(&self, keys: Vec<SessionKey>) -> Result<u64, RequestError> {
        self.ask(|reply| Request::Delete { keys, reply })
    }

    /// Mappings that hosts asked for, by routing instance and host.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn port_mappings(&self) -> Result<Vec<carrack_pcp::MappingRow>, RequestError> {
        self.ask(|reply| Request::PortMappings { reply })
    }

    /// Ends the mappings that these hosts asked for, of all when `None`; how many those were.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn clear_port_mappings(&self, inside: Option<carrack_base::Prefix>) -> Result<u64, RequestError> {
        self.ask(|reply| Request::ClearPortMappings { inside, reply })
    }

    /// Captures packets until `packets_max` or until the stream is dropped.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn capture(&self, spec: CaptureSpec) -> Result<Stream<CaptureSlot>, RequestError> {
        self.open(|reply| Request::Capture { spec, reply }, spec.packets_max)
    }

    /// Traces packets until every worker has traced `packets_max` or until the stream is dropped.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn trace(&self, spec: TraceSpec) -> Result<Stream<TraceStep>, RequestError> {
        self.open(|reply| Request::Trace { spec, reply }, 0)
    }

    /// At most `max` events after number `after` (0: from the oldest kept); waits up to `wait` for the first.
    #[must_use]
    pub fn events(&self, after: u64, max: usize, wait: Duration) -> EventBatch {
        self.shared.events.read(after, max, wait)
    }

    /// Where every packet went.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let workers: Vec<Accounts> = self.workers().into_iter().map(|worker| worker.accounts).collect();
        let mut total = Accounts::default();
        for accounts in &workers {
            total.add(accounts);
        }
        let snapshot = self.snapshot();
        let ports = (0..self.shared.ports()).filter_map(|n| self.port(&snapshot, PortId(n as u16))).collect();
        let balance = total.balance();
        Counters { workers, total, balance, ports, control: *lock(&self.shared.host) }
    }

    /// Every worker's numbers.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerReport> {
        let boards = (0..self.shared.workers()).filter_map(|n| Some((n, self.shared.worker_board(n)?)));
        let report = |(n, board): (usize, &crate::board::Board)| {
            let values = board.read();
            let mut words = Words(&values);
            WorkerReport {
                id: WorkerId(n as u8),
                state: self.shared.worker_state(n),
                accounts: read_accounts(&mut words),
                loops: LoopStats::read(&mut words),
                stats: read_stats(&mut words),
            }
        };
        boards.map(report).collect()
    }

    /// Time since the daemon started.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.shared.clock.uptime()
    }

    /// Nanoseconds since 1970 of a monotonic time in a row, capture or event.
    #[must_use]
    pub fn unix_ns(&self, at_ns: u64) -> u64 {
        self.shared.clock.unix_ns(at_ns)
    }

    /// Asks the daemon to end; see `Runtime::wait`.
    pub fn shutdown(&self) {
        self.shared.stop(EndReason::Stopped);
    }

    /// Why the daemon ends, once it does; waits at most `timeout`.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Option<EndReason> {
        self.shared.wait(timeout)
    }

    fn port(&self, snapshot: &Snapshot, id: PortId) -> Option<PortRow> {
        let board = self.shared.port_board(id.index())?;
        let name = snapshot.ports.get(id.index()).map(|port| port.name.clone()).unwrap_or_default();
        let report = PortReport::read(&mut Words(&board.read()));
        Some(PortRow { id, name, report, resumed: self.shared.port_resumed(id.index()) })
    }

    fn dump<T>(
        &self,
        table: Table,
        filter: Filter,
        rows_max: u64,
        pick: fn(Row) -> Option<T>,
    ) -> Result<Rows<T>, RequestError> {
        let spec = DumpSpec { table, filter, delete: false, rows_max };
        Ok(Rows::new(self.open(|reply| Request::Dump { spec, reply }, rows_max)?, pick))
    }

    fn open<T>(
        &self,
        request: impl FnOnce(Reply<Vec<rtrb::Consumer<T>>>) -> Request,
        items_max: u64,
    ) -> Result<Stream<T>, RequestError> {
        if !self.shared.open_stream() {
            return Err(RequestError::Busy(format!(
                "{STREAMS_MAX} lists, captures or traces are open already; close one and try again"
            )));
        }
        // From here on the stream's own end counts it out, whatever happens.
        let rings = self.ask(request).inspect_err(|_| self.shared.close_stream())?;
        Ok(Stream::new(rings, items_max, Arc::clone(&self.shared)))
    }

    pub(crate) fn ask<T>(&self, request: impl FnOnce(Reply<T>) -> Request) -> Result<T, RequestError> {
        self.ask_within(ANSWER, request)
    }

    /// The same for what may take longer.
    pub(crate) fn ask_within<T>(
        &self,
        wait: Duration,
        request: impl FnOnce(Reply<T>) -> Request,
    ) -> Result<T, RequestError> {
        if self.shared.stopping() {
            return Err(RequestError::Stopped);
        }
        let (reply, answer) = sync_channel(1);
        self.requests.try_send(request(reply)).map_err(|error| match error {
            TrySendError::Full(_) => {
                RequestError::Busy("too many questions wait for the daemon already; try again later".into())
            }
            TrySendError::Disconnected(_) => RequestError::Stopped,
        })?;
        answer.recv_timeout(wait).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                RequestError::Timeout("the control thread does not answer; look at the daemon's log".into())
            }
            RecvTimeoutError::Disconnected => RequestError::Stopped,
        })?
    }
}

/// Adds another worker's share of a pool address.
fn add_pool(sum: &mut PoolRow, row: &PoolRow) {
    sum.subscribers += row.subscribers;
    sum.ports_total += row.ports_total;
    sum.blocks_total += row.blocks_total;
    sum.blocks_used += row.blocks_used;
    for (mine, theirs) in sum.ports_used.iter_mut().zip(&row.ports_used) {
        *mine += theirs;
    }
}
