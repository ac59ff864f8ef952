//! `carrack bench`: mounts the measurements of `carrack-bench`.

use std::process::ExitCode;

pub use carrack_bench::BenchArgs;

/// Measures.
pub fn run(args: BenchArgs) -> ExitCode {
    carrack_bench::run(args, false)
}
