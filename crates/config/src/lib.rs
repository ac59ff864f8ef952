//! Desired state: one TOML file, validation with line numbers, diff, generated reference.
//!
//! ```text
//! text → read (tables, by the table of keys) → parse (typed config) → check (what must fit together)
//!      → compile (ids, routes, policy: what the workers forward by)        diff (what a reload would do)
//! ```
//!
//! Every fault of a file is reported at once, with line and column, in a sentence that says what to do.
#![forbid(unsafe_code)]

mod check;
mod compile;
mod diff;
pub mod keys;
mod load;
mod model;
mod parse;
mod plan;
mod read;
mod reference;
mod source;
mod suggest;
mod value;

pub use compile::{Compiled, PortDevice, PortFacts, compile};
pub use diff::{Change, diff};
pub use model::{
    AdvertisingConfig, Api, ApiTcp, Attach, Config, DEFAULT_VRF, EventClass, ExportProtocol, ExportTransport,
    ExporterConfig, ExporterTls, ForwardConfig, HugePages, Idle, InterfaceConfig, Logging, Memory,
    MessageCompression, NatConfig, OneToOneConfig, OverflowConfig, PoolConfig, PortsConfig, RouteConfig,
    RouteTarget, SiitConfig, StoreConfig, SyslogFormat, System, Workers,
};
pub use plan::Deterministic;
pub use reference::reference;
pub use source::{At, ConfigError, Diagnostic, Severity, Span, Warning};
pub use value::{Endpoint, InterfaceAddress, InterfaceAddress6, PortRange};
