//! A day's files become one sorted set, so that a question opens one file a day however many were packed.
//!
//! ```text
//! DIR/2026-03-03/FROM-TO-….parquet                       as packed, each with all addresses
//! DIR/2026-03-03/merging/                                a set being written; nobody reads it
//! DIR/2026-03-03/merged-1/FROM-TO-FIRST-LAST-N.parquet   a set: each file has some outside addresses, the first none
//! DIR/2026-03-03/merged-1/inputs                         what it replaces; what is named here nobody reads any more
//! ```
//!
//! A set counts from the moment its directory gets its name, and what it replaces counts no more from that moment: one
//! rename. Whatever a crash interrupts before is written again, whatever after is deleted by the next start.

mod output;
mod runs;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::files;
use crate::record::Record;
use crate::time;
use output::Output;
use runs::{Run, Runs};

/// Files merged at once: each takes about 2 MB of memory.
const RUNS_MAX: usize = 64;
/// A day is over when no file that begins in it can come any more: the longest until a journal is packed, and as much again.
const OVER_MS: u64 = 2 * 3_600_000;
const SET: &str = "merged-";
const MERGING: &str = "merging";
const DELETING: &str = "deleting-";
const INPUTS: &str = "inputs";

/// What merging a day did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Merged {
    /// Files before.
    pub files_before: usize,
    /// Files after.
    pub files: usize,
    /// Events in them.
    pub events: u64,
}

/// Why a day was not merged; its files are as they were.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unmerged {
    /// The caller wanted to stop.
    Stopped,
    /// A sentence.
    Failed(String),
}

/// Is that the name of a merged set?
pub(super) fn is_set(name: &str) -> bool {
    name.starts_with(SET)
}

/// What a set replaces, by name.
pub(super) fn replaced(set: &Path) -> io::Result<Vec<String>> {
    match fs::read_to_string(set.join(INPUTS)) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Deletes a set whole or not at all.
pub(super) fn delete_set(set: &Path) -> io::Result<()> {
    let name = set.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let gone = set.with_file_name(format!("{DELETING}{name}"));
    fs::rename(set, &gone)?;
    fs::remove_dir_all(gone)
}

/// Puts in order what a crash has left behind.
pub(crate) fn recover(dir: &Path) -> io::Result<()> {
    for day in files::days(dir)? {
        for entry in fs::read_dir(&day)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            if name == MERGING || name.starts_with(DELETING) {
                fs::remove_dir_all(entry.path())?;
            } else if is_set(name) {
                finish(&day, &entry.path())?;
            }
        }
    }
    Ok(())
}

/// Days that are over and of more than one file, oldest first.
pub(crate) fn due(dir: &Path, now_ms: u64) -> io::Result<Vec<PathBuf>> {
    let today = time::format_ms(now_ms.saturating_sub(OVER_MS));
    let mut due = Vec::new();
    for day in files::days(dir)? {
        let is_over =
            day.file_name().and_then(|name| name.to_str()).zip(today.get(..10)).is_some_and(|(a, b)| a < b);
        if is_over && files::units(files::day_parts(&day)?).len() > 1 {
            due.push(day);
        }
    }
    Ok(due)
}

/// Makes one set of a day's files. `go_on` is asked now and then; what it says no to is left as it was.
pub(crate) fn merge(day: &Path, go_on: &mut dyn FnMut() -> bool) -> Result<Merged, Unmerged> {
    let failed = |error: io::Error| Unmerged::Failed(error.to_string());
    let mut done = Merged::default();
    let mut known = usize::MAX;
    loop {
        let runs = runs::of(files::day_parts(day).map_err(failed)?);
        if runs.len() < 2 {
            return Ok(done);
        }
        // What does not become less would go on for ever.
        if runs.len() >= known {
            return Err(Unmerged::Failed(format!("{known} files became {}", runs.len())));
        }
        known = runs.len();
        if done.files_before == 0 {
            done.files_before = runs.iter().map(Run::files).sum();
        }
        let merging = day.join(MERGING);
        let written = write(&merging, runs::chosen(runs, RUNS_MAX), go_on);
        (done.files, done.events) = written.inspect_err(|_| {
            let _ = fs::remove_dir_all(&merging);
        })?;
    }
}

