//! What the server needs of the daemon.

use crate::failure::Failure;
use crate::filter::{
    DeterministicQuery, EventQuery, PacketQuery, PortMappingDelete, PortMappingQuery, RowFilter,
};
use crate::types::{
    CapturedPacket, ConfigText, Counters, Deleted, Deterministic, Event, Graph, Health, Instance, Interface,
    Mapping, Memory, Neighbour, PoolAddress, PortMapping, ReloadReport, Route, Session, SessionKey,
    Subscriber, Thread, TraceRecord, Translator, Version, Worker,
};

/// One step of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<T> {
    /// A row.
    Row(T),
    /// Nothing for now. A stream says so at least every 200 ms while it waits, so that the server can flush what it has
    /// and see whether the client is still there.
    Idle,
}

/// A stream of rows. `next` may block for up to 200 ms; dropping it ends the walk, capture or trace behind it.
pub type Rows<T> = Box<dyn Iterator<Item = Result<Step<T>, Failure>> + Send>;

/// The daemon as management sees it. Methods may block for a while: the server calls them on threads made for that.
#[allow(
    clippy::missing_errors_doc,
    reason = "each fails as the trait's page says: Failure with a kind and a hint"
)]
pub trait Backend: Send + Sync + 'static {
    /// What is running.
    fn version(&self) -> Version;
    /// Is it well?
    fn health(&self) -> Health;
    /// All interfaces in config order.
    fn interfaces(&self) -> Result<Vec<Interface>, Failure>;
    /// All neighbours.
    fn neighbours(&self) -> Result<Vec<Neighbour>, Failure>;
    /// All routes. Can be a full Internet table, hence a stream.
    fn routes(&self) -> Result<Rows<Route>, Failure>;
    /// All NAT instances with what is in use of each.
    fn instances(&self) -> Result<Vec<Instance>, Failure>;
    /// All stateless translators.
    fn translators(&self) -> Result<Vec<Translator>, Failure>;
    /// All pool addresses, summed over workers.
    fn pools(&self, filter: &RowFilter) -> Result<Vec<PoolAddress>, Failure>;
    /// Subscribers; `protocol`, ports, remote and TCP state of the filter are not asked.
    fn subscribers(&self, filter: &RowFilter) -> Result<Rows<Subscriber>, Failure>;
    /// Mappings; remote and TCP state of the filter are not asked.
    fn mappings(&self, filter: &RowFilter) -> Result<Rows<Mapping>, Failure>;
    /// Sessions.
    fn sessions(&self, filter: &RowFilter) -> Result<Rows<Session>, Failure>;
    /// Deletes all sessions that match; an empty filter means all.
    fn delete_sessions(&self, filter: &RowFilter) -> Result<Deleted, Failure>;
    /// Mappings that hosts asked for.
    fn port_mappings(&self, query: &PortMappingQuery) -> Result<Vec<PortMapping>, Failure>;
    /// Ends the mappings that these hosts asked for; of all without a prefix.
    fn delete_port_mappings(&self, query: &PortMappingDelete) -> Result<Deleted, Failure>;
    /// Deletes exactly these sessions; those already gone are not an error.
    fn delete_session_keys(&self, keys: &[SessionKey]) -> Result<Deleted, Failure>;
    /// The inverse (or forward) arithmetic of deterministic instances; no match is an empty list.
    fn deterministic(&self, query: &DeterministicQuery) -> Result<Vec<Deterministic>, Failure>;
    /// Memory of all tables, one row a NUMA socket and table.
    fn memory(&self) -> Result<Vec<Memory>, Failure>;
    /// Counters.
    fn counters(&self) -> Result<Counters, Failure>;
    /// All threads of the daemon.
    fn threads(&self) -> Result<Vec<Thread>, Failure>;
    /// Workers with clocks per stage.
    fn workers(&self) -> Result<Vec<Worker>, Failure>;
    /// The stage list with counts.
    fn graph(&self) -> Result<Graph, Failure>;
    /// The last events, oldest first.
    fn events(&self, query: &EventQuery) -> Result<Vec<Event>, Failure>;
    /// Captures packets until `query.count` or until the stream is dropped.
    fn capture(&self, query: &PacketQuery) -> Result<Rows<CapturedPacket>, Failure>;
    /// Traces packets until `query.count` packets or until the stream is dropped.
    fn trace(&self, query: &PacketQuery) -> Result<Rows<TraceRecord>, Failure>;
    /// The running configuration.
    fn config(&self) -> Result<ConfigText, Failure>;
    /// Reads the config file again and applies it. A refusal is a report with `applied` false and changes nothing.
    fn reload(&self) -> Result<ReloadReport, Failure>;
}
