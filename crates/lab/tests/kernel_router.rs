//! The lab against the kernel's own NAT: shows that the demonstration network works and tidies up, without the daemon.

use std::process::Command;
use std::time::Duration;

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Lab, Options, Router, checks};

fn options(name: &str) -> Option<Options> {
    if !carrack_lab::can_run() {
        return None;
    }
    // Other tests of this machine may run at the same time.
    let name = format!("{name}-{}", std::process::id());
    Some(Options { name, router: Router::LinuxNft })
}

fn namespaces(lab: &str) -> usize {
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    text.lines().filter(|line| line.starts_with(&plan::prefix(lab))).count()
}

#[test]
fn every_check_passes_with_the_kernels_nat_and_nothing_is_left() {
    let Some(options) = options("all") else { return };
    let name = options.name.clone();
    let mut lab = Lab::up(options).unwrap();
    assert_eq!(namespaces(&name), Ns::ALL.len());
    for outcome in checks::run_all(&mut lab, |_| {}) {
        assert!(outcome.passed, "{}: {}", outcome.name, outcome.failure);
    }
    lab.down().unwrap();
    assert_eq!(namespaces(&name), 0);
}

#[test]
fn checks_fail_when_the_router_forwards_nothing() {
    let Some(options) = options("cut") else { return };
    let mut lab = Lab::up(options).unwrap();
    let cut = ["ip", "link", "set", "outside", "down"];
    lab.exec(Ns::Carrack, &cut, Duration::from_secs(5)).unwrap().success().unwrap();
    // Those that give up soon; the others wait for their full limit.
    let quick = ["ping", "DNS", "web download", "path MTU", "inbound port forward"];
    for check in checks::all().iter().filter(|check| quick.contains(&check.name)) {
        let outcome = checks::run_one(&mut lab, check);
        assert!(!outcome.passed, "{} passed although nothing was forwarded", check.name);
    }
}

#[test]
fn a_second_lab_of_the_same_name_is_refused_and_does_not_disturb_the_first() {
    let Some(options) = options("twice") else { return };
    let lab = Lab::up(options.clone()).unwrap();
    let error = Lab::up(options).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("already up"), "{error}");
    let ping = ["ping", "-c1", "-W2", plan::SERVER];
    assert!(lab.exec(Ns::Sub1, &ping, Duration::from_secs(5)).unwrap().ok());
}

#[test]
fn what_a_killed_lab_left_is_found_and_removed() {
    let Some(options) = options("killed") else { return };
    let name = options.name.clone();
    let lab = Lab::up(options).unwrap();
    // As after a kill: nobody takes it down.
    lab.keep().unwrap();
    assert_eq!(namespaces(&name), Ns::ALL.len());
    assert!(Lab::list().iter().any(|(listed, _, in_use)| *listed == name && *in_use));
    assert!(Lab::down_by_name(&name).unwrap());
    assert_eq!(namespaces(&name), 0);
    assert!(!std::path::Path::new("/run/carrack-lab").join(&name).exists());
    assert!(!Lab::down_by_name(&name).unwrap());
}
