//! Files a DPDK process leaves behind when it is killed, told apart from those of living ones.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const PREFIX: &str = "carrack-";

/// Removes the run-time directories and huge-page files of our processes that are gone; returns what it removed.
pub fn remove_stale_files() -> Vec<PathBuf> {
    let mut places = vec![runtime_directory()];
    places.extend(huge_page_mounts(&fs::read_to_string("/proc/mounts").unwrap_or_default()));
    places.iter().flat_map(|place| remove_matching(place, |pid| !is_alive(pid))).collect()
}

/// Removes the socket that a killed memif server has left, on which another could not listen. That of a living one stays:
/// it answers a stream that it is of another type.
pub(crate) fn remove_dead_socket(path: &Path) {
    let is_dead = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if UnixStream::connect(path).err().is_some_and(is_dead) {
        // Should it stay, opening the port tells so.
        let _ = fs::remove_file(path);
    }
}

/// The prefix that marks this process's files.
pub(crate) fn own_prefix() -> String {
    format!("{PREFIX}{}", std::process::id())
}

/// The files of this process's DPDK: removed when this goes.
#[derive(Debug, Default)]
pub struct OwnFiles(());

impl Drop for OwnFiles {
    fn drop(&mut self) {
        remove_own_files();
    }
}

/// Removes this process's run-time directory after DPDK has ended.
pub(crate) fn remove_own_files() {
    remove_matching(&runtime_directory(), |pid| pid == std::process::id());
}

/// Where DPDK keeps a directory per file prefix.
fn runtime_directory() -> PathBuf {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    match std::env::var_os("RUNTIME_DIRECTORY").or_else(|| std::env::var_os("XDG_RUNTIME_DIR")) {
        Some(directory) if !root => PathBuf::from(directory).join("dpdk"),
        _ => PathBuf::from("/var/run/dpdk"),
    }
}

fn huge_page_mounts(mounts: &str) -> Vec<PathBuf> {
    let fields = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    fields
        .filter(|field| field.get(2) == Some(&"hugetlbfs"))
        .filter_map(|field| field.get(1).map(PathBuf::from))
        .collect()
}

fn remove_matching(place: &Path, gone: impl Fn(u32) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place) else { return Vec::new() };
    let ours = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        pid_of(&name.to_string_lossy()).is_some_and(&gone)
    });
    ours.filter_map(|entry| {
        let path = entry.path();
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.ok().map(|()| path)
    })
    .collect()
}

/// The process of `carrack-PID` or `carrack-PIDmap_3`, the names DPDK makes of our prefix.
fn pid_of(name: &str) -> Option<u32> {
    let rest = name.strip_prefix(PREFIX)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (pid, tail) = rest.split_at(digits);
    (tail.is_empty() || tail.starts_with("map_")).then(|| pid.parse().ok()).flatten()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests;
