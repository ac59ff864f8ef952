//! Long answers: rows become chunks on a thread of their own, at most a few chunks ahead of the client.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::Shared;
use crate::backend::{Backend, Rows, Step};
use crate::failure::Failure;
use crate::pcapng;
use crate::types::CapturedPacket;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 64 * 1_024;
/// Chunks made ahead of the client.
const CHUNKS_AHEAD: usize = 4;
/// How long a row may wait for its chunk to fill.
const FLUSH_AFTER: Duration = Duration::from_millis(200);

/// How rows become bytes.
pub(super) trait Encode<T>: Send + 'static {
    /// Media type.
    const CONTENT_TYPE: &'static str;
    /// Adds a row.
    fn row(&mut self, row: &T) -> Result<(), Failure>;
    /// Bytes waiting.
    fn len(&self) -> usize;
    /// The bytes waiting.
    fn take(&mut self) -> Vec<u8>;
    /// The last bytes of a complete answer.
    fn end(&mut self) {}
    /// Tells the client of a failure in band; false when the format cannot, and the connection breaks instead.
    fn fail(&mut self, _: &Failure) -> bool {
        false
    }
}

/// A JSON array, one element a line. The client knows a broken answer by its missing end.
pub(super) struct JsonArray {
    buffer: Vec<u8>,
    empty: bool,
}

impl JsonArray {
    pub(super) fn new() -> Self {
        Self { buffer: b"[".to_vec(), empty: true }
    }
}

impl<T: Serialize> Encode<T> for JsonArray {
    const CONTENT_TYPE: &'static str = "application/json";

    fn row(&mut self, row: &T) -> Result<(), Failure> {
        self.buffer.extend_from_slice(if self.empty { b"\n" } else { b",\n" });
        self.empty = false;
        to_json(&mut self.buffer, row)
    }

    fn len(&self) -> usize {
        self.buffer.len()
    }

    fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.buffer)
    }

    fn end(&mut self) {
        self.buffer.extend_from_slice(if self.empty { b"]\n" } else { b"\n]\n" });
    }
}

/// One JSON object a line; a failure under way is a last line with `error` and `hint`.
pub(super) struct JsonLines {
    buffer: Vec<u8>,
}

impl JsonLines {
    pub(super) fn new() -> Self {
        Self { buffer: Vec::new() }
    }
}

impl<T: Serialize> Encode<T> for JsonLines {
    const CONTENT_TYPE: &'static str = "application/x-ndjson";

    fn row(&mut self, row: &T) -> Result<(), Failure> {
        to_json(&mut self.buffer, row)?;
        self.buffer.push(b'\n');
        Ok(())
    }

    fn len(&self) -> usize {
        self.buffer.len()
    }

    fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.buffer)
    }

    fn fail(&mut self, failure: &Failure) -> bool {
        let done = to_json(&mut self.buffer, &failure.body()).is_ok();
        self.buffer.push(b'\n');
        done
    }
}

fn to_json<T: Serialize>(buffer: &mut Vec<u8>, row: &T) -> Result<(), Failure> {
    serde_json::to_writer(buffer, row).map_err(|e| Failure::internal(format!("a row does not encode: {e}")))
}

impl Encode<CapturedPacket> for pcapng::Writer {
    const CONTENT_TYPE: &'static str = "application/x-pcapng";

    fn row(&mut self, row: &CapturedPacket) -> Result<(), Failure> {
        self.packet(row)
    }

    fn len(&self) -> usize {
        pcapng::Writer::len(self)
    }

    fn take(&mut self) -> Vec<u8> {
        pcapng::Writer::take(self)
    }
}

/// Does the client ask for one object a line?
pub(super) fn wants_lines(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.contains("application/x-ndjson"))
}

/// Answers with rows as the client prefers them: a JSON array, or one object a line.
pub(super) async fn json<T, F>(shared: Shared, headers: &HeaderMap, open: F) -> Result<Response, Failure>
where
    T: Serialize + Send + 'static,
    F: FnOnce(&dyn Backend) -> Result<Rows<T>, Failure> + Send + 'static,
{
    if wants_lines(headers) {
        respond(shared, JsonLines::new(), open).await
    } else {
        respond(shared, JsonArray::new(), open).await
    }
}

/// Answers with rows in that format.
pub(super) async fn respond<T, E, F>(shared: Shared, encoder: E, open: F) -> Result<Response, Failure>
where
    T: Send + 'static,
    E: Encode<T>,
    F: FnOnce(&dyn Backend) -> Result<Rows<T>, Failure> + Send + 'static,
{
    let permit = shared.streams.clone().try_acquire_owned().map_err(|_| {
        Failure::unavailable("too many lists, captures and traces are running")
            .hint("wait for one to end, or stop one")
    })?;
    let (chunks, receiver) = mpsc::channel(CHUNKS_AHEAD);
    let (opened, open_result) = tokio::sync::oneshot::channel();
    tokio::task::spawn_blocking(move || match open(shared.backend.as_ref()) {
        Ok(rows) => {
            if opened.send(Ok(())).is_ok() {
                pump(rows, encoder, &chunks);
            }
        }
        Err(failure) => {
            let _ = opened.send(Err(failure));
        }
    });
    open_result.await.map_err(|_| Failure::internal("the daemon's answer broke off"))??;
    let body = Body::new(Chunks { receiver, _permit: permit });
    Ok(([(CONTENT_TYPE, E::CONTENT_TYPE)], body).into_response())
}

/// Moves rows into chunks until they end or the client is gone.
fn pump<T, E: Encode<T>>(mut rows: Rows<T>, mut encoder: E, chunks: &mpsc::Sender<Result<Bytes, Failure>>) {
    let mut flushed = Instant::now();
    loop {
        let step = rows.next();
        let idle = matches!(step, Some(Ok(Step::Idle)));
        let outcome = match step {
            Some(Ok(Step::Row(row))) => encoder.row(&row),
            Some(Ok(Step::Idle)) => Ok(()),
            Some(Err(failure)) => Err(failure),
            None => {
                encoder.end();
                let _ = chunks.blocking_send(Ok(encoder.take().into()));
                return;
            }
        };
        if let Err(failure) = outcome {
            tracing::warn!("an answer broke off: {failure}");
            let told = encoder.fail(&failure);
            let _ = chunks.blocking_send(Ok(encoder.take().into()));
            if !told {
                let _ = chunks.blocking_send(Err(failure));
            }
            return;
        }
        let waiting = encoder.len();
        let due = waiting >= CHUNK_BYTES || (waiting > 0 && (idle || flushed.elapsed() >= FLUSH_AFTER));
        let gone = if due {
            flushed = Instant::now();
            chunks.blocking_send(Ok(encoder.take().into())).is_err()
        } else {
            idle && chunks.is_closed()
        };
        if gone {
            return;
        }
    }
}

/// The chunks as an HTTP body.
struct Chunks {
    receiver: mpsc::Receiver<Result<Bytes, Failure>>,
    _permit: OwnedSemaphorePermit,
}

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        self.receiver.poll_recv(cx).map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}
