//! What workers and host get from a config.
#![forbid(unsafe_code)]

use carrack_alg::Protocol;
use carrack_base::{IfIndex, InstanceId, PoolId, Prefix4, Proto, VrfId};
use carrack_config::{Compiled, Config, PortFacts, compile};
use carrack_nat::Inside;
use carrack_nat::policy::{Assignment, BlockRules, Limits, Overflow, StaticRule, Unreadable};
use carrack_pipeline::snapshot::{NextHop, Side, Vlan};
use carrack_wire::MacAddr;

const BASE: &str = include_str!("base.toml");

fn config(text: &str) -> Config {
    Config::from_str("t.toml", text).unwrap_or_else(|errors| panic!("{}", errors[0])).0
}

fn facts() -> Vec<PortFacts> {
    let port =
        |name: &str, last| PortFacts { name: name.into(), mac: MacAddr([2, 0, 0, 0, 0, last]), mtu: 1_500 };
    vec![port("wan", 2), port("lan", 1)]
}

fn base() -> Compiled {
    compile(&config(BASE), &facts(), None).unwrap_or_else(|errors| panic!("{}", errors[0]))
}

fn prefix(text: &str) -> Prefix4 {
    text.parse().unwrap()
}

fn ip(text: &str) -> u32 {
    text.parse::<std::net::Ipv4Addr>().unwrap().into()
}

#[test]
fn interfaces_have_their_ports_tags_and_facts() {
    let compiled = base();
    let interfaces: Vec<_> = compiled.snapshot.interfaces.iter().flatten().collect();
    let row = |i: usize| {
        (interfaces[i].name.as_str(), interfaces[i].port.0, interfaces[i].vlan, interfaces[i].vrf.0)
    };
    assert_eq!(row(0), ("lan", 0, Vlan::None, 0));
    assert_eq!(row(1), ("lan.100", 0, Vlan::Single(100), 1));
    assert_eq!(row(2), ("lan.200.7", 0, Vlan::Double { outer: 200, inner: 7, dot1ad: false }, 0));
    assert_eq!(row(3), ("wan", 1, Vlan::None, 0));
    assert!(interfaces[..3].iter().all(|interface| interface.mac == MacAddr([2, 0, 0, 0, 0, 1])));
    assert!(interfaces.iter().all(|interface| interface.mtu == 1_500 && interface.up));
    assert_eq!((interfaces[2].side, interfaces[3].side), (Side::Plain, Side::Outside));
    let ports: Vec<_> =
        compiled.snapshot.ports.iter().map(|port| (port.id.0, port.name.as_str(), port.mac.0[5])).collect();
    assert_eq!(ports, [(0, "lan", 1), (1, "wan", 2)]);
    let devices: Vec<_> = compiled.devices.iter().map(|port| (port.id.0, port.device.to_string())).collect();
    assert_eq!(devices, [(0, "mem:lan".to_owned()), (1, "mem:wan".to_owned())]);
    assert_eq!(compiled.snapshot.vrfs, ["default", "blue"]);
    assert_eq!(compiled.sizes.nat.sessions, 1_048_576 / 2, "two workers share the daemon's sessions");
}

#[test]
fn connected_and_local_routes_come_from_addresses() {
    let compiled = base();
    let find = |vrf, text: &str| {
        let found: Vec<_> = compiled
            .snapshot
            .routes
            .iter()
            .filter(|r| r.vrf == VrfId(vrf) && r.prefix == prefix(text))
            .collect();
        assert_eq!(found.len(), 1, "{text}");
        found[0].next_hop
    };
    assert_eq!(find(0, "10.0.0.1/32"), NextHop::Local(IfIndex(0)));
    assert_eq!(find(0, "10.0.0.0/24"), NextHop::Connected(IfIndex(0)));
    assert_eq!(find(1, "10.0.0.0/24"), NextHop::Connected(IfIndex(1)));
    assert_eq!(find(0, "0.0.0.0/0"), NextHop::Gateway(IfIndex(3), ip("192.0.2.254")));
    assert_eq!(find(0, "203.0.113.0/24"), NextHop::Blackhole);
}

