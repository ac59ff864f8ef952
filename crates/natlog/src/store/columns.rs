//! Columnar files: Parquet, sorted by outside address and port, so that a question touches one row group a file.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use carrack_base::Reason;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::record::{Kind, Record};

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
/// Positions in [`SCHEMA`].
const TIME: usize = 0;
const OUTSIDE: usize = 6;

/// Writes a file whole; the records are sorted here.
pub(crate) fn write(path: &Path, records: &[Record], instances: &[String]) -> Result<()> {
    // The file is complete on disk before it gets its name.
    write_to(File::create(path)?, records, instances)?.sync_all()?;
    Ok(())
}

/// The same into anything.
pub(crate) fn write_to<W: Write + Send>(out: W, records: &[Record], instances: &[String]) -> Result<W> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer = SerializedFileWriter::new(out, schema, Arc::new(properties(records)?))?;
    let names: Vec<ByteArray> = instances.iter().map(|name| name.as_str().into()).collect();
    let order = order(records);
    let mut rows = Vec::with_capacity(GROUP_ROWS.min(records.len()));
    for part in order.chunks(GROUP_ROWS) {
        rows.clear();
        // Copied together once, instead of gathered again for each column.
        rows.extend(part.iter().filter_map(|at| records.get(*at as usize).copied()));
        let mut group = writer.next_row_group()?;
        write_group(&mut group, &rows, &names)?;
        group.close()?;
    }
    writer.into_inner()
}

/// Indices of the records by outside address, first port and time; of the same time in the order they came.
fn order(records: &[Record]) -> Vec<u32> {
    let begin_ms = records.iter().map(|record| record.unix_ms).min().unwrap_or(0);
    // One word each, in which 48 bits of milliseconds are 8,900 years: sorted several times faster than whole records.
    let key = |(at, record): (usize, &Record)| {
        let time = u128::from((record.unix_ms - begin_ms).min((1 << 48) - 1));
        u128::from(record.outside) << 96 | u128::from(record.first) << 80 | time << 32 | at as u128
    };
    let mut keys: Vec<u128> = records.iter().enumerate().map(key).collect();
    keys.sort_unstable();
    keys.into_iter().map(|key| key as u32).collect()
}

/// How columns are encoded. Most as differences of neighbours: rows are sorted, so that many are small, and columns that
/// are always the same take nothing, neither space nor time. A dictionary, for which each value is searched, where values
/// come again out of order.
fn properties(records: &[Record]) -> Result<WriterProperties> {
    let has_six = records.iter().any(|record| record.inside.is_ipv6() || record.remote.is_ipv6());
    let mut builder = WriterProperties::builder()
        .set_created_by("carrack".into())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::None)
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

/// Which rows somebody wants to see: a row group is skipped when none can be in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Outside address; rows without one, events of the daemon itself, are always wanted.
    pub outside: Option<u32>,
    /// Times, milliseconds since 1970, both included.
    pub from_ms: u64,
    pub to_ms: u64,
}

impl Wanted {
    /// Could this record be wanted?
    pub(crate) fn admits(&self, record: &Record) -> bool {
        (self.from_ms..=self.to_ms).contains(&record.unix_ms)
            && self.outside.is_none_or(|outside| record.outside == outside || record.outside == 0)
    }

    fn admits_group(&self, group: &RowGroupMetaData) -> bool {
        let time = match group.column(TIME).statistics() {
            Some(Statistics::Int64(range)) => range.min_opt().zip(range.max_opt()),
            _ => None,
        };
        let in_time = time.is_none_or(|(min, max)| {
            min.cast_unsigned() <= self.to_ms && max.cast_unsigned() >= self.from_ms
        });
        let outside = match group.column(OUTSIDE).statistics() {
            Some(Statistics::Int32(range)) => range.min_opt().zip(range.max_opt()),
            _ => None,
        };
        let (wanted, range) = (self.outside, outside.map(|(a, b)| a.cast_unsigned()..=b.cast_unsigned()));
        let in_place = wanted.zip(range).is_none_or(|(ip, range)| range.contains(&ip) || range.contains(&0));
        in_time && in_place
    }
}

/// Reads the rows that may be wanted and gives each that is to `each`, with its instance's name.
pub(crate) fn read(path: &Path, wanted: Wanted, mut each: impl FnMut(&Record, &str)) -> Result<()> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    for index in 0..reader.metadata().num_row_groups() {
        if wanted.admits_group(reader.metadata().row_group(index)) {
            read_group(&*reader.get_row_group(index)?, wanted, &mut each)?;
        }
    }
    Ok(())
}

