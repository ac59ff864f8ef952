//! `carrack bench`.

use std::process::ExitCode;

use clap::Args;

/// Reproducible measurements.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure and how.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Measures.
pub fn run(args: BenchArgs) -> ExitCode {
    let _ = args;
    eprintln!("error: no benchmark is built into this binary");
    ExitCode::from(1)
}
