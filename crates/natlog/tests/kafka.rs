//! Brokers that speak Kafka's protocol get every event, each subscriber's in order, whatever happens to their partitions.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use carrack_base::{InstanceId, WorkerId};
use carrack_nat::row::{BlockRow, NatEvent};
use carrack_natlog::Service;
use carrack_runtime::{EventSink, LoggedEvent};
use common::AT_MS;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, MetadataRequest, MetadataResponse, ProduceRequest,
    ProduceResponse, ResponseHeader, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
    SaslHandshakeResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes, decode_request_header_from_buffer};
use kafka_protocol::records::{Compression, RecordBatchDecoder};

const PATIENCE: usize = 1_500;
const PARTITIONS: i32 = 4;
const UNKNOWN_TOPIC: i16 = 3;
const NOT_LEADER: i16 = 6;
const TOO_FEW_REPLICAS: i16 = 19;
const SASL_FAILED: i16 = 58;

/// What two brokers have and how they behave.
#[derive(Default)]
struct Cluster {
    /// Is there a topic?
    has_topic: bool,
    /// Which broker leads odd partitions: 1 or 2.
    odd_leader: i32,
    /// Produce requests that end their connection unanswered, after the records were kept.
    mute: u32,
    /// Produce requests that too few replicas have.
    short: u32,
    /// Who may come in; none when everybody may.
    password: Option<&'static str>,
    /// Batches that came packed, and all.
    packed: u32,
    batches: u32,
    /// Requests that came to a broker that does not lead the partition.
    strayed: u32,
    /// Of each partition: key, text.
    kept: BTreeMap<i32, Vec<(String, String)>>,
    ports: [u16; 2],
}

type Shared = Arc<Mutex<Cluster>>;

impl Cluster {
    fn leader(&self, partition: i32) -> i32 {
        if partition % 2 == 1 { self.odd_leader } else { 1 }
    }

    fn all(&self) -> Vec<(String, String)> {
        self.kept.values().flatten().cloned().collect()
    }
}

fn cluster() -> Shared {
    let shared = Shared::default();
    let listeners = [1, 2].map(|id| (id, TcpListener::bind("127.0.0.1:0").unwrap()));
    {
        let mut cluster = shared.lock().unwrap();
        (cluster.has_topic, cluster.odd_leader) = (true, 2);
        cluster.ports = listeners.each_ref().map(|(_, listener)| listener.local_addr().unwrap().port());
    }
    for (id, listener) in listeners {
        let shared = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream.unwrap(), id, &shared));
            }
        });
    }
    shared
}

/// One connection, until it ends.
fn serve(mut stream: TcpStream, id: i32, shared: &Shared) -> Option<()> {
    let mut is_in = shared.lock().unwrap().password.is_none();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut bytes).ok()?;
        let mut bytes = Bytes::from(bytes);
        let header = decode_request_header_from_buffer(&mut bytes).unwrap();
        assert_eq!(header.client_id.as_deref(), Some("carrack"));
        let version = header.request_api_version;
        let mut out = BytesMut::from(&[0; 4][..]);
        let answer = ResponseHeader::default().with_correlation_id(header.correlation_id);
        answer.encode(&mut out, 0).unwrap();
        let key = ApiKey::try_from(header.request_api_key).unwrap();
        // RFC 4422 §3.1: before that nothing is answered.
        if !is_in && ![ApiKey::SaslHandshake, ApiKey::SaslAuthenticate].contains(&key) {
            return None;
        }
        match key {
            ApiKey::SaslHandshake => {
                let request = SaslHandshakeRequest::decode(&mut bytes, version).unwrap();
                assert_eq!((&*request.mechanism, version), ("PLAIN", 1));
                SaslHandshakeResponse::default().encode(&mut out, version).unwrap();
            }
            ApiKey::SaslAuthenticate => {
                let request = SaslAuthenticateRequest::decode(&mut bytes, version).unwrap();
                let wanted = shared.lock().unwrap().password.map(|password| format!("\0edge\0{password}"));
                is_in = wanted.is_some_and(|wanted| wanted.as_bytes() == request.auth_bytes);
                let error = if is_in { 0 } else { SASL_FAILED };
                let answer = SaslAuthenticateResponse::default().with_error_code(error);
                answer.encode(&mut out, version).unwrap();
            }
            ApiKey::ApiVersions => {
                let known = ApiVersion::default().with_api_key(ApiKey::Metadata as i16).with_max_version(5);
                let answer = ApiVersionsResponse::default().with_api_keys(vec![known]);
                answer.encode(&mut out, version).unwrap();
            }
            ApiKey::Metadata => {
                assert_eq!(version, 4);
                let request = MetadataRequest::decode(&mut bytes, version).unwrap();
                assert!(!request.allow_auto_topic_creation);
                let name = request.topics.unwrap()[0].name.clone().unwrap();
                metadata(&shared.lock().unwrap(), name).encode(&mut out, version).unwrap();
            }
            ApiKey::Produce => {
                let request = ProduceRequest::decode(&mut bytes, version).unwrap();
                produce(&mut shared.lock().unwrap(), id, &request)?.encode(&mut out, version).unwrap();
            }
            other => panic!("{other:?}"),
        }
        assert!(bytes.is_empty(), "what a request has beyond its fields");
        let length = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&length.to_be_bytes());
        stream.write_all(&out).ok()?;
    }
}

