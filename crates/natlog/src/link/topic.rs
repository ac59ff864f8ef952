//! A topic of Kafka: messages go to the leader of their partition, which answers when all replicas that keep up have them.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use carrack_config::{ExporterConfig, ExporterTls, MessageCompression};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, BrokerId, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader, SaslAuthenticateRequest,
    SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use kafka_protocol::records::{Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType};
use rustls::StreamOwned;

use super::inserts::Target;
use super::{CONNECT, client};
use crate::kafka::first;

/// All brokers know these, from 0.10 and 0.11 up to the latest 4.x.
const VERSIONS: i16 = 0;
const PRODUCE: i16 = 3;
/// The first after which a name and password go in a request of their own.
const HANDSHAKE: i16 = 1;
const AUTHENTICATE: i16 = 0;
/// The first that asks for a topic without making it; brokers that do not know it are asked by the one they know.
const METADATA: i16 = 4;
/// Neither of these versions has tagged fields.
const REQUEST_HEADER: i16 = 1;
const RESPONSE_HEADER: i16 = 0;
/// Messages of one batch: brokers take a million bytes unless told otherwise.
const BATCH_BYTES: usize = 512 << 10;
/// What a broker says that its answer is longer is not Kafka.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// How long a broker waits for the replicas, and how long it may take for all.
const REPLICAS: Duration = Duration::from_secs(20);
const ANSWER: Duration = Duration::from_secs(30);
/// While partitions move to other leaders: tries of a batch, and time between them.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);
/// All replicas that keep up.
const ALL: i16 = -1;
const NONE: i32 = -1;

/// The topic, as its brokers were found.
pub(super) struct Topic {
    collector: SocketAddr,
    tls: Option<ExporterTls>,
    name: TopicName,
    /// Who says that it is the router, where brokers want to know (RFC 4616).
    login: Option<Bytes>,
    compression: Compression,
    brokers: BTreeMap<BrokerId, (String, u16)>,
    /// Of each partition, by its number.
    leaders: Vec<BrokerId>,
    ways: BTreeMap<BrokerId, Way>,
    /// Of the last request.
    number: i32,
}

trait Both: Read + Write + Send {}
impl<T: Read + Write + Send> Both for T {}
type Way = Box<dyn Both>;

/// Why messages did not get there.
enum Failed {
    /// Another broker leads the partition by now, or will soon.
    Moved(String),
    Why(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Why(error.to_string())
    }
}

impl Topic {
    pub(super) fn new(config: &ExporterConfig, password: Option<String>) -> Self {
        Self {
            login: password.map(|password| format!("\0{}\0{password}", config.user).into()),
            compression: match config.compression {
                MessageCompression::None => Compression::None,
                MessageCompression::Gzip => Compression::Gzip,
            },
            collector: config.collector,
            tls: config.tls.clone(),
            name: TopicName(StrBytes::from_string(config.topic.clone())),
            brokers: BTreeMap::new(),
            leaders: Vec::new(),
            ways: BTreeMap::new(),
            number: 0,
        }
    }

    /// Asks the collector who the brokers are and which leads each partition.
    fn learn(&mut self) -> Result<(), Failed> {
        self.ways.clear();
        let tls = self.tls.clone();
        let mut way = self.connect(self.collector, tls.as_ref())?;
        let request = ApiVersionsRequest::default();
        let known: ApiVersionsResponse =
            ask(&mut way, ApiKey::ApiVersions, VERSIONS, &mut self.number, &request)?;
        let metadata = known.api_keys.iter().find(|known| known.api_key == ApiKey::Metadata as i16);
        let version = METADATA.min(metadata.map_or(0, |known| known.max_version));
        let topic = MetadataRequestTopic::default().with_name(Some(self.name.clone()));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(version < METADATA);
        let answer: MetadataResponse = ask(&mut way, ApiKey::Metadata, version, &mut self.number, &request)?;
        let name = self.name.as_str();
        let Some(topic) = answer.topics.into_iter().find(|topic| topic.name.as_ref() == Some(&self.name))
        else {
            return Err(Failed::Why(format!("the broker says nothing of topic {name}")));
        };
        match ResponseError::try_from_code(topic.error_code) {
            None => {}
            Some(ResponseError::UnknownTopicOrPartition) => {
                return Err(Failed::Why(format!("there is no topic {name}; make it, or set `topic`")));
            }
            Some(error) => return Err(failed(&error, &format!("of topic {name}"))),
        }
        self.brokers = answer
            .brokers
            .into_iter()
            .filter_map(|broker| {
                Some((broker.node_id, (broker.host.to_string(), broker.port.try_into().ok()?)))
            })
            .collect();
        let mut partitions = topic.partitions;
        partitions.sort_by_key(|partition| partition.partition_index);
        self.leaders = partitions.iter().map(|partition| partition.leader_id).collect();
        if self.leaders.is_empty() {
            return Err(Failed::Why(format!("topic {name} has no partitions")));
        }
        Ok(())
    }

