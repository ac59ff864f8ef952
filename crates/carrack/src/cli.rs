//! The command line: words, options and their help.

mod filter;

use std::path::PathBuf;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use carrack_api::Param as _;
use carrack_api::types::EVENT_KINDS;

pub use filter::{
    DeterministicArgs, FilterArgs, ListArgs, NetworkArgs, PacketArgs, PortMappingArgs, SubscriberArgs,
};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default())
    .placeholder(AnsiColor::Cyan.on_default());

/// Carrack, a software carrier edge: carrier-grade NAT on a DPDK data plane.
///
/// `carrack run` is the daemon. `show`, `clear`, `reload`, `trace` and `capture` talk to a running daemon over its local
/// socket. `check` validates a configuration file without touching anything. `lab` brings up a demonstration network,
/// `bench` measures.
#[derive(Debug, Parser)]
#[command(name = "carrack", version, styles = STYLES, propagate_version = true, after_help = ROOT_HELP)]
#[command(arg_required_else_help = true)]
pub struct Cli {
    /// The daemon's local socket.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "CARRACK_SOCKET",
        hide_env_values = true,
        default_value = carrack_api::client::DEFAULT_SOCKET,
        help_heading = "Global options"
    )]
    pub socket: PathBuf,

    /// Print JSON instead of text for people.
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const ROOT_HELP: &str = "\
Examples:
  carrack check examples/minimal.toml       is this configuration valid, and what would it be?
  sudo carrack run -c carrack.toml          start the daemon in the foreground
  carrack show nat sessions --inside 100.64.0.5
  carrack show counters                     where every packet went, and why some were dropped
  carrack capture -w drops.pcapng --drops-only
  sudo carrack lab demo                     a whole network to try it in

Exit codes:
  0  done
  1  the operation failed
  2  the command line or the configuration file is wrong
  3  the daemon cannot be reached";

/// The first word.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground.
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Validate a configuration file; touches nothing.
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Make the daemon read its configuration file again.
    #[command(after_help = RELOAD_HELP)]
    Reload,
    /// Show what the daemon knows.
    #[command(subcommand, after_help = SHOW_HELP, arg_required_else_help = true)]
    Show(Show),
    /// End sessions, or mappings that hosts asked for.
    #[command(subcommand, arg_required_else_help = true)]
    Clear(Clear),
    /// Show what each stage does to the next matching packets.
    #[command(after_help = TRACE_HELP)]
    Trace(TraceArgs),
    /// Capture packets, with the reasons of drops, into a pcapng file.
    #[command(after_help = CAPTURE_HELP)]
    Capture(CaptureArgs),
    /// Who had an outside address and port at that time, from the store of events.
    #[command(after_help = TRACE_BACK_HELP)]
    TraceBack(TraceBackArgs),
    /// What event logging costs.
    #[command(arg_required_else_help = true)]
    Log {
        /// What to do.
        #[command(subcommand)]
        command: LogCommand,
    },
    /// Demonstration networks in network namespaces.
    #[command(arg_required_else_help = true)]
    Lab(carrack_lab::cli::LabArgs),
    /// Measure forwarding speed and memory.
    #[command(arg_required_else_help = true)]
    Bench(crate::bench::BenchArgs),
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Print this command line's reference as Markdown.
    #[command(hide = true)]
    Reference,
}

/// How much the daemon logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum LogLevel {
    /// Only what stops it from working.
    Error,
    /// And what hurts.
    Warn,
    /// And what an operator does or should know.
    Info,
    /// And details, subscriber addresses among them.
    Debug,
    /// And single packets of the control plane.
    Trace,
}

/// `carrack run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration file.
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// How much to log, to standard error.
    #[arg(long, value_enum, default_value = "info", value_name = "LEVEL")]
    pub log: LogLevel,
}

const RUN_HELP: &str = "\
Stops cleanly on SIGTERM and SIGINT, also while it still starts; reads its configuration again on SIGHUP, as `carrack reload` does.
The socket is the one in the configuration's [api] table; --socket on the command line wins over it.

Examples:
  sudo carrack run -c /etc/carrack.toml
  sudo carrack run -c examples/minimal.toml --log debug";

/// `carrack check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file.
    pub file: PathBuf,
}

