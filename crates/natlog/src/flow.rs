//! IPFIX (RFC 7011) and NetFlow version 9 (RFC 3954) messages. Knows no sockets and no clock.

mod field;
#[cfg(test)]
mod tests;

pub use field::{Field, TEMPLATES, Template, template};

use crate::context::Context;
use crate::record::Record;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// RFC 7011.
    Ipfix,
    /// RFC 3954.
    NetFlow9,
}

/// When a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Milliseconds since the daemon started.
    pub uptime_ms: u64,
}

/// What this exporter could not send since its start (RFC 7011 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Unsent {
    /// Records.
    pub records: u64,
    /// When the first was dropped, milliseconds since 1970; 0 for never.
    pub first_ms: u64,
    /// When the last was dropped.
    pub last_ms: u64,
}

/// Takes a finished message and the number of events in it.
pub type Emit<'a> = dyn FnMut(&[u8], u32) + 'a;

/// Puts records into messages. One for each transport session: numbering starts anew with it (RFC 7011 §3.1).
#[derive(Debug)]
pub struct Encoder {
    version: Version,
    domain: u32,
    bytes_max: usize,
    sequence: u32,
    message: Vec<u8>,
    /// The open set: its number and where it begins.
    set: Option<(u16, usize)>,
    /// Records of all kinds in the message, templates included: what version 9 counts.
    entries: u16,
    /// Data records in the message, options included: what IPFIX counts.
    data: u32,
    /// Events in the message.
    events: u32,
}

