//! The local socket and the loop that serves connections.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::sync::{Semaphore, watch};

use super::CONNECTIONS_MAX;
use crate::failure::{Failure, Kind};

/// Who may talk to the daemon: its user and group.
const SOCKET_MODE: u32 = 0o660;
/// How long a connection may take to send a request's head, also between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The socket's file, removed only while it is still ours.
pub(super) struct Socket {
    path: PathBuf,
    inode: Option<u64>,
}

impl Socket {
    pub(super) fn remove(&mut self) {
        let Some(inode) = self.inode.take() else { return };
        if fs::symlink_metadata(&self.path).is_ok_and(|m| m.ino() == inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds the socket under a temporary name, sets its mode, and only then moves it into place: nobody ever meets it with
/// the wrong permissions, and a stale socket of a killed daemon is replaced in one step.
pub(super) fn bind(path: &Path) -> Result<(UnixListener, Socket), Failure> {
    let fail = |what: &str, error: &io::Error| {
        Failure::new(Kind::Conflict, format!("cannot {what} {}: {error}", path.display()))
            .hint("check `socket` in the [api] table and the permissions of its directory")
    };
    if let Some(directory) = path.parent().filter(|d| !d.as_os_str().is_empty()) {
        fs::create_dir_all(directory).map_err(|e| fail("make the directory of", &e))?;
    }
    refuse_occupied(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let _ = fs::remove_file(&temporary);
    let listener = UnixListener::bind(&temporary).map_err(|e| fail("bind the socket", &e))?;
    let placed = fs::set_permissions(&temporary, fs::Permissions::from_mode(SOCKET_MODE))
        .and_then(|()| fs::symlink_metadata(&temporary))
        .and_then(|meta| fs::rename(&temporary, path).map(|()| meta.ino()));
    match placed {
        Ok(inode) => Ok((listener, Socket { path: path.into(), inode: Some(inode) })),
        Err(error) => {
            let _ = fs::remove_file(&temporary);
            Err(fail("place the socket", &error))
        }
    }
}

/// A living daemon's socket, or a file that is no socket, is never replaced.
fn refuse_occupied(path: &Path) -> Result<(), Failure> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.file_type().is_socket() {
        return Err(Failure::new(Kind::Conflict, format!("{} exists and is no socket", path.display()))
            .hint("choose another `socket` in the [api] table, or remove the file"));
    }
    match StdUnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::new(
            Kind::Conflict,
            format!("cannot tell whether a daemon still serves {}: {error}", path.display()),
        )
        .hint("run as the user who owns the socket, or choose another `socket` in the [api] table")),
        Ok(_) => Err(Failure::new(Kind::Conflict, format!("another daemon serves {}", path.display()))
            .hint("stop it first, or give this one another `socket` in the [api] table")),
    }
}

/// Serves the local socket until told to stop.
pub(super) async fn serve_unix(listener: UnixListener, router: Router, mut stop: watch::Receiver<bool>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            },
            _ = stop.changed() => return,
        };
        let (router, stop) = (router.clone(), stop.clone());
        tokio::spawn(async move {
            connection(stream, router, stop).await;
            drop(slot);
        });
    }
}

/// Accepting fails for lack of descriptors or memory: wait a little instead of spinning.
pub(super) async fn pause_after(error: &io::Error) {
    tracing::warn!("the API cannot accept a connection: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Serves one connection to its end; on stop it finishes the answer under way.
pub(super) async fn connection<S>(stream: S, router: Router, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        _ = stop.changed() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
