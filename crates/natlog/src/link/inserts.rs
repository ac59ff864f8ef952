//! Rows on their way into a database over HTTP: gathered to inserts of some size, one under way at a time, each answered.
//!
//! A thread of its own waits for the answers, so that the exporter can move events to its spool meanwhile.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use carrack_config::ExporterConfig;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use crate::clickhouse::COLUMNS;

/// Rows wait for others up to this size or time: every insert is a file for the database to merge.
const INSERT_BYTES: usize = 4 << 20;
const INSERT_WAIT: Duration = Duration::from_secs(1);
/// Bytes that may wait while an insert is under way.
const BUFFER_BYTES: usize = 16 << 20;
const CONNECT: Duration = Duration::from_secs(3);
/// How long the database may take for one insert.
const ANSWER: Duration = Duration::from_secs(60);
/// Of what the database says when something is wrong, the beginning is enough.
const COMPLAINT_BYTES: usize = 300;

/// Inserts and what became of them.
#[derive(Debug)]
pub(crate) struct Inserts {
    to: SyncSender<Vec<u8>>,
    answers: Receiver<Result<(), String>>,
    rows: Vec<u8>,
    /// Since when the first of them waits.
    since: Instant,
    accepted: u64,
    delivered: u64,
    /// What will have been delivered when the insert under way has been answered.
    under_way: Option<u64>,
    /// Has the database answered since the beginning?
    proven: bool,
}

impl Inserts {
    /// Asks the database for the table at once: what is wrong is known before events are.
    pub(crate) fn open(config: &ExporterConfig, password: Option<String>) -> io::Result<Self> {
        let client = Client::new(config, password)?;
        let (to, bodies) = sync_channel::<Vec<u8>>(1);
        let (done, answers) = sync_channel(1);
        std::thread::Builder::new().name("log-insert".into()).spawn(move || {
            let mut answer = client.look();
            loop {
                if done.send(answer).is_err() {
                    return;
                }
                let Ok(body) = bodies.recv() else { return };
                answer = client.insert(&body);
            }
        })?;
        Ok(Self {
            to,
            answers,
            rows: Vec::new(),
            since: Instant::now(),
            accepted: 0,
            delivered: 0,
            under_way: Some(0),
            proven: false,
        })
    }

    pub(crate) fn put(&mut self, row: &[u8]) {
        if self.rows.is_empty() {
            self.since = Instant::now();
        }
        self.rows.extend(row);
        self.accepted += 1;
    }

    /// Rows put so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The first so many are in the database.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.proven && self.rows.len() < BUFFER_BYTES
    }

    /// Is somebody there?
    pub(crate) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Takes the answer, and sends what has waited long enough.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self.answers.try_recv() {
            Ok(answer) => {
                answer.map_err(io::Error::other)?;
                self.proven = true;
                self.delivered = self.under_way.take().unwrap_or(self.delivered);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other("the thread that inserts has ended"));
            }
        }
        let is_due = self.rows.len() >= INSERT_BYTES || self.since.elapsed() >= INSERT_WAIT;
        if self.under_way.is_none() && !self.rows.is_empty() && is_due {
            let body = mem::take(&mut self.rows);
            // One answer was taken for each body: there is room for one.
            self.to.send(body).map_err(|_| io::Error::other("the thread that inserts has ended"))?;
            self.under_way = Some(self.accepted);
        }
        Ok(())
    }
}

/// The database, as HTTP reaches it.
struct Client {
    agent: ureq::Agent,
    url: String,
    table: String,
    user: String,
    password: Option<String>,
}

impl Client {
    fn new(config: &ExporterConfig, password: Option<String>) -> io::Result<Self> {
        let mut settings = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(ANSWER))
            .proxy(None)
            .user_agent("carrack");
        let (mut scheme, mut host) = ("http", config.collector.to_string());
        if let Some(tls) = &config.tls {
            let roots = RootCerts::new_with_certs(&authorities(&tls.ca)?);
            settings = settings.tls_config(TlsConfig::builder().root_certs(roots).build());
            scheme = "https";
            if let Some(name) = &tls.name {
                host = format!("{name}:{}", config.collector.port());
            }
        }
        let resolver = Fixed(config.collector);
        Ok(Self {
            agent: ureq::Agent::with_parts(settings.build(), DefaultConnector::default(), resolver),
            url: format!("{scheme}://{host}/"),
            table: config.table.clone(),
            user: config.user.clone(),
            password,
        })
    }

    /// Is the table there, with all columns?
    fn look(&self) -> Result<(), String> {
        self.ask(&format!("SELECT {COLUMNS} FROM {} LIMIT 0", self.table), &[])
    }

    fn insert(&self, rows: &[u8]) -> Result<(), String> {
        self.ask(&format!("INSERT INTO {} ({COLUMNS}) FORMAT RowBinary", self.table), rows)
    }

    fn ask(&self, query: &str, body: &[u8]) -> Result<(), String> {
        let mut request =
            self.agent.post(&self.url).query("query", query).header("X-ClickHouse-User", &self.user);
        if let Some(password) = &self.password {
            request = request.header("X-ClickHouse-Key", password);
        }
        let mut response = request.send(body).map_err(|error| error.to_string())?;
        let said = response.body_mut().read_to_string().map_err(|error| error.to_string())?;
        if response.status().is_success() {
            return Ok(());
        }
        let said: String = said.trim().chars().take(COMPLAINT_BYTES).collect();
        Err(format!("the database answers {}: {said}", response.status().as_u16()))
    }
}

/// The collector's address is known; its name is only what its certificate bears.
#[derive(Debug)]
struct Fixed(SocketAddr);

impl Resolver for Fixed {
    fn resolve(
        &self,
        _: &Uri,
        _: &ureq::config::Config,
        _: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let mut addresses = self.empty();
        addresses.push(self.0);
        Ok(addresses)
    }
}

fn authorities(path: &Path) -> io::Result<Vec<Certificate<'static>>> {
    let unusable = |why: &dyn std::fmt::Display| {
        io::Error::other(format!("{} holds no usable certificates: {why}", path.display()))
    };
    let text = std::fs::read(path).map_err(|error| unusable(&error))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| unusable(&error))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() { Err(unusable(&"it has none")) } else { Ok(certificates) }
}
