//! RADIUS accounting (RFC 2866) of port blocks and mappings, with the attributes of RFC 8045. Knows no sockets and no clock.

use std::fmt::Write as _;
use std::net::IpAddr;

use crate::context::Context;
use crate::flow::Emit;
use crate::record::{Kind, Record};

/// Code of an Accounting-Request, and of its answer.
const REQUEST: u8 = 4;
const RESPONSE: u8 = 5;
/// Code, identifier, length, authenticator.
const HEADER_BYTES: usize = 20;
const AUTHENTICATOR: std::ops::Range<usize> = 4..HEADER_BYTES;

/// Attributes (RFC 2865 §5, RFC 2866 §5, RFC 2869 §5.3, RFC 6911 §3.1).
const USER_NAME: u8 = 1;
const FRAMED_IP_ADDRESS: u8 = 8;
const NAS_IDENTIFIER: u8 = 32;
const ACCT_STATUS_TYPE: u8 = 40;
const ACCT_SESSION_ID: u8 = 44;
const EVENT_TIMESTAMP: u8 = 55;
const FRAMED_IPV6_ADDRESS: u8 = 168;
const EXTENDED: u8 = 241;
/// Extended attributes and what is in them (RFC 8045 §3.1.2, RFC 8045 §3.1.3, RFC 8045 §3.2).
const PORT_RANGE: u8 = 6;
const FORWARDING_MAP: u8 = 7;
const PORT_TYPE: u8 = 1;
const EXT_IPV4: u8 = 3;
const INT_IPV4: u8 = 4;
const INT_IPV6: u8 = 5;
const INT_PORT: u8 = 6;
const EXT_PORT: u8 = 7;
const ALLOC: u8 = 8;
const RANGE_START: u8 = 9;
const RANGE_END: u8 = 10;
const LOCAL_ID: u8 = 11;

/// Acct-Status-Type (RFC 2866 §5.1).
const START: u32 = 1;
const STOP: u32 = 2;
const ON: u32 = 7;
const OFF: u32 = 8;

/// Writes requests; what only the sender knows, identifier and authenticator, sealing puts in.
#[derive(Debug)]
pub struct Radius {
    host: String,
    message: Vec<u8>,
    text: String,
}

impl Radius {
    /// Requests of the router `host`.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self { host: host.to_owned(), message: Vec::new(), text: String::new() }
    }

    /// Emits one request; nothing for events that accounting has no form for. Start and stop of a block or mapping have the
    /// same Acct-Session-Id, which is another's only after the stop (RFC 2866 §5.5).
    pub fn event(&mut self, record: &Record, context: &Context, emit: &mut Emit<'_>) {
        let status = match record.kind {
            Kind::BlockAllocated | Kind::MappingCreated => START,
            Kind::BlockReleased | Kind::MappingDeleted => STOP,
            Kind::Started => ON,
            Kind::Stopped => OFF,
            _ => return,
        };
        self.message.clear();
        self.message.extend([REQUEST, 0]);
        self.message.resize(HEADER_BYTES, 0);
        number(&mut self.message, ACCT_STATUS_TYPE, status);
        self.session_id(record, context);
        text(&mut self.message, NAS_IDENTIFIER, &self.host);
        number(&mut self.message, EVENT_TIMESTAMP, (record.unix_ms / 1_000) as u32);
        if matches!(status, START | STOP) {
            self.subscriber(record);
            self.ports(record, context, status == START);
        }
        let length = (self.message.len() as u16).to_be_bytes();
        if let Some(at) = self.message.get_mut(2..4) {
            at.copy_from_slice(&length);
        }
        emit(&self.message, 1);
    }

    fn session_id(&mut self, record: &Record, context: &Context) {
        self.text.clear();
        // Writing to a String cannot fail.
        let _ = match record.kind {
            Kind::Started | Kind::Stopped => write!(self.text, "{:016x}", record.unix_ms),
            _ => write!(
                self.text,
                "{}-{:08x}-{:04x}-{:02x}",
                context.instance(record.instance),
                record.outside,
                record.first,
                record.protocol
            ),
        };
        text(&mut self.message, ACCT_SESSION_ID, &self.text);
    }

    fn subscriber(&mut self, record: &Record) {
        self.text.clear();
        let _ = write!(self.text, "{}", record.inside);
        text(&mut self.message, USER_NAME, &self.text);
        match record.inside {
            IpAddr::V4(ip) => attribute(&mut self.message, FRAMED_IP_ADDRESS, &ip.octets()),
            IpAddr::V6(ip) => attribute(&mut self.message, FRAMED_IPV6_ADDRESS, &ip.octets()),
        }
    }

    /// A block's ports are those of all protocols: no IP-Port-Type. A mapping's inside endpoint is told too.
    fn ports(&mut self, record: &Record, context: &Context, begins: bool) {
        let is_block = matches!(record.kind, Kind::BlockAllocated | Kind::BlockReleased);
        let start = self.message.len();
        self.message.extend([EXTENDED, 0, if is_block { PORT_RANGE } else { FORWARDING_MAP }]);
        let out = &mut self.message;
        attribute(out, EXT_IPV4, &record.outside.to_be_bytes());
        if is_block {
            number(out, ALLOC, if begins { 1 } else { 2 });
            number(out, RANGE_START, record.first.into());
            number(out, RANGE_END, record.last.into());
        } else {
            number(out, PORT_TYPE, record.protocol.into());
            match record.inside {
                IpAddr::V4(ip) => attribute(out, INT_IPV4, &ip.octets()),
                IpAddr::V6(ip) => attribute(out, INT_IPV6, &ip.octets()),
            }
            number(out, INT_PORT, record.inside_port.into());
            number(out, EXT_PORT, record.first.into());
        }
        text(out, LOCAL_ID, context.instance(record.instance));
        let length = (out.len() - start) as u8;
        if let Some(at) = out.get_mut(start + 1) {
            *at = length;
        }
    }
}

