//! Names and downloads.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{LIMIT, expect_pool_address, web_clients};
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// The server's name, asked over UDP and over TCP.
pub(super) fn dns(lab: &mut Lab) -> Result<String> {
    for option in ["+notcp", "+tcp"] {
        let server = format!("@{}", plan::DNS);
        let argv = ["dig", "+short", "+tries=1", "+time=8", option, &server, plan::SERVER_NAME];
        let done = lab.exec(Ns::Sub1, &argv, LIMIT)?.success()?;
        if done.stdout.trim() != plan::SERVER {
            bail!("expected the answer {}\n{}", plan::SERVER, done.describe());
        }
    }
    let log = lab.log("dns");
    let client = log
        .lines()
        .filter(|line| line.contains("query[A]"))
        .filter_map(|line| line.rsplit(' ').next())
        .next_back()
        .context("the DNS server logged no question")?;
    expect_pool_address(client, "the DNS server")?;
    Ok(format!("{} is {}, over UDP and TCP; server saw {client}", plan::SERVER_NAME, plan::SERVER))
}

/// A file of several megabytes, by name; size, checksum and the address the server saw.
pub(super) fn download(lab: &mut Lab) -> Result<String> {
    let url = format!("http://{}/{}", plan::SERVER_NAME, plan::BIG_FILE);
    fetch(lab, &url, plan::BIG_FILE, plan::BIG_FILE_BYTES)
}

/// A file sent over the link whose MTU is smaller than the server's offer of segments: without ICMP errors translated
/// back to the sender it hangs. The server answers with the checksum of what arrived after the sender's half close.
pub(super) fn narrow_upload(lab: &mut Lab) -> Result<String> {
    let file = lab.dir().join("www").join(plan::SMALL_FILE).display().to_string();
    let target = format!("TCP4:{}:{}", plan::NARROW, plan::DIGEST_PORT);
    let content = std::fs::read(&file)?;
    let started = Instant::now();
    let done = lab.exec_with_input(Ns::Sub1, &["socat", "-t20", "-", &target], &content, LIMIT)?;
    let seconds = started.elapsed().as_secs_f64();
    let answer = done.stdout.split(' ').next().unwrap_or_default().trim().to_owned();
    let sums = lab.exec(Ns::Sub1, &["sha256sum", &file], LIMIT)?.success()?.stdout;
    if answer.is_empty() || !sums.starts_with(&answer) {
        bail!("the server received something else, sent: {sums}\n{}", done.describe());
    }
    Ok(format!(
        "{:.1} MB in {seconds:.2} s through mtu {}, SHA-256 {}… equal",
        content.len() as f64 / 1e6,
        plan::NARROW_MTU,
        answer.get(..8).unwrap_or(&answer)
    ))
}

fn fetch(lab: &mut Lab, url: &str, file: &str, bytes: u64) -> Result<String> {
    let path = format!("/{file}");
    let before = web_clients(&lab.log("web"), &path).len();
    let target = lab.dir().join("downloaded").display().to_string();
    let argv = [
        "curl",
        "--silent",
        "--show-error",
        "--fail",
        "--max-time",
        "20",
        "--output",
        &target,
        "--write-out",
        "%{size_download} %{time_total}",
        url,
    ];
    let done = lab.exec(Ns::Sub1, &argv, LIMIT)?.success()?;
    let (size, time) = done.stdout.trim().split_once(' ').context("curl printed no figures")?;
    if size.parse::<u64>() != Ok(bytes) {
        bail!("{bytes} bytes expected, {size} received\n{}", done.describe());
    }
    let served = lab.dir().join("www").join(file).display().to_string();
    let sums = lab.exec(Ns::Sub1, &["sha256sum", &served, &target], LIMIT)?.success()?.stdout;
    let sums: Vec<&str> = sums.lines().filter_map(|line| line.split(' ').next()).collect();
    let [served, received] = sums[..] else {
        bail!("sha256sum printed {} sums instead of two", sums.len());
    };
    if served != received {
        bail!("the checksum of what was received differs: served {served}, received {received}");
    }
    let clients = web_clients(&lab.log("web"), &path);
    let client =
        clients.get(before..).and_then(<[String]>::first).context("the web server logged no request")?;
    expect_pool_address(client, "the web server")?;
    let seconds: f64 = time.parse().unwrap_or(0.0);
    Ok(format!(
        "{:.1} MB in {seconds:.2} s, SHA-256 {}… equal; server saw {client}",
        bytes as f64 / 1e6,
        served.get(..8).unwrap_or(served),
    ))
}
