//! `carrack show nat instances` and `carrack show siit`.

use std::io::{self, Write};

use carrack_api::types::{AddressShare, Behaviour, Instance, Translator};

use crate::human::{number, percent};
use crate::table::{Table, left, right};

pub fn instances(out: &mut dyn Write, all: Vec<Instance>) -> io::Result<()> {
    if all.is_empty() {
        return writeln!(out, "no NAT instances");
    }
    for (at, i) in all.iter().enumerate() {
        if at > 0 {
            writeln!(out)?;
        }
        writeln!(out, "{}: from vrf {} to vrf {}", i.instance, i.inside_vrf, i.outside_vrf)?;
        let mut line = |name: &str, value: String| writeln!(out, "  {name:<24}{value}");
        if !i.prefixes.is_empty() {
            line("NAT64 prefixes", i.prefixes.join(", "))?;
        }
        line("serves", list(&i.sources))?;
        if let Some(len) = i.subscriber_prefix_length {
            line("an ipv6 subscriber is", if len < 128 { format!("a /{len}") } else { "a host".to_owned() })?;
        }
        line("pools", list(&i.ranges))?;
        line("ports", ports(i))?;
        line("pooling", i.pooling.clone())?;
        line("mapping", by_protocol(&i.behaviours, |b| &b.mapping))?;
        line("filtering", by_protocol(&i.behaviours, |b| &b.filtering))?;
        if i.blocks_total > 0 {
            let (used, total) = (i.blocks_used, i.blocks_total);
            line(
                "port blocks used",
                format!("{} of {}, {}", number(used), number(total), percent(used, total)),
            )?;
        }
        let share = |s: &AddressShare| {
            let what = format!("{} ports in {} blocks", number(s.ports.into()), number(s.blocks.into()));
            if i.address_shares.len() > 1 { format!("{} {what}", s.pool) } else { what }
        };
        let shares: Vec<_> = i.address_shares.iter().map(share).collect();
        if !shares.is_empty() {
            line("a pool address has", shares.join(", "))?;
        }
        // The tables are the workers', not an instance's.
        let of = |count, room| format!("{} (room for {} of all instances)", number(count), number(room));
        line("subscribers", of(i.subscribers, i.subscribers_capacity))?;
        line("sessions", of(i.sessions, i.sessions_capacity))?;
        let others = [("udp", i.sessions_udp), ("icmp", i.sessions_icmp), ("other", i.sessions_other)];
        let others = others.into_iter().filter(|(_, count)| *count > 0);
        let others: Vec<_> = others.map(|(name, count)| format!("{name} {}", number(count))).collect();
        let tcp: Vec<_> = i
            .tcp_states
            .iter()
            .filter(|s| s.sessions > 0)
            .map(|s| format!("{} {}", s.state, number(s.sessions)))
            .collect();
        line("  tcp by state", list(&tcp))?;
        line("  others", list(&others))?;
        let mappings = [
            ("tcp", i.mappings_tcp),
            ("udp", i.mappings_udp),
            ("icmp", i.mappings_icmp),
            ("other", i.mappings_other),
        ];
        line("mappings", mappings.map(|(name, count)| format!("{name} {}", number(count))).join(", "))?;
        let limit = |most: u32| if most == 0 { "any number".to_owned() } else { number(most.into()) };
        line("sessions a subscriber", limit(i.sessions_per_subscriber_max))?;
        line("sessions a mapping", limit(i.sessions_per_mapping_max))?;
        line("ports a subscriber", ports_of_subscriber(i))?;
        let (rate, burst) = (number(i.creations_per_s.into()), number(i.creations_burst.into()));
        let rate = format!("{rate} a second, {burst} at once");
        line("new mappings", if i.creations_per_s > 0 { rate } else { limit(0) })?;
    }
    Ok(())
}

/// How ports are given out.
fn ports(i: &Instance) -> String {
    let (size, blocks) = (number(i.block_size.into()), i.blocks_per_subscriber);
    match i.ports.as_str() {
        "deterministic" => format!("deterministic, a share of {size} a subscriber"),
        _ if i.block_size > 0 => format!("{} of {size} ports, {blocks} a subscriber", i.ports),
        _ => i.ports.clone(),
    }
}

/// All that bounds the ports of a subscriber: what is configured as a limit, and what blocks or share hold.
fn ports_of_subscriber(i: &Instance) -> String {
    let configured = [
        (i.ports_per_subscriber_max, "in all"),
        (i.ports_tcp_max, "of tcp"),
        (i.ports_udp_max, "of udp"),
        (i.ports_icmp_max, "of icmp"),
    ];
    let configured = configured.into_iter().filter(|(most, _)| *most > 0);
    let mut all: Vec<_> =
        configured.map(|(most, of)| format!("at most {} {of}", number(most.into()))).collect();
    let held = u64::from(i.block_size) * u64::from(i.blocks_per_subscriber);
    if held > 0 {
        let by = if i.ports == "deterministic" { "share" } else { "blocks" };
        all.push(format!("{} of each protocol by its {by}", number(held)));
    }
    if let Some(over) = &i.overflow {
        let (size, blocks) = (number(over.block_size.into()), over.blocks_per_subscriber);
        all.push(format!("and {blocks} more blocks of {size}"));
    }
    if all.is_empty() { "any number".to_owned() } else { all.join(", ") }
}

