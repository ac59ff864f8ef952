use super::*;

fn device() -> DeviceRecord {
    DeviceRecord {
        namespace_inode: 7,
        place: Some("isp".to_owned()),
        name: "eth0".to_owned(),
        index: 3,
        features_on: vec!["rx-gro".to_owned()],
        was_up: true,
        was_promiscuous: false,
        mtu: 1500,
        had_xdp: false,
    }
}

#[test]
fn a_record_is_read_back_as_it_was_written() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = file_of(&directory.path().join("run"), "eth0", 7);
    assert_eq!(read(&file), Ok(None));
    let record = GuardRecord::of(vec![device()]);
    write(&file, &record).expect("the directory is made");
    assert_eq!(read(&file), Ok(Some(record)));
    assert_eq!(
        files_in(&directory.path().join("run")),
        std::slice::from_ref(&file),
        "no temporary file stays"
    );
    remove(&file);
    assert_eq!(read(&file), Ok(None));
}

#[test]
fn an_owner_is_told_from_a_later_process_of_the_same_number() {
    let mine = GuardRecord::of(Vec::new());
    assert!(mine.owner_lives());
    let earlier = GuardRecord { pid_start_ticks: mine.pid_start_ticks + 1, ..mine };
    assert!(!earlier.owner_lives());
}

#[test]
fn a_damaged_record_is_reported_with_what_to_do() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = file_of(directory.path(), "eth0", 7);
    fs::write(&file, "{").expect("a file");
    let error = read(&file).expect_err("damaged").to_string();
    assert!(error.contains("eth0-7.offloads.json") && error.contains("remove the file"), "{error}");
}
