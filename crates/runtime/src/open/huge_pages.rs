//! What huge pages the machine has left.

use std::path::Path;

/// Free reserved huge pages of all sizes, MiB; 0 where the kernel has none.
pub(crate) fn free_mib() -> u64 {
    free_mib_in(Path::new("/sys/kernel/mm/hugepages"))
}

fn free_mib_in(directory: &Path) -> u64 {
    let Ok(sizes) = std::fs::read_dir(directory) else { return 0 };
    let free = sizes.flatten().filter_map(|size| {
        let name = size.file_name().into_string().ok()?;
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free = std::fs::read_to_string(size.path().join("free_hugepages")).ok()?;
        Some(kib * free.trim().parse::<u64>().ok()? / 1_024)
    });
    free.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_pages_of_all_sizes_add_up() {
        let root = tempfile::tempdir().unwrap();
        for (name, free) in [("hugepages-2048kB", "10\n"), ("hugepages-1048576kB", "2\n"), ("other", "7\n")] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            std::fs::write(root.path().join(name).join("free_hugepages"), free).unwrap();
        }
        assert_eq!(free_mib_in(root.path()), 20 + 2_048);
        assert_eq!(free_mib_in(Path::new("/nonexistent")), 0);
    }
}
