//! Routes that are missing are told of, at the line that needs them; those that nothing would ever use are refused.
#![forbid(unsafe_code)]

use carrack_config::{Config, Diagnostic};

const INTERFACES: &str = r#"
[[interface]]
name = "inside"
device = "mem:in"
side = "inside"
address = ["2001:db8:1::1/64", "100.64.0.1/24"]

[[interface]]
name = "outside"
device = "mem:out"
side = "outside"
address = ["192.0.2.1/24", "2001:db8:ffff::1/64"]
"#;
const DEFAULT4: &str = "[[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"192.0.2.254\"\n";
const DEFAULT6: &str = "[[route]]\nprefix = \"::/0\"\nvia = \"2001:db8:ffff::fe\"\n";
const NAT64: &str = r#"
[[nat]]
name = "cgn"
[nat.nat64]
prefixes = ["64:ff9b::/96"]
subscribers = ["2001:db8:100::/40"]
[[nat.pool]]
name = "public"
addresses = ["192.0.2.16-192.0.2.31"]
"#;

fn route(prefix: &str, more: &str) -> String {
    format!("[[route]]\nprefix = \"{prefix}\"\n{more}\n")
}

fn siit(more: &str) -> String {
    format!("[[siit]]\nname = \"dc\"\nprefixes = [\"2001:db8:64::/96\"]\n{more}\n")
}

fn warnings(parts: &[&str]) -> (String, Vec<Diagnostic>) {
    let text = parts.concat();
    let read = Config::from_str("t.toml", &text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    (text, read.1)
}

#[track_caller]
fn quiet(parts: &[&str]) {
    let (_, warnings) = warnings(parts);
    assert_eq!(warnings, []);
}

/// Exactly one warning, at the first line with `at`, with these words.
#[track_caller]
fn warns(parts: &[&str], at: &str, words: &[&str]) {
    let (text, told) = warnings(parts);
    only(&text, &told, at, words);
}

#[track_caller]
fn only(text: &str, told: &[Diagnostic], at: &str, words: &[&str]) {
    let all: Vec<String> = told.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1, "{}", all.join("\n"));
    let line = text.lines().position(|line| line.contains(at)).expect("such a line") + 1;
    assert_eq!(told[0].line, line, "{}", all[0]);
    for word in words {
        assert!(told[0].message.contains(word), "{} lacks {word:?}", all[0]);
    }
}

/// Exactly one error, at the first line with `at`, with these words.
#[track_caller]
fn refuses(parts: &[&str], at: &str, words: &[&str]) {
    let text = parts.concat();
    let Err(errors) = Config::from_str("t.toml", &text) else { panic!("taken, though wrong:\n{text}") };
    only(&text, &errors, at, words);
}

#[test]
fn ipv4_outside_needs_a_route_by_an_outside_interface() {
    let inside = route("2001:db8:100::/40", "via = \"2001:db8:1::2\"");
    let nat44 = "[[nat]]\nname = \"four\"\nsubscribers = [\"100.64.0.0/10\"]\n[[nat.pool]]\nname = \"p\"\n\
                 addresses = [\"192.0.2.64\"]\n";
    quiet(&[INTERFACES, DEFAULT4, &inside, NAT64]);
    let words = ["no route leads to IPv4 outside in vrf `default`", "what `cgn` translates is dropped"];
    warns(&[INTERFACES, &inside, NAT64], "name = \"cgn\"", &words);
    warns(&[INTERFACES, nat44], "name = \"four\"", &["`prefix = \"0.0.0.0/0\"`"]);
    // Once, whoever waits for it.
    warns(&[INTERFACES, &inside, NAT64, nat44, &siit("")], "name = \"cgn\"", &[]);
    // Some of the world is enough; that of the inside, or nowhere, is not.
    quiet(&[INTERFACES, &route("203.0.113.0/24", "via = \"192.0.2.9\""), nat44]);
    quiet(&[INTERFACES, &route("203.0.113.0/24", "interface = \"outside\""), nat44]);
    for leads in ["via = \"100.64.0.9\"", "blackhole = true", "interface = \"inside\""] {
        warns(&[INTERFACES, &route("203.0.113.0/24", leads), nat44], "name = \"four\"", &[]);
    }
    // A stateless translator's interfaces need no side.
    let plain = INTERFACES.replace("side = \"outside\"\n", "").replace("side = \"inside\"\n", "");
    warns(&[&plain, &siit("")], "name = \"dc\"", &["what `dc` translates is dropped"]);
    quiet(&[&plain, &route("203.0.113.0/24", "via = \"192.0.2.9\""), &siit("")]);
    // Of the other routing instance.
    let other = "[[vrf]]\nname = \"out\"\n";
    let moved = INTERFACES.replace("side = \"outside\"", "side = \"outside\"\nvrf = \"out\"");
    let nat44 = nat44.replace("name = \"four\"", "name = \"four\"\noutside_vrf = \"out\"");
    let inside4 = route("0.0.0.0/0", "via = \"100.64.0.2\"");
    warns(&[other, &moved, &inside4, &nat44], "name = \"four\"", &["in vrf `out`"]);
    quiet(&[other, &moved, &DEFAULT4.replace("via", "vrf = \"out\"\nvia"), &nat44]);
}

