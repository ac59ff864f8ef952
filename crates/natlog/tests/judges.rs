//! Other people's decoders judge what is exported.

mod common;

use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use carrack_config::SyslogFormat;
use carrack_natlog::flow::{Encoder, Field, Stamp, TEMPLATES, Unsent, Version, template};
use carrack_natlog::record::{Kind, Quota, Record, Threshold};
use carrack_natlog::syslog::Syslog;
use common::{AT_MS, capture, context, every_event};

/// Templates, then every event.
fn messages(version: Version) -> (Vec<Vec<u8>>, usize) {
    let (context, now) = (context(), Stamp { unix_ms: AT_MS, uptime_ms: 60_000 });
    let mut encoder = Encoder::new(version, 7, 1_400);
    let mut messages: Vec<Vec<u8>> = Vec::new();
    let mut events = 0;
    let mut emit = |message: &[u8], _| messages.push(message.to_vec());
    encoder.templates(&context, Unsent { records: 5, first_ms: 1, last_ms: AT_MS }, now, &mut emit);
    for record in every_event() {
        events += usize::from(encoder.event(&record, &context, now, &mut emit));
    }
    encoder.finish(now, &mut emit);
    (messages, events)
}

fn tshark(version: Version, port: u16) -> (String, usize) {
    let (messages, events) = messages(version);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flow.pcap");
    capture(&path, port, &messages);
    (common::tshark(&path, port), events)
}

/// What libfixbuf, which knows the names from IANA's registry, makes of a file of IPFIX messages.
#[test]
fn ipfix_dump_reads_every_template_and_record() {
    let (messages, events) = messages(Version::Ipfix);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("messages.ipfix");
    std::fs::write(&path, messages.concat()).unwrap();
    let out = Command::new("ipfixDump").arg("--in").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let count = |what: &str| text.lines().filter(|line| line.starts_with(what)).count();
    assert_eq!(count("--- template record"), TEMPLATES.len(), "{text}");
    assert_eq!(count("--- options template record"), 3, "{text}");
    // Two routing instances, a pool and the statistics beside the events.
    assert_eq!(count("--- data record"), events + 4, "{text}");
}

/// What tshark should say of a field, name and value.
fn expected(field: Field, record: &Record) -> String {
    let outside = Ipv4Addr::from(record.outside);
    match field {
        Field::Time => "Observation Time Milliseconds: Mar  3, 2026 14:03:22.500000000 UTC".into(),
        Field::Event => format!("Nat Event: {}", event_name(record)),
        Field::Inside4 | Field::Inside6 => format!("SrcAddr: {}", record.inside),
        Field::Outside => format!("Post NAT Source IPv4 Address: {outside}"),
        Field::Protocol => "Protocol: UDP (17)".into(),
        Field::InsidePort => "SrcPort: 5000 (5000)".into(),
        Field::OutsidePort => "Post NAPT Source Transport Port: 4096".into(),
        Field::Remote4 | Field::Remote6 => format!("DstAddr: {}", record.remote),
        Field::PostRemote4 => {
            format!("Post NAT Destination IPv4 Address: {}", Ipv4Addr::from(record.remote4))
        }
        Field::RemotePort => "DstPort: 443 (443)".into(),
        Field::PostRemotePort => "Post NAPT Destination Transport Port: 443".into(),
        Field::First => "Port Range Start: 4096".into(),
        Field::Last => "Port Range End: 4607".into(),
        Field::Instance => "NAT Instance ID: 0".into(),
        Field::Vrf => "Ingress VRFID: 1".into(),
        Field::Pool => "Nat Pool Id: 3".into(),
        Field::QuotaEvent => {
            let name = match Quota::from_u8(record.detail) {
                Quota::Sessions => "Maximum session entries",
                Quota::Mappings => "Maximum BIB entries",
                Quota::PerUser => "Maximum entries per user",
                Quota::Subscribers => "Maximum active hosts or subscribers",
                Quota::Other => "?",
            };
            format!("NAT Quota Exceeded Event: {name} ({})", record.detail)
        }
        Field::SessionsMax => "Max Session Entries: 77".into(),
        Field::MappingsMax => "Max BIB Entries: 77".into(),
        Field::PerUserMax => "Max Entries Per User: 77".into(),
        Field::SubscribersMax => "Max Subscribers: 77".into(),
        Field::ThresholdEvent => {
            let name = match record.threshold() {
                Threshold::PoolHigh => "Address pool high threshold event (1)",
                Threshold::PoolLow => "Address pool low threshold event (2)",
                Threshold::Ports => "Address and port mapping high threshold event (3)",
                Threshold::PerUser => "Address and port mapping per user high threshold event (4)",
                Threshold::Paired => "Global address mapping high threshold event (5)",
            };
            format!("NAT Threshold Event: {name}")
        }
        Field::PortsHigh => "Addressport Mapping High Threshold: 77".into(),
        Field::PerUserHigh => "Addressport Mapping Per User High Threshold: 77".into(),
        Field::PairedHigh => "Global Address Mapping High Threshold: 77".into(),
        Field::PoolHigh => "Addresspool High Threshold: 77".into(),
        Field::PoolLow => "Addresspool Low Threshold: 77".into(),
    }
}

