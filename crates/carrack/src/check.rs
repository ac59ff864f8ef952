//! `carrack check`.

use std::io::{self, Write};

use carrack_base::Range4;
use carrack_config::{
    At, Config, Deterministic, Diagnostic, NatConfig, PortFacts, PortsConfig, Severity, SiitConfig,
};
use carrack_runtime::{Budget, UsableCpus, available};
use serde::Serialize;

use crate::cli::CheckArgs;
use crate::fail::{Fail, Outcome};
use crate::human::{number, plural};
use crate::table::{Table, left, right};
use carrack_bench::Patience;

#[derive(Serialize)]
struct Report {
    valid: bool,
    diagnostics: Vec<Message>,
    summary: Option<Summary>,
}

#[derive(Serialize)]
struct Message {
    severity: &'static str,
    file: String,
    line: usize,
    column: usize,
    message: String,
}

#[derive(Serialize)]
struct Summary {
    system: String,
    workers: u8,
    interfaces: Vec<InterfaceSummary>,
    routes: usize,
    nat: Vec<NatSummary>,
    siit: Vec<SiitSummary>,
    sessions_max: u32,
    subscribers_max: u32,
    memory: MemorySummary,
    #[serde(skip)]
    budget: [String; 2],
}

/// What the daemon will reserve at its start, bytes.
#[derive(Serialize)]
struct MemorySummary {
    tables_per_worker: u64,
    ports_per_worker: u64,
    rest_per_worker: u64,
    packets: u64,
    total: u64,
}

#[derive(Serialize)]
struct InterfaceSummary {
    name: String,
    device: String,
    side: String,
    vrf: String,
    addresses: Vec<String>,
}

#[derive(Serialize)]
struct NatSummary {
    name: String,
    pools: usize,
    addresses: u64,
    ports: String,
    subscribers_max: Option<u64>,
    nat64_prefixes: Vec<String>,
}

#[derive(Serialize)]
struct SiitSummary {
    name: String,
    vrf: String,
    prefixes: Vec<String>,
    mappings: usize,
    ipv4: Vec<String>,
}

pub fn run(args: &CheckArgs, json: bool) -> Outcome {
    let patience = Patience::with(format!("reading {}", args.file.display()));
    let checked = Config::from_file(&args.file).and_then(|(config, mut warnings)| {
        // What only a compilation finds: limits on how many there may be.
        let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None)?;
        let budget = Budget::of(&config, &compiled);
        // The file may be for another machine: no fault, but worth a word.
        let elsewhere = UsableCpus::here().map(|usable| usable.missing(&config, Severity::Warning));
        warnings.extend(elsewhere.unwrap_or_default());
        warnings.extend(budget.warn(&config, &available()));
        warnings.sort_by_key(|warning| (warning.line, warning.column));
        Ok((config, budget, warnings))
    });
    drop(patience);
    let (valid, diagnostics, summary) = match checked {
        Ok((config, budget, warnings)) => (true, warnings, Some(Summary::of(&config, &budget))),
        Err(errors) => (false, errors, None),
    };
    let mut out = io::stdout().lock();
    if json {
        let diagnostics = diagnostics.iter().map(Message::of).collect();
        let report = Report { valid, diagnostics, summary };
        serde_json::to_writer_pretty(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        print_diagnostics(&diagnostics)?;
        if let Some(summary) = &summary {
            summary.print(&mut out)?;
        }
    }
    if valid { Ok(()) } else { Err(Fail::Said(2)) }
}

/// Errors and warnings as a compiler prints them, on standard error, and how many.
pub fn print_diagnostics(diagnostics: &[Diagnostic]) -> io::Result<()> {
    let mut err = io::stderr().lock();
    for diagnostic in diagnostics {
        writeln!(err, "{}\n", diagnostic.to_string().trim_end())?;
    }
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    match errors {
        0 => Ok(()),
        1 => writeln!(err, "1 error: this configuration cannot be used"),
        n => writeln!(err, "{n} errors: this configuration cannot be used"),
    }
}