#[test]
fn a_route_may_leak_through_an_interface_of_another_vrf() {
    let text = BASE.replacen(
        "[[route]]",
        "[[route]]\nvrf = \"blue\"\nprefix = \"198.18.0.0/15\"\nvia = \"192.0.2.9\"\ninterface = \"wan\"\n\n[[route]]",
        1,
    );
    let compiled = compile(&config(&text), &facts(), None).unwrap();
    let route =
        compiled.snapshot.routes.iter().find(|route| route.prefix == prefix("198.18.0.0/15")).unwrap();
    assert_eq!((route.vrf, route.next_hop), (VrfId(1), NextHop::Gateway(IfIndex(3), ip("192.0.2.9"))));
}

#[test]
fn nat_instances_become_policy() {
    let compiled = base();
    let [one, two] = &compiled.snapshot.nat.instances[..] else { panic!("two instances") };
    assert_eq!(
        (one.id, one.name.as_str(), one.inside_vrf, one.outside_vrf),
        (InstanceId(0), "cgn1", VrfId(0), VrfId(0))
    );
    assert_eq!(one.assignment, Assignment::Blocks { size: 512, per_subscriber_max: 4, idle_release_s: 60 });
    assert_eq!(one.pools.iter().map(|pool| pool.id.0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(one.subscribers, [prefix("10.0.0.0/24"), prefix("10.1.0.0/16")]);
    assert_eq!(one.statics.len(), 3);
    assert!(matches!(one.statics[0], StaticRule::OneToOne { inside, .. } if inside.count() == 4));
    let forward = StaticRule::Forward {
        proto: Proto::Udp,
        outside: ip("203.0.113.2"),
        outside_port: 27_000,
        count: 16,
        inside: Inside::V4(ip("10.0.0.9")),
        inside_port: 27_000,
    };
    assert_eq!(one.statics[2], forward);
    assert_eq!((two.inside_vrf, two.outside_vrf), (VrfId(1), VrfId(0)));
    assert_eq!(two.assignment, Assignment::Deterministic { ports_per_subscriber: 2_016, overflow: None });
}

/// RFC 4787 REQ-5b, RFC 5382 REQ-5a, RFC 5508 REQ-2a: idle times are configurable. RFC 4787 REQ-5c, RFC 5382 REQ-5,
/// RFC 5508 REQ-2: what they are when not configured.
#[test]
fn idle_times_are_as_configured() {
    let written = "[nat.timeouts]\nudp = \"5m\"\n";
    let of = |text: &str| {
        let text = BASE.replace(written, &format!("[nat.timeouts]\n{text}"));
        compile(&config(&text), &facts(), None).unwrap().snapshot.nat.instances[0].timeouts.clone()
    };
    let default = of("");
    assert_eq!((default.udp_s, default.tcp_established_s, default.icmp_s), (300, 7_440, 60));
    assert_eq!((default.tcp_opening_s, default.tcp_closing_s, default.tcp_reset_s), (240, 240, 240));
    let set = of(
        "udp = 400\ntcp_established = \"3h\"\ntcp_opening = 241\ntcp_closing = 242\ntcp_reset = 243\nicmp = 61\n",
    );
    assert_eq!((set.udp_s, set.tcp_established_s, set.icmp_s), (400, 10_800, 61));
    assert_eq!((set.tcp_opening_s, set.tcp_closing_s, set.tcp_reset_s), (241, 242, 243));
}

/// RFC 6888 REQ-4a, REQ-4b, REQ-4c, REQ-5a, REQ-5b: limits are configurable.
#[test]
fn limits_are_as_configured() {
    let limits = "sessions_max = 1\nports_max = 2\nports_tcp_max = 3\nports_udp_max = 4\nports_icmp_max = 5\n\
                  creations_per_s = 6\ncreations_burst = 7\nsessions_per_mapping_max = 8\nmappings_threshold = 2\npaired_mappings_threshold = 1\n";
    let text = BASE.replace("[nat.timeouts]", &format!("[nat.limits]\n{limits}\n[nat.timeouts]"));
    let compiled = compile(&config(&text), &facts(), None).unwrap();
    let expected = Limits {
        sessions_max: 1,
        ports_max: 2,
        ports_by_proto_max: [3, 4, 5],
        creations_per_s: 6,
        creations_burst: 7,
        sessions_per_mapping_max: 8,
        mappings_threshold: 2,
        paired_mappings_threshold: 1,
    };
    assert_eq!(compiled.snapshot.nat.instances[0].limits, expected);
}

/// RFC 7422 §2: the dynamic ports are taken off before the rest is divided among the subscribers.
#[test]
fn overflow_ports_are_divided_among_nobody() {
    let text = "[[interface]]\nname = \"i\"\ndevice = \"mem:i\"\nside = \"inside\"\naddress = [\"10.0.0.1/24\"]\n\
        [[interface]]\nname = \"o\"\ndevice = \"mem:o\"\nside = \"outside\"\naddress = [\"192.0.2.1/24\"]\n\
        [[nat]]\nname = \"d\"\nsubscribers = [\"10.0.0.0/28\"]\n[nat.ports]\nmode = \"deterministic\"\n\
        overflow_ports = 8_192\nblock_size = 64\nblocks_per_subscriber = 2\n\
        [[nat.pool]]\nname = \"p\"\naddresses = [\"192.0.2.9\"]\n";
    let (config, _) = Config::from_str("t.toml", text).unwrap_or_else(|errors| panic!("{errors:?}"));
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).unwrap();
    let blocks = BlockRules { size: 64, per_subscriber_max: 2, idle_release_s: 60 };
    let overflow = Some(Overflow { ports: 8_192, blocks });
    let assignment = Assignment::Deterministic { ports_per_subscriber: 3_520, overflow };
    assert_eq!(compiled.snapshot.nat.instances[0].assignment, assignment);
}

/// RFC 7422 §2: allocates 1/C of the available ports to each inside address.
#[test]
fn deterministic_ports_left_out_are_the_most_that_fit() {
    let text = BASE.replace("ports_per_subscriber = 2016\n", "");
    let compiled = compile(&config(&text), &facts(), None).unwrap();
    let two = &compiled.snapshot.nat.instances[1];
    assert_eq!(two.assignment, Assignment::Deterministic { ports_per_subscriber: 2_016, overflow: None });
    let function = carrack_nat::Deterministic::of(two).unwrap();
    let last = function.share(Inside::V4(ip("10.0.0.255"))).expect("the last subscriber has ports");
    assert_eq!((last.outside, last.last), (ip("203.0.113.135"), 65_535));
    assert_eq!(function.inverse(last.outside, last.first), Some(Inside::V4(ip("10.0.0.255"))));
}

#[test]
fn a_pool_ends_with_its_last_whole_block() {
    let text = BASE.replace("name = \"public1\"", "name = \"public1\"\nports = \"1024-65000\"");
    let compiled = compile(&config(&text), &facts(), None).unwrap();
    let pool = &compiled.snapshot.nat.instances[0].pools[0];
    assert_eq!((pool.port_first, pool.port_last), (1_024, 64_511));
}

#[test]
fn the_host_answers_arp_for_outside_addresses_on_outside_interfaces_only() {
    let compiled = base();
    let proxies: Vec<(&str, Vec<String>)> = compiled
        .host
        .interfaces
        .iter()
        .map(|interface| (interface.name.as_str(), interface.proxy.iter().map(ToString::to_string).collect()))
        .collect();
    assert_eq!(proxies.len(), 4);
    for (name, proxy) in proxies {
        if name == "wan" {
            let want = [
                "203.0.113.0-203.0.113.15",
                "203.0.113.32-203.0.113.35",
                "203.0.113.64-203.0.113.79",
                "203.0.113.128-203.0.113.135",
            ];
            assert_eq!(proxy, want, "neither the forwarded pool address twice nor the router's own");
        } else {
            assert!(proxy.is_empty(), "{name}");
        }
    }
}

#[test]
fn an_interface_that_is_down_is_not_the_hosts_and_neither_are_its_vlans() {
    let text = BASE.replacen("device = \"mem:lan\"", "device = \"mem:lan\"\nup = false", 1);
    let compiled = compile(&config(&text), &facts(), None).unwrap();
    let names: Vec<_> = compiled.host.interfaces.iter().map(|interface| interface.name.as_str()).collect();
    assert_eq!(names, ["wan"]);
    assert_eq!(compiled.snapshot.interfaces.iter().flatten().filter(|interface| interface.up).count(), 1);
}

#[test]
fn ids_stay_with_their_names_over_reloads_and_removed_ones_leave_holes() {
    let first = base();
    let (head, rest) = BASE.split_once("[[nat]]\nname = \"cgn1\"").unwrap();
    let (_, cgn2) = rest.split_once("[[nat]]\nname = \"cgn2\"").unwrap();
    let new = "[[interface]]\nname = \"new\"\nparent = \"lan\"\nvlan = 9\n\n[[route]]";
    let gone = "[[interface]]\nname = \"lan.200.7\"\nparent = \"lan\"\nouter = 200\ninner = 7\naddress = [\"10.2.0.1/24\"]\n";
    let head = head.replacen("[[route]]", new, 1).replace(gone, "");
    let text = format!("{head}[[nat]]\nname = \"cgn2\"{cgn2}");
    let second = compile(&config(&text), &facts(), Some(&first)).unwrap();
    assert_eq!(second.snapshot.generation, first.snapshot.generation + 1);
    let names: Vec<Option<&str>> =
        second.snapshot.interfaces.iter().map(|i| i.as_ref().map(|i| i.name.as_str())).collect();
    assert_eq!(names, [Some("lan"), Some("lan.100"), None, Some("wan"), Some("new")]);
    let [one, two] = &second.snapshot.nat.instances[..] else { panic!("two slots") };
    assert!(
        one.subscribers.is_empty() && one.pools.is_empty() && one.statics.is_empty(),
        "a hole serves nobody"
    );
    assert_eq!((two.id, two.name.as_str(), two.pools[0].id), (InstanceId(1), "cgn2", PoolId(2)));
    let third = compile(&config(BASE), &facts(), Some(&second)).unwrap();
    assert_eq!(third.snapshot.nat.instances[0].name, "cgn1");
    assert_eq!(third.snapshot.nat.instances[0].pools[1].id, PoolId(1));
    assert_eq!(third.snapshot.interfaces[2].as_ref().map(|i| i.name.as_str()), Some("lan.200.7"));
}

#[test]
fn an_mtu_beyond_the_port_or_a_missing_port_is_refused() {
    let text = BASE.replacen("device = \"mem:wan\"", "device = \"mem:wan\"\nmtu = 2000", 1);
    let errors = compile(&config(&text), &facts(), None).unwrap_err();
    assert!(
        errors[0].to_string().contains("an MTU of 2000 on port `wan`, which takes 1500"),
        "{}",
        errors[0]
    );
    assert!(errors[0].line > 0);
    let errors = compile(&config(BASE), &facts()[..1], None).unwrap_err();
    assert!(errors.iter().all(|error| error.message.contains("port `lan` is not open")), "{errors:?}");
}

#[test]
fn an_inherited_mtu_is_lowered_to_what_a_packet_buffer_holds() {
    let mut facts = facts();
    facts.iter_mut().for_each(|port| port.mtu = 65_535);
    let compiled = compile(&config(BASE), &facts, None).unwrap();
    assert!(compiled.snapshot.interfaces.iter().flatten().all(|interface| interface.mtu == 2_048 - 22));
}

/// One word for all gateways, or words for some: the others keep the default. It prints as it was read.
#[test]
fn what_becomes_of_unreadable_connections_is_set_for_all_gateways_or_for_some() {
    let reset = |line: &str| {
        let text = BASE.replacen("[[nat]]\n", &format!("[[nat]]\n{line}\n"), 1);
        let compiled =
            compile(&config(&text), &facts(), None).unwrap_or_else(|errors| panic!("{}", errors[0]));
        let set = compiled.snapshot.nat.instances[0].unreadable;
        Protocol::ALL.map(|protocol| set[protocol as usize] == Unreadable::Reset)
    };
    assert_eq!(reset(""), [false; 7]);
    assert_eq!(reset("unreadable = \"reset\""), [true; 7]);
    let some = reset("unreadable = { sip = \"reset\", ftp = \"pass\" }");
    assert_eq!(some, Protocol::ALL.map(|protocol| protocol == Protocol::Sip));
}
