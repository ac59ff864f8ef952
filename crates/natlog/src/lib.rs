//! NAT events to those who must know: IPFIX, NetFlow v9, syslog, and a store on disk that answers who had an address and
//! port.
//!
//! ```text
//! workers ──rings──▶ logging thread ──▶ [`Service`] ──▶ store: journal, then columnar files
//!                    (runtime)                    └──▶ exporters: a bounded queue and a thread each
//! ```
//!
//! Nobody below the logging thread waits for anybody above it: a full ring, queue or disk is a counted loss.
#![forbid(unsafe_code)]

pub mod clickhouse;
pub mod context;
pub mod estimate;
mod exporter;
pub mod flow;
pub mod history;
pub mod kafka;
mod link;
pub mod radius;
pub mod record;
pub mod search;
mod service;
mod store;
pub mod syslog;
pub mod time;

pub use exporter::ExporterReport;
pub use service::Service;
pub use store::StoreReport;
