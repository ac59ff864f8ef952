//! What keeps months of events quick to ask, apart from a running daemon: for measurements.

use std::path::Path;
use std::sync::Arc;

use crate::context::{Context, InstanceContext};
use crate::exporter::Batch;
use crate::record::Record;
use crate::store::journal::Journal;
use crate::store::{files, merge};
use crate::time;

/// 2100-01-01: every day of a log is over.
const END_MS: u64 = 4_102_444_800_000;

/// What merging did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    /// Days.
    pub days: usize,
    /// Files of those that were merged, before.
    pub files_before: usize,
    /// Files of those that were merged, after.
    pub files: usize,
    /// Events in them.
    pub events: u64,
}

/// Merges every day of a store that nothing writes, as the daemon does with those that are over.
///
/// # Errors
/// Which day could not be merged, and why.
pub fn merge_all(dir: &Path) -> Result<History, String> {
    let mut history = History::default();
    for day in merge::due(dir, END_MS).map_err(|error| error.to_string())? {
        let merged = merge::merge(&day, &mut || true).map_err(|why| match why {
            merge::Unmerged::Failed(why) => format!("{}: {why}", day.display()),
            merge::Unmerged::Stopped => format!("{}: stopped", day.display()),
        })?;
        history.days += 1;
        history.files_before += merged.files_before;
        history.files += merged.files;
        history.events += merged.events;
    }
    Ok(history)
}

/// Writes a day as merging leaves it, from events in order of outside address, first port and time.
///
/// # Errors
/// What could not be written.
pub fn write_day(
    dir: &Path,
    day_ms: u64,
    instance: &str,
    events: impl Iterator<Item = Record>,
) -> Result<History, String> {
    files::make(dir).map_err(|error| error.to_string())?;
    let day = dir.join(time::format_ms(day_ms).get(..10).unwrap_or_default());
    let (files, events) = merge::write_set(&day, instance, events)?;
    Ok(History { days: 1, files_before: 0, files, events })
}

/// Most events of a file of a day that is not over.
pub const PACKED_EVENTS: u64 = crate::store::FILE_RECORDS;

/// Writes some events of a day that is not over, in the order they came: as a file of its own, or, when `is_last`, as the
/// journal that a daemon still writes. `number` tells them apart.
///
/// # Errors
/// What could not be written.
pub fn write_packed(
    dir: &Path,
    number: u32,
    instance: &str,
    events: Vec<Record>,
    is_last: bool,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    files::make(dir).map_err(text)?;
    let path = files::journal_path(dir, events.first().map_or(0, |event| event.unix_ms), number);
    let instances = vec![InstanceContext { name: instance.to_owned(), ..InstanceContext::default() }];
    let context = Arc::new(Context { instances, ..Context::default() });
    Journal::create(path.clone())
        .and_then(|mut journal| journal.append(&Batch { context, records: events }))
        .map_err(text)?;
    if is_last { Ok(()) } else { files::pack(dir, &path) }
}
