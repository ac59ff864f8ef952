use super::*;

#[test]
fn second_daemon_is_refused_and_told_who_holds_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let held = RunLock::take(dir.path()).unwrap();
    let error = RunLock::take(dir.path()).unwrap_err();
    assert!(error.0.contains(&format!("process {}", std::process::id())), "{error}");
    drop(held);
    let again = RunLock::take(dir.path()).unwrap();
    assert_eq!(again.dead_predecessor(), None, "the first one ended in good order");
}

#[test]
fn killed_predecessor_leaves_no_stale_lock_but_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    // What a killed process leaves: its number in the file, and no lock.
    std::fs::write(dir.path().join(FILE_NAME), "4711").unwrap();
    assert_eq!(RunLock::take(dir.path()).unwrap().dead_predecessor(), Some(4711));
}

#[test]
fn unwritable_directory_is_named_in_the_error() {
    let error = RunLock::take(Path::new("/proc/carrack")).unwrap_err();
    assert!(error.0.contains("/proc/carrack"), "{error}");
}
