//! Commands that do something: clear, reload, trace, capture.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use carrack_api::client::{Client, failure_of};
use carrack_api::types::{Deleted, ReloadReport, TraceRecord};
use carrack_api::{Failure, PortMappingDelete, RowFilter};
use carrack_base::Prefix;

use crate::cli::{CaptureArgs, TraceArgs};
use crate::fail::{Fail, Outcome};
use crate::human::{number, plural, time_of_day};
use crate::table::{Table, left};
use carrack_bench::Patience;

pub fn clear_sessions(client: &Client, filter: RowFilter, all: bool, json: bool) -> Outcome {
    let query = filter.delete(all);
    if !query.narrows() && !all {
        let failure = Failure::bad_request("this would end every session")
            .hint("give a filter such as --inside 100.64.0.5, or --all when that is what you want");
        return Err(Fail::Usage(failure));
    }
    let Deleted { deleted } = client.delete("/v1/nat/sessions", &query)?;
    print_deleted("session", deleted, json)
}

pub fn clear_port_mappings(client: &Client, inside: Option<Prefix>, all: bool, json: bool) -> Outcome {
    if inside.is_none() && !all {
        let failure = Failure::bad_request("this would end every mapping that a host asked for")
            .hint("give --inside 100.64.0.5, or --all when that is what you want");
        return Err(Fail::Usage(failure));
    }
    let query = PortMappingDelete { inside, all: all.then_some(true) };
    let Deleted { deleted } = client.delete("/v1/pcp/mappings", &query)?;
    print_deleted("mapping", deleted, json)
}

fn print_deleted(what: &str, deleted: u64, json: bool) -> Outcome {
    let mut out = io::stdout().lock();
    match (json, deleted) {
        (true, _) => writeln!(out, "{{\"deleted\":{deleted}}}")?,
        (false, 0) => writeln!(out, "no {what}s match")?,
        (false, n) => writeln!(out, "{} ended", plural(n, what))?,
    }
    Ok(())
}

/// Changes that a person is shown; a new routing table makes a million.
const CHANGES_SHOWN: usize = 1_000;

pub fn reload(client: &Client, json: bool) -> Outcome {
    let patience = Patience::with("the daemon reads its configuration and applies it".into());
    let answer = client.post("/v1/reload", None);
    drop(patience);
    let (status, body) = answer?;
    let Ok(report) = serde_json::from_slice::<ReloadReport>(&body) else {
        return Err(failure_of(status, &body).into());
    };
    let mut out = io::stdout().lock();
    if json {
        out.write_all(&body)?;
        writeln!(out)?;
    } else {
        print_reload(&mut out, &report)?;
    }
    match status {
        _ if report.applied => Ok(()),
        // A file with errors is a configuration error; a change that needs a restart is a refused operation.
        422 => Err(Fail::Said(2)),
        _ => Err(Fail::Said(1)),
    }
}

pub fn print_reload(out: &mut dyn Write, report: &ReloadReport) -> io::Result<()> {
    for message in &report.messages {
        writeln!(out, "{}", message.trim_end())?;
    }
    if !report.changes.is_empty() {
        let mut table = Table::new(&[left("KEY"), left("FROM"), left("TO"), left("EFFECT")]);
        for c in report.changes.iter().take(CHANGES_SHOWN) {
            let effect =
                if c.detail.is_empty() { c.effect.clone() } else { format!("{}: {}", c.effect, c.detail) };
            table.row(vec![c.path.clone(), c.from.clone(), c.to.clone(), effect]);
        }
        table.print(out, "")?;
        let more = report.changes.len().saturating_sub(CHANGES_SHOWN);
        if more > 0 {
            writeln!(out, "… and {} more; --json has them all", number(more as u64))?;
        }
    }
    if !report.applied {
        return writeln!(out, "refused: nothing changed, generation {} goes on", report.generation);
    }
    if report.changes.is_empty() {
        return writeln!(out, "no differences; generation {}", report.generation);
    }
    let count = |effect: &str| report.changes.iter().filter(|c| c.effect == effect).count();
    writeln!(
        out,
        "applied: {} in place, {} re-derived, {} ended; generation {}",
        number(count("in-place") as u64),
        number(count("re-derived") as u64),
        plural(report.sessions_ended, "session"),
        report.generation
    )
}

