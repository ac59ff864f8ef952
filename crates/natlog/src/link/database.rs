//! ClickHouse, by its HTTP interface.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use carrack_config::ExporterConfig;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use super::CONNECT;
use super::inserts::Target;
use crate::clickhouse::COLUMNS;

/// How long the database may take for one insert.
const ANSWER: Duration = Duration::from_secs(60);
/// Of what the database says when something is wrong, the beginning is enough.
const COMPLAINT_BYTES: usize = 300;

/// The database, as HTTP reaches it.
pub(super) struct Database {
    agent: ureq::Agent,
    url: String,
    table: String,
    user: String,
    password: Option<String>,
}

impl Database {
    pub(super) fn new(config: &ExporterConfig, password: Option<String>) -> io::Result<Self> {
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

impl Target for Database {
    /// Is the table there, with all columns?
    fn look(&mut self) -> Result<(), String> {
        self.ask(&format!("SELECT {COLUMNS} FROM {} LIMIT 0", self.table), &[])
    }

    fn insert(&mut self, rows: Vec<u8>) -> Result<(), String> {
        self.ask(&format!("INSERT INTO {} ({COLUMNS}) FORMAT RowBinary", self.table), &rows)
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
