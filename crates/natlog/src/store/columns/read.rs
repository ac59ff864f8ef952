//! Columnar files, read: for a question only what may answer it, for merging everything in order.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use carrack_base::Reason;
use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, FileReader, Length, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;

use crate::record::{Kind, Record};
use crate::store::index::{Index, Places, Slice};

/// Positions in the schema.
const TIME: usize = 0;
const INSTANCE: usize = 2;
const INSIDE: usize = 3;
const INSIDE6: usize = 4;
const OUTSIDE: usize = 6;
const FIRST: usize = 7;
const LAST: usize = 8;
const REMOTE6: usize = 11;
/// Of the numbers, in the order of [`Chunk::record`].
const NUMBERS: [usize; 15] = [1, INSIDE, 5, OUTSIDE, FIRST, LAST, 9, 10, 12, 13, 14, 15, 16, 17, 18];

/// Which rows somebody wants to see: what cannot have them is skipped. Rows without an outside address, events of the daemon
/// itself, are always wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Outside address.
    pub outside: Option<u32>,
    /// Outside port; only with an address.
    pub port: Option<u16>,
    /// The subscriber.
    pub inside: Option<IpAddr>,
    /// Times, milliseconds since 1970, both included.
    pub from_ms: u64,
    pub to_ms: u64,
}

impl Wanted {
    /// Everything of a time.
    pub(crate) const fn of_time(from_ms: u64, to_ms: u64) -> Self {
        Self { outside: None, port: None, inside: None, from_ms, to_ms }
    }

    /// Could this record be wanted?
    pub(crate) fn admits(&self, record: &Record) -> bool {
        let in_place = || {
            self.outside.is_none_or(|outside| record.outside == outside)
                && self.port.is_none_or(|port| (record.first..=record.last).contains(&port))
                && self.inside.is_none_or(|inside| record.inside == inside)
        };
        (self.from_ms..=self.to_ms).contains(&record.unix_ms) && (record.outside == 0 || in_place())
    }

    fn admits_group(&self, group: &RowGroupMetaData) -> bool {
        let time = match group.column(TIME).statistics() {
            Some(Statistics::Int64(range)) => range.min_opt().zip(range.max_opt()),
            _ => None,
        };
        let in_time = time.is_none_or(|(min, max)| {
            min.cast_unsigned() <= self.to_ms && max.cast_unsigned() >= self.from_ms
        });
        let in_place = self
            .outside
            .zip(outside(group))
            .is_none_or(|(ip, (first, last))| (first..=last).contains(&ip) || first == 0);
        in_time && in_place
    }
}

/// Outside addresses of a row group, first and last.
fn outside(group: &RowGroupMetaData) -> Option<(u32, u32)> {
    match group.column(OUTSIDE).statistics() {
        Some(Statistics::Int32(range)) => {
            let (min, max) = range.min_opt().zip(range.max_opt())?;
            Some((min.cast_unsigned(), max.cast_unsigned()))
        }
        _ => None,
    }
}

/// Reads the rows that may be wanted and gives each that is to `each`, with its instance's name.
pub(crate) fn read(path: &Path, wanted: Wanted, mut each: impl FnMut(&Record, &str)) -> Result<()> {
    let file = File::open(path)?;
    let places = Index::open(&file).and_then(|index| index.places(&wanted)).unwrap_or(Places::Anywhere);
    if places == Places::Nowhere {
        return Ok(());
    }
    let reader = SerializedFileReader::new(Pieces(Arc::new(file)))?;
    for index in 0..reader.metadata().num_row_groups() {
        let group = reader.metadata().row_group(index);
        if !wanted.admits_group(group) || !is_among(&places, index, group) {
            continue;
        }
        let group = reader.get_row_group(index)?;
        let ranges = match (&places, wanted.outside, wanted.inside) {
            (Places::Slices(slices, own), ..) => told(&*group, index, slices, *own)?,
            (_, Some(outside), _) => of_address(&*group, outside, wanted.port)?,
            (_, None, Some(inside)) => of_subscriber(&*group, inside)?,
            (_, None, None) => std::iter::once(0..rows(&*group)).collect(),
        };
        if !ranges.is_empty() {
            read_ranges(&*group, ranges, wanted, &mut each)?;
        }
    }
    Ok(())
}

fn is_among(places: &Places, index: usize, group: &RowGroupMetaData) -> bool {
    match places {
        Places::Anywhere => true,
        Places::Nowhere => false,
        Places::Slices(slices, own) => {
            slices.iter().any(|slice| slice.group == index) || *own && has_own(group)
        }
    }
}

