//! Events as rows for ClickHouse's bulk insert, in its format `RowBinary`: fixed columns one behind the other, little-endian,
//! texts behind their length. `examples/clickhouse.sql` is the table. Knows no sockets and no clock.

use std::net::IpAddr;

use crate::context::Context;
use crate::flow::Emit;
use crate::record::Record;

/// The columns of a row, in order.
pub const COLUMNS: &str = "time_ms, router, worker, kind, instance, inside, inside_port, outside, first, last, protocol, \
                           remote, remote4, remote_port, pool, detail, value, count, reason";

/// Writes rows.
#[derive(Debug)]
pub struct Rows {
    router: String,
    row: Vec<u8>,
}

impl Rows {
    /// Rows of that router.
    #[must_use]
    pub fn new(router: &str) -> Self {
        Self { router: router.to_owned(), row: Vec::new() }
    }

    /// Emits one row.
    pub fn event(&mut self, record: &Record, context: &Context, emit: &mut Emit<'_>) {
        let Self { router, row } = self;
        row.clear();
        row.extend(record.unix_ms.to_le_bytes());
        text(row, router);
        row.push(record.worker);
        text(row, record.kind.name());
        text(row, context.instance(record.instance));
        address(row, record.inside);
        row.extend(record.inside_port.to_le_bytes());
        row.extend(record.outside.to_le_bytes());
        row.extend(record.first.to_le_bytes());
        row.extend(record.last.to_le_bytes());
        row.push(record.protocol);
        address(row, record.remote);
        row.extend(record.remote4.to_le_bytes());
        row.extend(record.remote_port.to_le_bytes());
        row.extend(record.pool.to_le_bytes());
        row.push(record.detail);
        row.extend(record.value.to_le_bytes());
        row.extend(record.count.to_le_bytes());
        text(row, record.reason.map_or("", |reason| reason.name()));
        emit(row, 1);
    }
}

/// Behind its length in groups of seven bits, the lowest first.
fn text(row: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    while length >= 0x80 {
        row.push(length as u8 | 0x80);
        length >>= 7;
    }
    row.push(length as u8);
    row.extend(text.as_bytes());
}

/// 16 bytes; an IPv4 address as one mapped into IPv6 (RFC 4291 §2.5.5.2).
fn address(row: &mut Vec<u8>, ip: IpAddr) {
    let ip = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    row.extend(ip.octets());
}
