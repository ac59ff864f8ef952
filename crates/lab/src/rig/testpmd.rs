//! DPDK's own `dpdk-testpmd`, driven through its prompt: a generator and reflector that is not ours.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::companion;
use crate::command::{collect, held, interrupted, tail};
use crate::needs::find;

/// The program and the Debian package it comes in.
pub(crate) const PROGRAM: (&str, &str) = ("dpdk-testpmd", "dpdk-dev");
/// Memory each takes, MiB of huge pages.
pub(crate) const MEMORY_MIB: u64 = 96;

const PROMPT: &str = "testpmd> ";
/// Starting takes about a second; a command is answered at once, `stop` after the last burst.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Packet buffers. Its ring of the memif, a burst and its cache take a part of them.
const BUFFERS: u32 = 32_767;

/// How to start one.
pub(crate) struct Setup {
    /// For messages: `generator` or `reflector`.
    pub what: &'static str,
    /// The memif's socket, which it creates.
    pub socket: PathBuf,
    /// The memif's number.
    pub id: u32,
    /// The CPU it runs on.
    pub cpu: u16,
    /// Slots of the memif's rings, as a power of two.
    pub ring_log2: u8,
    /// Options of its own, such as the flows it generates.
    pub options: Vec<String>,
}

/// A running one with one memif port; ends with this value.
pub(crate) struct Testpmd {
    child: Child,
    stdin: ChildStdin,
    output: Arc<Mutex<Vec<u8>>>,
    what: &'static str,
}

/// What `show port stats` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct PortStats {
    pub rx_packets: u64,
    pub rx_missed: u64,
    pub rx_errors: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    /// Packets a second since the last time it was asked.
    pub rx_pps: u64,
    pub tx_pps: u64,
}

impl Testpmd {
    /// Starts it and waits for its prompt; it forwards nothing yet.
    pub fn start(setup: &Setup) -> Result<Testpmd> {
        let program = find(PROGRAM.0).context("dpdk-testpmd is missing (Debian package dpdk-dev)")?;
        let Setup { what, socket, id, cpu, ring_log2, options } = setup;
        // A program that was killed leaves its socket.
        let _ = fs::remove_file(socket);
        let device = format!(
            "--vdev=net_memif0,role=server,id={id},socket={},socket-abstract=no,rsize={ring_log2}",
            socket.display()
        );
        let mut words: Vec<String> = ["stdbuf", "-oL"].map(str::to_owned).to_vec();
        words.push(program.display().to_string());
        words.extend([
            // Its console and its one forwarding core on the same CPU.
            format!("--lcores=0@{cpu},1@{cpu}"),
            format!("--file-prefix=carrack-lab-{}-{what}", std::process::id()),
            "--no-pci".into(),
            "--in-memory".into(),
            "--single-file-segments".into(),
            "--no-telemetry".into(),
            format!("-m{MEMORY_MIB}"),
            device,
            "--".into(),
            "-i".into(),
            "--disable-link-check".into(),
            "--no-lsc-interrupt".into(),
            format!("--total-num-mbufs={BUFFERS}"),
            "--nb-cores=1".into(),
        ]);
        words.extend(options.iter().cloned());
        let mut child = companion(&words)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start the {what}, {}", program.display()))?;
        let stdin = child.stdin.take().context("no standard input")?;
        let (output, _) = collect(child.stdout.take());
        let (errors, _) = collect(child.stderr.take());
        let mut testpmd = Testpmd { child, stdin, output, what };
        testpmd.await_prompt(0).map_err(|error| {
            let said = String::from_utf8_lossy(&held(&errors)).into_owned();
            error.context(tail(&said, 6).join("\n"))
        })?;
        Ok(testpmd)
    }

    /// Types a command and returns what it printed.
    pub fn say(&mut self, command: &str) -> Result<String> {
        let from = held(&self.output).len();
        writeln!(self.stdin, "{command}").with_context(|| format!("the {} has ended", self.what))?;
        self.await_prompt(from)
    }

    /// Changes what it does with packets, and starts.
    pub fn forward(&mut self, mode: &str) -> Result<()> {
        self.say(&format!("set fwd {mode}"))?;
        self.say("start")?;
        Ok(())
    }

    /// Stops forwarding, if it does.
    pub fn stop(&mut self) -> Result<()> {
        self.say("stop").map(|_| ())
    }

    /// Counters of its port.
    pub fn stats(&mut self) -> Result<PortStats> {
        let text = self.say("show port stats 0")?;
        parse(&text).with_context(|| format!("the {} printed no statistics:\n{text}", self.what))
    }

    fn await_prompt(&mut self, from: usize) -> Result<String> {
        let started = Instant::now();
        loop {
            let text =
                String::from_utf8_lossy(held(&self.output).get(from..).unwrap_or_default()).into_owned();
            if text.ends_with(PROMPT) {
                return Ok(text);
            }
            let ended = self.child.try_wait()?;
            if ended.is_some() || started.elapsed() > ANSWER_LIMIT {
                let how =
                    ended.map_or("does not answer".to_owned(), |status| format!("has ended ({status})"));
                bail!("the {} {how}; the end of its output:\n{}", self.what, tail(&text, 10).join("\n"));
            }
            if interrupted() {
                bail!("interrupted");
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It holds nothing that outlives it: its memory has no files.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn parse(text: &str) -> Option<PortStats> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let value = |key: &str| {
        let at = words.iter().rposition(|word| *word == key)?;
        words.get(at + 1)?.parse().ok()
    };
    Some(PortStats {
        rx_packets: value("RX-packets:")?,
        rx_missed: value("RX-missed:")?,
        rx_errors: value("RX-errors:")?,
        tx_packets: value("TX-packets:")?,
        tx_errors: value("TX-errors:")?,
        rx_pps: value("Rx-pps:")?,
        tx_pps: value("Tx-pps:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_the_port_statistics() {
        let text = "show port stats 0\n\n  ######## NIC statistics for port 0  ########\n  RX-packets: 17         RX-missed: 2          RX-bytes:  1020\n  RX-errors: 3\n  RX-nombuf:  0         \n  TX-packets: 4294967296 TX-errors: 5          TX-bytes:  257698037760\n\n  Throughput (since last show)\n  Rx-pps:      6          Rx-bps:            0\n  Tx-pps:      2099561          Tx-bps:   1007797808\n  ####\ntestpmd> ";
        let expected = PortStats {
            rx_packets: 17,
            rx_missed: 2,
            rx_errors: 3,
            tx_packets: 1 << 32,
            tx_errors: 5,
            rx_pps: 6,
            tx_pps: 2_099_561,
        };
        assert_eq!(parse(text), Some(expected));
        assert_eq!(parse("Bad arguments\ntestpmd> "), None);
    }
}
