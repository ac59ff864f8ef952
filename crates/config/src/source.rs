//! Places in the config text, and errors and warnings that point at them.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Widest piece of a source line that an error shows, in characters.
const SNIPPET_CHARS_MAX: usize = 120;

/// A stretch of the config text, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { start: range.start, end: range.end }
    }
}

/// A value and where it was written; the start of the file for a default.
#[derive(Debug, Clone, Default)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

impl<T> At<T> {
    pub(crate) fn new(value: T, span: impl Into<Span>) -> Self {
        Self { value, span: span.into() }
    }
}

impl<T> Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    /// Two values are the same wherever they are written.
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T: fmt::Display> fmt::Display for At<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// How bad a [`Diagnostic`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The config is refused.
    Error,
    /// The config is taken, but goes against a recommendation.
    Warning,
}

/// Something to say about a place in the config. Displays like a compiler's message:
///
/// ```text
/// carrack.toml:12:3: error: unknown key `adress` in [[interface]]; did you mean `address`?
///    |
/// 12 |   adress = ["10.0.0.1/24"]
///    |   ^^^^^^
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Name of the file.
    pub file: String,
    /// Line, from 1; 0 when the message is about the whole file.
    pub line: usize,
    /// Column in characters, from 1; 0 when the message is about the whole file.
    pub column: usize,
    /// One sentence: what is wrong and what to do.
    pub message: String,
    /// The line and what to underline in it.
    snippet: Option<Snippet>,
}

/// Why a config is refused.
pub type ConfigError = Diagnostic;
/// What is questionable about a config that is taken.
pub type Warning = Diagnostic;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Snippet {
    text: String,
    before: usize,
    carets: usize,
}

impl Diagnostic {
    /// About a file as a whole.
    pub(crate) fn whole(file: &str, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            file: file.to_owned(),
            line: 0,
            column: 0,
            message: message.into(),
            snippet: None,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        if self.line == 0 {
            return write!(f, "{}: {word}: {}", self.file, self.message);
        }
        write!(f, "{}:{}:{}: {word}: {}", self.file, self.line, self.column, self.message)?;
        let Some(snippet) = &self.snippet else { return Ok(()) };
        let number = self.line.to_string();
        let gutter = number.len();
        write!(f, "\n{:gutter$} |\n{number} | {}\n", "", snippet.text)?;
        write!(
            f,
            "{:gutter$} | {:before$}{:^<carets$}",
            "",
            "",
            "",
            before = snippet.before,
            carets = snippet.carets
        )
    }
}

impl std::error::Error for Diagnostic {}

/// The text of a config and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
}

impl Source {
    pub(crate) fn new(name: &str, text: &str) -> Self {
        Self { name: name.to_owned(), text: text.into() }
    }

    /// The line of a place, from 1.
    pub(crate) fn line(&self, span: Span) -> usize {
        let head = &self.text[..floor_char_boundary(&self.text, span.start)];
        head.bytes().filter(|b| *b == b'\n').count() + 1
    }

    /// A message about the place at `span`.
    pub(crate) fn at(&self, severity: Severity, span: Span, message: String) -> Diagnostic {
        let start = floor_char_boundary(&self.text, span.start);
        let head = &self.text[..start];
        let line_start = head.rfind('\n').map_or(0, |i| i + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |i| start + i);
        let end = floor_char_boundary(&self.text, span.end).clamp(start, line_end);
        Diagnostic {
            severity,
            file: self.name.clone(),
            line: self.line(span),
            column: self.text[line_start..start].chars().count() + 1,
            message,
            snippet: Some(snippet(
                &self.text[line_start..start],
                &self.text[start..end],
                &self.text[end..line_end],
            )),
        }
    }
}

/// The largest character boundary not above `index`.
fn floor_char_boundary(text: &str, index: usize) -> usize {
    let mut index = index.min(text.len());
    while !text.is_char_boundary(index) {
        index -= 1;
    }
    index
}

/// A window of the line that holds the marked part, control characters shown as spaces.
fn snippet(before: &str, marked: &str, after: &str) -> Snippet {
    let skip = before.chars().count().saturating_sub(SNIPPET_CHARS_MAX / 2);
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let lead: String = before.chars().skip(skip).map(clean).collect();
    let before = lead.chars().count();
    let rest = marked.chars().chain(after.chars()).map(clean);
    let text: String = lead.chars().chain(rest).take(SNIPPET_CHARS_MAX).collect();
    let carets = marked.chars().count().clamp(1, (SNIPPET_CHARS_MAX - before).max(1));
    Snippet { text: text.trim_end().to_owned(), before, carets }
}