pub fn trace(client: &Client, args: TraceArgs, json: bool) -> Outcome {
    let query = args.packets.query(Some(args.count));
    let stream = client.stream("/v1/trace", &query, "application/x-ndjson")?;
    let mut out = io::stdout().lock();
    let (mut last, mut packets) = (None, std::collections::BTreeSet::new());
    stream.rows(|record: TraceRecord| {
        packets.insert((record.worker, record.packet));
        if json {
            let line = serde_json::to_string(&record).map_err(io::Error::from)?;
            writeln!(out, "{line}")?;
        } else {
            print_trace(&mut out, &record, last.as_ref(), args.bytes)?;
            last = Some((record.worker, record.packet));
        }
        // A trace is watched while it happens: every record is shown at once.
        out.flush()?;
        Ok::<(), Fail>(())
    })?;
    let seen = packets.len() as u64;
    if seen < args.count {
        eprintln!(
            "ended after {seen} of {} packets: another trace was started meanwhile (there is one at a time), or the daemon stopped",
            args.count
        );
    }
    Ok(())
}

fn print_trace(
    out: &mut dyn Write,
    record: &TraceRecord,
    last: Option<&(u8, u32)>,
    bytes: bool,
) -> io::Result<()> {
    if last != Some(&(record.worker, record.packet)) {
        if last.is_some() {
            writeln!(out)?;
        }
        let TraceRecord { worker, packet, unix_ns, interface, .. } = record;
        writeln!(out, "packet {packet} on worker {worker}, {interface}, {} UTC", time_of_day(*unix_ns))?;
    }
    let outcome = match record.detail.as_str() {
        "" => record.outcome.clone(),
        detail => format!("{} {detail}", record.outcome),
    };
    let line = format!("  {:<14} {outcome:<36} {} ({} bytes)", record.stage, record.summary, record.len);
    writeln!(out, "{}", line.trim_end())?;
    if bytes {
        let digits: Vec<char> = record.bytes.chars().collect();
        for row in digits.chunks(32) {
            let pairs: Vec<String> = row.chunks(2).map(|pair| pair.iter().collect()).collect();
            writeln!(out, "      {}", pairs.join(" "))?;
        }
    }
    Ok(())
}

pub fn capture(client: &Client, args: CaptureArgs, json: bool) -> Outcome {
    let mut query = args.packets.query(args.count);
    query.drops_only = args.drops_only.then_some(true);
    query.reason = args.reason;
    let to_stdout = args.write == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        let failure = Failure::bad_request("a capture is no text for a terminal")
            .hint("write it to a file (-w FILE) or pipe it into a reader (… -w - | tshark -r -)");
        return Err(Fail::Usage(failure));
    }
    // The daemon is asked first: a wrong filter must not leave an empty file, or worse, replace a full one.
    let stream = client.stream("/v1/capture", &query, "application/x-pcapng")?.end_on_interrupt();
    let Copied { packets, lost } = if to_stdout {
        copy_blocks(stream, &mut io::stdout().lock())?
    } else {
        let file = File::create(&args.write).map_err(|error| {
            Failure::bad_request(format!("cannot write {}: {error}", args.write.display()))
                .hint("choose another file")
        })?;
        if !json && args.count.is_none() && io::stderr().is_terminal() {
            eprintln!("capturing until Ctrl-C …");
        }
        copy_blocks(stream, &mut BufWriter::new(file))?
    };
    if json && !to_stdout {
        let file = serde_json::to_string(&args.write.display().to_string()).unwrap_or_default();
        writeln!(io::stdout(), "{{\"file\":{file},\"packets\":{packets},\"lost\":{lost}}}")?;
    } else {
        eprintln!("{} packets in {}", number(packets), args.write.display());
        if lost > 0 {
            eprintln!(
                "{} more were lost on the way: they came faster than they are read; narrow the filter",
                number(lost)
            );
        }
    }
    Ok(())
}

