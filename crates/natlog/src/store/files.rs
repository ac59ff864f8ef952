//! The store's directory: names say what is in a file, so that most need not be opened.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{columns, journal};
use crate::time;

/// Where journals and configurations are.
const JOURNAL: &str = "journal";
const CONFIG: &str = "config";

/// A columnar file and the times of the first and the last event in it, milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub path: PathBuf,
    pub from_ms: u64,
    pub to_ms: u64,
    pub bytes: u64,
}

pub(crate) fn make(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir.join(JOURNAL))?;
    fs::create_dir_all(dir.join(CONFIG))
}

pub(crate) fn journal_path(dir: &Path, unix_ms: u64, number: u32) -> PathBuf {
    dir.join(JOURNAL).join(format!("{unix_ms}-{number}.log"))
}

/// All journals, oldest first.
pub(crate) fn journals(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = list(&dir.join(JOURNAL), "log")?;
    paths.sort_by_key(|path| numbers(path));
    Ok(paths)
}

/// All columnar files, by the time of their first event.
pub(crate) fn parts(dir: &Path) -> io::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for day in fs::read_dir(dir)? {
        let day = day?;
        let is_day =
            day.file_name().to_str().is_some_and(|name| name.len() == 10 && name.starts_with(['1', '2']));
        if !is_day {
            continue;
        }
        for path in list(&day.path(), "parquet")? {
            if let [from_ms, to_ms, ..] = numbers(&path)[..] {
                let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
                parts.push(Part { path, from_ms, to_ms, bytes });
            }
        }
    }
    parts.sort_by_key(|part| (part.from_ms, part.to_ms));
    Ok(parts)
}

/// Turns a journal into a columnar file. May be repeated after a crash at any point: the file gets the same name again.
pub(crate) fn pack(dir: &Path, path: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let contents = journal::read(path).map_err(text)?;
    let times = || contents.records.iter().map(|record| record.unix_ms);
    if let (Some(from_ms), Some(to_ms)) = (times().min(), times().max()) {
        let day = dir.join(time::format_ms(from_ms).get(..10).unwrap_or("1970-01-01"));
        fs::create_dir_all(&day).map_err(text)?;
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("0");
        let unfinished = dir.join(JOURNAL).join(format!("{stem}.unfinished"));
        columns::write(&unfinished, &contents.records, &contents.instances).map_err(|error| {
            let _ = fs::remove_file(&unfinished);
            error.to_string()
        })?;
        fs::rename(&unfinished, day.join(format!("{from_ms}-{to_ms}-{stem}.parquet"))).map_err(text)?;
        sync_dir(&day).map_err(text)?;
        sync_dir(dir).map_err(text)?;
    }
    fs::remove_file(path).map_err(text)
}

/// Deletes files whose last event is before `oldest_ms`, and the oldest beyond `bytes_max`; returns the bytes that stay.
pub(crate) fn tidy(dir: &Path, oldest_ms: u64, bytes_max: u64) -> io::Result<u64> {
    let parts = parts(dir)?;
    let mut bytes: u64 = parts.iter().map(|part| part.bytes).sum();
    for part in parts {
        if part.to_ms < oldest_ms || bytes > bytes_max {
            fs::remove_file(&part.path)?;
            bytes -= part.bytes;
            if let Some(day) = part.path.parent() {
                // Fails while another file is in it, as it should.
                let _ = fs::remove_dir(day);
            }
        }
    }
    Ok(bytes)
}

pub(crate) fn keep_config(dir: &Path, text: &str, generation: u64, unix_ms: u64) -> io::Result<()> {
    let path = dir.join(CONFIG).join(format!("{unix_ms}-{generation}.toml"));
    fs::write(&path, text)?;
    fs::File::open(&path)?.sync_all()?;
    sync_dir(&dir.join(CONFIG))
}

/// All configurations, oldest first: from when each was in force, and where its text is.
pub(crate) fn configs(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let paths = list(&dir.join(CONFIG), "toml")?.into_iter();
    let mut configs: Vec<(u64, PathBuf)> =
        paths.filter_map(|path| Some((*numbers(&path).first()?, path))).collect();
    configs.sort();
    Ok(configs)
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

fn list(dir: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// The numbers in a file's name.
fn numbers(path: &Path) -> Vec<u64> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.split('-').filter_map(|part| part.parse().ok()).collect()
}
