//! `carrack log estimate`: how much a configuration will log.

use std::io::{self, Write};

use carrack_api::Failure;
use carrack_config::{Config, ExportProtocol, PortFacts, SyslogFormat};
use carrack_nat::policy::Instance;
use carrack_natlog::context::Context;
use carrack_natlog::estimate::{Sink, Volume, estimate, mode, modes};
use serde::Serialize;

use crate::cli::EstimateArgs;
use crate::fail::{Fail, Outcome};
use crate::human::{bytes, number};
use crate::table::{Table, left, right};

#[derive(Serialize)]
struct Report {
    subscribers: u64,
    sessions_per_subscriber_and_day: u32,
    rows: Vec<Row>,
    /// Of the whole configuration; none for `--modes`.
    totals: Vec<Total>,
}

/// One subscriber's day.
#[derive(Serialize)]
struct Row {
    instance: String,
    mode: String,
    events: f64,
    bytes: Vec<Bytes>,
}

#[derive(Serialize)]
struct Bytes {
    sink: &'static str,
    bytes: f64,
}

/// All subscribers' day in one place.
#[derive(Serialize)]
struct Total {
    name: String,
    sink: &'static str,
    bytes_per_day: f64,
    /// Of the store: all that it keeps.
    bytes_kept: Option<f64>,
}

pub fn run(args: &EstimateArgs, json: bool) -> Outcome {
    let fail = |text: String| Fail::Operation(Failure::internal(text));
    let faults = |faults: Vec<carrack_config::Diagnostic>| {
        faults.iter().for_each(|fault| eprintln!("{fault}"));
        Fail::Said(2)
    };
    let (config, _) = Config::from_file(&args.file).map_err(faults)?;
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).map_err(faults)?;
    let context = Context::of(&config, &compiled.snapshot);
    let instances = &compiled.snapshot.nat.instances;
    let cases: Vec<Instance> =
        if args.modes { instances.first().map(modes).unwrap_or_default() } else { instances.clone() };
    let mut rows = Vec::new();
    for (at, instance) in cases.iter().enumerate() {
        if !json {
            eprint!("\rsimulating a day: {} of {} ", at + 1, cases.len());
        }
        let volume = estimate(instance, &context, args.sessions).map_err(fail)?;
        rows.push(row(instance, &volume));
    }
    if !json {
        eprint!("\r{:40}\r", "");
    }
    let totals = if args.modes { Vec::new() } else { totals(&config, &rows, args.subscribers) };
    let report = Report {
        subscribers: args.subscribers,
        sessions_per_subscriber_and_day: args.sessions,
        rows,
        totals,
    };
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, &report).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(());
    }
    print(&mut out, &report)?;
    Ok(())
}

fn row(instance: &Instance, volume: &Volume) -> Row {
    let bytes = Sink::ALL.iter().zip(volume.bytes);
    Row {
        instance: instance.name.clone(),
        mode: mode(instance),
        events: volume.events,
        bytes: bytes.map(|(sink, bytes)| Bytes { sink: sink.name(), bytes }).collect(),
    }
}

/// Subscribers are taken to be spread evenly over the instances.
fn totals(config: &Config, rows: &[Row], subscribers: u64) -> Vec<Total> {
    let share = subscribers as f64 / rows.len().max(1) as f64;
    let of = |sink: Sink| {
        let each = rows.iter().flat_map(|row| &row.bytes).filter(|bytes| bytes.sink == sink.name());
        each.map(|bytes| bytes.bytes).sum::<f64>() * share
    };
    let store = config.logging.store.iter().map(|store| {
        let per_day = of(Sink::Store);
        let kept = (per_day * f64::from(store.keep_s) / 86_400.0).min(f64::from(store.max_mb) * 1e6);
        Total {
            name: store.dir.display().to_string(),
            sink: Sink::Store.name(),
            bytes_per_day: per_day,
            bytes_kept: Some(kept),
        }
    });
    let exporters = config.logging.exporters.iter().map(|exporter| {
        let sink = match (exporter.protocol, exporter.format) {
            (ExportProtocol::Ipfix, _) => Sink::Ipfix,
            (ExportProtocol::NetFlow9, _) => Sink::NetFlow9,
            (ExportProtocol::Radius, _) => Sink::Radius,
            (ExportProtocol::ClickHouse, _) => Sink::ClickHouse,
            (ExportProtocol::Kafka, _) => Sink::Kafka,
            (ExportProtocol::Syslog, SyslogFormat::Structured) => Sink::SyslogStructured,
            (ExportProtocol::Syslog, SyslogFormat::Compact) => Sink::SyslogCompact,
        };
        let name = exporter.name.value.clone();
        Total { name, sink: sink.name(), bytes_per_day: of(sink), bytes_kept: None }
    });
    store.chain(exporters).collect()
}

fn print(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    writeln!(
        out,
        "A subscriber's day of {} sessions (RFC 7422 §1 knows 33,000), bytes without transport headers:\n",
        number(report.sessions_per_subscriber_and_day.into())
    )?;
    let mut columns = vec![left("INSTANCE"), left("MODE"), right("EVENTS")];
    columns.extend(Sink::ALL.map(|sink| right(sink.name())));
    let mut table = Table::new(&columns);
    for row in &report.rows {
        let mut cells = vec![row.instance.clone(), row.mode.clone(), number(row.events.round() as u64)];
        cells.extend(row.bytes.iter().map(|bytes| number(bytes.bytes.round() as u64)));
        table.row(cells);
    }
    table.print(out, "no NAT instance")?;
    if report.totals.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{} subscribers:\n", number(report.subscribers))?;
    let mut table =
        Table::new(&[left("WHERE"), left("FORM"), right("A DAY"), right("MBIT/S"), right("KEPT")]);
    for total in &report.totals {
        table.row(vec![
            total.name.clone(),
            total.sink.into(),
            bytes(total.bytes_per_day as u64),
            format!("{:.3}", total.bytes_per_day * 8.0 / 86_400.0 / 1e6),
            total.bytes_kept.map_or_else(|| "-".into(), |kept| bytes(kept as u64)),
        ]);
    }
    table.print(out, "")
}
