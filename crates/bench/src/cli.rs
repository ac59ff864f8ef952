//! The command line of `carrack bench`.

use std::process::ExitCode;

use carrack_base::text::grouped;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use crate::capacity::{CapacityArgs, CapacityReport, capacity};
use crate::churn::{ChurnArgs, ChurnReport, churn};
use crate::forward::{BenchError, ForwardSpec, Way, forward, sessions_per_mapping};
use crate::gateways::{GatewaysArgs, GatewaysReport, gateways};
use crate::generator::{Order, Translation};
use crate::labs::bison::bison;
use crate::labs::eantc::eantc;
use crate::labs::paper::paper;
use crate::labs::{LabArgs, LabReport};
use crate::latency::{LatencyArgs, LatencyReport, latency};
use crate::log::{LogArgs, LogReport, log};
use crate::logcost::{LogCostArgs, LogCostReport, log_cost};
use crate::machine::{MachineArgs, MachineReport, machine};
use crate::options::{number, seconds};
use crate::progress::Patience;
use crate::report::ForwardReport;
use crate::rfc9693::{Rfc9693Args, Rfc9693Report, rfc9693};
use crate::setup::{SetupArgs, SetupReport, setup};
use crate::stalls::{StallsArgs, StallsReport, stalls};
use crate::traceback::{TraceBackArgs, TraceBackReport, trace_back};
use crate::world::compatible;

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
    /// Forwarding rate with N sessions of NAT44 or NAT64, or stateless, in process: no NIC, no root
    ///
    /// Fills N sessions (16 ports a subscriber, 4 remote endpoints a port, port blocks of 512), then forwards UDP
    /// packets of them. Every packet is written anew before it is forwarded, which is part of the time measured; what
    /// that takes alone is measured in the same run and shown beside it, here and in every other measurement of packets.
    /// The generator's own tables are shown apart from the router's memory, with the lines of them it reads a packet;
    /// cache misses are not counted, for virtual machines seldom have the counters that this takes.
    #[command(after_help = "Examples:
  carrack bench forward --sessions 1000
  carrack bench forward --sessions 1000000 --workers 2 --direction both --seconds 10
  carrack bench forward --translation nat64 --sessions 2000000 --frame 128
  carrack --json bench forward --sessions 1000 --seconds 1 | jq .mpps")]
    Forward(ForwardArgs),
    /// New sessions a second: from empty, torn down, and with expiry at the same rate
    ///
    /// Makes sessions by their first packet until the tables are full, lets all of them expire, then makes new ones for
    /// some seconds while as many expire. Time is simulated, a few seconds a fill, so that the two rates are the same
    /// whatever they are. The times of bursts with and without expiry say what it adds to them.
    #[command(after_help = "Examples:
  carrack bench setup --mode pba
  carrack bench setup --mode arbitrary --sessions 1000000 --seconds 5
  carrack bench setup --mode static --sessions 1000000 --json | jq .sustained.m_per_s")]
    Setup(SetupArgs),
    /// By the method of RFC 9693: highest validated rate of new connections, throughput, tear-down rate
    ///
    /// A packet of each connection is sent once at a constant rate; then the far end answers each, and every answer must
    /// reach its subscriber by the entry that the first phase made. The highest rate without a loss in either is searched
    /// (RFC 2544 binary search), the table being emptied by management in between. Then throughput with all connections
    /// there, both ways and from inside, and how fast management deletes all of them.
    #[command(after_help = "Examples:
  carrack bench rfc9693
  carrack bench rfc9693 --translation nat64 --sessions 2000000 --workers 2
  carrack bench rfc9693 --sessions 100000 --json | jq .establishment_m_per_s")]
    Rfc9693(Rfc9693Args),
    /// How many sessions fit: fill rate, memory of each table, forwarding rate with all of them
    ///
    /// Says beforehand how much memory is needed and refuses when there is less. Memory is counted by table; what the
    /// process takes in all stands beside it.
    #[command(after_help = "Examples:
  carrack bench capacity --sessions 10000000
  carrack bench capacity --sessions 100000000 --json | jq .bytes_per_session
  carrack bench capacity --sessions 1000000 --mode static --ports 4 --remotes 1000")]
    Capacity(CapacityArgs),
    /// How long packets take through the pipeline at a share of its capacity
    ///
    /// Measures the capacity first, then offers a share of it, evenly spaced. Each packet has a time when it is due; what
    /// starts late counts as late (no coordinated omission), and so does what the kernel or the host of a virtual
    /// machine takes from the processor.
    #[command(after_help = "Examples:
  carrack bench latency --load 50%
  carrack bench latency --load 90% --sessions 10000000 --frame 1518
  carrack bench latency --load 50% --seconds 2 --json | jq .p99_us")]
    Latency(LatencyArgs),
    /// New control connections a second that an application gateway reads, each with a message that is rewritten
    ///
    /// Every packet is written anew, which is part of the time; the far end answers what it was told.
    #[command(after_help = "Examples:
  carrack bench gateways
  carrack bench gateways --protocol sip --connections 200000
  carrack bench gateways --json | jq .connections.m_per_s")]
    Gateways(GatewaysArgs),
    /// Steady traffic while a management client deletes sessions, which come back with their next packet
    ///
    /// The client takes snapshots of all sessions and deletes random ones of them in batches of 40 at most, by the commands that
    /// the API sends. The far end answers every packet. What generator and far end miss must be what the router counts.
    #[command(after_help = "Examples:
  carrack bench churn --sessions 1000000 --rate 70000
  carrack bench churn --sessions 2000000 --rate 30000 --load 80% --seconds 60
  carrack bench churn --sessions 100000 --json | jq '.lost, .missed, .drops'")]
    Churn(ChurnArgs),
    /// How long packets wait while sessions are listed and configurations reloaded
    ///
    /// Bursts of random sessions follow each other without a pause while management lists all sessions, then reloads with
    /// other timers, a larger pool, fewer ports and half the subscribers. Each burst is timed with what the worker does
    /// before the next. None should take a millisecond; the report says how long the longest took, and how often the kernel ran
    /// something else meanwhile, which is nobody's fault here.
    #[command(after_help = "Examples:
  carrack bench stalls
  carrack bench stalls --sessions 10000000
  carrack bench stalls --json | jq '.asked[] | {what, max_us, dropped}'")]
    Stalls(StallsArgs),
    /// Published: an appliance on 84 processors (2019), static NAT, 99.6 million sessions
    ///
    /// Set-up rate without loss (stepped, tables flushed between steps), fill, memory, throughput both ways without loss
    /// (RFC 2544 binary search) with 84, 260 and 1520 bytes and IMIX, latency at that load; each beside its published
    /// figure and that of one of its processors. Scaled to the memory there is, which it says.
    #[command(after_help = "Examples:
  carrack bench eantc
  carrack bench eantc --sessions 10000000
  carrack bench eantc --quick --json | jq .kpis")]
    Eantc(LabArgs),
    /// Published: a multicore NAT design on 16 cores (about 2014), 7.5 million sessions
    #[command(after_help = "Examples:
  carrack bench paper
  carrack bench paper --quick --json | jq .kpis")]
    Paper(LabArgs),
    /// Published: a NAT64 with two million sessions churned through management, 14 workers
    ///
    /// Fills the sessions, searches the rate without loss, then keeps steady traffic while a management client deletes
    /// up to 70,000 sessions a second.
    #[command(after_help = "Examples:
  carrack bench bison
  carrack bench bison --seconds 10
  carrack bench bison --quick --json | jq .kpis")]
    Bison(LabArgs),
    /// How fast NAT events reach the store on disk, what they take there, and how fast it answers
    ///
    /// Gives events to the service as the logging thread does, waits until the disk has them, packs them into columns, then asks
    /// who had what, before and after the files of each day are merged. What logging takes from a worker, `bench log-cost` tells.
    #[command(after_help = "Examples:
  carrack bench log
  carrack bench log --events sessions --count 50000000 --dir /var/tmp
  carrack bench log --json | jq .bytes_per_event")]
    Log(LogArgs),
    /// What telling the log takes from a worker: nothing, mappings, sessions, sessions with destinations
    ///
    /// Four tables side by side take turns, so that what else happens on the machine happens to all. The worker's own
    /// cycles count; what becomes of the events is another core's work, here they are thrown away.
    #[command(after_help = "Examples:
  carrack bench log-cost
  carrack bench log-cost --mode pba --sessions 200000
  carrack bench log-cost --json | jq '.costs[] | {told, more_percent}'")]
    LogCost(LogCostArgs),
    /// How long "who had this address and port?" takes over months of port block events
    ///
    /// Writes a store as a daemon leaves it that has merged its days, then asks: about any event, about a port that nobody
    /// ever had (each day is looked into), and what a subscriber had in a day; with what the kernel holds in memory of the
    /// files, and without.
    #[command(after_help = "Examples:
  carrack bench trace-back
  carrack bench trace-back --rows 1000000000 --days 365 --dir /var/tmp
  carrack bench trace-back --json | jq .every_day.max_ms")]
    TraceBack(TraceBackArgs),
    /// What this machine's memory allows: access times, random lines a second, packets a second that follow
    ///
    /// Takes up to half of the memory that is to be had, 16 GiB at most, for half a minute: the larger tables are, the longer
    /// their addresses take to translate, in virtual machines above all. `--quick` takes 256 MiB and seconds.
    #[command(after_help = "Examples:
  carrack bench machine
  carrack bench machine --quick --json | jq .bounds")]
    Machine(MachineArgs),
}