#[test]
fn nat64_subscribers_are_behind_an_inside_interface() {
    let at = "subscribers = [";
    let words = ["no IPv6 route leads to the subscribers 2001:db8:100::/40", "an inside interface"];
    warns(&[INTERFACES, DEFAULT4, NAT64], at, &words);
    warns(&[INTERFACES, DEFAULT4, DEFAULT6, NAT64], at, &words);
    warns(&[INTERFACES, DEFAULT4, &route("2001:db8:100::/40", "blackhole = true"), NAT64], at, &words);
    // Some of them, all of them, all the world.
    for prefix in ["2001:db8:100:7::/64", "2001:db8:100::/40", "2001:db8::/32", "::/0"] {
        quiet(&[INTERFACES, DEFAULT4, &route(prefix, "via = \"2001:db8:1::2\""), NAT64]);
        quiet(&[INTERFACES, DEFAULT4, &route(prefix, "via = \"fe80::2\"\ninterface = \"inside\""), NAT64]);
    }
    // Connected ones, and whoever is served when no list is given.
    quiet(&[INTERFACES, DEFAULT4, &NAT64.replace("2001:db8:100::/40", "2001:db8:1::/48")]);
    quiet(&[INTERFACES, DEFAULT4, &NAT64.replace("subscribers = [\"2001:db8:100::/40\"]\n", "")]);
    let link_local = INTERFACES.replace("2001:db8:1::1/64", "fe80::1/64");
    warns(&[&link_local, DEFAULT4, NAT64], at, &words);
}

#[test]
fn nat64_needs_ipv6_inside() {
    let four = INTERFACES.replace("\"2001:db8:1::1/64\", ", "");
    let words = ["`inside` has no IPv6 address", "the NAT64 of `cgn`", "add one to its `address`"];
    warns(&[&four, DEFAULT4, NAT64], "name = \"inside\"", &words);
    let second = "[[interface]]\nname = \"six\"\ndevice = \"mem:six\"\nside = \"inside\"\naddress = [\"2001:db8:100::1/64\"]\n";
    quiet(&[&four, second, DEFAULT4, NAT64]);
}

