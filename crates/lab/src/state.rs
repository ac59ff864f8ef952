//! What a lab has created, on disk: so that a killed lab can be cleared and `carrack lab list` knows all labs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::plan;
use crate::process::Identity;

/// Where labs keep their state.
pub(crate) const ROOT: &str = "/run/carrack-lab";

/// Contents of `/run/carrack-lab/NAME.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub name: String,
    /// The process that brought the lab up.
    pub owner: Identity,
    /// Stays up after its owner has ended (`carrack lab up`).
    pub kept: bool,
    /// What routes, for people: `carrack` or `linux-nft`.
    pub router: String,
    /// Programs that stay up, in the order they were started.
    pub processes: Vec<Identity>,
}

impl State {
    /// Claims the name. Fails when a lab of that name is in use; a dead lab's remains must be cleared before.
    pub fn claim(state: &State) -> Result<()> {
        fs::create_dir_all(ROOT).with_context(|| format!("cannot create {ROOT}"))?;
        let path = file(&state.name);
        let text = serde_json::to_vec_pretty(state)?;
        // Written apart and then linked: whoever links first has the name, and the file is never seen half written.
        let draft = Path::new(ROOT).join(format!(".{}.{}", state.name, state.owner.pid));
        fs::write(&draft, text).with_context(|| format!("cannot write {}", draft.display()))?;
        let linked = fs::hard_link(&draft, &path);
        let _ = fs::remove_file(&draft);
        match linked {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                bail!("somebody else is bringing up lab `{}` right now", state.name)
            }
            Err(error) => Err(error).context(format!("cannot create {}", path.display())),
        }
    }

    /// Replaces the file with this state.
    pub fn save(&self) -> Result<()> {
        let path = file(&self.name);
        let draft = path.with_extension("json.new");
        fs::write(&draft, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&draft, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// The state of lab `name`; `None` when there is no such lab, or its file cannot be understood.
    pub fn load(name: &str) -> Option<State> {
        serde_json::from_slice(&fs::read(file(name)).ok()?).ok()
    }

    /// Forgets the lab.
    pub fn remove(name: &str) {
        let _ = fs::remove_file(file(name));
    }

    /// Whether somebody still uses this lab.
    pub fn in_use(&self) -> bool {
        if self.kept { self.processes.iter().any(Identity::alive) } else { self.owner.alive() }
    }

    /// Names of all labs with a state file.
    pub fn names() -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(ROOT)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let stem = name.strip_suffix(".json")?;
                plan::valid_name(stem).then(|| stem.to_owned())
            })
            .collect();
        names.sort();
        names
    }
}

/// Directory for the lab's config, logs, sockets and served files.
pub(crate) fn directory(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

fn file(name: &str) -> PathBuf {
    Path::new(ROOT).join(format!("{name}.json"))
}
