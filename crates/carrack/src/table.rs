//! Tables that line up: a header always, numbers to the right, nothing wrapped, no trailing blanks.

use std::io::{self, Write};

/// One column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// Numbers stand to the right.
    pub right: bool,
    /// Least width; what streaming tables use, and a longer cell pushes its own row only.
    pub width: usize,
}

/// A column of words.
pub const fn left(name: &'static str) -> Column {
    Column { name, right: false, width: 0 }
}

/// A column of numbers.
pub const fn right(name: &'static str) -> Column {
    Column { name, right: true, width: 0 }
}

impl Column {
    /// The same, at least so wide.
    pub const fn wide(self, width: usize) -> Self {
        Self { width, ..self }
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
        for (i, column) in columns.iter_mut().enumerate() {
            let cells = self.rows.iter().filter_map(|row| row.get(i)).map(|cell| width(cell));
            column.width = cells.max().unwrap_or(0).max(column.width);
        }
        let mut stream = Streaming::new(&columns);
        for row in &self.rows {
            stream.row(out, row)?;
        }
        stream.finish(out, empty)
    }
}

/// A table written row by row, none of them kept.
pub struct Streaming {
    columns: Vec<Column>,
    started: bool,
}

impl Streaming {
    pub fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), started: false }
    }

    pub fn row<S: AsRef<str>>(&mut self, out: &mut dyn Write, cells: &[S]) -> io::Result<()> {
        if !self.started {
            self.header(out)?;
        }
        self.line(out, cells.iter().map(AsRef::as_ref))
    }

    /// When there was no row: the header, then `empty` in brackets.
    pub fn finish(&mut self, out: &mut dyn Write, empty: &str) -> io::Result<()> {
        if self.started {
            return Ok(());
        }
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
    fn a_streamed_row_that_is_too_long_pushes_only_itself() {
        let mut table = Streaming::new(&[left("A").wide(3), right("B").wide(3)]);
        let shown = text(|out| {
            table.row(out, &["x", "1"])?;
            table.row(out, &["xxxxx", "1"])?;
            table.finish(out, "none")
        });
        assert_eq!(shown, "A      B\nx      1\nxxxxx    1\n");
    }
}
