//! The journal: what has come in since the last columnar file, appended in checked frames.
//!
//! A file cut at any byte loses the frame it was cut in and nothing before it; a frame counts once it is synced.

mod unread;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_base::Reason;

pub(crate) use unread::Unread;

use crate::context::Context;
use crate::exporter::Batch;
use crate::record::{Kind, NOBODY, Record};

/// Records of one frame, at most.
const FRAME_RECORDS: usize = 65_536;
/// Bytes of one frame, at most: what says it is longer is damaged.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// Length and checksum.
const HEADER_BYTES: usize = 8;
/// First byte of a frame's contents.
const NAMES: u8 = 1;
const RECORDS: u8 = 2;
/// Which addresses of a record are IPv6.
const INSIDE6: u8 = 1;
const REMOTE4: u8 = 2;
const REMOTE6: u8 = 4;

/// A journal being written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    /// Length up to the last whole frame.
    bytes: u64,
    records: u64,
    context: Option<Arc<Context>>,
    buffer: Vec<u8>,
}

impl Journal {
    /// A new journal; `name` must not exist.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(&path)?;
        Ok(Self::of(file, path))
    }

    /// A journal in an empty file.
    pub(crate) fn of(file: File, path: PathBuf) -> Self {
        Self { file, path, bytes: 0, records: 0, context: None, buffer: Vec::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its length.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records in it.
    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    /// Appends a batch whole or not at all.
    pub(crate) fn append(&mut self, batch: &Batch) -> io::Result<()> {
        self.buffer.clear();
        let known = self.context.as_ref().is_some_and(|context| Arc::ptr_eq(context, &batch.context));
        if !known {
            frame(&mut self.buffer, NAMES, |out| names(&batch.context, out));
        }
        for records in batch.records.chunks(FRAME_RECORDS) {
            frame(&mut self.buffer, RECORDS, |out| {
                for record in records {
                    encode(record, out);
                }
            });
        }
        if let Err(error) = self.file.write_all(&self.buffer) {
            // What was half written would hide what comes after it.
            self.file.set_len(self.bytes)?;
            return Err(error);
        }
        self.bytes += self.buffer.len() as u64;
        self.records += batch.records.len() as u64;
        self.context = Some(Arc::clone(&batch.context));
        Ok(())
    }

    /// What was appended is safe after this.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// What a journal holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// In the order they came; their instance is an index of `instances`.
    pub records: Vec<Record>,
    /// Names of instances.
    pub instances: Vec<String>,
    /// The end is missing or damaged.
    pub torn: bool,
}

/// Reads a journal up to its first damage.
pub(crate) fn read(path: &Path) -> io::Result<Contents> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(decode(&bytes))
}

pub(crate) fn decode(mut bytes: &[u8]) -> Contents {
    let mut contents = Contents::default();
    let mut indices: Vec<u16> = Vec::new();
    while !bytes.is_empty() {
        let Some((frame, rest)) = next_frame(bytes) else {
            contents.torn = true;
            break;
        };
        bytes = rest;
        match frame.split_first() {
            Some((&NAMES, names)) => indices = read_names(names, &mut contents.instances),
            Some((&RECORDS, records)) => read_records(records, &indices, &mut contents.records),
            _ => {}
        }
    }
    contents
}

fn frame(out: &mut Vec<u8>, kind: u8, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend([0; HEADER_BYTES]);
    out.push(kind);
    write(out);
    let contents = out.get(start + HEADER_BYTES..).unwrap_or_default();
    let (length, sum) = (contents.len() as u32, crc32fast::hash(contents));
    if let Some(header) = out.get_mut(start..start + HEADER_BYTES) {
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[4..].copy_from_slice(&sum.to_le_bytes());
    }
}

fn next_frame(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let [a, b, c, d, e, f, g, h] = *header;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > FRAME_BYTES_MAX {
        return None;
    }
    let (contents, rest) = rest.split_at_checked(length)?;
    (crc32fast::hash(contents) == u32::from_le_bytes([e, f, g, h])).then_some((contents, rest))
}