const CHECK_HELP: &str = "\
Prints every error with file, line and what to do, and exits with 2. On success it prints warnings and a summary.
The file may be for another machine: CPUs that this one does not have are warned of here, and refused at start.

Example:
  carrack check examples/isp.toml && sudo carrack reload";

const RELOAD_HELP: &str = "\
Prints every difference with what was applied in place and what was re-derived. Sessions that a change does not
concern go on, and packets wait for none: each worker first ends what the new configuration does not cover,
then all change over together.
A reload that has errors (exit code 2) or needs a restart (exit code 1) changes nothing at all.";

const SHOW_HELP: &str = "\
Examples:
  carrack show interfaces
  carrack show nat sessions --protocol tcp --tcp-state established --remote 203.0.113.0/24
  carrack show nat sessions --json | jq -c '.[] | [.inside, .outside_port]'
  carrack show counters --all";

/// `carrack show …`.
#[derive(Debug, Subcommand)]
pub enum Show {
    /// Interfaces: state, addresses, traffic.
    Interfaces(NetworkArgs),
    /// Neighbours: what ARP and neighbour discovery know.
    #[command(alias = "neighbors")]
    Neighbours(NetworkArgs),
    /// Routes of all routing instances.
    #[command(after_help = ROUTES_HELP)]
    Routes(NetworkArgs),
    /// Network address translation.
    #[command(subcommand, arg_required_else_help = true)]
    Nat(ShowNat),
    /// Stateless translators: prefixes and mappings.
    Siit,
    /// Port control: what hosts asked for by PCP and NAT-PMP.
    #[command(subcommand, arg_required_else_help = true)]
    Pcp(ShowPcp),
    /// Where every packet went: the conservation equation and drops by reason.
    #[command(after_help = COUNTERS_HELP)]
    Counters {
        /// Also show reasons that never happened.
        #[arg(long)]
        all: bool,
    },
    /// Workers: their CPUs, clocks per packet and stage, burst size, idle share; then the other threads.
    Workers,
    /// All threads of the daemon: what each does, and on which CPUs.
    Threads,
    /// The packet's way, stage by stage, with counts.
    Graph,
    /// The last events: port blocks, address bindings, mappings that hosts asked for, refusals, thresholds.
    #[command(after_help = EVENTS_HELP)]
    Events {
        /// Only events of this kind.
        #[arg(long, value_parser = EVENT_KINDS)]
        kind: Option<String>,
        /// Most events to show, the newest; 0 for all that are kept.
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: u64,
    },
    /// The configuration that runs.
    Config,
    /// Version and process of the daemon.
    Version,
    /// Is the daemon well?
    Health,
}

const EVENTS_HELP: &str = "\
Single mappings and sessions are told only where `log` of the instance asks for them. What happened long ago is in the
store of [logging.store]: `carrack trace-back`.

Examples:
  carrack show events --limit 10
  carrack show events --kind refused --json";

const ROUTES_HELP: &str = "\
Of all routes that hold an address, packets take the one with the longest prefix.

Examples:
  carrack show routes --address 203.0.113.10     which routes hold this address?
  carrack show routes --vrf business --limit 20";

const COUNTERS_HELP: &str = "\
The equation: received + handed in + originated = forwarded + punted + consumed + handed out + held + dropped.
Its balance (left minus right) is 0 whenever every packet is accounted for; anything else is a defect to report.
Severity tells what to do about a reason: info is a healthy network, warning hurts somebody, error is for a call at
night.";

/// `carrack show nat …`.
#[derive(Debug, Subcommand)]
pub enum ShowNat {
    /// Instances: prefixes, pools, blocks, sessions, limits.
    Instances,
    /// Pool addresses and their use.
    Pools(SubscriberArgs),
    /// Subscribers: paired address, sessions, port blocks.
    Subscribers(SubscriberArgs),
    /// Mappings: inside endpoint to outside endpoint.
    Mappings(ListArgs),
    /// Sessions; streams any number of rows without stopping traffic.
    #[command(after_help = SESSIONS_HELP)]
    Sessions(ListArgs),
    /// Tables, how full they are, and their memory, by NUMA socket.
    Memory,
    /// Who had an outside address and port, by deterministic NAT's arithmetic (RFC 7422), or the other way round.
    #[command(after_help = DETERMINISTIC_HELP)]
    Deterministic(DeterministicArgs),
}