/// The registry's names (RFC 8158 §4.3) as tshark writes them.
fn event_name(record: &Record) -> &'static str {
    match (record.kind, record.inside.is_ipv6()) {
        (Kind::AddressesExhausted, _) => "NAT Addresses exhausted (3)",
        (Kind::SessionCreated, false) => "NAT44 session create (4)",
        (Kind::SessionDeleted, false) => "NAT44 session delete (5)",
        (Kind::SessionCreated, true) => "NAT64 session create (6)",
        (Kind::SessionDeleted, true) => "NAT64 session delete (7)",
        (Kind::MappingCreated, false) => "NAT44 BIB create (8)",
        (Kind::MappingDeleted, false) => "NAT44 BIB delete (9)",
        (Kind::MappingCreated, true) => "NAT64 BIB create (10)",
        (Kind::MappingDeleted, true) => "NAT64 BIB delete (11)",
        (Kind::PortsExhausted, _) => "NAT ports exhausted (12)",
        (Kind::QuotaExceeded, _) => "Quota Exceeded (13)",
        (Kind::AddressBound, _) => "Address binding create (14)",
        (Kind::AddressReleased, _) => "Address binding delete (15)",
        (Kind::BlockAllocated, _) => "Port block allocation (16)",
        (Kind::BlockReleased, _) => "Port block de-allocation (17)",
        (Kind::ThresholdReached, _) => "Threshold Reached (18)",
        _ => "?",
    }
}

/// Data records that tshark saw, each as its lines, without those of options.
fn flows(text: &str) -> Vec<Vec<String>> {
    let mut flows: Vec<Vec<String>> = Vec::new();
    let mut indent = None;
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        if line.trim_start().starts_with("Flow ") {
            flows.push(Vec::new());
            indent = Some(depth);
        } else if let (Some(flow), Some(outer)) = (flows.last_mut(), indent) {
            if depth > outer {
                flow.push(line.trim().to_owned());
            } else {
                indent = None;
            }
        }
    }
    flows.retain(|flow| flow.iter().any(|line| line.starts_with("Nat Event:")));
    flows
}

fn judge(version: Version, port: u16) -> String {
    let (text, events) = tshark(version, port);
    let seen = flows(&text);
    let sent: Vec<Vec<String>> = every_event()
        .iter()
        .filter_map(|record| {
            Some(template(record)?.fields.iter().map(|field| expected(*field, record)).collect())
        })
        .collect();
    assert_eq!(sent.len(), events);
    for (seen, sent) in seen.iter().zip(&sent) {
        assert_eq!(seen, sent);
    }
    assert_eq!(seen.len(), sent.len());
    for word in ["Malformed", "Unknown", "hex bytes", "Expert Info"] {
        assert!(!text.contains(word), "{word}: {text}");
    }
    text
}

/// RFC 8158 §4.6, RFC 7011 §3.4.
#[test]
fn tshark_names_every_field_of_every_ipfix_event() {
    let text = judge(Version::Ipfix, 4_739);
    for line in [
        "Nat Pool Name: p1",
        "VRFname: mobile",
        "Not Sent Flows: 5",
        "Observation Domain Id: 7",
        // Four options records went before.
        "FlowSequence: 4",
    ] {
        assert!(text.contains(line), "no {line}: {text}");
    }
}