fn metadata(cluster: &Cluster, name: TopicName) -> MetadataResponse {
    let brokers = cluster.ports.iter().zip(1..).map(|(port, id)| {
        MetadataResponseBroker::default()
            .with_node_id(BrokerId(id))
            .with_host(StrBytes::from_static_str("127.0.0.1"))
            .with_port((*port).into())
    });
    let partition = |index| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(BrokerId(cluster.leader(index)))
    };
    let topic = MetadataResponseTopic::default().with_name(Some(name));
    let topic = match cluster.has_topic {
        // In no order that could be relied upon.
        true => topic.with_partitions((0..PARTITIONS).rev().map(partition).collect()),
        false => topic.with_error_code(UNKNOWN_TOPIC),
    };
    MetadataResponse::default().with_brokers(brokers.collect()).with_topics(vec![topic])
}

fn produce(cluster: &mut Cluster, id: i32, request: &ProduceRequest) -> Option<ProduceResponse> {
    assert_eq!(request.acks, -1);
    let topic = &request.topic_data[0];
    assert_eq!(&*topic.name.0, "nat");
    let mut answer = TopicProduceResponse::default().with_name(topic.name.clone());
    for data in &topic.partition_data {
        let mut error = 0;
        if cluster.leader(data.index) != id {
            cluster.strayed += 1;
            error = NOT_LEADER;
        } else if cluster.short > 0 {
            cluster.short -= 1;
            error = TOO_FEW_REPLICAS;
        } else {
            let sets = RecordBatchDecoder::decode_all(&mut data.records.clone().unwrap()).unwrap();
            cluster.batches += 1;
            cluster.packed += u32::from(sets[0].compression == Compression::Gzip);
            assert_eq!(sets.len(), 1, "one batch a partition and request");
            let text = |bytes: &Option<Bytes>| String::from_utf8(bytes.clone().unwrap().to_vec()).unwrap();
            for record in &sets[0].records {
                assert!(record.timestamp >= AT_MS as i64 && record.producer_id == -1, "{record:?}");
                let kept = (text(&record.key), text(&record.value));
                cluster.kept.entry(data.index).or_default().push(kept);
            }
        }
        answer
            .partition_responses
            .push(PartitionProduceResponse::default().with_index(data.index).with_error_code(error));
    }
    if cluster.mute > 0 {
        cluster.mute -= 1;
        return None;
    }
    Some(ProduceResponse::default().with_responses(vec![answer]))
}

fn service(dir: &Path, port: u16, more: &str) -> Service {
    let exporter = format!(
        "name = \"warehouse\"\nprotocol = \"kafka\"\ncollector = \"127.0.0.1:{port}\"\ntopic = \"nat\"\n\
         events = [\"blocks\"]\n{more}"
    );
    common::service(dir, &exporter)
}

