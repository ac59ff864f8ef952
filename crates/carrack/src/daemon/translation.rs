//! NAT instances and stateless translators as answers.

use std::net::Ipv4Addr;

use carrack_api::types::{
    AddressMapping, AddressShare, Behaviour, DropCount, Instance, Memory, Overflow, PoolAddress, StateCount,
    Subscriber, Translator,
};
use carrack_base::{Proto, Range4, VrfId};
use carrack_nat::policy::{self, Assignment};
use carrack_nat::row::TcpState;
use carrack_pipeline::mailbox::StateRow;
use carrack_pipeline::snapshot::{SiitInstance, Snapshot};
use carrack_pipeline::translators::{TranslatorFigure, TranslatorRow};

/// All instances, nothing in use yet.
pub fn instances(snapshot: &Snapshot) -> Vec<Instance> {
    snapshot.nat.instances.iter().map(|instance| of_policy(snapshot, instance)).collect()
}

fn vrf(snapshot: &Snapshot, id: VrfId) -> String {
    snapshot.vrfs.get(id.index()).cloned().unwrap_or_default()
}

fn of_policy(snapshot: &Snapshot, instance: &policy::Instance) -> Instance {
    let (ports, block_size, blocks_per_subscriber) = match instance.assignment {
        Assignment::Blocks { size, per_subscriber_max, .. } => {
            ("blocks", size.into(), per_subscriber_max.into())
        }
        Assignment::Arbitrary => ("arbitrary", 0, 0),
        Assignment::Deterministic { ports_per_subscriber, .. } => {
            ("deterministic", ports_per_subscriber.into(), 1)
        }
    };
    let overflow = match instance.assignment {
        Assignment::Deterministic { overflow: Some(overflow), .. } => Some(Overflow {
            ports: overflow.ports.into(),
            block_size: overflow.blocks.size.into(),
            blocks_per_subscriber: overflow.blocks.per_subscriber_max.into(),
        }),
        _ => None,
    };
    let nat64 = instance.nat64.as_ref();
    let limits = &instance.limits;
    let [ports_tcp_max, ports_udp_max, ports_icmp_max] = limits.ports_by_proto_max;
    let sources = instance.subscribers.iter().map(ToString::to_string);
    let sources6 = nat64.into_iter().flat_map(|nat64| &nat64.subscribers).map(ToString::to_string);
    Instance {
        instance: instance.name.clone(),
        inside_vrf: vrf(snapshot, instance.inside_vrf),
        outside_vrf: vrf(snapshot, instance.outside_vrf),
        prefixes: nat64
            .into_iter()
            .flat_map(|nat64| &nat64.prefixes)
            .map(|entry| entry.prefix.prefix().to_string())
            .collect(),
        sources: sources.chain(sources6).collect(),
        ranges: instance.pools.iter().flat_map(|pool| &pool.ranges).map(range).collect(),
        ports: ports.to_owned(),
        block_size,
        blocks_per_subscriber,
        overflow,
        subscriber_prefix_length: nat64.map(|nat64| nat64.subscriber_len),
        pooling: instance.pooling.name().to_owned(),
        behaviours: behaviours(instance),
        tcp_states: no_tcp_sessions(),
        sessions_per_subscriber_max: limits.sessions_max,
        ports_per_subscriber_max: limits.ports_max,
        ports_tcp_max,
        ports_udp_max,
        ports_icmp_max,
        sessions_per_mapping_max: limits.sessions_per_mapping_max,
        creations_per_s: limits.creations_per_s,
        creations_burst: limits.creations_burst,
        ..Instance::default()
    }
}

fn behaviours(instance: &policy::Instance) -> Vec<Behaviour> {
    let all = instance.mapping.iter().zip(&instance.filtering);
    all.zip([Proto::Tcp, Proto::Udp, Proto::Icmp])
        .map(|((mapping, filtering), proto)| Behaviour {
            protocol: proto.name().to_owned(),
            mapping: mapping.name().to_owned(),
            filtering: filtering.name().to_owned(),
        })
        .collect()
}

/// Every state, so that who reads the answer need not know them.
fn no_tcp_sessions() -> Vec<StateCount> {
    let states = (1..=u8::MAX).map(TcpState::from_u8).take_while(|state| *state != TcpState::None);
    states.map(|state| StateCount { state: state.name().to_owned(), sessions: 0 }).collect()
}

fn range(range: &Range4) -> String {
    let (first, last) = ends(range);
    format!("{first}-{last}")
}

fn ends(range: &Range4) -> (Ipv4Addr, Ipv4Addr) {
    (range.first.into(), range.last.into())
}

