//! Answers from the store: who had an outside address and port, and what a subscriber had.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use carrack_config::{Config, PortFacts};
use carrack_nat::Deterministic;

use crate::record::{Kind, Record};
use crate::store::columns::{self, Wanted};
use crate::store::{files, journal};
use crate::time;

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
    /// `block`, `mapping`, `session`, `address` or `deterministic`.
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
}

/// Asks the store in `dir`.
///
/// # Errors
/// When the store cannot be read: a sentence that says what to do.
pub fn who(dir: &Path, question: &Question) -> Result<Answer, String> {
    let sources = Sources::open(dir)?;
    let before = sources.before(question)?;
    let decisive = |found: &&Found| found.is_decisive() && found.record.unix_ms <= question.at_ms;
    // Of equal times the later in the log counts.
    let last = before.iter().filter(decisive).max_by_key(|found| found.record.unix_ms);
    let Some(last) = last else { return deterministic(dir, question) };
    if !last.begins() {
        let computed = deterministic(dir, question)?;
        if computed.holding.is_some() {
            return Ok(computed);
        }
        let free_since_ms = Some(last.record.unix_ms);
        return Ok(Answer { free_since_ms, doubts: doubts(&before, last, question), ..Answer::default() });
    }
    let after = sources.after(question)?;
    let end = after.iter().filter(|found| found.is_decisive()).min_by_key(|found| found.record.unix_ms);
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
    Ok(Answer { holding: Some(holding), doubts, others, free_since_ms: None })
}

