//! An ICMP error put together beside the packet: the translated quotation may be longer or shorter than the old.

use crate::icmp::Head;
use carrack_wire::checksum::{self, Sum};
use carrack_wire::icmpv4::{Extension, HEADER_LEN, ORIGINAL_LEN_MIN};
use carrack_wire::icmpv6;

/// Octets of the longest message: an ICMPv6 error without its IPv6 header.
const MESSAGE_LEN_MAX: usize = icmpv6::ERROR_LEN_MAX;
/// Octets of the head of an extension structure (RFC 4884 §7).
const STRUCTURE_HEAD_LEN: usize = 4;
/// Octets of an interface information object with an IPv6 address (RFC 5837 §4).
const OBJECT_LEN: usize = 24;

/// What a message is put together from.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) head: Head,
    /// The quoted packet's new headers.
    pub(super) inner_headers: &'a [u8],
    /// What stands behind them, as far as it is quoted.
    pub(super) inner_payload: &'a [u8],
    /// The extension structure (RFC 4884), or nothing.
    pub(super) structure: &'a [u8],
    /// An address to add to the structure.
    pub(super) reveal: Option<u128>,
    /// Where the length attribute is.
    pub(super) length_at: usize,
    /// In what units of octets.
    pub(super) unit: usize,
    /// Octets the message may have.
    pub(super) length_max: usize,
}

/// A message in a buffer of its own.
pub(super) struct Message {
    bytes: [u8; MESSAGE_LEN_MAX],
    len: usize,
    inner_payload: (usize, usize),
}

impl Message {
    /// Puts the message together, all but its checksum. The quotation is cut to what there is room for. A structure
    /// is kept whole or, when 128 octets of quotation do not fit beside it, left out.
    pub(super) fn assemble(parts: Parts<'_>) -> Message {
        let mut structure = Structure::new(parts.structure, parts.reveal);
        let room = parts.length_max.min(MESSAGE_LEN_MAX) - HEADER_LEN;
        if structure.len() + ORIGINAL_LEN_MIN > room {
            structure = Structure::default();
        }
        let quoted = parts.inner_headers.len() + parts.inner_payload.len();
        let (field_len, length_attribute) = if structure.len() == 0 {
            (quoted.min(room), 0)
        } else {
            // The field is filled up with zeros to a whole number of units, 128 octets at least (RFC 4884 §3).
            let room = (room - structure.len()) / parts.unit * parts.unit;
            let field_len = quoted.next_multiple_of(parts.unit).max(ORIGINAL_LEN_MIN).min(room);
            (field_len, (field_len / parts.unit) as u8)
        };
        let payload_at = HEADER_LEN + parts.inner_headers.len();
        let payload_len = parts.inner_payload.len().min(field_len.saturating_sub(parts.inner_headers.len()));
        let field_end = HEADER_LEN + field_len;
        let mut message = Message {
            bytes: [0; MESSAGE_LEN_MAX],
            len: field_end + structure.len(),
            inner_payload: (payload_at, payload_at + payload_len),
        };
        let [r0, r1, r2, r3] = parts.head.rest.to_be_bytes();
        message.put(0, &[parts.head.kind, parts.head.code, 0, 0, r0, r1, r2, r3]);
        if length_attribute != 0 {
            message.put(parts.length_at, &[length_attribute]);
        }
        message.put(HEADER_LEN, parts.inner_headers);
        message.put(payload_at, parts.inner_payload.get(..payload_len).unwrap_or(&[]));
        structure.write(message.bytes.get_mut(field_end..message.len).unwrap_or(&mut []));
        message
    }

    /// The quoted packet's octets behind its headers.
    pub(super) fn inner_payload(&mut self) -> &mut [u8] {
        let (from, to) = self.inner_payload;
        self.bytes.get_mut(from..to).unwrap_or(&mut [])
    }

    /// Computes the checksum, `pseudo` being what else it covers.
    pub(super) fn fill_checksum(&mut self, pseudo: Sum) {
        let sum = pseudo.with_bytes(self.bytes()).checksum();
        self.put(2, &sum.to_be_bytes());
    }

    /// The message.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }

    fn put(&mut self, at: usize, what: &[u8]) {
        if let Some(to) = self.bytes.get_mut(at..at + what.len()) {
            to.copy_from_slice(what);
        }
    }
}

/// The extension structure of the new message.
#[derive(Clone, Copy, Default)]
struct Structure<'a> {
    /// The old one.
    old: &'a [u8],
    reveal: Option<u128>,
}

impl<'a> Structure<'a> {
    /// The old structure with an object for `reveal` behind; an old one that makes no sense is left as it is.
    fn new(old: &'a [u8], reveal: Option<u128>) -> Structure<'a> {
        let can_grow = old.is_empty() || Extension::parse(old).is_ok();
        Structure { old, reveal: reveal.filter(|_| can_grow) }
    }

    fn len(&self) -> usize {
        match self.reveal {
            None => self.old.len(),
            Some(_) => self.old.len().max(STRUCTURE_HEAD_LEN) + OBJECT_LEN,
        }
    }

    fn write(&self, out: &mut [u8]) {
        let Some((old, object)) =
            out.split_at_mut_checked(self.len() - self.reveal.map_or(0, |_| OBJECT_LEN))
        else {
            return;
        };
        match self.old {
            // Version 2, checksum to come.
            [] if self.reveal.is_some() => old.copy_from_slice(&[0x20, 0, 0, 0]),
            bytes => old.copy_from_slice(bytes),
        }
        let Some(address) = self.reveal else { return };
        // RFC 5837 §4: class 2, role "incoming IP interface" with only an address (bit 5 of the C-Type); the
        // address sub-object has address family 2, IPv6.
        let [a, b] = (OBJECT_LEN as u16).to_be_bytes();
        for (to, from) in
            object.iter_mut().zip([a, b, 2, 0b0000_0100, 0, 2, 0, 0].into_iter().chain(address.to_be_bytes()))
        {
            *to = from;
        }
        if let Some(field) = out.get_mut(2..4) {
            field.fill(0);
        }
        let sum = checksum::checksum(out).to_be_bytes();
        if let Some(field) = out.get_mut(2..4) {
            field.copy_from_slice(&sum);
        }
    }
}