fn attribute(out: &mut Vec<u8>, kind: u8, value: &[u8]) {
    // An attribute has at most 253 bytes of value; the longest here is a name of 64.
    let value = value.get(..value.len().min(253)).unwrap_or_default();
    out.extend([kind, value.len() as u8 + 2]);
    out.extend(value);
}

fn number(out: &mut Vec<u8>, kind: u8, value: u32) {
    attribute(out, kind, &value.to_be_bytes());
}

/// Names may be missing; an empty attribute is none.
fn text(out: &mut Vec<u8>, kind: u8, value: &str) {
    if !value.is_empty() {
        attribute(out, kind, value.as_bytes());
    }
}

/// Gives a request its identifier and authenticator (RFC 2866 §3).
pub(crate) fn seal(message: &mut [u8], identifier: u8, secret: &[u8]) {
    if let Some(at) = message.get_mut(1) {
        *at = identifier;
    }
    if let Some(at) = message.get_mut(AUTHENTICATOR) {
        at.fill(0);
    }
    let sum = digest(&[message, secret]);
    if let Some(at) = message.get_mut(AUTHENTICATOR) {
        at.copy_from_slice(&sum);
    }
}

/// Does this answer the request, and did somebody make it who knows the secret (RFC 2866 §3)?
pub(crate) fn answers(response: &[u8], request: &[u8], secret: &[u8]) -> bool {
    let Some((header, attributes)) = response.split_at_checked(HEADER_BYTES) else { return false };
    let (Some(asked), [code, identifier, high, low, sum @ ..]) = (request.get(AUTHENTICATOR), header) else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let Some(attributes) = length.checked_sub(HEADER_BYTES).and_then(|length| attributes.get(..length))
    else {
        return false;
    };
    let begin = [*code, *identifier, *high, *low];
    *code == RESPONSE
        && request.get(1) == Some(identifier)
        && digest(&[&begin, asked, attributes, secret]) == *sum
}

fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut context = md5::Context::new();
    parts.iter().for_each(|part| context.consume(part));
    context.finalize().0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Vec<u8> {
        let mut message = Vec::new();
        let record = Record { first: 4_096, last: 4_607, ..Record::new(1_000, Kind::BlockAllocated) };
        Radius::new("edge").event(&record, &Context::default(), &mut |bytes, _| message = bytes.to_vec());
        seal(&mut message, 9, b"secret");
        message
    }

    fn response(request: &[u8], secret: &[u8]) -> Vec<u8> {
        let mut response = vec![RESPONSE, request[1], 0, 20];
        let sum = digest(&[&response, &request[AUTHENTICATOR], secret]);
        response.extend(sum);
        response
    }

    /// RFC 2866 §3.
    #[test]
    fn only_who_knows_the_secret_can_answer_and_only_this_request() {
        let request = request();
        let good = response(&request, b"secret");
        assert!(answers(&good, &request, b"secret"));
        assert!(!answers(&response(&request, b"guess"), &request, b"secret"));
        for cut in 0..good.len() {
            assert!(!answers(&good[..cut], &request, b"secret"), "cut at {cut}");
        }
        for byte in 0..good.len() {
            let mut bad = good.clone();
            bad[byte] ^= 1;
            assert!(!answers(&bad, &request, b"secret"), "byte {byte} changed");
        }
        let mut other = request.clone();
        seal(&mut other, 10, b"secret");
        assert!(!answers(&good, &other, b"secret"));
    }

    #[test]
    fn what_accounting_has_no_form_for_is_not_sent() {
        let mut sent = Vec::new();
        for kind in Kind::ALL {
            let mut emit = |bytes: &[u8], _| {
                sent.push((kind, usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) == bytes.len()))
            };
            Radius::new("edge").event(&Record::new(1, kind), &Context::default(), &mut emit);
        }
        use Kind::{BlockAllocated, BlockReleased, MappingCreated, MappingDeleted, Started, Stopped};
        let with_form = [MappingCreated, MappingDeleted, BlockAllocated, BlockReleased, Started, Stopped];
        assert_eq!(sent, with_form.map(|kind| (kind, true)));
    }
}
