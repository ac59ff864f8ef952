//! The other side of a traffic process: starts it, gives orders, reads its counts.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Counts, Role, TrafficArgs};
use crate::command::{collect, held, interrupted, tail};
use crate::rig::companion;

/// A running traffic process; ends with this value.
pub(crate) struct Traffic {
    child: Child,
    stdin: ChildStdin,
    counts: Arc<Mutex<(u64, Counts)>>,
    errors: Arc<Mutex<Vec<u8>>>,
}

/// Where it runs.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub cpu: u16,
    /// Whether somebody who polls without pause is on the same CPU: then it goes first whenever it has work.
    pub shared: bool,
}

const READY_LIMIT: Duration = Duration::from_secs(60);
/// Equal counts, a tenth of a second apart, until nothing more is expected: on a busy machine the others wait for a CPU.
const QUIET_READINGS: u32 = 10;

impl Traffic {
    /// Starts this executable again as `carrack lab traffic …` and waits until its port is open.
    pub fn start(args: &TrafficArgs, place: Place) -> Result<Traffic> {
        let program = std::env::current_exe().context("cannot find this executable")?;
        let mut words: Vec<String> = vec!["taskset".into(), "-c".into(), place.cpu.to_string()];
        if place.shared {
            // In turns with its own threads: while DPDK starts one it only naps for a microsecond at a time, which on
            // some machines never lets go of the CPU.
            words.extend(["chrt", "--rr", "1"].map(str::to_owned));
        }
        words.push(program.display().to_string());
        words.extend(["lab", "traffic"].map(str::to_owned));
        words.push(if args.role == Role::Generate { "generate".into() } else { "reflect".into() });
        words.push(format!("--socket={}", args.socket.display()));
        for (option, value) in [
            ("id", u64::from(args.id)),
            ("ring-log2", u64::from(args.ring_log2)),
            ("subscribers", u64::from(args.subscribers)),
            ("ports", u64::from(args.ports)),
            ("first-port", u64::from(args.first_port)),
            ("frame-bytes", u64::from(args.frame_bytes)),
            ("window", args.window),
        ] {
            words.push(format!("--{option}={value}"));
        }
        words.push(format!("--first={}", args.first));
        words.extend(args.vlan.map(|vlan| format!("--vlan={vlan}")));
        let mut child = companion(&words)?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot start the traffic process")?;
        let stdin = child.stdin.take().context("no standard input")?;
        let counts = Arc::new(Mutex::new((0, Counts::default())));
        let (errors, _) = collect(child.stderr.take());
        let (output, latest) = (child.stdout.take(), Arc::clone(&counts));
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|pipe| BufReader::new(pipe).lines()) {
                let Ok(line) = line else { break };
                if let Ok(counts) = serde_json::from_str(&line) {
                    let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
                    *latest = (latest.0 + 1, counts);
                }
            }
        });
        let mut traffic = Traffic { child, stdin, counts, errors };
        traffic.next()?;
        Ok(traffic)
    }

    /// Its counts as of at most a tenth of a second ago.
    pub fn counts(&self) -> Counts {
        self.latest().1
    }

    /// Its counts as they will be after what happens now.
    pub fn next(&mut self) -> Result<Counts> {
        // The line under way may be older than the call.
        self.after(2)
    }

    /// Sends at this many packets a second; 0 stops.
    pub fn rate(&mut self, pps: u64) -> Result<()> {
        self.order(&format!("rate {pps}"))
    }

    /// Sends one packet of each session, as fast as the window lets it, and waits for the last.
    pub fn fill(&mut self, mut progress: impl FnMut(Counts)) -> Result<Counts> {
        self.order("fill")?;
        self.next()?;
        loop {
            let counts = self.next()?;
            progress(counts);
            if counts.idle {
                return self.drain();
            }
        }
    }

    /// Stops and waits until nothing more comes back.
    pub fn drain(&mut self) -> Result<Counts> {
        self.rate(0)?;
        let mut before = self.next()?;
        let mut quiet = 0;
        while quiet < QUIET_READINGS {
            let counts = self.next()?;
            quiet = if counts == before { quiet + 1 } else { 0 };
            before = counts;
        }
        Ok(before)
    }

    fn order(&mut self, text: &str) -> Result<()> {
        writeln!(self.stdin, "{text}")
            .and_then(|()| self.stdin.flush())
            .context("the traffic process has ended")
    }

    fn latest(&self) -> (u64, Counts) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn after(&mut self, lines: u64) -> Result<Counts> {
        let (from, _) = self.latest();
        let started = Instant::now();
        loop {
            let (number, counts) = self.latest();
            if number >= from + lines {
                return Ok(counts);
            }
            if self.child.try_wait()?.is_some() || started.elapsed() > READY_LIMIT {
                let said = String::from_utf8_lossy(&held(&self.errors)).into_owned();
                bail!("the traffic process does not work:\n{}", tail(&said, 10).join("\n"));
            }
            if interrupted() {
                bail!("interrupted");
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
