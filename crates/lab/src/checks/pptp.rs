//! Calls of PPTP: two hosts behind one address, with the same number, to one server (RFC 2637).

use anyhow::{Result, bail};

use super::LIMIT;
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// Both hosts' number of their call.
const CALL: &str = "5";

/// Each sends frames of enhanced GRE in its call and hears its own again.
pub(super) fn calls(lab: &mut Lab) -> Result<String> {
    let script = lab.dir().join("pptp.py").display().to_string();
    std::fs::write(&script, include_str!("pptp.py"))?;
    let dir = lab.dir().display().to_string();
    lab.start(Ns::Inet, "pptpd", &["python3", "-u", &script, "serve", plan::SERVER])?;
    let client = |own: &'static str, other: &'static str| {
        ["python3", "-u", &script, "call", plan::SERVER, CALL, &dir, own, other].map(str::to_owned)
    };
    let argv = client("first", "second");
    lab.start(Ns::Sub1, "pptp", &argv.each_ref().map(String::as_str))?;
    let argv = client("second", "first");
    let second = lab.exec(Ns::Sub2, &argv.each_ref().map(String::as_str), LIMIT)?.success()?.stdout;
    lab.wait("pptp", LIMIT);
    let (first, server) = (lab.log("pptp"), lab.log("pptpd"));
    lab.stop("pptp");
    lab.stop("pptpd");
    if !first.contains("heard FIRST") || !second.contains("heard SECOND") {
        bail!("first: {first}\nsecond: {second}\nserver: {server}");
    }
    let mut told: Vec<&str> =
        server.lines().filter_map(|line| line.split(" is ").nth(1)).map(str::trim).collect();
    told.sort_unstable();
    told.dedup();
    if told.len() != 2 {
        bail!("the server was not told two numbers: {server}");
    }
    Ok(format!("both hosts' call {CALL} is {} to the server, frames both ways", told.join(" and ")))
}
