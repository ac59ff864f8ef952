//! Syslog messages (RFC 5424), one for each event.

use std::fmt::Write as _;

use carrack_config::SyslogFormat;

use crate::context::Context;
use crate::flow::Emit;
use crate::record::{Kind, Record, Threshold};
use crate::time;

/// Writes messages.
#[derive(Debug)]
pub struct Syslog {
    facility: u8,
    format: SyslogFormat,
    /// Over a stream each message is preceded by its length (RFC 5425 §4.3).
    counted: bool,
    host: String,
    /// Private enterprise number in the name of structured data (RFC 5424 §7.2.2).
    enterprise: u32,
    line: String,
    framed: String,
}

impl Syslog {
    /// Messages from the router `host`, for a stream when `counted`.
    #[must_use]
    pub fn new(facility: u8, format: SyslogFormat, counted: bool, host: &str, enterprise: u32) -> Self {
        let host = host.to_owned();
        Self { facility, format, counted, host, enterprise, line: String::new(), framed: String::new() }
    }

    /// Emits one message.
    pub fn event(&mut self, record: &Record, context: &Context, emit: &mut Emit<'_>) {
        self.line.clear();
        // Writing to a String cannot fail.
        let _ = self.write(record, context);
        if self.counted {
            self.framed.clear();
            let _ = write!(self.framed, "{} {}", self.line.len(), self.line);
            emit(self.framed.as_bytes(), 1);
        } else {
            emit(self.line.as_bytes(), 1);
        }
    }

    fn write(&mut self, record: &Record, context: &Context) -> std::fmt::Result {
        let priority = u32::from(self.facility) * 8 + severity(record.kind);
        let (at, kind) = (time::format_ms(record.unix_ms), record.kind.name());
        let Self { line, host, enterprise, .. } = self;
        write!(line, "<{priority}>1 {at} {host} carrack - {kind} ")?;
        match self.format {
            SyslogFormat::Structured => {
                write!(line, "[nat@{enterprise}")?;
                fields(record, context, |name, value| write!(line, " {name}=\"{value}\""))?;
                line.push(']');
            }
            SyslogFormat::Compact => {
                line.push('-');
                fields(record, context, |_, value| write!(line, " {value}"))?;
            }
        }
        Ok(())
    }
}

/// RFC 5424 §6.2.1.
const fn severity(kind: Kind) -> u32 {
    match kind {
        Kind::EventsLost => 3,
        Kind::AddressesExhausted | Kind::PortsExhausted | Kind::QuotaExceeded | Kind::ThresholdReached => 4,
        Kind::Started | Kind::Stopped | Kind::Configured | Kind::ClockSet => 5,
        _ => 6,
    }
}

/// What an event of this kind tells, in this order; none of the values needs an escape (RFC 5424 §6.3.3).
fn fields(
    record: &Record,
    context: &Context,
    mut field: impl FnMut(&str, &dyn std::fmt::Display) -> std::fmt::Result,
) -> std::fmt::Result {
    let outside = std::net::Ipv4Addr::from(record.outside);
    let has_instance = record.kind.class() != carrack_config::EventClass::System;
    if has_instance {
        field("instance", &context.instance(record.instance))?;
    }
    match record.kind {
        Kind::BlockAllocated | Kind::BlockReleased => {
            field("inside", &record.inside)?;
            field("outside", &outside)?;
            field("first", &record.first)?;
            field("last", &record.last)
        }
        Kind::AddressBound | Kind::AddressReleased => {
            field("inside", &record.inside)?;
            field("outside", &outside)
        }
        Kind::MappingCreated | Kind::MappingDeleted | Kind::SessionCreated | Kind::SessionDeleted => {
            field("protocol", &record.protocol)?;
            field("inside", &record.inside)?;
            field("inside-port", &record.inside_port)?;
            field("outside", &outside)?;
            field("outside-port", &record.first)?;
            if record.remote.is_unspecified() {
                return Ok(());
            }
            field("remote", &record.remote)?;
            field("remote-port", &record.remote_port)
        }
        Kind::AddressesExhausted | Kind::PortsExhausted | Kind::QuotaExceeded => {
            field("pool", &context.pool(record.pool))?;
            field("inside", &record.inside)?;
            field("reason", &record.reason.map_or("-", carrack_base::Reason::name))?;
            field("limit", &record.value)?;
            field("count", &record.count)
        }
        Kind::ThresholdReached => threshold(record, context, field),
        Kind::Started | Kind::Stopped => Ok(()),
        Kind::Configured => field("generation", &record.value),
        Kind::ClockSet => {
            field("by-ms", &record.value)?;
            field("direction", &if record.count == 1 { "backwards" } else { "forwards" })
        }
        Kind::EventsLost => field("count", &record.count),
    }
}

fn threshold(
    record: &Record,
    context: &Context,
    mut field: impl FnMut(&str, &dyn std::fmt::Display) -> std::fmt::Result,
) -> std::fmt::Result {
    match record.threshold() {
        which @ (Threshold::PoolHigh | Threshold::PoolLow) => {
            field("pool", &context.pool(record.pool))?;
            field("crossed", &if which == Threshold::PoolHigh { "upwards" } else { "downwards" })?;
            field("threshold", &record.value)?;
            field("percent", &record.count)
        }
        Threshold::Ports => {
            field("pool", &context.pool(record.pool))?;
            field("threshold", &record.value)?;
            field("ports", &record.count)
        }
        Threshold::PerUser => {
            field("inside", &record.inside)?;
            field("threshold", &record.value)?;
            field("mappings", &record.count)
        }
        Threshold::Paired => {
            field("inside", &record.inside)?;
            field("threshold", &record.value)?;
            field("paired-mappings", &record.count)
        }
    }
}
