//! What crosses between a worker and the control plane: bounded single-producer single-consumer rings of fixed slots.

mod packets;

use std::net::IpAddr;
use std::sync::Arc;

use carrack_base::{IfIndex, InstanceId, Prefix, Proto, Reason};
use carrack_nat::Change;
/// From a worker to the logging thread.
pub use carrack_nat::row::NatNews;
use carrack_nat::row::{
    Filter, MappingRow, MemoryRow, PoolRow, SessionKey, SessionRow, SubscriberRow, TcpState,
};
use carrack_nat::{PortAsk, PortGrant, PortRefusal};
use carrack_wire::ethernet::MacAddr;
pub use packets::{PACKET_BYTES_MAX, PacketReceiver, PacketSender, packet_ring};

use crate::plan::Plan;
use crate::translators::TranslatorRow;

/// Bytes of packet a [`CaptureSlot`] carries.
pub const CAPTURE_BYTES: usize = 512;

/// Which rows a dump walks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// NAT sessions.
    Sessions,
    /// NAT mappings.
    Mappings,
    /// NAT subscribers.
    Subscribers,
    /// NAT pool addresses.
    Pools,
    /// NAT memory.
    Memory,
    /// NAT sessions, counted by instance, protocol and TCP state; the reader adds up what each turn of the walk tells.
    States,
    /// What stateless translators have done.
    Translators,
}

/// One row of a dump.
#[derive(Debug, Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "rows are copied into a preallocated ring, never boxed on the worker"
)]
pub enum Row {
    /// A session.
    Session(SessionRow),
    /// A mapping.
    Mapping(MappingRow),
    /// A subscriber.
    Subscriber(SubscriberRow),
    /// A pool address.
    Pool(PoolRow),
    /// A table's memory.
    Memory(MemoryRow),
    /// So many more sessions of a state.
    State(StateRow),
    /// A figure of a stateless translator.
    Translator(TranslatorRow),
}

/// Sessions of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateRow {
    /// Instance.
    pub instance: InstanceId,
    /// Protocol.
    pub proto: Proto,
    /// State; `TcpState::None` for other protocols.
    pub tcp: TcpState,
    /// How many.
    pub sessions: u32,
}

/// A walk over one table that runs a few lines at a time between bursts. Ends when the worker drops `rows`
/// (the consumer then reads `is_abandoned`) or when the consumer drops its end.
pub struct Dump {
    /// What to walk.
    pub table: Table,
    /// Which rows.
    pub filter: Filter,
    /// Delete matching sessions (only `Table::Sessions`) instead of only showing them; deleted rows are still sent.
    pub delete: bool,
    /// Stop after so many matching rows; 0 for all.
    pub rows_max: u64,
    /// Where rows go; a full ring pauses the walk.
    pub rows: rtrb::Producer<Row>,
}

/// Which packets a trace or capture takes; `None` matches all. Addresses and ports match either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PacketFilter {
    /// Interface it came in by.
    pub interface: Option<IfIndex>,
    /// Either address.
    pub address: Option<Prefix>,
    /// Protocol.
    pub proto: Option<Proto>,
    /// Either port.
    pub port: Option<u16>,
    /// Only packets that end in a drop, and only this one when `Some(Some(_))` (capture only).
    pub dropped: Option<Option<Reason>>,
}

/// Where a packet was captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapturePoint {
    /// As it came in.
    Rx,
    /// As it left.
    Tx,
    /// As it was when it was dropped.
    Drop(Reason),
}

/// A captured packet.
#[derive(Clone)]
pub struct CaptureSlot {
    /// Monotonic time, nanoseconds.
    pub at_ns: u64,
    /// Interface (incoming for `Rx` and `Drop`, outgoing for `Tx`).
    pub interface: IfIndex,
    /// Where.
    pub point: CapturePoint,
    /// Length on the wire.
    pub len: u16,
    /// Valid bytes of `bytes`.
    pub captured: u16,
    /// Copies that this worker could not deliver since the slot before: the reader was too slow.
    pub lost: u32,
    /// The first bytes.
    pub bytes: [u8; CAPTURE_BYTES],
}

/// Take packets until `packets_max` or until the consumer goes away.
pub struct Capture {
    /// Which.
    pub filter: PacketFilter,
    /// Take packets as they come in.
    pub rx: bool,
    /// Take packets as they leave.
    pub tx: bool,
    /// Take packets as they are dropped.
    pub drops: bool,
    /// Stop after so many.
    pub packets_max: u64,
    /// Where they go; a full ring loses the packet's copy and counts it.
    pub slots: rtrb::Producer<CaptureSlot>,
    /// Copies lost since the last one delivered; begins at 0.
    pub lost: u32,
}

