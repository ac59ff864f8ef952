//! `carrack lab …` without the daemon: `cargo run -p carrack-lab --example lab -- demo --router linux-nft`.
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    lab: carrack_lab::cli::LabArgs,
}

fn main() -> ExitCode {
    carrack_lab::cli::run(Cli::parse().lab)
}
