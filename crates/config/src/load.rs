//! From file or text to a config, or to all that is wrong with it.

use std::path::Path;

use toml::de::DeTable;

use crate::model::Config;
use crate::read::{Fault, Notes, Section};
use crate::source::{ConfigError, Diagnostic, Severity, Source, Warning};
use crate::{check, parse};

/// Largest config file, bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Most faults reported at once; more would not be read.
const FAULTS_MAX: usize = 200;

impl Config {
    /// Reads and validates a file.
    ///
    /// # Errors
    /// Everything that is wrong with it, in file order; at least one.
    pub fn from_file(path: impl AsRef<Path>) -> Result<(Self, Vec<Warning>), Vec<ConfigError>> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let whole = |message: String| vec![Diagnostic::whole(&name, message)];
        let cannot = |error: std::io::Error| {
            whole(format!("cannot be read: {error}; check the path and its permissions"))
        };
        let size = std::fs::metadata(path).map_err(cannot)?.len();
        if size > FILE_BYTES_MAX {
            return Err(whole(format!("{size} bytes long; a config has at most {FILE_BYTES_MAX}")));
        }
        let bytes = std::fs::read(path).map_err(cannot)?;
        let text =
            String::from_utf8(bytes).map_err(|_| whole("is not UTF-8 text; save it as UTF-8".to_owned()))?;
        Self::from_str(&name, &text)
    }

    /// Validates a text; `name` stands for the file in messages.
    ///
    /// # Errors
    /// Everything that is wrong with it, in file order; at least one.
    pub fn from_str(name: &str, text: &str) -> Result<(Self, Vec<Warning>), Vec<ConfigError>> {
        let source = Source::new(name, text);
        let notes = Notes::default();
        let config = read(&notes, &source);
        let mut faults = notes.faults.into_inner();
        faults.sort_by_key(|fault| fault.span.start);
        let (errors, warnings): (Vec<Fault>, Vec<Fault>) =
            faults.into_iter().partition(|fault| fault.severity == Severity::Error);
        match config {
            Some(mut config) if errors.is_empty() => {
                config.facts = notes.facts.into_inner();
                Ok((config, diagnostics(&source, warnings)))
            }
            _ => Err(diagnostics(&source, errors)),
        }
    }
}

/// Syntax first: a tree that was mended after a syntax error would give rise to faults that are none.
fn read(notes: &Notes, source: &Source) -> Option<Config> {
    let (root, syntax) = DeTable::parse_recoverable(&source.text);
    for error in &syntax {
        let span = error.span().unwrap_or(0..0);
        notes.error(
            span.into(),
            format!("TOML syntax: {}; {}", error.message(), syntax_hint(error.message())),
        );
    }
    if !syntax.is_empty() {
        return None;
    }
    let config = parse::config(notes, &Section::root(notes, root.get_ref()), source.clone());
    check::config(notes, &config);
    Some(config)
}

fn syntax_hint(message: &str) -> &'static str {
    if message.contains("duplicate") {
        "remove one of the two"
    } else if message.contains("string") {
        "text stands in double quotes on one line"
    } else {
        "a line is `key = value`, `[table]` or `[[list]]`, and text stands in double quotes"
    }
}

fn diagnostics(source: &Source, faults: Vec<Fault>) -> Vec<Diagnostic> {
    let total = faults.len();
    let mut shown: Vec<Diagnostic> = faults
        .into_iter()
        .take(FAULTS_MAX)
        .map(|fault| source.at(fault.severity, fault.span, fault.message))
        .collect();
    if let (true, Some(first)) = (total > FAULTS_MAX, shown.first()) {
        let severity = first.severity;
        let mut more =
            Diagnostic::whole(&source.name, format!("and {} more; mend these first", total - FAULTS_MAX));
        more.severity = severity;
        shown.push(more);
    }
    shown
}
