//! `carrack lab …`.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use crate::bison;
use crate::checks::{self, exhibits};
use crate::command::{self, display};
use crate::compare::{self, FlowsArgs};
use crate::lab::{Lab, Options, in_namespace};
use crate::memif;
use crate::nat64;
use crate::plan::{self, Ns};
use crate::report::{self, Report, say};
use crate::rig::{self, pages};
use crate::router::{self, Io, Router};
use crate::siit;
use crate::traffic::{self, TrafficArgs};

/// Demonstration networks in network namespaces (need root).
#[derive(Debug, Args)]
pub struct LabArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Bring a lab up, try everything with real programs, report, and take it down again.
    Demo {
        #[command(flatten)]
        choice: Choice,
        /// Print one JSON document instead of the report.
        #[arg(long)]
        json: bool,
        /// Show whole tables instead of their first lines.
        #[arg(long)]
        full: bool,
    },
    /// Bring a lab up and leave it running, to play with.
    #[command(
        after_help = "Examples:\n  sudo carrack lab up\n  sudo carrack lab up --nat64 --name six\n  sudo carrack lab up --464xlat --name clat\n  sudo carrack lab up --siit --name dc"
    )]
    Up {
        #[command(flatten)]
        choice: Choice,
        /// The first subscriber has IPv6 alone and reaches the IPv4 servers by NAT64, by name through a DNS64 (Debian
        /// package unbound) in the second one.
        #[arg(long, group = "shape")]
        nat64: bool,
        /// The first subscriber has IPv4 alone, over a link that has IPv6 alone: a CLAT before it and the router's NAT64
        /// behind the link (464XLAT, RFC 6877).
        #[arg(long = "464xlat", group = "shape")]
        xlat: bool,
        /// The first subscriber is a server that has IPv6 alone, behind an IPv6 router; IPv4 clients reach it by an
        /// address of its own, without any state (SIIT, RFC 7915, RFC 7755).
        #[arg(long, group = "shape")]
        siit: bool,
        /// Print where everything is as JSON instead of what to try.
        #[arg(long)]
        json: bool,
    },
    /// Take a lab down; also clears what a killed one left.
    ///
    /// Whatever the name, huge pages that a killed `carrack lab memif` or `bison` had reserved are given back too.
    Down {
        #[command(flatten)]
        name: Name,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List labs.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a program in one of a lab's namespaces.
    #[command(after_help = "Example:\n  carrack lab exec sub1 -- curl http://www.example.net/")]
    Exec {
        #[command(flatten)]
        name: Name,
        /// sub1, sub2, lan, carrack, isp or inet.
        #[arg(value_parser = role)]
        ns: Ns,
        /// The program and its arguments, after `--`.
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
    /// The forwarding rate as DPDK's own test program sees it, over shared memory.
    ///
    /// Starts this daemon between two `dpdk-testpmd` (Debian package dpdk-dev): one generates 1 flow, then many, the
    /// other swaps addresses and ports and sends everything back. Shows what testpmd sent and received beside the
    /// daemon's own counters. Takes about 700 MiB of huge pages while it runs, which it reserves and gives back; killed, it
    /// leaves that to `carrack lab down` or to the next laboratory.
    #[command(
        after_help = "Examples:\n  sudo carrack lab memif\n  sudo carrack lab memif --flows 1,1000,65536 --seconds 10 --json"
    )]
    Memif {
        /// Flows to measure with, up to 65536; several make several measurements.
        #[arg(long, value_delimiter = ',', default_value = "1,10000", value_parser = clap::value_parser!(u32).range(1..=i64::from(memif::FLOWS_MAX)))]
        flows: Vec<u32>,
        /// Seconds of each measurement.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
        seconds: u32,
        /// Bytes of a frame with its checksum.
        #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(64..=1518))]
        frame: u16,
        /// Take testpmd as the reflector also where it must share the generator's CPU. Without this, a machine of two
        /// CPUs takes carrack's own reflector, which leaves the CPU to the generator when it has nothing to do.
        #[arg(long)]
        testpmd_reflector: bool,
        /// The carrack executable to measure; this one when not given.
        #[arg(long, value_name = "FILE")]
        carrack: Option<PathBuf>,
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// The published churn test: many sessions, steady traffic, and a management client that deletes sessions.
    ///
    /// Fills the sessions (16 source ports a subscriber, pool 10.82.0.0/22 in blocks of 256), sends through them at random
    /// to `dpdk-testpmd` (Debian package dpdk-dev), which sends everything back, and deletes random sessions through the
    /// management API meanwhile. Shows the published figures beside the measured ones, and whether the generator misses
    /// exactly the packets that carrack counted as dropped. Takes about 1.2 GiB of huge pages for 2 M sessions while it
    /// runs, which it reserves and gives back; killed, it leaves that to `carrack lab down` or to the next laboratory.
    #[command(
        after_help = "Examples:\n  sudo carrack lab bison\n  sudo carrack lab bison --sessions 65536 --seconds 5 --rate 500000 --deletions 20000 --json"
    )]
    Bison {
        /// Sessions; a subscriber has 16.
        #[arg(long, default_value_t = 2_097_152, value_parser = clap::value_parser!(u32).range(16..=2_097_152))]
        sessions: u32,
        /// Seconds of traffic and deletions.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
        /// Packets a second that the generator sends; as many as come back when not given.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        rate: Option<u64>,
        /// Most deletions a second; 0 for none.
        #[arg(long, default_value_t = 70_000)]
        deletions: u32,
        /// Seconds between the begins of two snapshots.
        #[arg(long, default_value_t = 5)]
        snapshot_every: u32,
        /// Bytes of a frame with its checksum.
        #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(68..=1518))]
        frame: u16,
        /// Frames without VLAN tag.
        #[arg(long)]
        untagged: bool,
        /// What is translated.
        #[arg(long, value_enum, default_value = "nat64")]
        translation: bison::Translation,
        /// The carrack executable to measure; this one when not given.
        #[arg(long, value_name = "FILE")]
        carrack: Option<PathBuf>,
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Carrack and the kernel's own NAT (nftables) in the same namespaces, side by side.
    ///
    /// One TCP connection each way, packets of 64 bytes, new connections a second, and memory a session. The packets
    /// come over veth from kernel senders: figures of the whole path, not of the NAT alone.
    #[command(
        after_help = "Examples:\n  sudo carrack lab compare\n  sudo carrack lab compare --io af-packet --json"
    )]
    Compare {
        /// How carrack takes packets from its interfaces.
        #[arg(long, value_enum, default_value = "af-xdp")]
        io: Io,
        /// Seconds of small packets.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=600))]
        seconds: u32,
        /// New connections of each of the two subscribers.
        #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u16).range(1..=i64::from(compare::FLOWS_MAX)))]
        flows: u16,
        /// The carrack executable to measure; this one when not given.
        #[arg(long, value_name = "FILE")]
        carrack: Option<PathBuf>,
        /// Print one JSON document instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Opens connections, for `compare`.
    #[command(hide = true)]
    Flows(FlowsArgs),
    /// Generates or reflects packets behind a shared-memory port, for the other laboratories.
    #[command(hide = true)]
    Traffic(TrafficArgs),
    /// Open a shell in one of a lab's namespaces.
    Shell {
        #[command(flatten)]
        name: Name,
        /// sub1, sub2, lan, carrack, isp or inet.
        #[arg(value_parser = role)]
        ns: Ns,
    },
}

