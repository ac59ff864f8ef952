//! The store's directory: names say what is in a file, so that most need not be opened.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{columns, journal, merge};
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
    /// Outside addresses of its events, the first and the last, when its name tells.
    pub outside: Option<(u32, u32)>,
    pub bytes: u64,
    /// The merged set that it is of (merge.rs).
    pub set: Option<PathBuf>,
}

impl Part {
    /// From its name.
    fn of(path: PathBuf, set: Option<&Path>) -> Option<Self> {
        let [from_ms, to_ms, ..] = numbers(&path)[..] else { return None };
        let mut ips = path.file_stem()?.to_str()?.split('-').filter_map(|part| part.parse::<Ipv4Addr>().ok());
        let outside = ips.next().zip(ips.next()).map(|(first, last)| (first.into(), last.into()));
        let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Some(Self { path, from_ms, to_ms, outside, bytes, set: set.map(Path::to_owned) })
    }

    /// Can it have events of that outside address, or of none?
    pub(crate) fn admits(&self, ip: u32) -> bool {
        self.outside.is_none_or(|(first, last)| (first..=last).contains(&ip) || first == 0)
    }
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
    for day in days(dir)? {
        parts.extend(day_parts(&day)?);
    }
    parts.sort_by_key(|part| (part.from_ms, part.to_ms));
    Ok(parts)
}

/// Directories of days, oldest first.
pub(crate) fn days(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut days = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let is_day = |name: &str| name.len() == 10 && name.starts_with(['1', '2']);
        if entry.file_name().to_str().is_some_and(is_day) {
            days.push(entry.path());
        }
    }
    days.sort();
    Ok(days)
}

/// Columnar files of a day. While files are being replaced by merged ones, either those or these, never both or neither.
pub(crate) fn day_parts(day: &Path) -> io::Result<Vec<Part>> {
    // Replaced files are removed one by one: a moment of quiet comes soon, but not at once.
    const ATTEMPTS: u32 = 1_000;
    const PAUSE: Duration = Duration::from_millis(5);
    for _ in 0..ATTEMPTS {
        let before = names(day)?;
        let parts = listed_parts(day, &before);
        // A set goes only after another has come: names that stayed the same have all been there.
        if names(day)? == before {
            return parts;
        }
        std::thread::sleep(PAUSE);
    }
    Err(io::Error::other(format!("{} changes all the time", day.display())))
}

fn listed_parts(day: &Path, names: &[String]) -> io::Result<Vec<Part>> {
    let sets = || names.iter().filter(|name| merge::is_set(name));
    let mut replaced = Vec::new();
    for set in sets() {
        replaced.extend(merge::replaced(&day.join(set))?);
    }
    let mut parts = Vec::new();
    for name in names.iter().filter(|name| !replaced.contains(name)) {
        let path = day.join(name);
        if merge::is_set(name) {
            let set = list(&path, "parquet")?;
            parts.extend(set.into_iter().filter_map(|part| Part::of(part, Some(&path))));
        } else if name.ends_with(".parquet") {
            parts.extend(Part::of(path, None));
        }
    }
    Ok(parts)
}

/// What is in a directory, sorted; nothing when there is none.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
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

/// Deletes files whose last event is before `oldest_ms`, and the oldest beyond `bytes_max`; returns the bytes that stay. What
/// was merged goes together: without one of its files the others would tell of addresses that were nobody's.
pub(crate) fn tidy(dir: &Path, oldest_ms: u64, bytes_max: u64) -> io::Result<u64> {
    let units = units(parts(dir)?);
    let mut bytes: u64 = units.iter().map(|unit| unit.bytes).sum();
    for unit in units {
        if unit.to_ms < oldest_ms || bytes > bytes_max {
            if unit.is_set {
                merge::delete_set(&unit.path)?
            } else {
                fs::remove_file(&unit.path)?
            }
            bytes -= unit.bytes;
            if let Some(day) = unit.path.parent() {
                // Fails while another file is in it, as it should.
                let _ = fs::remove_dir(day);
            }
        }
    }
    Ok(bytes)
}

/// A file, or a merged set of them.
pub(crate) struct Unit {
    pub path: PathBuf,
    pub is_set: bool,
    pub to_ms: u64,
    pub bytes: u64,
}

/// Files put together to what they belong to, by the time of their first event.
pub(crate) fn units(parts: Vec<Part>) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    let mut sets: HashMap<PathBuf, usize> = HashMap::new();
    for part in parts {
        let known = part.set.as_ref().and_then(|set| sets.get(set)).copied();
        if let Some(unit) = known.and_then(|at| units.get_mut(at)) {
            unit.to_ms = unit.to_ms.max(part.to_ms);
            unit.bytes += part.bytes;
            continue;
        }
        if let Some(set) = &part.set {
            sets.insert(set.clone(), units.len());
        }
        units.push(Unit {
            is_set: part.set.is_some(),
            path: part.set.unwrap_or(part.path),
            to_ms: part.to_ms,
            bytes: part.bytes,
        });
    }
    units
}

/// Keeps a configuration whole or not at all.
pub(crate) fn keep_config(dir: &Path, text: &str, generation: u64, unix_ms: u64) -> io::Result<()> {
    let path = dir.join(CONFIG).join(format!("{unix_ms}-{generation}.toml"));
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, text)?;
    fs::File::open(&unfinished)?.sync_all()?;
    fs::rename(unfinished, path)?;
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

pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    fs::File::open(dir)?.sync_all()
}

pub(crate) fn list(dir: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
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
