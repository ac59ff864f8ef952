//! A live stream by RTSP over UDP: the client names its ports in a message, and the server sends there.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::LIMIT;
use crate::lab::Lab;
use crate::plan::{self, Ns};

/// The server's port.
const PORT: &str = "554";
const SERVER: &str = "rtsp-server";
/// Packets of 160 bytes that the client waits for.
const PACKETS: usize = 40;
/// The first start on a machine looks through all plugins there are.
const START_TIME: Duration = Duration::from_secs(40);

/// A stream over UDP, and the same within the connection.
pub(super) fn stream(lab: &mut Lab) -> Result<String> {
    serve(lab, Ns::Inet, plan::SERVER)?;
    let by_udp = fetch(lab, Ns::Sub1, plan::SERVER, "udp");
    let by_tcp = fetch(lab, Ns::Sub1, plan::SERVER, "tcp");
    lab.stop(SERVER);
    Ok(format!("{} bytes over UDP, {} within the connection", by_udp?, by_tcp?))
}

/// Starts GStreamer's server and waits until it listens.
pub fn serve(lab: &mut Lab, ns: Ns, address: &str) -> Result<()> {
    let script = lab.dir().join("rtsp-server.py");
    fs::write(&script, include_str!("rtsp/server.py"))?;
    lab.start(ns, SERVER, &["/usr/bin/python3", &script.display().to_string(), address, PORT])?;
    let started = Instant::now();
    let listening = ["ss", "-Hltn", "sport", "=", ":554"];
    while lab.exec(ns, &listening, LIMIT)?.stdout.is_empty() {
        if started.elapsed() > START_TIME || !lab.running(SERVER) {
            bail!("GStreamer's RTSP server does not listen\n{}", lab.log(SERVER));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Bytes of the stream that GStreamer's client writes, by this transport; it ends after `PACKETS`.
pub fn fetch(lab: &Lab, ns: Ns, server: &str, transport: &str) -> Result<u64> {
    fetch_packets(lab, ns, server, transport, PACKETS)
}

/// The same for so many packets.
pub fn fetch_packets(lab: &Lab, ns: Ns, server: &str, transport: &str, packets: usize) -> Result<u64> {
    let target = lab.dir().join("stream.ulaw");
    let _ = fs::remove_file(&target);
    let (location, protocols, file, end) = (
        format!("location=rtsp://{server}:{PORT}/tone"),
        format!("protocols={transport}"),
        format!("location={}", target.display()),
        format!("eos-after={packets}"),
    );
    let argv = [
        "gst-launch-1.0",
        "-q",
        "rtspsrc",
        &location,
        &protocols,
        "latency=50",
        "timeout=8000000",
        "!",
        "rtppcmudepay",
        "!",
        "identity",
        &end,
        "!",
        "filesink",
        &file,
    ];
    let done = lab.exec(ns, &argv, LIMIT)?;
    let bytes = fs::metadata(&target).map_or(0, |file| file.len());
    if bytes == 0 {
        bail!("nothing of the stream came over {transport}\n{}", done.describe());
    }
    Ok(bytes)
}
