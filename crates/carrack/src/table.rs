//! Tables that line up: a header always, numbers to the right, nothing wrapped, no trailing blanks.

use std::io::{self, Write};

/// One column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// Numbers stand to the right.
    pub right: bool,
    /// Least width.
    pub width: usize,
    /// Not there unless a row has something in it; the last columns may be so.
    pub optional: bool,
}

/// A column of words.
pub const fn left(name: &'static str) -> Column {
    Column { name, right: false, width: 0, optional: false }
}

/// A column of numbers.
pub const fn right(name: &'static str) -> Column {
    Column { name, right: true, width: 0, optional: false }
}

impl Column {
    /// The same, at least so wide.
    pub const fn wide(self, width: usize) -> Self {
        Self { width, ..self }
    }

    /// The same, but not there while all its cells are empty.
    pub const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }
}

/// A table whose rows are all known: columns are as wide as their widest cell.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Header and rows, or only `empty` when there are none.
    pub fn print(&self, out: &mut dyn Write, empty: &str) -> io::Result<()> {
        let mut columns = self.columns.clone();
        widen(&mut columns, &self.rows);
        let mut stream = Streaming::new(&columns);
        for row in &self.rows {
            stream.row(out, row)?;
        }
        stream.finish(out, empty)
    }
}

/// Rows of a streamed table that say how wide its columns are.
const MEASURED_ROWS: usize = 64;

/// A table written row by row, none of them kept but the first few: columns are as wide as the widest cell of those.
pub struct Streaming {
    columns: Vec<Column>,
    first: Vec<Vec<String>>,
    started: bool,
}

impl Streaming {
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), first: Vec::new(), started: false }
    }

    pub fn row<S: AsRef<str>>(&mut self, out: &mut dyn Write, cells: &[S]) -> io::Result<()> {
        if self.started {
            return self.line(out, cells.iter().map(AsRef::as_ref));
        }
        self.first.push(cells.iter().map(|cell| cell.as_ref().to_owned()).collect());
        if self.first.len() < MEASURED_ROWS { Ok(()) } else { self.start(out) }
    }

    /// Widens the columns, writes the header and the rows kept so far.
    fn start(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let first = std::mem::take(&mut self.first);
        widen(&mut self.columns, &first);
        hide(&mut self.columns, &first);
        self.header(out)?;
        first.iter().try_for_each(|row| self.line(out, row.iter().map(AsRef::as_ref)))
    }

    /// When there was no row: the header, then `empty` in brackets.
    pub fn finish(&mut self, out: &mut dyn Write, empty: &str) -> io::Result<()> {
        if self.started {
            return Ok(());
        }
        if !self.first.is_empty() {
            return self.start(out);
        }
        hide(&mut self.columns, &[]);
        self.header(out)?;
        writeln!(out, "({empty})")
    }

    fn header(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.started = true;
        self.line(out, self.columns.iter().map(|column| column.name))
    }

    fn line<'a>(&self, out: &mut dyn Write, cells: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let mut line = String::with_capacity(128);
        for (i, (column, cell)) in self.columns.iter().zip(cells).enumerate() {
            let pad = column.width.max(width(column.name)).saturating_sub(width(cell));
            if i > 0 {
                line.push_str("  ");
            }
            if column.right {
                line.extend(core::iter::repeat_n(' ', pad));
            }
            line.push_str(cell);
            if !column.right {
                line.extend(core::iter::repeat_n(' ', pad));
            }
        }
        writeln!(out, "{}", line.trim_end())
    }
}

/// Makes columns as wide as the widest cell of these rows.
fn widen(columns: &mut [Column], rows: &[Vec<String>]) {
    for (i, column) in columns.iter_mut().enumerate() {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| width(cell));
        column.width = cells.max().unwrap_or(0).max(column.width);
    }
}

/// Takes the heading off optional columns in which these rows have nothing.
fn hide(columns: &mut [Column], rows: &[Vec<String>]) {
    for (i, column) in columns.iter_mut().enumerate().filter(|(_, column)| column.optional) {
        if rows.iter().filter_map(|row| row.get(i)).all(String::is_empty) {
            column.name = "";
        }
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(print: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        print(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn columns_line_up_and_numbers_stand_right() {
        let mut table = Table::new(&[left("NAME"), right("COUNT"), left("WHY")]);
        table.row(vec!["a".into(), "1".into(), "x".into()]);
        table.row(vec!["longer".into(), "1,000,000".into(), String::new()]);
        let expected = "NAME        COUNT  WHY\na               1  x\nlonger  1,000,000\n";
        assert_eq!(text(|out| table.print(out, "none")), expected);
    }

    #[test]
    fn an_empty_table_has_a_header_and_says_so() {
        let table = Table::new(&[left("NAME"), right("COUNT")]);
        assert_eq!(text(|out| table.print(out, "no sessions match")), "NAME  COUNT\n(no sessions match)\n");
    }

    #[test]
    fn an_optional_column_is_there_only_when_a_row_has_something_in_it() {
        let shown = |cells: &[&str]| {
            let mut table = Streaming::new(&[left("A"), left("PREFIX").optional()]);
            text(|out| {
                cells.iter().try_for_each(|cell| table.row(out, &["x", cell]))?;
                table.finish(out, "none")
            })
        };
        assert_eq!(shown(&[]), "A\n(none)\n");
        assert_eq!(shown(&["", ""]), "A\nx\nx\n");
        assert_eq!(shown(&["", "p/96"]), "A  PREFIX\nx\nx  p/96\n");
    }

    #[test]
    fn the_first_rows_of_a_stream_make_its_columns_and_a_longer_one_later_pushes_only_itself() {
        let mut table = Streaming::new(&[left("A").wide(3), right("B").wide(3)]);
        let shown = text(|out| {
            table.row(out, &["xxxx", "1"])?;
            (1..MEASURED_ROWS).try_for_each(|_| table.row(out, &["x", "1"]))?;
            table.row(out, &["xxxxxx", "1"])?;
            table.finish(out, "none")
        });
        assert!(shown.starts_with("A       B\nxxxx    1\nx       1\n"), "{shown}");
        assert!(shown.ends_with("x       1\nxxxxxx    1\n"), "{shown}");
    }
}
