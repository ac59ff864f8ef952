//! Reproducible measurements: `carrack bench`.
//!
//! Everything runs in process, over memory, without root. The generator writes each packet anew; what it costs is
//! measured in the same run by a pass without the router and reported beside the result, never taken off it.
#![forbid(unsafe_code)]

mod cli;
mod forward;
mod generator;
mod report;
mod world;

pub use cli::{BenchArgs, run};
