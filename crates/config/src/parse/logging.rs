//! `[logging]`, `[logging.store]`, `[[logging.exporter]]`.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::keys::EXPORTERS_MAX;
use crate::model::{
    EventClass, ExportProtocol, ExportTransport, ExporterConfig, ExporterTls, Logging, StoreConfig,
};
use crate::read::{Notes, Section};
use crate::source::At;

pub(super) fn logging(notes: &Notes, section: &Section<'_>) -> Logging {
    let exporters = section.sections("exporter");
    if let Some(extra) = exporters.get(EXPORTERS_MAX) {
        notes.error(extra.span, format!("too many exporters; at most {EXPORTERS_MAX}"));
    }
    Logging {
        domain: section.value("domain"),
        enterprise: section.value("enterprise"),
        cores: section.value("cores"),
        spool_dir: section.value("spool_dir"),
        store: store(notes, &section.section("store")),
        exporters: exporters.into_iter().filter_map(|exporter| self::exporter(notes, exporter)).collect(),
    }
}

fn store(notes: &Notes, section: &Section<'_>) -> Option<StoreConfig> {
    let dir = section.get::<PathBuf>("dir");
    let (keep_s, max_mb) = (section.value("keep"), section.value("max_mb"));
    if dir.is_none() && section.is_present() && section.written("dir").is_none() {
        let message = "[logging.store] has no `dir`; say where events shall be kept, or remove the table";
        notes.error(section.span, message);
    }
    Some(StoreConfig { dir: dir?.value, keep_s, max_mb })
}

fn exporter(notes: &Notes, mut section: Section<'_>) -> Option<ExporterConfig> {
    let name = super::network::name(notes, &mut section, "exporter");
    let protocol = section.get::<ExportProtocol>("protocol");
    let mut transport = section.need::<ExportTransport>("transport");
    let collector = section.get::<SocketAddr>("collector");
    let events = section.need::<Vec<At<EventClass>>>("events");
    if events.is_empty() && section.written("events").is_some() {
        notes.error(events.span, "an empty list; name the events, or leave the key out to send all");
    }
    let only_stream = match protocol.as_ref().map(|at| at.value) {
        Some(ExportProtocol::ClickHouse) => Some("ClickHouse is reached by HTTP"),
        Some(ExportProtocol::Kafka) => Some("Kafka is reached by connections"),
        _ => None,
    };
    if let Some(why) = only_stream {
        if section.written("transport").is_none() {
            transport.value = ExportTransport::Tcp;
        }
        if transport.value == ExportTransport::Udp {
            notes.error(transport.span, format!("{why}; set transport = \"tcp\" or \"tls\""));
        }
    }
    let tls = tls(notes, &section, transport.value);
    if transport.value != ExportTransport::Udp {
        match protocol.as_ref().map(|protocol| protocol.value) {
            Some(ExportProtocol::NetFlow9) => notes.error(
                transport.span,
                "NetFlow is sent over UDP only; remove `transport`, or set protocol = \"ipfix\", which is its successor",
            ),
            Some(ExportProtocol::Radius) => notes.error(
                transport.span,
                "RADIUS accounting is sent over UDP only, where every request is answered; remove `transport`",
            ),
            _ => {}
        }
    }
    let named = protocol.as_ref().map(|protocol| protocol.value);
    let only: [(&str, &[ExportProtocol], &str); 6] = [
        ("format", &[ExportProtocol::Syslog], "\"syslog\""),
        ("facility", &[ExportProtocol::Syslog], "\"syslog\""),
        ("table", &[ExportProtocol::ClickHouse], "\"clickhouse\""),
        ("user", &[ExportProtocol::ClickHouse, ExportProtocol::Kafka], "\"clickhouse\" or \"kafka\""),
        ("topic", &[ExportProtocol::Kafka], "\"kafka\""),
        ("compression", &[ExportProtocol::Kafka], "\"kafka\""),
    ];
    for (key, its, words) in only {
        if let Some(span) = section.written(key).filter(|_| named.is_some_and(|named| !its.contains(&named)))
        {
            let message = format!(
                "`{key}` has an effect only with protocol = {words}; remove it or change the protocol"
            );
            notes.error(span, message);
        }
    }
    let secret_file = secret(notes, &section, named);
    if named == Some(ExportProtocol::Kafka)
        && transport.value != ExportTransport::Tls
        && secret_file.is_some()
    {
        notes.warning(
            section.span_of("secret_file"),
            "the password in `secret_file` goes to the brokers for everybody to read; set transport = \"tls\"",
        );
    }
    let read = ExporterConfig {
        name,
        protocol: protocol.map(|protocol| protocol.value).unwrap_or_default(),
        transport: transport.value,
        collector: collector.as_ref().map_or_else(|| SocketAddr::from(([0; 4], 0)), |at| at.value),
        events: events.iter().map(|class| class.value).collect(),
        instances: section.value("instances"),
        message_bytes: section.value("message_bytes"),
        template_refresh_s: section.value("template_refresh"),
        queue: section.value("queue"),
        spool_mb: section.value("spool_mb"),
        format: section.value("format"),
        facility: section.value("facility"),
        tls,
        secret_file,
        table: section.value("table"),
        user: section.value("user"),
        topic: section.value("topic"),
        compression: section.value("compression"),
    };
    // Without a collector there is a fault already; what else may be wrong was said above.
    collector.map(|_| read)
}

fn tls(notes: &Notes, section: &Section<'_>, transport: ExportTransport) -> Option<ExporterTls> {
    let ca = section.get::<PathBuf>("tls_ca");
    let name = section.get::<String>("tls_name");
    if transport == ExportTransport::Tls {
        if ca.is_none() && section.written("tls_ca").is_none() {
            let message = "transport = \"tls\" needs `tls_ca`, the certificates that the collector's is checked against; \
                           add it, or use \"tcp\"";
            notes.error(section.span_of("transport"), message);
        }
    } else {
        for key in ["tls_ca", "tls_name"] {
            if let Some(span) = section.written(key) {
                let message = format!(
                    "`{key}` has an effect only with transport = \"tls\"; remove it or change the transport"
                );
                notes.error(span, message);
            }
        }
    }
    Some(ExporterTls { ca: ca?.value, name: name.map(|name| name.value) })
}

/// Protocols that know secrets.
const WITH_SECRET: [ExportProtocol; 3] =
    [ExportProtocol::Radius, ExportProtocol::ClickHouse, ExportProtocol::Kafka];

fn secret(notes: &Notes, section: &Section<'_>, protocol: Option<ExportProtocol>) -> Option<PathBuf> {
    let file = section.get::<PathBuf>("secret_file");
    let is_radius = protocol == Some(ExportProtocol::Radius);
    match section.written("secret_file") {
        None if is_radius => {
            let message = "protocol = \"radius\" needs `secret_file`, which holds the secret shared with the server; add it";
            notes.error(section.span_of("protocol"), message);
        }
        Some(span) if protocol.is_some_and(|named| !WITH_SECRET.contains(&named)) => {
            let message = "`secret_file` has an effect only with protocol = \"radius\", \"clickhouse\" or \"kafka\"; remove it or change the protocol";
            notes.error(span, message);
        }
        _ => {}
    }
    file.map(|file| file.value)
}
