use super::*;

#[test]
fn a_process_id_used_again_is_not_taken_for_the_recorded_process() {
    let me = Identity::of(std::process::id() as i32, "this test").unwrap();
    assert!(me.alive());
    let earlier = Identity { start_ticks: me.start_ticks - 1, ..me };
    assert!(!earlier.alive());
    // Would end this test run if it went by the id alone.
    end(&earlier, None, Duration::ZERO);
}

#[test]
fn ending_a_process_ends_its_helpers_and_is_quick() {
    let dir = std::env::temp_dir().join(format!("carrack-lab-end-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let argv = ["sh", "-c", "sleep 100 & echo $!; wait"].map(String::from);
    let log = dir.join("log");
    let (mut child, process) = start(&argv, &log, "a shell").unwrap();
    let helper: i32 = loop {
        let text = fs::read_to_string(&log).unwrap();
        if let Ok(pid) = text.trim().parse() {
            break pid;
        }
        thread::sleep(Duration::from_millis(2));
    };
    let started = Instant::now();
    end(&process, Some(&mut child), Duration::from_secs(2));
    assert!(started.elapsed() < Duration::from_secs(2));
    assert!(!process.alive());
    while start_ticks(helper).is_some() {
        assert!(started.elapsed() < Duration::from_secs(5), "helper lives");
        thread::sleep(Duration::from_millis(2));
    }
    fs::remove_dir_all(dir).unwrap();
}