fn names(context: &Context, out: &mut Vec<u8>) {
    for instance in &context.instances {
        // Names are 32 bytes at most.
        out.push(instance.name.len() as u8);
        out.extend(instance.name.as_bytes());
    }
}

/// Where each instance of the context is in the list of all names.
fn read_names(mut bytes: &[u8], all: &mut Vec<String>) -> Vec<u16> {
    let mut indices = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let Some((name, rest)) = rest.split_at_checked(usize::from(*length)) else { break };
        bytes = rest;
        let name = String::from_utf8_lossy(name);
        let at = all.iter().position(|known| *known == name).unwrap_or_else(|| {
            all.push(name.into_owned());
            all.len() - 1
        });
        indices.push(at as u16);
    }
    indices
}

fn encode(record: &Record, out: &mut Vec<u8>) {
    let family = match record.remote {
        NOBODY => 0,
        IpAddr::V4(_) => REMOTE4,
        IpAddr::V6(_) => REMOTE6,
    } | if record.inside.is_ipv6() { INSIDE6 } else { 0 };
    out.extend(record.unix_ms.to_le_bytes());
    out.extend([record.kind as u8, record.worker, record.protocol, record.detail, family]);
    out.push(record.reason.map_or(u8::MAX, |reason| reason as u8));
    out.extend(record.instance.to_le_bytes());
    out.extend(record.pool.to_le_bytes());
    out.extend(record.inside_port.to_le_bytes());
    out.extend(record.outside.to_le_bytes());
    out.extend(record.first.to_le_bytes());
    out.extend(record.last.to_le_bytes());
    out.extend(record.value.to_le_bytes());
    out.extend(record.count.to_le_bytes());
    address(record.inside, out);
    if family & (REMOTE4 | REMOTE6) != 0 {
        address(record.remote, out);
        out.extend(record.remote4.to_le_bytes());
        out.extend(record.remote_port.to_le_bytes());
    }
}

fn address(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => out.extend(ip.octets()),
        IpAddr::V6(ip) => out.extend(ip.octets()),
    }
}

/// Takes numbers off the front of a frame.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn address(&mut self, six: bool) -> Option<IpAddr> {
        if six {
            self.take::<16>().map(|octets| Ipv6Addr::from(octets).into())
        } else {
            self.take::<4>().map(|octets| Ipv4Addr::from(octets).into())
        }
    }

    fn record(&mut self, indices: &[u16]) -> Option<Record> {
        let unix_ms = self.take().map(u64::from_le_bytes)?;
        let [kind, worker, protocol, detail, family, reason] = self.take()?;
        let (instance, pool, inside_port) = (self.u16()?, self.u16()?, self.u16()?);
        let (outside, first, last) = (self.u32()?, self.u16()?, self.u16()?);
        let (value, count) = (self.u32()?, self.u32()?);
        let inside = self.address(family & INSIDE6 != 0)?;
        let (remote, remote4, remote_port) = if family & (REMOTE4 | REMOTE6) != 0 {
            (self.address(family & REMOTE6 != 0)?, self.u32()?, self.u16()?)
        } else {
            (NOBODY, 0, 0)
        };
        Some(Record {
            unix_ms,
            kind: Kind::from_u8(kind)?,
            worker,
            instance: indices.get(usize::from(instance)).copied().unwrap_or(instance),
            pool,
            protocol,
            detail,
            inside,
            inside_port,
            outside,
            first,
            last,
            remote,
            remote4,
            remote_port,
            value,
            count,
            reason: Reason::from_index(usize::from(reason)),
        })
    }
}

fn read_records(bytes: &[u8], indices: &[u16], out: &mut Vec<Record>) {
    let mut reader = Reader(bytes);
    while !reader.0.is_empty() {
        let Some(record) = reader.record(indices) else { return };
        out.push(record);
    }
}
