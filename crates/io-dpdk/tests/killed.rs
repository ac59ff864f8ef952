//! What a killed process has changed is undone at the next start, and meanwhile known to be its.

mod common;

use carrack_io_dpdk::{GuardOptions, OffloadChange, OffloadGuard, PortOptions, restore_stale};
use common::Lab;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const VICTIM: &str = "CARRACK_TEST_STATE_DIRECTORY";

#[test]
fn a_killed_process_leaves_nothing_that_the_next_start_does_not_undo() {
    need_root!();
    if let Some(directory) = std::env::var_os(VICTIM) {
        return take_and_wait(Path::new(&directory));
    }
    let mut lab = Lab::new("k");
    let directory = PathBuf::from(lab.file("state"));
    let before = state_of(&lab);
    let mut victim = start_victim(&directory);
    assert_ne!(state_of(&lab), before, "the victim has changed the interface");

    let options = GuardOptions { state_directory: directory.clone(), mtu: None };
    let error = OffloadGuard::take("port1", &options).expect_err("it is taken").to_string();
    assert!(error.contains(&format!("in use by process {}", victim.id())), "{error}");
    assert!(restore_stale(&directory).is_empty(), "a living process's changes are left alone");

    victim.kill().expect("the victim is ours");
    victim.wait().expect("the victim is ours");
    let changes = restore_stale(&directory);
    assert_eq!(changes.len(), 2, "the interface and its peer: {changes:?}");
    assert!(changes.iter().all(|change| matches!(change, OffloadChange::Restored { .. })), "{changes:?}");
    assert_eq!(state_of(&lab), before, "restored as it was");
    assert!(restore_stale(&directory).is_empty(), "once");

    // A guard taken right after another kill knows the true originals.
    let mut victim = start_victim(&directory);
    victim.kill().expect("the victim is ours");
    victim.wait().expect("the victim is ours");
    let guard = OffloadGuard::take("port1", &options).unwrap_or_else(|error| panic!("{error}"));
    drop(guard);
    assert_eq!(state_of(&lab), before, "restored as it was before the killed run");
}

fn start_victim(directory: &Path) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let mut command = Command::new(program);
    command.args([
        "--exact",
        "a_killed_process_leaves_nothing_that_the_next_start_does_not_undo",
        "--nocapture",
    ]);
    let mut victim =
        command.env(VICTIM, directory).stdout(Stdio::piped()).spawn().expect("this program starts again");
    let mut lines = BufReader::new(victim.stdout.take().expect("the output is piped")).lines();
    let ready = lines.any(|line| line.is_ok_and(|line| line.contains("READY")));
    assert!(ready, "the victim opens its port");
    victim
}

fn take_and_wait(directory: &Path) {
    let options = GuardOptions { state_directory: directory.to_owned(), mtu: Some(1400) };
    let _guard = OffloadGuard::take("port1", &options).unwrap_or_else(|error| panic!("{error}"));
    let dpdk = common::dpdk();
    let device = "af_xdp:port1".parse().expect("a device line");
    let _port = dpdk.open(&device, PortOptions::default()).unwrap_or_else(|error| panic!("{error}"));
    println!("\nREADY");
    let _ = std::io::stdout().flush();
    std::thread::sleep(std::time::Duration::from_secs(30));
}

/// Everything the guard and the driver may change.
fn state_of(lab: &Lab) -> String {
    let link = common::run("ip", &["-o", "link", "show", "dev", "port1"]);
    let link = String::from_utf8_lossy(&link.stdout).into_owned();
    // Whether the carrier has been noticed already is a matter of moments, and a queue appears when first up.
    let link: Vec<&str> =
        link.split(" qdisc ").next().into_iter().chain(link.split(" mode ").nth(1)).collect();
    let link = link.join(" ");
    format!("{link}{}{}", lab.features("m", "port1"), lab.features("a", "eth0"))
}
