//! Programs that stay up while a lab does: recorded by process id and start time, ended by process id.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::command::display;

/// A process as the state file knows it. The start time tells it from a later process with the same id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Process id; also the id of its process group.
    pub pid: i32,
    /// Clock ticks after boot at which it started (`/proc/PID/stat`, field 22).
    pub start_ticks: u64,
    /// What it is, for people.
    pub what: String,
}

impl Identity {
    /// Names the running process `pid`; `None` when there is none.
    pub fn of(pid: i32, what: &str) -> Option<Identity> {
        Some(Identity { pid, start_ticks: start_ticks(pid)?, what: what.to_owned() })
    }

    /// Whether this very process still runs (a zombie does not).
    pub fn alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }
}

/// Starts `argv`, its output going to `log`.
pub(crate) fn start(argv: &[String], log: &Path, what: &str) -> Result<(Child, Identity)> {
    let line = display(argv);
    let (program, args) = argv.split_first().context("empty command")?;
    let out = fs::File::options()
        .create(true)
        .append(true)
        .open(log)
        .with_context(|| format!("cannot open log {}", log.display()))?;
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {what}: `{line}`"))?;
    let identity =
        Identity::of(child.id() as i32, what).with_context(|| format!("{what} ended at once: `{line}`"))?;
    Ok((child, identity))
}

/// Ends a recorded process and its group: first by request, after `grace` by force. Does nothing when the process id
/// belongs to somebody else by now.
pub(crate) fn end(process: &Identity, child: Option<&mut Child>, grace: Duration) {
    let mut child = child;
    let mut gone = || {
        if let Some(child) = child.as_deref_mut() {
            // Reaping makes the id free; `alive` also counts a zombie as gone.
            let _ = child.try_wait();
        }
        !process.alive()
    };
    if gone() {
        return;
    }
    let pid = Pid::from_raw(process.pid);
    let _ = kill(pid, Signal::SIGTERM);
    let started = Instant::now();
    while !gone() {
        if started.elapsed() > grace {
            let _ = killpg(pid, Signal::SIGKILL);
            let _ = kill(pid, Signal::SIGKILL);
        }
        if started.elapsed() > grace + Duration::from_secs(5) {
            return;
        }
        thread::sleep(Duration::from_millis(3));
    }
    // Helpers it forked share its group.
    let _ = killpg(pid, Signal::SIGKILL);
}

/// Kills a process by id alone: for strangers found inside a lab's namespaces.
pub(crate) fn kill_stranger(pid: i32) {
    match kill(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => eprintln!("carrack lab: cannot end process {pid}: {error}"),
    }
}

/// Start time of a process that is not a zombie.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may itself hold spaces and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests;
