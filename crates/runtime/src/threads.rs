//! The threads of this process as the kernel tells of them: their names, and on which processors they run.

use std::path::Path;

use carrack_base::WorkerId;
use carrack_base::thread::{Thread, role};

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadRow {
    /// The kernel's number of it.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// What it does, one of [`ROLES`](carrack_base::thread::ROLES); `None` for what the daemon did not start.
    pub role: Option<&'static str>,
    /// The processors it may run on, as the kernel writes them: `0-3,8`.
    pub cpus: String,
    /// The processor it ran on last.
    pub last_cpu: Option<u16>,
}

impl ThreadRow {
    /// Is it this worker's?
    #[must_use]
    pub fn is_of(&self, worker: WorkerId) -> bool {
        self.name == Thread::Worker(worker).name()
    }
}

/// All threads of this process, in the order in which they were started.
#[must_use]
pub fn threads() -> Vec<ThreadRow> {
    threads_in(Path::new("/proc/self/task"), std::process::id())
}

fn threads_in(directory: &Path, main: u32) -> Vec<ThreadRow> {
    let tasks = std::fs::read_dir(directory).into_iter().flatten().flatten();
    // One that ends meanwhile is not there any more.
    let mut rows: Vec<ThreadRow> = tasks.filter_map(|task| row(&task.path(), main)).collect();
    rows.sort_unstable_by_key(|row| row.id);
    rows
}

fn row(task: &Path, main: u32) -> Option<ThreadRow> {
    let read = |name: &str| std::fs::read_to_string(task.join(name)).ok();
    let name = read("comm")?.trim_end().to_owned();
    let status = read("status")?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
    // The second field is the name in parentheses, which may hold anything; the processor is the 39th.
    let last_cpu =
        read("stat").and_then(|stat| stat.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok());
    let id = task.file_name()?.to_str()?.parse().ok()?;
    let role = if id == main { Some("main") } else { role(&name) };
    Some(ThreadRow { id, name, role, cpus, last_cpu })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_told_with_its_role_and_where_it_runs() {
        let tasks = tempfile::tempdir().unwrap();
        for (id, name) in [("12", "nat-worker-3"), ("9", "carrack"), ("40", "a) b (c")] {
            let task = tasks.path().join(id);
            std::fs::create_dir(&task).unwrap();
            std::fs::write(task.join("comm"), format!("{name}\n")).unwrap();
            std::fs::write(task.join("status"), "Name:\tx\nCpus_allowed:\t8\nCpus_allowed_list:\t3,5-6\n")
                .unwrap();
            let fields: Vec<String> = (3..=52).map(|n| n.to_string()).collect();
            std::fs::write(task.join("stat"), format!("{id} ({name}) {}\n", fields.join(" "))).unwrap();
        }
        // Gone between two looks.
        std::fs::create_dir(tasks.path().join("50")).unwrap();
        let rows = threads_in(tasks.path(), 9);
        let told: Vec<_> = rows.iter().map(|row| (row.id, row.name.as_str(), row.role)).collect();
        assert_eq!(
            told,
            [(9, "carrack", Some("main")), (12, "nat-worker-3", Some("nat-worker")), (40, "a) b (c", None)]
        );
        assert!(rows.iter().all(|row| row.cpus == "3,5-6" && row.last_cpu == Some(39)), "{rows:?}");
        assert_eq!([3, 30].map(|n| rows[1].is_of(WorkerId(n))), [true, false]);
    }

    #[test]
    fn this_process_has_the_thread_that_asks() {
        let ask = || threads().into_iter().find(|row| row.name == "nat-worker-61");
        let thread = std::thread::Builder::new().name(Thread::Worker(WorkerId(61)).name());
        let own = thread.spawn(ask).unwrap().join().unwrap().unwrap();
        assert_eq!(own.role, Some("nat-worker"));
        assert!(!own.cpus.is_empty() && own.last_cpu.is_some(), "{own:?}");
    }
}
