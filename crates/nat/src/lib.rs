//! The NAT engine, sans-I/O: (packet bytes, now) to verdict.
//!
//! [`Nat`] is one worker's engine. It owns all state of the subscribers that hash to its worker; all that workers share is a
//! [`WorkerGroup`].
//! `flow` says what a packet is, `engine` finds its session and rewrites it, `create` makes sessions, `arrivals` those of
//! many packets at a time, `expire` ends them, `errors` carries ICMP errors across, `mediate` shows packets of control connections
//! to application gateways, `expectations` lets in whom those expect, `calls` and `esp` carry tunnels, `manage` shows and deletes, `change` takes a new policy into force; `pool` and `blocks` give out ports, `directory` knows
//! whose address is whose.
#![forbid(unsafe_code)]

mod adopt;
mod arrivals;
mod ask;
mod blocks;
mod calls;
mod change;
mod claims;
mod create;
mod crossing;
mod crossing6;
mod deterministic;
mod directory;
mod draws;
mod engine;
mod errors;
mod esp;
mod exact;
mod expectations;
mod expire;
mod explicit;
mod flow;
mod instances;
mod line;
mod manage;
mod mediate;
pub mod nat64;
mod needs;
mod ownership;
mod pins;
pub mod policy;
mod pool;
mod reconfigure;
mod renew;
mod rewrite;
mod rng;
pub mod row;
mod rules;
mod slices;
mod spis;
mod steering;
mod steps;
mod syn;
mod tables;
mod tcp;
mod told;
mod waits;
mod way;

pub use carrack_tables::Likely;
pub use change::{Change, Withdrawal};
pub use crossing::{Crossing, Crossings, common_state, common_state_from_inside, opened_by};
pub use crossing6::SixCrossing;
pub use deterministic::{Deterministic, Share};
pub use directory::{Directory, Embedded, Outside};
pub use engine::{Nat, Verdict};
pub use explicit::{PortAsk, PortGrant, PortRefusal, PortWish};
pub use flow::{Direction, Flow, Inside, Kind, packed_key};
pub use line::NONE as NO_LINE;
pub use manage::Cursor;
pub use mediate::{GatewayCounts, Mediated};
pub use needs::Extras;
pub use ownership::WorkerGroup;
pub use pins::{FILTERS_MAX, PortFilter, PortFilters};
pub use rng::Rng;
pub use steering::Steering;
pub use syn::{KEPT_BYTES, OverdueSyn};
pub use way::Way;
