//! Reachability and the way: ping, traceroute, path MTU.

use anyhow::{Context, Result, bail};

use super::LIMIT;
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// Three echo requests to a server, all answered.
pub(super) fn ping(lab: &mut Lab) -> Result<String> {
    let argv = ["ping", "-n", "-c", "3", "-i", "0.1", "-W", "2", plan::SERVER];
    let done = lab.exec(Ns::Sub1, &argv, LIMIT)?.success()?;
    if !done.stdout.contains("3 received") {
        bail!("not all echo requests were answered\n{}", done.describe());
    }
    let times = done
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("rtt min/avg/max/mdev = "))
        .with_context(|| done.describe())?;
    let average = times.split('/').nth(1).unwrap_or(times);
    Ok(format!("3 of 3 answered by {}, {average} ms", plan::SERVER))
}

/// UDP probes: Time Exceeded from each hop, Port Unreachable from the server.
pub(super) fn traceroute_udp(lab: &mut Lab) -> Result<String> {
    traceroute(lab, &[])
}

/// ICMP echo probes.
pub(super) fn traceroute_icmp(lab: &mut Lab) -> Result<String> {
    traceroute(lab, &["-I"])
}

/// A ping that is too large for the narrow link and must not be fragmented comes back as "fragmentation needed" with
/// that link's MTU, although the hop that says so knows only the pool address (RFC 5508 REQ-4).
pub(super) fn path_mtu(lab: &mut Lab) -> Result<String> {
    let argv = ["ping", "-n", "-M", "do", "-s", "1372", "-c", "1", "-W", "2", plan::NARROW];
    let done = lab.exec(Ns::Sub2, &argv, LIMIT)?;
    let wanted = format!("(mtu = {})", plan::NARROW_MTU);
    let from = done
        .stdout
        .lines()
        .find(|line| line.contains("Frag needed") && line.contains(&wanted))
        .and_then(|line| line.strip_prefix("From "))
        .and_then(|line| line.split(' ').next())
        .with_context(|| {
            format!("no \"fragmentation needed\" with MTU {}\n{}", plan::NARROW_MTU, done.describe())
        })?;
    Ok(format!("1400 bytes, DF: {from} says fragmentation needed, mtu {}", plan::NARROW_MTU))
}

fn traceroute(lab: &mut Lab, options: &[&str]) -> Result<String> {
    let argv = [&["traceroute", "-n", "-q", "1", "-w", "3", "-m", "6"], options, &[plan::SERVER]].concat();
    let done = lab.exec(Ns::Sub1, &argv, LIMIT)?.success()?;
    let hops = hops(&done.stdout);
    let wanted = [plan::INSIDE_GATEWAY, plan::ISP, plan::SERVER];
    if hops != wanted {
        bail!("expected the hops {}\n{}", wanted.join(" → "), done.describe());
    }
    Ok(hops.join(" → "))
}

/// The address (or `*`) on each numbered line.
pub(super) fn hops(output: &str) -> Vec<&str> {
    output
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            words.next()?.parse::<u8>().ok()?;
            words.next()
        })
        .collect()
}