    /// One batch, until it is where it belongs.
    fn produce(&mut self, partition: usize, batch: &Bytes) -> Result<(), String> {
        let mut attempts = 0;
        loop {
            match self.try_produce(partition, batch) {
                Ok(()) => return Ok(()),
                Err(Failed::Why(why)) => return Err(why),
                Err(Failed::Moved(why)) if attempts == ATTEMPTS => return Err(why),
                Err(Failed::Moved(_)) => {
                    attempts += 1;
                    thread::sleep(PAUSE);
                    if let Err(Failed::Why(why)) = self.learn() {
                        return Err(why);
                    }
                }
            }
        }
    }

    fn try_produce(&mut self, partition: usize, batch: &Bytes) -> Result<(), Failed> {
        let index = partition as i32;
        let data = PartitionProduceData::default().with_index(index).with_records(Some(batch.clone()));
        let topic = TopicProduceData::default().with_name(self.name.clone()).with_partition_data(vec![data]);
        let request = ProduceRequest::default()
            .with_acks(ALL)
            .with_timeout_ms(REPLICAS.as_millis() as i32)
            .with_topic_data(vec![topic]);
        let leader = self.leaders.get(partition).copied().unwrap_or(BrokerId(NONE));
        let way = match self.ways.remove(&leader) {
            Some(way) => way,
            None => self.reach(leader)?,
        };
        // One that failed is not used again.
        let mut way = way;
        let answer: ProduceResponse = ask(&mut way, ApiKey::Produce, PRODUCE, &mut self.number, &request)?;
        self.ways.insert(leader, way);
        let answer = answer
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .find(|answer| answer.index == index)
            .ok_or_else(|| Failed::Why(format!("the broker says nothing of partition {partition}")))?;
        match ResponseError::try_from_code(answer.error_code) {
            None => Ok(()),
            Some(error) => {
                Err(failed(&error, &format!("of partition {partition} of {}", self.name.as_str())))
            }
        }
    }

    /// A connection to a broker that knows who is there.
    fn connect(&mut self, address: SocketAddr, tls: Option<&ExporterTls>) -> Result<Way, Failed> {
        let mut way = connect(address, tls)?;
        let Some(login) = self.login.clone() else { return Ok(way) };
        let request = SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str("PLAIN"));
        let answer: SaslHandshakeResponse =
            ask(&mut way, ApiKey::SaslHandshake, HANDSHAKE, &mut self.number, &request)?;
        if let Some(error) = ResponseError::try_from_code(answer.error_code) {
            let others: Vec<&str> = answer.mechanisms.iter().map(|name| name.as_str()).collect();
            let why = format!("the broker does not take PLAIN but {}: {error}", others.join(", "));
            return Err(Failed::Why(why));
        }
        let request = SaslAuthenticateRequest::default().with_auth_bytes(login);
        let answer: SaslAuthenticateResponse =
            ask(&mut way, ApiKey::SaslAuthenticate, AUTHENTICATE, &mut self.number, &request)?;
        match ResponseError::try_from_code(answer.error_code) {
            None => Ok(way),
            Some(error) => {
                let said = answer.error_message.map_or_else(|| error.to_string(), |said| said.to_string());
                Err(Failed::Why(format!("the broker refuses `user` and `secret_file`: {said}")))
            }
        }
    }

    fn reach(&mut self, leader: BrokerId) -> Result<Way, Failed> {
        let Some((host, port)) = self.brokers.get(&leader) else {
            return Err(Failed::Moved("the partition has no leader".into()));
        };
        let unknown = || Failed::Why(format!("the broker {host}:{port} has no address"));
        let address = (host.as_str(), *port).to_socket_addrs()?.next().ok_or_else(unknown)?;
        let tls = self.tls.as_ref().map(|tls| ExporterTls { ca: tls.ca.clone(), name: Some(host.clone()) });
        self.connect(address, tls.as_ref())
    }
}

