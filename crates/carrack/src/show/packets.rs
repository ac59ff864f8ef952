//! Counters, workers, the stage graph.

use std::io::{self, Write};

use carrack_api::types::{Counters, Graph, Thread, Worker};

use crate::human::{bytes, number, signed};
use crate::table::{Table, left, right};

pub fn counters(out: &mut dyn Write, c: Counters) -> io::Result<()> {
    let lines = [
        ("", "received", c.rx),
        ("+", "handed in", c.handed_in),
        ("+", "originated", c.originated),
        ("=", "forwarded", c.forwarded),
        ("+", "punted", c.punted),
        ("+", "consumed", c.consumed),
        ("+", "handed out", c.handed_out),
        ("+", "held", c.held),
        ("+", "dropped", c.dropped),
    ];
    let mut table = Table::new(&[left(" "), left("PACKETS"), right("COUNT")]);
    for (sign, name, count) in lines {
        table.row(vec![sign.into(), name.into(), number(count)]);
    }
    table.print(out, "")?;
    let verdict = if c.balance == 0 { "every packet is accounted for" } else { "A DEFECT: please report it" };
    writeln!(out, "\nbalance {}: {verdict}", signed(c.balance))?;
    let (rx, tx) = (bytes(c.rx_bytes), bytes(c.forwarded_bytes));
    let (missed, nombuf) = (number(c.nic_missed), number(c.nic_nombuf));
    writeln!(out, "{rx} received, {tx} forwarded")?;
    writeln!(out, "packets that devices missed: {missed}; that found no free buffer: {nombuf}\n")?;
    let mut table = Table::new(&[right("DROPPED"), left("SEVERITY"), left("REASON"), left("MEANING")]);
    for r in c.reasons {
        table.row(vec![number(r.count), r.severity, r.name, r.description]);
    }
    table.print(out, "nothing was dropped")?;
    if c.engine.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut table = Table::new(&[right("COUNT"), left("NAME"), left("MEANING")]);
    for e in c.engine {
        table.row(vec![number(e.count), e.name, e.description]);
    }
    table.print(out, "")
}

/// CPUs, or that they are not known.
fn cpus(thread: Option<&Thread>) -> String {
    thread.map(|thread| thread.cpus.clone()).filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| "-".into())
}

pub fn threads(out: &mut dyn Write, all: Vec<Thread>) -> io::Result<()> {
    let mut table =
        Table::new(&[left("THREAD"), left("ROLE"), left("CPUS"), right("LAST ON CPU"), right("ID")]);
    for t in all {
        let (cpus, last) = (cpus(Some(&t)), t.last_cpu.map_or_else(|| "-".into(), |cpu| cpu.to_string()));
        table.row(vec![t.name, t.role, cpus, last, t.id.to_string()]);
    }
    table.print(out, "no threads")
}

pub fn workers(out: &mut dyn Write, all: Vec<Worker>) -> io::Result<()> {
    let mut table = Table::new(&[
        right("WORKER"),
        left("STATE"),
        left("CPUS"),
        right("GENERATION"),
        right("PACKETS"),
        right("PACKETS/BURST"),
        right("CLOCKS/PACKET"),
        right("IDLE"),
        right("SESSIONS"),
        right("SUBSCRIBERS"),
    ]);
    for w in &all {
        table.row(vec![
            w.worker.to_string(),
            w.state.clone(),
            cpus(w.thread.as_ref()),
            number(w.generation),
            number(w.packets),
            format!("{:.1}", w.packets_per_burst),
            format!("{:.1}", w.clocks_per_packet),
            format!("{:.1}%", w.idle_share * 100.0),
            number(w.sessions),
            number(w.subscribers),
        ]);
    }
    table.print(out, "no workers")?;
    for w in all.iter().filter(|w| !w.stages.is_empty()) {
        writeln!(out, "\nWorker {}", w.worker)?;
        let mut table =
            Table::new(&[left("STAGE"), right("PACKETS MEASURED"), right("CLOCKS/PACKET"), right("CLOCKS")]);
        for s in &w.stages {
            table.row(vec![
                s.stage.clone(),
                number(s.packets),
                format!("{:.1}", s.clocks_per_packet),
                number(s.clocks),
            ]);
        }
        table.print(out, "")?;
    }
    Ok(())
}

pub fn graph(out: &mut dyn Write, graph: Graph) -> io::Result<()> {
    let name = graph.stages.iter().map(|s| s.stage.chars().count()).max().unwrap_or(0);
    let count = graph.stages.iter().map(|s| number(s.packets).len()).max().unwrap_or(0);
    for (i, s) in graph.stages.iter().enumerate() {
        let arrow = if i == 0 { " " } else { "↓" };
        writeln!(out, "{arrow} {:<name$}  {:>count$}  {}", s.stage, number(s.packets), s.description)?;
        let ends = s.ended.iter().map(|e| ("→", e)).chain(s.drops.iter().map(|d| ("✗", d)));
        for (mark, end) in ends {
            writeln!(out, "│ {:<name$}  {:>count$}  {mark} {}", "", number(end.count), end.name)?;
        }
    }
    if graph.stages.is_empty() { writeln!(out, "(no stages)") } else { Ok(()) }
}
