//! What the laboratories with DPDK programs share: a directory, a daemon under test, huge pages, places on the CPUs.

pub(crate) mod cores;
pub(crate) mod daemon;
pub(crate) mod pages;
pub(crate) mod testpmd;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail};

use crate::command::tail;
use crate::needs::{self, find};
use crate::process::Identity;
use crate::state;

/// A laboratory's directory under `/run/carrack-lab`, gone with this value. It holds sockets, configs and logs.
pub(crate) struct Directory(PathBuf);

impl Directory {
    /// A new one for this process; removes those of laboratories that were killed.
    pub fn create(kind: &str) -> Result<Directory> {
        clear_dead();
        let path = Path::new(state::ROOT).join(format!("{PREFIX}{kind}-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let own = Identity::of(std::process::id() as i32, "carrack lab").context("cannot read /proc/self")?;
        fs::write(path.join(OWNER), serde_json::to_vec(&own)?)?;
        Ok(Directory(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Adds the end of the daemon's log to an error, before the log is gone.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match fs::read_to_string(self.file(DAEMON_LOG)) {
            Ok(text) => anyhow!("{error:#}\nThe end of carrack's log:\n{}", tail(&text, 8).join("\n")),
            Err(_) => error,
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const PREFIX: &str = "rig-";
const DAEMON_LOG: &str = "carrack.log";
const OWNER: &str = "owner.json";

/// Clears what killed laboratories have left: directories, files of DPDK, huge pages. Says how much memory they had
/// reserved, MiB.
pub(crate) fn clear_left() -> u64 {
    clear_dead();
    carrack_io_dpdk::remove_stale_files();
    pages::give_back_left()
}

/// Removes directories whose owner is gone.
fn clear_dead() {
    for entry in fs::read_dir(state::ROOT).into_iter().flatten().flatten() {
        let is_rig = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let owner: Option<Identity> =
            fs::read(entry.path().join(OWNER)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if is_rig && owner.is_some_and(|owner| !owner.alive()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Fails with a sentence that says what to do when these laboratories cannot run here.
pub(crate) fn require(programs: &[(&'static str, &'static str)]) -> Result<()> {
    if let Some(why) = needs::missing_of(programs) {
        bail!(why);
    }
    // What killed runs left in the huge-page mount holds pages.
    carrack_io_dpdk::remove_stale_files();
    Ok(())
}

/// Programs of every laboratory with DPDK programs.
pub(crate) const PROGRAMS: [(&str, &str); 4] =
    [("setpriv", "util-linux"), ("taskset", "util-linux"), ("chrt", "util-linux"), ("stdbuf", "coreutils")];

/// A command that ends with this process, however this ends, and that a Ctrl-C at the terminal does not reach.
pub(crate) fn companion(words: &[String]) -> Result<Command> {
    let setpriv = find("setpriv").context("setpriv is missing (Debian package util-linux)")?;
    let mut command = Command::new(setpriv);
    command.args(["--pdeathsig", "TERM", "--"]).args(words);
    command.stdin(Stdio::null()).process_group(0);
    Ok(command)
}
