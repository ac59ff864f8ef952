//! Calls from outside and calls that turn round at the NAT.

use anyhow::{Context, Result, bail};

use super::{LIMIT, expect_pool_address, web_clients};
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// The Internet reaches the subscriber's web server at the forwarded port, and that server sees who calls.
pub(super) fn forward(lab: &mut Lab) -> Result<String> {
    let client = call(lab, Ns::Inet, "/?inbound")?;
    if client != plan::SERVER {
        bail!("the inside server saw {client} call instead of {}", plan::SERVER);
    }
    Ok(format!(
        "{} reached {}:{} at {}:{}",
        plan::SERVER,
        plan::SUB1,
        plan::FORWARD_PORT,
        plan::FORWARD_ADDRESS,
        plan::FORWARD_PORT
    ))
}

/// One subscriber reaches the other at its outside address, and is seen by its outside address (RFC 4787 REQ-9,
/// RFC 5382 REQ-8).
pub(super) fn hairpin(lab: &mut Lab) -> Result<String> {
    let client = call(lab, Ns::Sub2, "/?hairpin")?;
    expect_pool_address(&client, "the called subscriber")?;
    Ok(format!("sub2 reached sub1 at {}:{}, seen as {client}", plan::FORWARD_ADDRESS, plan::FORWARD_PORT))
}

/// Nobody outside opens a connection to a pool address and port that no subscriber asked for.
pub(super) fn unsolicited(lab: &mut Lab) -> Result<String> {
    let url = format!("http://{}:9/", plan::FORWARD_ADDRESS);
    let argv = ["curl", "--silent", "--show-error", "--max-time", "1", &url];
    let done = lab.exec(Ns::Inet, &argv, LIMIT)?;
    match done.code {
        // Refused or unreachable, and timed out: RFC 5382 REQ-4 asks for silence first.
        Some(7) => Ok("refused".to_owned()),
        Some(28) => Ok("silently ignored for 1 s".to_owned()),
        _ => bail!("a call to an unused port of the pool should fail\n{}", done.describe()),
    }
}

/// Fetches the page behind the port forward from `ns`; the client address that its server saw.
fn call(lab: &Lab, ns: Ns, path: &str) -> Result<String> {
    let url = format!("http://{}:{}{path}", plan::FORWARD_ADDRESS, plan::FORWARD_PORT);
    let argv = ["curl", "--silent", "--show-error", "--fail", "--max-time", "20", &url];
    let done = lab.exec(ns, &argv, LIMIT)?.success()?;
    if done.stdout != plan::HOME_PAGE {
        bail!("another page than the one served came back\n{}", done.describe());
    }
    web_clients(&lab.log("home-web"), path).pop().context("the inside web server logged no request")
}
