//! A host opens a port for itself.

use anyhow::{Context, Result, bail};

use super::{LIMIT, expect_pool_address, web_clients};
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// Inside port of the subscriber's web server that only `natpmpc` opens.
const PORT: u16 = 8_090;
/// For how long, seconds.
const LIFETIME_S: u32 = 300;

/// `natpmpc` opens a port, the Internet reaches the subscriber by it, and it is closed again (RFC 6886 §3.3, §3.4).
pub(super) fn natpmpc(lab: &mut Lab) -> Result<String> {
    let home = lab.dir().join("home").display().to_string();
    lab.start(
        Ns::Sub2,
        "asked-web",
        &["python3", "-u", "-m", "http.server", &PORT.to_string(), "--directory", &home],
    )?;
    let (address, port) = open(lab)?;
    expect_pool_address(&address, "natpmpc")?;
    let url = format!("http://{address}:{port}/?asked");
    let argv = [
        "curl",
        "--silent",
        "--show-error",
        "--fail",
        "--max-time",
        "5",
        "--retry",
        "5",
        "--retry-connrefused",
        &url,
    ];
    let page = lab.exec(Ns::Inet, &argv, LIMIT)?.success()?.stdout;
    if page != plan::HOME_PAGE {
        bail!("another page than the one served came back: {page}");
    }
    let client =
        web_clients(&lab.log("asked-web"), "/?asked").pop().context("the server logged no request")?;
    if client != plan::SERVER {
        bail!("the inside server saw {client} call instead of {}", plan::SERVER);
    }
    close(lab)?;
    lab.stop("asked-web");
    Ok(format!("{} reached {}:{PORT} at {address}:{port}", plan::SERVER, plan::SUB2))
}

fn words(lab: &Lab, lifetime_s: u32) -> Result<String> {
    let (port, lifetime) = (PORT.to_string(), lifetime_s.to_string());
    let argv = ["natpmpc", "-g", plan::INSIDE_GATEWAY, "-a", &port, &port, "tcp", &lifetime];
    Ok(lab.exec(Ns::Sub2, &argv, LIMIT)?.success()?.stdout)
}

/// Address and port as `natpmpc` prints them.
fn open(lab: &Lab) -> Result<(String, u16)> {
    let told = words(lab, LIFETIME_S)?;
    let address = after(&told, "Public IP address : ").context("no address")?.to_owned();
    let port = after(&told, "Mapped public port ").and_then(|port| port.parse().ok());
    Ok((address, port.with_context(|| format!("no port: {told}"))?))
}

fn close(lab: &Lab) -> Result<()> {
    words(lab, 0).map(|_| ())
}

fn after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    let rest = text.split_once(words)?.1;
    rest.split([' ', '\n']).next()
}
