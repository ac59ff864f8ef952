use super::*;

#[test]
fn a_program_that_overstays_is_killed_with_its_helpers() {
    let done =
        run(&["sh", "-c", "echo begun; sleep 60 & sleep 60"], Duration::from_millis(200), None).unwrap();
    assert!(done.timed_out);
    assert_eq!(done.stdout, "begun\n");
    assert!(done.took < Duration::from_secs(10));
    assert!(done.describe().contains("did not end within"));
}

#[test]
fn a_failure_shows_command_exit_code_and_output() {
    let error = run(&["sh", "-c", "echo no >&2; exit 3"], Duration::from_secs(5), None)
        .unwrap()
        .success()
        .unwrap_err()
        .to_string();
    assert!(error.contains("exit code 3"), "{error}");
    assert!(error.contains("stderr: no"), "{error}");
    assert!(error.contains("sh -c 'echo no >&2; exit 3'"), "{error}");
}

#[test]
fn a_program_that_listens_without_end_is_ended_once_it_has_answered() {
    let terms = Terms {
        limit: Duration::from_secs(20),
        stdin: None,
        enough: Some(|output, wanted| output.len() >= wanted),
        wanted: 4,
    };
    let done = run_on(&["sh", "-c", "echo yes; sleep 60"], &terms).unwrap();
    assert!(done.ok() && !done.timed_out);
    assert_eq!(done.stdout, "yes\n");
    assert!(done.took < Duration::from_secs(10));
}

#[test]
fn standard_input_reaches_the_program() {
    let done = run(&["cat"], Duration::from_secs(5), Some(b"four")).unwrap();
    assert_eq!(done.stdout, "four");
}
