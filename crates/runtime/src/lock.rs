//! One daemon for one run directory: a lock file that the kernel releases when its holder dies.

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// Name of the lock file in the run directory.
const FILE_NAME: &str = "carrack.lock";

/// A held run directory. Released when dropped, and by the kernel when the process ends in whatever way.
#[derive(Debug)]
pub struct RunLock {
    file: Flock<File>,
    path: PathBuf,
    predecessor: Option<u32>,
}

/// Why the run directory could not be had: a sentence that says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockError(pub String);

impl std::fmt::Display for LockError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LockError {}

impl RunLock {
    /// Makes `run_dir` when it is missing and takes it.
    ///
    /// # Errors
    /// When the directory cannot be made or written, and when another daemon holds it.
    pub fn take(run_dir: &Path) -> Result<Self, LockError> {
        let shown = run_dir.display();
        std::fs::create_dir_all(run_dir).map_err(|error| {
            LockError(format!(
                "cannot make the run directory {shown}: {error}; make it, or set system.run_dir"
            ))
        })?;
        let path = run_dir.join(FILE_NAME);
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).open(&path).map_err(|error| {
                LockError(format!(
                    "cannot open {}: {error}; run as a user who may write there",
                    path.display()
                ))
            })?;
        let mut file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(mut file, _)| {
            let holder = read_pid(&mut file).map_or_else(String::new, |pid| format!(" (process {pid})"));
            LockError(format!(
                "another carrack{holder} runs with the run directory {shown}; stop it, or set another system.run_dir"
            ))
        })?;
        let predecessor = read_pid(&mut file);
        write_pid(&mut file, &std::process::id().to_string()).map_err(|error| {
            LockError(format!("cannot write {}: {error}; make room on that file system", path.display()))
        })?;
        Ok(Self { file, path, predecessor })
    }

    /// The process that held the directory before and died without tidying up.
    #[must_use]
    pub fn dead_predecessor(&self) -> Option<u32> {
        self.predecessor
    }

    /// The lock file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // An empty lock file says that its last holder ended in good order. The file itself stays: removing it would let two
        // starters lock two different files of the same name.
        let _ = write_pid(&mut self.file, "");
    }
}

fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn write_pid(file: &mut File, text: &str) -> std::io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())
}
