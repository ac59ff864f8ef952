//! THE table of keys: what the parser accepts, what `diff` says of a change, and what the reference documents.
//!
//! The reader looks every key up here for its kind, range and default, so the three cannot drift apart.

mod logging;
mod nat;
mod network;
mod port_control;
mod siit;
mod system;
mod translation;

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

pub use logging::EXPORTERS_MAX;
pub(crate) use port_control::RULES_MAX;

/// A table of the config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionInfo {
    /// Its path, without the names of list elements: `nat.pool`. Empty for the file itself.
    pub path: &'static str,
    /// Written once per element, as `[[nat.pool]]`.
    pub many: bool,
    /// A few sentences for the reference.
    pub meaning: &'static str,
    /// What adding or removing an element (or the whole table) does to a running daemon.
    pub effect: Effect,
}

/// A key of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyInfo {
    /// Path of its table.
    pub section: &'static str,
    /// Its name.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What holds without it.
    pub default: Fallback,
    /// What changing it does to a running daemon.
    pub effect: Effect,
    /// One or two sentences for the reference.
    pub meaning: &'static str,
    /// A value as one would write it.
    pub example: &'static str,
}

/// What a missing key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// It must be there.
    Required,
    /// It may be missing; the text says what then holds.
    Absent(&'static str),
    /// This TOML value.
    Value(&'static str),
}

/// What a change does to a running daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Takes effect at once; sessions stay.
    InPlace,
    /// Takes effect at once; the named state is made anew.
    ReDerived(&'static str),
    /// Reload refuses it and changes nothing.
    NeedsRestart,
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InPlace => f.write_str("in place"),
            Self::ReDerived(what) => write!(f, "re-derives {what}"),
            Self::NeedsRestart => f.write_str("needs a restart"),
        }
    }
}

