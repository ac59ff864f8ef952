//! How fast one TCP connection is.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::LIMIT;
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// Shortest time that gives a steady figure, seconds.
const SECONDS: &str = "2";

/// One TCP connection out, then one in, by iperf3. Fails when nothing passes; the figure itself is only shown.
pub(super) fn tcp(lab: &mut Lab) -> Result<String> {
    let upload = measure(lab, &[])?;
    let download = measure(lab, &["-R"])?;
    Ok(format!("{upload:.2} Gbit/s up, {download:.2} Gbit/s down, one connection (veth, no NIC)"))
}

/// For how long the server may still be tidying up after the client before this one.
const BUSY: Duration = Duration::from_secs(10);

/// Received Gbit/s.
pub(crate) fn measure(lab: &Lab, options: &[&str]) -> Result<f64> {
    let argv =
        [&["iperf3", "-c", plan::SERVER, "-t", SECONDS, "-J", "--connect-timeout", "8000"], options].concat();
    let started = Instant::now();
    let done = loop {
        let done = lab.exec(Ns::Sub1, &argv, LIMIT)?;
        // It takes one client at a time and turns away who comes before it has noticed that the last one went.
        if done.ok() || !done.stdout.contains("server is busy") || started.elapsed() > BUSY {
            break done.success()?;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    let report: Value = serde_json::from_str(&done.stdout).context("iperf3 printed no JSON")?;
    let rate = report
        .pointer("/end/sum_received/bits_per_second")
        .and_then(Value::as_f64)
        .with_context(|| done.describe())?;
    if rate <= 0.0 {
        bail!("nothing arrived\n{}", done.describe());
    }
    Ok(rate / 1e9)
}
