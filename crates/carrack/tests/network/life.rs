//! Start, reload, stop and sudden death.

use std::thread;
use std::time::{Duration, Instant};

use carrack_lab::Lab;
use carrack_lab::plan::{self, Ns};

use crate::{LIMIT, assert_conservation, must, pings, plain, replace};

#[test]
fn a_download_goes_on_over_a_reload() {
    let Some(mut lab) = plain("reload") else { return };
    let target = lab.dir().join("slow").display().to_string();
    let url = format!("http://{}/{}", plan::SERVER, plan::BIG_FILE);
    lab.start(Ns::Sub1, "download", &["curl", "-sS", "--fail", "--limit-rate", "1500K", "-o", &target, &url])
        .unwrap();
    thread::sleep(Duration::from_millis(500));
    let config = carrack_lab::config(carrack_lab::Io::AfXdp);
    let changed = replace(&config, "hairpinning = true", "hairpinning = false");
    lab.set_config(&changed).unwrap();
    let told = lab.carrack(&["reload"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(told.contains("hairpinning"), "reload did not say what it changed: {told}");
    assert!(lab.running("download"), "the download ended early: {}", lab.log("download"));
    assert!(lab.wait("download", LIMIT), "the download hangs");
    let served = lab.dir().join("www").join(plan::BIG_FILE).display().to_string();
    must(&lab, Ns::Sub1, &format!("cmp {served} {target}"));
    assert_conservation(&lab);
}

#[test]
fn a_failed_reload_says_where_and_changes_nothing() {
    let Some(mut lab) = plain("badreload") else { return };
    let config = carrack_lab::config(carrack_lab::Io::AfXdp);
    lab.set_config(&replace(&config, "hairpinning = true", "hairpining = false")).unwrap();
    let done = lab.carrack(&["reload"], LIMIT).unwrap();
    assert!(!done.ok(), "{done:?}");
    let told = format!("{}{}", done.stdout, done.stderr);
    assert!(told.contains("carrack.toml:") && told.contains("hairpinning"), "{told}");
    let page = must(
        &lab,
        Ns::Sub2,
        &format!("curl --silent --max-time 5 http://{}:{}/", plan::FORWARD_ADDRESS, plan::FORWARD_PORT),
    );
    assert_eq!(page, plan::HOME_PAGE, "hairpinning should still be on");
}

#[test]
fn interfaces_are_restored_when_it_ends_and_by_the_next_start_after_it_was_killed() {
    let Some(mut lab) = plain("life") else { return };
    let taken = offloads(&lab);
    lab.stop("router");
    let free = offloads(&lab);
    assert_ne!(taken, free, "nothing was switched off while it ran");
    assert!(!lab.dir().join("api.sock").exists(), "the socket is left");
    lab.start_router().unwrap();
    assert_eq!(offloads(&lab), taken);
    lab.kill("router");
    assert_eq!(offloads(&lab), taken, "a killed process cannot have restored anything");
    lab.start_router().unwrap();
    assert!(pings(&lab, Ns::Sub1, plan::SERVER));
    lab.stop("router");
    assert_eq!(offloads(&lab), free, "not restored after the killed run");
}

#[test]
fn whenever_in_its_start_it_is_told_to_end_it_ends_at_once_and_leaves_nothing() {
    let Some(mut lab) = plain("early") else { return };
    lab.stop("router");
    let free = offloads(&lab);
    let config = lab.dir().join("carrack.toml").display().to_string();
    let lock = lab.dir().join("run/carrack.lock");
    let lock = if lock.exists() { lock } else { lab.dir().join("carrack.lock") };
    let mut unfinished = 0;
    for wait_ms in [30, 60, 90, 120, 160, 200, 250, 300, 400] {
        let before = lab.log("router").len();
        lab.start(Ns::Carrack, "router", &[env!("CARGO_BIN_EXE_carrack"), "run", "-c", &config]).unwrap();
        thread::sleep(Duration::from_millis(wait_ms));
        let told = Instant::now();
        lab.stop("router");
        let took = told.elapsed();
        let said = lab.log("router").split_off(before);
        assert!(took < Duration::from_secs(2), "after {wait_ms} ms it took {took:?}: {said}");
        assert_eq!(offloads(&lab), free, "after {wait_ms} ms: {said}");
        assert!(!lab.dir().join("api.sock").exists(), "after {wait_ms} ms: {said}");
        assert_eq!(std::fs::read_to_string(&lock).unwrap(), "", "after {wait_ms} ms: {said}");
        unfinished += u32::from(said.contains("told to end while starting") && !said.contains("managed at"));
    }
    assert!(unfinished > 0, "every one of them had started already: {}", lab.log("router"));
    lab.start_router().unwrap();
    assert!(pings(&lab, Ns::Sub1, plan::SERVER));
}

#[test]
fn clearing_sessions_ends_them_and_new_ones_begin() {
    let Some(lab) = plain("clear") else { return };
    assert!(pings(&lab, Ns::Sub1, plan::SERVER));
    let rows = || {
        let done = lab.carrack(&["show", "nat", "sessions", "--json"], LIMIT).unwrap().success().unwrap();
        done.stdout.matches(plan::SUB1).count()
    };
    assert!(rows() > 0);
    lab.carrack(&["clear", "nat", "sessions", "--all"], LIMIT).unwrap().success().unwrap();
    assert_eq!(rows(), 0);
    assert!(pings(&lab, Ns::Sub1, plan::SERVER));
    assert!(rows() > 0);
    assert_conservation(&lab);
}

/// Features of both interfaces that are on.
fn offloads(lab: &Lab) -> Vec<String> {
    ["inside", "outside"]
        .into_iter()
        .flat_map(|device| {
            let listed = must(lab, Ns::Carrack, &format!("ethtool -k {device}"));
            let on: Vec<String> = listed
                .lines()
                .filter(|line| line.contains(": on"))
                .map(|line| format!("{device} {}", line.trim()))
                .collect();
            on
        })
        .collect()
}
