//! What requests and answers look like. Addresses are strings in JSON, counts are packets unless the name says
//! otherwise, times carry their unit in the name.

mod counters;
mod live;
mod nat;
mod net;
mod port_control;
mod translation;

pub use crate::failure::ErrorBody;
pub use counters::{
    Counters, EngineCounter, Graph, GraphNode, NamedCount, ReasonCount, StageClocks, Thread, Worker,
    WorkerAccounts,
};
pub use live::{
    CapturedPacket, ConfigText, EVENT_KINDS, Event, Health, ReloadChange, ReloadReport, TraceRecord, Version,
};
pub use nat::{
    BatchDelete, Block, Deleted, Deterministic, Mapping, Memory, PoolAddress, Session, SessionKey, Subscriber,
};
pub use net::{AddressState, Interface, Neighbour, Route};
pub use port_control::PortMapping;
pub use translation::{
    AddressMapping, AddressShare, Behaviour, DropCount, Instance, Overflow, StateCount, Translator,
};
