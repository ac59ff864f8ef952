use super::*;

#[test]
fn only_names_made_of_our_prefix_are_ours() {
    for (name, pid) in [
        ("carrack-12", Some(12)),
        ("carrack-12map_0", Some(12)),
        ("carrack-12x", None),
        ("carrack-", None),
        ("rtemap_0", None),
        ("carrack-lab", None),
    ] {
        assert_eq!(pid_of(name), pid, "{name}");
    }
}

#[test]
fn files_of_a_living_process_stay_and_those_of_a_dead_one_go() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Process numbers end below 2^22, so this one never lives.
    let (dead, alive, other) =
        ("carrack-4294967294map_1", format!("carrack-{}", std::process::id()), "othermap_1");
    fs::create_dir(directory.path().join(&alive)).expect("a directory");
    for file in [dead, other] {
        fs::write(directory.path().join(file), b"").expect("a file");
    }
    let removed = remove_matching(directory.path(), |pid| !is_alive(pid));
    assert_eq!(removed, [directory.path().join(dead)]);
    assert!(directory.path().join(alive).exists() && directory.path().join(other).exists());
}

#[test]
fn huge_page_mounts_are_found_among_others() {
    let mounts = "proc /proc proc rw 0 0\nnone /dev/hugepages hugetlbfs rw 0 0\nnone /mnt/huge1G hugetlbfs rw,pagesize=1024M 0 0\n";
    assert_eq!(huge_page_mounts(mounts), [PathBuf::from("/dev/hugepages"), PathBuf::from("/mnt/huge1G")]);
}