/// Can it have rows of the daemon itself?
fn has_own(group: &RowGroupMetaData) -> bool {
    outside(group).is_none_or(|(first, _)| first == 0)
}

/// Rows of a group that the index names, in order.
fn told(group: &dyn RowGroupReader, index: usize, slices: &[Slice], own: bool) -> Result<Vec<Range<usize>>> {
    let mut at = if own && has_own(group.metadata()) { own_rows(group)?.end } else { 0 };
    let mut places = Vec::new();
    places.push(0..at);
    for Slice { rows: named, .. } in slices.iter().filter(|slice| slice.group == index) {
        places.push(named.start.max(at)..named.end.min(rows(group)));
        at = named.end;
    }
    places.retain(|place| !place.is_empty());
    Ok(places)
}

/// Rows of the daemon itself.
fn own_rows(group: &dyn RowGroupReader) -> Result<Range<usize>> {
    Ok(0..numbers(group, OUTSIDE, 0..rows(group))?.partition_point(|found| *found == 0))
}

fn read_ranges(
    group: &dyn RowGroupReader,
    places: Vec<Range<usize>>,
    wanted: Wanted,
    each: &mut impl FnMut(&Record, &str),
) -> Result<()> {
    let (mut cursor, mut at) = (Cursor::open(group)?, 0);
    for place in places {
        cursor.skip(place.start - at)?;
        at = place.end;
        let chunk = cursor.take(place.len())?;
        for row in 0..chunk.times.len() {
            if let Some(record) = chunk.record(row).filter(|record| wanted.admits(record)) {
                each(&record, &String::from_utf8_lossy(chunk.instance(row)));
            }
        }
    }
    Ok(())
}

/// A file of which little is read here and there: headers of pages, most of which are skipped.
struct Pieces(Arc<File>);

/// The file from there on.
struct Rest {
    file: Arc<File>,
    at: u64,
}

