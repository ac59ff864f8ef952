//! Columnar files: Parquet, sorted by outside address and port, so that a question touches one row group a file.

mod read;

use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

pub(crate) use read::{Sorted, Wanted, read};

use super::index;
use crate::record::Record;

/// Rows of a row group: what one question decodes at least.
pub(crate) const GROUP_ROWS: usize = 131_072;
/// Compression level: higher ones gain little on columns that are encoded already.
const ZSTD_LEVEL: i32 = 3;

/// One row for each event; addresses of the other family than a column's are 0 or empty.
const SCHEMA: &str = "message event {
    required int64 time (TIMESTAMP(MILLIS, true));
    required int32 kind (INTEGER(8, false));
    required binary instance (STRING);
    required int32 inside (INTEGER(32, false));
    required binary inside6;
    required int32 inside_port (INTEGER(16, false));
    required int32 outside (INTEGER(32, false));
    required int32 first (INTEGER(16, false));
    required int32 last (INTEGER(16, false));
    required int32 protocol (INTEGER(8, false));
    required int32 remote (INTEGER(32, false));
    required binary remote6;
    required int32 remote_port (INTEGER(16, false));
    required int32 worker (INTEGER(8, false));
    required int32 pool (INTEGER(16, false));
    required int32 detail (INTEGER(8, false));
    required int32 value (INTEGER(32, false));
    required int32 count (INTEGER(32, false));
    required int32 reason (INTEGER(8, false));
}";
/// Writes a file whole; the records are sorted here.
pub(crate) fn write(path: &Path, records: &[Record], instances: &[String]) -> Result<()> {
    // The file is complete on disk before it gets its name.
    write_to(File::create(path)?, records, instances)?.sync_all()?;
    Ok(())
}

/// The same into anything.
pub(crate) fn write_to<W: Write + Send>(out: W, records: &[Record], instances: &[String]) -> Result<W> {
    let has_six = records.iter().any(|record| record.inside.is_ipv6() || record.remote.is_ipv6());
    let mut writer = Writer::new(out, has_six)?;
    let names: Vec<ByteArray> = instances.iter().map(|name| name.as_str().into()).collect();
    let order = order(records);
    let mut rows = Vec::with_capacity(GROUP_ROWS.min(records.len()));
    for part in order.chunks(GROUP_ROWS) {
        rows.clear();
        // Copied together once, instead of gathered again for each column.
        rows.extend(part.iter().filter_map(|at| records.get(*at as usize).copied()));
        writer.group(&rows, &names)?;
    }
    writer.finish()
}

/// A file being written, row group by row group.
pub(crate) struct Writer<W: Write + Send> {
    file: SerializedFileWriter<W>,
    index: index::Builder,
}

impl<W: Write + Send> Writer<W> {
    /// `has_six`: rows may have IPv6 addresses. They are written all the same when that is wrong, but take more.
    pub(crate) fn new(out: W, has_six: bool) -> Result<Self> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let file = SerializedFileWriter::new(out, schema, Arc::new(properties(has_six)?))?;
        Ok(Self { file, index: index::Builder::default() })
    }

    /// Adds rows in the order of [`key`], [`GROUP_ROWS`] at most; their instance is an index of `names`.
    pub(crate) fn group(&mut self, rows: &[Record], names: &[ByteArray]) -> Result<()> {
        self.index.group(rows);
        let mut group = self.file.next_row_group()?;
        write_group(&mut group, rows, names)?;
        group.close()?;
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<W> {
        self.file.write_all(&self.index.finish())?;
        self.file.into_inner()
    }
}

/// What rows are sorted by: outside address, first port and time, in which 48 bits of milliseconds are 8,900 years; then
/// `at`, which tells apart what came at the same time.
pub(crate) fn key(record: &Record, at: u32) -> u128 {
    let time = u128::from(record.unix_ms.min((1 << 48) - 1));
    u128::from(record.outside) << 96 | u128::from(record.first) << 80 | time << 32 | u128::from(at)
}

