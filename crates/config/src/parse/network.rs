//! `[[vrf]]`, `[[interface]]`, `[[route]]`.

use std::net::IpAddr;

use carrack_base::Prefix;
use carrack_io::DeviceSpec;
use carrack_pipeline::snapshot::{Side, Vlan};

use crate::keys;
use crate::model::{AdvertisingConfig, Attach, DEFAULT_VRF, InterfaceConfig, RouteConfig, RouteTarget};
use crate::read::{Notes, Section};
use crate::source::At;
use crate::value::OwnAddress;

/// Reads the name of a list element and uses it as its label.
pub(super) fn name(notes: &Notes, section: &mut Section<'_>, what: &str) -> At<String> {
    match section.peek::<String>("name") {
        None => {
            section.label(&format!("(unnamed at byte {})", section.span.start));
        }
        Some(name) if !section.label(&name) => {
            notes.error(name.span, format!("a second {what} `{name}`; give each a name of its own"));
        }
        Some(_) => {}
    }
    section.need("name")
}

pub(super) fn vrfs(notes: &Notes, sections: Vec<Section<'_>>) -> Vec<At<String>> {
    let read = sections.into_iter().map(|mut section| name(notes, &mut section, "vrf"));
    let vrfs: Vec<At<String>> = read.filter(|name| name.value != DEFAULT_VRF).collect();
    if let Some(extra) = vrfs.get(carrack_base::VRFS_MAX - 1) {
        notes
            .error(extra.span, format!("too many routing instances; at most {}", carrack_base::VRFS_MAX - 1));
    }
    vrfs
}

pub(super) fn interfaces(notes: &Notes, sections: Vec<Section<'_>>) -> Vec<InterfaceConfig> {
    if let Some(extra) = sections.get(carrack_base::INTERFACES_MAX) {
        notes.error(extra.span, format!("too many interfaces; at most {}", carrack_base::INTERFACES_MAX));
    }
    let interfaces: Vec<InterfaceConfig> =
        sections.into_iter().map(|section| interface(notes, section)).collect();
    let ports = interfaces.iter().filter(|interface| matches!(interface.attach, Attach::Device(_)));
    if let Some(extra) = ports.clone().nth(carrack_base::PORTS_MAX) {
        notes.error(extra.name.span, format!("too many ports; at most {}", carrack_base::PORTS_MAX));
    }
    interfaces
}

fn interface(notes: &Notes, mut section: Section<'_>) -> InterfaceConfig {
    let name = name(notes, &mut section, "interface");
    let attach = attach(notes, &section);
    let (mut addresses, mut addresses6) = (Vec::new(), Vec::new());
    for own in section.value::<Vec<At<OwnAddress>>>("address") {
        match own.value {
            OwnAddress::V4(address) => addresses.push(At::new(address, own.span)),
            OwnAddress::V6(address) => addresses6.push(At::new(address, own.span)),
        }
    }
    InterfaceConfig {
        advertising: advertising(notes, &section.section("router_advertisement")),
        name,
        attach,
        side: section.value::<Side>("side"),
        addresses,
        addresses6,
        mtu: section.get::<u16>("mtu"),
        vrf: At::new(section.value("vrf"), section.span_of("vrf")),
        up: section.value("up"),
        urpf: section.value("urpf"),
        icmp_errors: section.value("icmp_errors"),
    }
}

fn advertising(notes: &Notes, section: &Section<'_>) -> Option<AdvertisingConfig> {
    let enabled = section.value::<bool>("enabled");
    let (valid, preferred) = (section.value::<u32>("valid"), section.get::<u32>("preferred"));
    let advertising = AdvertisingConfig {
        interval_s: section.value("interval"),
        lifetime_s: section.value("lifetime"),
        valid_s: valid,
        preferred_s: preferred.as_ref().map_or(0, |preferred| preferred.value),
        managed: section.value("managed"),
        other: section.value("other"),
    };
    // RFC 4861 §6.2.1.
    if let Some(preferred) = preferred.filter(|preferred| preferred.value > valid) {
        notes.error(
            preferred.span,
            format!("`preferred` is above `valid`, {valid} s; lower it, or raise that"),
        );
    }
    let lifetime_s = advertising.lifetime_s;
    if lifetime_s != 0 && lifetime_s < advertising.interval_s {
        let span = section.written("lifetime").or(section.written("interval")).unwrap_or(section.span);
        notes.error(
            span,
            "`lifetime` is below `interval`, so hosts would forget this router; raise it, or set it to 0",
        );
    }
    enabled.then_some(advertising)
}

