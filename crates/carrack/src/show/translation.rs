//! `carrack show nat instances` and `carrack show siit`.

use std::io::{self, Write};

use carrack_api::types::{AddressShare, Instance, Translator};

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
        line("pools", list(&i.ranges))?;
        let blocks =
            format!("{} of {} ports, {} a subscriber", i.ports, i.block_size, i.blocks_per_subscriber);
        line("ports", if i.block_size > 0 { blocks } else { i.ports.clone() })?;
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
        line("ports a subscriber", limit(i.ports_per_subscriber_max))?;
    }
    Ok(())
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
