//! The state file: how interfaces were before a guard changed them.

use super::OffloadError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// One guard: whose it is and how its devices were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GuardRecord {
    pub pid: u32,
    /// The process's start, in clock ticks since boot: tells a later process with the same number apart.
    pub pid_start_ticks: u64,
    pub devices: Vec<DeviceRecord>,
}

/// One interface as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceRecord {
    pub namespace_inode: u64,
    pub place: Option<String>,
    pub name: String,
    pub index: u32,
    pub features_on: Vec<String>,
    pub was_up: bool,
    pub was_promiscuous: bool,
    pub mtu: u32,
    pub had_xdp: bool,
}

impl GuardRecord {
    /// A record of this process.
    pub(crate) fn of(devices: Vec<DeviceRecord>) -> GuardRecord {
        let pid = std::process::id();
        GuardRecord { pid, pid_start_ticks: start_ticks(pid).unwrap_or(0), devices }
    }

    /// Whether the process that wrote the record still runs.
    pub(crate) fn owner_lives(&self) -> bool {
        start_ticks(self.pid) == Some(self.pid_start_ticks)
    }
}

const SUFFIX: &str = ".offloads.json";

/// The file for an interface. Its namespace is part of the name: two namespaces may each have an `eth0`.
pub(crate) fn file_of(directory: &Path, interface: &str, namespace_inode: u64) -> PathBuf {
    directory.join(format!("{interface}-{namespace_inode}{SUFFIX}"))
}

pub(crate) fn files_in(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.to_string_lossy().ends_with(SUFFIX));
    files.sort();
    files
}

/// Reads a record; `None` when there is no file.
pub(crate) fn read(path: &Path) -> Result<Option<GuardRecord>, OffloadError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OffloadError::io(format!("cannot read {}", path.display()), &error)),
    };
    let record = serde_json::from_str(&text).map_err(|error| {
        OffloadError::new(format!(
            "{} is no record of interface offloads ({error}); restore the interface with `ethtool -K` and remove the file",
            path.display()
        ))
    })?;
    Ok(Some(record))
}

/// Writes a record so that after a crash there is either the whole file or none.
pub(crate) fn write(path: &Path, record: &GuardRecord) -> Result<(), OffloadError> {
    let temporary = path.with_extension("tmp");
    write_whole(path, &temporary, record).map_err(|error| {
        OffloadError::io(
            format!("cannot write {}, without which a killed run could not be undone", path.display()),
            &error,
        )
    })
}

pub(crate) fn remove(path: &Path) {
    // A file that stays is found out of date, and harmless, at the next start.
    let _ = fs::remove_file(path);
}

fn write_whole(path: &Path, temporary: &Path, record: &GuardRecord) -> std::io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut file = File::create(temporary)?;
    file.write_all(serde_json::to_string_pretty(record)?.as_bytes())?;
    file.sync_all()?;
    fs::rename(temporary, path)
}

/// Field 22 of the process's status line; the second field may itself contain spaces and brackets.
fn start_ticks(pid: u32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = line.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests;
