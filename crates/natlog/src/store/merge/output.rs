//! What is written: files of some outside addresses each.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;

use super::Unmerged;
use crate::record::Record;
use crate::store::columns::{GROUP_ROWS, Writer};

/// Rows of a file: its index, which a question reads first, has 19 entries for each 131,072 of them.
const FILE_ROWS: u64 = 64 * GROUP_ROWS as u64;

/// Takes rows in order and writes files of them into a directory.
pub(crate) struct Output<'a> {
    dir: &'a Path,
    has_six: bool,
    rows: Vec<Record>,
    file: Option<Unfinished>,
    files: usize,
    events: u64,
}

/// A file that has no name yet that says what is in it.
struct Unfinished {
    path: PathBuf,
    writer: Writer<File>,
    rows: u64,
    from_ms: u64,
    to_ms: u64,
    first: u32,
    last: u32,
}

impl<'a> Output<'a> {
    pub(crate) fn new(dir: &'a Path, has_six: bool) -> Self {
        Self { dir, has_six, rows: Vec::with_capacity(GROUP_ROWS), file: None, files: 0, events: 0 }
    }

    /// Takes the next row; true when it wrote a row group.
    pub(crate) fn push(&mut self, record: Record, names: &[ByteArray]) -> Result<bool, Unmerged> {
        // Events of the daemon itself get a small file of their own: every question needs them, and them only.
        let was_none = match self.rows.last() {
            Some(last) => last.outside == 0,
            None => self.file.as_ref().is_some_and(|file| file.last == 0),
        };
        if was_none && record.outside != 0 {
            self.group(names)?;
            self.finish_file()?;
        }
        self.rows.push(record);
        if self.rows.len() < GROUP_ROWS {
            return Ok(false);
        }
        self.group(names)?;
        if self.file.as_ref().is_some_and(|file| file.rows >= FILE_ROWS) {
            self.finish_file()?;
        }
        Ok(true)
    }

    /// Number of files, and of rows in them.
    pub(crate) fn finish(mut self, names: &[ByteArray]) -> Result<(usize, u64), Unmerged> {
        self.group(names)?;
        self.finish_file()?;
        Ok((self.files, self.events))
    }

    fn group(&mut self, names: &[ByteArray]) -> Result<(), Unmerged> {
        let (Some(first), Some(last)) = (self.rows.first(), self.rows.last()) else { return Ok(()) };
        let failed = |error: ParquetError| Unmerged::Failed(error.to_string());
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let path = self.dir.join(format!("{}.unfinished", self.files));
                let writer =
                    Writer::new(File::create(&path).map_err(|error| failed(error.into()))?, self.has_six);
                self.file.insert(Unfinished {
                    path,
                    writer: writer.map_err(failed)?,
                    rows: 0,
                    from_ms: u64::MAX,
                    to_ms: 0,
                    first: first.outside,
                    last: 0,
                })
            }
        };
        file.writer.group(&self.rows, names).map_err(failed)?;
        file.rows += self.rows.len() as u64;
        file.last = last.outside;
        for record in &self.rows {
            file.from_ms = file.from_ms.min(record.unix_ms);
            file.to_ms = file.to_ms.max(record.unix_ms);
        }
        self.rows.clear();
        Ok(())
    }

    /// The file gets its name when it is complete on disk.
    fn finish_file(&mut self) -> Result<(), Unmerged> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let written = file.writer.finish().map_err(|error| Unmerged::Failed(error.to_string()))?;
        let [first, last] = [file.first, file.last].map(Ipv4Addr::from);
        let name = format!("{}-{}-{first}-{last}-{}.parquet", file.from_ms, file.to_ms, self.files);
        written
            .sync_all()
            .and_then(|()| std::fs::rename(&file.path, self.dir.join(name)))
            .map_err(|error| Unmerged::Failed(error.to_string()))?;
        self.files += 1;
        self.events += file.rows;
        Ok(())
    }
}
