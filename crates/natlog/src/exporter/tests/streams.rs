//! Collectors over TCP and TLS that go away, stall, and come back.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use carrack_config::{ExportProtocol, ExportTransport, ExporterTls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::record::Kind;

/// Batches of 100 block events whose subscribers are numbered from `from`.
fn numbered(from: u32, batches: u32) -> Vec<Arc<Batch>> {
    let context = Arc::new(Context::default());
    let record = |n: u32| Record {
        inside: Ipv4Addr::from(n).into(),
        ..Record::new(1_772_546_602_500, Kind::BlockAllocated)
    };
    (0..batches)
        .map(|batch| {
            let records = (from + batch * 100..from + (batch + 1) * 100).map(record).collect();
            Arc::new(Batch { context: Arc::clone(&context), records })
        })
        .collect()
}

fn exporter(collector: SocketAddr, spool: &Path, spool_mb: u32, tls: Option<ExporterTls>) -> Exporter {
    let transport = if tls.is_some() { ExportTransport::Tls } else { ExportTransport::Tcp };
    let config =
        ExporterConfig { spool_mb, tls, ..super::config(ExportProtocol::Syslog, transport, collector) };
    Exporter::start(0, config, identity(spool), Arc::new(Context::default()), &Arc::from([])).unwrap()
}

/// The next counted message (RFC 5425 §4.3): the number of the subscriber in it.
fn subscriber(stream: &mut impl BufRead) -> Option<u32> {
    let mut length = Vec::new();
    stream.read_until(b' ', &mut length).ok()?;
    let length: usize = std::str::from_utf8(&length).ok()?.trim().parse().ok()?;
    let mut message = vec![0; length];
    stream.read_exact(&mut message).ok()?;
    let text = String::from_utf8(message).unwrap();
    let inside = text.split("inside=\"").nth(1).unwrap().split('"').next().unwrap();
    Some(inside.parse::<Ipv4Addr>().unwrap().into())
}

/// Reads until every number below `all` has come, or nothing more does.
fn collect(stream: impl Read, all: u32, into: &mut BTreeSet<u32>) {
    let mut stream = BufReader::new(stream);
    while into.len() < all as usize {
        let Some(number) = subscriber(&mut stream) else { return };
        into.insert(number);
    }
}

fn accept(listener: &TcpListener) -> TcpStream {
    let (stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// An address that nobody listens at yet.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(30), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn collector_that_was_away_gets_everything_within_the_bound() {
    let (address, dir) = (free_address(), tempfile::tempdir().unwrap());
    let exporter = exporter(address, dir.path(), 10, None);
    for batch in numbered(0, 200) {
        exporter.take(&batch);
        // The queue holds 1,024 events: what does not fit must have gone to disk.
        until("the queue empties", || exporter.queue.waiting() <= 600);
    }
    until("events are on disk", || exporter.report().spooled_bytes > 100_000);
    let listener = TcpListener::bind(address).unwrap();
    let mut got = BTreeSet::new();
    let stream = accept(&listener);
    collect(&stream, 20_000, &mut got);
    assert_eq!(got.len(), 20_000);
    until("all is confirmed", || exporter.report().sent == 20_000 && exporter.report().spooled_bytes == 0);
    assert_eq!((exporter.report().lost, exporter.report().waiting), (0, 0));
}

#[test]
fn connection_that_ends_is_made_again_and_nothing_in_between_is_lost() {
    let (listener, dir) = (TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    let exporter = exporter(listener.local_addr().unwrap(), dir.path(), 0, None);
    let mut got = BTreeSet::new();
    for (part, all) in numbered(0, 9).chunks(3).zip([300, 600, 900]) {
        // The first part finds a connection, the others find that it has just ended.
        part.iter().for_each(|batch| exporter.take(batch));
        let stream = accept(&listener);
        collect(&stream, all, &mut got);
        assert_eq!(got.len(), all as usize);
    }
    assert_eq!(exporter.report().lost, 0);
}

#[test]
fn collector_that_never_reads_stalls_nobody_and_what_it_did_not_take_outlives_the_daemon() {
    let (listener, dir) = (TcpListener::bind("127.0.0.1:0").unwrap(), tempfile::tempdir().unwrap());
    let address = listener.local_addr().unwrap();
    let stalled = exporter(address, dir.path(), 100, None);
    let never_read = accept(&listener);
    for batch in numbered(0, 1_000) {
        let began = Instant::now();
        stalled.take(&batch);
        assert!(began.elapsed() < Duration::from_millis(500), "the logging thread waited");
        until("the queue empties", || stalled.queue.waiting() <= 600);
    }
    assert_eq!(stalled.report().lost, 0);
    let began = Instant::now();
    drop(stalled);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    drop(never_read);
    let mut got = BTreeSet::new();
    let again = exporter(address, dir.path(), 100, None);
    let stream = accept(&listener);
    collect(&stream, 100_000, &mut got);
    // What the kernel had confirmed before the connection went is the collector's to lose.
    assert!(got.len() > 50_000 && got.last() == Some(&99_999), "{}", got.len());
    drop(again);
}

#[test]
fn beyond_the_bound_is_a_counted_loss() {
    let (address, dir) = (free_address(), tempfile::tempdir().unwrap());
    let exporter = exporter(address, dir.path(), 1, None);
    for batch in numbered(0, 1_000) {
        exporter.take(&batch);
        thread::sleep(Duration::from_micros(100));
    }
    until("the loss is counted", || exporter.report().lost > 0);
    let report = exporter.report();
    assert!(report.spooled_bytes <= 1_100_000, "{report:?}");
}

/// RFC 5425 §5.2: only the collector that the authority vouches for gets anything.
#[test]
fn tls_collector_is_checked_before_it_gets_anything() {
    let dir = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let (ca, key) = (dir.path().join(format!("{name}.pem")), made.signing_key.serialize_pem());
        std::fs::write(&ca, made.cert.pem()).unwrap();
        (ca, key)
    };
    let (good_ca, good_key) = made("collector.example.net");
    let (other_ca, _) = made("other.example.net");
    let chain: Vec<_> = CertificateDer::pem_file_iter(&good_ca).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(good_key.as_bytes()).unwrap();
    let server =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
    let server = Arc::new(server);
    for (ca, all) in [(good_ca, 900), (other_ca, 0)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tls = ExporterTls { ca, name: Some("collector.example.net".into()) };
        let exporter = exporter(listener.local_addr().unwrap(), dir.path(), 0, Some(tls));
        numbered(0, 9).iter().for_each(|batch| exporter.take(batch));
        let stream = accept(&listener);
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let connection = rustls::ServerConnection::new(Arc::clone(&server)).unwrap();
        let mut got = BTreeSet::new();
        collect(rustls::StreamOwned::new(connection, stream), 900, &mut got);
        assert_eq!(got.len(), all);
        assert_eq!(exporter.report().sent, if all == 0 { 0 } else { exporter.report().sent });
    }
}
