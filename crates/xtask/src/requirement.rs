//! The requirements as `docs/requirements/*.toml` list them.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// Where the lists are, from the workspace root.
pub const DIRECTORY: &str = "docs/requirements";

/// One RFC and what it asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Number.
    pub rfc: u32,
    /// Title.
    pub title: String,
    /// Series and date.
    pub published: String,
    /// What it asks for, in its order.
    #[serde(rename = "requirement")]
    pub requirements: Vec<Requirement>,
}

/// One requirement.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// `REQ-8`, `REQ-13a` or `§2.1`, as it is cited.
    pub id: String,
    /// How strongly it is asked for.
    pub level: Level,
    /// What is asked for, in one sentence.
    pub text: String,
    /// What Carrack does about it.
    pub state: State,
    /// How, or why not.
    pub why: String,
    /// RFCs whose tables show it, so that it needs no citation of its own.
    #[serde(default)]
    pub see: Vec<u32>,
}

/// How strongly something is asked for (RFC 2119).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[allow(missing_docs)]
pub enum Level {
    #[serde(rename = "MUST")]
    Must,
    #[serde(rename = "MUST NOT")]
    MustNot,
    #[serde(rename = "SHOULD")]
    Should,
    #[serde(rename = "SHOULD NOT")]
    ShouldNot,
    #[serde(rename = "RECOMMENDED")]
    Recommended,
    #[serde(rename = "MAY")]
    May,
}

impl Level {
    /// As the RFC writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Must => "MUST",
            Level::MustNot => "MUST NOT",
            Level::Should => "SHOULD",
            Level::ShouldNot => "SHOULD NOT",
            Level::Recommended => "RECOMMENDED",
            Level::May => "MAY",
        }
    }
}

/// What Carrack does about a requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Fulfilled without configuring anything.
    Met,
    /// Fulfilled when configured so.
    Option,
    /// Deliberately not fulfilled.
    Declined,
    /// Not fulfilled yet.
    Open,
}

impl State {
    /// All states, in the order of the report.
    pub const ALL: [State; 4] = [State::Met, State::Option, State::Declined, State::Open];

    /// As the report names it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Met => "met",
            State::Option => "option",
            State::Declined => "deliberately not",
            State::Open => "open",
        }
    }

    /// Whether it must be shown by code and by a test.
    pub const fn is_claim(self) -> bool {
        matches!(self, State::Met | State::Option)
    }
}

/// Reads all lists, in order of RFC number.
///
/// # Errors
/// When a list cannot be read, is malformed, or names a requirement twice.
pub fn load(root: &Path) -> Result<Vec<Document>> {
    let directory = root.join(DIRECTORY);
    let entries =
        std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut documents = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            documents.push(parse(&text).with_context(|| format!("in {}", path.display()))?);
        }
    }
    documents.sort_by_key(|document| document.rfc);
    Ok(documents)
}

/// Reads one list.
///
/// # Errors
/// When it is malformed, names a requirement twice, or gives no reason.
pub fn parse(text: &str) -> Result<Document> {
    let document: Document = toml::from_str(text)?;
    let mut seen = BTreeSet::new();
    for requirement in &document.requirements {
        if !seen.insert(&requirement.id) {
            bail!("{} is listed twice", requirement.id);
        }
        if requirement.text.is_empty() || requirement.why.is_empty() {
            bail!("{} needs a text and a why", requirement.id);
        }
    }
    Ok(document)
}
