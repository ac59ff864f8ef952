//! Answers from the store: who had an outside address and port, and what a subscriber had.

mod computed;
mod sources;
mod standing;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use computed::computed;
use sources::{Failed, Sources};
use standing::Standing;

use crate::record::{Kind, Record};
use crate::store::columns::Wanted;
use crate::time;

/// Protocols whose ports are given out apart: ICMP, TCP, UDP.
const PROTOCOLS: [u8; 3] = [1, 6, 17];

/// Who had this at that time?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// Outside address.
    pub outside: Ipv4Addr,
    /// Outside port, or ICMP identifier.
    pub port: u16,
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// IP protocol number; tells mappings of the same port number apart.
    pub protocol: Option<u8>,
}

/// Something outside that a subscriber had for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// The subscriber.
    pub subscriber: IpAddr,
    /// Its NAT instance.
    pub instance: String,
    /// `block`, `mapping`, `session`, `address`, `deterministic` or `static`.
    pub what: &'static str,
    /// Outside address.
    pub outside: Ipv4Addr,
    /// First outside port; 0 to 65535 for whole addresses.
    pub first: u16,
    /// Last outside port.
    pub last: u16,
    /// IP protocol number; 0 for all.
    pub protocol: u8,
    /// Since when, milliseconds since 1970.
    pub from_ms: u64,
    /// Until when; `None` while the log knows no end.
    pub to_ms: Option<u64>,
}

/// The answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// Who had it; `None` when nobody did as far as the log knows.
    pub holding: Option<Holding>,
    /// Why the answer may be wrong, one sentence each; none when it is certain.
    pub doubts: Vec<String>,
    /// Others who had it close enough to a clock that was set to come into question.
    pub others: Vec<IpAddr>,
    /// Since when it was free, when nobody had it and the log knows.
    pub free_since_ms: Option<u64>,
    /// When the record begins; `None` when nothing is recorded.
    pub reach_ms: Option<u64>,
}

/// Asks the store in `dir`.
///
/// # Errors
/// When the store cannot be read: a sentence that says what to do.
pub fn who(dir: &Path, question: &Question) -> Result<Answer, String> {
    steadily(dir, |sources| {
        let answer = ask(sources, dir, question)?;
        let of_one_protocol = answer.holding.as_ref().is_some_and(|holding| holding.protocol != 0);
        let mut answer = if of_one_protocol && question.protocol.is_none() {
            every_protocol(sources, dir, question, answer)?
        } else {
            answer
        };
        answer.doubts.extend(sources.damages());
        Ok(answer)
    })
}

/// Asks files that a running daemon may merge or delete: once more when it just did.
fn steadily<T>(dir: &Path, ask: impl Fn(&Sources) -> Result<T, Failed>) -> Result<T, String> {
    const ATTEMPTS: u32 = 10;
    for _ in 0..ATTEMPTS {
        match Sources::open(dir).and_then(|sources| ask(&sources)) {
            Ok(answer) => return Ok(answer),
            Err(Failed::Why(why)) => return Err(why),
            Err(Failed::Changed) => {}
        }
    }
    Err(format!("the files in {} change all the time; ask again", dir.display()))
}

/// Each protocol's ports have holders of their own: who did not say which protocol gets them all.
fn every_protocol(
    sources: &Sources,
    dir: &Path,
    question: &Question,
    mut answer: Answer,
) -> Result<Answer, Failed> {
    let Some(first) = answer.holding.clone() else { return Ok(answer) };
    for protocol in PROTOCOLS.into_iter().filter(|protocol| *protocol != first.protocol) {
        let other = ask(sources, dir, &Question { protocol: Some(protocol), ..*question })?;
        if let Some(holding) = other.holding.filter(|other| other.subscriber != first.subscriber) {
            answer.doubts.push(format!(
                "that is of protocol {}; the same port of protocol {protocol} was another's: ask with --protocol",
                first.protocol
            ));
            answer.others.push(holding.subscriber);
        }
    }
    Ok(answer)
}