/// Indices of the records by outside address, first port and time; of the same time in the order they came.
fn order(records: &[Record]) -> Vec<u32> {
    // One word each: sorted several times faster than whole records.
    let mut keys: Vec<u128> = (0..).zip(records).map(|(at, record)| key(record, at)).collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| key as u32).collect()
}

/// How columns are encoded. Most as differences of neighbours: rows are sorted, so that many are small, and columns that
/// are always the same take nothing, neither space nor time. A dictionary, for which each value is searched, where values
/// come again out of order.
fn properties(has_six: bool) -> Result<WriterProperties> {
    let mut builder = WriterProperties::builder()
        .set_created_by("carrack".into())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::None)
        // Nothing reads it here, and our own index must stand right before the footer.
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_encoding(Encoding::DELTA_BINARY_PACKED);
    for column in ["time", "outside"] {
        builder = builder.set_column_statistics_enabled(column.into(), EnabledStatistics::Chunk);
    }
    for column in ["inside", "remote", "instance"] {
        builder = builder.set_column_dictionary_enabled(column.into(), true);
    }
    builder = builder.set_column_encoding("instance".into(), Encoding::DELTA_LENGTH_BYTE_ARRAY);
    for column in ["inside6", "remote6"] {
        builder = builder
            .set_column_dictionary_enabled(column.into(), has_six)
            .set_column_encoding(column.into(), Encoding::DELTA_LENGTH_BYTE_ARRAY);
    }
    Ok(builder.build())
}

fn write_group<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Record],
    names: &[ByteArray],
) -> Result<()> {
    // An empty one and copies of a name take no memory of their own.
    let empty = ByteArray::from(Vec::new());
    let name = |r: &Record| names.get(usize::from(r.instance)).unwrap_or(&empty).clone();
    let six = |ip: IpAddr| match ip {
        IpAddr::V4(_) => empty.clone(),
        IpAddr::V6(ip) => ip.octets().to_vec().into(),
    };
    long(group, rows, |r| r.unix_ms as i64)?;
    number(group, rows, |r| r.kind as u32)?;
    bytes(group, rows, name)?;
    number(group, rows, |r| four(r.inside))?;
    bytes(group, rows, |r| six(r.inside))?;
    number(group, rows, |r| r.inside_port.into())?;
    number(group, rows, |r| r.outside)?;
    number(group, rows, |r| r.first.into())?;
    number(group, rows, |r| r.last.into())?;
    number(group, rows, |r| r.protocol.into())?;
    number(group, rows, |r| r.remote4)?;
    bytes(group, rows, |r| six(r.remote))?;
    number(group, rows, |r| r.remote_port.into())?;
    number(group, rows, |r| r.worker.into())?;
    number(group, rows, |r| r.pool.into())?;
    number(group, rows, |r| r.detail.into())?;
    number(group, rows, |r| r.value)?;
    number(group, rows, |r| r.count)?;
    number(group, rows, |r| r.reason.map_or(u8::MAX, |reason| reason as u8).into())
}

fn four(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(ip) => ip.into(),
        IpAddr::V6(_) => 0,
    }
}

fn number<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Record],
    value: impl Fn(&Record) -> u32,
) -> Result<()> {
    let mut column = group.next_column()?.ok_or_else(short)?;
    let values: Vec<i32> = rows.iter().map(|row| value(row).cast_signed()).collect();
    column.typed::<Int32Type>().write_batch(&values, None, None)?;
    column.close()
}

fn long<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Record],
    value: impl Fn(&Record) -> i64,
) -> Result<()> {
    let mut column = group.next_column()?.ok_or_else(short)?;
    let values: Vec<i64> = rows.iter().map(value).collect();
    column.typed::<Int64Type>().write_batch(&values, None, None)?;
    column.close()
}

fn bytes<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Record],
    value: impl Fn(&Record) -> ByteArray,
) -> Result<()> {
    let mut column = group.next_column()?.ok_or_else(short)?;
    let values: Vec<ByteArray> = rows.iter().map(value).collect();
    column.typed::<ByteArrayType>().write_batch(&values, None, None)?;
    column.close()
}

fn short() -> ParquetError {
    ParquetError::General("the schema has fewer columns than are written".into())
}
