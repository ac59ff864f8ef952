//! The client: one request a connection over the local socket, blocking, with streams read chunk by chunk.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{ErrorBody, Failure, Kind};
use crate::params::Params;

/// Where the daemon's socket is unless somebody says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/carrack/api.sock";
/// Largest answer that is read whole, bytes; lists of rows are streamed instead.
const BODY_BYTES_MAX: usize = 256 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub enum ClientError {
    /// The daemon cannot be reached at all.
    Unreachable(Failure),
    /// The daemon answered with a failure, or its answer makes no sense.
    Failed(Failure),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(failure) | Self::Failed(failure) => failure.fmt(f),
        }
    }
}

impl std::error::Error for ClientError {}

/// A client of one daemon.
pub struct Client {
    socket: PathBuf,
    runtime: Runtime,
}

/// One connection for many requests, one after the other: for a client that asks thousands of times a second.
pub struct Connection<'a> {
    runtime: &'a Runtime,
    sender: http1::SendRequest<Full<Bytes>>,
    connection: tokio::task::JoinHandle<()>,
}

/// An answer read chunk by chunk.
pub struct Stream<'a> {
    runtime: &'a Runtime,
    body: Incoming,
    connection: tokio::task::JoinHandle<()>,
    interrupts: Option<(Signal, Signal)>,
}

impl Client {
    /// A client for the daemon at that socket; nothing is connected yet.
    ///
    /// # Errors
    /// The system gives no event queue.
    pub fn new(socket: &Path) -> Result<Self, ClientError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| ClientError::Failed(Failure::internal(format!("cannot start the client: {e}"))))?;
        Ok(Self { socket: socket.into(), runtime })
    }

    /// Asks a question whose answer is one JSON value.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get<T: DeserializeOwned>(&self, path: &str, query: &impl Params) -> Result<T, ClientError> {
        parse(&self.get_bytes(path, query)?)
    }

    /// The same answer as the bytes that came.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn get_bytes(&self, path: &str, query: &impl Params) -> Result<Vec<u8>, ClientError> {
        let answer = self.call(&Method::GET, &format!("{path}{}", query.query()), None)?;
        expect_success(answer)
    }

    /// Deletes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn delete<T: DeserializeOwned>(&self, path: &str, query: &impl Params) -> Result<T, ClientError> {
        let answer = self.call(&Method::DELETE, &format!("{path}{}", query.query()), None)?;
        parse(&expect_success(answer)?)
    }

    /// Posts a JSON value, or nothing. Status and body come back even when the status says failure, because some
    /// refusals (a reload's) carry a report.
    ///
    /// # Errors
    /// See [`ClientError`]; a failing status is no error here.
    pub fn post(&self, path: &str, body: Option<Vec<u8>>) -> Result<(u16, Vec<u8>), ClientError> {
        self.call(&Method::POST, path, body)
    }

    /// Asks for a stream; `accept` is the media type wanted.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn stream(&self, path: &str, query: &impl Params, accept: &str) -> Result<Stream<'_>, ClientError> {
        let target = format!("{path}{}", query.query());
        let (response, connection) = self.runtime.block_on(self.send(&Method::GET, &target, accept, None))?;
        let status = response.status().as_u16();
        let stream =
            Stream { runtime: &self.runtime, body: response.into_body(), connection, interrupts: None };
        if status < 300 {
            return Ok(stream);
        }
        Err(failure_of(status, &stream.collect()?))
    }

    /// Connects once for many requests.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn connect(&self) -> Result<Connection<'_>, ClientError> {
        let (sender, connection) = self.runtime.block_on(open(&self.socket))?;
        Ok(Connection { runtime: &self.runtime, sender, connection })
    }

    fn call(
        &self,
        method: &Method,
        target: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(u16, Vec<u8>), ClientError> {
        let (response, connection) =
            self.runtime.block_on(self.send(method, target, "application/json", body))?;
        let status = response.status().as_u16();
        let stream =
            Stream { runtime: &self.runtime, body: response.into_body(), connection, interrupts: None };
        Ok((status, stream.collect()?))
    }

    async fn send(
        &self,
        method: &Method,
        target: &str,
        accept: &str,
        body: Option<Vec<u8>>,
    ) -> Result<(Response<Incoming>, tokio::task::JoinHandle<()>), ClientError> {
        let (mut sender, connection) = open(&self.socket).await?;
        let request = request(method, target, accept, body)?;
        let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
        Ok((response, connection))
    }
}

impl Connection<'_> {
    /// Posts a JSON value and returns the JSON value that comes back.
    ///
    /// # Errors
    /// See [`ClientError`]; a failing status is one.
    pub fn post<T: DeserializeOwned>(&mut self, path: &str, body: Vec<u8>) -> Result<T, ClientError> {
        let request = request(&Method::POST, path, "application/json", Some(body))?;
        let sender = &mut self.sender;
        let answer = self.runtime.block_on(async {
            sender.ready().await.map_err(|e| broken(&e))?;
            let response = sender.send_request(request).await.map_err(|e| broken(&e))?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|e| broken(&e))?;
            Ok((status, body.to_bytes().to_vec()))
        });
        parse(&expect_success(answer?)?)
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Connects to a daemon's socket; the task drives the connection.
async fn open(
    socket: &Path,
) -> Result<(http1::SendRequest<Full<Bytes>>, tokio::task::JoinHandle<()>), ClientError> {
    let stream = UnixStream::connect(socket)
        .await
        .map_err(|error| ClientError::Unreachable(unreachable_because(socket, &error)))?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|e| broken(&e))?;
    let connection = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok((sender, connection))
}

