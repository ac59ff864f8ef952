//! Running a program to its end: bounded in time, output kept, its whole process group killed when it overstays.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// How often a running program is looked at.
const POLL: Duration = Duration::from_millis(3);

/// What a program printed and how it ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The command as a person would type it.
    pub line: String,
    /// Exit code; `None` when it was killed by a signal or overstayed its time.
    pub code: Option<i32>,
    /// Whether it was killed because its time was over.
    pub timed_out: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

impl Finished {
    /// Whether it ended by itself with exit code 0.
    pub fn ok(&self) -> bool {
        self.code == Some(0)
    }

    /// Output when it succeeded, else an error that carries everything it printed.
    pub fn success(self) -> Result<Finished> {
        if self.ok() { Ok(self) } else { Err(anyhow!("{}", self.describe())) }
    }

    /// Command, outcome and output, for a failure report.
    pub fn describe(&self) -> String {
        let how = match (self.timed_out, self.code) {
            (true, _) => format!("did not end within {:.1} s", self.took.as_secs_f32()),
            (false, Some(code)) => format!("exit code {code}"),
            (false, None) => "killed by a signal".to_owned(),
        };
        let mut text = format!("$ {}\n  → {how}", self.line);
        for (label, output) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            for line in tail(output.trim_end(), 30) {
                text.push_str(&format!("\n  {label}: {line}"));
            }
        }
        text
    }
}

/// What a program is given and when it is ended.
pub(crate) struct Terms<'a> {
    /// It is killed after this time.
    pub limit: Duration,
    /// Standard input; `None` is an empty one.
    pub stdin: Option<&'a [u8]>,
    /// For programs that would go on listening: once standard output satisfies this, the program is ended and counts
    /// as successful.
    pub enough: Option<fn(&[u8], usize) -> bool>,
    /// Second argument of `enough`.
    pub wanted: usize,
}

/// Runs `argv` to its end, at most `limit`.
pub(crate) fn run<S: AsRef<OsStr>>(argv: &[S], limit: Duration, stdin: Option<&[u8]>) -> Result<Finished> {
    run_on(argv, &Terms { limit, stdin, enough: None, wanted: 0 })
}

/// Runs `argv` on these terms.
///
/// The program gets a process group of its own, so that Ctrl-C reaches only the lab, which then ends its programs
/// itself, and so that helpers it forked end with it.
pub(crate) fn run_on<S: AsRef<OsStr>>(argv: &[S], terms: &Terms) -> Result<Finished> {
    let line = display(argv);
    let started = Instant::now();
    let mut child = spawn(argv, &line, terms.stdin)?;
    let group = Pid::from_raw(child.id() as i32);
    let (stdout, stdout_reader) = collect(child.stdout.take());
    let (stderr, stderr_reader) = collect(child.stderr.take());
    let mut ended = None;
    let status: ExitStatus = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if ended.is_none() {
            ended = reason_to_end(terms, started, &stdout);
            if ended.is_some() {
                let _ = killpg(group, Signal::SIGKILL);
            }
        }
        thread::sleep(POLL);
    };
    let took = started.elapsed();
    // Helpers of the program that still hold the pipes would keep the readers waiting.
    let _ = killpg(group, Signal::SIGKILL);
    for reader in [stdout_reader, stderr_reader] {
        let _ = reader.join();
    }
    match ended {
        Some(Why::Interrupted) => bail!("interrupted"),
        _ => Ok(Finished {
            line,
            code: if ended == Some(Why::Enough) { Some(0) } else { status.code() },
            timed_out: ended == Some(Why::TimeOver),
            stdout: String::from_utf8_lossy(&held(&stdout)).into_owned(),
            stderr: String::from_utf8_lossy(&held(&stderr)).into_owned(),
            took,
        }),
    }
}

/// Whether Ctrl-C or a request to end arrived. Programs then end early and everything is tidied up.
pub fn interrupted() -> bool {
    flag().load(Ordering::Relaxed)
}

/// From now on SIGINT and SIGTERM are noted instead of ending this process.
pub(crate) fn note_interrupts() {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        // Without a handler the default action ends the process; the next lab clears what it leaves.
        let _ = signal_hook::flag::register(signal, Arc::clone(flag()));
    }
}

/// While tidying up programs must run although an interrupt was noted.
pub(crate) fn forget_interrupts() {
    flag().store(false, Ordering::Relaxed);
}

/// The last `count` lines.
pub(crate) fn tail(text: &str, count: usize) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].to_vec()
}

/// A command as a person would type it.
pub(crate) fn display<S: AsRef<OsStr>>(argv: &[S]) -> String {
    let words: Vec<String> = argv.iter().map(|word| quote(&word.as_ref().to_string_lossy())).collect();
    words.join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn flag() -> &'static Arc<AtomicBool> {
    static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    FLAG.get_or_init(|| Arc::new(AtomicBool::new(false)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    TimeOver,
    Interrupted,
    Enough,
}

fn reason_to_end(terms: &Terms, started: Instant, stdout: &Mutex<Vec<u8>>) -> Option<Why> {
    if started.elapsed() > terms.limit {
        Some(Why::TimeOver)
    } else if interrupted() {
        Some(Why::Interrupted)
    } else {
        terms.enough.filter(|enough| enough(&held(stdout), terms.wanted)).map(|_| Why::Enough)
    }
}

fn spawn<S: AsRef<OsStr>>(argv: &[S], line: &str, stdin: Option<&[u8]>) -> Result<Child> {
    let (program, args) = argv.split_first().context("empty command")?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{line}`"))?;
    if let (Some(bytes), Some(mut pipe)) = (stdin, child.stdin.take()) {
        let bytes = bytes.to_vec();
        // A program that ends without reading closes the pipe: its exit code tells the story.
        thread::spawn(move || std::io::Write::write_all(&mut pipe, &bytes));
    }
    Ok(child)
}

/// Reads a pipe into a buffer that can be looked at meanwhile.
pub(crate) fn collect(
    pipe: Option<impl Read + Send + 'static>,
) -> (Arc<Mutex<Vec<u8>>>, thread::JoinHandle<()>) {
    let buffer = Arc::new(Mutex::new(Vec::new()));
    let filled = Arc::clone(&buffer);
    let reader = thread::spawn(move || {
        let Some(mut pipe) = pipe else { return };
        let mut chunk = [0; 8192];
        // What could be read before an error is still worth showing.
        while let Ok(read @ 1..) = pipe.read(&mut chunk) {
            held(&filled).extend_from_slice(&chunk[..read]);
        }
    });
    (buffer, reader)
}

pub(crate) fn held(buffer: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    // Bytes stay valid whatever happened to a thread that held them.
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
