//! Streams: lists of rows, captures, traces.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::*;
use crate::fake;
use crate::types::Session;

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "still not: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Memory of this process, bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

#[test]
fn a_million_rows_arrive_in_order_within_bounded_memory() {
    const ROWS: u64 = 1_000_000;
    let served = serve(Fake { sessions: ROWS, ..Fake::default() });
    let client = client(&served);
    let stream = client.stream("/v1/nat/sessions", &NoQuery {}, "application/x-ndjson").unwrap();
    let before = resident();
    let (mut n, mut most) = (0, 0);
    stream
        .rows(|row: Session| {
            if n % 10_000 == 0 {
                assert_eq!(row, fake::session(n));
                most = most.max(resident().saturating_sub(before));
            }
            n += 1;
            Ok::<(), ClientError>(())
        })
        .unwrap();
    assert_eq!(n, ROWS);
    // All rows together are over 250 MB of JSON. Other tests of this process take memory of their own meanwhile.
    assert!(most < 128 << 20, "{most} bytes more while a million rows passed");
}

#[test]
fn a_slow_reader_holds_the_walk_back() {
    let served = serve(Fake { sessions: u64::from(u32::MAX), ..Fake::default() });
    let client = client(&served);
    let mut stream = client.stream("/v1/nat/sessions", &NoQuery {}, "application/json").unwrap();
    assert!(stream.next_chunk().unwrap().is_some());
    let mut last = 0;
    wait_until("the walk rests", || {
        std::thread::sleep(Duration::from_millis(200));
        let made = served.fake.rows_made.load(Ordering::Relaxed);
        core::mem::replace(&mut last, made) == made
    });
    assert!(last < 100_000, "{last} rows made for a reader that took one chunk");
    drop(stream);
    drop(client);
    wait_until("the walk ends with its reader", || served.fake.streams_open.load(Ordering::Relaxed) == 0);
}

#[test]
fn an_array_is_one_json_value_with_an_element_a_line() {
    for sessions in [0, 1, 3] {
        let served = serve(Fake { sessions, ..Fake::default() });
        let text = client(&served).get_bytes("/v1/nat/sessions", &NoQuery {}).unwrap();
        let rows: Vec<Session> = serde_json::from_slice(&text).unwrap();
        assert_eq!(rows, (0..sessions).map(fake::session).collect::<Vec<_>>());
        let lines = text.iter().filter(|b| **b == b'\n').count() as u64;
        assert_eq!(lines, if sessions == 0 { 1 } else { sessions + 2 });
    }
}

#[test]
fn a_list_that_breaks_off_never_looks_complete() {
    let served = serve(Fake { sessions: 10, sessions_fail_after: Some(5), ..Fake::default() });
    let client = client(&served);
    let whole = client.get_bytes("/v1/nat/sessions", &NoQuery {});
    assert!(matches!(whole, Err(ClientError::Failed(_))), "{whole:?}");
    let stream = client.stream("/v1/nat/sessions", &NoQuery {}, "application/x-ndjson").unwrap();
    let mut n = 0;
    let end = stream.rows(|_: Session| {
        n += 1;
        Ok::<(), ClientError>(())
    });
    assert_eq!(n, 5);
    assert!(matches!(end, Err(ClientError::Failed(f)) if f.error == "worker 1 is gone"));
}

#[test]
fn a_capture_flushes_while_it_waits_and_ends_with_its_client() {
    let served = serve(Fake { endless: true, ..Fake::default() });
    let client = client(&served);
    let mut stream = client.stream("/v1/capture", &NoQuery {}, "application/x-pcapng").unwrap();
    let first = stream.next_chunk().unwrap().unwrap();
    assert_eq!(first.get(..4), Some(&[0x0a, 0x0d, 0x0d, 0x0a][..]));
    assert_eq!(served.fake.streams_open.load(Ordering::Relaxed), 1);
    drop(stream);
    drop(client);
    wait_until("the capture ends", || served.fake.streams_open.load(Ordering::Relaxed) == 0);
}

#[test]
fn more_streams_than_allowed_are_refused_and_ordinary_questions_are_not() {
    let served = serve(Fake { endless: true, ..Fake::default() });
    let clients: Vec<Client> = (0..super::super::STREAMS_MAX).map(|_| client(&served)).collect();
    let streams: Vec<_> = clients
        .iter()
        .map(|client| client.stream("/v1/trace", &NoQuery {}, "application/x-ndjson").unwrap())
        .collect();
    let (status, answer) = ask(&served, "GET", "/v1/trace");
    assert_eq!(status, 503, "{answer}");
    assert_eq!(ask(&served, "GET", "/v1/counters").0, 200);
    drop(streams);
}

#[test]
fn a_stop_does_not_wait_for_an_endless_capture() {
    let served = serve(Fake { endless: true, ..Fake::default() });
    let client = client(&served);
    let mut stream = client.stream("/v1/capture", &NoQuery {}, "application/x-pcapng").unwrap();
    stream.next_chunk().unwrap();
    let start = Instant::now();
    let Served { _server, socket, directory, .. } = served;
    _server.stop();
    assert!(start.elapsed() < Duration::from_secs(4));
    assert!(!socket.exists());
    drop(directory);
}