/// Type of pcapng's enhanced packet block.
const PACKET_BLOCK: u32 = 6;
/// Where its options begin when it holds no bytes of a packet; where the number of those bytes stands.
const PACKET_BLOCK_HEAD: usize = 28;
const PACKET_BLOCK_CAPTURED: usize = 20;
/// The option that tells how many packets are missing before this one.
const DROP_COUNT_OPTION: u16 = 4;

/// What a capture brought.
struct Copied {
    packets: u64,
    lost: u64,
}

/// Copies whole pcapng blocks, so that the file is readable wherever the capture ends.
fn copy_blocks(mut stream: carrack_api::client::Stream<'_>, out: &mut dyn Write) -> Result<Copied, Fail> {
    let mut blocks = Blocks::default();
    while let Some(chunk) = stream.next_chunk()? {
        blocks.add(&chunk, out)?;
        out.flush()?;
    }
    Ok(Copied { packets: blocks.packets, lost: blocks.lost })
}

/// Cuts a pcapng stream at the ends of its blocks.
#[derive(Default)]
struct Blocks {
    waiting: Vec<u8>,
    big: Option<bool>,
    packets: u64,
    lost: u64,
}

impl Blocks {
    /// Writes the blocks that `chunk` completes.
    fn add(&mut self, chunk: &[u8], out: &mut dyn Write) -> Result<(), Fail> {
        let nonsense = || Failure::internal("the daemon's capture is no pcapng");
        self.waiting.extend_from_slice(chunk);
        let Some(header) = self.waiting.first_chunk::<12>() else { return Ok(()) };
        let big = match self.big {
            Some(big) => big,
            None => big_endian(*header).ok_or_else(nonsense)?,
        };
        self.big = Some(big);
        let mut whole = 0;
        while let Some((kind, len)) = block_at(&self.waiting, whole, big) {
            if len < 12 {
                return Err(nonsense().into());
            }
            if self.waiting.len() - whole < len {
                break;
            }
            if kind == PACKET_BLOCK {
                self.packets += 1;
                self.lost += self.waiting.get(whole..whole + len).map_or(0, |block| lost_before(block, big));
            }
            whole += len;
        }
        out.write_all(self.waiting.get(..whole).unwrap_or_default())?;
        self.waiting.drain(..whole);
        Ok(())
    }
}

/// The byte order that a section header announces with its magic number; `None` when it is no pcapng.
fn big_endian(header: [u8; 12]) -> Option<bool> {
    let [0x0a, 0x0d, 0x0d, 0x0a, _, _, _, _, magic @ ..] = header else { return None };
    match magic {
        [0x1a, 0x2b, 0x3c, 0x4d] => Some(true),
        [0x4d, 0x3c, 0x2b, 0x1a] => Some(false),
        _ => None,
    }
}

/// How many packets an enhanced packet block says are missing before it.
fn lost_before(block: &[u8], big: bool) -> u64 {
    let half = |at: usize| {
        let half = block.get(at..at + 2).and_then(|half| half.try_into().ok());
        half.map(if big { u16::from_be_bytes } else { u16::from_le_bytes })
    };
    let captured =
        block.get(PACKET_BLOCK_CAPTURED..PACKET_BLOCK_CAPTURED + 4).and_then(|word| word.try_into().ok());
    let captured = captured.map_or(0, if big { u32::from_be_bytes } else { u32::from_le_bytes }) as usize;
    let mut at = PACKET_BLOCK_HEAD + captured.next_multiple_of(4);
    while let (Some(code), Some(len)) = (half(at), half(at + 2)) {
        let value = block.get(at + 4..at + 12).and_then(|value| value.try_into().ok());
        match (code, value) {
            (0, _) => break,
            (DROP_COUNT_OPTION, Some(value)) => {
                return if big { u64::from_be_bytes(value) } else { u64::from_le_bytes(value) };
            }
            _ => at += 4 + usize::from(len).next_multiple_of(4),
        }
    }
    0
}

/// Type and length of the block that starts at `at`.
fn block_at(bytes: &[u8], at: usize, big: bool) -> Option<(u32, usize)> {
    let word = |at: usize| {
        let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        word.map(if big { u32::from_be_bytes } else { u32::from_le_bytes })
    };
    Some((word(at)?, word(at + 4)? as usize))
}

#[cfg(test)]
mod tests;
