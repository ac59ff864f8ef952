//! Citations of requirements: `RFC 4787 REQ-8`, `RFC 4787 REQ-13a`, `RFC 7857 §2.1`, and of one of several in a section:
//! `RFC 7915 §4 (order)`.

#[cfg(test)]
mod tests;

use crate::source::SourceFile;

/// One place that cites a requirement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Citation {
    /// Number of the RFC.
    pub rfc: u32,
    /// The requirement: `REQ-8`, `REQ-13a` or `§2.1`.
    pub id: String,
    /// Path of the file from the workspace root.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// Whether a test cites it; else code does.
    pub is_test: bool,
    /// The function that cites it, or that stands behind the citing comment.
    pub function: Option<String>,
}

/// All citations in a file.
pub fn find(file: &SourceFile) -> Vec<Citation> {
    let lines: Vec<&str> = file.text.lines().collect();
    let is_rust = file.path.ends_with(".rs");
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        for (rfc, id) in in_line(line) {
            found.push(Citation {
                rfc,
                id,
                path: file.path.clone(),
                line: index + 1,
                is_test: file.is_test_line(index + 1),
                function: if is_rust { function_at(&lines, index) } else { None },
            });
        }
    }
    found
}

/// The citations in one line: RFC number and requirement. A list behind one number counts: `RFC 5508 REQ-4, REQ-5`. What has a
/// word in brackets behind it is there a second time, with that.
pub fn in_line(line: &str) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for (at, mark) in line.match_indices("RFC ") {
        let Some((number, mut rest)) = line[at + mark.len()..].split_once(' ') else { continue };
        let Ok(rfc) = number.parse() else { continue };
        while let Some((id, mut behind)) = requirement(rest) {
            found.push((rfc, id.clone()));
            if let Some((word, further)) = qualifier(behind) {
                found.push((rfc, format!("{id} ({word})")));
                behind = further;
            }
            let Some(next) =
                [", ", "; ", " and "].iter().find_map(|separator| behind.strip_prefix(separator))
            else {
                break;
            };
            rest = next;
        }
    }
    found
}

/// `REQ-8a…` or `§2.1…`: the requirement and what follows it.
fn requirement(text: &str) -> Option<(String, &str)> {
    if let Some(rest) = text.strip_prefix("REQ-") {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_alphanumeric).count();
        let is_sound = digits > 0
            && letters <= 1
            && rest[digits..].bytes().take(letters).all(|b| b.is_ascii_lowercase());
        return is_sound.then(|| (format!("REQ-{}", &rest[..digits + letters]), &rest[digits + letters..]));
    }
    let rest = text.strip_prefix('§')?;
    let length = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    // A full stop behind the number ends the sentence, not the section.
    let section = rest[..length].trim_end_matches('.');
    (!section.is_empty()).then(|| (format!("§{section}"), &rest[section.len()..]))
}

/// A word in brackets behind a requirement, which may say which of a section's is meant, and what follows it.
fn qualifier(behind: &str) -> Option<(&str, &str)> {
    let (word, further) = behind.strip_prefix(" (")?.split_once(')')?;
    word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then_some((word, further))
}

/// The function a line belongs to: the next one when the line is a comment or attribute right above it, else the
/// last one that starts before it.
fn function_at(lines: &[&str], index: usize) -> Option<String> {
    let is_above = |line: &&&str| line.trim().starts_with("//") || line.trim().starts_with("#[");
    if is_above(&&lines[index]) {
        let behind = lines[index..].iter().find(|line| !is_above(line));
        if let Some(name) = behind.and_then(|line| function_name(line)) {
            return Some(name);
        }
    }
    lines[..=index].iter().rev().find_map(|line| function_name(line))
}

/// The name a line defines with `fn`, if it does.
fn function_name(line: &str) -> Option<String> {
    let line = line.trim_start();
    if line.starts_with("//") {
        return None;
    }
    let at = if line.starts_with("fn ") { 0 } else { line.find(" fn ").map(|at| at + 1)? };
    let is_definition = line[..at].split_whitespace().all(|word| {
        matches!(word, "async" | "const" | "unsafe" | "extern" | "\"C\"") || word.starts_with("pub")
    });
    let name: String = line[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (is_definition && !name.is_empty()).then_some(name)
}