#[derive(Debug, Args)]
struct Name {
    /// Name of the lab: 1 to 24 of a-z, 0-9 and -.
    #[arg(long, default_value = "demo")]
    name: String,
}

#[derive(Debug, Args)]
struct Choice {
    #[command(flatten)]
    name: Name,
    /// How carrack takes packets from its interfaces.
    #[arg(long, value_enum, default_value = "af-xdp")]
    io: Io,
    /// What routes: carrack, or the kernel's own NAT for comparison.
    #[arg(long, value_enum, default_value = "carrack")]
    router: Kind,
}

/// What a lab shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Nat44,
    Nat64,
    Xlat464,
    Siit,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Carrack,
    LinuxNft,
}

/// Does what the arguments say. Exit code 0 when all went well, 1 when something did not pass or failed, 2 when the
/// request itself cannot be met.
pub fn run(args: LabArgs) -> ExitCode {
    let result = match args.action {
        Action::Demo { choice, json, full } => demo(&choice, json, full),
        Action::Up { choice, nat64, xlat, siit, json } => {
            let shape = match (nat64, xlat, siit) {
                (true, ..) => Shape::Nat64,
                (_, true, _) => Shape::Xlat464,
                (.., true) => Shape::Siit,
                _ => Shape::Nat44,
            };
            up(&choice, shape, json)
        }
        Action::Down { name, json } => down(&name.name, json),
        Action::List { json } => list(json),
        Action::Exec { name, ns, command } => exec(&name.name, ns, &command),
        Action::Memif { flows, seconds, frame, testpmd_reflector, carrack, json } => {
            memif(flows, seconds, frame, testpmd_reflector, carrack, json)
        }
        Action::Bison {
            sessions,
            seconds,
            rate,
            deletions,
            snapshot_every,
            frame,
            untagged,
            translation,
            carrack,
            json,
        } => executable(carrack).and_then(|binary| {
            let options = bison::Options {
                binary,
                sessions: sessions.next_multiple_of(bison::PORTS),
                seconds,
                rate,
                deletions,
                snapshot_every,
                frame_bytes: frame,
                tagged: !untagged,
                translation,
            };
            churn(&options, json)
        }),
        Action::Compare { io, seconds, flows, carrack, json } => executable(carrack)
            .and_then(|binary| compare(&compare::Options { binary, io, seconds, flows }, json)),
        Action::Flows(args) => compare::flows(&args).map(|()| ExitCode::SUCCESS),
        Action::Traffic(args) => traffic::run(&args).map(|()| ExitCode::SUCCESS),
        Action::Shell { name, ns } => {
            let shell = std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned());
            exec(&name.name, ns, &[shell])
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("carrack lab: {error:#}");
        ExitCode::from(1)
    })
}

