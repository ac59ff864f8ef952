//! The reference of the config file, from the table of keys.

use std::fmt::Write as _;

use crate::keys::{self, Fallback, KeyInfo, SectionInfo};

const INTRODUCTION: &str = "\
# Configuration reference

Carrack reads one [TOML](https://toml.io) file. `carrack check FILE` validates it without side effects, `carrack run -c FILE`
starts with it, and `carrack reload` applies a changed file to a running daemon. Unknown keys are errors. Examples to start
from are in `examples/`.

This page is generated from the table that the parser itself uses; `cargo run -p carrack-config --example reference` writes it.

Conventions:

* **Durations** are whole seconds, or text with units: `\"90s\"`, `\"5m\"`, `\"2h4m\"`, `\"1d\"`.
* **Sizes** are numbers, or text with a decimal suffix: `\"64k\"` is 64,000, `\"1M\"` is 1,000,000.
* **Addresses** of interfaces, routes, inside ends of forwards and whatever the key says are IPv4 or IPv6; a port stands
  behind an IPv6 address in brackets, `\"[2001:db8::10]:80\"`. A range is IPv4: `\"192.0.2.0/28\"`,
  `\"192.0.2.1-192.0.2.9\"` or a single address.
* **Reload** says what a change does to a running daemon: *in place* takes effect at once and sessions stay; *re-derives*
  names what is made anew; with *needs a restart*, reload refuses the file and changes nothing.
";

/// The reference as Markdown.
#[must_use]
pub fn reference() -> String {
    let mut out = String::from(INTRODUCTION);
    for section in keys::sections() {
        // Writing to a String cannot fail.
        let _ = write_section(&mut out, section);
    }
    out
}

fn write_section(out: &mut String, section: &SectionInfo) -> std::fmt::Result {
    let header = keys::header(section.path);
    let many = if section.many { " May be written any number of times." } else { "" };
    writeln!(out, "\n## `{header}`\n\n{}{many}\n", section.meaning)?;
    if section.many {
        writeln!(out, "Adding or removing one: {}.\n", section.effect)?;
    }
    writeln!(out, "| key | takes | default | reload | meaning | example |")?;
    writeln!(out, "|---|---|---|---|---|---|")?;
    for key in keys::keys().filter(|key| key.section == section.path) {
        write_key(out, key)?;
    }
    Ok(())
}

fn write_key(out: &mut String, key: &KeyInfo) -> std::fmt::Result {
    let default = match key.default {
        Fallback::Required => "**required**".to_owned(),
        Fallback::Absent(what) => what.to_owned(),
        Fallback::Value(text) => format!("`{text}`"),
    };
    writeln!(
        out,
        "| `{}` | {} | {default} | {} | {} | `{}` |",
        key.name, key.kind, key.effect, key.meaning, key.example
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docs_config_md_is_what_the_table_of_keys_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == reference(),
            "docs/config.md is stale; run `cargo run -p carrack-config --example reference`"
        );
    }

    #[test]
    fn every_row_has_the_same_number_of_cells() {
        for line in reference().lines().filter(|line| line.starts_with('|')) {
            assert_eq!(line.matches('|').count(), 7, "{line}");
        }
    }
}