/// Options data: pool names, routing instances' names, reliability statistics.
const POOLS: u16 = 300;
const VRFS: u16 = 301;
const UNSENT: u16 = 302;
/// A field of variable length (RFC 7011 §7).
const VARIABLE: u16 = 65_535;
/// Number, scope fields, and all fields as (element, octets).
type OptionsTemplate = (u16, u16, &'static [(u16, u16)]);
const OPTIONS: [OptionsTemplate; 3] = [
    // natPoolId: natPoolName.
    (POOLS, 1, &[(283, 4), (284, VARIABLE)]),
    // ingressVRFID: VRFname.
    (VRFS, 1, &[(234, 4), (236, VARIABLE)]),
    // exportingProcessId: notSentFlowTotalCount, observationTimeMilliseconds of the first and the last.
    (UNSENT, 1, &[(144, 4), (166, 8), (323, 8), (323, 8)]),
];

impl Encoder {
    /// An encoder for messages of at most `bytes_max` bytes.
    #[must_use]
    pub fn new(version: Version, domain: u32, bytes_max: usize) -> Self {
        Self {
            version,
            domain,
            bytes_max,
            sequence: 0,
            message: Vec::with_capacity(bytes_max),
            set: None,
            entries: 0,
            data: 0,
            events: 0,
        }
    }

    /// Events in the message that is not yet finished.
    #[must_use]
    pub const fn waiting(&self) -> u32 {
        self.events
    }

    /// Adds an event; false when it is of a kind that this protocol has no number for. Emits a message when one is full.
    pub fn event(&mut self, record: &Record, context: &Context, now: Stamp, emit: &mut Emit<'_>) -> bool {
        let Some(template) = template(record) else { return false };
        let bytes: usize = template.fields.iter().map(|field| usize::from(field.element().1)).sum();
        self.make_room(template.id, bytes, now, emit);
        for field in template.fields {
            field.write(record, context, &mut self.message);
        }
        self.entries += 1;
        self.data += 1;
        self.events += 1;
        true
    }

    /// Sends all templates, and what IPFIX has options for.
    pub fn templates(&mut self, context: &Context, unsent: Unsent, now: Stamp, emit: &mut Emit<'_>) {
        self.finish(now, emit);
        let set = if self.version == Version::Ipfix { 2 } else { 0 };
        for template in TEMPLATES {
            self.make_room(set, 4 + 4 * template.fields.len(), now, emit);
            self.words(&[template.id, template.fields.len() as u16]);
            for field in template.fields {
                let (element, octets) = field.element();
                self.words(&[element, octets]);
            }
            self.entries += 1;
        }
        if self.version == Version::Ipfix {
            self.options(context, unsent, now, emit);
        }
        self.finish(now, emit);
    }

    /// Closes the message and emits it, if there is anything in it.
    pub fn finish(&mut self, now: Stamp, emit: &mut Emit<'_>) {
        if self.message.is_empty() {
            return;
        }
        self.close_set();
        let length = self.message.len() as u16;
        let mut header = Vec::with_capacity(20);
        match self.version {
            Version::Ipfix => {
                header.extend(10u16.to_be_bytes());
                header.extend(length.to_be_bytes());
                header.extend(((now.unix_ms / 1_000) as u32).to_be_bytes());
                header.extend(self.sequence.to_be_bytes());
                self.sequence = self.sequence.wrapping_add(self.data);
            }
            Version::NetFlow9 => {
                header.extend(9u16.to_be_bytes());
                header.extend(self.entries.to_be_bytes());
                header.extend((now.uptime_ms as u32).to_be_bytes());
                header.extend(((now.unix_ms / 1_000) as u32).to_be_bytes());
                header.extend(self.sequence.to_be_bytes());
                self.sequence = self.sequence.wrapping_add(1);
            }
        }
        header.extend(self.domain.to_be_bytes());
        for (to, from) in self.message.iter_mut().zip(header) {
            *to = from;
        }
        emit(&self.message, self.events);
        self.message.clear();
        (self.entries, self.data, self.events) = (0, 0, 0);
    }

    const fn header_bytes(&self) -> usize {
        match self.version {
            Version::Ipfix => 16,
            Version::NetFlow9 => 20,
        }
    }

    /// Opens message and set as needed so that `bytes` more fit.
    fn make_room(&mut self, set: u16, bytes: usize, now: Stamp, emit: &mut Emit<'_>) {
        let same = self.set.is_some_and(|(open, _)| open == set);
        let more = if same { bytes } else { bytes + 4 };
        // Three bytes may be needed for padding.
        if !self.message.is_empty() && self.message.len() + more + 3 > self.bytes_max {
            self.finish(now, emit);
        }
        if self.message.is_empty() {
            self.message.resize(self.header_bytes(), 0);
        }
        if self.set.is_none_or(|(open, _)| open != set) {
            self.close_set();
            self.set = Some((set, self.message.len()));
            self.words(&[set, 0]);
        }
    }

    /// Writes the length of the open set, padded as RFC 3954 §5.3 asks; IPFIX needs none.
    fn close_set(&mut self) {
        let Some((_, start)) = self.set.take() else { return };
        if self.version == Version::NetFlow9 {
            let padded = self.message.len().next_multiple_of(4);
            self.message.resize(padded, 0);
        }
        let length = (self.message.len() - start) as u16;
        if let Some(at) = self.message.get_mut(start + 2..start + 4) {
            at.copy_from_slice(&length.to_be_bytes());
        }
    }

    fn words(&mut self, words: &[u16]) {
        for word in words {
            self.message.extend(word.to_be_bytes());
        }
    }

    fn options(&mut self, context: &Context, unsent: Unsent, now: Stamp, emit: &mut Emit<'_>) {
        for (id, scopes, fields) in OPTIONS {
            self.make_room(3, 6 + 4 * fields.len(), now, emit);
            self.words(&[id, fields.len() as u16, scopes]);
            for (element, octets) in fields {
                self.words(&[*element, *octets]);
            }
            self.entries += 1;
        }
        for (id, name) in &context.pools {
            self.name(POOLS, u32::from(*id), name, now, emit);
        }
        for (id, name) in (0..).zip(&context.vrfs) {
            self.name(VRFS, id, name, now, emit);
        }
        self.make_room(UNSENT, 28, now, emit);
        self.message.extend(self.domain.to_be_bytes());
        for number in [unsent.records, unsent.first_ms, unsent.last_ms] {
            self.message.extend(number.to_be_bytes());
        }
        self.entries += 1;
        self.data += 1;
    }

    /// One number and its name; names are shorter than 255 bytes.
    fn name(&mut self, set: u16, id: u32, name: &str, now: Stamp, emit: &mut Emit<'_>) {
        let name = name.as_bytes().get(..name.len().min(254)).unwrap_or_default();
        self.make_room(set, 5 + name.len(), now, emit);
        self.message.extend(id.to_be_bytes());
        self.message.push(name.len() as u8);
        self.message.extend(name);
        self.entries += 1;
        self.data += 1;
    }
}
