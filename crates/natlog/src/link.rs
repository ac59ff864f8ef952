//! The way to a collector: datagrams, or a stream with or without TLS. Never waits: what cannot be sent now stays in a bounded
//! buffer.

mod database;
mod inserts;
mod requests;
mod topic;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use carrack_base::thread::Thread;
use carrack_config::{ExportProtocol, ExportTransport, ExporterConfig, ExporterTls};
use database::Database;
use inserts::Inserts;
use requests::Requests;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use topic::Topic;

/// Bytes that wait for a stream's collector beside what the kernel holds.
const BUFFER_BYTES: usize = 256 * 1_024;
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(3);

/// An open way to a collector.
#[derive(Debug)]
pub(crate) enum Link {
    Udp(UdpSocket),
    Stream(Box<Stream>),
    Requests(Requests),
    Inserts(Inserts),
}

/// A stream and what it has not taken yet.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    buffer: VecDeque<u8>,
    /// Bytes that have been put into the buffer since the connection came about.
    accepted: u64,
    tls: Option<ClientConnection>,
}

impl Link {
    /// Opens the link of the exporter of that number.
    pub(crate) fn open(number: usize, config: &ExporterConfig) -> io::Result<Self> {
        let (transport, collector, tls) = (config.transport, config.collector, config.tls.as_ref());
        if transport == ExportTransport::Udp {
            let any: SocketAddr =
                if collector.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
            let socket = UdpSocket::bind(any)?;
            socket.connect(collector)?;
            socket.set_nonblocking(true)?;
            if config.protocol == ExportProtocol::Radius {
                let secret = secret(config)?.ok_or_else(|| io::Error::other("no secret_file"))?;
                return Ok(Self::Requests(Requests::new(socket, secret.into_bytes())));
            }
            return Ok(Self::Udp(socket));
        }
        let thread = || Thread::Insert(number, &config.name.value).name();
        match config.protocol {
            ExportProtocol::ClickHouse => {
                return Ok(Self::Inserts(Inserts::open(&thread(), Database::new(config, secret(config)?)?)?));
            }
            ExportProtocol::Kafka => {
                return Ok(Self::Inserts(Inserts::open(&thread(), Topic::new(config, secret(config)?))?));
            }
            _ => {}
        }
        let tls = match (transport, tls) {
            (ExportTransport::Tls, Some(tls)) => Some(client(tls, collector)?),
            // The configuration demands it; nothing may leave in the clear instead.
            (ExportTransport::Tls, None) => {
                return Err(io::Error::other("no certificates to check it against"));
            }
            _ => None,
        };
        let socket = TcpStream::connect_timeout(&collector, CONNECT)?;
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Self::Stream(Box::new(Stream { socket, buffer: VecDeque::new(), accepted: 0, tls })))
    }

    /// Is there room for another message?
    pub(crate) fn is_ready(&self) -> bool {
        match self {
            Self::Udp(_) => true,
            Self::Requests(requests) => requests.is_ready(),
            Self::Inserts(inserts) => inserts.is_ready(),
            Self::Stream(stream) => {
                stream.buffer.len() < BUFFER_BYTES
                    && stream.tls.as_ref().is_none_or(|tls| !tls.is_handshaking())
            }
        }
    }

    /// Does the collector take events, as far as can be known?
    pub(crate) fn is_working(&self) -> bool {
        match self {
            Self::Requests(requests) => requests.is_proven(),
            Self::Inserts(inserts) => inserts.is_proven(),
            Self::Udp(_) | Self::Stream(_) => self.is_ready(),
        }
    }

    /// Takes a whole message. `Ok(false)`: a datagram that the kernel had no room for.
    pub(crate) fn send(&mut self, message: &[u8]) -> io::Result<bool> {
        match self {
            Self::Udp(socket) => match socket.send(message) {
                Ok(_) => Ok(true),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                // The last datagram found nobody; this one may.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    socket.send(message).map(|_| true)
                }
                Err(error) => Err(error),
            },
            Self::Requests(requests) => {
                requests.put(message);
                Ok(true)
            }
            Self::Inserts(inserts) => {
                inserts.put(message);
                Ok(true)
            }
            Self::Stream(stream) => stream.put(message).and_then(|()| stream.flush()).map(|()| true),
        }
    }

    /// Sends what waits, as far as the collector takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Udp(_) => Ok(()),
            Self::Requests(requests) => requests.flush(),
            Self::Inserts(inserts) => inserts.flush(),
            Self::Stream(stream) => stream.flush(),
        }
    }

    /// Bytes of a stream, requests, or rows, so far; a message is delivered when [`Self::delivered`] has reached what this was after it.
    pub(crate) fn accepted(&self) -> u64 {
        match self {
            Self::Udp(_) => 0,
            Self::Requests(requests) => requests.accepted(),
            Self::Inserts(inserts) => inserts.accepted(),
            Self::Stream(stream) => stream.accepted,
        }
    }

    /// What of that the collector's machine has confirmed.
    pub(crate) fn delivered(&self) -> u64 {
        match self {
            Self::Udp(_) => 0,
            Self::Requests(requests) => requests.delivered(),
            Self::Inserts(inserts) => inserts.delivered(),
            Self::Stream(stream) => {
                let kernel = unconfirmed(&stream.socket).unwrap_or(u64::MAX);
                stream.accepted.saturating_sub(stream.buffer.len() as u64).saturating_sub(kernel)
            }
        }
    }
}