impl Choice {
    fn options(&self) -> Result<Options> {
        Ok(Options {
            name: self.name.name.clone(),
            router: match self.router {
                Kind::Carrack => Router::this_binary(self.io)?,
                Kind::LinuxNft => Router::LinuxNft,
            },
        })
    }
}

fn demo(choice: &Choice, json: bool, full: bool) -> Result<ExitCode> {
    command::note_interrupts();
    let started = Instant::now();
    let options = choice.options()?;
    let label = options.router.label();
    let tell = |text: &str| {
        if !json {
            say(text);
        }
    };
    tell(&format!(
        "Subscribers {} and {} reach the Internet through {label}, pool {}.\n",
        plan::SUB1,
        plan::SUB2,
        plan::POOL
    ));
    let mut lab = Lab::up(options)?;
    let up_seconds = started.elapsed().as_secs_f64();
    tell(&format!("  six namespaces, nine servers and the router are up after {up_seconds:.1} s"));
    let colour = report::colour();
    let checks = checks::run_all(&mut lab, |outcome| tell(&report::line(outcome, colour)));
    let exhibits = exhibits(&lab);
    for exhibit in &exhibits {
        tell(&report::exhibit(exhibit, if full { usize::MAX } else { 12 }));
    }
    let failed = checks.iter().any(|check| !check.passed);
    if failed && !json {
        say(&format!("\nEnd of the router's log:\n{}", command::tail(&lab.log("router"), 30).join("\n")));
    }
    let interrupted = command::interrupted();
    let tidy = lab.down().map_err(|error| format!("{error:#}"));
    let report = Report {
        router: label,
        checks,
        tidy,
        exhibits,
        seconds: started.elapsed().as_secs_f64(),
        interrupted,
    };
    if json {
        say(&serde_json::to_string_pretty(&report)?);
    } else {
        say(report.closing().trim_end());
    }
    Ok(ExitCode::from(u8::from(!report.passed())))
}

