//! `[nat.nat64]`: what it compiles to, and what it refuses.
#![forbid(unsafe_code)]

use carrack_config::{Compiled, Config, PortFacts, compile};
use carrack_nat::Inside;
use carrack_nat::policy::StaticRule;
use carrack_xlat::{Rules, ZeroUdp};

const BASE: &str = r#"
[[interface]]
name = "lan"
device = "mem:lan"
side = "inside"
address = ["10.0.0.1/24"]

[[interface]]
name = "wan"
device = "mem:wan"
side = "outside"
address = ["192.0.2.1/24"]

[[nat]]
name = "cgn64"

[nat.nat64]
prefixes = ["64:ff9b::/96", "2001:db8:64::/96"]
subscribers = ["2001:db8:100::/40"]
subscriber_prefix_length = 56

[[nat.pool]]
name = "public"
addresses = ["203.0.113.0/28"]

[[nat.forward]]
outside = "203.0.113.1:80"
inside = "[2001:db8:100::80]:8080"
"#;

fn config(text: &str) -> Config {
    Config::from_str("t.toml", text).unwrap_or_else(|errors| panic!("{}", errors[0])).0
}

fn compiled(text: &str, before: Option<&Compiled>) -> Compiled {
    let ports = ["lan", "wan"].map(|name| PortFacts {
        name: name.into(),
        mac: carrack_wire::MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1_500,
    });
    compile(&config(text), &ports, before).unwrap_or_else(|errors| panic!("{}", errors[0]))
}

#[track_caller]
fn refused(old: &str, new: &str, words: &str) {
    assert!(BASE.contains(old), "{old}");
    let text = BASE.replacen(old, new, 1);
    let Err(errors) = Config::from_str("t.toml", &text) else { panic!("taken, though wrong: {new}") };
    assert!(errors[0].message.contains(words), "{} lacks {words:?}", errors[0]);
    let line = text.lines().position(|line| line.contains("#!")).expect("a marked line") + 1;
    assert_eq!(errors[0].line, line, "{}", errors[0]);
}

/// RFC 6146 §3.5.4: where no prefix is configured it is the well-known one, with all its rules.
#[test]
fn without_a_prefix_it_is_the_well_known_one() {
    let written = "prefixes = [\"64:ff9b::/96\", \"2001:db8:64::/96\"]\n";
    let silent = BASE.replace(written, "");
    let named = BASE.replace(written, "prefixes = [\"64:ff9b::/96\"]\n");
    assert_eq!(config(&silent).nat, config(&named).nat);
    let snapshot = compiled(&silent, None).snapshot;
    let nat64 = snapshot.nat.instances[0].nat64.as_ref().unwrap();
    let [prefix] = &nat64.prefixes[..] else { panic!("{:?}", nat64.prefixes) };
    // RFC 6052 §3.1: no private address stands behind it.
    let prefix = prefix.prefix;
    assert!(prefix.is_well_known() && prefix.embed_checked(0x0a00_0001).is_err());
    // What clashes with it is refused as if it had been written.
    refused(
        &format!("{written}subscribers = [\"2001:db8:100::/40\"]\nsubscriber_prefix_length = 56"),
        "subscribers = [\"64:ff9b::/112\"] #!",
        "within the NAT64 prefix 64:ff9b::/96",
    );
    let translator = "[[siit]]\nname = \"s\"\nprefixes = [\"64:ff9b::/96\"] #!\n";
    let instance = "[[nat]]\nname = \"cgn64\"\n\n[nat.nat64]\n";
    refused(&format!("{instance}{written}"), &format!("{translator}{instance}"), "NAT64 of `cgn64`");
    refused(written, "prefixes = [] #!\n", "an empty list");
}

#[test]
fn an_instance_serves_ipv6_only_unless_it_names_ipv4_subscribers() {
    let nat = &compiled(BASE, None).snapshot.nat.instances[0];
    assert!(nat.subscribers.is_empty());
    let nat64 = nat.nat64.as_ref().unwrap();
    assert_eq!((nat64.subscriber_len, nat64.subscribers[0].to_string()), (56, "2001:db8:100::/40".into()));
    let both = BASE.replace("name = \"cgn64\"", "name = \"cgn64\"\nsubscribers = [\"10.0.0.0/8\"]");
    assert_eq!(compiled(&both, None).snapshot.nat.instances[0].subscribers.len(), 1);
}

#[test]
fn a_forward_leads_to_an_ipv6_host() {
    let nat = &compiled(BASE, None).snapshot.nat.instances[0];
    let host: std::net::Ipv6Addr = "2001:db8:100::80".parse().unwrap();
    let inside = Inside::V6(host.into());
    assert!(
        matches!(nat.statics[0], StaticRule::Forward { inside: i, inside_port: 8_080, .. } if i == inside)
    );
}

/// RFC 7915 §4.1, §4.5, §5.1: the same keys as those of a stateless translator.
#[test]
fn how_headers_are_translated_is_configured() {
    let rules = |text: &str| compiled(text, None).snapshot.nat.instances[0].nat64.as_ref().unwrap().rules;
    assert_eq!(rules(BASE), Rules::default());
    let (old, length) = ("subscriber_prefix_length = 56", "subscriber_prefix_length = 56\n");
    let keys = "tos = 32\nzero_traffic_class = true\nlowest_ipv6_mtu = 1500\nzero_checksum_udp = \"drop\"";
    let wanted =
        Rules { tos: Some(32), zero_traffic_class: true, lowest_ipv6_mtu: 1_500, zero_udp: ZeroUdp::Drop };
    assert_eq!(rules(&BASE.replace(old, &format!("{length}{keys}"))), wanted);
    refused(old, &format!("{length}lowest_ipv6_mtu = 1279 #!"), "1280");
    refused(old, &format!("{length}lowest_ipv6_mtu = 9601 #!"), "9600");
    refused(old, &format!("{length}tos = 256 #!"), "255");
    refused(old, &format!("{length}zero_traffic_class = 1 #!"), "true");
    refused(old, &format!("{length}zero_checksum_udp = \"pass\" #!"), "compute");
}

