//! `carrack bench`.

use std::process::ExitCode;

use clap::Args;

/// Reproducible measurements.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure and how.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub rest: Vec<String>,
}

/// Measures.
pub fn run(args: BenchArgs, json: bool) -> ExitCode {
    let _ = (args, json);
    eprintln!("error: no benchmark is built into this binary");
    ExitCode::from(1)
}