fn up(choice: &Choice, shape: Shape, json: bool) -> Result<ExitCode> {
    command::note_interrupts();
    let mut options = choice.options()?;
    match (&mut options.router, shape) {
        (_, Shape::Nat44) => {}
        (Router::LinuxNft, _) => {
            bail!("this lab needs carrack as the router: the kernel does not translate so")
        }
        (Router::Carrack { io, config, .. }, Shape::Nat64) => *config = nat64::config(*io),
        (Router::Carrack { io, config, .. }, Shape::Xlat464) => *config = siit::plat_config(*io),
        (Router::Carrack { io, config, .. }, Shape::Siit) => *config = siit::config(*io),
    }
    let mut lab = Lab::up(options)?;
    match shape {
        Shape::Nat44 => {}
        Shape::Nat64 => nat64::switch(&mut lab)?,
        Shape::Xlat464 => siit::switch_464xlat(&mut lab)?,
        Shape::Siit => siit::switch(&mut lab)?,
    }
    let name = lab.name().to_owned();
    let option = if name == "demo" { String::new() } else { format!(" --name {name}") };
    let dir = lab.dir().display().to_string();
    let carrack = matches!(lab.router(), Router::Carrack { .. });
    let socket = router::socket(lab.dir()).display().to_string();
    lab.keep()?;
    if json {
        let socket = carrack.then_some(socket);
        let namespaces = Ns::ALL.map(|ns| (ns.role(), ns.full_name(&name)));
        let namespaces: BTreeMap<_, _> = namespaces.into_iter().collect();
        say(&serde_json::json!({ "name": name, "dir": dir, "socket": socket, "namespaces": namespaces })
            .to_string());
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("Lab `{name}` is up. Config, logs and served files are in {dir}.\n\nTry:"));
    for (ns, line) in to_try(shape) {
        say(&format!("  carrack lab exec{option} {ns} -- {line}"));
    }
    say(&format!("  carrack lab shell{option} sub1"));
    if carrack {
        say(&format!("\n  export CARRACK_SOCKET={socket}"));
        if shape == Shape::Siit {
            say("  carrack show siit");
        }
        if shape == Shape::Xlat464 {
            say(&format!("  carrack show siit --socket {dir}/clat/api.sock"));
        }
        for line in [
            "show nat sessions",
            "show nat subscribers",
            "show counters",
            "show workers",
            "capture -w capture.pcapng",
        ] {
            say(&format!("  carrack {line}"));
        }
    }
    say(&format!("\nWhen done:\n  carrack lab down{option}"));
    Ok(ExitCode::SUCCESS)
}

/// What shows what a lab is for: namespace and command.
fn to_try(shape: Shape) -> Vec<(Ns, String)> {
    let page = (Ns::Sub1, format!("curl http://{}/", plan::SERVER_NAME));
    let trace = |target: &str| (Ns::Sub1, format!("traceroute -n {target}"));
    let speed = (Ns::Sub2, format!("iperf3 -c {}", plan::SERVER));
    match shape {
        Shape::Nat44 => {
            let inbound = format!("curl http://{}:{}/", plan::FORWARD_ADDRESS, plan::FORWARD_PORT);
            vec![page, trace(plan::SERVER), speed, (Ns::Inet, inbound)]
        }
        Shape::Nat64 => {
            let name = format!("dig AAAA {}", plan::SERVER_NAME);
            vec![page, trace(&nat64::by_prefix(plan::SERVER)), (Ns::Sub1, name), speed]
        }
        Shape::Xlat464 => {
            vec![page, trace(plan::SERVER), (Ns::Sub1, format!("iperf3 -c {}", plan::SERVER))]
        }
        Shape::Siit => {
            let (server, port) = (siit::SERVICE, siit::WEB_PORT);
            let from = nat64::by_prefix(plan::SERVER);
            vec![
                (Ns::Inet, format!("curl http://{server}:{port}/")),
                (Ns::Inet, format!("traceroute -n {server}")),
                (Ns::Sub1, format!("curl http://[{from}]/")),
                trace(&from),
            ]
        }
    }
}

fn memif(
    flows: Vec<u32>,
    seconds: u32,
    frame_bytes: u16,
    testpmd_reflector: bool,
    binary: Option<PathBuf>,
    json: bool,
) -> Result<ExitCode> {
    command::note_interrupts();
    let options =
        memif::Options { binary: executable(binary)?, flows, seconds, frame_bytes, testpmd_reflector };
    let report = memif::run(&options, |text| eprintln!("{text}"))?;
    if json {
        say(&serde_json::to_string_pretty(&report)?);
    } else {
        memif::print(&report);
    }
    let good = report.runs.iter().all(|run| run.loss_explained && run.conservation_ok);
    Ok(ExitCode::from(u8::from(!good)))
}