fn read_group(
    group: &dyn RowGroupReader,
    wanted: Wanted,
    each: &mut impl FnMut(&Record, &str),
) -> Result<()> {
    let rows = group.metadata().num_rows() as usize;
    let Some(ip) = wanted.outside else { return read_rows(group, 0..rows, wanted, each) };
    // Rows are sorted by outside address: those of the daemon itself, which have none, come first.
    let outside = numbers(group, OUTSIDE, 0..rows)?;
    let none = 0..outside.partition_point(|found| *found == 0);
    let named = outside.partition_point(|found| *found < ip)..outside.partition_point(|found| *found <= ip);
    for rows in [none, named] {
        if !rows.is_empty() {
            read_rows(group, rows, wanted, each)?;
        }
    }
    Ok(())
}

fn read_rows(
    group: &dyn RowGroupReader,
    rows: Range<usize>,
    wanted: Wanted,
    each: &mut impl FnMut(&Record, &str),
) -> Result<()> {
    let times = longs(group, TIME, rows.clone())?;
    let [instance, inside6, remote6] = [2, 4, 11].map(|at| texts(group, at, rows.clone()));
    let (instance, inside6, remote6) = (instance?, inside6?, remote6?);
    let others = [1, 3, 5, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, OUTSIDE];
    let mut columns = Vec::with_capacity(others.len());
    for at in others {
        columns.push(numbers(group, at, rows.clone())?);
    }
    for (row, time) in times.into_iter().enumerate() {
        let at = |column: usize| columns.get(column).and_then(|c| c.get(row)).copied().unwrap_or(0);
        let ip = |four: u32, six: Option<&ByteArray>| {
            let six = six.and_then(|six| <[u8; 16]>::try_from(six.data()).ok());
            six.map_or_else(|| Ipv4Addr::from(four).into(), |six| IpAddr::V6(Ipv6Addr::from(six)))
        };
        let Some(kind) = Kind::from_u8(at(0) as u8) else { continue };
        let record = Record {
            unix_ms: time.cast_unsigned(),
            kind,
            worker: at(8) as u8,
            instance: 0,
            pool: at(9) as u16,
            protocol: at(5) as u8,
            detail: at(10) as u8,
            inside: ip(at(1), inside6.get(row)),
            inside_port: at(2) as u16,
            outside: at(14),
            first: at(3) as u16,
            last: at(4) as u16,
            remote: ip(at(6), remote6.get(row)),
            remote4: at(6),
            remote_port: at(7) as u16,
            value: at(11),
            count: at(12),
            reason: Reason::from_index(at(13) as usize),
        };
        if wanted.admits(&record) {
            let name = instance.get(row).map(ByteArray::data).unwrap_or_default();
            each(&record, &String::from_utf8_lossy(name));
        }
    }
    Ok(())
}

/// Values of some rows of a column; whole pages before them are not decoded.
fn values<T: DataType>(mut column: ColumnReaderImpl<T>, rows: Range<usize>) -> Result<Vec<T::T>> {
    let mut values = Vec::with_capacity(rows.len());
    column.skip_records(rows.start)?;
    column.read_records(rows.len(), None, None, &mut values)?;
    Ok(values)
}

fn numbers(group: &dyn RowGroupReader, at: usize, rows: Range<usize>) -> Result<Vec<u32>> {
    match group.get_column_reader(at)? {
        ColumnReader::Int32ColumnReader(column) => {
            Ok(values(column, rows)?.into_iter().map(i32::cast_unsigned).collect())
        }
        _ => Err(foreign(at)),
    }
}

fn longs(group: &dyn RowGroupReader, at: usize, rows: Range<usize>) -> Result<Vec<i64>> {
    match group.get_column_reader(at)? {
        ColumnReader::Int64ColumnReader(column) => values(column, rows),
        _ => Err(foreign(at)),
    }
}

fn texts(group: &dyn RowGroupReader, at: usize, rows: Range<usize>) -> Result<Vec<ByteArray>> {
    match group.get_column_reader(at)? {
        ColumnReader::ByteArrayColumnReader(column) => values(column, rows),
        _ => Err(foreign(at)),
    }
}

fn foreign(at: usize) -> ParquetError {
    ParquetError::General(format!("column {at} is of another type than this program writes"))
}
