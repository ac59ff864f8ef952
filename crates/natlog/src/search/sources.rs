//! The files of a store, and what of them a question has to read.

use std::path::{Path, PathBuf};

use super::standing::Standing;
use super::{Found, Question, concerns, unreadable};
use crate::record::Record;
use crate::store::columns::{self, Wanted};
use crate::store::{files, journal};

/// A file of the store.
pub(super) struct Source {
    pub from_ms: u64,
    pub to_ms: u64,
    kind: SourceKind,
}

enum SourceKind {
    Columns(PathBuf),
    Journal(journal::Contents),
}

impl Source {
    /// Adds the records that may be wanted and that `keep` names.
    pub(super) fn read(
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
pub(super) struct Sources(pub(super) Vec<Source>);

impl Sources {
    pub(super) fn open(dir: &Path) -> Result<Self, String> {
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

    /// When the first event is from; `None` without any.
    pub(super) fn reach_ms(&self) -> Option<u64> {
        self.0.first().map(|source| source.from_ms)
    }

    /// What concerns the question up to its time, in order, back to the last event that decides.
    pub(super) fn before(&self, question: &Question) -> Result<Vec<Found>, String> {
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
            let known = found.len();
            source.read(wanted, |record| concerns(record, question), &mut found)?;
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
    pub(super) fn after(&self, question: &Question, holder: &Found) -> Result<Vec<Found>, String> {
        let mut found: Vec<Found> = Vec::new();
        let mut ended_ms = u64::MAX;
        for source in self.0.iter().filter(|source| source.to_ms > question.at_ms) {
            if source.from_ms > ended_ms {
                break;
            }
            let (from_ms, to_ms) = (question.at_ms.saturating_add(1), u64::MAX >> 1);
            let wanted = Wanted { outside: Some(question.outside.into()), from_ms, to_ms };
            source.read(wanted, |record| concerns(record, question), &mut found)?;
            found.sort_by_key(|found| found.record.unix_ms);
            let end = Standing::end(holder, &found).and_then(|at| found.get(at));
            ended_ms = end.map_or(u64::MAX, |found| found.record.unix_ms);
        }
        Ok(found)
    }
}