/// Blocks of so many subscribers, each given out as often as `rounds` says; the place in the log is the time.
fn events(subscribers: u32, rounds: u32) -> Vec<LoggedEvent> {
    let event = |n: u32| {
        let inside = std::net::Ipv4Addr::from(0x6440_0000 + n % subscribers).into();
        let block = BlockRow { ip: 0xcb00_7107, first: 1_024, last: 1_535 };
        let event = NatEvent::BlockAllocated { instance: InstanceId(0), inside, block };
        let unix_ns = (AT_MS + u64::from(n)) * 1_000_000;
        LoggedEvent { sequence: 0, at_ns: 0, unix_ns, worker: WorkerId(3), event }
    };
    (0..subscribers * rounds).map(event).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..PATIENCE {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}");
}

/// Every message once, or more often where `again` allows it, and of each subscriber in order.
fn check(cluster: &Cluster, wanted: usize, again: bool) {
    let all = cluster.all();
    let different: BTreeSet<&(String, String)> = all.iter().collect();
    assert_eq!(different.len(), wanted);
    assert!(again || all.len() == wanted, "{} messages", all.len());
    let mut partition_of = BTreeMap::new();
    for (partition, messages) in &cluster.kept {
        let mut last: BTreeMap<&str, &str> = BTreeMap::new();
        for (key, text) in messages {
            assert_eq!(partition_of.entry(key).or_insert(partition), &partition, "{key}");
            let before = last.insert(key, text);
            assert!(again || before.is_none_or(|before| before < text.as_str()), "{key}: {before:?} {text}");
        }
    }
}

#[test]
fn kafka_has_every_event_at_its_partitions_leader_in_order() {
    let (dir, shared) = (tempfile::tempdir().unwrap(), cluster());
    let mut service = service(dir.path(), shared.lock().unwrap().ports[0], "");
    for part in events(5_000, 4).chunks(8_192) {
        service.events(part);
    }
    let report = |service: &Service| service.exporters()[0].clone();
    until("all is confirmed", || report(&service).sent == 20_000);
    assert_eq!((report(&service).lost, report(&service).waiting, report(&service).connected), (0, 0, true));
    let cluster = shared.lock().unwrap();
    check(&cluster, 20_000, false);
    assert_eq!(cluster.strayed, 0);
    assert_eq!(cluster.kept.len(), PARTITIONS as usize);
    assert!(cluster.kept.values().all(|messages| messages.len() > 3_000), "partitions are of a size");
    let wanted = "{\"time\":\"2026-03-03T14:03:22.507Z\",\"time_ms\":1772546602507,\"router\":\"edge-1\",\"worker\":3,\
                  \"kind\":\"block-allocated\",\"instance\":\"cgn1\",\"inside\":\"100.64.0.7\",\"outside\":\"203.0.113.7\",\
                  \"first\":1024,\"last\":1535,\"count\":1}";
    let found = cluster.all().into_iter().find(|(_, text)| text.contains("22.507Z")).unwrap();
    assert_eq!(found, ("100.64.0.7".to_owned(), wanted.to_owned()));
}

#[test]
fn nothing_is_lost_while_partitions_move_replicas_lag_and_brokers_break_off() {
    let (dir, shared) = (tempfile::tempdir().unwrap(), cluster());
    shared.lock().unwrap().has_topic = false;
    let mut service = service(dir.path(), shared.lock().unwrap().ports[0], "");
    let report = |service: &Service| service.exporters()[0].clone();
    let events = events(1_000, 3);
    let (first, rest) = events.split_at(1_000);
    let (second, third) = rest.split_at(1_000);
    // Without the topic nothing is taken, and nothing lost.
    service.events(first);
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!((report(&service).connected, report(&service).sent, report(&service).lost), (false, 0, 0));
    shared.lock().unwrap().has_topic = true;
    until("what waited is sent", || report(&service).sent == 1_000);
    // Another leads the odd partitions by now.
    let (moved, lagging) = second.split_at(500);
    shared.lock().unwrap().odd_leader = 1;
    service.events(moved);
    until("what met a new leader is sent", || report(&service).sent == 1_500);
    assert!(shared.lock().unwrap().strayed > 0);
    // Too few replicas have it for a while: sent once more, kept once.
    shared.lock().unwrap().short = 3;
    service.events(lagging);
    until("what too few replicas had is sent", || report(&service).sent == 2_000);
    assert_eq!(shared.lock().unwrap().short, 0);
    check(&shared.lock().unwrap(), 2_000, false);
    // A broker that breaks off before it answers: nobody knows, so all is sent again.
    shared.lock().unwrap().mute = 2;
    service.events(third);
    until("what was broken off is sent", || report(&service).sent == 3_000);
    let cluster = shared.lock().unwrap();
    check(&cluster, 3_000, true);
    assert!(cluster.mute == 0 && cluster.all().len() > 3_000);
    assert_eq!((report(&service).lost, report(&service).waiting), (0, 0));
}

