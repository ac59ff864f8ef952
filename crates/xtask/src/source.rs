//! Finding source files, and telling code from comments, strings and tests.

#[cfg(test)]
mod tests;

use anyhow::{Context, Result};
use std::path::Path;

/// A file above this size is data, not source.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A text file of the project.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path from the workspace root, with `/`.
    pub path: String,
    /// What it says.
    pub text: String,
}

impl SourceFile {
    /// Whether the whole file exists to test: by its path, or because it belongs to the test kit or to the
    /// checks that the lab runs with real programs.
    pub fn is_test(&self) -> bool {
        let parts: Vec<&str> = self.path.split('/').collect();
        let is_kit = parts.first() == Some(&"testkit") || parts.starts_with(&["crates", "testkit"]);
        let is_check = parts.starts_with(&["crates", "lab", "src", "checks"]);
        is_kit || is_check || parts.iter().any(|part| matches!(*part, "tests" | "tests.rs"))
    }

    /// Whether the file is a benchmark, an example or a fuzz target.
    pub fn is_bench(&self) -> bool {
        self.path.split('/').any(|part| matches!(part, "benches" | "examples" | "fuzz"))
    }

    /// The directory name below `crates/`, if the file is in a crate.
    pub fn crate_dir(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// The number of the line (from 1) at which an inline `#[cfg(test)] mod … {` starts, if any. By convention
    /// it is the last item of its file, so everything from there on is test.
    pub fn test_from_line(&self) -> Option<usize> {
        let lines: Vec<&str> = self.text.lines().collect();
        (0..lines.len()).find(|index| starts_test_module(&lines[*index..])).map(|index| index + 1)
    }

    /// Whether the line (from 1) is test rather than code.
    pub fn is_test_line(&self, line: usize) -> bool {
        self.is_test() || self.test_from_line().is_some_and(|from| line >= from)
    }
}

fn starts_test_module(lines: &[&str]) -> bool {
    if lines.first().map(|line| line.trim()) != Some("#[cfg(test)]") {
        return false;
    }
    let item = lines.iter().skip(1).map(|line| line.trim()).find(|line| !line.starts_with("#["));
    item.is_some_and(|line| line.contains("mod ") && line.ends_with('{'))
}

/// All text files below the given directories of `root`, in order of their paths. Hidden directories, `target`
/// and files that are not UTF-8 or above 1 MiB are left out, as are directories that do not exist.
///
/// # Errors
/// When a directory or file cannot be read.
pub fn text_files(root: &Path, below: &[&str]) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    for directory in below {
        let path = root.join(directory);
        if path.is_dir() {
            collect(root, &path, &mut files)?;
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
        let path = entry.path();
        let name = entry.file_name();
        let kind = entry.file_type().with_context(|| format!("reading {}", path.display()))?;
        let is_skipped = name.to_string_lossy().starts_with('.') || name == "target";
        if is_skipped || kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            collect(root, &path, files)?;
        } else if entry.metadata().is_ok_and(|metadata| metadata.len() <= FILE_BYTES_MAX) {
            let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            if let Ok(text) = String::from_utf8(bytes) {
                let relative = path.strip_prefix(root).unwrap_or(&path);
                files.push(SourceFile { path: relative.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
    Ok(())
}

/// Rust source with the insides of comments, strings and character literals blanked; lines keep their numbers.
pub fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let length = blank_length(&bytes[at..], at.checked_sub(1).map(|before| bytes[before]));
        let step = length.max(1);
        for byte in &bytes[at..at + step] {
            out.push(if length == 0 || *byte == b'\n' { *byte } else { b' ' });
        }
        at += step;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// How many octets from the start of `rest` are a comment or literal; 0 when code starts here.
fn blank_length(rest: &[u8], before: Option<u8>) -> usize {
    let is_in_word = before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => block_comment_length(rest),
        [b'"', ..] => quoted_length(rest, 0),
        [b'b', b'"', ..] if !is_in_word => quoted_length(rest, 1),
        [b'r', b'"' | b'#', ..] if !is_in_word => raw_length(rest, 1),
        [b'b', b'r', b'"' | b'#', ..] if !is_in_word => raw_length(rest, 2),
        [b'\'', ..] => character_length(rest),
        _ => 0,
    }
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0usize, 0usize);
    while at < rest.len() {
        match &rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn quoted_length(rest: &[u8], prefix: usize) -> usize {
    let mut at = prefix + 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

fn raw_length(rest: &[u8], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(prefix + hashes) != Some(&b'"') {
        // A raw identifier, `r#type`.
        return 0;
    }
    let end = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
    let body = prefix + hashes + 1;
    let found = rest[body..].windows(end.len()).position(|window| window == end);
    found.map_or(rest.len(), |at| body + at + end.len())
}

/// A character literal, told from a lifetime by its closing quote.
fn character_length(rest: &[u8]) -> usize {
    if rest.get(1) == Some(&b'\\') {
        return rest.iter().skip(3).position(|byte| *byte == b'\'').map_or(0, |at| at + 4);
    }
    let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
        .or_else(|error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]))
        .ok()
        .and_then(|text| text.chars().next())
        .map_or(0, char::len_utf8);
    if width > 0 && rest.get(1 + width) == Some(&b'\'') { width + 2 } else { 0 }
}

/// Whether `code` has `word` standing alone, not as part of a longer identifier.
pub fn has_word(code: &str, word: &str) -> bool {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    code.match_indices(word).any(|(at, _)| {
        let bytes = code.as_bytes();
        !is_word(at.checked_sub(1).and_then(|before| bytes.get(before)))
            && !is_word(bytes.get(at + word.len()))
    })
}