/// Adds what is in use of pools.
pub fn add_pools(all: &mut [Instance], pools: &[PoolAddress]) {
    for row in pools {
        if let Some(instance) = all.iter_mut().find(|instance| instance.instance == row.instance) {
            instance.blocks_total += u64::from(row.blocks_total);
            instance.blocks_used += u64::from(row.blocks_used);
            // All addresses of a pool are alike. A deterministic one has blocks too, but only of some of its ports.
            if instance.ports == "blocks"
                && instance.address_shares.iter().all(|share| share.pool != row.pool)
            {
                let (pool, ports, blocks) = (row.pool.clone(), row.ports_total, row.blocks_total);
                instance.address_shares.push(AddressShare { pool, ports, blocks });
            }
        }
    }
}

/// Adds for how much there is room: the tables of all workers, which instances share.
pub fn add_capacity(all: &mut [Instance], tables: &[Memory]) {
    let room = |name: &str| tables.iter().filter(|table| table.table == name).map(|table| table.total).sum();
    for instance in all {
        instance.sessions_capacity = room("sessions");
        instance.subscribers_capacity = room("subscribers");
    }
}

/// Adds what a subscriber has.
pub fn add_subscriber(all: &mut [Instance], row: &Subscriber) {
    let Some(instance) = all.iter_mut().find(|instance| instance.instance == row.instance) else { return };
    instance.subscribers += 1;
    instance.sessions += u64::from(row.sessions);
    instance.mappings_tcp += u64::from(row.mappings_tcp);
    instance.mappings_udp += u64::from(row.mappings_udp);
    instance.mappings_icmp += u64::from(row.mappings_icmp);
    instance.mappings_other += u64::from(row.mappings_other);
}

/// Adds how many sessions there are of each kind; instances are in the order of their numbers.
pub fn add_states(all: &mut [Instance], rows: &[StateRow]) {
    for row in rows {
        let Some(instance) = all.get_mut(row.instance.index()) else { continue };
        let sessions = u64::from(row.sessions);
        match row.proto {
            Proto::Udp => instance.sessions_udp += sessions,
            Proto::Icmp => instance.sessions_icmp += sessions,
            Proto::Other => instance.sessions_other += sessions,
            Proto::Tcp => {
                let state = row.tcp.name();
                match instance.tcp_states.iter_mut().find(|known| known.state == state) {
                    Some(known) => known.sessions += sessions,
                    None => instance.tcp_states.push(StateCount { state: state.to_owned(), sessions }),
                }
            }
        }
    }
    for instance in all {
        instance.tcp_states.sort_by(|a, b| (b.sessions, &a.state).cmp(&(a.sessions, &b.state)));
    }
}

/// All stateless translators, nothing done yet.
pub fn translators(snapshot: &Snapshot) -> Vec<Translator> {
    snapshot.siit.iter().map(|siit| of_siit(snapshot, siit)).collect()
}

/// Adds what they have done.
pub fn add_figures(all: &mut [Translator], rows: &[TranslatorRow]) {
    for TranslatorRow { number, what, count } in rows {
        let Some(translator) = all.get_mut(usize::from(*number)) else { continue };
        match what {
            TranslatorFigure::ToV6 => {
                translator.packets_to_v6 += count.packets;
                translator.bytes_to_v6 += count.bytes;
            }
            TranslatorFigure::ToV4 => {
                translator.packets_to_v4 += count.packets;
                translator.bytes_to_v4 += count.bytes;
            }
            TranslatorFigure::Dropped(reason) => {
                let reason = reason.info().name;
                match translator.drops.iter_mut().find(|drops| drops.reason == reason) {
                    Some(drops) => drops.packets += count.packets,
                    None => {
                        let reason = reason.to_owned();
                        translator.drops.push(DropCount { reason, packets: count.packets });
                    }
                }
            }
        }
    }
}

fn of_siit(snapshot: &Snapshot, siit: &SiitInstance) -> Translator {
    let entries = siit.translator.eam.entries().iter();
    Translator {
        name: siit.name.clone(),
        vrf: vrf(snapshot, siit.vrf),
        prefixes: siit.translator.prefixes.iter().map(|prefix| prefix.prefix().to_string()).collect(),
        ipv4: siit.translator.hosts.blocks().iter().map(ToString::to_string).collect(),
        mappings: entries
            .map(|entry| AddressMapping { v4: entry.v4.to_string(), v6: entry.v6.to_string() })
            .collect(),
        icmp_sources: siit.translator.icmp_sources.iter().map(ends).collect(),
        ..Translator::default()
    }
}

#[cfg(test)]
mod tests {
    use carrack_base::{InstanceId, Reason};
    use carrack_pipeline::translators::Translated;

    use super::*;