/// RFC 4616: who does not say the right password gets nothing in, and nothing is lost meanwhile.
#[test]
fn brokers_that_ask_for_a_password_get_it_and_messages_come_packed_where_they_shall() {
    let (dir, shared) = (tempfile::tempdir().unwrap(), cluster());
    shared.lock().unwrap().password = Some("open sesame");
    let secret = dir.path().join("secret");
    std::fs::write(&secret, "wrong\n").unwrap();
    let more = format!("user = \"edge\"\nsecret_file = \"{}\"\ncompression = \"gzip\"\n", secret.display());
    let mut service = service(dir.path(), shared.lock().unwrap().ports[0], &more);
    let report = |service: &Service| service.exporters()[0].clone();
    service.events(&events(1_000, 2));
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!((report(&service).connected, report(&service).sent, report(&service).lost), (false, 0, 0));
    std::fs::write(&secret, "open sesame\n").unwrap();
    until("all is confirmed", || report(&service).sent == 2_000);
    let cluster = shared.lock().unwrap();
    check(&cluster, 2_000, false);
    assert!(cluster.batches > 0 && cluster.packed == cluster.batches, "{} packed", cluster.packed);
}

/// A program of the test's own, killed with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The brokers of librdkafka, which Debian's kcat brings along and reads from: another's reading of the protocol.
#[test]
fn brokers_of_another_make_take_every_event_and_kcat_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let (said, read) = (dir.path().join("said"), dir.path().join("read"));
    let file = |path: &Path| std::fs::File::create(path).unwrap();
    let _kcat = Running(
        Command::new("kcat")
            .args(["-C", "-t", "nat", "-o", "beginning", "-u", "-b", "none", "-d", "mock"])
            .args(["-X", "test.mock.num.brokers=2", "-f", "%p|%T|%k|%s\\n"])
            .stdin(Stdio::null())
            .stdout(file(&read))
            .stderr(file(&said))
            .spawn()
            .expect("kcat is installed"),
    );
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    let port = || {
        let said = text(&said);
        // The topic is there once kcat has asked for it.
        said.contains("Created topic").then_some(())?;
        let (_, after) = said.split_once("bootstrap.servers=127.0.0.1:")?;
        after.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u16>().ok()
    };
    until("kcat's brokers are there", || port().is_some());
    let mut service = service(dir.path(), port().unwrap(), "compression = \"gzip\"\n");
    for part in events(500, 20).chunks(4_096) {
        service.events(part);
    }
    until("all is confirmed", || service.exporters()[0].sent == 10_000);
    until("kcat has read all", || text(&read).lines().count() >= 10_000);
    let read = text(&read);
    let mut last: BTreeMap<&str, (&str, u64)> = BTreeMap::new();
    for line in read.lines() {
        let [partition, time, key, json] = line.splitn(4, '|').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let time: u64 = time.parse().unwrap();
        assert!(
            json.contains(&format!("\"time_ms\":{time},")) && json.contains(&format!("\"inside\":\"{key}\""))
        );
        let before = last.insert(key, (partition, time));
        assert!(before.is_none_or(|before| before.0 == partition && before.1 < time), "{before:?} {line}");
    }
    assert_eq!((read.lines().count(), last.len(), service.exporters()[0].lost), (10_000, 500, 0));
}