fn ask(sources: &Sources, dir: &Path, question: &Question) -> Result<Answer, Failed> {
    let before = sources.before(question)?;
    let known = Answer { reach_ms: sources.reach_ms(), ..Answer::default() };
    let held = match Standing::of(&before) {
        Standing::Held(at) => before.get(at),
        Standing::Free(at) => {
            let free = before.get(at).map(|last| (last.record.unix_ms, doubts(&before, last, question)));
            let (since_ms, doubts) = free.unwrap_or_default();
            return nobody(dir, question, Answer { free_since_ms: Some(since_ms), doubts, ..known });
        }
        Standing::Unknown => {
            let doubts = vec![beyond(dir, known.reach_ms, question)];
            return nobody(dir, question, Answer { doubts, ..known });
        }
    };
    let Some(last) = held else { return Ok(known) };
    let after = sources.after(question, last)?;
    let end = Standing::end(last, &after).and_then(|at| after.get(at));
    let mut holding = last.holding();
    holding.to_ms = end.map(|end| end.record.unix_ms);
    let mut doubts = doubts(&before, last, question);
    if let Some(end) = end.filter(|end| end.record.kind == Kind::Started) {
        doubts.push(format!(
            "the daemon started anew at {} without having ended in good order; when before that it stopped is not known",
            time::format_ms(end.record.unix_ms)
        ));
    }
    let others = others(before.iter().chain(&after), &holding, question);
    Ok(Answer { holding: Some(holding), doubts, others, ..known })
}

/// No event says that somebody had it: the configuration may.
fn nobody(dir: &Path, question: &Question, mut answer: Answer) -> Result<Answer, Failed> {
    let computed = computed(dir, question)?;
    if computed.holding.is_some() {
        return Ok(Answer { holding: computed.holding, reach_ms: answer.reach_ms, ..Answer::default() });
    }
    answer.doubts.extend(computed.doubt);
    Ok(answer)
}

/// Why the record cannot tell.
fn beyond(dir: &Path, reach_ms: Option<u64>, question: &Question) -> String {
    let Some(reach_ms) = reach_ms else {
        return format!("nothing is recorded in {}", dir.display());
    };
    let reach = time::format_ms(reach_ms);
    if question.at_ms < reach_ms {
        format!("the record reaches back to {reach} only")
    } else {
        format!(
            "the record begins at {reach}; what was given out before and not given back since is not in it"
        )
    }
}

/// What a subscriber had between two times, oldest first.
///
/// # Errors
/// As [`who`]; also when a file is damaged.
pub fn of(dir: &Path, subscriber: IpAddr, from_ms: u64, to_ms: u64) -> Result<Vec<Holding>, String> {
    let wanted = Wanted { inside: Some(subscriber), ..Wanted::of_time(from_ms, to_ms) };
    let keep = |record: &Record| record.inside == subscriber || is_restart(record);
    let found = steadily(dir, |sources| {
        let found = sources.between(wanted, keep)?;
        sources.damages().into_iter().next().map_or(Ok(found), |damage| Err(Failed::Why(damage)))
    })?;
    let mut holdings: Vec<Holding> = Vec::new();
    for found in &found {
        let (now, open) = (found.record.unix_ms, |h: &&mut Holding| h.to_ms.is_none());
        if is_restart(&found.record) {
            holdings.iter_mut().filter(open).for_each(|h| h.to_ms = Some(now));
        } else if found.begins() {
            holdings.push(found.holding());
        } else if found.ends() {
            let ended = found.holding();
            let same = |h: &&mut Holding| {
                (h.outside, h.first, h.protocol, h.what)
                    == (ended.outside, ended.first, ended.protocol, ended.what)
            };
            match holdings.iter_mut().filter(open).find(same) {
                Some(holding) => holding.to_ms = Some(now),
                // It began before the time asked about.
                None => holdings.push(Holding { from_ms: 0, to_ms: Some(now), ..ended }),
            }
        }
    }
    holdings.sort_by_key(|h| (h.from_ms, h.outside, h.first));
    Ok(holdings)
}