#[test]
fn a_prefix_keeps_its_number_over_reloads() {
    let first = compiled(BASE, None);
    let via = |c: &Compiled, at: usize| c.snapshot.nat.instances[0].nat64.as_ref().unwrap().prefixes[at].via;
    assert_eq!((via(&first, 0), via(&first, 1)), (1, 2));
    let turned =
        BASE.replace("\"64:ff9b::/96\", \"2001:db8:64::/96\"", "\"2001:db8:65::/96\", \"2001:db8:64::/96\"");
    let second = compiled(&turned, Some(&first));
    assert_eq!((via(&second, 0), via(&second, 1)), (3, 2));
}

#[test]
fn mistakes_are_named_where_they_are() {
    let prefixes = "prefixes = [\"64:ff9b::/96\", \"2001:db8:64::/96\"]";
    for (new, words) in [
        ("prefixes = [\"64:ff9b::/95\"] #!", "has 32, 40, 48, 56, 64 or 96 bits"),
        ("prefixes = [\"2001:db8:0:0:100::/96\"] #!", "bits 64 to 71"),
        (
            "prefixes = [\"2001:db8::/32\", \"2001:db8:64::/96\"] #!",
            "overlaps 2001:db8::/32 of the same `prefixes`",
        ),
        ("prefixes = [] #!", "an empty list"),
        ("prefixes = [\"192.0.2.0/24\"] #!", "is not an IPv6 prefix"),
    ] {
        refused(prefixes, new, words);
    }
    let subscribers = "subscribers = [\"2001:db8:100::/40\"]";
    refused(subscribers, "subscribers = [\"2001:db8:100::/64\"] #!", "less than one subscriber of 56 bits");
    refused(subscribers, "subscribers = [\"64:ff9b::/96\"] #!", "less than one subscriber");
    refused(
        "inside = \"[2001:db8:100::80]:8080\"",
        "inside = \"[3fff::1]:80\" #!",
        "not among the `subscribers`",
    );
    refused("inside = \"[2001:db8:100::80]:8080\"", "inside = \"2001:db8::1\" #!", "write it like");
}

/// RFC 6146 §3.5: what comes from a NAT64 prefix is dropped, so neither the router nor a host behind it can be in one.
#[test]
fn no_prefix_holds_the_router_or_a_host_that_a_forward_leads_to() {
    let own = "address = [\"10.0.0.1/24\", \"2001:db8:1::1/64\"]";
    let with = |base: &str| base.replacen("address = [\"10.0.0.1/24\"]", own, 1);
    let wide = BASE.replace("\"2001:db8:64::/96\"", "\"2001:db8::/40\"");
    let _ = config(&wide);
    let error = |text: &str| Config::from_str("t.toml", text).unwrap_err().remove(0);
    let why = error(&with(&wide));
    assert!(why.message.contains("holds 2001:db8:1::1/64, which is interface `lan`"), "{why}");
    assert!(why.message.contains("(line 6)"), "{why}");
    let line = |text: &str, words: &str| text.lines().position(|line| line.contains(words)).unwrap() + 1;
    assert_eq!(why.line, line(&wide, "2001:db8::/40"));
    // A prefix within a subnet, with the router's own address in it or beside it.
    let inner = |prefix: &str| with(&BASE.replace("2001:db8:64::/96", prefix));
    assert!(error(&inner("2001:db8:1::/96")).message.contains("choose another prefix"));
    let _ = config(&inner("2001:db8:1:0:0:64::/96"));
    // Of another routing instance.
    let other = "[[vrf]]\nname = \"mgmt\"\n[[interface]]\nname = \"m\"\ndevice = \"mem:m\"\nside = \"inside\"\n\
                 vrf = \"mgmt\"\naddress = [\"2001:db8:1::1/64\"]\n";
    let _ = config(&format!("{other}{wide}"));
    let forward = BASE.replace("2001:db8:64::/96", "2001:db8:100::/96");
    let why = error(&forward);
    assert!(why.message.contains("2001:db8:100::80 is within the NAT64 prefix 2001:db8:100::/96"), "{why}");
    assert_eq!(why.line, line(&forward, "inside = \"[2001"));
}

#[test]
fn two_instances_share_a_prefix_only_with_different_subscribers() {
    let second = |subscribers: &str, mark: &str| {
        format!(
            "{BASE}\n[[nat]]\nname = \"two\"\n[nat.nat64]\nprefixes = [\"64:ff9b::/96\"]\nsubscribers = [\"{subscribers}\"] {mark}\n\
             [[nat.pool]]\nname = \"p2\"\naddresses = [\"203.0.113.32/28\"]\n"
        )
    };
    let _ = config(&second("2001:db8:200::/40", ""));
    let text = second("2001:db8:100::/48", "#!");
    let errors = Config::from_str("t.toml", &text).unwrap_err();
    assert!(errors[0].message.contains("served by `cgn64` too"), "{}", errors[0]);
}
