//! What of IPv6 addresses, routes and router advertisements is refused, where and with which words.
#![forbid(unsafe_code)]

use carrack_config::{Config, PortFacts, compile};
use carrack_pipeline::snapshot::NextHop;

const BASE: &str = r#"
[[interface]]
name = "lan"
device = "mem:lan"
side = "inside"
address = ["10.0.0.1/24", "2001:db8:1::1/64"]

[interface.router_advertisement]
enabled = true
valid = "30d"

[[interface]]
name = "wan"
device = "mem:wan"
side = "outside"
address = ["192.0.2.1/24", "2001:db8:ffff::1/64"]

# Nothing depends on this one.
[[interface]]
name = "spare"
device = "mem:spare"
address = ["10.9.0.1/24", "2001:db8:9::1/64"]

[[route]]
prefix = "::/0"
via = "2001:db8:ffff::fe"

[[route]]
prefix = "2001:db8:100::/40"
via = "2001:db8:1::2"
"#;

/// Exactly one error, at the line marked with `#!`, with these words.
#[track_caller]
fn refused(old: &str, new: &str, words: &str) {
    assert!(BASE.contains(old), "no {old:?}");
    let text = BASE.replacen(old, new, 1);
    let marked = text.lines().position(|line| line.contains("#!")).expect("a marked line") + 1;
    let Err(errors) = Config::from_str("t.toml", &text) else { panic!("taken, though wrong: {new}") };
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!((errors.len(), errors[0].line), (1, marked), "{}", all.join("\n"));
    assert!(errors[0].message.contains(words), "{:?} lacks {words:?}", errors[0].message);
}

#[test]
fn as_it_is_it_is_taken() {
    let (_, warnings) = Config::from_str("t.toml", BASE).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!(warnings, []);
}

#[test]
fn addresses_that_cannot_be_an_interfaces_are_refused() {
    let own = "address = [\"10.9.0.1/24\", \"2001:db8:9::1/64\"]";
    let with = |text: &str| format!("address = [\"10.9.0.1/24\", {text}] #!");
    for (address, words) in [
        ("\"2001:db8:9::1\"", "2001:db8"),
        ("\"2001:db8:9::1/129\"", "129"),
        ("\"2001:db8:9:::1/64\"", "2001:db8:9:::1"),
        ("\"ff02::1/64\"", "give a unicast address"),
        ("\"::1/128\"", "::1"),
        ("\"::/64\"", "::"),
        ("\"::ffff:10.0.0.1/120\"", "::ffff:"),
        ("\"2001:db8:9::1/64\", \"2001:db8:9::1/64\"", "overlaps"),
        ("\"2001:db8:9::1/64\", \"fe80::1/64\", \"fe80::2/64\"", "second link-local address"),
    ] {
        refused(own, &with(address), words);
    }
    refused(own, &with("\"2001:db8:1:0:1::1/80\""), "overlaps");
}

/// RFC 4291 §2.6.1; a link between two routers has none (RFC 6164 §5).
#[test]
fn the_address_of_all_routers_of_a_subnet_leads_to_this_one() {
    let spare = "\"2001:db8:9::1/64\"";
    let local = |addresses: &str| {
        let text = BASE.replacen(spare, addresses, 1);
        let (config, _) = Config::from_str("t.toml", &text).unwrap_or_else(|errors| panic!("{}", errors[0]));
        let routes = compile(&config, &PortFacts::assumed(&config), None).unwrap().snapshot.routes6;
        let local = routes.iter().filter(|route| matches!(route.next_hop, NextHop::Local(id) if id.0 == 2));
        local.map(|route| route.prefix.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(local(spare), ["2001:db8:9::1/128", "2001:db8:9::/128"]);
    let two = "\"2001:db8:9::1/64\", \"2001:db8:9::2/64\", \"fe80::1/64\"";
    assert_eq!(local(two), ["2001:db8:9::1/128", "2001:db8:9::/128", "2001:db8:9::2/128"]);
    assert_eq!(local("\"2001:db8:9::1/127\""), ["2001:db8:9::1/128"]);
    assert_eq!(local("\"2001:db8:9::1/128\""), ["2001:db8:9::1/128"]);
}

#[test]
fn a_link_too_small_for_ipv6_is_refused() {
    refused("name = \"lan\"\n", "name = \"lan\"\nmtu = 1279 #!\n", "IPv6 needs at least 1280");
}

#[test]
fn routes_that_lead_nowhere_are_refused() {
    let via = "via = \"2001:db8:1::2\"";
    refused(via, "via = \"2001:db8:2::2\" #!", "on no connected subnet");
    refused(via, "via = \"10.0.0.2\" #!", "of the other IP version");
    refused(via, "via = \"2001:db8:1::1\" #!", "is this router itself");
    refused(via, "via = \"2001:db8:1::\" #!", "is this router itself");
    refused(via, "via = \"fe80::2\" #!", "say on which `interface`");
    refused(via, "via = \"2001:db8:ffff::2\" #!\ninterface = \"lan\"", "is on no subnet of `lan`");
    refused("prefix = \"2001:db8:100::/40\"", "prefix = \"2001:db8:1::/64\" #!", "is connected on `lan`");
    refused("prefix = \"2001:db8:100::/40\"", "prefix = \"2001:db8:1::1/128\" #!", "is connected on `lan`");
    refused("prefix = \"2001:db8:100::/40\"", "prefix = \"2001:db8:1::/128\" #!", "is connected on `lan`");
    refused("prefix = \"2001:db8:100::/40\"", "prefix = \"2001:db8:100::1/40\" #!", "2001:db8:100::");
    refused("prefix = \"2001:db8:100::/40\"", "prefix = \"::/0\" #!", "::/0");
}

#[test]
fn advertisements_that_hosts_would_misunderstand_are_refused() {
    let valid = "valid = \"30d\"";
    refused(valid, "valid = \"1h\"\npreferred = \"2h\" #!", "`preferred` is above `valid`");
    refused(valid, "interval = \"10m\"\nlifetime = \"5m\" #!", "`lifetime` is below `interval`");
    let lan = "name = \"lan\"\ndevice = \"mem:lan\"\nside = \"inside\"\naddress = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"]";
    let without = "name = \"lan\" #!\ndevice = \"mem:lan\"\nside = \"inside\"\naddress = [\"10.0.0.1/24\"]";
    let text = BASE.replace("[[route]]\nprefix = \"2001:db8:100::/40\"\nvia = \"2001:db8:1::2\"\n", "");
    let text = text.replacen(lan, without, 1);
    let errors = Config::from_str("t.toml", &text).unwrap_err();
    let marked = text.lines().position(|line| line.contains("#!")).expect("a marked line") + 1;
    assert_eq!((errors.len(), errors[0].line), (1, marked), "{}", errors[0]);
    assert!(errors[0].message.contains("has no IPv6 address"), "{}", errors[0]);
}
