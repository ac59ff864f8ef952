//! `carrack bench` alone, without the rest of the binary.

use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: carrack_bench::BenchArgs,
}

fn main() -> std::process::ExitCode {
    carrack_bench::run(Cli::parse().args, false)
}
