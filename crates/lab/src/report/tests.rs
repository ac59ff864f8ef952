use super::*;

fn outcome(name: &str, passed: bool) -> Outcome {
    Outcome {
        name: name.to_owned(),
        passed,
        detail: "detail".to_owned(),
        failure: if passed { String::new() } else { "$ ping\n  → exit code 1".to_owned() },
        seconds: 0.25,
    }
}

fn report(checks: Vec<Outcome>) -> Report {
    Report {
        router: "carrack".to_owned(),
        checks,
        tidy: Ok(()),
        exhibits: Vec::new(),
        seconds: 1.0,
        interrupted: false,
    }
}

#[test]
fn one_failed_check_fails_the_demonstration_and_shows_its_command() {
    let report = report(vec![outcome("ping", false), outcome("DNS", true)]);
    assert!(!report.passed());
    let text = report.closing();
    assert!(text.contains("✗ ping\n   $ ping\n     → exit code 1"), "{text}");
    assert!(text.contains("1 of 2 checks passed"), "{text}");
    assert!(text.contains("NOT everything passed"), "{text}");
}

#[test]
fn something_left_behind_fails_a_demonstration_whose_checks_all_passed() {
    let mut report = report(vec![outcome("ping", true)]);
    assert!(report.passed());
    report.tidy = Err("left behind: carrack-demo.sub1".to_owned());
    assert!(!report.passed());
    assert!(report.closing().contains("carrack-demo.sub1"));
}

#[test]
fn a_demonstration_without_checks_has_not_passed() {
    assert!(!report(Vec::new()).passed());
}
