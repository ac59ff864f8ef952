//! Reproducible measurements: `carrack bench`.
//!
//! Everything runs in process, over memory, without root. The generator writes each packet anew; what it costs is
//! measured in the same run by a pass without the router and reported beside the result, never taken off it; so is the
//! memory that it looks into.
#![forbid(unsafe_code)]

/// Standard output as results are printed to it: who does not read on is no error, a full disk is one.
macro_rules! println {
    () => { $crate::report::say(format_args!("")) };
    ($($what:tt)*) => { $crate::report::say(format_args!($($what)*)) };
}

mod capacity;
mod churn;
mod cli;
mod clock;
mod crew;
mod forward;
mod gateways;
mod generator;
mod generator6;
mod generator_cost;
mod histogram;
mod labs;
mod latency;
mod layout;
mod log;
mod logcost;
mod machine;
mod memory;
mod offered;
mod options;
mod progress;
mod report;
mod rfc2544;
mod rfc9693;
mod rig;
mod scratch;
mod setup;
mod stalls;
mod traceback;
mod world;

pub use cli::{BenchArgs, run};
pub use progress::Patience;
