//! THE table of threads: what each is called and what it does. The kernel keeps 15 bytes of a name, and cuts the rest.

use crate::WorkerId;

/// Longest name that the kernel keeps, bytes.
pub const NAME_BYTES_MAX: usize = 15;
/// Threads of the API that may have a number of their own at once.
const API_THREADS: usize = 1_000;

/// A thread of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thread<'a> {
    /// Forwards packets.
    Worker(WorkerId),
    /// Owns the host and the configuration.
    Control,
    /// Writes what hosts asked for by port control to its file.
    State,
    /// Obeys signals.
    Signals,
    /// Answers requests of management; how many of its kind were started before.
    Api(usize),
    /// Takes events from the workers and hands them on.
    Log,
    /// Writes events to the store.
    Store,
    /// Packs what the store has written.
    Pack,
    /// Sends events to a collector: its number among those that run, and its name.
    Exporter(usize, &'a str),
    /// Waits for answers of an exporter's database or broker: number and name of the exporter.
    Insert(usize, &'a str),
}

impl Thread<'_> {
    /// Its name: no two threads of a daemon have the same, and none is cut.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Worker(WorkerId(number)) => format!("{WORKER}{number}"),
            Self::Control => CONTROL.into(),
            Self::State => STATE.into(),
            Self::Signals => SIGNALS.into(),
            // The first one lives as long as the daemon; others come and go, and numbers come again after a while.
            Self::Api(0) => format!("{API}0"),
            Self::Api(number) => format!("{API}{}", 1 + (number - 1) % (API_THREADS - 1)),
            Self::Log => LOG.into(),
            Self::Store => STORE.into(),
            Self::Pack => PACK.into(),
            Self::Exporter(number, name) => whole(format!("{EXPORTER}{number}-"), name),
            Self::Insert(number, name) => whole(format!("{INSERT}{number}-"), name),
        }
    }
}

/// As much of `rest` behind `start` as the kernel keeps.
fn whole(mut start: String, rest: &str) -> String {
    for c in rest.chars() {
        if start.len() + c.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        start.push(c);
    }
    start
}

const WORKER: &str = "nat-worker-";
const CONTROL: &str = "carrack-control";
const STATE: &str = "carrack-state";
const SIGNALS: &str = "carrack-signals";
const API: &str = "carrack-api-";
const LOG: &str = "carrack-log";
const STORE: &str = "carrack-store";
const PACK: &str = "carrack-pack";
const EXPORTER: &str = "log";
const INSERT: &str = "ins";

/// What threads are there for, in the words that management shows.
pub const ROLES: [&str; 10] =
    ["main", "nat-worker", "control", "state", "signals", "api", "log", "store", "exporter", "dpdk"];

/// The role of a thread by its name, one of [`ROLES`]; `None` for what the daemon did not start. The main thread has the
/// name of the program, and is known by its number.
#[must_use]
pub fn role(name: &str) -> Option<&'static str> {
    let is_numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_dpdks = ["eal-", "rte_", "rte-", "dpdk-"].iter().any(|prefix| name.starts_with(prefix));
    Some(match name {
        CONTROL => "control",
        STATE => "state",
        SIGNALS => "signals",
        LOG => "log",
        STORE | PACK => "store",
        _ if is_numbered(WORKER) => "nat-worker",
        _ if is_numbered(API) => "api",
        _ if is_numbered(EXPORTER) || is_numbered(INSERT) => "exporter",
        _ if is_dpdks => "dpdk",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WORKERS_MAX;
    use std::collections::BTreeSet;

    #[test]
    fn no_name_is_cut_and_no_two_threads_have_the_same() {
        // Names of exporters have up to 32 characters and may begin alike.
        let exporters = ["collector-of-the-north-1", "collector-of-the-north-2", "é".repeat(9).as_str()]
            .map(str::to_owned);
        let mut all: Vec<Thread<'_>> =
            (0..WORKERS_MAX as u8).map(|worker| Thread::Worker(WorkerId(worker))).collect();
        all.extend([
            Thread::Control,
            Thread::State,
            Thread::Signals,
            Thread::Log,
            Thread::Store,
            Thread::Pack,
        ]);
        all.extend((0..API_THREADS).map(Thread::Api));
        let exporters = exporters.iter().cycle().take(16).enumerate();
        all.extend(exporters.flat_map(|(n, name)| [Thread::Exporter(n, name), Thread::Insert(n, name)]));
        let names: BTreeSet<String> = all.iter().map(|thread| thread.name()).collect();
        assert_eq!(names.len(), all.len());
        assert!(names.iter().all(|name| name.len() <= NAME_BYTES_MAX), "{names:?}");
        assert!(names.contains("nat-worker-63") && names.contains("log0-collector-"), "{names:?}");
        assert!(names.iter().all(|name| role(name).is_some_and(|role| ROLES.contains(&role))), "{names:?}");
    }

    #[test]
    fn numbers_of_the_api_come_again_but_never_the_first() {
        let name = |n| Thread::Api(n).name();
        assert_eq!([name(0), name(999), name(1_000)], ["carrack-api-0", "carrack-api-999", "carrack-api-1"]);
        assert!((1..5_000).all(|n| name(n) != name(0)));
    }

    #[test]
    fn roles_are_told_by_names() {
        let roles = [
            "carrack-control",
            "nat-worker-7",
            "log3-flows",
            "ins3-flows",
            "eal-intr-thread",
            "carrack-pack",
        ];
        let told = ["control", "nat-worker", "exporter", "exporter", "dpdk", "store"];
        assert_eq!(roles.map(role), told.map(Some));
        assert_eq!(["logger", "carrack", "nat-worker-"].map(role), [None; 3]);
    }
}
