//! `carrack trace-back`: who had this, from the store of events.

use std::io::{self, Write};
use std::net::IpAddr;

use carrack_api::Failure;
use carrack_natlog::search::{self, Answer, Holding, Question};
use carrack_natlog::time;
use serde::Serialize;

use crate::cli::TraceBackArgs;
use crate::fail::{Fail, Outcome};
use crate::table::{Table, left, right};

/// One answer, as JSON and CSV have it.
#[derive(Debug, Serialize)]
struct Row {
    subscriber: IpAddr,
    instance: String,
    what: &'static str,
    outside: std::net::Ipv4Addr,
    port_first: u16,
    port_last: u16,
    protocol: Option<u8>,
    from: Option<String>,
    to: Option<String>,
}

/// What `--json` prints for an address and port.
#[derive(Debug, Serialize)]
struct Found {
    found: Option<Row>,
    sure: bool,
    doubts: Vec<String>,
    others: Vec<IpAddr>,
    free_since: Option<String>,
    /// When the record begins; none when nothing is recorded.
    recorded_since: Option<String>,
}

pub fn run(args: &TraceBackArgs, json: bool) -> Outcome {
    let mut out = io::stdout().lock();
    match (args.outside, args.port, args.at, args.subscriber) {
        (Some(outside), Some(port), Some(at_ms), _) => {
            let question = Question { outside, port, at_ms, protocol: args.protocol };
            let answer = search::who(&args.store, &question).map_err(unreadable)?;
            print_answer(&mut out, &question, answer, args.csv, json)
        }
        (.., Some(subscriber)) => {
            let to_ms = args.to.unwrap_or_else(crate::daemon::unix_ms);
            let from_ms = args.from.unwrap_or_else(|| to_ms.saturating_sub(86_400_000));
            let all = search::of(&args.store, subscriber, from_ms, to_ms).map_err(unreadable)?;
            let rows: Vec<Row> = all.into_iter().map(row).collect();
            if json {
                print_json(&mut out, &rows)?;
            } else if args.csv {
                print_csv(&mut out, &rows)?;
            } else {
                print_table(&mut out, &rows)?;
            }
            Ok(())
        }
        // Invariant: the command line demands one or the other.
        _ => {
            Err(Fail::Usage(Failure::bad_request("neither an address and port with --at, nor --subscriber")))
        }
    }
}

fn unreadable(why: String) -> Fail {
    // Not 1, which says that nobody had it.
    Fail::Usage(Failure::internal(why))
}

fn print_answer(out: &mut dyn Write, question: &Question, answer: Answer, csv: bool, json: bool) -> Outcome {
    let Answer { holding, doubts, others, free_since_ms, reach_ms } = answer;
    let (free_since, recorded_since) = (free_since_ms.map(time::format_ms), reach_ms.map(time::format_ms));
    let sure = doubts.is_empty();
    let found = Found { sure, found: holding.map(row), doubts, others, free_since, recorded_since };
    let nobody = found.found.is_none();
    if json {
        print_json(out, &found)?;
    } else if csv {
        print_csv(out, found.found.as_slice())?;
    } else if let Some(row) = &found.found {
        print_row(out, row, &found)?;
    } else {
        let at = time::format_ms(question.at_ms);
        writeln!(
            out,
            "nobody had {} port {} at {at}, as far as the log knows",
            question.outside, question.port
        )?;
        if let Some(since) = &found.free_since {
            writeln!(out, "free since    {since}")?;
        }
        let recorded =
            found.recorded_since.as_deref().map_or("nothing".into(), |since| format!("since {since}"));
        writeln!(out, "recorded      {recorded}")?;
        print_doubts(out, &found)?;
    }
    if nobody { Err(Fail::Said(1)) } else { Ok(()) }
}

fn print_row(out: &mut dyn Write, row: &Row, found: &Found) -> io::Result<()> {
    writeln!(out, "subscriber    {} of {}", row.subscriber, row.instance)?;
    let ports = if row.port_first == row.port_last {
        format!("port {}", row.port_first)
    } else {
        format!("ports {}-{}", row.port_first, row.port_last)
    };
    writeln!(out, "had           {} {ports} ({})", row.outside, row.what)?;
    writeln!(out, "from          {}", row.from.as_deref().unwrap_or("before the log begins"))?;
    writeln!(out, "to            {}", row.to.as_deref().unwrap_or("no end in the log: it has it still"))?;
    print_doubts(out, found)
}

fn print_doubts(out: &mut dyn Write, found: &Found) -> io::Result<()> {
    let sure = if found.sure { "yes" } else { "no:" };
    writeln!(out, "sure          {sure}")?;
    for doubt in &found.doubts {
        writeln!(out, "  {doubt}")?;
    }
    for other in &found.others {
        writeln!(out, "  it may also have been {other}")?;
    }
    Ok(())
}

fn row(holding: Holding) -> Row {
    Row {
        subscriber: holding.subscriber,
        instance: holding.instance,
        what: holding.what,
        outside: holding.outside,
        port_first: holding.first,
        port_last: holding.last,
        protocol: (holding.protocol != 0).then_some(holding.protocol),
        from: (holding.from_ms != 0).then(|| time::format_ms(holding.from_ms)),
        to: holding.to_ms.map(time::format_ms),
    }
}

fn print_json(out: &mut dyn Write, value: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    writeln!(out)
}

const HEADER: [&str; 9] =
    ["subscriber", "instance", "what", "outside", "port_first", "port_last", "protocol", "from", "to"];

fn cells(row: &Row) -> [String; 9] {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        row.subscriber.to_string(),
        row.instance.clone(),
        row.what.into(),
        row.outside.to_string(),
        row.port_first.to_string(),
        row.port_last.to_string(),
        row.protocol.map(|protocol| protocol.to_string()).unwrap_or_default(),
        text(&row.from),
        text(&row.to),
    ]
}

/// No value holds a comma or a quote.
fn print_csv(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    writeln!(out, "{}", HEADER.join(","))?;
    rows.iter().try_for_each(|row| writeln!(out, "{}", cells(row).join(",")))
}

fn print_table(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    let mut table = Table::new(&[
        left("OUTSIDE"),
        right("FIRST"),
        right("LAST"),
        left("WHAT"),
        left("FROM"),
        left("TO"),
        left("INSTANCE"),
    ]);
    for row in rows {
        let [_, instance, what, outside, first, last, _, from, to] = cells(row);
        let or = |text: String, none: &str| if text.is_empty() { none.to_owned() } else { text };
        table.row(vec![outside, first, last, what, or(from, "before"), or(to, "still"), instance]);
    }
    table.print(out, "nothing in the log for that subscriber and time")
}
