//! The HTTP server: on a local socket for everybody in its group, on TCP only with TLS and a token.

mod listen;
mod metrics;
mod network;
mod query;
mod routes;
mod stream;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use carrack_base::thread::Thread;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::backend::Backend;
use crate::failure::Failure;

pub use routes::openapi_json;

/// Most connections at once, local and TCP each.
const CONNECTIONS_MAX: usize = 256;
/// Most streams (session lists, captures, traces) at once.
const STREAMS_MAX: usize = 64;
/// How long a stop waits for answers under way.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// Where to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerOptions {
    /// Path of the local socket; its directory is made when it is missing.
    pub socket: PathBuf,
    /// TCP as well?
    pub tcp: Option<TcpOptions>,
}

/// What TCP needs; none of it is optional.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpOptions {
    /// Address and port.
    pub listen: SocketAddr,
    /// File with the bearer token: one line of at least 16 characters, not readable by everybody.
    pub token_file: PathBuf,
    /// PEM file with the certificate chain.
    pub tls_cert: PathBuf,
    /// PEM file with the private key, not readable by everybody.
    pub tls_key: PathBuf,
}

/// A running server; it stops when dropped.
pub struct Server {
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    socket: listen::Socket,
    tcp: Option<SocketAddr>,
}

/// What every request handler shares.
#[derive(Clone)]
struct Shared {
    backend: Arc<dyn Backend>,
    streams: Arc<tokio::sync::Semaphore>,
}

impl Server {
    /// Binds, then serves on threads of its own.
    ///
    /// # Errors
    /// The socket is in use by a living daemon, its directory is not writable, the TCP address is taken, or the token
    /// or TLS files are missing, malformed or readable by everybody.
    pub fn start(backend: Arc<dyn Backend>, options: &ServerOptions) -> Result<Self, Failure> {
        let started = AtomicUsize::new(0);
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(STREAMS_MAX + 16)
            .thread_name_fn(move || Thread::Api(started.fetch_add(1, Ordering::Relaxed)).name())
            .enable_all()
            .build()
            .map_err(|e| Failure::internal(format!("cannot start the API's threads: {e}")))?;
        let shared = Shared { backend, streams: Arc::new(tokio::sync::Semaphore::new(STREAMS_MAX)) };
        let router = routes::router(shared);
        let (stop, stopped) = watch::channel(false);
        let guard = runtime.enter();
        let tcp = match &options.tcp {
            Some(tcp) => Some(tls::Acceptor::bind(tcp)?),
            None => None,
        };
        let (listener, socket) = listen::bind(&options.socket)?;
        drop(guard);
        let tcp_address = tcp.as_ref().map(tls::Acceptor::address);
        runtime.spawn(listen::serve_unix(listener, router.clone(), stopped.clone()));
        if let Some(acceptor) = tcp {
            runtime.spawn(acceptor.serve(router, stopped));
        }
        Ok(Self { runtime: Some(runtime), stop, socket, tcp: tcp_address })
    }

    /// The TCP address it listens on, with the real port when config said 0.
    #[must_use]
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        self.tcp
    }

    /// Takes no more requests, lets answers under way finish for a second, removes the socket.
    pub fn stop(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        self.socket.remove();
        let _ = self.stop.send(true);
        runtime.block_on(async {
            // The accept loops and every connection hold a receiver: when the last is gone, all is answered.
            let _ = tokio::time::timeout(STOP_WAIT, self.stop.closed()).await;
        });
        runtime.shutdown_timeout(STOP_WAIT);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut();
    }
}

#[cfg(test)]
mod tests;