/// One word where it holds of all protocols, else one of each.
fn by_protocol(all: &[Behaviour], what: fn(&Behaviour) -> &String) -> String {
    match all {
        [first, rest @ ..] if rest.iter().all(|b| what(b) == what(first)) => what(first).clone(),
        _ => list(&all.iter().map(|b| format!("{} {}", b.protocol, what(b))).collect::<Vec<_>>()),
    }
}

fn list(all: &[String]) -> String {
    if all.is_empty() { "-".to_owned() } else { all.join(", ") }
}

pub fn translators(out: &mut dyn Write, all: Vec<Translator>) -> io::Result<()> {
    let mut table = Table::new(&[left("NAME"), left("VRF"), left("KIND"), left("IPV4"), left("IPV6")]);
    for t in &all {
        let mut row = |kind: &str, v4: String, v6: String| {
            table.row(vec![t.name.clone(), t.vrf.clone(), kind.to_owned(), v4, v6]);
        };
        for prefix in &t.prefixes {
            row("prefix", "0.0.0.0/0".into(), prefix.clone());
        }
        for block in &t.ipv4 {
            row("hosts", block.clone(), list(t.prefixes.get(..1).unwrap_or(&[])));
        }
        for mapping in &t.mappings {
            row("mapping", mapping.v4.clone(), mapping.v6.clone());
        }
        for (first, last) in &t.icmp_sources {
            row("icmp-source", format!("{first}-{last}"), "-".into());
        }
    }
    table.print(out, "no stateless translators")?;
    if all.is_empty() { Ok(()) } else { figures(out, &all) }
}

fn figures(out: &mut dyn Write, all: &[Translator]) -> io::Result<()> {
    let columns =
        [left("NAME"), right("TO-IPV6"), right("BYTES"), right("TO-IPV4"), right("BYTES"), right("DROPPED")];
    let mut table = Table::new(&columns);
    for t in all {
        table.row(vec![
            t.name.clone(),
            number(t.packets_to_v6),
            number(t.bytes_to_v6),
            number(t.packets_to_v4),
            number(t.bytes_to_v4),
            number(t.drops.iter().map(|drops| drops.packets).sum()),
        ]);
    }
    writeln!(out)?;
    table.print(out, "")?;
    let mut drops = Table::new(&[left("NAME"), left("REASON"), right("PACKETS")]);
    for (t, dropped) in all.iter().flat_map(|t| t.drops.iter().map(move |dropped| (t, dropped))) {
        drops.row(vec![t.name.clone(), dropped.reason.clone(), number(dropped.packets)]);
    }
    if drops.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    drops.print(out, "")
}

#[cfg(test)]
mod tests {
    use carrack_api::types::Overflow;

    use super::*;

    #[test]
    fn every_limit_of_ports_is_told() {
        let mut i = Instance { ports: "arbitrary".into(), ..Instance::default() };
        assert_eq!(ports_of_subscriber(&i), "any number");
        i.ports_udp_max = 12;
        assert_eq!(ports_of_subscriber(&i), "at most 12 of udp");
        i.ports_per_subscriber_max = 1_000;
        assert_eq!(ports_of_subscriber(&i), "at most 1,000 in all, at most 12 of udp");
    }

    #[test]
    fn a_share_of_deterministic_mode_is_told_as_the_limit_that_it_is() {
        let mut i = Instance {
            ports: "deterministic".into(),
            block_size: 1_008,
            blocks_per_subscriber: 1,
            ..Instance::default()
        };
        assert_eq!(ports(&i), "deterministic, a share of 1,008 a subscriber");
        assert_eq!(ports_of_subscriber(&i), "1,008 of each protocol by its share");
        i.overflow = Some(Overflow { ports: 4_096, block_size: 64, blocks_per_subscriber: 2 });
        let told = ports_of_subscriber(&i);
        assert_eq!(told, "1,008 of each protocol by its share, and 2 more blocks of 64");
    }

    #[test]
    fn behaviour_is_told_of_each_protocol_where_it_differs() {
        let one = |protocol: &str, filtering: &str| Behaviour {
            protocol: protocol.into(),
            filtering: filtering.into(),
            ..Behaviour::default()
        };
        let told = |all: &[Behaviour]| by_protocol(all, |b| &b.filtering);
        assert_eq!(told(&[one("tcp", "x"), one("udp", "x")]), "x");
        assert_eq!(told(&[one("tcp", "x"), one("udp", "y")]), "tcp x, udp y");
    }
}