/// A record and the name of its instance.
#[derive(Debug, Clone)]
struct Found {
    record: Record,
    instance: String,
}

impl Found {
    fn begins(&self) -> bool {
        matches!(
            self.record.kind,
            Kind::BlockAllocated | Kind::MappingCreated | Kind::SessionCreated | Kind::AddressBound
        )
    }

    fn ends(&self) -> bool {
        matches!(
            self.record.kind,
            Kind::BlockReleased | Kind::MappingDeleted | Kind::SessionDeleted | Kind::AddressReleased
        )
    }

    fn holding(&self) -> Holding {
        let record = &self.record;
        let (what, first, last) = match record.kind {
            Kind::BlockAllocated | Kind::BlockReleased => ("block", record.first, record.last),
            Kind::MappingCreated | Kind::MappingDeleted => ("mapping", record.first, record.first),
            Kind::SessionCreated | Kind::SessionDeleted => ("session", record.first, record.first),
            _ => ("address", 0, u16::MAX),
        };
        Holding {
            subscriber: record.inside,
            instance: self.instance.clone(),
            what,
            outside: record.outside.into(),
            first,
            last,
            protocol: record.protocol,
            from_ms: record.unix_ms,
            to_ms: None,
        }
    }
}

/// Whatever was allocated before is free.
fn is_restart(record: &Record) -> bool {
    matches!(record.kind, Kind::Started | Kind::Stopped)
}

/// Does the record say something about that port, or about the log itself?
fn concerns(record: &Record, question: &Question) -> bool {
    let at_port = |first: u16, last: u16| {
        record.outside == u32::from(question.outside) && (first..=last).contains(&question.port)
    };
    let same_protocol = question.protocol.is_none_or(|wanted| wanted == record.protocol);
    match record.kind {
        Kind::BlockAllocated | Kind::BlockReleased => at_port(record.first, record.last),
        Kind::MappingCreated | Kind::MappingDeleted | Kind::SessionCreated | Kind::SessionDeleted => {
            at_port(record.first, record.first) && same_protocol
        }
        Kind::Started | Kind::Stopped | Kind::ClockSet | Kind::EventsLost => true,
        _ => false,
    }
}

/// What makes the answer `last` doubtful.
fn doubts(found: &[Found], last: &Found, question: &Question) -> Vec<String> {
    let mut doubts = Vec::new();
    for Found { record, .. } in found {
        let at = time::format_ms(record.unix_ms);
        match record.kind {
            Kind::EventsLost if (last.record.unix_ms..=question.at_ms).contains(&record.unix_ms) => {
                doubts.push(format!(
                    "{} events were lost at {at}; a later change may be among them",
                    record.count
                ));
            }
            Kind::ClockSet if is_near(record, question.at_ms) => {
                let way = if record.count == 1 { "back" } else { "forward" };
                doubts.push(format!("the router's clock was set {} ms {way} at {at}", record.value));
            }
            _ => {}
        }
    }
    doubts
}

/// Could the time asked about have been shown twice, or never, when the clock was set?
fn is_near(clock_set: &Record, at_ms: u64) -> bool {
    clock_set.unix_ms.abs_diff(at_ms) <= u64::from(clock_set.value) + 1_000
}

fn others<'a>(
    found: impl Iterator<Item = &'a Found> + Clone,
    holding: &Holding,
    question: &Question,
) -> Vec<IpAddr> {
    let sets =
        found.clone().filter(|f| f.record.kind == Kind::ClockSet && is_near(&f.record, question.at_ms));
    let Some(reach_ms) = sets.map(|f| u64::from(f.record.value) + 1_000).max() else { return Vec::new() };
    let near = found.filter(|f| {
        (f.begins() || f.ends())
            && f.record.unix_ms.abs_diff(question.at_ms) <= reach_ms
            && f.record.inside != holding.subscriber
    });
    let mut others: Vec<IpAddr> = near.map(|f| f.record.inside).collect();
    others.sort();
    others.dedup();
    others
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}; name the directory of logging.store with --store", path.display())
}