/// Writes the set of a day that has none, from events in the order of their file.
pub(crate) fn write_set(
    day: &Path,
    instance: &str,
    events: impl Iterator<Item = Record>,
) -> Result<(usize, u64), String> {
    let text = |error: io::Error| error.to_string();
    let merging = day.join(MERGING);
    fs::create_dir_all(&merging).map_err(text)?;
    let names = [instance.into()];
    let mut output = Output::new(&merging, false);
    let write =
        |output: &mut Output<'_>| events.map(|event| output.push(event, &names)).find_map(Result::err);
    if let Some(why) = write(&mut output) {
        return Err(format!("{why:?}"));
    }
    let written = output.finish(&names).map_err(|why| format!("{why:?}"))?;
    commit(day, &merging, &[]).map_err(text)?;
    Ok(written)
}

/// Writes a set and puts it in the place of its runs.
fn write(merging: &Path, runs: Vec<Run>, go_on: &mut dyn FnMut() -> bool) -> Result<(usize, u64), Unmerged> {
    let failed = |error: io::Error| Unmerged::Failed(error.to_string());
    let Some(day) = merging.parent() else { return Err(Unmerged::Failed("no day".into())) };
    room(day, runs.iter().map(Run::bytes).sum())?;
    let _ = fs::remove_dir_all(merging);
    fs::create_dir(merging).map_err(failed)?;
    let inputs: Vec<String> = runs.iter().map(|run| run.name().to_owned()).collect();
    let mut runs = Runs::open(runs)?;
    let mut output = Output::new(merging, runs.has_six());
    while let Some(record) = runs.next()? {
        if output.push(record, runs.names())? && !go_on() {
            return Err(Unmerged::Stopped);
        }
    }
    let (files, events) = output.finish(runs.names())?;
    if events != runs.events() {
        return Err(Unmerged::Failed(format!("{} events became {events}", runs.events())));
    }
    commit(day, merging, &inputs).map_err(failed)?;
    Ok((files, events))
}

/// Is there room for as much again? The store's journals need some, too.
fn room(day: &Path, bytes: u64) -> Result<(), Unmerged> {
    const JOURNALS: u64 = 256 << 20;
    let free = rustix::fs::statvfs(day).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    let free = free.map_err(|error| Unmerged::Failed(error.to_string()))?;
    let needed = bytes.saturating_add(bytes / 8).saturating_add(JOURNALS);
    if free < needed {
        let (needed, free) = (needed.div_ceil(1_000_000), free / 1_000_000);
        return Err(Unmerged::Failed(format!("that needs {needed} MB for a while and {free} MB are free")));
    }
    Ok(())
}

fn commit(day: &Path, merging: &Path, inputs: &[String]) -> io::Result<()> {
    let mut list = File::create(merging.join(INPUTS))?;
    for name in inputs {
        writeln!(list, "{name}")?;
    }
    list.sync_all()?;
    files::sync_dir(merging)?;
    let number = |name: &str| name.strip_prefix(SET)?.parse::<u32>().ok();
    let known = fs::read_dir(day)?.filter_map(|entry| number(entry.ok()?.file_name().to_str()?)).max();
    let set = day.join(format!("{SET}{}", known.unwrap_or(0) + 1));
    fs::rename(merging, &set)?;
    files::sync_dir(day)?;
    finish(day, &set)
}

/// Deletes what a set replaces.
fn finish(day: &Path, set: &Path) -> io::Result<()> {
    if !set.join(INPUTS).exists() {
        return Ok(());
    }
    for name in replaced(set)? {
        let path = day.join(&name);
        let gone = if is_set(&name) { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        match gone {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    // On disk in this order: a list that is gone means that what it named is gone.
    files::sync_dir(day)?;
    fs::remove_file(set.join(INPUTS))?;
    files::sync_dir(set)
}