/// The type of a value, with its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number from the first to the second; the third is its unit.
    Int(u64, u64, &'static str),
    /// A whole number that may be written `"64k"` or `"1M"`.
    Count(u64, u64, &'static str),
    /// Seconds, or text like `"5m"`.
    Seconds(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    /// A name: letters, digits, `.`, `_`, `-`; at most 32.
    Name,
    /// A path of the file system.
    Path,
    /// An address and port to listen on.
    Socket,
    /// A device line.
    Device,
    /// An IPv4 address.
    Address,
    /// An address of either version.
    AnyAddress,
    /// An IPv4 prefix.
    Prefix,
    /// An IPv6 prefix.
    Prefix6,
    /// A prefix of either version.
    AnyPrefix,
    /// An own address with its prefix length.
    InterfaceAddress,
    /// An IPv4 address, prefix, or range.
    Range,
    /// A range of ports.
    Ports,
    /// An IPv4 address and port.
    Endpoint,
    /// An IPv4 or IPv6 address and port.
    HostEndpoint,
    /// An explicit address mapping: `{ v4, v6 }`.
    Mapping,
    /// A policer: `{ rate_pps, burst }`.
    Policer,
    /// A list of at most that many.
    List(&'static Kind, usize),
    /// One value for all protocols, or a table by `tcp`, `udp`, `icmp`.
    PerProto(&'static Kind),
    /// One value for all gateways, or a table by the names of some.
    PerGateway(&'static Kind),
    /// A table from remote port to seconds.
    SecondsByPort(u64, u64),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = |f: &mut fmt::Formatter<'_>, low: u64, high: u64, unit: &str| {
            let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
            write!(f, "{low} to {high}{unit}")
        };
        match *self {
            Self::Flag => f.write_str("`true` or `false`"),
            Self::Int(low, high, unit) => range(f, low, high, unit),
            Self::Count(low, high, unit) => {
                range(f, low, high, unit)?;
                f.write_str(", also as text like `\"64k\"` or `\"1M\"`")
            }
            Self::Seconds(low, high) => {
                range(f, low, high, "seconds")?;
                f.write_str(", or text like `\"90s\"`, `\"5m\"`, `\"2h4m\"`")
            }
            Self::Word(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                f.write_str(&words.join(", "))
            }
            Self::Name => f.write_str("name (letters, digits, `.`, `_`, `-`; at most 32)"),
            Self::Path => f.write_str("path"),
            Self::Socket => f.write_str("IP address and port"),
            Self::Device => f.write_str("device line"),
            Self::Address => f.write_str("IPv4 address"),
            Self::AnyAddress => f.write_str("IPv4 or IPv6 address"),
            Self::Prefix => f.write_str("IPv4 prefix"),
            Self::Prefix6 => f.write_str("IPv6 prefix"),
            Self::AnyPrefix => f.write_str("IPv4 or IPv6 prefix"),
            Self::InterfaceAddress => f.write_str("IPv4 or IPv6 address with prefix length"),
            Self::Range => f.write_str("IPv4 address, prefix or range `first-last`"),
            Self::Ports => f.write_str("range of ports `first-last`"),
            Self::Endpoint => f.write_str("IPv4 address and port"),
            Self::HostEndpoint => f.write_str("IPv4 or IPv6 address and port"),
            Self::Mapping => f.write_str("`{ v4 = …, v6 = … }`, an IPv4 and an IPv6 prefix"),
            Self::Policer => f.write_str("`{ rate_pps = …, burst = … }`, packets a second and at once"),
            Self::List(inner, most) => write!(f, "list of {inner} (at most {most})"),
            Self::PerProto(inner) => write!(f, "{inner}; or a table by `tcp`, `udp`, `icmp`"),
            Self::PerGateway(inner) => write!(f, "{inner}; or a table by gateway, the default for others"),
            Self::SecondsByPort(low, high) => {
                write!(f, "table from remote port (1 to 1023) to seconds ({low} to {high})")
            }
        }
    }
}

/// All tables, in the order of the reference.
pub fn sections() -> impl Iterator<Item = &'static SectionInfo> {
    system::SECTIONS
        .iter()
        .chain(network::SECTIONS)
        .chain(nat::SECTIONS)
        .chain(port_control::SECTIONS)
        .chain(siit::SECTIONS)
        .chain(logging::SECTIONS)
}

/// All keys, in the order of the reference.
pub fn keys() -> impl Iterator<Item = &'static KeyInfo> {
    system::KEYS
        .iter()
        .chain(network::KEYS)
        .chain(nat::KEYS)
        .chain(translation::NAT64_KEYS)
        .chain(port_control::KEYS)
        .chain(siit::KEYS)
        .chain(translation::SIIT_KEYS)
        .chain(logging::KEYS)
}

/// The key of that name in that table.
pub(crate) fn key(section: &str, name: &str) -> Option<&'static KeyInfo> {
    // A file may have a million routes; each of their keys is looked up.
    static BY_NAME: LazyLock<HashMap<(&str, &str), &KeyInfo>> =
        LazyLock::new(|| keys().map(|key| ((key.section, key.name), key)).collect());
    BY_NAME.get(&(section, name)).copied()
}

/// The table of that path.
pub(crate) fn section(path: &str) -> Option<&'static SectionInfo> {
    sections().find(|section| section.path == path)
}

/// How a table is written: `[nat.ports]`, `[[nat]]`.
pub(crate) fn header(path: &str) -> String {
    match section(path) {
        Some(info) if info.many => format!("[[{path}]]"),
        _ => format!("[{path}]"),
    }
}

/// Names of the tables directly inside a table.
pub(crate) fn subsections(path: &str) -> impl Iterator<Item = &'static str> {
    let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
    sections()
        .filter(|section| !section.path.is_empty())
        .filter_map(move |section| section.path.strip_prefix(prefix.as_str()))
        .filter(|rest| !rest.contains('.'))
}

const fn table(path: &'static str, effect: Effect, meaning: &'static str) -> SectionInfo {
    SectionInfo { path, many: false, meaning, effect }
}

const fn list(path: &'static str, effect: Effect, meaning: &'static str) -> SectionInfo {
    SectionInfo { path, many: true, meaning, effect }
}

/// A row of the table.
const fn row(
    (section, name): (&'static str, &'static str),
    kind: Kind,
    default: Fallback,
    effect: Effect,
    example: &'static str,
    meaning: &'static str,
) -> KeyInfo {
    KeyInfo { section, name, kind, default, effect, meaning, example }
}

#[cfg(test)]
mod tests;
