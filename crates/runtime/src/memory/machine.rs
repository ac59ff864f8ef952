//! What the machine says of its memory.

use std::path::Path;

/// Ordinary memory that can be had, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Available {
    /// Bytes.
    pub bytes: u64,
    /// What sets that bound, for people.
    pub by: String,
}

/// What the kernel would give without swapping, within the limits of the control groups this process is in.
/// Without bound where the kernel does not tell.
#[must_use]
pub fn available() -> Available {
    available_in(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
}

pub(super) fn available_in(proc: &Path, groups: &Path) -> Available {
    let info = std::fs::read_to_string(proc.join("meminfo")).unwrap_or_default();
    let free = field(&info, "MemAvailable:").map_or(u64::MAX, |kib| kib.saturating_mul(1_024));
    let mut least = Available { bytes: free, by: "MemAvailable of /proc/meminfo".into() };
    let own = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("");
    // Every group above sets its bound too; inside a container the path may not be visible, the root then is.
    for name in Path::new(own).ancestors() {
        let group = groups.join(name);
        let Some(limit) = number(&group.join("memory.max")) else { continue };
        let used = number(&group.join("memory.current")).unwrap_or(0);
        // File cache goes before anything is killed.
        let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cache = field(&stat, "inactive_file").unwrap_or(0);
        let left = limit.saturating_sub(used.saturating_sub(cache));
        if left < least.bytes {
            let by = format!("the limit of control group /{}, memory.max = {limit}", name.display());
            least = Available { bytes: left, by };
        }
    }
    least
}

/// The NUMA socket of a processor; 0 where there is none.
pub(crate) fn socket_of_core(core: usize) -> u32 {
    socket_in(Path::new("/sys/devices/system/cpu"), core)
}

pub(super) fn socket_in(directory: &Path, core: usize) -> u32 {
    let Ok(entries) = std::fs::read_dir(directory.join(format!("cpu{core}"))) else { return 0 };
    let nodes =
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok());
    nodes.min().unwrap_or(0)
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The first number after a name.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
