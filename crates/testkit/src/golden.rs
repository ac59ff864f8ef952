//! Golden cases: a config, packets in, packets out, counters.
//!
//! A case is a directory with a file `case` and, unless the shared one beside it will do, a `config.toml`:
//!
//! ```text
//! # A datagram leaves with the pool's address; its answer comes back.
//! > lan udp 10.0.0.5:1000>198.51.100.9:53 ttl=64
//! < wan udp 203.0.113.1:$P>198.51.100.9:53 ttl=63
//! > wan udp 198.51.100.9:53>203.0.113.1:$P
//! < lan udp 198.51.100.9:53>10.0.0.5:1000
//! > wan udp 198.51.100.9:53>203.0.113.1:1
//! = drop nat-no-mapping 1
//! ```
//!
//! `>` puts a packet into an interface (`x40 %` repeats it with `%` counting from 1), `<` is what must leave, in
//! order (`< *5` for five that nobody looks at), `=` what counters must move by: `drop REASON`, `punted`, `held`,
//! `consumed`, `originated`. Counters that are not listed must not move; `rx` is the number of `>`, `forwarded` the
//! number of `<`. `$P` is captured where it first stands and must be the same afterwards. TTL, length, a fragment's `id=`
//! and `via=` (the neighbour) are compared where they are written. `wait SECONDS` lets time go by, `silent ADDRESS` is a neighbour
//! that does not answer ARP, `reload FILE` takes another config of the directory into force, `file NAME.case` in the
//! same way continues with other steps.

mod steps;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use carrack_base::Reason;
use carrack_config::{Compiled, Config, PortFacts, compile};
use carrack_wire::MacAddr;

/// Plays one case.
///
/// # Errors
/// Where the case and the router differ, with file and line.
pub fn play(directory: &Path) -> Result<BTreeSet<Reason>, String> {
    let text = read(&directory.join("case"))?;
    let own = directory.join("config.toml");
    let config = if own.exists() { own } else { directory.join("../config.toml") };
    let player = steps::Player::new(directory, &config)?;
    player.play(&text).map_err(|error| format!("{}/case:{error}", directory.display()))
}

/// All cases below a directory, by name.
///
/// # Errors
/// When it cannot be read.
pub fn cases(below: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(below).map_err(|e| format!("{}: {e}", below.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.join("case").exists())
        .collect();
    found.sort();
    Ok(found)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads and compiles a config, with a MAC address for each port.
///
/// # Errors
/// What the config says is wrong.
pub fn load(path: &Path, previous: Option<&Compiled>) -> Result<Compiled, String> {
    let text = read(path)?;
    let all = |errors: Vec<carrack_config::ConfigError>| {
        errors.iter().map(|e| format!("{e}\n")).collect::<String>()
    };
    let (config, _) = Config::from_str(&path.display().to_string(), &text).map_err(all)?;
    let mut facts = PortFacts::assumed(&config);
    for (at, port) in facts.iter_mut().enumerate() {
        port.mac = MacAddr([2, 0, 0, 0, 0, 0x10 + at as u8]);
    }
    compile(&config, &facts, previous).map_err(all)
}
