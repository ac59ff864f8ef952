//! `[port_control]` and `[nat.port_control]`.

use std::path::PathBuf;

use carrack_base::Prefix;
use carrack_pcp::Allowed;

use crate::keys::RULES_MAX;
use crate::model::{PortControl, PortControlConfig};
use crate::read::{Notes, Section};
use crate::source::At;
use crate::value::PortRange;

pub(super) fn server(section: &Section<'_>) -> PortControl {
    PortControl {
        state_file: section.get::<PathBuf>("state_file").map(|path| path.value),
        mappings_max: section.value("mappings_max"),
    }
}

pub(super) fn instance(notes: &Notes, section: &Section<'_>) -> Option<PortControlConfig> {
    // Read in any case: what is missing has its default.
    let general = Allowed {
        any: true,
        ports: ports(section).unwrap_or_default(),
        lifetime_min_s: section.value("lifetime_min"),
        lifetime_max_s: section.value("lifetime_max"),
        mappings_max: section.value("mappings_max"),
    };
    lifetimes(notes, section, &general);
    let third_party = section.value::<Vec<At<Prefix>>>("third_party_from");
    let nat_pmp = section.value("nat_pmp");
    let rules = section.sections("subscriber");
    if let Some(extra) = rules.get(RULES_MAX) {
        notes.error(extra.span, format!("too many rules; at most {RULES_MAX} in an instance"));
    }
    let mut all: Vec<(Prefix, Allowed)> =
        rules.into_iter().filter_map(|section| rule(notes, section, &general)).collect();
    all.sort_by_key(|(prefix, _)| std::cmp::Reverse(length(prefix)));
    section.is_present().then(|| PortControlConfig {
        nat_pmp,
        third_party_from: third_party.into_iter().map(|prefix| prefix.value).collect(),
        allowed: general,
        rules: all,
    })
}

fn rule(notes: &Notes, mut section: Section<'_>, general: &Allowed) -> Option<(Prefix, Allowed)> {
    if let Some(prefix) = section.peek::<Prefix>("prefix")
        && !section.label(&prefix.value.to_string())
    {
        notes.error(prefix.span, format!("a second rule for {prefix}; remove one of the two"));
    }
    let prefix = section.get::<Prefix>("prefix");
    let allowed = Allowed {
        any: section.value("allow"),
        ports: ports(&section).unwrap_or_else(|| general.ports.clone()),
        lifetime_min_s: section.get("lifetime_min").map_or(general.lifetime_min_s, |at| at.value),
        lifetime_max_s: section.get("lifetime_max").map_or(general.lifetime_max_s, |at| at.value),
        mappings_max: section.get("mappings_max").map_or(general.mappings_max, |at| at.value),
    };
    lifetimes(notes, &section, &allowed);
    Some((prefix?.value, allowed))
}

fn ports(section: &Section<'_>) -> Option<Vec<(u16, u16)>> {
    let ports = section.get::<Vec<At<PortRange>>>("ports")?.value;
    Some(ports.into_iter().map(|range| (range.first, range.last)).collect())
}

fn lifetimes(notes: &Notes, section: &Section<'_>, allowed: &Allowed) {
    if allowed.lifetime_min_s > allowed.lifetime_max_s {
        let message = format!(
            "`lifetime_min` of {} s is above `lifetime_max` of {} s; lower the one or raise the other",
            allowed.lifetime_min_s, allowed.lifetime_max_s
        );
        notes.error(section.span_of("lifetime_min"), message);
    }
}

/// Bits of a prefix, to be compared with those of the same version.
fn length(prefix: &Prefix) -> u8 {
    match prefix {
        Prefix::V4(prefix) => prefix.len(),
        Prefix::V6(prefix) => prefix.len(),
    }
}
