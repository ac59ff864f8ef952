use super::*;

/// Files as the kernel shows them; unlike the kernel's, `free` does not follow `total`.
fn kernel(total: u64, free: u64) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(TOTAL), total.to_string()).unwrap();
    fs::write(root.path().join(FREE), free.to_string()).unwrap();
    root
}

#[test]
fn pages_are_reserved_beside_those_there_are_and_all_of_them_given_back() {
    let (kernel, records) = (kernel(10, 4), tempfile::tempdir().unwrap());
    let pages = Pages::reserve_at(20, kernel.path(), records.path()).unwrap();
    assert_eq!(read(kernel.path(), TOTAL), Some(20));
    drop(pages);
    assert_eq!(read(kernel.path(), TOTAL), Some(10));
    assert_eq!(fs::read_dir(records.path()).unwrap().count(), 0, "the record is gone");
}

#[test]
fn pages_of_a_killed_laboratory_are_given_back_by_the_next() {
    let (kernel, records) = (kernel(110, 110), tempfile::tempdir().unwrap());
    let owner = Identity { pid: 1, start_ticks: u64::MAX, what: "gone".to_owned() };
    let text = serde_json::to_vec(&Record { owner, added: 100 }).unwrap();
    fs::write(records.path().join("pages-1.json"), text).unwrap();
    drop(Pages::reserve_at(2, kernel.path(), records.path()).unwrap());
    assert_eq!(read(kernel.path(), TOTAL), Some(10));
    assert_eq!(fs::read_dir(records.path()).unwrap().count(), 0);
}

#[test]
fn pages_of_a_killed_laboratory_are_given_back_without_another_and_those_of_a_living_one_are_not() {
    let (kernel, records) = (kernel(150, 150), tempfile::tempdir().unwrap());
    let pages = Pages::reserve_at(20, kernel.path(), records.path()).unwrap();
    let owner = Identity { pid: 1, start_ticks: u64::MAX, what: "gone".to_owned() };
    let text = serde_json::to_vec(&Record { owner, added: 100 }).unwrap();
    fs::write(records.path().join("pages-1.json"), text).unwrap();
    assert_eq!(of_the_dead(records.path()).map(|(_, added)| added).collect::<Vec<_>>(), [100]);
    assert_eq!(give_back_of_the_dead(kernel.path(), records.path()), 100);
    assert_eq!(read(kernel.path(), TOTAL), Some(60), "150 and 10 of the living one");
    assert_eq!(give_back_of_the_dead(kernel.path(), records.path()), 0);
    drop(pages);
    assert_eq!(read(kernel.path(), TOTAL), Some(50));
    assert_eq!(fs::read_dir(records.path()).unwrap().count(), 0);
}

#[test]
fn a_kernel_without_such_pages_is_refused() {
    let (nothing, records) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let error = Pages::reserve_at(2, nothing.path(), records.path()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("no huge pages"), "{error}");
}
