//! What handles ask of the control thread.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use carrack_base::Prefix;
use carrack_host::{HostConfig, NeighbourRow};
use carrack_nat::Change;
use carrack_nat::row::{Filter, SessionKey};
use carrack_pcp::MappingRow;
use carrack_pipeline::Plan;
use carrack_pipeline::mailbox::{CaptureSlot, PacketFilter, Row, Table, TraceStep};
use rtrb::Consumer;

/// Why a question to the daemon got no answer: a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// The daemon ends or has ended.
    Stopped,
    /// Too much is under way; trying again later helps.
    Busy(String),
    /// A worker did not answer in time. Of a reload: all others work by the new configuration.
    Timeout(String),
    /// A worker could not do it; everything is as before.
    Refused(String),
}

impl std::fmt::Display for RequestError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stopped => f.write_str("the daemon is stopping; start it again to ask it"),
            Self::Busy(why) | Self::Timeout(why) | Self::Refused(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for RequestError {}

/// Which packets to capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureSpec {
    /// Which packets.
    pub filter: PacketFilter,
    /// As they come in.
    pub rx: bool,
    /// As they leave.
    pub tx: bool,
    /// As they are dropped.
    pub drops: bool,
    /// Stop after so many, all workers together.
    pub packets_max: u64,
}

/// Which packets to trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceSpec {
    /// Which packets.
    pub filter: PacketFilter,
    /// How many, of each worker.
    pub packets_max: u32,
}

/// A walk over a table of every worker.
pub(crate) struct DumpSpec {
    pub table: Table,
    pub filter: Filter,
    pub delete: bool,
    pub rows_max: u64,
}

/// What the daemon works by.
#[derive(Clone)]
pub(crate) struct InForce {
    pub plan: Arc<Plan>,
    pub host: HostConfig,
    pub port_control: carrack_pcp::Config,
}

/// What an applied configuration did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Applied {
    pub sessions_ended: u64,
}

pub(crate) type Reply<T> = SyncSender<Result<T, RequestError>>;

/// One question. Rings are handed out in worker order.
pub(crate) enum Request {
    Dump { spec: DumpSpec, reply: Reply<Vec<Consumer<Row>>> },
    Capture { spec: CaptureSpec, reply: Reply<Vec<Consumer<CaptureSlot>>> },
    Trace { spec: TraceSpec, reply: Reply<Vec<Consumer<TraceStep>>> },
    Delete { keys: Vec<SessionKey>, reply: Reply<u64> },
    Neighbours { reply: Reply<Vec<NeighbourRow>> },
    PortMappings { reply: Reply<Vec<MappingRow>> },
    ClearPortMappings { inside: Option<Prefix>, reply: Reply<u64> },
    Apply { new: Box<InForce>, changes: Vec<Box<Change>>, reply: Reply<Applied> },
}