impl Stream {
    fn put(&mut self, message: &[u8]) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            self.accepted += message.len() as u64;
            self.buffer.extend(message);
            return Ok(());
        };
        // Emptied after every piece, so that a large message finds room in the connection's own bounded buffer.
        for piece in message.chunks(16_384) {
            tls.writer().write_all(piece)?;
            self.accepted += encrypted(tls, &mut self.buffer)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.tls {
            None => see_end(&self.socket)?,
            Some(tls) => {
                read_tls(tls, &mut self.socket)?;
                self.accepted += encrypted(tls, &mut self.buffer)?;
            }
        }
        while !self.buffer.is_empty() {
            let (first, _) = self.buffer.as_slices();
            match self.socket.write(first) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.buffer.drain(..written);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Collectors send nothing: what can be read is the end of the stream.
fn see_end(socket: &TcpStream) -> io::Result<()> {
    match socket.peek(&mut [0; 1]) {
        Ok(0) => Err(closed()),
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

fn closed() -> io::Error {
    io::Error::new(ErrorKind::ConnectionReset, "the collector closed the connection")
}

fn read_tls(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    loop {
        match tls.read_tls(socket) {
            Ok(0) => return Err(closed()),
            Ok(_) => {
                let state = tls.process_new_packets().map_err(io::Error::other)?;
                if state.peer_has_closed() {
                    return Err(closed());
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn encrypted(tls: &mut ClientConnection, buffer: &mut VecDeque<u8>) -> io::Result<u64> {
    let mut bytes = 0;
    while tls.wants_write() {
        bytes += tls.write_tls(buffer)? as u64;
    }
    Ok(bytes)
}

/// RFC 5425 §5.2: the collector's certificate is checked against these authorities and its name.
fn client(tls: &ExporterTls, collector: SocketAddr) -> io::Result<ClientConnection> {
    let unusable = |error: &dyn std::fmt::Display| {
        io::Error::other(format!("{} holds no usable certificates: {error}", tls.ca.display()))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&tls.ca).map_err(|error| unusable(&error))? {
        let certificate = certificate.map_err(|error| unusable(&error))?;
        roots.add(certificate).map_err(|error| unusable(&error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = match &tls.name {
        Some(name) => ServerName::try_from(name.clone()).map_err(io::Error::other)?,
        None => ServerName::from(collector.ip()),
    };
    ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)
}

/// Bytes that the kernel holds because the other machine has not confirmed them, from the table of connections.
fn unconfirmed(socket: &TcpStream) -> Option<u64> {
    let (local, peer) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
    let table = if local.is_ipv4() { "/proc/thread-self/net/tcp" } else { "/proc/thread-self/net/tcp6" };
    let (own, other) = (format!(":{:04X}", local.port()), format!(":{:04X}", peer.port()));
    let table = std::fs::read_to_string(table).ok()?;
    let queues = table.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let ends = fields.next()?.ends_with(&own) && fields.next()?.ends_with(&other);
        let queue = fields.nth(1)?.split_once(':')?.0;
        ends.then(|| u64::from_str_radix(queue, 16).ok())?
    });
    // Two connections of the same ports to different collectors: the fuller one counts.
    queues.max()
}

/// The secret shared with a RADIUS server, or a database's or broker's password: the file's first line. `None` without a file.
fn secret(config: &ExporterConfig) -> io::Result<Option<String>> {
    let Some(path) = &config.secret_file else { return Ok(None) };
    let text = std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot read {}: {error}", path.display())))?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(io::Error::other(format!("{} holds no secret in its first line", path.display())));
    }
    Ok(Some(line.to_owned()))
}
