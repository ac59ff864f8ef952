//! The command line of `carrack bench`.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use crate::forward::{ForwardSpec, Way, forward, sessions_per_mapping};
use crate::generator::{HEADERS, Order};

/// Reproducible measurements.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// What to measure.
    #[command(subcommand)]
    pub what: What,
}

/// The measurements there are.
#[derive(Debug, Subcommand)]
pub enum What {
    /// NAT44 forwarding rate with N sessions, in process: no NIC, no root
    ///
    /// Fills N sessions (16 ports a subscriber, 4 remote endpoints a port, port blocks of 512), then forwards UDP
    /// packets of them. Every packet is written anew before it is forwarded, which is part of the time measured; what
    /// that takes alone is measured in the same run and shown beside it.
    #[command(after_help = "Examples:
  carrack bench forward --sessions 1000
  carrack bench forward --sessions 1000000 --workers 2 --direction both --seconds 10
  carrack --json bench forward --sessions 1000 --seconds 1 | jq .mpps")]
    Forward(ForwardArgs),
}

/// Options of `bench forward`.
#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// Sessions in the tables, all workers together
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=200_000_000))]
    pub sessions: u32,
    /// Bytes of a frame, check sequence included
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(64..=1_522))]
    pub frame: u32,
    /// Worker threads, each with its share of the sessions and its own generator
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub workers: u8,
    /// Order in which sessions are visited
    #[arg(long, value_enum, default_value_t = OrderArg::Random)]
    pub order: OrderArg,
    /// Which way packets go
    #[arg(long, value_enum, default_value_t = Way::Out)]
    pub direction: Way,
    /// Seconds to measure
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Packets to measure instead of seconds, each worker (rounded up): for runs that can be compared by instructions
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub packets: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The order as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// Any session, uniformly
    Random,
    /// In the order the sessions were made
    Sequential,
}

/// Runs it.
pub fn run(args: BenchArgs, json: bool) -> ExitCode {
    let What::Forward(args) = args.what;
    let json = json || args.json;
    if !(args.seconds > 0.0 && args.seconds <= 3_600.0) {
        eprintln!("error: --seconds must be above 0 and at most 3600");
        return ExitCode::from(2);
    }
    let spec = ForwardSpec {
        sessions: args.sessions,
        // Ethernet, IPv4 and UDP headers, 8 bytes of payload, check sequence: always below 64.
        frame_bytes: args.frame.max(HEADERS as u32 + 12),
        workers: args.workers,
        order: if args.order == OrderArg::Random { Order::Random } else { Order::Sequential },
        direction: args.direction,
        seconds: args.seconds,
        packets: args.packets,
    };
    if !json {
        eprintln!(
            "filling {} sessions ({} a mapping), then measuring for {} …",
            crate::report::grouped(u64::from(spec.sessions)),
            sessions_per_mapping(),
            match spec.packets {
                Some(packets) => format!("{} packets", crate::report::grouped(packets)),
                None => format!("{} s", spec.seconds),
            }
        );
    }
    match forward(&spec) {
        Ok(report) => {
            if json {
                println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            } else {
                report.print();
            }
            if report.conservation_ok { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}
