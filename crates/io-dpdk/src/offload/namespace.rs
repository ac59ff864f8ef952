//! Network namespaces: finding one, and doing something in it.

use super::OffloadError;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A network namespace, kept alive by its descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Namespace {
    file: Arc<File>,
    inode: u64,
    /// How people know it; `None` for the one this was opened in.
    label: Option<String>,
}

impl Namespace {
    /// The calling thread's.
    pub(crate) fn current() -> Result<Namespace, OffloadError> {
        Self::open(Path::new("/proc/thread-self/ns/net"), None)
            .map_err(|error| OffloadError::io("cannot open this network namespace", &error))
    }

    /// The number that identifies it as long as it lives.
    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    pub(crate) fn label(&self) -> Option<String> {
        self.label.clone()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Runs `work` in the namespace, on a thread of its own, so that no other thread ever changes its namespace.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, OffloadError> + Send + 'static,
    ) -> Result<T, OffloadError> {
        let file = self.file.clone();
        let thread = std::thread::Builder::new().name("carrack-netns".to_owned());
        let thread = thread.spawn(move || {
            // SAFETY: the descriptor is an open network namespace; only this short-lived thread moves there.
            if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                return Err(OffloadError::last_os("cannot enter the network namespace"));
            }
            work()
        });
        let thread = thread.map_err(|error| OffloadError::io("cannot start a thread", &error))?;
        thread
            .join()
            .unwrap_or_else(|_| Err(OffloadError::new("the work in the network namespace broke off")))
    }

    fn open(path: &Path, label: Option<String>) -> std::io::Result<Namespace> {
        let file = File::open(path)?;
        let inode = file.metadata()?.ino();
        Ok(Namespace { file: Arc::new(file), inode, label })
    }
}

/// Every network namespace within reach, once each: named ones first, then those of processes.
pub(crate) fn all() -> impl Iterator<Item = Namespace> {
    let mut seen = BTreeSet::new();
    let named = entries("/run/netns").into_iter().map(|(name, path)| (path, name));
    let of_processes = entries("/proc")
        .into_iter()
        .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_digit()))
        .map(|(pid, path)| (path.join("ns/net"), format!("of process {pid}")));
    named
        .chain(of_processes)
        .filter_map(|(path, label)| Namespace::open(&path, Some(label)).ok())
        .filter(move |namespace| seen.insert(namespace.inode))
}

/// The living namespace of that number: the calling thread's or another within reach.
pub(crate) fn by_inode(inode: u64) -> Option<Namespace> {
    let here = Namespace::current().ok().filter(|namespace| namespace.inode == inode);
    here.or_else(|| all().find(|namespace| namespace.inode == inode))
}

fn entries(directory: &str) -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut entries: Vec<_> = entries
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    entries.sort();
    entries
}
