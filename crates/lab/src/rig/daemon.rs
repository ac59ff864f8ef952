//! The daemon under test, outside any namespace: its ports are shared memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use carrack_api::NoQuery;
use carrack_api::client::Client;
use carrack_api::types::{Counters, Health, Interface, Neighbour, Worker};

use super::{DAEMON_LOG, Directory, companion};
use crate::command::interrupted;
use crate::process;

const READY_LIMIT: Duration = Duration::from_secs(60);
const LINK_LIMIT: Duration = Duration::from_secs(10);

/// A running daemon; ends with this value.
pub(crate) struct Daemon {
    child: Child,
    socket: PathBuf,
    client: Client,
}

impl Daemon {
    /// Writes the config, in which `@LAB@` stands for the directory, starts `binary` with it and waits until it answers.
    pub fn start(directory: &Directory, binary: &Path, config: &str) -> Result<Daemon> {
        let dir = directory.path().display().to_string();
        let (file, log) = (directory.file("carrack.toml"), directory.file(DAEMON_LOG));
        fs::write(&file, config.replace("@LAB@", &dir))?;
        let socket = directory.file("api.sock");
        let _ = fs::remove_file(&socket);
        let words = [binary.display().to_string(), "run".into(), "-c".into(), file.display().to_string()];
        let out = fs::File::create(&log)?;
        let mut child = companion(&words)?
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let started = Instant::now();
        let client = loop {
            let client = Client::new(&socket)?;
            if socket.exists() && client.get::<Health>("/v1/health", &NoQuery {}).is_ok() {
                break client;
            }
            let ended = child.try_wait()?.is_some();
            if ended || started.elapsed() > READY_LIMIT || interrupted() {
                let _ = child.kill();
                let _ = child.wait();
                bail!(
                    "carrack {}",
                    if ended { "ended instead of getting ready" } else { "did not get ready" }
                );
            }
            thread::sleep(Duration::from_millis(20));
        };
        let daemon = Daemon { child, socket, client };
        daemon.await_links()?;
        Ok(daemon)
    }

    /// Waits until all ports have found their other ends. Traffic before that would meet a half-made connection.
    fn await_links(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            let rows: Vec<Interface> = self.client.get("/v1/interfaces", &NoQuery {})?;
            let down = rows.iter().find(|row| !row.link);
            let Some(down) = down else { return Ok(()) };
            if started.elapsed() > LINK_LIMIT || interrupted() {
                bail!("the other end of carrack's interface {} does not connect", down.name);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Its management socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn counters(&self) -> Result<Counters> {
        Ok(self.client.get("/v1/counters", &carrack_api::CounterQuery::default())?)
    }

    pub fn workers(&self) -> Result<Vec<Worker>> {
        Ok(self.client.get("/v1/workers", &NoQuery {})?)
    }

    /// Sessions there are now, all workers.
    pub fn sessions(&self) -> Result<u64> {
        Ok(self.workers()?.iter().map(|worker| worker.sessions).sum())
    }

    /// Whether a neighbour on `interface` has answered.
    pub fn has_neighbour(&self, interface: &str) -> Result<bool> {
        let rows: Vec<Neighbour> = self.client.get("/v1/neighbours", &NoQuery {})?;
        Ok(rows.iter().any(|row| row.interface == interface && row.state == "reachable"))
    }

    /// What its tables hold and take.
    pub fn memory(&self) -> Result<Vec<carrack_api::types::Memory>> {
        Ok(self.client.get("/v1/nat/memory", &NoQuery {})?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = self.child.id() as i32;
        if let Some(identity) = process::Identity::of(pid, "carrack") {
            process::end(&identity, Some(&mut self.child), Duration::from_secs(5));
        }
        let _ = self.child.wait();
    }
}