/// RFC 3954 §5.1.
#[test]
fn tshark_names_every_field_of_every_netflow_event() {
    let text = judge(Version::NetFlow9, 2_055);
    for line in ["SourceId: 7", "FlowSequence: 1", "SysUptime: 60.000000000 seconds"] {
        assert!(text.contains(line), "no {line}: {text}");
    }
}
/// Runs a program until the test is over.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// RFC 5424 §6, RFC 5425 §4.3: rsyslogd, over a stream, takes every message apart.
#[test]
fn rsyslogd_takes_every_message_apart() {
    use std::io::Write;
    let dir = tempfile::tempdir().unwrap();
    let (conf, log) = (dir.path().join("rsyslog.conf"), dir.path().join("out.log"));
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = format!(
        "global(workDirectory=\"{dir}\")\nmodule(load=\"imtcp\")\n\
         input(type=\"imtcp\" port=\"{port}\" address=\"127.0.0.1\")\n\
         template(name=\"t\" type=\"string\" string=\"%timestamp:::date-rfc3339%|%hostname%|%app-name%|%msgid%|\
         %syslogfacility-text%|%syslogseverity-text%|%structured-data%|%msg%\\n\")\n\
         action(type=\"omfile\" file=\"{log}\" template=\"t\")\n",
        dir = dir.path().display(),
        log = log.display()
    );
    std::fs::write(&conf, text).unwrap();
    let pid = dir.path().join("pid");
    let started =
        Command::new("rsyslogd").arg("-n").arg("-f").arg(&conf).arg("-i").arg(&pid).spawn().unwrap();
    let _running = Running(started);
    let mut stream = (0..500)
        .find_map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        })
        .expect("rsyslogd listens");
    let context = context();
    let mut sent = Vec::new();
    for (format, sd) in [(SyslogFormat::Structured, true), (SyslogFormat::Compact, false)] {
        let mut syslog = Syslog::new(16, format, true, "edge-1", 32_473);
        for record in every_event() {
            syslog.event(&record, &context, &mut |message, _| stream.write_all(message).unwrap());
            sent.push((record.kind.name(), sd, record));
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for _ in 0..1_000 {
        lines = std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned).collect();
        if lines.len() >= sent.len() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(lines.len(), sent.len());
    for (line, (kind, structured, record)) in lines.iter().zip(sent) {
        let parts: Vec<&str> = line.split('|').collect();
        let [at, host, app, msgid, facility, severity, sd, message] = parts[..] else { panic!("{line}") };
        assert_eq!((at, host, app, msgid), ("2026-03-03T14:03:22.500Z", "edge-1", "carrack", kind), "{line}");
        assert_eq!(facility, "local0");
        assert!(["err", "warning", "notice", "info"].contains(&severity), "{line}");
        assert_eq!(sd.starts_with("[nat@32473"), structured, "{line}");
        let data = if structured { sd } else { message };
        if kind == "block-allocated" {
            let inside = record.inside;
            let wanted = if structured {
                format!(
                    "[nat@32473 instance=\"cgn1\" inside=\"{inside}\" outside=\"203.0.113.7\" first=\"4096\" last=\"4607\"]"
                )
            } else {
                format!("cgn1 {inside} 203.0.113.7 4096 4607")
            };
            assert_eq!(data.trim(), wanted);
        }
    }
}

/// Debian's nfdump knows no names for the numbers of RFC 8158, but keeps numbers, addresses and times.
#[test]
fn nfcapd_keeps_every_event_of_an_ipv4_subscriber() {
    for version in [Version::Ipfix, Version::NetFlow9] {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let said = dir.path().join("said");
        std::fs::create_dir(dir.path().join("flows")).unwrap();
        let started = Command::new("nfcapd")
            .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-t", "3600", "-w"])
            .arg(dir.path().join("flows"))
            .stderr(std::fs::File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut running = Running(started);
        wait_for(&said, "Startup nfcapd");
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for message in messages(version).0 {
            socket.send_to(&message, ("127.0.0.1", port)).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        let pid = running.0.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        wait_for(&said, "Terminating");
        let _ = running.0.wait();
        let said = std::fs::read_to_string(&said).unwrap();
        assert!(said.contains("Sequence Errors: 0, Bad Packets: 0"), "{said}");
        let out = Command::new("nfdump")
            .arg("-R")
            .arg(dir.path().join("flows"))
            .args(["-o", "raw"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let flows: Vec<&str> = text.split("Flow Record:").skip(1).collect();
        let of_ours = flows.iter().filter(|flow| flow.contains("100.64.0.5") && flow.contains("203.0.113.7"));
        let number = |flow: &&str| -> Option<u8> {
            flow.lines()
                .find(|line| line.contains("nat event"))?
                .split('=')
                .nth(1)?
                .split(':')
                .next()?
                .trim()
                .parse()
                .ok()
        };
        let seen: Vec<Option<u8>> = of_ours.map(number).collect();
        // Sessions come with and without their destination.
        let sent = [4, 4, 5, 5, 8, 9, 14, 15, 16, 17].map(Some);
        assert_eq!(seen, sent, "{version:?}: {text}");
    }
}

fn wait_for(file: &std::path::Path, text: &str) {
    for _ in 0..500 {
        if std::fs::read_to_string(file).unwrap_or_default().contains(text) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no {text} in {}", std::fs::read_to_string(file).unwrap_or_default());
}