/// What a subscriber had between two times, oldest first.
///
/// # Errors
/// As [`who`].
pub fn of(dir: &Path, subscriber: IpAddr, from_ms: u64, to_ms: u64) -> Result<Vec<Holding>, String> {
    let sources = Sources::open(dir)?;
    let wanted = Wanted { outside: None, from_ms, to_ms };
    let mut found = Vec::new();
    for source in &sources.0 {
        if source.from_ms <= to_ms && source.to_ms >= from_ms {
            source.read(wanted, |record| record.inside == subscriber || is_restart(record), &mut found)?;
        }
    }
    found.sort_by_key(|found| found.record.unix_ms);
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

    /// Does it decide who has the port from then on?
    fn is_decisive(&self) -> bool {
        self.begins() || self.ends() || is_restart(&self.record)
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

/// Pools whose ports are computed need no events, only the configuration of the time (RFC 7422 §5).
fn deterministic(dir: &Path, question: &Question) -> Result<Answer, String> {
    let configs = files::configs(dir).map_err(|error| unreadable(dir, &error))?;
    let in_force = configs.iter().rposition(|(from_ms, _)| *from_ms <= question.at_ms);
    let Some((index, (from_ms, path))) = in_force.and_then(|at| Some((at, configs.get(at)?))) else {
        return Ok(Answer::default());
    };
    let to_ms = configs.get(index + 1).map(|(next, _)| *next);
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    let compiled = Config::from_str(&path.display().to_string(), &text)
        .and_then(|(config, _)| carrack_config::compile(&config, &PortFacts::assumed(&config), None))
        .map_err(|_| {
            format!("{} is no configuration of this version; ask the version that wrote it", path.display())
        })?;
    let outside = u32::from(question.outside);
    let holding = compiled.snapshot.nat.instances.iter().find_map(|instance| {
        let function = Deterministic::of(instance)?;
        let inside = function.inverse(outside, question.port)?;
        let share = function.share(inside)?;
        Some(Holding {
            subscriber: inside.into(),
            instance: instance.name.clone(),
            what: "deterministic",
            outside: question.outside,
            first: share.first,
            last: share.last,
            protocol: 0,
            from_ms: *from_ms,
            to_ms,
        })
    });
    Ok(Answer { holding, ..Answer::default() })
}

/// A file of the store.
struct Source {
    from_ms: u64,
    to_ms: u64,
    kind: SourceKind,
}

enum SourceKind {
    Columns(PathBuf),
    Journal(journal::Contents),
}

impl Source {
    /// Adds the records that may be wanted and that `keep` names.
    fn read(
        &self,
        wanted: Wanted,
        keep: impl Fn(&Record) -> bool,
        found: &mut Vec<Found>,
    ) -> Result<(), String> {
        let mut each = |record: &Record, instance: &str| {
            if keep(record) {
                found.push(Found { record: *record, instance: instance.to_owned() });
            }
        };
        match &self.kind {
            SourceKind::Columns(path) => columns::read(path, wanted, each).map_err(|error| {
                format!("cannot read {}: {error}; restore it, or move it away", path.display())
            }),
            SourceKind::Journal(contents) => {
                for record in contents.records.iter().filter(|record| wanted.admits(record)) {
                    let name = contents.instances.get(usize::from(record.instance));
                    each(record, name.map_or("", String::as_str));
                }
                Ok(())
            }
        }
    }
}

/// All files, by the time of their first event.
struct Sources(Vec<Source>);

impl Sources {
    fn open(dir: &Path) -> Result<Self, String> {
        let fail = |error: std::io::Error| unreadable(dir, &error);
        // Journals first: one that is packed in between is then seen twice, not never.
        let journals = files::journals(dir).map_err(fail)?;
        let mut sources = Vec::new();
        for path in journals {
            let contents = match journal::read(&path) {
                Ok(contents) => contents,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(unreadable(&path, &error)),
            };
            let times = || contents.records.iter().map(|record| record.unix_ms);
            if let (Some(from_ms), Some(to_ms)) = (times().min(), times().max()) {
                sources.push(Source { from_ms, to_ms, kind: SourceKind::Journal(contents) });
            }
        }
        for part in files::parts(dir).map_err(fail)? {
            let kind = SourceKind::Columns(part.path);
            sources.push(Source { from_ms: part.from_ms, to_ms: part.to_ms, kind });
        }
        sources.sort_by_key(|source| (source.from_ms, source.to_ms));
        Ok(Self(sources))
    }

    /// What concerns the question up to its time, back to the last event that decides.
    fn before(&self, question: &Question) -> Result<Vec<Found>, String> {
        let mut order: Vec<&Source> =
            self.0.iter().filter(|source| source.from_ms <= question.at_ms).collect();
        order.sort_by_key(|source| std::cmp::Reverse(source.to_ms));
        let mut found: Vec<Found> = Vec::new();
        let mut decided_ms = 0;
        for source in order {
            if decided_ms > source.to_ms {
                break;
            }
            let wanted = Wanted { outside: Some(question.outside.into()), from_ms: 0, to_ms: question.at_ms };
            source.read(wanted, |record| concerns(record, question), &mut found)?;
            let decisive = found.iter().filter(|found| found.is_decisive());
            decided_ms = decisive.map(|found| found.record.unix_ms).max().unwrap_or(0);
        }
        found.sort_by_key(|found| found.record.unix_ms);
        Ok(found)
    }

    /// What concerns the question after its time, up to the first event that decides.
    fn after(&self, question: &Question) -> Result<Vec<Found>, String> {
        let mut found: Vec<Found> = Vec::new();
        let mut decided_ms = u64::MAX;
        for source in self.0.iter().filter(|source| source.to_ms > question.at_ms) {
            if source.from_ms > decided_ms {
                break;
            }
            let (from_ms, to_ms) = (question.at_ms.saturating_add(1), u64::MAX >> 1);
            let wanted = Wanted { outside: Some(question.outside.into()), from_ms, to_ms };
            source.read(wanted, |record| concerns(record, question), &mut found)?;
            let decisive = found.iter().filter(|found| found.is_decisive());
            decided_ms = decisive.map(|found| found.record.unix_ms).min().unwrap_or(u64::MAX);
        }
        Ok(found)
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> String {
    format!("cannot read {}: {error}; name the directory of logging.store with --store", path.display())
}
