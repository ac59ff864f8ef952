//! What the daemon says about itself: session table, subscribers, counters, a packet capture.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;

use super::LIMIT;
use crate::command::interrupted;
use crate::lab::Lab;
use crate::needs;
use crate::plan::{self, Ns};
use crate::router::Router;

/// Output of a command shown at the end of a demonstration.
#[derive(Clone, Debug, Serialize)]
pub struct Exhibit {
    /// What it shows.
    pub title: String,
    /// The command as typed by a person.
    pub command: String,
    /// Its output.
    pub output: String,
}

/// Shows what there is to look at in a running daemon; empty for other routers.
pub fn exhibits(lab: &Lab) -> Vec<Exhibit> {
    if !matches!(lab.router(), Router::Carrack { .. }) {
        return Vec::new();
    }
    let mut shown = Vec::new();
    for (title, args) in [
        ("Session table", &["show", "nat", "sessions"][..]),
        ("Subscribers", &["show", "nat", "subscribers"]),
        ("Pools", &["show", "nat", "pools"]),
        ("Counters", &["show", "counters"]),
        ("Workers", &["show", "workers"]),
    ] {
        let output = lab.carrack(args, LIMIT).map_or_else(
            |error| format!("{error:#}"),
            |done| if done.ok() { done.stdout } else { done.describe() },
        );
        shown.push(Exhibit {
            title: title.to_owned(),
            command: format!("carrack {}", args.join(" ")),
            output,
        });
    }
    let capture = lab.dir().join(CAPTURE).display().to_string();
    if let Some(reader) = needs::find("tshark").or_else(|| needs::find("tcpdump")) {
        let program = reader.display().to_string();
        let argv = [program.as_str(), "-n", "-r", &capture];
        if let Ok(done) = lab.exec(Ns::Lan, &argv, LIMIT) {
            shown.push(Exhibit {
                title: "Packet capture".to_owned(),
                command: format!("{} -n -r {CAPTURE}", program.rsplit('/').next().unwrap_or(&program)),
                output: done.stdout,
            });
        }
    }
    shown
}

/// File of the capture in the lab's directory.
const CAPTURE: &str = "capture.pcapng";

/// The session of a call that was just made is in the table, with inside, outside and remote address.
pub(super) fn sessions(lab: &mut Lab) -> Result<String> {
    let rows = rows(lab, &["show", "nat", "sessions"])?;
    let text: Vec<String> = rows.iter().map(Value::to_string).collect();
    let good = text
        .iter()
        .filter(|row| {
            row.contains("100.64.0.") && row.contains(plan::POOL_PREFIX) && row.contains("203.0.113.")
        })
        .count();
    if good == 0 {
        bail!("no session shows inside, outside and remote address; the table: {text:?}");
    }
    Ok(format!("{} sessions", rows.len()))
}

/// Both subscribers are known.
pub(super) fn subscribers(lab: &mut Lab) -> Result<String> {
    let rows = rows(lab, &["show", "nat", "subscribers"])?;
    let text = rows.iter().map(Value::to_string).collect::<String>();
    for subscriber in [plan::SUB1, plan::SUB2] {
        if !text.contains(subscriber) {
            bail!("subscriber {subscriber} is not in the list: {text}");
        }
    }
    Ok(format!("{} subscribers: {}, {}", rows.len(), plan::SUB1, plan::SUB2))
}

/// `rx = forwarded + punted + consumed + held + Σ drops`: the daemon's own balance is zero after all that traffic.
pub(super) fn conservation(lab: &mut Lab) -> Result<String> {
    let done = lab.carrack(&["show", "counters", "--json"], LIMIT)?.success()?;
    let answer: Value = serde_json::from_str(&done.stdout).context("no JSON from `show counters`")?;
    let balance = find_number(&answer, "balance").with_context(|| done.describe())?;
    if balance != 0.0 {
        bail!("balance is {balance} instead of 0\n{}", done.describe());
    }
    let figure = |key: &str| find_number(&answer, key).map_or_else(|| "?".to_owned(), |n| format!("{n}"));
    Ok(format!(
        "{} received + {} made = {} forwarded + {} punted + {} consumed + {} held + {} dropped",
        figure("rx"),
        figure("originated"),
        figure("forwarded"),
        figure("punted"),
        figure("consumed"),
        figure("held"),
        figure("dropped"),
    ))
}