/// One thing that happened to a traced packet.
#[derive(Clone)]
pub struct TraceStep {
    /// Which of the traced packets, from 1.
    pub packet: u32,
    /// Monotonic time, nanoseconds.
    pub at_ns: u64,
    /// Name of the stage.
    pub stage: &'static str,
    /// Interface known at that point.
    pub interface: IfIndex,
    /// What it decided.
    pub outcome: TraceOutcome,
    /// Length of the packet after the stage.
    pub len: u16,
    /// Its first bytes after the stage.
    pub bytes: [u8; TRACE_BYTES],
}

/// What a trace shows of a packet: two tags, an IPv6 header with an extension and TCP's flags fit.
pub const TRACE_BYTES: usize = 96;

/// What a stage decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceOutcome {
    /// Goes on to the next stage.
    Next,
    /// NAT session found.
    SessionHit(u32),
    /// NAT session made.
    SessionCreated(u32),
    /// Passed untranslated.
    Exempt,
    /// Translated for a hairpin, goes through the NAT again.
    Hairpin,
    /// Waits.
    Held,
    /// Left by an interface.
    Sent(IfIndex),
    /// Went up.
    Punted,
    /// Did its work here.
    Consumed,
    /// Went to another worker.
    HandedOver(u8),
    /// Dropped.
    Dropped(Reason),
}

/// Trace the next packets.
pub struct Trace {
    /// Which.
    pub filter: PacketFilter,
    /// How many packets.
    pub packets_max: u32,
    /// Where steps go.
    pub steps: rtrb::Producer<TraceStep>,
}

/// From the control plane to a worker.
#[allow(clippy::large_enum_variant, reason = "moved through a preallocated ring")]
pub enum Command {
    /// Make ready to forward by another plan, and go on by the old one meanwhile; answered by [`Event::Prepared`], and
    /// by [`Event::Preparing`] each second until then.
    Prepare {
        /// What to forward by.
        plan: Arc<Plan>,
        /// Its NAT, prepared for this worker and the policy it works by.
        change: Box<Change>,
    },
    /// Forward by the prepared plan of this generation from the next burst on; answered by [`Event::Reconfigured`].
    Commit {
        /// Snapshot generation.
        generation: u64,
    },
    /// Forget the prepared plan of this generation.
    Abandon {
        /// Snapshot generation.
        generation: u64,
    },
    /// A neighbour is known.
    SetNeighbour {
        /// On this interface.
        interface: IfIndex,
        /// Address.
        ip: IpAddr,
        /// Its MAC address.
        mac: MacAddr,
    },
    /// A neighbour is gone or did not answer; packets waiting for it are dropped.
    DropNeighbour {
        /// On this interface.
        interface: IfIndex,
        /// Address.
        ip: IpAddr,
    },
    /// Walk a table.
    Dump(Dump),
    /// Delete exactly these sessions; answered by [`Event::Deleted`].
    Delete {
        /// Echoed in the answer.
        request: u64,
        /// Which.
        keys: Vec<SessionKey>,
    },
    /// What a host asks of its mapping; the worker that owns the host answers by [`Event::Controlled`].
    Control {
        /// Echoed in the answer.
        request: u64,
        /// What.
        ask: PortAsk,
    },
    /// Capture packets.
    Capture(Capture),
    /// Trace packets.
    Trace(Trace),
}

/// From a worker to the control plane.
pub enum Event {
    /// Somebody must ask who has this address.
    Resolve {
        /// On this interface.
        interface: IfIndex,
        /// Address.
        ip: IpAddr,
    },
    /// Answer to [`Command::Delete`].
    Deleted {
        /// The request.
        request: u64,
        /// How many existed and are gone.
        count: u64,
    },
    /// The worker is at work on the tables for this generation.
    Preparing {
        /// Snapshot generation.
        generation: u64,
    },
    /// The worker has ended what this generation does not cover, and is ready to forward by it.
    Prepared {
        /// Snapshot generation.
        generation: u64,
    },
    /// Answer to [`Command::Control`].
    Controlled {
        /// The request.
        request: u64,
        /// What came of it.
        answer: Result<PortGrant, PortRefusal>,
    },
    /// The worker now forwards by this generation.
    Reconfigured {
        /// Snapshot generation.
        generation: u64,
        /// Sessions that the change ended.
        sessions_ended: u64,
    },
    /// A plan and tables out of use, to be freed away from the packet path.
    Retired {
        /// The plan.
        plan: Arc<Plan>,
        /// What the NAT had for it.
        change: Option<Box<Change>>,
    },
}
