//! Tunnels of two hosts behind one address to one server, without ports to tell them apart: calls of PPTP with the same
//! number (RFC 2637), and ESP by numbers that nobody tells the NAT (RFC 4303).

use anyhow::{Result, bail};

use super::LIMIT;
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// Both hosts' number of their call.
const CALL: &str = "5";

/// Each sends frames of enhanced GRE in its call and hears its own again.
pub(super) fn calls(lab: &mut Lab) -> Result<String> {
    let server = by_both(lab, "pptp", include_str!("pptp.py"))?;
    let mut told: Vec<&str> =
        server.lines().filter_map(|line| line.split(" is ").nth(1)).map(str::trim).collect();
    told.sort_unstable();
    told.dedup();
    if told.len() != 2 {
        bail!("the server was not told two numbers: {server}");
    }
    Ok(format!("both hosts' call {CALL} is {} to the server, frames both ways", told.join(" and ")))
}

/// Each begins a tunnel at the same time, is answered in it, and changes its keys.
pub(super) fn esp(lab: &mut Lab) -> Result<String> {
    let server = by_both(lab, "esp", include_str!("esp.py"))?;
    let tunnels = server.lines().filter(|line| line.contains("begins")).count();
    if tunnels != 4 {
        bail!("the server saw {tunnels} tunnels, not 4: {server}");
    }
    Ok("two hosts' tunnels and those by new keys, each answered its own".into())
}

/// Runs the server and both clients of a script; what the server said.
fn by_both(lab: &mut Lab, name: &str, text: &str) -> Result<String> {
    let script = lab.dir().join(format!("{name}.py")).display().to_string();
    std::fs::write(&script, text)?;
    let (dir, daemon) = (lab.dir().display().to_string(), format!("{name}-server"));
    lab.start(Ns::Inet, &daemon, &["python3", "-u", &script, "serve", plan::SERVER])?;
    let client = |own: &'static str, other: &'static str| {
        ["python3", "-u", &script, "call", plan::SERVER, CALL, &dir, own, other].map(str::to_owned)
    };
    let argv = client("first", "second");
    lab.start(Ns::Sub1, name, &argv.each_ref().map(String::as_str))?;
    let argv = client("second", "first");
    let second = lab.exec(Ns::Sub2, &argv.each_ref().map(String::as_str), LIMIT)?.success()?.stdout;
    lab.wait(name, LIMIT);
    let (first, server) = (lab.log(name), lab.log(&daemon));
    lab.stop(name);
    lab.stop(&daemon);
    if !first.contains("heard FIRST") || !second.contains("heard SECOND") {
        bail!("first: {first}\nsecond: {second}\nserver: {server}");
    }
    Ok(server)
}