/// A ping captured on its way through, before and after translation, and an unsolicited datagram with the reason why it
/// was dropped, in a file that other tools can read.
pub(super) fn capture(lab: &mut Lab) -> Result<String> {
    let Router::Carrack { binary, .. } = lab.router() else {
        bail!("only the daemon captures");
    };
    let binary = binary.display().to_string();
    let file = lab.dir().join(CAPTURE).display().to_string();
    let socket = crate::router::socket(lab.dir()).display().to_string();
    lab.start(Ns::Carrack, "capture", &[&binary, "capture", "-w", &file, "--socket", &socket])?;
    // The daemon has agreed once there is a file.
    until(|| Path::new(&file).exists());
    let ping = ["ping", "-n", "-c", "2", "-i", "0.1", "-W", "8", plan::SERVER];
    lab.exec(Ns::Sub1, &ping, LIMIT)?.success()?;
    let nobody = format!("UDP4:{}:9", plan::FORWARD_ADDRESS);
    let question = b"anybody there?\n";
    lab.exec_with_input(Ns::Inet, &["socat", "-t0", "-", &nobody], question, LIMIT)?;
    // Last is the datagram that nobody asked for: with it the file is complete.
    let holds = |file: &[u8]| file.windows(question.len()).any(|bytes| bytes == question);
    until(|| fs::read(&file).is_ok_and(|file| holds(&file)));
    lab.stop("capture");
    let Some(tshark) = needs::find("tshark") else {
        bail!("tshark is not installed to read the capture (Debian package `tshark`)");
    };
    let tshark = tshark.display().to_string();
    let fields = ["-T", "fields", "-e", "ip.src", "-e", "frame.comment"];
    let argv = [&[tshark.as_str(), "-n", "-r", &file], &fields[..]].concat();
    let done = lab.exec(Ns::Lan, &argv, LIMIT)?.success()?;
    let rows: Vec<&str> = done.stdout.lines().collect();
    let reason = rows
        .iter()
        .find_map(|row| row.strip_prefix(plan::SERVER)?.split('\t').nth(1).filter(|c| !c.is_empty()));
    let seen = |prefix: &str| rows.iter().any(|row| row.starts_with(prefix));
    match reason {
        Some(reason) if seen(plan::SUB1) && seen(plan::POOL_PREFIX) => {
            Ok(format!("{} packets, both sides of the translation; one dropped: {reason}", rows.len()))
        }
        _ => bail!(
            "the capture lacks a packet of {}, of the pool, or a dropped one with its reason\n{}\n{}",
            plan::SUB1,
            done.describe(),
            lab.log("capture")
        ),
    }
}

/// Waits until something is so, at most `LIMIT`: what comes after says what is wrong when it never is.
fn until(so: impl Fn() -> bool) {
    let started = Instant::now();
    while !so() && started.elapsed() < LIMIT && !interrupted() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The rows of a `show` command's JSON: an array, an object with one array in it, or one object a line.
fn rows(lab: &Lab, args: &[&str]) -> Result<Vec<Value>> {
    let argv = [args, &["--json"]].concat();
    let done = lab.carrack(&argv, LIMIT)?.success()?;
    parse_rows(&done.stdout).with_context(|| done.describe())
}

pub(super) fn parse_rows(text: &str) -> Option<Vec<Value>> {
    let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
    let mut values = values.ok()?;
    if values.len() != 1 {
        return Some(values);
    }
    match values.pop()? {
        Value::Array(rows) => Some(rows),
        Value::Object(fields) => {
            let array = fields.values().find_map(Value::as_array).cloned();
            Some(array.unwrap_or_else(|| vec![Value::Object(fields)]))
        }
        other => Some(vec![other]),
    }
}

/// The first number under `key`, at any depth.
pub(super) fn find_number(value: &Value, key: &str) -> Option<f64> {
    match value {
        Value::Object(fields) => fields
            .get(key)
            .and_then(Value::as_f64)
            .or_else(|| fields.values().find_map(|inner| find_number(inner, key))),
        Value::Array(items) => items.iter().find_map(|inner| find_number(inner, key)),
        _ => None,
    }
}
