//! The files of a store, and what of them a question has to read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::standing::Standing;
use super::{Found, Question, concerns, unreadable};
use crate::record::Record;
use crate::store::columns::{self, Wanted};
use crate::store::files;
use crate::store::files::Part;
use crate::store::journal::Unread;

/// Threads of one question, at most: beside them others want the disk and the processors.
const THREADS_MAX: usize = 4;
/// Files that are worth a thread of their own.
const THREAD_FILES: usize = 4;

/// Files that could not be read, and why.
#[derive(Default)]
struct Damages(Mutex<BTreeMap<PathBuf, String>>);

impl Damages {
    fn all(&self) -> MutexGuard<'_, BTreeMap<PathBuf, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    Journal(Unread),
}

impl Source {
    /// Adds the records that may be wanted and that `keep` names. A file that is damaged is noted.
    fn read(
        &self,
        wanted: Wanted,
        keep: impl Fn(&Record) -> bool,
        found: &mut Vec<Found>,
        damaged: &Damages,
    ) -> Result<(), Failed> {
        let known = found.len();
        let each = |record: &Record, instance: &str| {
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
                    damaged.all().insert(part.path.clone(), error.to_string());
                }
            }
            SourceKind::Columns(_) => {}
            SourceKind::Journal(journal) => journal.read(wanted, each),
        }
        Ok(())
    }
}

/// All files, by the time of their first event.
pub(super) struct Sources {
    all: Vec<Source>,
    damaged: Damages,
}

impl Sources {
    pub(super) fn open(dir: &Path) -> Result<Self, Failed> {
        let fail = |error: std::io::Error| unreadable(dir, &error);
        // Journals first: one that is packed in between is then seen twice, not never.
        let journals = files::journals(dir).map_err(fail)?;
        let mut sources = Vec::new();
        for path in journals {
            let journal = match Unread::open(&path) {
                Ok(journal) => journal,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(unreadable(&path, &error).into()),
            };
            if let Some((from_ms, to_ms)) = journal.times() {
                sources.push(Source { from_ms, to_ms, kind: SourceKind::Journal(journal) });
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
        Ok(Self { all: sources, damaged: Damages::default() })
    }

    /// What could not be read and may change an answer, one sentence each.
    pub(super) fn damages(&self) -> Vec<String> {
        let damaged = self.damaged.all();
        let sentence = |(path, why): (&PathBuf, &String)| {
            format!(
                "cannot read {}: {why}; restore it, or move it away: what is in it may change the answer",
                path.display()
            )
        };
        damaged.iter().map(sentence).collect()
    }

    /// What is wanted and named by `keep`, by time. Files are read side by side.
    pub(super) fn between(
        &self,
        wanted: Wanted,
        keep: impl Fn(&Record) -> bool + Sync,
    ) -> Result<Vec<Found>, Failed> {
        let is_in_time = |source: &&Source| source.from_ms <= wanted.to_ms && source.to_ms >= wanted.from_ms;
        let sources: Vec<&Source> = self.all.iter().filter(is_in_time).collect();
        let next = AtomicUsize::new(0);
        let read = || -> Result<Vec<(usize, Vec<Found>)>, Failed> {
            let mut read = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(source) = sources.get(at) else { return Ok(read) };
                let mut found = Vec::new();
                source.read(wanted, &keep, &mut found, &self.damaged)?;
                read.push((at, found));
            }
        };
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.min(THREADS_MAX).min(sources.len() / THREAD_FILES);
        let mut all = thread::scope(|scope| -> Result<_, Failed> {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(read)).collect();
            let mut all = read()?;
            for other in others {
                let died = |_| Failed::Why("a thread that searched the store died; ask again".into());
                all.extend(other.join().map_err(died)??);
            }
            Ok(all)
        })?;
        // Of equal times the later in the log counts.
        all.sort_by_key(|(at, _)| *at);
        let mut found: Vec<Found> = all.into_iter().flat_map(|(_, found)| found).collect();
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
