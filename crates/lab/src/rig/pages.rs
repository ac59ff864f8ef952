//! Huge pages of 2 MiB, reserved while a laboratory runs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::process::Identity;
use crate::state;

const KERNEL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";
const TOTAL: &str = "nr_hugepages";
const FREE: &str = "free_hugepages";
/// Of the free ones, those that somebody has mapped and not touched yet.
const PROMISED: &str = "resv_hugepages";

/// Pages reserved beyond those that were there, given back when this value goes.
pub struct Pages {
    added: u64,
    kernel: PathBuf,
    record: PathBuf,
}

/// On disk, so that what a killed laboratory reserved is given back by the next one.
#[derive(Serialize, Deserialize)]
struct Record {
    owner: Identity,
    added: u64,
}

impl Pages {
    /// Reserves `mib` MiB, or, where that is too much, takes free pages for the rest.
    ///
    /// # Errors
    /// When the kernel has no such pages or not as many together; then nothing stays reserved.
    pub fn reserve(mib: u64) -> Result<Pages> {
        Pages::reserve_at(mib, Path::new(KERNEL), Path::new(state::ROOT))
    }

    fn reserve_at(mib: u64, kernel: &Path, records: &Path) -> Result<Pages> {
        give_back_of_the_dead(kernel, records);
        let wanted = mib.div_ceil(2);
        let before = read(kernel, TOTAL).context("this kernel has no huge pages of 2 MiB")?;
        let free = read(kernel, FREE).unwrap_or(0).saturating_sub(read(kernel, PROMISED).unwrap_or(0));
        fs::create_dir_all(records)?;
        let record = records.join(format!("pages-{}.json", std::process::id()));
        let mut pages = Pages { added: wanted, kernel: kernel.to_owned(), record };
        pages.keep_record()?;
        // All of them anew: free ones may be meant for somebody who starts in a moment.
        write(kernel, before + wanted).context("cannot reserve huge pages: run as root")?;
        let added = || read(kernel, TOTAL).unwrap_or(before).saturating_sub(before).min(wanted);
        // What the kernel keeps of files lies about in pieces: it moves together when asked, and goes if it must.
        for steps in [&["compact_memory"][..], &["drop_caches", "compact_memory"]] {
            if added() + free >= wanted {
                break;
            }
            for step in steps {
                let _ = fs::write(Path::new("/proc/sys/vm").join(step), "1");
            }
            let _ = write(kernel, before + wanted);
        }
        pages.added = added();
        // Whoever gives them back after us must not give back what the kernel never gave.
        pages.keep_record()?;
        if pages.added + free < wanted {
            bail!(
                "{mib} MiB of huge pages are needed and {} MiB are there: memory is short or in pieces. Stop what is not \
                 needed, or reserve them early after a boot (`sysctl vm.nr_hugepages={wanted}`)",
                (free + pages.added) * 2
            );
        }
        Ok(pages)
    }

    fn keep_record(&self) -> Result<()> {
        let owner =
            Identity::of(std::process::id() as i32, "carrack lab").context("cannot read /proc/self")?;
        let record = Record { owner, added: self.added };
        Ok(fs::write(&self.record, serde_json::to_vec(&record)?)?)
    }
}

/// Gives back what killed laboratories have left reserved; MiB.
pub(crate) fn give_back_left() -> u64 {
    give_back_of_the_dead(Path::new(KERNEL), Path::new(state::ROOT)) * 2
}

/// What killed laboratories have left reserved, MiB.
pub(crate) fn left() -> u64 {
    of_the_dead(Path::new(state::ROOT)).map(|(_, added)| added).sum::<u64>() * 2
}

impl Drop for Pages {
    fn drop(&mut self) {
        give_back(&self.kernel, self.added);
        self.added = 0;
        let _ = fs::remove_file(&self.record);
    }
}

fn give_back(kernel: &Path, pages: u64) {
    if pages > 0
        && let Some(total) = read(kernel, TOTAL)
    {
        let _ = write(kernel, total.saturating_sub(pages));
    }
}

/// Says how many pages.
fn give_back_of_the_dead(kernel: &Path, records: &Path) -> u64 {
    let mut pages = 0;
    for (record, added) in of_the_dead(records) {
        // Of two that look at once, the one that removes it.
        if fs::remove_file(record).is_ok() {
            give_back(kernel, added);
            pages += added;
        }
    }
    pages
}

/// Records of laboratories that are gone, and the pages of each.
fn of_the_dead(records: &Path) -> impl Iterator<Item = (PathBuf, u64)> {
    fs::read_dir(records).into_iter().flatten().flatten().filter_map(|entry| {
        let name = entry.file_name();
        if !name.to_str().is_some_and(|name| name.starts_with("pages-")) {
            return None;
        }
        let record: Record = serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()?;
        (!record.owner.alive()).then(|| (entry.path(), record.added))
    })
}

fn read(kernel: &Path, name: &str) -> Option<u64> {
    fs::read_to_string(kernel.join(name)).ok()?.trim().parse().ok()
}

fn write(kernel: &Path, total: u64) -> std::io::Result<()> {
    fs::write(kernel.join(TOTAL), total.to_string())
}

#[cfg(test)]
mod tests;