/// A port or a VLAN of one; anything in between is a fault.
fn attach(notes: &Notes, section: &Section<'_>) -> Attach {
    let device = section.get::<DeviceSpec>("device");
    let parent = section.get::<String>("parent");
    let vlan = vlan(notes, section);
    let (has_device, has_parent) = (section.written("device"), section.written("parent"));
    let tag = ["vlan", "outer", "inner"].iter().find_map(|key| section.written(key));
    match (has_device, has_parent) {
        (None, None) => notes.error(
            section.span,
            format!(
                "{} has neither `device` nor `parent`; give `device = \"af_packet:eth1\"` for a port, or `parent = \"trunk0\"` and `vlan = 100` for a VLAN of one",
                keys::header("interface")
            ),
        ),
        (Some(_), Some(span)) => notes.error(
            span,
            "both `device` and `parent`; a port has `device`, a VLAN of it is an [[interface]] of its own with `parent`",
        ),
        (Some(_), None) if tag.is_some() => {
            let span = tag.unwrap_or(section.span);
            notes.error(
                span,
                "a tag on a port; give the port an [[interface]] without tags, and this VLAN another one with `parent`",
            );
        }
        (None, Some(span)) if tag.is_none() => {
            notes.error(span, "`parent` without a tag; add `vlan = 100`, or `outer = 200` and `inner = 17`");
        }
        _ => {}
    }
    match (parent, device) {
        (Some(parent), _) => {
            let vlan = vlan.unwrap_or(At::new(Vlan::None, section.span));
            Attach::Parent { parent, vlan }
        }
        (None, Some(device)) => Attach::Device(device),
        // Already a fault; the empty name makes later checks skip it.
        (None, None) => Attach::Device(At::new(DeviceSpec::Mem { name: String::new() }, section.span)),
    }
}

fn vlan(notes: &Notes, section: &Section<'_>) -> Option<At<Vlan>> {
    let [single, outer, inner] = ["vlan", "outer", "inner"].map(|key| section.get::<u16>(key));
    let dot1ad = section.need::<bool>("dot1ad");
    let written = |key| section.written(key);
    if let (Some(_), Some(span)) = (written("vlan"), written("outer").or(written("inner"))) {
        notes.error(span, "both `vlan` and a QinQ tag; give `vlan` alone, or `outer` and `inner`");
    } else if let (Some(span), None) | (None, Some(span)) = (written("outer"), written("inner")) {
        notes.error(span, "half a QinQ tag; give both `outer` and `inner`, or `vlan` for a single tag");
    }
    if let (Some(span), None) = (written("dot1ad"), written("outer")) {
        notes.error(span, "`dot1ad` is about the outer tag of QinQ; give `outer` and `inner`, or remove it");
    }
    match (single, outer, inner) {
        (Some(single), _, _) => Some(At::new(Vlan::Single(single.value), single.span)),
        (None, Some(outer), Some(inner)) => {
            let vlan = Vlan::Double { outer: outer.value, inner: inner.value, dot1ad: dot1ad.value };
            Some(At::new(vlan, inner.span))
        }
        // Half a tag is a fault already; what stands is taken so that there is no second one.
        (None, Some(half), None) | (None, None, Some(half)) => {
            Some(At::new(Vlan::Single(half.value), half.span))
        }
        (None, None, None) => None,
    }
}

pub(super) fn routes(notes: &Notes, sections: Vec<Section<'_>>) -> Vec<RouteConfig> {
    sections.into_iter().filter_map(|section| route(notes, section)).collect()
}

fn route(notes: &Notes, mut section: Section<'_>) -> Option<RouteConfig> {
    if let (Some(vrf), Some(prefix)) = (section.peek::<String>("vrf"), section.peek::<Prefix>("prefix"))
        && !section.label(&format!("{vrf}.{prefix}"))
    {
        let message = format!("a second route to {prefix} in vrf `{vrf}`; remove one of the two");
        notes.error(prefix.span, message);
    }
    let (vrf, prefix) = (section.need::<String>("vrf"), section.get::<Prefix>("prefix"));
    let via = section.get::<IpAddr>("via");
    let interface = section.get::<String>("interface");
    let (blackhole, prohibit) = (section.value::<bool>("blackhole"), section.value::<bool>("prohibit"));
    let forwards = section.written("via").or(section.written("interface"));
    let how_many = [forwards.is_some(), blackhole, prohibit].into_iter().filter(|given| *given).count();
    let readable = ["blackhole", "prohibit"].iter().all(|key| section.peek::<bool>(key).is_some());
    if readable && how_many != 1 {
        let message = if how_many == 0 {
            "[[route]] does not say where it leads; give `via`, `interface`, `blackhole = true` or `prohibit = true`"
        } else {
            "[[route]] leads to several places; keep one of `via` or `interface`, `blackhole`, `prohibit`"
        };
        notes.error(section.span, message);
    }
    let target = match (via, interface) {
        (Some(via), interface) => RouteTarget::Gateway { via, interface },
        (None, Some(interface)) => RouteTarget::Interface(interface),
        (None, None) if prohibit => RouteTarget::Prohibit,
        (None, None) => RouteTarget::Blackhole,
    };
    Some(RouteConfig { prefix: prefix?, target, vrf })
}
