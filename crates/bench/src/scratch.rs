//! A directory of a measurement's own, deleted at its end however it ends.

use std::path::{Path, PathBuf};

use nix::sys::signal::{SigSet, Signal};

use crate::forward::BenchError;

/// Before the process that made it.
const NAME: &str = "carrack-bench-";

/// Deleted when dropped, and when the program is interrupted; what a killed one leaves, the next one deletes.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A directory in `parent`, the temporary one unless given. To be called before other threads are started.
    pub fn new(parent: Option<&Path>) -> Result<Self, BenchError> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
        let failed = |error: std::io::Error| {
            BenchError(format!("cannot write in {}: {error}; name another with --dir", parent.display()))
        };
        sweep(&parent).map_err(failed)?;
        let path = parent.join(format!("{NAME}{}", std::process::id()));
        std::fs::create_dir_all(&path).map_err(failed)?;
        watch(path.clone());
        Ok(Self(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Deletes what processes that are no more have left.
fn sweep(parent: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(NAME)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            eprintln!("deleting {}, which a killed measurement has left", entry.path().display());
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Deletes the directory when the program is to end early.
fn watch(path: PathBuf) {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        signals.add(signal);
    }
    // Threads started from here on inherit that; without it the program ends as ever, and the next run sweeps.
    if signals.thread_block().is_err() {
        return;
    }
    std::thread::spawn(move || {
        if let Ok(signal) = signals.wait() {
            let _ = std::fs::remove_dir_all(&path);
            // Other threads may have written in between.
            let _ = std::fs::remove_dir_all(&path);
            std::process::exit(128 + signal as i32);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_deleted_and_what_a_running_one_has_is_not() {
        let parent = std::env::temp_dir().join(format!("carrack-scratch-{}", std::process::id()));
        // No process has that number: the kernel's highest is 4,194,304.
        let (dead, alive) = (parent.join("carrack-bench-9999999"), parent.join("carrack-bench-1"));
        for path in [&dead, &alive, &parent.join("carrack-bench-other")] {
            std::fs::create_dir_all(path.join("store")).unwrap();
        }
        sweep(&parent).unwrap();
        assert!(!dead.exists() && alive.exists() && parent.join("carrack-bench-other").exists());
        std::fs::remove_dir_all(parent).unwrap();
    }
}
