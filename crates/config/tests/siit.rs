//! `[[siit]]`: what it compiles to, and what it refuses.
#![forbid(unsafe_code)]

use carrack_config::{Config, PortFacts, compile};
use carrack_pipeline::snapshot::NextHop;
use carrack_xlat::ZeroUdp;

const BASE: &str = r#"
[[vrf]]
name = "dc"

[[interface]]
name = "lan"
device = "mem:lan"
vrf = "dc"
address = ["10.0.0.1/24", "2001:db8:46::ff:1/112"]

[[route]]
prefix = "0.0.0.0/0"
via = "10.0.0.254"
vrf = "dc"

[[route]]
prefix = "2001:db8:46::/64"
via = "2001:db8:46::ff:2"
vrf = "dc"

[[route]]
prefix = "64:ff9b:1::198.51.100.0/120"
via = "2001:db8:46::ff:2"
vrf = "dc"

[[siit]]
name = "one"
vrf = "dc"
prefixes = ["64:ff9b:1::/96", "2001:db8:100::/40"]
ipv4 = ["198.51.100.0/24"]
eam = [
  { v4 = "192.0.2.0/28", v6 = "2001:db8:46::/124" },
  { v4 = "203.0.113.5", v6 = "2001:db8:46::5:0" },
]
icmp_sources = ["192.0.2.250-192.0.2.253"]
reveal_icmp_source = true
tos = 32
lowest_ipv6_mtu = 1500
zero_checksum_udp = "drop"
"#;