impl Read for Rest {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(into, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Length for Pieces {
    fn len(&self) -> u64 {
        self.0.metadata().map_or(0, |metadata| metadata.len())
    }
}

impl ChunkReader for Pieces {
    type T = BufReader<Rest>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        const HEADER_BYTES: usize = 128;
        Ok(BufReader::with_capacity(HEADER_BYTES, Rest { file: Arc::clone(&self.0), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF("it is shorter than it says".into()));
        }
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

fn rows(group: &dyn RowGroupReader) -> usize {
    group.metadata().num_rows() as usize
}

/// Where rows may be that concern an outside address and port. Rows are sorted by them; those of the daemon itself, which
/// have none, come first.
fn of_address(group: &dyn RowGroupReader, ip: u32, port: Option<u16>) -> Result<Vec<Range<usize>>> {
    let outside = numbers(group, OUTSIDE, 0..rows(group))?;
    let none = 0..outside.partition_point(|found| *found == 0);
    let named = outside.partition_point(|found| *found < ip)..outside.partition_point(|found| *found <= ip);
    let mut places = vec![none];
    match port {
        Some(port) if !named.is_empty() => {
            let first = numbers(group, FIRST, named.clone())?;
            let last = numbers(group, LAST, named.clone())?;
            let at_port = |(first, last): (&u32, &u32)| (*first..=*last).contains(&u32::from(port));
            places.extend(runs(first.iter().zip(&last).map(at_port), named.start));
        }
        _ => places.push(named),
    }
    places.retain(|place| !place.is_empty());
    Ok(places)
}

/// Where rows may be that concern a subscriber, or the daemon itself.
fn of_subscriber(group: &dyn RowGroupReader, inside: IpAddr) -> Result<Vec<Range<usize>>> {
    let all = 0..rows(group);
    let mut places = Vec::new();
    if has_own(group.metadata()) {
        places.push(own_rows(group)?);
    }
    match inside {
        IpAddr::V4(ip) => {
            let ip = u32::from(ip);
            if !is_missing(group, INSIDE, &ip.to_le_bytes())? {
                places.extend(runs(numbers(group, INSIDE, all)?.iter().map(|found| *found == ip), 0));
            }
        }
        IpAddr::V6(ip) => {
            let mut text = 16u32.to_le_bytes().to_vec();
            text.extend(ip.octets());
            if !is_missing(group, INSIDE6, &text)? {
                let found = texts(group, INSIDE6, all)?;
                places.extend(runs(found.iter().map(|found| found.data() == ip.octets()), 0));
            }
        }
    }
    // The daemon's own rows have no subscriber: none is in both, and they come first.
    places.retain(|place| !place.is_empty());
    Ok(places)
}

/// Does the column's dictionary tell that no row has this value? `value` is as it stands there (encoding PLAIN).
fn is_missing(group: &dyn RowGroupReader, at: usize, value: &[u8]) -> Result<bool> {
    let column = group.metadata().column(at);
    if column.dictionary_page_offset().is_none() {
        // Without IPv6 addresses their column has no dictionary.
        return Ok(at == INSIDE6);
    }
    // A dictionary that grew too large is given up half-way: then it does not have all values.
    let is_whole = !column.encodings().any(|encoding| {
        matches!(encoding, Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_LENGTH_BYTE_ARRAY)
    });
    match group.get_column_page_reader(at)?.get_next_page()? {
        // Of addresses of both lengths, each behind its length: what looks like one need not be one, which costs a look.
        Some(Page::DictionaryPage { buf, .. }) if is_whole && at == INSIDE6 => {
            Ok(!buf.windows(value.len()).any(|found| found == value))
        }
        Some(Page::DictionaryPage { buf, .. }) if is_whole => {
            Ok(!buf.chunks_exact(value.len()).any(|found| found == value))
        }
        _ => Ok(false),
    }
}

/// Ranges of neighbours that match, the first at `start`.
fn runs(matching: impl Iterator<Item = bool>, start: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (at, _) in (start..).zip(matching).filter(|(_, matches)| *matches) {
        match runs.last_mut().filter(|run| run.end == at) {
            Some(run) => run.end = at + 1,
            None => runs.push(at..at + 1),
        }
    }
    runs
}

/// All rows of a file, in its order.
pub(crate) struct Sorted {
    reader: SerializedFileReader<File>,
    group: usize,
    open: Option<Cursor>,
    /// Rows left in the open group.
    left: usize,
}

impl Sorted {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let reader = SerializedFileReader::new(File::open(path)?)?;
        Ok(Self { reader, group: 0, open: None, left: 0 })
    }

    /// Rows in all.
    pub(crate) fn rows(&self) -> u64 {
        self.reader.metadata().file_metadata().num_rows().cast_unsigned()
    }

    /// Was it written to hold IPv6 addresses?
    pub(crate) fn has_six(&self) -> bool {
        let has_dictionary =
            |group: &RowGroupMetaData, at| group.column(at).dictionary_page_offset().is_some();
        let groups = self.reader.metadata().row_groups();
        groups.iter().any(|group| has_dictionary(group, INSIDE6) || has_dictionary(group, REMOTE6))
    }

    /// Gives the next rows to `each`, at most so many, with their instances' names; false at the end.
    pub(crate) fn next(&mut self, most: usize, mut each: impl FnMut(Record, &[u8])) -> Result<bool> {
        while self.left == 0 {
            if self.group >= self.reader.num_row_groups() {
                return Ok(false);
            }
            let group = self.reader.get_row_group(self.group)?;
            self.left = rows(&*group);
            self.open = Some(Cursor::open(&*group)?);
            self.group += 1;
        }
        let Some(cursor) = &mut self.open else { return Ok(false) };
        let count = self.left.min(most);
        let chunk = cursor.take(count)?;
        self.left -= count;
        for row in 0..count {
            let record = chunk.record(row).ok_or_else(|| {
                ParquetError::General("it has an event of a kind that this version does not know".into())
            })?;
            each(record, chunk.instance(row));
        }
        Ok(true)
    }
}

/// The open columns of a row group, all at the same row.
struct Cursor {
    time: ColumnReaderImpl<Int64Type>,
    /// Instance, inside6, remote6.
    texts: [ColumnReaderImpl<ByteArrayType>; 3],
    numbers: Vec<ColumnReaderImpl<Int32Type>>,
}

impl Cursor {
    fn open(group: &dyn RowGroupReader) -> Result<Self> {
        let [instance, inside6, remote6] = [INSTANCE, INSIDE6, REMOTE6].map(|at| text_column(group, at));
        let numbers = NUMBERS.iter().map(|at| number_column(group, *at)).collect::<Result<_>>()?;
        Ok(Self { time: time_column(group)?, texts: [instance?, inside6?, remote6?], numbers })
    }

    fn skip(&mut self, rows: usize) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        self.time.skip_records(rows)?;
        for column in &mut self.texts {
            column.skip_records(rows)?;
        }
        for column in &mut self.numbers {
            column.skip_records(rows)?;
        }
        Ok(())
    }

    /// The next rows.
    fn take(&mut self, rows: usize) -> Result<Chunk> {
        let [instance, inside6, remote6] = &mut self.texts;
        Ok(Chunk {
            times: some(&mut self.time, rows)?,
            texts: [some(instance, rows)?, some(inside6, rows)?, some(remote6, rows)?],
            numbers: self.numbers.iter_mut().map(|column| some(column, rows)).collect::<Result<_>>()?,
        })
    }
}

/// Some rows, column by column.
struct Chunk {
    times: Vec<i64>,
    texts: [Vec<ByteArray>; 3],
    numbers: Vec<Vec<i32>>,
}

impl Chunk {
    /// `None` for a kind that this version does not know.
    fn record(&self, row: usize) -> Option<Record> {
        let at = |column: usize| {
            self.numbers.get(column).and_then(|column| column.get(row)).copied().unwrap_or(0).cast_unsigned()
        };
        let [_, inside6, remote6] = &self.texts;
        let ip = |four: u32, six: Option<&ByteArray>| {
            let six = six.and_then(|six| <[u8; 16]>::try_from(six.data()).ok());
            six.map_or_else(|| Ipv4Addr::from(four).into(), |six| IpAddr::V6(Ipv6Addr::from(six)))
        };
        Some(Record {
            unix_ms: self.times.get(row)?.cast_unsigned(),
            kind: Kind::from_u8(at(0) as u8)?,
            instance: 0,
            inside: ip(at(1), inside6.get(row)),
            inside_port: at(2) as u16,
            outside: at(3),
            first: at(4) as u16,
            last: at(5) as u16,
            protocol: at(6) as u8,
            remote: ip(at(7), remote6.get(row)),
            remote4: at(7),
            remote_port: at(8) as u16,
            worker: at(9) as u8,
            pool: at(10) as u16,
            detail: at(11) as u8,
            value: at(12),
            count: at(13),
            reason: Reason::from_index(at(14) as usize),
        })
    }

    fn instance(&self, row: usize) -> &[u8] {
        let [instance, ..] = &self.texts;
        instance.get(row).map(ByteArray::data).unwrap_or_default()
    }
}

/// The next rows of a column; a column that ends before is an error.
fn some<T: DataType>(column: &mut ColumnReaderImpl<T>, rows: usize) -> Result<Vec<T::T>> {
    let mut values = Vec::with_capacity(rows);
    column.read_records(rows, None, None, &mut values)?;
    if values.len() < rows {
        return Err(ParquetError::EOF("a column is shorter than the file says".into()));
    }
    Ok(values)
}

/// Some rows of a column; whole pages before them are not decoded.
fn values<T: DataType>(mut column: ColumnReaderImpl<T>, rows: Range<usize>) -> Result<Vec<T::T>> {
    column.skip_records(rows.start)?;
    some(&mut column, rows.len())
}

fn numbers(group: &dyn RowGroupReader, at: usize, rows: Range<usize>) -> Result<Vec<u32>> {
    Ok(values(number_column(group, at)?, rows)?.into_iter().map(i32::cast_unsigned).collect())
}

fn texts(group: &dyn RowGroupReader, at: usize, rows: Range<usize>) -> Result<Vec<ByteArray>> {
    values(text_column(group, at)?, rows)
}

fn number_column(group: &dyn RowGroupReader, at: usize) -> Result<ColumnReaderImpl<Int32Type>> {
    match group.get_column_reader(at)? {
        ColumnReader::Int32ColumnReader(column) => Ok(column),
        _ => Err(foreign(at)),
    }
}

fn text_column(group: &dyn RowGroupReader, at: usize) -> Result<ColumnReaderImpl<ByteArrayType>> {
    match group.get_column_reader(at)? {
        ColumnReader::ByteArrayColumnReader(column) => Ok(column),
        _ => Err(foreign(at)),
    }
}

fn time_column(group: &dyn RowGroupReader) -> Result<ColumnReaderImpl<Int64Type>> {
    match group.get_column_reader(TIME)? {
        ColumnReader::Int64ColumnReader(column) => Ok(column),
        _ => Err(foreign(TIME)),
    }
}

fn foreign(at: usize) -> ParquetError {
    ParquetError::General(format!("column {at} is of another type than this program writes"))
}