#[test]
fn hosts_of_a_stateless_translator_are_routed_to() {
    let eam = siit("eam = [\n{ v4 = \"198.51.100.20\", v6 = \"2001:db8:77::10\" },\n]");
    let words = ["no route leads to the hosts 2001:db8:77::10/128", "in vrf `default`"];
    warns(&[INTERFACES, DEFAULT4, &eam], "v4 =", &words);
    quiet(&[INTERFACES, DEFAULT4, DEFAULT6, &eam]);
    quiet(&[INTERFACES, DEFAULT4, &eam.replace("db8:77::10", "db8:1::10")]);
    // As many as anybody reads.
    let many: Vec<String> =
        (0..9).map(|n| format!("{{ v4 = \"198.51.100.{n}\", v6 = \"3fff::{n}\" }}")).collect();
    let many = siit(&format!("eam = [{}]", many.join(", ")));
    assert_eq!(warnings(&[INTERFACES, DEFAULT4, &many]).1.len(), 5);

    let block = siit("ipv4 = [\"198.51.100.0/24\"]");
    let words = ["2001:db8:64::c633:6400/120", "more specific", "siit-loop"];
    warns(&[INTERFACES, DEFAULT4, DEFAULT6, &block], "ipv4 =", &words);
    for prefix in
        ["2001:db8:64::198.51.100.0/120", "2001:db8:64::198.51.100.9/128", "2001:db8:64::128.0.0.0/97"]
    {
        quiet(&[INTERFACES, DEFAULT4, &route(prefix, "via = \"2001:db8:1::2\""), &block]);
    }
    let beside = route("2001:db8:64::198.51.101.0/120", "via = \"2001:db8:1::2\"");
    warns(&[INTERFACES, DEFAULT4, &beside, &block], "ipv4 =", &words);
}

/// RFC 6877: the customer's side is the other way round.
#[test]
fn a_clat_needs_its_ipv4_hosts_and_a_way_to_the_provider() {
    let clat = siit(
        "ipv4 = [\"0.0.0.0/0\"]\neam_hosts = \"ipv4\"\neam = [{ v4 = \"100.64.0.0/16\", v6 = \"2001:db8:464::/112\" }]",
    );
    quiet(&[INTERFACES, DEFAULT6, &clat]);
    warns(&[INTERFACES, &clat], "prefixes = ", &["no route leads to 2001:db8:64::/96", "next translator"]);
    // No host has an address within the provider's prefix, so that it may be the well-known one.
    quiet(&[INTERFACES, DEFAULT6, &clat.replace("2001:db8:64::/96", "64:ff9b::/96")]);
    let far = clat.replace("100.64.0.0/16", "10.64.0.0/16");
    warns(&[INTERFACES, DEFAULT6, &far], "eam = ", &["no route leads to the hosts 10.64.0.0/16"]);
}

/// What comes from inside is translated before it is routed (RFC 6146 §3.5): such a route would never be used, nor is any to
/// be told to others (RFC 6052 §3.2).
#[test]
fn a_route_within_a_nat64_prefix_is_refused() {
    let inside = route("2001:db8:100::/40", "via = \"2001:db8:1::2\"");
    for prefix in ["64:ff9b::/96", "64:ff9b::198.51.100.0/120"] {
        let dead = route(prefix, "via = \"2001:db8:1::9\"");
        let parts = [INTERFACES, DEFAULT4, &dead, &inside, NAT64];
        let line = parts.concat().lines().position(|line| line.starts_with("prefixes")).unwrap() + 1;
        let words = ["is within the NAT64 prefix 64:ff9b::/96 of `cgn`", &format!("(line {line})")];
        refuses(&parts, &format!("prefix = \"{prefix}"), &words);
    }
    // What is wider, or of another routing instance, is another matter.
    quiet(&[INTERFACES, DEFAULT4, &inside, &route("64:ff9b::/64", "blackhole = true"), NAT64]);
    let other = route("64:ff9b::/96", "blackhole = true\nvrf = \"out\"");
    quiet(&["[[vrf]]\nname = \"out\"\n", INTERFACES, DEFAULT4, &inside, &other, NAT64]);
}