    #[test]
    fn sessions_are_counted_by_kind_and_the_most_common_tcp_state_comes_first() {
        let mut all = [Instance::default(), Instance::default()];
        all[1].tcp_states = no_tcp_sessions();
        let row = |proto, tcp, sessions| StateRow { instance: InstanceId(1), proto, tcp, sessions };
        let rows = [
            row(Proto::Tcp, TcpState::InsideInit, 2),
            row(Proto::Tcp, TcpState::Established, 5),
            row(Proto::Udp, TcpState::None, 7),
            row(Proto::Icmp, TcpState::None, 1),
        ];
        add_states(&mut all, &rows);
        assert_eq!(all[0], Instance::default());
        let states: Vec<_> = all[1].tcp_states.iter().map(|s| (s.state.as_str(), s.sessions)).collect();
        assert_eq!(
            states,
            [
                ("established", 5),
                ("inside-init", 2),
                ("both-fin", 0),
                ("inside-fin", 0),
                ("outside-fin", 0),
                ("outside-init", 0),
                ("reset", 0),
            ]
        );
        assert_eq!((all[1].sessions_udp, all[1].sessions_icmp, all[1].sessions_other), (7, 1, 0));
    }

    #[test]
    fn figures_of_all_workers_are_added_up() {
        let mut all = [Translator::default()];
        let row = |what, packets| TranslatorRow {
            number: 0,
            what,
            count: Translated { packets, bytes: 100 * packets },
        };
        let dropped = TranslatorFigure::Dropped(Reason::SiitSourceUnmapped);
        let rows = [
            row(TranslatorFigure::ToV6, 1),
            row(dropped, 3),
            row(TranslatorFigure::ToV6, 2),
            row(TranslatorFigure::ToV4, 4),
            row(dropped, 5),
            TranslatorRow { number: 9, ..row(dropped, 1) },
        ];
        add_figures(&mut all, &rows);
        let [t] = all;
        assert_eq!((t.packets_to_v6, t.bytes_to_v6, t.packets_to_v4, t.bytes_to_v4), (3, 300, 4, 400));
        assert_eq!(t.drops, [DropCount { reason: "siit-source-unmapped".into(), packets: 8 }]);
    }

    #[test]
    fn what_is_in_use_is_added_to_its_own_instance() {
        let named = |name: &str| Instance { instance: name.into(), ..Instance::default() };
        let mut all = [named("one"), named("two")];
        (all[0].ports, all[1].ports) = ("blocks".into(), "deterministic".into());
        let pool = |instance: &str, blocks_used| PoolAddress {
            instance: instance.into(),
            pool: "p".into(),
            address: Ipv4Addr::new(192, 0, 2, 1),
            subscribers: 1,
            ports_total: 64_512,
            ports_used_tcp: 0,
            ports_used_udp: 0,
            ports_used_icmp: 0,
            blocks_total: 252,
            blocks_used,
        };
        add_pools(&mut all, &[pool("one", 3), pool("two", 1), pool("one", 4), pool("gone", 9)]);
        let subscriber = |instance: &str, sessions| Subscriber {
            instance: instance.into(),
            inside: Ipv4Addr::new(100, 64, 0, 1).into(),
            inside_prefix_length: 32,
            outside: None,
            sessions,
            mappings_tcp: 1,
            mappings_udp: 2,
            mappings_icmp: 3,
            mappings_other: 4,
            blocks: vec![],
            worker: 0,
        };
        [subscriber("two", 5), subscriber("two", 6), subscriber("gone", 9)]
            .iter()
            .for_each(|row| add_subscriber(&mut all, row));
        assert_eq!(all.each_ref().map(|i| (i.blocks_used, i.blocks_total)), [(7, 504), (1, 252)]);
        assert_eq!(all.each_ref().map(|i| (i.subscribers, i.sessions)), [(0, 0), (2, 11)]);
        let share = AddressShare { pool: "p".into(), ports: 64_512, blocks: 252 };
        assert_eq!(all.each_ref().map(|i| i.address_shares.clone()), [vec![share], vec![]]);
        let table = |socket, table: &str, total| Memory {
            socket,
            table: table.into(),
            total,
            used: 1,
            free: 0,
            load_percent: 0.0,
            bytes: 0,
            pages: "2M".into(),
        };
        let tables = [table(0, "sessions", 100), table(0, "subscribers", 7), table(1, "sessions", 50)];
        add_capacity(&mut all, &tables);
        assert_eq!(all.each_ref().map(|i| (i.sessions_capacity, i.subscribers_capacity)), [(150, 7); 2]);
        let [_, two] = all;
        assert_eq!((two.mappings_tcp, two.mappings_udp, two.mappings_icmp, two.mappings_other), (2, 4, 6, 8));
    }
}
