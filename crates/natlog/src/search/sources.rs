//! The files of a store, and what of them a question has to read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::standing::Standing;
use super::{Found, Question, concerns, unreadable};
use crate::record::Record;
use crate::store::columns::{self, Wanted};
use crate::store::files::Part;
use crate::store::{files, journal};

/// Why a question has no answer.
#[derive(Debug)]
pub(super) enum Failed {
    /// A file was merged with others, or deleted, since the files were listed.
    Changed,
    /// A sentence that says what to do.
    Why(String),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Self::Why(why)
    }
}

/// A file of the store.
pub(super) struct Source {
    pub from_ms: u64,
    pub to_ms: u64,
    kind: SourceKind,
}

enum SourceKind {
    Columns(Part),
    Journal(journal::Contents),
}

impl Source {
    /// Adds the records that may be wanted and that `keep` names. A file that is damaged is noted.
    fn read(
        &self,
        wanted: Wanted,
        keep: impl Fn(&Record) -> bool,
        found: &mut Vec<Found>,
        damaged: &RefCell<BTreeMap<PathBuf, String>>,
    ) -> Result<(), Failed> {
        let known = found.len();
        let mut each = |record: &Record, instance: &str| {
            if keep(record) {
                found.push(Found { record: *record, instance: instance.to_owned() });
            }
        };
        match &self.kind {
            SourceKind::Columns(part) if wanted.outside.is_none_or(|ip| part.admits(ip)) => {
                if let Err(error) = columns::read(&part.path, wanted, each) {
                    if !part.path.exists() {
                        return Err(Failed::Changed);
                    }
                    found.truncate(known);
                    damaged.borrow_mut().insert(part.path.clone(), error.to_string());
                }
            }
            SourceKind::Columns(_) => {}
            SourceKind::Journal(contents) => {
                for record in contents.records.iter().filter(|record| wanted.admits(record)) {
                    let name = contents.instances.get(usize::from(record.instance));
                    each(record, name.map_or("", String::as_str));
                }
            }
        }
        Ok(())
    }
}

/// All files, by the time of their first event.
pub(super) struct Sources {
    all: Vec<Source>,
    /// Files that could not be read, and why.
    damaged: RefCell<BTreeMap<PathBuf, String>>,
}

impl Sources {
    pub(super) fn open(dir: &Path) -> Result<Self, Failed> {
        let fail = |error: std::io::Error| unreadable(dir, &error);
        // Journals first: one that is packed in between is then seen twice, not never.
        let journals = files::journals(dir).map_err(fail)?;
        let mut sources = Vec::new();
        for path in journals {
            let contents = match journal::read(&path) {
                Ok(contents) => contents,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(unreadable(&path, &error).into()),
            };
            let times = || contents.records.iter().map(|record| record.unix_ms);
            if let (Some(from_ms), Some(to_ms)) = (times().min(), times().max()) {
                sources.push(Source { from_ms, to_ms, kind: SourceKind::Journal(contents) });
            }
        }
        for part in files::parts(dir).map_err(fail)? {
            sources.push(Source {
                from_ms: part.from_ms,
                to_ms: part.to_ms,
                kind: SourceKind::Columns(part),
            });
        }
        sources.sort_by_key(|source| (source.from_ms, source.to_ms));
        Ok(Self { all: sources, damaged: RefCell::default() })
    }

    /// What could not be read and may change an answer, one sentence each.
    pub(super) fn damages(&self) -> Vec<String> {
        let damaged = self.damaged.borrow();
        let sentence = |(path, why): (&PathBuf, &String)| {
            format!(
                "cannot read {}: {why}; restore it, or move it away: what is in it may change the answer",
                path.display()
            )
        };
        damaged.iter().map(sentence).collect()
    }

    /// What is wanted and named by `keep`, by time.
    pub(super) fn between(
        &self,
        wanted: Wanted,
        keep: impl Fn(&Record) -> bool,
    ) -> Result<Vec<Found>, Failed> {
        let mut found = Vec::new();
        for source in &self.all {
            if source.from_ms <= wanted.to_ms && source.to_ms >= wanted.from_ms {
                source.read(wanted, &keep, &mut found, &self.damaged)?;
            }
        }
        found.sort_by_key(|found| found.record.unix_ms);
        Ok(found)
    }

    /// When the first event is from; `None` without any.
    pub(super) fn reach_ms(&self) -> Option<u64> {
        self.all.first().map(|source| source.from_ms)
    }

    /// What concerns the question up to its time, in order, back to the last event that decides.
    pub(super) fn before(&self, question: &Question) -> Result<Vec<Found>, Failed> {
        let mut order: Vec<&Source> =
            self.all.iter().filter(|source| source.from_ms <= question.at_ms).collect();
        order.sort_by_key(|source| std::cmp::Reverse(source.to_ms));
        let mut found: Vec<Found> = Vec::new();
        let mut decided_ms = 0;
        for source in order {
            if decided_ms > source.to_ms {
                break;
            }
            let wanted = wanted(question, 0, question.at_ms);
            let known = found.len();
            source.read(wanted, |record| concerns(record, question), &mut found, &self.damaged)?;
            if found.len() > known {
                // Of equal times the later in the log counts.
                found.sort_by_key(|found| found.record.unix_ms);
                let deciding = match Standing::of(&found) {
                    Standing::Unknown => None,
                    Standing::Free(at) | Standing::Held(at) => found.get(at),
                };
                decided_ms = deciding.map_or(0, |found| found.record.unix_ms);
            }
        }
        Ok(found)
    }

    /// What concerns the question after its time, in order, up to the end of what `holder` holds.
    pub(super) fn after(&self, question: &Question, holder: &Found) -> Result<Vec<Found>, Failed> {
        let mut found: Vec<Found> = Vec::new();
        let mut ended_ms = u64::MAX;
        for source in self.all.iter().filter(|source| source.to_ms > question.at_ms) {
            if source.from_ms > ended_ms {
                break;
            }
            let wanted = wanted(question, question.at_ms.saturating_add(1), u64::MAX >> 1);
            source.read(wanted, |record| concerns(record, question), &mut found, &self.damaged)?;
            found.sort_by_key(|found| found.record.unix_ms);
            let end = Standing::end(holder, &found).and_then(|at| found.get(at));
            ended_ms = end.map_or(u64::MAX, |found| found.record.unix_ms);
        }
        Ok(found)
    }
}

fn wanted(question: &Question, from_ms: u64, to_ms: u64) -> Wanted {
    let outside = Some(question.outside.into());
    Wanted { outside, port: Some(question.port), ..Wanted::of_time(from_ms, to_ms) }
}