const SESSIONS_HELP: &str = "\
Columns: the inside endpoint is the subscriber's, the outside endpoint is what the Internet sees of it, the remote
endpoint is the other party. EXPIRES is the time left if no packet comes.

Examples:
  carrack show nat sessions --inside 100.64.0.0/24 --protocol udp
  carrack show nat sessions --outside 198.51.100.7 --outside-port 40112     who is this?
  carrack show nat sessions --limit 20";

const DETERMINISTIC_HELP: &str = "\
Examples:
  carrack show nat deterministic --outside 198.51.100.7 --outside-port 40112
  carrack show nat deterministic --inside 100.64.3.9";

/// `carrack show pcp …`.
#[derive(Debug, Subcommand)]
pub enum ShowPcp {
    /// Mappings that hosts asked for, until when, and who may come in.
    #[command(after_help = PORT_MAPPINGS_HELP)]
    Mappings(PortMappingArgs),
}

const PORT_MAPPINGS_HELP: &str = "\
EXPIRES is the time left unless the host asks again. A `peer` mapping is for one remote endpoint, a `map` for everybody
or for whom FOR names.

Examples:
  carrack show pcp mappings
  carrack show pcp mappings --inside 100.64.0.5 --json";

/// `carrack clear pcp …`.
#[derive(Debug, Subcommand)]
pub enum ClearPcp {
    /// End mappings that hosts asked for; give --inside, or --all. Sessions over them go on.
    #[command(after_help = CLEAR_PCP_HELP)]
    Mappings {
        /// Inside address or prefix.
        #[arg(long, value_name = "PREFIX", value_parser = carrack_base::Prefix::parse)]
        inside: Option<carrack_base::Prefix>,
        /// End every one.
        #[arg(long)]
        all: bool,
    },
}

const CLEAR_PCP_HELP: &str = "\
Hosts are not told: they find out when they ask again.

Examples:
  carrack clear pcp mappings --inside 100.64.0.5
  carrack clear pcp mappings --all";

/// `carrack clear …`.
#[derive(Debug, Subcommand)]
pub enum Clear {
    /// Port control.
    #[command(subcommand, arg_required_else_help = true)]
    Pcp(ClearPcp),
    /// Network address translation.
    #[command(subcommand, arg_required_else_help = true)]
    Nat(ClearNat),
}

/// `carrack clear nat …`.
#[derive(Debug, Subcommand)]
pub enum ClearNat {
    /// End sessions that match; give at least one filter, or --all.
    #[command(after_help = CLEAR_HELP)]
    Sessions {
        /// Which.
        #[command(flatten)]
        filter: FilterArgs,
        /// End every session.
        #[arg(long)]
        all: bool,
    },
}

const CLEAR_HELP: &str = "\
Examples:
  carrack clear nat sessions --inside 100.64.0.5
  carrack clear nat sessions --instance cgn1 --all";

/// `carrack trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// Which packets.
    #[command(flatten)]
    pub packets: PacketArgs,
    /// Trace so many packets, then end.
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N")]
    pub count: u64,
    /// Also print each packet's first bytes in hexadecimal.
    #[arg(long)]
    pub bytes: bool,
}

const TRACE_HELP: &str = "\
Waits for matching packets; Ctrl-C ends it. Filters match the packet as it came in. There is one trace at a time: a
new one ends the one before.

Examples:
  carrack trace -n 3 --address 100.64.0.5 --protocol tcp
  carrack trace --interface outside --port 53";

/// `carrack capture`.
#[derive(Debug, Args)]
pub struct CaptureArgs {
    /// File to write; `-` for standard output.
    #[arg(short, long, value_name = "FILE")]
    pub write: PathBuf,
    /// Which packets.
    #[command(flatten)]
    pub packets: PacketArgs,
    /// Only packets that are dropped.
    #[arg(long)]
    pub drops_only: bool,
    /// Only packets dropped for this reason.
    #[arg(long, value_name = "REASON", value_parser = filter::reasons())]
    pub reason: Option<carrack_base::Reason>,
    /// Stop after so many packets; until Ctrl-C unless given.
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,
}

