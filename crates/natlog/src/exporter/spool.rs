//! Events that wait on disk for a collector: journals, the oldest first, together not larger than a bound.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::Batch;
use crate::context::Context;
use crate::store::journal::{self, Journal};

/// Events of one file: what is read into memory at once.
const FILE_RECORDS: u64 = 65_536;

/// One exporter's spool.
#[derive(Debug)]
pub(crate) struct Spool {
    dir: PathBuf,
    bytes_max: u64,
    /// Whole files, oldest first, with their bytes; those being delivered included.
    files: VecDeque<(PathBuf, u64)>,
    /// How many of them are being delivered.
    taken: usize,
    tail: Option<Journal>,
    number: u64,
}

impl Spool {
    /// The spool in `dir`, with what an earlier run left in it.
    pub(crate) fn open(dir: PathBuf, bytes_max: u64) -> io::Result<Self> {
        std::fs::create_dir_all(&dir)?;
        let mut files = Vec::new();
        for entry in std::fs::read_dir(&dir)? {
            let path = entry?.path();
            if let Some(number) = number(&path) {
                files.push((number, std::fs::metadata(&path)?.len(), path));
            }
        }
        files.sort();
        let next = files.last().map_or(0, |(number, ..)| number + 1);
        let files = files.into_iter().map(|(_, bytes, path)| (path, bytes)).collect();
        Ok(Self { dir, bytes_max, files, taken: 0, tail: None, number: next })
    }

    /// Takes a batch; false when the bound is reached.
    pub(crate) fn push(&mut self, batch: &Batch) -> io::Result<bool> {
        if self.bytes() >= self.bytes_max {
            return Ok(false);
        }
        if self.tail.is_none() {
            let path = self.dir.join(format!("{:020}.log", self.number));
            self.number += 1;
            self.tail = Some(Journal::create(path)?);
        }
        let Some(tail) = &mut self.tail else { return Ok(false) };
        tail.append(batch)?;
        if tail.records() >= FILE_RECORDS {
            self.close_tail()?;
        }
        Ok(true)
    }

    /// Is there something to deliver that is not under way?
    pub(crate) fn is_waiting(&self) -> bool {
        self.files.len() > self.taken || self.tail.is_some()
    }

    /// The oldest file not yet taken; it stays on disk until [`Self::delivered`].
    pub(crate) fn take(&mut self, context: &Arc<Context>) -> io::Result<Option<(PathBuf, Arc<Batch>)>> {
        if self.files.len() <= self.taken {
            self.close_tail()?;
        }
        let Some((path, _)) = self.files.get(self.taken) else { return Ok(None) };
        let contents = journal::read(path)?;
        let path = path.clone();
        self.taken += 1;
        Ok(Some((path, Arc::new(in_terms_of(context, contents)))))
    }

    /// The file has reached the collector.
    pub(crate) fn delivered(&mut self, path: &Path) {
        if let Some(at) = self.files.iter().position(|(known, _)| known == path) {
            self.files.remove(at);
            self.taken = self.taken.saturating_sub(1);
        }
        if let Err(error) = std::fs::remove_file(path) {
            tracing::warn!("cannot delete {}: {error}; its events may be sent again", path.display());
        }
    }

    /// Everything is on disk after this, for the next run.
    pub(crate) fn close(&mut self) {
        if let Err(error) = self.close_tail() {
            tracing::warn!("cannot finish the spool {}: {error}", self.dir.display());
        }
    }

    /// Bytes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum::<u64>() + self.tail.as_ref().map_or(0, Journal::bytes)
    }

    fn close_tail(&mut self) -> io::Result<()> {
        if let Some(tail) = self.tail.take() {
            self.files.push_back((tail.path().to_owned(), tail.bytes()));
            tail.sync()?;
        }
        Ok(())
    }
}

fn number(path: &Path) -> Option<u64> {
    let is_ours = path.extension().is_some_and(|extension| extension == "log");
    path.file_stem().filter(|_| is_ours)?.to_str()?.parse().ok()
}

/// Instances go by their names: the numbers may be another configuration's.
fn in_terms_of(context: &Arc<Context>, contents: journal::Contents) -> Batch {
    let index = |name: &String| {
        let at = context.instances.iter().position(|instance| instance.name == *name);
        at.map_or(u16::MAX, |at| at as u16)
    };
    let indices: Vec<u16> = contents.instances.iter().map(index).collect();
    let mut records = contents.records;
    for record in &mut records {
        record.instance = indices.get(usize::from(record.instance)).copied().unwrap_or(u16::MAX);
    }
    Batch { context: Arc::clone(context), records }
}