fn churn(options: &bison::Options, json: bool) -> Result<ExitCode> {
    command::note_interrupts();
    let report = bison::run(options, |text| eprintln!("{text}"))?;
    if json {
        say(&serde_json::to_string_pretty(&report)?);
    } else {
        bison::print(&report);
    }
    let stages = [&report.fill, &report.steady];
    if options.deletions > 0 && report.churned.deleted == 0 {
        bail!("no session was deleted: this was no test of churn; let it run longer (--seconds)");
    }
    // A port given anew under a packet takes the same deletion that loses others, and chance.
    let good = stages.iter().all(|stage| {
        stage.equal && stage.conservation_ok && stage.wrong == 0 && stage.reused <= stage.dropped / 10
    });
    Ok(ExitCode::from(u8::from(!good)))
}

fn compare(options: &compare::Options, json: bool) -> Result<ExitCode> {
    command::note_interrupts();
    let report = compare::run(options, |text| eprintln!("{text}"))?;
    if json {
        say(&serde_json::to_string_pretty(&report)?);
    } else {
        compare::print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

/// The daemon's executable: the one given, or this one.
fn executable(given: Option<PathBuf>) -> Result<PathBuf> {
    given.map_or_else(|| std::env::current_exe().context("cannot find this executable"), Ok)
}

fn down(name: &str, json: bool) -> Result<ExitCode> {
    if !plan::valid_name(name) {
        bail!("`{name}` cannot be a lab: names have 1 to 24 of a-z, 0-9 and -");
    }
    if !nix::unistd::geteuid().is_root() {
        bail!("taking a lab down needs root: run the same command with sudo");
    }
    let was_there = Lab::down_by_name(name)?;
    let given_back_mib = rig::clear_left();
    if given_back_mib > 0 && !json {
        say(&format!(
            "{given_back_mib} MiB of huge pages that a killed laboratory had reserved are given back."
        ));
    }
    say(&match (json, was_there) {
        (true, _) => serde_json::json!({ "name": name, "was_there": was_there, "huge_pages_given_back_mib": given_back_mib })
            .to_string(),
        (false, true) => format!("Lab `{name}` is down."),
        (false, false) => format!("There is no lab `{name}`; `carrack lab list` shows those there are."),
    });
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<ExitCode> {
    let labs = Lab::list();
    if json {
        let row = |(name, router, up): (String, String, bool)| serde_json::json!({ "name": name, "router": router, "up": up });
        say(&serde_json::Value::from_iter(labs.into_iter().map(row)).to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let left_mib = pages::left();
    if left_mib > 0 {
        say(&format!(
            "A killed laboratory has left {left_mib} MiB of huge pages reserved: give them back with `carrack lab down`.\n"
        ));
    }
    if labs.is_empty() {
        say("no labs; `carrack lab up` brings one up");
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("{:<24} {:<20} STATE", "NAME", "ROUTER"));
    for (name, router, in_use) in labs {
        let clear = || format!("dead: clear it with `carrack lab down --name {name}`");
        let state = if in_use { "up".to_owned() } else { clear() };
        say(&format!("{name:<24} {router:<20} {state}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Becomes the program.
fn exec(name: &str, ns: Ns, argv: &[String]) -> Result<ExitCode> {
    if !plan::valid_name(name) || !std::path::Path::new("/run/netns").join(ns.full_name(name)).exists() {
        bail!("there is no lab `{name}`: bring it up with `carrack lab up`, or see `carrack lab list`");
    }
    let words: Vec<&str> = argv.iter().map(String::as_str).collect();
    let line = in_namespace(name, ns, &words);
    let Some((program, args)) = line.split_first() else {
        bail!("no program given");
    };
    // So that `carrack show …` in there talks to this lab's daemon.
    let socket = router::socket(&crate::state::directory(name));
    let error = Command::new(program).args(args).env("CARRACK_SOCKET", socket).exec();
    bail!("cannot run `{}`: {error}", display(&line))
}

fn role(word: &str) -> Result<Ns, String> {
    Ns::from_role(word).ok_or_else(|| {
        let roles = Ns::ALL.map(Ns::role).join(", ");
        format!("a lab has the namespaces {roles}")
    })
}
