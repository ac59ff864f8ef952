//! Keys of event logging: exporters and the store.

use super::Effect::{InPlace, NeedsRestart};
use super::Fallback::{Absent, Required, Value};
use super::Kind::{Count, Int, List, Name, Path, Seconds, Socket, Word};
use super::{KeyInfo, SectionInfo, list, row, table};

/// Exporters at once.
pub const EXPORTERS_MAX: usize = 16;

const CLASSES: &[&str] = &["blocks", "bindings", "mappings", "sessions", "limits", "system"];

pub(super) const SECTIONS: &[SectionInfo] = &[
    table(
        "logging",
        InPlace,
        "Who is told which subscriber had which address and ports (RFC 6888 REQ-12, RFC 8158). Without a store and without \
         exporters, only the last few thousand events are kept, for `carrack show events`.",
    ),
    table(
        "logging.store",
        NeedsRestart,
        "Events on local disk, in columns and compressed, for `carrack trace-back`.",
    ),
    list(
        "logging.exporter",
        InPlace,
        "A collector that events are sent to. Each has a queue and a thread of its own: a slow one hurts nobody else.",
    ),
];

pub(super) const KEYS: &[KeyInfo] = &[
    row(
        ("logging", "domain"),
        Int(0, u32::MAX as u64, ""),
        Value("1"),
        InPlace,
        "7",
        "Observation domain of IPFIX and source id of NetFlow: tells several routers behind one address apart.",
    ),
    row(
        ("logging", "enterprise"),
        Int(1, u32::MAX as u64, ""),
        Value("32_473"),
        InPlace,
        "32_473",
        "Private enterprise number in the name of syslog's structured data, `nat@N` (RFC 5424 §7.2.2): yours, if you have one. \
         The default is the one for examples (RFC 5612).",
    ),
    row(
        ("logging", "cores"),
        List(&Int(0, 1023, ""), 64),
        Value("[]"),
        NeedsRestart,
        "[6, 7]",
        "CPUs of the threads that log: the one that takes events from the workers, the store's, the exporters'. None of them \
         may be a worker's. Empty leaves them where the control plane is.",
    ),
    row(
        ("logging", "spool_dir"),
        Path,
        Value("\"/var/spool/carrack\""),
        InPlace,
        "\"/var/spool/carrack\"",
        "Directory for events that wait for a collector; see `spool_mb`.",
    ),
    row(
        ("logging.store", "dir"),
        Path,
        Absent("nothing is stored"),
        NeedsRestart,
        "\"/var/lib/carrack/log\"",
        "Directory of the store; made when missing.",
    ),
    row(
        ("logging.store", "keep"),
        Seconds(3_600, 315_360_000),
        Value("\"365d\""),
        NeedsRestart,
        "\"180d\"",
        "How long events are kept. What is older is deleted, file by file.",
    ),
    row(
        ("logging.store", "max_mb"),
        Int(64, 1 << 30, "MB"),
        Value("100_000"),
        NeedsRestart,
        "500_000",
        "Most disk space; beyond it the oldest files are deleted, whatever `keep` says.",
    ),
    row(
        ("logging.exporter", "name"),
        Name,
        Required,
        InPlace,
        "\"soc\"",
        "Name of the exporter, in counters and messages.",
    ),
    row(
        ("logging.exporter", "protocol"),
        Word(&["ipfix", "netflow9", "syslog", "radius", "clickhouse", "kafka"]),
        Required,
        InPlace,
        "\"ipfix\"",
        "IPFIX (RFC 7011, with the templates of RFC 8158), NetFlow version 9 (RFC 3954), syslog (RFC 5424), RADIUS \
         accounting (RFC 2866), which tells `blocks` and `mappings` by the attributes of RFC 8045, rows for the \
         database ClickHouse by its HTTP interface, or JSON messages for Kafka.",
    ),
    row(
        ("logging.exporter", "transport"),
        Word(&["udp", "tcp", "tls"]),
        Value("\"udp\""),
        InPlace,
        "\"tcp\"",
        "How it gets there. NetFlow and RADIUS know only `udp`; ClickHouse and Kafka know `tcp`, which is then the default, and `tls`.",
    ),
    row(
        ("logging.exporter", "collector"),
        Socket,
        Required,
        InPlace,
        "\"192.0.2.9:4739\"",
        "Address and port of the collector. Usual ports: IPFIX 4739, NetFlow 2055, syslog 514, over TLS 6514, \
         RADIUS accounting 1813, ClickHouse 8123, over TLS 8443, Kafka 9092. Of Kafka any broker: it names the others.",
    ),
    row(
        ("logging.exporter", "events"),
        List(&Word(CLASSES), CLASSES.len()),
        Value("[\"blocks\", \"bindings\", \"mappings\", \"sessions\", \"limits\", \"system\"]"),
        InPlace,
        "[\"blocks\", \"limits\"]",
        "Which events it gets. IPFIX and NetFlow have no numbers for `system`: start, stop, reload, a clock that was set, \
         loss.",
    ),
    row(
        ("logging.exporter", "instances"),
        List(&Name, carrack_base::INSTANCES_MAX),
        Value("[]"),
        InPlace,
        "[\"cgn1\"]",
        "Only events of these NAT instances, and those of none; empty for all.",
    ),
    row(
        ("logging.exporter", "message_bytes"),
        Int(512, 9_000, "bytes"),
        Value("1_400"),
        InPlace,
        "1_400",
        "Largest IPFIX or NetFlow message; over UDP it should fit a packet.",
    ),
    row(
        ("logging.exporter", "template_refresh"),
        Seconds(1, 86_400),
        Value("60"),
        InPlace,
        "\"10m\"",
        "How often templates are sent again over UDP (RFC 7011 §8.4), and IPFIX options over anything.",
    ),
    row(
        ("logging.exporter", "queue"),
        Count(1_024, 1 << 24, "events"),
        Value("262_144"),
        InPlace,
        "\"1M\"",
        "Events that may wait in memory for this collector, about 100 bytes each.",
    ),
    row(
        ("logging.exporter", "spool_mb"),
        Int(0, 1 << 30, "MB"),
        Value("0"),
        InPlace,
        "10_000",
        "Disk space for events that wait while the collector is down; 0 lets them be lost, counted, once the queue is full. \
         Over UDP nobody can tell that a collector is down.",
    ),
    row(
        ("logging.exporter", "format"),
        Word(&["structured", "compact"]),
        Value("\"structured\""),
        InPlace,
        "\"compact\"",
        "Syslog: `structured` data (RFC 5424 §6.3), or a `compact` line of fields separated by spaces.",
    ),
    row(
        ("logging.exporter", "facility"),
        Int(0, 23, ""),
        Value("16"),
        InPlace,
        "13",
        "Syslog: number of the facility (RFC 5424 §6.2.1); 16 is local0.",
    ),
    row(
        ("logging.exporter", "tls_ca"),
        Path,
        Absent("no TLS"),
        InPlace,
        "\"/etc/carrack/collector-ca.pem\"",
        "Certificates that the collector's must be signed by, PEM; needed with `tls`.",
    ),
    row(
        ("logging.exporter", "tls_name"),
        Name,
        Absent("the collector's address"),
        InPlace,
        "\"collector.example.net\"",
        "Name that the collector's certificate must bear.",
    ),
    row(
        ("logging.exporter", "secret_file"),
        Path,
        Absent("no secret"),
        InPlace,
        "\"/etc/carrack/radius.secret\"",
        "File whose first line is the secret shared with the RADIUS server, or the password at ClickHouse or at Kafka's \
         brokers (SASL, PLAIN). Read when the exporter starts and after a failure.",
    ),
    row(
        ("logging.exporter", "table"),
        Name,
        Value("\"carrack.events\""),
        InPlace,
        "\"logs.nat\"",
        "ClickHouse: database and table; `examples/clickhouse.sql` makes it.",
    ),
    row(
        ("logging.exporter", "user"),
        Name,
        Value("\"default\""),
        InPlace,
        "\"carrack\"",
        "Who inserts at ClickHouse, or logs in at Kafka's brokers where there is a `secret_file`.",
    ),
    row(
        ("logging.exporter", "topic"),
        Name,
        Value("\"carrack-events\""),
        InPlace,
        "\"nat-events\"",
        "Kafka: the topic, which must be there. A subscriber's messages go to one partition.",
    ),
    row(
        ("logging.exporter", "compression"),
        Word(&["none", "gzip"]),
        Value("\"none\""),
        InPlace,
        "\"gzip\"",
        "Kafka: how messages are packed, about half a megabyte of them at a time.",
    ),
];
