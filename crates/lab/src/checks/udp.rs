//! UDP: small, large and fragmented datagrams, and two subscribers with the same source port.

use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use super::{LIMIT, expect_pool_address};
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// 4000 bytes travel as three fragments each way (RFC 4787 REQ-14).
const SIZES_BYTES: [usize; 3] = [32, 1400, 4000];

/// Datagrams of three sizes come back unchanged.
pub(super) fn echo(lab: &mut Lab) -> Result<String> {
    for bytes in SIZES_BYTES {
        echo_one(lab, Ns::Sub1, plan::SERVER, bytes)?;
    }
    Ok("32, 1400 and 4000 bytes (fragments) came back unchanged".to_owned())
}

/// One datagram of `bytes` bytes (at most 4096) comes back unchanged.
pub(super) fn echo_one(lab: &Lab, ns: Ns, server: &str, bytes: usize) -> Result<()> {
    let sent = payload(bytes);
    let target = format!("UDP4:{server}:{}", plan::ECHO_PORT);
    // One read takes the whole pipe and one write makes it one datagram.
    let argv = ["socat", "-b65507", "-t5", "-", &target];
    let done = lab.exec_until_answered(ns, &argv, sent.as_bytes(), bytes, LIMIT)?;
    if done.stdout != sent {
        bail!(
            "{bytes} bytes sent, {} came back{}: $ {}\n{}",
            done.stdout.len(),
            if done.stdout.len() == bytes { ", changed" } else { "" },
            done.line,
            done.stderr
        );
    }
    Ok(())
}

/// Both subscribers talk to the same server from the same source port at the same time, each gets its own answer, and
/// the server sees two different outside addresses or ports (RFC 4787 REQ-3).
pub(super) fn same_source_port(lab: &mut Lab) -> Result<String> {
    let lab: &Lab = lab;
    let mut seen = Vec::new();
    for (kind, port) in [("UDP4", 40_000), ("TCP4", 40_001)] {
        let target = format!("{kind}:{}:{},sourceport={port}", plan::SERVER, plan::WHOAMI_PORT);
        let (first, second) = thread::scope(|scope| {
            let other = scope.spawn(|| ask(lab, Ns::Sub2, &target));
            let first = ask(lab, Ns::Sub1, &target);
            let second =
                other.join().unwrap_or_else(|_| Err(anyhow!("the second subscriber's thread panicked")));
            (first, second)
        });
        let (first, second) = (first?, second?);
        if first == second {
            bail!("both subscribers had outside address and port {first} over {kind}");
        }
        seen.push(format!("{} {first} and {second}", &kind[..3]));
    }
    Ok(format!("seen as {}", seen.join(", ")))
}

/// The outside address and port of a call from `ns`, as `A:P`.
fn ask(lab: &Lab, ns: Ns, target: &str) -> Result<String> {
    let argv = ["socat", "-t5", "-", target];
    let done = lab.exec_until_answered(ns, &argv, b"who am I?\n", 0, LIMIT)?;
    let (address, port) = done
        .stdout
        .trim()
        .split_once(' ')
        .with_context(|| format!("{ns} got no answer\n{}", done.describe()))?;
    expect_pool_address(address, "the server")?;
    Ok(format!("{address}:{port}"))
}

/// Letters that differ from place to place, so that swapped or repeated fragments show.
fn payload(bytes: usize) -> String {
    let mut state = 0x2545_f491_u32;
    (0..bytes)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + (state >> 24) as u8 % 26)
        })
        .collect()
}
