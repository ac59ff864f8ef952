//! Everything that the demonstration shows.

use carrack_lab::{Io, checks};

use crate::lab;

#[test]
fn every_check_of_the_demonstration_passes_over_af_packet() {
    every_check(Io::AfPacket, "afp");
}

#[test]
fn every_check_of_the_demonstration_passes_over_af_xdp() {
    every_check(Io::AfXdp, "xdp");
}

fn every_check(io: Io, name: &str) {
    let Some(mut lab) = lab(name, io, |config| config) else { return };
    let failed: Vec<String> = checks::run_all(&mut lab, |_| {})
        .into_iter()
        .filter(|outcome| !outcome.passed)
        .map(|outcome| format!("{}: {}", outcome.name, outcome.failure))
        .collect();
    assert!(failed.is_empty(), "{}\n{}", failed.join("\n"), lab.log("router"));
    lab.down().unwrap();
}
