//! Events as messages for Kafka: JSON objects, each with the subscriber as key. Knows no sockets and no clock.

use std::fmt::Write;
use std::net::IpAddr;

use crate::context::Context;
use crate::flow::Emit;
use crate::record::{NOBODY, Record};
use crate::time::format_ms;

/// Bytes before key and text: time, length of the key, length of the text.
const HEADER_BYTES: usize = 16;

/// Writes messages.
#[derive(Debug)]
pub struct Messages {
    router: String,
    text: String,
    message: Vec<u8>,
}

/// One message, as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Who it is about: messages with the same key stay in order.
    pub key: &'a [u8],
    /// JSON.
    pub text: &'a [u8],
}

impl Messages {
    /// Messages of that router.
    #[must_use]
    pub fn new(router: &str) -> Self {
        Self { router: escaped(router), text: String::new(), message: Vec::new() }
    }

    /// Emits one message.
    pub fn event(&mut self, record: &Record, context: &Context, emit: &mut Emit<'_>) {
        let Self { router, text, message } = self;
        text.clear();
        json(text, router, record, context);
        let key = if record.inside == NOBODY { router.clone() } else { record.inside.to_string() };
        message.clear();
        message.extend(record.unix_ms.to_le_bytes());
        message.extend((key.len() as u32).to_le_bytes());
        message.extend((text.len() as u32).to_le_bytes());
        message.extend(key.as_bytes());
        message.extend(text.as_bytes());
        emit(message, 1);
    }
}

/// The first of messages that stand one behind the other, and the rest.
#[must_use]
pub fn first(messages: &[u8]) -> Option<(Message<'_>, &[u8])> {
    let (header, rest) = messages.split_first_chunk::<HEADER_BYTES>()?;
    let (time, lengths) = header.split_first_chunk::<8>()?;
    let (words, _) = lengths.as_chunks::<4>();
    let length = |at: usize| words.get(at).map(|word| u32::from_le_bytes(*word) as usize);
    let (key, rest) = rest.split_at_checked(length(0)?)?;
    let (text, rest) = rest.split_at_checked(length(1)?)?;
    Some((Message { unix_ms: u64::from_le_bytes(*time), key, text }, rest))
}

/// What is 0, or nothing, is left out.
fn json(out: &mut String, router: &str, record: &Record, context: &Context) {
    let ip = |ip: IpAddr| (ip != NOBODY).then(|| ip.to_string());
    let four = |ip: u32| (ip != 0).then(|| IpAddr::V4(ip.into()).to_string());
    let texts = [
        ("instance", Some(escaped(context.instance(record.instance))).filter(|name| !name.is_empty())),
        ("inside", ip(record.inside)),
        ("outside", four(record.outside)),
        ("remote", ip(record.remote)),
        ("remote4", four(record.remote4)),
        ("reason", record.reason.map(|reason| reason.name().to_owned())),
    ];
    let numbers: [(&str, u32); 9] = [
        ("inside_port", record.inside_port.into()),
        ("first", record.first.into()),
        ("last", record.last.into()),
        ("protocol", record.protocol.into()),
        ("remote_port", record.remote_port.into()),
        ("pool", record.pool.into()),
        ("detail", record.detail.into()),
        ("value", record.value),
        ("count", record.count),
    ];
    // Writing to a text cannot fail.
    let _ = write!(
        out,
        "{{\"time\":\"{}\",\"time_ms\":{},\"router\":\"{router}\",\"worker\":{},\"kind\":\"{}\"",
        format_ms(record.unix_ms),
        record.unix_ms,
        record.worker,
        record.kind.name()
    );
    for (name, value) in texts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?))) {
        let _ = write!(out, ",\"{name}\":\"{value}\"");
    }
    for (name, value) in numbers.iter().filter(|(_, value)| *value != 0) {
        let _ = write!(out, ",\"{name}\":{value}");
    }
    out.push('}');
}

/// RFC 8259 §7.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..' ' => {
                let _ = write!(out, "\\u{:04x}", character as u32);
            }
            _ => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;

    #[test]
    fn message_tells_what_an_event_has_and_nothing_that_it_has_not() {
        let record = Record {
            inside: [100, 64, 3, 9].into(),
            outside: 0xcb00_7107,
            first: 4_608,
            last: 5_119,
            ..Record::new(1_772_546_602_500, Kind::BlockAllocated)
        };
        let mut messages = Messages::new("edge \"1\"");
        let mut found = Vec::new();
        for record in [record, Record::new(7, Kind::Started)] {
            messages.event(&record, &Context::default(), &mut |message, _| found.extend(message));
        }
        let (message, rest) = first(&found).unwrap();
        assert_eq!((message.unix_ms, message.key), (1_772_546_602_500, &b"100.64.3.9"[..]));
        assert_eq!(
            String::from_utf8_lossy(message.text),
            "{\"time\":\"2026-03-03T14:03:22.500Z\",\"time_ms\":1772546602500,\"router\":\"edge \\\"1\\\"\",\
             \"worker\":0,\"kind\":\"block-allocated\",\"inside\":\"100.64.3.9\",\"outside\":\"203.0.113.7\",\
             \"first\":4608,\"last\":5119,\"count\":1}"
        );
        let (message, rest) = first(rest).unwrap();
        assert_eq!((message.key, rest), (&b"edge \\\"1\\\""[..], &[][..]));
        for cut in 0..found.len() - 1 {
            assert!(first(&found[..cut]).is_none_or(|(_, rest)| first(rest).is_none()), "cut at {cut}");
        }
    }
}
