//! What an exporter writes: flow messages, syslog, RADIUS accounting, rows or JSON.

use carrack_config::{ExportProtocol, ExportTransport, ExporterConfig};

use super::Identity;
use crate::clickhouse::Rows;
use crate::context::Context;
use crate::flow::{Emit, Encoder, Stamp, Unsent, Version};
use crate::kafka::Messages;
use crate::radius::Radius;
use crate::record::Record;
use crate::syslog::Syslog;

pub(crate) enum Format {
    Flow { encoder: Encoder, version: Version, domain: u32, bytes_max: usize },
    Syslog(Syslog),
    Radius(Radius),
    Rows(Rows),
    Messages(Messages),
}

impl Format {
    pub(crate) fn new(config: &ExporterConfig, identity: &Identity) -> Self {
        let (domain, host) = (identity.domain, &*identity.host);
        let bytes_max = usize::from(config.message_bytes);
        let flow = |version| Self::Flow {
            encoder: Encoder::new(version, domain, bytes_max),
            version,
            domain,
            bytes_max,
        };
        match config.protocol {
            ExportProtocol::Ipfix => flow(Version::Ipfix),
            ExportProtocol::NetFlow9 => flow(Version::NetFlow9),
            ExportProtocol::Radius => Self::Radius(Radius::new(host)),
            ExportProtocol::ClickHouse => Self::Rows(Rows::new(host)),
            ExportProtocol::Kafka => Self::Messages(Messages::new(host)),
            ExportProtocol::Syslog => {
                let counted = config.transport != ExportTransport::Udp;
                Self::Syslog(Syslog::new(config.facility, config.format, counted, host, identity.enterprise))
            }
        }
    }

    /// A new transport session begins; returns how many events of the last one's open message are lost.
    pub(crate) fn restart(&mut self) -> u32 {
        let Self::Flow { encoder, version, domain, bytes_max } = self else { return 0 };
        let waiting = encoder.waiting();
        *encoder = Encoder::new(*version, *domain, *bytes_max);
        waiting
    }

    pub(crate) fn event(&mut self, record: &Record, context: &Context, now: Stamp, emit: &mut Emit<'_>) {
        match self {
            Self::Flow { encoder, .. } => {
                encoder.event(record, context, now, emit);
            }
            Self::Syslog(syslog) => syslog.event(record, context, emit),
            Self::Radius(radius) => radius.event(record, context, emit),
            Self::Rows(rows) => rows.event(record, context, emit),
            Self::Messages(messages) => messages.event(record, context, emit),
        }
    }

    pub(crate) fn templates(&mut self, context: &Context, unsent: Unsent, now: Stamp, emit: &mut Emit<'_>) {
        if let Self::Flow { encoder, .. } = self {
            encoder.templates(context, unsent, now, emit);
        }
    }

    pub(crate) fn finish(&mut self, now: Stamp, emit: &mut Emit<'_>) {
        if let Self::Flow { encoder, .. } = self {
            encoder.finish(now, emit);
        }
    }
}
