//! TCP: TLS for everything, a bearer token for every request.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{CONNECTIONS_MAX, TcpOptions, listen};
use crate::failure::{Failure, Kind};

/// How long a client may take for its TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Shortest token accepted, characters.
const TOKEN_CHARS_MIN: usize = 16;

/// A bound TCP address with all that serving it needs.
pub(super) struct Acceptor {
    listener: TcpListener,
    address: SocketAddr,
    tls: TlsAcceptor,
    token: Arc<str>,
}

impl Acceptor {
    pub(super) fn bind(options: &TcpOptions) -> Result<Self, Failure> {
        let token = read_token(&options.token_file)?;
        let tls = TlsAcceptor::from(Arc::new(tls_config(options)?));
        let fail = |error: std::io::Error| {
            Failure::new(Kind::Conflict, format!("cannot listen on {}: {error}", options.listen))
                .hint("choose another `listen` in the [api.tcp] table")
        };
        let listener = std::net::TcpListener::bind(options.listen).map_err(fail)?;
        listener.set_nonblocking(true).map_err(fail)?;
        let listener = TcpListener::from_std(listener).map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address, tls, token: token.into() })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop.
    pub(super) async fn serve(self, router: Router, mut stop: watch::Receiver<bool>) {
        let router = router.layer(middleware::from_fn_with_state(self.token, require_token));
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let Ok(slot) = slots.clone().acquire_owned().await else { return };
            let stream = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        listen::pause_after(&error).await;
                        continue;
                    }
                },
                _ = stop.changed() => return,
            };
            let (tls, router, stop) = (self.tls.clone(), router.clone(), stop.clone());
            tokio::spawn(async move {
                if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
                    listen::connection(stream, router, stop).await;
                }
                drop(slot);
            });
        }
    }
}

async fn require_token(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    let given =
        request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    // Constant time: how long a wrong token takes tells nothing about where it differs.
    if given.is_some_and(|given| bool::from(given.ct_eq(token.as_bytes()))) {
        return next.run(request).await;
    }
    let failure = Failure::new(Kind::Unauthorized, "a valid bearer token is needed")
        .hint("send `Authorization: Bearer TOKEN` with the content of the daemon's token file");
    let mut response = failure.into_response();
    response.headers_mut().insert("www-authenticate", axum::http::HeaderValue::from_static("Bearer"));
    response
}

/// Refuses files that everybody on the machine can read.
fn private(path: &Path, key: &str) -> Result<(), Failure> {
    let meta = fs::metadata(path).map_err(|e| unreadable(path, key, &e))?;
    if meta.permissions().mode() & 0o007 != 0 {
        return Err(Failure::new(Kind::Invalid, format!("{} can be read by everybody", path.display()))
            .hint(format!("chmod 640 {}", path.display())));
    }
    Ok(())
}

fn unreadable(path: &Path, key: &str, error: &dyn core::fmt::Display) -> Failure {
    Failure::new(Kind::Invalid, format!("cannot read {}: {error}", path.display()))
        .hint(format!("check `{key}` in the [api.tcp] table"))
}

fn read_token(path: &Path) -> Result<String, Failure> {
    private(path, "token_file")?;
    let text = fs::read_to_string(path).map_err(|e| unreadable(path, "token_file", &e))?;
    let token = text.trim();
    if token.len() < TOKEN_CHARS_MIN || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Failure::new(
            Kind::Invalid,
            format!(
                "{} holds no token of at least {TOKEN_CHARS_MIN} visible ASCII characters",
                path.display()
            ),
        )
        .hint(format!("(umask 077; openssl rand -hex 32 > {})", path.display())));
    }
    Ok(token.into())
}

fn tls_config(options: &TcpOptions) -> Result<ServerConfig, Failure> {
    private(&options.tls_key, "tls_key")?;
    let chain = CertificateDer::pem_file_iter(&options.tls_cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|e| unreadable(&options.tls_cert, "tls_cert", &e))?;
    if chain.is_empty() {
        return Err(unreadable(&options.tls_cert, "tls_cert", &"it holds no PEM certificate"));
    }
    let key = PrivateKeyDer::from_pem_file(&options.tls_key)
        .map_err(|e| unreadable(&options.tls_key, "tls_key", &e))?;
    ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| {
            Failure::new(Kind::Invalid, format!("TLS certificate and key do not work: {error}"))
                .hint("check that `tls_key` belongs to the first certificate of `tls_cert`")
        })
}