#[test]
fn an_outside_address_is_nats_or_a_stateless_translators() {
    let inside = route("2001:db8:100::/40", "via = \"2001:db8:1::2\"");
    let base = [INTERFACES, DEFAULT4, &inside, NAT64].concat();
    let line = base.lines().position(|line| line.contains("192.0.2.16-")).unwrap() + 1;
    let of_pool = format!("192.0.2.16-192.0.2.31 of pool `public` (line {line})");
    let eam = |v4: &str| siit(&format!("eam = [{{ v4 = \"{v4}\", v6 = \"2001:db8:1::/120\" }}]"));
    let one = |v4: &str| eam(v4).replace("1::/120", "1::9");
    refuses(&[&base, &one("192.0.2.31")], "eam = ", &["192.0.2.31/32 overlaps", &of_pool]);
    refuses(&[&base, &one("192.0.2.16")], "eam = ", &[&of_pool]);
    refuses(
        &[&base, &eam("192.0.2.0/27").replace("/120", "/123")],
        "eam = ",
        &["192.0.2.0/27 overlaps", &of_pool],
    );
    quiet(&[&base, &one("192.0.2.32")]);
    quiet(&[&base, &one("192.0.2.15")]);
    let static_one = base.replace(
        "[nat.nat64]",
        "subscribers = [\"100.64.0.0/10\"]\n[[nat.one_to_one]]\ninside = \"100.64.0.5\"\noutside = \"192.0.2.40\"\n[nat.nat64]",
    );
    refuses(&[&static_one, &one("192.0.2.40")], "eam = ", &["a one-to-one mapping of `cgn`"]);
    // A block that is wholly a pool's is dead, one that a pool has a part of is not.
    let block = |ipv4: &str| siit(&format!("ipv4 = [\"{ipv4}\"]"));
    let hosts = route("2001:db8:64::128.0.0.0/97", "via = \"2001:db8:1::2\"");
    refuses(&[&base, &hosts, &block("192.0.2.24/29")], "ipv4 = ", &["192.0.2.24/29 overlaps", &of_pool]);
    quiet(&[&base, &hosts, &block("192.0.2.0/25")]);
    // Of another routing instance.
    let apart = one("192.0.2.31").replace("name = \"dc\"", "name = \"dc\"\nvrf = \"out\"");
    let there = "[[vrf]]\nname = \"out\"\n[[route]]\nvrf = \"out\"\nprefix = \"0.0.0.0/0\"\nprohibit = true\n\
                 [[route]]\nvrf = \"out\"\nprefix = \"::/0\"\nprohibit = true\n";
    quiet(&[there, &base, &apart]);
}

/// One mistake is one error, though much depends on what is wrong.
#[test]
fn a_mistake_in_nat64_is_told_once() {
    let inside = route("2001:db8:100::/40", "via = \"2001:db8:1::2\"");
    let with = |old: &str, new: &str| {
        assert!(NAT64.contains(old), "{old}");
        [INTERFACES, DEFAULT4, &inside, &NAT64.replacen(old, new, 1)].concat()
    };
    refuses(&[&with("64:ff9b::/96", "2001:db8::/33")], "prefixes = ", &["not 33"]);
    let stateless = [INTERFACES, DEFAULT4, &siit("").replace("2001:db8:64::/96", "2001:db8:1::/63")].concat();
    refuses(&[&stateless], "prefixes = ", &["cannot stand for IPv4"]);
    let typo = with("prefixes", "subscriber_prefix_len = 56\nprefixes");
    refuses(&[&typo], "subscriber_prefix_len", &["did you mean `subscriber_prefix_length`?"]);
    let short = with("prefixes", "subscriber_prefix_length = 20\nprefixes");
    refuses(&[&short], "subscriber_prefix_length", &["choose from 32 to 128"]);
}

#[test]
fn a_deterministic_nat64_is_told_how_long_a_subscribers_prefix_is() {
    let inside = route("2001:db8:100::/40", "via = \"2001:db8:1::2\"");
    let nat = NAT64.replacen("[[nat.pool]]", "[nat.ports]\nmode = \"deterministic\"\n[[nat.pool]]", 1);
    let words = ["every IPv6 prefix of 128 bits", "set `subscriber_prefix_length` in [nat.nat64]"];
    refuses(&[INTERFACES, DEFAULT4, &inside, &nat], "name = \"public\"", &words);
    let sized = |len: u8| {
        nat.replacen("subscribers =", &format!("subscriber_prefix_length = {len}\nsubscribers ="), 1)
    };
    quiet(&[INTERFACES, DEFAULT4, &inside, &sized(56)]);
    let words = ["16777216 subscribers on 16 outside addresses", "at least 261 addresses"];
    refuses(&[INTERFACES, DEFAULT4, &inside, &sized(64)], "name = \"public\"", &words);
}