impl Message {
    fn of(diagnostic: &Diagnostic) -> Self {
        Self {
            severity: match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            },
            file: diagnostic.file.clone(),
            line: diagnostic.line,
            column: diagnostic.column,
            message: diagnostic.message.clone(),
        }
    }
}

impl Summary {
    fn of(config: &Config, budget: &Budget) -> Self {
        let memory = &config.memory;
        Self {
            system: config.system.name.clone(),
            workers: config.workers.count,
            interfaces: config.interfaces.iter().map(InterfaceSummary::of).collect(),
            routes: config.routes.len(),
            nat: config.nat.iter().map(NatSummary::of).collect(),
            siit: config.siit.iter().map(SiitSummary::of).collect(),
            sessions_max: memory.sessions,
            subscribers_max: memory.subscribers,
            memory: MemorySummary {
                tables_per_worker: budget.tables,
                ports_per_worker: budget.ports,
                rest_per_worker: budget.beside(),
                packets: budget.packets,
                total: budget.total(),
            },
            budget: budget.lines(),
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let workers = plural(self.workers.into(), "worker");
        writeln!(out, "{}: valid, {workers}, {}\n", self.system, plural(self.routes as u64, "static route"))?;
        let columns = [left("INTERFACE"), left("SIDE"), left("VRF"), left("DEVICE"), left("ADDRESSES")];
        let mut table = Table::new(&columns);
        for i in &self.interfaces {
            let addresses = if i.addresses.is_empty() { "-".into() } else { i.addresses.join(" ") };
            table.row(vec![i.name.clone(), i.side.clone(), i.vrf.clone(), i.device.clone(), addresses]);
        }
        table.print(out, "no interfaces")?;
        writeln!(out)?;
        let columns = [
            left("NAT INSTANCE"),
            right("POOLS"),
            right("ADDRESSES"),
            left("PORTS OF A SUBSCRIBER"),
            right("SUBSCRIBERS AT MOST"),
        ];
        let mut table = Table::new(&columns);
        for n in &self.nat {
            let most = n.subscribers_max.map_or_else(|| "-".into(), number);
            let (pools, addresses) = (n.pools.to_string(), number(n.addresses));
            table.row(vec![n.name.clone(), pools, addresses, n.ports.clone(), most]);
        }
        table.print(out, "no NAT instances")?;
        self.print_translators(out)?;
        writeln!(
            out,
            "\nRoom for {} sessions and {} subscribers.",
            number(self.sessions_max.into()),
            number(self.subscribers_max.into())
        )?;
        self.budget.iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// A line for each NAT64 and each stateless translator.
    fn print_translators(&self, out: &mut dyn Write) -> io::Result<()> {
        let nat64 = self.nat.iter().filter(|nat| !nat.nat64_prefixes.is_empty());
        let nat64: Vec<String> =
            nat64.map(|nat| format!("NAT64 {}: {}", nat.name, prefixes(&nat.nat64_prefixes))).collect();
        let lines: Vec<String> = nat64.into_iter().chain(self.siit.iter().map(SiitSummary::line)).collect();
        if !lines.is_empty() {
            writeln!(out)?;
        }
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

/// Elements of a list that a line names.
const NAMED: usize = 4;

fn prefixes(all: &[String]) -> String {
    match all {
        [] => "no prefix".to_owned(),
        [one] => format!("prefix {one}"),
        more => format!("prefixes {}", listed(more)),
    }
}

/// The first of a list, and how many more there are.
fn listed(all: &[String]) -> String {
    let (first, rest) = all.split_at(all.len().min(NAMED));
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    format!("{}{more}", first.join(" "))
}

fn texts<T: ToString>(all: &[At<T>]) -> Vec<String> {
    all.iter().map(|at| at.value.to_string()).collect()
}

impl SiitSummary {
    fn of(siit: &SiitConfig) -> Self {
        Self {
            name: siit.name.value.clone(),
            vrf: siit.vrf.value.clone(),
            prefixes: texts(&siit.prefixes),
            mappings: siit.eam.len(),
            ipv4: texts(&siit.ipv4),
        }
    }

    fn line(&self) -> String {
        let mappings = plural(self.mappings as u64, "explicit mapping");
        let ipv4 = if self.ipv4.is_empty() { "no IPv4 networks".into() } else { listed(&self.ipv4) };
        format!("SIIT {} (vrf {}): {}; {mappings}; {ipv4}", self.name, self.vrf, prefixes(&self.prefixes))
    }
}

impl InterfaceSummary {
    fn of(interface: &carrack_config::InterfaceConfig) -> Self {
        use carrack_config::Attach;
        let device = match &interface.attach {
            Attach::Device(spec) => spec.value.to_string(),
            Attach::Parent { parent, vlan } => format!("{} vlan {}", parent.value, vlan_text(vlan.value)),
        };
        Self {
            name: interface.name.value.clone(),
            device,
            side: side_text(interface.side).into(),
            vrf: interface.vrf.value.clone(),
            addresses: own_addresses(interface),
        }
    }
}

/// `100`, `100.200` or nothing.
pub fn vlan_text(vlan: carrack_pipeline::snapshot::Vlan) -> String {
    use carrack_pipeline::snapshot::Vlan;
    match vlan {
        Vlan::None => String::new(),
        Vlan::Single(id) => id.to_string(),
        Vlan::Double { outer, inner, .. } => format!("{outer}.{inner}"),
    }
}

/// The word of a side.
pub fn side_text(side: carrack_pipeline::snapshot::Side) -> &'static str {
    use carrack_pipeline::snapshot::Side;
    match side {
        Side::Plain => "plain",
        Side::Inside => "inside",
        Side::Outside => "outside",
    }
}

impl NatSummary {
    fn of(nat: &NatConfig) -> Self {
        let sum = |ranges: &mut dyn Iterator<Item = Range4>| ranges.map(Range4::count).sum::<u64>();
        let addresses = sum(&mut nat.pools.iter().flat_map(|pool| pool.addresses.iter().map(|at| at.value)));
        // Every subscriber needs one block, or one port, to be one.
        let shares = |ports: u64, kept: u64| {
            let of_pool = |pool: &carrack_config::PoolConfig| {
                let range = u64::from(pool.ports.value.last - pool.ports.value.first) + 1;
                let range = range.saturating_sub(kept);
                range / ports.max(1) * sum(&mut pool.addresses.iter().map(|at| at.value))
            };
            nat.pools.iter().map(of_pool).sum::<u64>()
        };
        let (ports, subscribers_max) = match &nat.ports {
            PortsConfig::Blocks { size, per_subscriber, .. } => {
                let text = format!("blocks of {}, up to {per_subscriber}", size.value);
                (text, Some(shares(size.value.into(), 0)))
            }
            PortsConfig::Arbitrary => ("any free port".into(), None),
            PortsConfig::Deterministic { ports_per_subscriber, overflow } => {
                let wanted = ports_per_subscriber.as_ref().map(|n| n.value);
                let (own, most) = match (wanted, Deterministic::of(nat)) {
                    (Some(wanted), _) => (format!("{wanted} each"), None),
                    // These are for whom the instance lists, and for nobody else.
                    (None, Some(plan)) => {
                        (format!("{} each, as many as fit", plan.ports_most()), Some(plan.subscribers))
                    }
                    (None, None) => ("as many as fit".to_owned(), None),
                };
                let kept = overflow.as_ref().map_or(0, |overflow| u64::from(overflow.ports.value));
                let more = if kept > 0 { format!(", {kept} of an address for more") } else { String::new() };
                let most = most.or_else(|| wanted.map(|ports| shares(ports.into(), kept)));
                (format!("{own}, deterministic{more}"), most)
            }
        };
        Self {
            name: nat.name.value.clone(),
            pools: nat.pools.len(),
            addresses,
            ports,
            subscribers_max,
            nat64_prefixes: nat.nat64.as_ref().map_or_else(Vec::new, |nat64| texts(&nat64.prefixes)),
        }
    }
}

/// Own addresses as written, IPv4 before IPv6.
fn own_addresses(interface: &carrack_config::InterfaceConfig) -> Vec<String> {
    let four = interface.addresses.iter().map(|own| own.value.to_string());
    four.chain(interface.addresses6.iter().map(|own| own.value.to_string())).collect()
}
