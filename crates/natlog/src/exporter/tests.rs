mod streams;

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use carrack_config::{At, EventClass, ExportProtocol, SyslogFormat};

use super::*;
use crate::record::Kind;

fn config(
    protocol: ExportProtocol,
    transport: ExportTransport,
    collector: std::net::SocketAddr,
) -> ExporterConfig {
    ExporterConfig {
        name: At { value: "soc".to_owned(), span: carrack_config::Span::default() },
        protocol,
        transport,
        collector,
        events: vec![EventClass::Blocks, EventClass::System],
        instances: Vec::new(),
        message_bytes: 1_400,
        template_refresh_s: 60,
        queue: 1_024,
        spool_mb: 0,
        format: SyslogFormat::Structured,
        facility: 16,
        tls: None,
        secret_file: None,
        table: String::new(),
        user: String::new(),
        topic: String::new(),
        compression: Default::default(),
    }
}

fn identity(spool_dir: &Path) -> Identity {
    Identity { domain: 9, host: "edge-1".into(), enterprise: 32_473, spool_dir: spool_dir.to_owned() }
}

fn collector() -> (UdpSocket, std::net::SocketAddr) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn batch(kinds: &[Kind]) -> Arc<Batch> {
    let records = kinds.iter().map(|kind| Record::new(1_772_546_602_500, *kind)).collect();
    Arc::new(Batch { context: Arc::new(Context::default()), records })
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 65_535];
    let length = socket.recv(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

#[test]
fn filter_lets_through_what_it_names_and_nothing_else() {
    let (socket, address) = collector();
    let config = config(ExportProtocol::Syslog, ExportTransport::Udp, address);
    let exporter = Exporter::start(
        0,
        config,
        identity(Path::new("/nowhere")),
        Arc::new(Context::default()),
        &Arc::from([]),
    )
    .unwrap();
    exporter.take(&batch(&[Kind::AddressBound, Kind::QuotaExceeded, Kind::BlockReleased, Kind::Stopped]));
    let messages = [received(&socket), received(&socket)].map(|bytes| String::from_utf8(bytes).unwrap());
    assert_eq!(
        messages,
        [
            "<134>1 2026-03-03T14:03:22.500Z edge-1 carrack - block-released [nat@32473 instance=\"\" inside=\"0.0.0.0\" \
             outside=\"0.0.0.0\" first=\"0\" last=\"0\"]",
            "<133>1 2026-03-03T14:03:22.500Z edge-1 carrack - stopped [nat@32473]",
        ]
    );
    drop(exporter);
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 10]).is_err(), "a third message");
}

/// RFC 7011 §8.4, RFC 7011 §3.1.
#[test]
fn templates_come_before_the_first_event_and_numbers_count_the_records() {
    let (socket, address) = collector();
    let config = config(ExportProtocol::Ipfix, ExportTransport::Udp, address);
    let exporter = Exporter::start(
        0,
        config,
        identity(Path::new("/nowhere")),
        Arc::new(Context::default()),
        &Arc::from([]),
    )
    .unwrap();
    let first = received(&socket);
    assert_eq!(first.get(..2), Some(&[0, 10][..]));
    assert_eq!(first.get(12..18), Some(&[0, 0, 0, 9, 0, 2][..]), "domain, template set");
    exporter.take(&batch(&[Kind::BlockAllocated, Kind::BlockAllocated, Kind::Started]));
    let second = received(&socket);
    // One options record, the statistics, came with the templates; another context brings them again.
    assert_eq!(second.get(8..12), Some(&[0, 0, 0, 1][..]));
    assert_eq!(second.get(16..18), Some(&[0, 2][..]));
    let third = received(&socket);
    assert_eq!(third.get(8..12), Some(&[0, 0, 0, 2][..]));
    assert_eq!(third.get(16..18), Some(&273u16.to_be_bytes()[..]));
    drop(exporter);
}

/// RFC 7011 §8.4: a collector that missed the templates gets them again, and knows what comes after them.
#[test]
fn lost_templates_come_again_before_long() {
    let (socket, address) = collector();
    let mut config = config(ExportProtocol::Ipfix, ExportTransport::Udp, address);
    config.template_refresh_s = 1;
    let identity = identity(Path::new("/nowhere"));
    let exporter =
        Exporter::start(0, config, identity, Arc::new(Context::default()), &Arc::from([])).unwrap();
    let events = batch(&[Kind::BlockAllocated]);
    exporter.take(&events);
    let number = 273u16.to_be_bytes();
    // These are lost: templates, once or twice; the event after them nobody can read.
    while received(&socket).get(16..18) != Some(&number[..]) {}
    let again = received(&socket);
    assert_eq!(again.get(16..18), Some(&[0, 2][..]));
    assert!(again.windows(4).any(|pair| pair == [number, 8u16.to_be_bytes()].concat()), "no template 273");
    exporter.take(&events);
    assert_eq!(received(&socket).get(16..18), Some(&number[..]));
}

#[test]
fn full_queue_is_a_counted_loss() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = config(ExportProtocol::Ipfix, ExportTransport::Tcp, address);
    let exporter = Exporter::start(
        0,
        config,
        identity(Path::new("/nowhere")),
        Arc::new(Context::default()),
        &Arc::from([]),
    )
    .unwrap();
    let thousand = batch(&[Kind::BlockAllocated; 1_000]);
    let began = Instant::now();
    for _ in 0..3 {
        exporter.take(&thousand);
    }
    assert!(began.elapsed() < Duration::from_secs(1), "waited");
    let report = exporter.report();
    assert_eq!((report.lost, report.waiting, report.sent), (2_000, 1_000, 0));
}