fn request(
    method: &Method,
    target: &str,
    accept: &str,
    body: Option<Vec<u8>>,
) -> Result<Request<Full<Bytes>>, ClientError> {
    Request::builder()
        .method(method)
        .uri(target)
        .header("host", "carrack")
        .header("accept", accept)
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.unwrap_or_default())))
        .map_err(|e| ClientError::Failed(Failure::bad_request(format!("cannot ask for {target}: {e}"))))
}

impl Stream<'_> {
    /// From now on an interrupt (Ctrl-C) or SIGTERM ends the stream in good order instead of killing the program.
    #[must_use]
    pub fn end_on_interrupt(mut self) -> Self {
        let _inside = self.runtime.enter();
        self.interrupts = signal(SignalKind::interrupt()).ok().zip(signal(SignalKind::terminate()).ok());
        self
    }

    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    /// The answer broke off.
    pub fn next_chunk(&mut self) -> Result<Option<Bytes>, ClientError> {
        let (body, interrupts) = (&mut self.body, &mut self.interrupts);
        self.runtime.block_on(async {
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    () = interrupted(interrupts.as_mut()) => return Ok(None),
                };
                match frame {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(broken(&error)),
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            }
        })
    }

    /// Calls `row` for each row of a stream of JSON lines, without keeping any.
    ///
    /// # Errors
    /// The answer broke off, a line is no such row, or `row` failed.
    pub fn rows<T, E>(mut self, mut row: impl FnMut(T) -> Result<(), E>) -> Result<(), E>
    where
        T: DeserializeOwned,
        E: From<ClientError>,
    {
        let mut rest: Vec<u8> = Vec::new();
        while let Some(chunk) = self.next_chunk()? {
            rest.extend_from_slice(&chunk);
            let mut start = 0;
            while let Some(end) = rest[start..].iter().position(|b| *b == b'\n') {
                row(parse_line(&rest[start..start + end])?)?;
                start += end + 1;
            }
            rest.drain(..start);
        }
        if rest.is_empty() { Ok(()) } else { row(parse_line(&rest)?) }
    }

    fn collect(mut self) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.next_chunk()? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > BODY_BYTES_MAX {
                return Err(ClientError::Failed(Failure::internal("the daemon's answer does not end")));
            }
        }
        Ok(bytes)
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Ctrl-C, or a polite kill; never when nobody listens.
async fn interrupted(signals: Option<&mut (Signal, Signal)>) {
    let Some((interrupt, terminate)) = signals else { return core::future::pending().await };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ClientError> {
    serde_json::from_slice(bytes).map_err(|error| {
        ClientError::Failed(
            Failure::internal(format!("the daemon's answer makes no sense: {error}")).hint(
                "the command line and the daemon may be of different versions; see `carrack show version`",
            ),
        )
    })
}

/// A row, or the failure that ended a stream under way.
fn parse_line<T: DeserializeOwned>(line: &[u8]) -> Result<T, ClientError> {
    parse(line).map_err(|error| match serde_json::from_slice::<ErrorBody>(line) {
        Ok(body) => ClientError::Failed(Failure::internal(body.error).hint(body.hint)),
        Err(_) => error,
    })
}

fn expect_success((status, body): (u16, Vec<u8>)) -> Result<Vec<u8>, ClientError> {
    if status < 300 { Ok(body) } else { Err(failure_of(status, &body)) }
}

/// The failure that a failing answer describes.
#[must_use]
pub fn failure_of(status: u16, body: &[u8]) -> ClientError {
    let body = serde_json::from_slice(body).unwrap_or_else(|_| ErrorBody {
        error: format!("the daemon answered with status {status}"),
        hint: String::new(),
    });
    ClientError::Failed(Failure::new(Kind::from_status(status), body.error).hint(body.hint))
}

fn broken(error: &hyper::Error) -> ClientError {
    ClientError::Failed(
        Failure::internal(format!("the daemon's answer broke off: {error}"))
            .hint("it may have been stopped, or see its log"),
    )
}

fn unreachable_because(socket: &Path, error: &io::Error) -> Failure {
    let path = socket.display();
    match error.kind() {
        io::ErrorKind::NotFound => Failure::unavailable(format!(
            "no daemon: the socket {path} does not exist"
        ))
        .hint("start one with `carrack run -c FILE`, or point --socket (or CARRACK_SOCKET) at its socket"),
        io::ErrorKind::ConnectionRefused => {
            Failure::unavailable(format!("no daemon: nobody answers at the socket {path}"))
                .hint("the daemon that made it is gone; start one with `carrack run -c FILE`")
        }
        io::ErrorKind::PermissionDenied => {
            Failure::unavailable(format!("no permission for the socket {path}"))
                .hint("run as root or as a member of the socket's group (see `ls -l` of it)")
        }
        _ => Failure::unavailable(format!("cannot reach the daemon at {path}: {error}"))
            .hint("check --socket (or CARRACK_SOCKET)"),
    }
}