fn compiled(text: &str) -> carrack_config::Compiled {
    let (config, warnings) =
        Config::from_str("t.toml", text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert!(warnings.is_empty(), "{}", warnings[0]);
    let mac = carrack_wire::MacAddr([2, 0, 0, 0, 0, 1]);
    let ports = [PortFacts { name: "lan".into(), mac, mtu: 1_500 }];
    compile(&config, &ports, None).unwrap_or_else(|errors| panic!("{}", errors[0]))
}

/// The message about the marked line.
#[track_caller]
fn told(old: &str, new: &str, words: &str, is_error: bool) {
    assert!(BASE.contains(old), "{old}");
    let text = BASE.replacen(old, new, 1);
    let line = text.lines().position(|line| line.contains("#!")).expect("a marked line") + 1;
    let told = match Config::from_str("t.toml", &text) {
        Ok((_, warnings)) if !is_error => warnings,
        Err(errors) if is_error => errors,
        Ok(_) => panic!("taken, though wrong: {new}"),
        Err(errors) => panic!("{}", errors[0]),
    };
    assert!(told[0].message.contains(words), "{} lacks {words:?}", told[0]);
    assert_eq!(told[0].line, line, "{}", told[0]);
}

#[track_caller]
fn refused(old: &str, new: &str, words: &str) {
    told(old, new, words, true);
}

#[test]
fn translator_and_its_routes_are_compiled() {
    let snapshot = compiled(BASE).snapshot;
    let [instance] = &snapshot.siit[..] else { panic!("{:?}", snapshot.siit) };
    let siit = &instance.translator;
    assert_eq!((instance.name.as_str(), siit.prefixes.len(), siit.eam.entries().len()), ("one", 2, 2));
    assert_eq!(siit.v6_of(0xc000_0205), Ok(0x2001_0db8_0046 << 80 | 5));
    assert_eq!(siit.v6_of(0xc633_6401), Ok(0x0064_ff9b_0001 << 80 | 0xc633_6401));
    assert!(siit.reveals_source && !siit.no_hairpinning);
    assert!(siit.hosts.contains(0xc633_64ff) && !siit.hosts.contains(0xc633_6500));
    let rules = siit.rules;
    assert_eq!((rules.tos, rules.lowest_ipv6_mtu, rules.zero_udp), (Some(32), 1_500, ZeroUdp::Drop));
    let leads = |next_hop: &NextHop| *next_hop == NextHop::Translate(0);
    let v4 = snapshot.routes.iter().filter(|route| leads(&route.next_hop) && route.vrf == instance.vrf);
    let v4: Vec<String> = v4.map(|route| route.prefix.to_string()).collect();
    assert_eq!(v4, ["192.0.2.0/28", "203.0.113.5/32", "198.51.100.0/24"]);
    let v6 = snapshot.routes6.iter().filter(|route| route.next_hop == NextHop::Translate(0));
    let v6: Vec<String> = v6.map(|route| route.prefix.to_string()).collect();
    assert_eq!(v6, ["64:ff9b:1::/96", "2001:db8:100::/40"]);
}

/// RFC 6791 §3.2: the pool's addresses are the router's, and a packet to one does not leave again by the default route it came by.
#[test]
fn what_is_sent_to_a_source_of_icmp_errors_ends_here() {
    let sources = "icmp_sources = [\"192.0.2.250-192.0.2.253\"]";
    let next_hop = |sources: &str, address: &str| {
        let text = BASE.replace("icmp_sources = [\"192.0.2.250-192.0.2.253\"]", sources);
        let address = address.parse::<std::net::Ipv4Addr>().unwrap().to_bits();
        let snapshot = compiled(&text).snapshot;
        let leads = snapshot.routes.into_iter().filter(|route| route.prefix.contains(address));
        leads
            .filter(|route| route.vrf == snapshot.siit[0].vrf)
            .max_by_key(|route| route.prefix.len())
            .unwrap()
    };
    for last in 249..=254 {
        let route = next_hop(sources, &format!("192.0.2.{last}"));
        let is_source = (250..=253).contains(&last);
        assert_eq!(route.next_hop == NextHop::Blackhole, is_source, "192.0.2.{last}: {route:?}");
    }
    // Whoever has the address keeps it: mapped hosts, and the router itself.
    let taken = "icmp_sources = [\"192.0.2.5\", \"198.51.100.0-198.51.100.7\"]";
    for (address, wanted) in [("192.0.2.5", "192.0.2.0/28"), ("198.51.100.3", "198.51.100.0/24")] {
        let route = next_hop(taken, address);
        assert_eq!((route.prefix.to_string().as_str(), route.next_hop), (wanted, NextHop::Translate(0)));
    }
    let (config, _) =
        Config::from_str("t.toml", &BASE.replace(sources, "icmp_sources = [\"10.0.0.1\"]")).unwrap();
    let mac = carrack_wire::MacAddr([2, 0, 0, 0, 0, 1]);
    let ports = [PortFacts { name: "lan".into(), mac, mtu: 1_500 }];
    let routes = compile(&config, &ports, None).unwrap().snapshot.routes;
    assert!(routes.iter().all(|route| route.next_hop != NextHop::Blackhole), "{routes:?}");
}

#[test]
fn defaults_are_those_of_the_rfc() {
    let text = "[[siit]]\nname = \"a\"\nprefixes = [\"2001:db8::/96\"]\n";
    let (config, _) = Config::from_str("t.toml", text).unwrap();
    let snapshot = compile(&config, &[], None).unwrap().snapshot;
    let siit = &snapshot.siit[0].translator;
    assert_eq!(siit.rules, carrack_xlat::Rules::default());
    assert!(!siit.reveals_source && !siit.no_hairpinning && siit.icmp_sources.is_empty());
}

#[test]
fn each_mistake_is_pointed_at() {
    let prefixes = "prefixes = [\"64:ff9b:1::/96\", \"2001:db8:100::/40\"]";
    refused(prefixes, "prefixes = [\"2001:db8::/33\"] #!", "not 33");
    refused(prefixes, "prefixes = [\"64:ff9b::/64\"] #!", "only be used with 96 bits");
    refused(prefixes, "prefixes = [\"2001:db8:1::/48\", \"2001:db8:1:2::/64\"] #!", "overlaps");
    refused("ipv4 = [\"198.51.100.0/24\"]", "ipv4 = [\"10.0.0.0/24\"] #!", "leads to `lan` already");
    refused("ipv4 = [\"198.51.100.0/24\"]", "ipv4 = [\"0.0.0.0/0\"] #!", "leads to a [[route]] already");
    refused("vrf = \"dc\"\nprefixes", "vrf = \"cd\" #!\nprefixes", "no routing instance `cd`");
    let second = "{ v4 = \"203.0.113.5\", v6 = \"2001:db8:46::5:0\" },";
    refused(second, "{ v4 = \"192.0.2.0/28\", v6 = \"2001:db8:47::/124\" }, #!", "mapped twice");
    refused(second, "{ v4 = \"203.0.113.0/24\", v6 = \"2001:db8:46::500/121\" }, #!", "by 1 ");
    refused(second, "{ v4 = \"203.0.113.0/24\", v6 = \"64:ff9b:1::/96\" }, #!", "all of the prefix");
    refused(second, "{ v4 = \"203.0.113.5\" }, #!", "needs both keys");
    refused(second, "{ v4 = \"203.0.113.5\", v5 = \"::1\" }, #!", "did you mean");
    refused(second, "\"203.0.113.5\", #!", "a table like");
    refused("name = \"one\"", "name = \"none\" #!\n[[siit]]\nname = \"one\"", "translates nothing");
    let one =
        "[[siit]]\nname = \"one\"\nvrf = \"dc\"\nprefixes = [\"64:ff9b:1::/96\", \"2001:db8:100::/40\"]";
    let both = "[[siit]]\nname = \"two\"\nvrf = \"dc\"\nprefixes = [\"64:ff9b:1::/96\"]\n";
    refused(one, &format!("{both}{one} #!"), "leads to `two` already");
}

/// RFC 7757 §3.3: hosts of a mapping may be within the prefix, where a route of their own leads to them.
#[test]
fn the_table_of_rfc_7757_stands_beside_its_prefix() {
    const FIGURE_1: &str = r#"
[[interface]]
name = "lan"
device = "mem:lan"
address = ["198.18.0.1/24", "2001:db8::1/64"]
[[route]]
prefix = "0.0.0.0/0"
via = "198.18.0.254"
[[route]]
prefix = "::/0"
via = "2001:db8::2"
[[route]]
prefix = "64:ff9b::/127"
via = "2001:db8::3"
[[siit]]
name = "figure-1"
prefixes = ["64:ff9b::/96"]
eam = [
  { v4 = "192.0.2.1", v6 = "2001:db8:aaaa::" },
  { v4 = "192.0.2.2/32", v6 = "2001:db8:bbbb::b/128" },
  { v4 = "192.0.2.16/28", v6 = "2001:db8:cccc::/124" },
  { v4 = "192.0.2.128/26", v6 = "2001:db8:dddd::/64" },
  { v4 = "192.0.2.192/29", v6 = "2001:db8:eeee:8::/62" },
  { v4 = "192.0.2.224/31", v6 = "64:ff9b::/127" },
]
"#;
    let snapshot = compiled(FIGURE_1).snapshot;
    let siit = &snapshot.siit[0].translator;
    let well_known = |low: u128| 0x0064_ff9b << 96 | low;
    assert_eq!((siit.v6_of(0xc000_02e1), siit.v4_of(well_known(1))), (Ok(well_known(1)), Ok(0xc000_02e1)));
    assert_eq!(siit.v6_of(0x0909_0909), Ok(well_known(0x0909_0909)));
    let to_hosts = snapshot.routes6.iter().filter(|route| route.prefix.contains(well_known(1)));
    let longest = to_hosts.max_by_key(|route| route.prefix.len()).unwrap();
    assert!(matches!(longest.next_hop, NextHop::Gateway(..)), "{longest:?}");

    let warned = |text: &str, at: &str, words: &str| {
        let (_, warnings) = Config::from_str("t.toml", text).unwrap_or_else(|errors| panic!("{}", errors[0]));
        let line = text.lines().position(|line| line.contains(at)).unwrap() + 1;
        assert_eq!((warnings.len(), warnings[0].line), (1, line), "{}", warnings[0]);
        assert!(warnings[0].message.contains(words), "{}", warnings[0]);
    };
    // The default route is not the hosts' way: the prefix is more specific.
    let unrouted = FIGURE_1.replace("[[route]]\nprefix = \"64:ff9b::/127\"\nvia = \"2001:db8::3\"\n", "");
    warned(&unrouted, "v6 = \"64:ff9b::/127\"", "siit-loop");
    let hides = FIGURE_1.replace("64:ff9b::/127", "64:ff9b::9.9.9.8/127");
    warned(&hides, "v6 = \"64:ff9b::9.9.9.8/127\"", "nobody reaches 9.9.9.8-9.9.9.9");
}

#[test]
fn what_may_be_meant_is_warned_about() {
    let second = "{ v4 = \"203.0.113.5\", v6 = \"2001:db8:46::5:0\" },";
    let inner = "{ v4 = \"192.0.2.5\", v6 = \"2001:db8:46::5:0\" }, #!";
    told(second, inner, "may not mirror each other", false);
    let sources = "icmp_sources = [\"192.0.2.250-192.0.2.253\"]";
    told(sources, "icmp_sources = [\"10.9.9.9\"] #!", "RFC 6791 §3.1", false);
    // RFC 6052 §3.1 (hosts), RFC 6052 §3.3
    told("\"64:ff9b:1::/96\", \"2001:db8:100::/40\"]", "\"64:ff9b::/96\"] #!", "RFC 6052 §3.1", false);
}

#[test]
fn prefix_of_nat64_is_not_that_of_a_stateless_translator() {
    let text = "[[nat]]\nname = \"cgn\"\n[nat.nat64]\nprefixes = [\"64:ff9b::/96\"]\n[[nat.pool]]\nname = \"p\"\n\
                addresses = [\"192.0.2.1\"]\n[[siit]]\nname = \"s\"\nprefixes = [\"64:ff9b::/96\"]\n";
    let errors = Config::from_str("t.toml", text).unwrap_err();
    assert!(errors.iter().any(|error| error.message.contains("NAT64 of `cgn`")), "{}", errors[0]);
}

#[test]
fn a_route_to_a_translators_prefix_would_contradict_it() {
    let with = |prefix: &str| {
        format!(
            "[[interface]]\nname = \"lan\"\ndevice = \"mem:lan\"\naddress = [\"2001:db8::1/64\"]\n[[route]]\nprefix = \
             \"{prefix}\"\nvia = \"2001:db8::2\"\n[[siit]]\nname = \"s\"\nprefixes = [\"64:ff9b::/96\"]\n"
        )
    };
    let errors = Config::from_str("t.toml", &with("64:ff9b::/96")).unwrap_err();
    assert_eq!((errors.len(), errors[0].line), (1, 10), "{}", errors[0]);
    assert!(errors[0].message.contains("64:ff9b::/96 leads to a [[route]] already"), "{}", errors[0]);
    // What is within leads elsewhere (RFC 7915 §5.6), and a default route leads there what is left.
    for prefix in ["64:ff9b::198.51.100.0/120", "::/0"] {
        assert!(Config::from_str("t.toml", &with(prefix)).is_ok(), "{prefix}");
    }
}