impl Target for Topic {
    fn look(&mut self) -> Result<(), String> {
        self.learn().map_err(|(Failed::Moved(why) | Failed::Why(why))| why)
    }

    fn insert(&mut self, rows: Vec<u8>) -> Result<(), String> {
        let all = Bytes::from(rows);
        let mut batches: Vec<Batch> = self.leaders.iter().map(|_| Batch::default()).collect();
        let mut rest: &[u8] = &all;
        while let Some((message, more)) = first(rest) {
            rest = more;
            let partition = crc32fast::hash(message.key) as usize % batches.len().max(1);
            let Some(batch) = batches.get_mut(partition) else { continue };
            batch.push(message.unix_ms, all.slice_ref(message.key), all.slice_ref(message.text));
            if batch.bytes >= BATCH_BYTES {
                let full = batch.encoded(self.compression)?;
                self.produce(partition, &full)?;
            }
        }
        for (partition, mut batch) in batches.into_iter().enumerate() {
            if !batch.records.is_empty() {
                self.produce(partition, &batch.encoded(self.compression)?)?;
            }
        }
        Ok(())
    }
}

/// Messages of one partition.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, unix_ms: u64, key: Bytes, text: Bytes) {
        self.bytes += key.len() + text.len();
        let offset = self.records.len() as i64;
        self.records.push(Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: NONE,
            producer_id: NONE.into(),
            producer_epoch: NONE as i16,
            timestamp_type: TimestampType::Creation,
            offset,
            // As far behind as the first, which has none.
            sequence: offset as i32 + NONE,
            timestamp: unix_ms.cast_signed(),
            key: Some(key),
            value: Some(text),
            headers: Default::default(),
        });
    }

    /// As a broker takes it; it is empty after this.
    fn encoded(&mut self, compression: Compression) -> Result<Bytes, String> {
        let mut out = BytesMut::new();
        let options = RecordEncodeOptions { version: 2, compression };
        RecordBatchEncoder::encode(&mut out, &self.records, &options).map_err(|error| error.to_string())?;
        self.records.clear();
        self.bytes = 0;
        Ok(out.freeze())
    }
}

fn failed(error: &ResponseError, of: &str) -> Failed {
    let why = format!("the broker says {of}: {error}");
    if error.is_retriable() { Failed::Moved(why) } else { Failed::Why(why) }
}

fn connect(address: SocketAddr, tls: Option<&ExporterTls>) -> io::Result<Way> {
    let tls = tls.map(|tls| client(tls, address)).transpose()?;
    let socket = TcpStream::connect_timeout(&address, CONNECT)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.set_write_timeout(Some(ANSWER))?;
    Ok(match tls {
        Some(tls) => Box::new(StreamOwned::new(tls, socket)),
        None => Box::new(socket),
    })
}

/// One request and its answer.
fn ask<R: Decodable>(
    way: &mut Way,
    key: ApiKey,
    version: i16,
    number: &mut i32,
    request: &impl Encodable,
) -> io::Result<R> {
    *number = number.wrapping_add(1);
    let header = RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .with_correlation_id(*number)
        .with_client_id(Some(StrBytes::from_static_str("carrack")));
    let mut out = BytesMut::from(&[0; 4][..]);
    header.encode(&mut out, REQUEST_HEADER).map_err(io::Error::other)?;
    request.encode(&mut out, version).map_err(io::Error::other)?;
    let length = (out.len() - 4) as u32;
    if let Some(begin) = out.first_chunk_mut() {
        *begin = length.to_be_bytes();
    }
    way.write_all(&out)?;
    way.flush()?;
    let mut length = [0; 4];
    way.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > ANSWER_BYTES_MAX {
        return Err(io::Error::other("what answers is no broker of Kafka"));
    }
    let mut bytes = vec![0; length];
    way.read_exact(&mut bytes)?;
    let mut bytes = Bytes::from(bytes);
    let header = ResponseHeader::decode(&mut bytes, RESPONSE_HEADER).map_err(io::Error::other)?;
    if header.correlation_id != *number {
        return Err(io::Error::other("the broker answers something else"));
    }
    R::decode(&mut bytes, version).map_err(io::Error::other)
}
