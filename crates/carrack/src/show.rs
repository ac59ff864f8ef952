//! `carrack show …`.

mod nat;
mod network;
mod packets;
mod translation;

use std::io::{self, BufWriter, Write};

use carrack_api::client::Client;
use carrack_api::types::{ConfigText, Event, Health, Thread, Version, Worker};
use carrack_api::{CounterQuery, EventQuery, NoQuery, Params};

use crate::cli::{Show, ShowNat, ShowPcp};
use crate::fail::{Fail, Outcome};
use crate::human::{duration, number, plural, utc};
use crate::table::{Table, left, right};

pub fn run(client: &Client, what: Show, json: bool) -> Outcome {
    match what {
        Show::Interfaces(args) => answer(client, "/v1/interfaces", &args.query(), json, network::interfaces),
        Show::Neighbours(args) => answer(client, "/v1/neighbours", &args.query(), json, network::neighbours),
        Show::Routes(args) => rows(client, "/v1/routes", &args.query(), json, network::Routes::new()),
        Show::Nat(what) => nat(client, what, json),
        Show::Siit => answer(client, "/v1/siit", &NoQuery {}, json, translation::translators),
        Show::Pcp(ShowPcp::Mappings(args)) => {
            answer(client, "/v1/pcp/mappings", &args.query(), json, nat::port_mappings)
        }
        Show::Counters { all } => {
            let query = CounterQuery { nonzero: (!all).then_some(true) };
            answer(client, "/v1/counters", &query, json, packets::counters)
        }
        Show::Workers if json => {
            answer::<Vec<Worker>>(client, "/v1/workers", &NoQuery {}, json, packets::workers)
        }
        Show::Workers => workers(client),
        Show::Threads => answer(client, "/v1/threads", &NoQuery {}, json, packets::threads),
        Show::Graph => answer(client, "/v1/graph", &NoQuery {}, json, packets::graph),
        Show::Events { kind, limit } => {
            let query = EventQuery { kind, after: None, limit: Some(limit) };
            answer(client, "/v1/events", &query, json, events)
        }
        Show::Config => answer(client, "/v1/config", &NoQuery {}, json, config),
        Show::Version => answer(client, "/v1/version", &NoQuery {}, json, version),
        Show::Health => answer(client, "/v1/health", &NoQuery {}, json, health),
    }
}

/// Workers, and the threads beside them.
fn workers(client: &Client) -> Outcome {
    let mut out = BufWriter::new(io::stdout().lock());
    packets::workers(&mut out, client.get("/v1/workers", &NoQuery {})?)?;
    let mut threads: Vec<Thread> = client.get("/v1/threads", &NoQuery {})?;
    threads.retain(|thread| thread.role != "nat-worker");
    writeln!(out)?;
    packets::threads(&mut out, threads)?;
    out.flush()?;
    Ok(())
}

fn nat(client: &Client, what: ShowNat, json: bool) -> Outcome {
    match what {
        ShowNat::Instances => answer(client, "/v1/nat/instances", &NoQuery {}, json, translation::instances),
        ShowNat::Pools(args) => answer(client, "/v1/nat/pools", &args.filter(), json, nat::pools),
        ShowNat::Subscribers(args) => {
            rows(client, "/v1/nat/subscribers", &args.filter(), json, nat::Subscribers::new())
        }
        ShowNat::Mappings(args) => {
            rows(client, "/v1/nat/mappings", &args.filter(), json, nat::Mappings::new())
        }
        ShowNat::Sessions(args) => {
            rows(client, "/v1/nat/sessions", &args.filter(), json, nat::Sessions::new())
        }
        ShowNat::Memory => answer(client, "/v1/nat/memory", &NoQuery {}, json, nat::memory),
        ShowNat::Deterministic(args) => {
            answer(client, "/v1/nat/deterministic", &args.query(), json, nat::deterministic)
        }
    }
}

/// One JSON value, shown whole.
fn answer<T: serde::de::DeserializeOwned>(
    client: &Client,
    path: &str,
    query: &impl Params,
    json: bool,
    show: impl FnOnce(&mut dyn Write, T) -> io::Result<()>,
) -> Outcome {
    let mut out = BufWriter::new(io::stdout().lock());
    if json {
        out.write_all(&client.get_bytes(path, query)?)?;
        out.write_all(b"\n")?;
    } else {
        show(&mut out, client.get(path, query)?)?;
    }
    out.flush()?;
    Ok(())
}

/// How rows of a stream are shown, one by one.
trait ShowRows {
    /// What a row is.
    type Row: serde::de::DeserializeOwned;
    /// Shows a row.
    fn row(&mut self, out: &mut dyn Write, row: Self::Row) -> io::Result<()>;
    /// After the last row.
    fn finish(self, out: &mut dyn Write) -> io::Result<()>;
}

/// A stream of rows, none of them kept.
fn rows<S: ShowRows>(client: &Client, path: &str, query: &impl Params, json: bool, mut show: S) -> Outcome {
    let mut out = BufWriter::with_capacity(64 * 1_024, io::stdout().lock());
    if json {
        let mut stream = client.stream(path, query, "application/json")?;
        while let Some(chunk) = stream.next_chunk()? {
            out.write_all(&chunk)?;
        }
    } else {
        let stream = client.stream(path, query, "application/x-ndjson")?;
        stream.rows(|row| show.row(&mut out, row).map_err(Fail::from))?;
        show.finish(&mut out)?;
    }
    out.flush()?;
    Ok(())
}

fn events(out: &mut dyn Write, events: Vec<Event>) -> io::Result<()> {
    let columns = [
        right("SEQUENCE"),
        left("TIME (UTC)"),
        left("SEVERITY"),
        left("KIND"),
        left("INSTANCE"),
        left("EVENT"),
    ];
    let mut table = Table::new(&columns);
    for e in events {
        let instance = e.instance.unwrap_or_else(|| "-".into());
        table.row(vec![number(e.sequence), utc(e.unix_us), e.severity, e.kind, instance, e.text]);
    }
    table.print(out, "no events")
}

fn config(out: &mut dyn Write, config: ConfigText) -> io::Result<()> {
    writeln!(out, "# {} as loaded, generation {}", config.path, config.generation)?;
    out.write_all(config.toml.as_bytes())?;
    if config.toml.ends_with('\n') { Ok(()) } else { writeln!(out) }
}

fn version(out: &mut dyn Write, v: Version) -> io::Result<()> {
    writeln!(out, "{} {}, process {}, system {}", v.name, v.version, v.pid, v.system)
}

fn health(out: &mut dyn Write, h: Health) -> io::Result<()> {
    let Health { status, workers, generation, uptime_s, problems } = h;
    let uptime = duration(uptime_s);
    let workers = plural(workers.into(), "worker");
    writeln!(out, "{status}: up {uptime}, {workers}, configuration generation {generation}")?;
    problems.iter().try_for_each(|problem| writeln!(out, "  problem: {problem}"))
}