const CAPTURE_HELP: &str = "\
The file has one interface for each interface and point (NAME.rx, NAME.tx, NAME.drop); a drop's reason is the packet's
comment. A packet that passes is seen twice, before and after translation. Of each packet the first 512 bytes are kept.
Packets that come faster than they are written are left out of the file, never held up: the next one's drop count says
how many, and so does the last line. Four captures can run at once.

Examples:
  carrack capture -w all.pcapng -n 1000
  carrack capture -w drops.pcapng --reason nat-filtered
  carrack capture -w - --address 203.0.113.10 | tshark -r -
  tshark -r drops.pcapng -T fields -e frame.number -e ip.src -e frame.comment";

/// `carrack trace-back`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["outside", "subscriber"])))]
pub struct TraceBackArgs {
    /// Outside address, as the other end saw it.
    #[arg(value_name = "ADDRESS", requires = "port", requires = "at")]
    pub outside: Option<std::net::Ipv4Addr>,
    /// Outside port, or ICMP identifier.
    #[arg(value_name = "PORT")]
    pub port: Option<u16>,
    /// The time, like 2026-03-03T14:03:22.5Z or with an offset like +02:00.
    #[arg(long, value_name = "TIME", value_parser = carrack_natlog::time::parse_ms)]
    pub at: Option<u64>,
    /// Protocol; needed only where single mappings are logged.
    #[arg(long, value_name = "PROTOCOL", value_parser = filter::ip_protocol)]
    pub protocol: Option<u8>,
    /// The other way round: everything that this inside address had.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["outside", "at", "protocol"])]
    pub subscriber: Option<std::net::IpAddr>,
    /// With --subscriber: from then on; a day before --to unless given.
    #[arg(long, value_name = "TIME", requires = "subscriber", value_parser = carrack_natlog::time::parse_ms)]
    pub from: Option<u64>,
    /// With --subscriber: until then; now unless given.
    #[arg(long, value_name = "TIME", requires = "subscriber", value_parser = carrack_natlog::time::parse_ms)]
    pub to: Option<u64>,
    /// Directory of the store, as in `[logging.store]`.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/carrack/log")]
    pub store: PathBuf,
    /// Print comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// `carrack log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// How much a configuration will log, from a simulated day.
    #[command(after_help = ESTIMATE_HELP)]
    Estimate(EstimateArgs),
}

/// `carrack log estimate`.
#[derive(Debug, Args)]
pub struct EstimateArgs {
    /// Configuration file.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Subscribers, all instances together.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub subscribers: u64,
    /// Sessions of a subscriber in a day.
    #[arg(long, value_name = "N", default_value_t = carrack_natlog::estimate::SESSIONS_PER_DAY,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub sessions: u32,
    /// The first NAT instance in every mode, to compare them.
    #[arg(long)]
    pub modes: bool,
}

const ESTIMATE_HELP: &str = "\
Fifty simulated subscribers open sessions through the engine for a day: pages of thirty sessions at once, names, TCP and QUIC, more
of them in the evening than at night. What the engine tells is encoded as it would be stored and sent. The same every time.

Examples:
  carrack log estimate /etc/carrack/carrack.toml --subscribers 100000
  carrack log estimate examples/isp.toml --modes";

const TRACE_BACK_HELP: &str = "\
Reads the files of the store, of a running daemon or of one that is long gone; no daemon is asked. Needs a config with
[logging.store], or deterministic pools whose configuration the store kept. `sure` says whether anything in the log
speaks against the answer: events that were lost, a clock that was set, a daemon that died.

Exit code 1 says that nobody had it, 2 that the store cannot be read.

Examples:
  carrack trace-back 203.0.113.7 4711 --at 2026-03-03T14:03:22.5Z
  carrack trace-back 203.0.113.7 4711 --at 2026-03-03T15:03:22+01:00 --protocol udp --json
  carrack trace-back --subscriber 100.64.3.9 --from 2026-03-01T00:00Z --to 2026-03-02T00:00Z --csv";

const COMPLETIONS_HELP: &str = "\
Examples:
  carrack completions bash | sudo tee /usr/share/bash-completion/completions/carrack
  carrack completions zsh > ~/.zfunc/_carrack
  carrack completions fish > ~/.config/fish/completions/carrack.fish";

#[cfg(test)]
mod tests;