/// Options of `bench forward`.
#[derive(Debug, Args)]
pub struct ForwardArgs {
    /// Sessions in the tables, all workers together
    #[arg(long, default_value_t = 1_000_000, value_parser = number::<u32>(1..=200_000_000), allow_negative_numbers = true)]
    pub sessions: u32,
    /// Bytes of a frame, check sequence included; with nat64 and siit at least 80
    #[arg(long, default_value_t = 64, value_parser = number::<u32>(64..=1_522), allow_negative_numbers = true)]
    pub frame: u32,
    /// What is translated
    #[arg(long, value_enum, default_value_t = Translation::Nat44)]
    pub translation: Translation,
    /// Worker threads, each with its share of the sessions and its own generator
    #[arg(long, default_value_t = 1, value_parser = number::<u8>(1..=16), allow_negative_numbers = true)]
    pub workers: u8,
    /// Order in which sessions are visited
    #[arg(long, value_enum, default_value_t = OrderArg::Random)]
    pub order: OrderArg,
    /// Which way packets go
    #[arg(long, value_enum, default_value_t = Way::Out)]
    pub direction: Way,
    /// Seconds to measure
    #[arg(long, default_value_t = 5.0, value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: f64,
    /// Packets to measure instead of seconds, each worker (rounded up): for runs that can be compared by instructions
    #[arg(long, conflicts_with = "seconds", value_parser = number::<u64>(1..=u64::MAX), allow_negative_numbers = true)]
    pub packets: Option<u64>,
    /// Switch every application gateway on: what that costs traffic that none of them reads
    #[arg(long)]
    pub gateways: bool,
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
    if let Err(error) = is_possible(&args.what) {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let _patience = announce(&args.what);
    match args.what {
        What::Forward(args) => run_forward(&args, json || args.json),
        What::Setup(args) => setup(&args).finish(json || args.json, SetupReport::print, |r| r.ok),
        What::Log(args) => log(&args).finish(json || args.json, LogReport::print, |r| r.ok),
        What::LogCost(args) => log_cost(&args).finish(json || args.json, LogCostReport::print, |r| r.ok),
        What::TraceBack(args) => {
            trace_back(&args).finish(json || args.json, TraceBackReport::print, |r| r.ok)
        }
        What::Rfc9693(args) => rfc9693(&args).finish(json || args.json, Rfc9693Report::print, |r| r.ok),
        What::Capacity(args) => capacity(&args).finish(json || args.json, CapacityReport::print, |r| r.ok),
        What::Latency(args) => latency(&args).finish(json || args.json, LatencyReport::print, |r| r.ok),
        What::Gateways(args) => gateways(&args).finish(json || args.json, GatewaysReport::print, |r| r.ok),
        What::Churn(args) => churn(&args).finish(json || args.json, ChurnReport::print, |r| r.ok),
        What::Stalls(args) => stalls(&args).finish(json || args.json, StallsReport::print, |r| r.ok),
        What::Eantc(args) => run_lab(&args, json, eantc),
        What::Paper(args) => run_lab(&args, json, paper),
        What::Bison(args) => run_lab(&args, json, bison),
        What::Machine(args) => machine(&args).finish(json || args.json, MachineReport::print, |_| true),
    }
}

/// Says what is about to be done where that takes longer than two seconds and does not say so itself.
fn announce(what: &What) -> Option<Patience> {
    let ticks = match what {
        What::Machine(_) => "probing the memory".into(),
        What::Log(_) => "writing events".into(),
        What::Gateways(_) => "reading control connections".into(),
        What::Stalls(args) => {
            format!("asking for one thing after another, with {} sessions", grouped(args.sessions.into()))
        }
        What::Latency(LatencyArgs { sessions, seconds, .. })
        | What::Churn(ChurnArgs { sessions, seconds, .. }) => {
            eprintln!("filling {} sessions, then measuring for {seconds} s …", grouped((*sessions).into()));
            return None;
        }
        _ => return None,
    };
    Some(Patience::with(ticks))
}

/// What no machine could measure is a mistake on the command line.
fn is_possible(what: &What) -> Result<(), BenchError> {
    match what {
        What::Setup(args) => compatible(args.translation, args.mode),
        What::Rfc9693(args) => compatible(args.translation, args.mode),
        What::Capacity(args) => compatible(args.translation, args.mode),
        _ => Ok(()),
    }
}

fn run_lab(args: &LabArgs, json: bool, lab: fn(&LabArgs) -> Result<LabReport, BenchError>) -> ExitCode {
    lab(args).finish(json || args.json, LabReport::print, |r| r.ok)
}

/// How a measurement ends: its report printed, or why there is none.
trait Finish<R> {
    fn finish(self, json: bool, print: fn(&R), is_ok: fn(&R) -> bool) -> ExitCode;
}

impl<R: Serialize> Finish<R> for Result<R, BenchError> {
    fn finish(self, json: bool, print: fn(&R), is_ok: fn(&R) -> bool) -> ExitCode {
        match self {
            Ok(report) => {
                if json {
                    println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
                } else {
                    print(&report);
                }
                if is_ok(&report) { ExitCode::SUCCESS } else { ExitCode::from(1) }
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(1)
            }
        }
    }
}

fn run_forward(args: &ForwardArgs, json: bool) -> ExitCode {
    let spec = ForwardSpec {
        sessions: args.sessions,
        frame_bytes: args.frame.max(args.translation.frame_bytes_min()),
        translation: args.translation,
        workers: args.workers,
        order: if args.order == OrderArg::Random { Order::Random } else { Order::Sequential },
        direction: args.direction,
        seconds: args.seconds,
        packets: args.packets,
        gateways: args.gateways,
    };
    if !json {
        eprintln!(
            "{}, then measuring for {} …",
            if spec.translation == Translation::Siit {
                format!("{} flows without sessions", grouped(u64::from(spec.sessions)))
            } else {
                let sessions = grouped(u64::from(spec.sessions));
                format!("filling {sessions} sessions ({} a mapping)", sessions_per_mapping())
            },
            match spec.packets {
                Some(packets) => format!("{} packets", grouped(packets)),
                None => format!("{} s", spec.seconds),
            }
        );
    }
    forward(&spec).finish(json, ForwardReport::print, |report| report.conservation_ok)
}
