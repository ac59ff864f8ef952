//! What is merged: sorted runs, each a packed file or a set of files one after the other.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::path::{Path, PathBuf};

use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;

use super::Unmerged;
use crate::record::Record;
use crate::store::columns::{Sorted, key};
use crate::store::files::Part;

/// Rows of a run in memory.
const ROWS: usize = 4_096;

/// A file, or a set of files in the order of their addresses.
pub(super) struct Run {
    /// In its day's directory.
    path: PathBuf,
    parts: Vec<Part>,
}

impl Run {
    pub(super) fn files(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    pub(super) fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    /// Times of its first and its last event.
    fn span(&self) -> (u64, u64) {
        let first = self.parts.iter().map(|part| part.from_ms).min();
        let last = self.parts.iter().map(|part| part.to_ms).max();
        (first.unwrap_or(0), last.unwrap_or(0))
    }
}

/// Runs of a day's files, by time.
pub(super) fn of(parts: Vec<Part>) -> Vec<Run> {
    let mut by_path: HashMap<PathBuf, Vec<Part>> = HashMap::new();
    for part in parts {
        by_path.entry(part.set.clone().unwrap_or_else(|| part.path.clone())).or_default().push(part);
    }
    let mut runs: Vec<Run> = by_path.into_iter().map(|(path, parts)| Run { path, parts }).collect();
    for run in &mut runs {
        run.parts.sort_by_cached_key(|part| number(&part.path));
    }
    runs.sort_by_cached_key(|run| (run.span(), run.path.clone()));
    runs
}

/// The number of a file in its set.
fn number(path: &Path) -> u64 {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.rsplit('-').next().and_then(|last| last.parse().ok()).unwrap_or(0)
}

/// So many neighbours in time, those with the fewest bytes: what came at the same time stays in the order it came.
pub(super) fn chosen(mut runs: Vec<Run>, most: usize) -> Vec<Run> {
    let bytes = |at: &usize| runs.iter().skip(*at).take(most).map(Run::bytes).sum::<u64>();
    let at = (0..=runs.len().saturating_sub(most)).min_by_key(bytes).unwrap_or(0);
    let end = runs.len().min(at + most);
    runs.drain(at..end).collect()
}

/// Open runs, read together in order.
pub(super) struct Runs {
    open: Vec<Open>,
    /// The next row of each, the run in the lowest 32 bits.
    next: BinaryHeap<Reverse<u128>>,
    names: Names,
    events: u64,
    has_six: bool,
}

impl Runs {
    pub(super) fn open(runs: Vec<Run>) -> Result<Self, Unmerged> {
        let mut all = Self {
            open: Vec::with_capacity(runs.len()),
            next: BinaryHeap::with_capacity(runs.len()),
            names: Names::default(),
            events: 0,
            has_six: false,
        };
        for run in runs {
            for part in &run.parts {
                let file = Sorted::open(&part.path).map_err(|error| unreadable(&part.path, &error))?;
                all.events += file.rows();
                all.has_six |= file.has_six();
            }
            let paths = run.parts.into_iter().map(|part| part.path).collect();
            let mut open = Open { paths, file: None, rows: VecDeque::with_capacity(ROWS), at: 0 };
            if let Some(key) = open.next_key(all.open.len() as u32, &mut all.names)? {
                all.next.push(Reverse(key));
            }
            all.open.push(open);
        }
        Ok(all)
    }

    /// The next row of all; its instance is an index of [`Self::names`].
    pub(super) fn next(&mut self) -> Result<Option<Record>, Unmerged> {
        let Some(mut first) = self.next.peek_mut() else { return Ok(None) };
        let number = first.0 as u32;
        let Some(run) = self.open.get_mut(number as usize) else { return Ok(None) };
        let record = run.rows.pop_front();
        match run.next_key(number, &mut self.names)? {
            Some(key) => first.0 = key,
            None => {
                PeekMut::pop(first);
            }
        }
        Ok(record)
    }

    /// Rows of all of them.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    pub(super) fn has_six(&self) -> bool {
        self.has_six
    }

    pub(super) fn names(&self) -> &[ByteArray] {
        &self.names.all
    }
}

struct Open {
    /// Files not yet read.
    paths: VecDeque<PathBuf>,
    file: Option<(PathBuf, Sorted)>,
    rows: VecDeque<Record>,
    /// The last key: rows that are not in order would be found by nobody.
    at: u128,
}

impl Open {
    fn next_key(&mut self, number: u32, names: &mut Names) -> Result<Option<u128>, Unmerged> {
        while self.rows.is_empty() {
            let Some((path, file)) = &mut self.file else {
                let Some(path) = self.paths.pop_front() else { return Ok(None) };
                let file = Sorted::open(&path).map_err(|error| unreadable(&path, &error))?;
                self.file = Some((path, file));
                continue;
            };
            let rows = &mut self.rows;
            let more = file.next(ROWS, |record, name| {
                rows.push_back(Record { instance: names.number(name), ..record });
            });
            if !more.map_err(|error| unreadable(path, &error))? {
                self.file = None;
            }
        }
        let Some(key) = self.rows.front().map(|record| key(record, number)) else { return Ok(None) };
        if key < self.at {
            let path = self.file.as_ref().map(|(path, _)| path.display().to_string()).unwrap_or_default();
            return Err(Unmerged::Failed(format!("{path} is not in order")));
        }
        self.at = key;
        Ok(Some(key))
    }
}

fn unreadable(path: &Path, error: &ParquetError) -> Unmerged {
    Unmerged::Failed(format!("{} cannot be read: {error}", path.display()))
}

/// Names of instances: few.
#[derive(Default)]
struct Names {
    all: Vec<ByteArray>,
    last: usize,
}

impl Names {
    fn number(&mut self, name: &[u8]) -> u16 {
        let is_last = self.all.get(self.last).is_some_and(|last| last.data() == name);
        if !is_last {
            self.last = self.all.iter().position(|known| known.data() == name).unwrap_or_else(|| {
                self.all.push(name.to_vec().into());
                self.all.len() - 1
            });
        }
        self.last as u16
    }
}
