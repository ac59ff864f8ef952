//! Every mistake is refused at its line, in a sentence that says what to do.
//!
//! Each case changes one thing in `base.toml`; the line that the error must name is marked with `#!`.
#![forbid(unsafe_code)]

use carrack_config::{Config, Severity};

const BASE: &str = include_str!("base.toml");

fn changed(old: &str, new: &str) -> String {
    assert!(BASE.contains(old), "base.toml has no {old:?}");
    BASE.replacen(old, new, 1)
}

fn marked_line(text: &str) -> usize {
    text.lines().position(|line| line.contains("#!")).expect("a marked line") + 1
}

/// The changed config is refused with exactly one error, at the marked line, with these words.
#[track_caller]
fn refuses(old: &str, new: &str, words: &[&str]) {
    let text = changed(old, new);
    let Err(errors) = Config::from_str("t.toml", &text) else { panic!("taken, though wrong: {new}") };
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors.len(), 1, "{}", all.join("\n"));
    assert_eq!(errors[0].line, marked_line(&text), "{}", all[0]);
    assert!(
        all[0].starts_with(&format!("t.toml:{}:{}: error: ", errors[0].line, errors[0].column)),
        "{}",
        all[0]
    );
    for word in words {
        assert!(errors[0].message.contains(word), "{:?} lacks {word:?}", errors[0].message);
    }
}

/// The changed config is taken, with exactly one warning, at the marked line, with these words.
#[track_caller]
fn warns(old: &str, new: &str, words: &[&str]) {
    let text = changed(old, new);
    let (_, warnings) = Config::from_str("t.toml", &text).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(
        (warnings[0].line, warnings[0].severity),
        (marked_line(&text), Severity::Warning),
        "{}",
        warnings[0]
    );
    for word in words {
        assert!(warnings[0].message.contains(word), "{:?} lacks {word:?}", warnings[0].message);
    }
}

#[test]
fn the_base_is_valid_without_warnings() {
    let (_, warnings) = Config::from_str("base.toml", BASE).unwrap_or_else(|errors| panic!("{}", errors[0]));
    assert_eq!(warnings, []);
}

#[test]
fn unknown_keys_suggest_the_nearest_or_the_right_table() {
    refuses(
        "block_size = 512",
        "blok_size = 512 #!",
        &["unknown key `blok_size` in [nat.ports]", "did you mean `block_size`?"],
    );
    refuses("[workers]", "[worker] #!", &["did you mean `workers`?"]);
    refuses("count = 2\n", "count = 2\nmtu = 1500 #!\n", &["it belongs in [[interface]]"]);
    refuses("name = \"cgn1\"", "name = \"cgn1\"\nblock_size = 8 #!", &["it belongs in [nat.ports]"]);
    refuses("udp = \"5m\"", "udp_s = 300 #!", &["did you mean `udp`?"]);
}

#[test]
fn wrong_types_and_ranges_say_what_to_write() {
    refuses("count = 2\n", "count = \"2\" #!\n", &["whole number without quotes"]);
    refuses("cores = [0, 1]", "cores = [0, 5000] #!", &["5000 is out of range", "0 to 1023"]);
    refuses("udp = \"5m\"", "udp = \"5 minutes\" #!", &["\"2h4m\"", "1 to 30000 seconds"]);
    refuses("udp = \"5m\"", "udp = 40_000 #!", &["40000 is out of range"]);
    refuses("blackhole = true", "blackhole = \"yes\" #!", &["true or false"]);
    refuses("side = \"outside\"", "side = \"outsied\" #!", &["did you mean `outside`?"]);
    refuses("vlan = 100", "vlan = 4095 #!", &["1 to 4094"]);
    refuses("address = [\"10.2.0.1/24\"]", "address = \"10.2.0.1/24\" #!", &["list in square brackets"]);
    refuses("addresses = [\"203.0.113.0/28\"]", "addresses = [] #!", &["pool without addresses"]);
    refuses("subscribers = [\"10.0.0.0/24\", \"10.1.0.0/16\"]", "subscribers = [] #!", &["empty list"]);
    refuses("name = \"blue\"", "name = \"b l u e\" #!", &["letters, digits"]);
    refuses(
        "prefix = \"203.0.113.0/24\"",
        "prefix = \"203.0.113.1/24\" #!",
        &["did you mean 203.0.113.0/24?"],
    );
    refuses("via = \"192.0.2.254\"", "via = \"192.0.2\" #!", &["is not an IPv4 address"]);
    refuses("device = \"mem:wan\"", "device = \"mmem:wan\" #!", &["mem"]);
    refuses(
        "[workers]\ncount = 2\ncores = [0, 1]\n",
        "workers = 3 #!\n",
        &["write [workers] above its keys"],
    );
    refuses("[[vrf]]", "[vrf] #!", &["write [[vrf]] above the keys of each"]);
}

#[test]
fn syntax_errors_name_their_place() {
    let errors = Config::from_str("t.toml", "[workers]\ncount = = 2\n").unwrap_err();
    assert_eq!((errors[0].line, errors[0].column), (2, 9), "{}", errors[0]);
    refuses("count = 2\n", "count = 2\ncount = 3 #!\n", &["duplicate", "remove one of the two"]);
}

#[test]
fn keys_of_an_exporter_go_with_its_protocol() {
    let exporter = |lines: &str| {
        format!(
            "[[logging.exporter]]\nname = \"aaa\"\ncollector = \"192.0.2.9:1813\"\n{lines}\n\n[workers]\n"
        )
    };
    refuses("[workers]\n", &exporter("protocol = \"radius\" #!"), &["needs `secret_file`"]);
    let secret = "secret_file = \"/etc/secret\"";
    let stream = format!("protocol = \"radius\"\n{secret}\ntransport = \"tcp\" #!");
    refuses("[workers]\n", &exporter(&stream), &["over UDP only"]);
    let syslog = format!("protocol = \"syslog\"\n{secret} #!");
    refuses("[workers]\n", &exporter(&syslog), &["only with protocol = \"radius\""]);
    refuses("[workers]\n", &exporter("protocol = \"clickhouse\"\ntransport = \"udp\" #!"), &["by HTTP"]);
    refuses("[workers]\n", &exporter("protocol = \"kafka\"\ntransport = \"udp\" #!"), &["by connections"]);
    refuses(
        "[workers]\n",
        &exporter("protocol = \"clickhouse\"\ntopic = \"a\" #!"),
        &["only with protocol = \"kafka\""],
    );
    refuses(
        "[workers]\n",
        &exporter("protocol = \"syslog\"\nuser = \"a\" #!"),
        &["only with protocol = \"clickhouse\" or \"kafka\""],
    );
    refuses(
        "[workers]\n",
        &exporter("protocol = \"clickhouse\"\ncompression = \"gzip\" #!"),
        &["only with protocol = \"kafka\""],
    );
    refuses(
        "[workers]\n",
        &exporter("protocol = \"ipfix\"\ntable = \"a.b\" #!"),
        &["only with protocol = \"clickhouse\""],
    );
}

#[test]
fn names_are_given_once() {
    refuses("name = \"lan.100\"", "name = \"lan\" #!", &["second interface `lan`"]);
    refuses("name = \"cgn2\"", "name = \"cgn1\" #!", &["second NAT instance `cgn1`"]);
    refuses("name = \"public2\"", "name = \"public1\" #!", &["second pool", "`public1`"]);
    refuses("name = \"public3\"", "name = \"public1\" #!", &["second pool `public1`", "`cgn1`"]);
    refuses("[[interface]]", "[[vrf]]\nname = \"blue\" #!\n\n[[interface]]", &["second vrf `blue`"]);
    refuses("cores = [0, 1]", "cores = [1, 1] #!", &["core 1 is there twice"]);
    refuses("cores = [0, 1]", "cores = [1] #!", &["1 cores for 2 workers"]);
    refuses("cores = [0, 1]", "cores = [0, 1]\ncontrol_cores = [2, 1] #!", &["core 1 is a worker's"]);
    refuses("[workers]\n", "[logging]\ncores = [2, 1] #!\n\n[workers]\n", &["core 1 is a worker's"]);
    refuses(
        "prefix = \"203.0.113.0/24\"",
        "prefix = \"0.0.0.0/0\" #!",
        &["second route to 0.0.0.0/0 in vrf `default`"],
    );
}

#[test]
fn references_that_lead_nowhere_suggest_the_nearest() {
    refuses(
        "parent = \"lan\"\nvlan",
        "parent = \"lam\" #!\nvlan",
        &["no interface `lam`", "did you mean `lan`?"],
    );
    refuses(
        "inside_vrf = \"blue\"",
        "inside_vrf = \"bleu\" #!",
        &["no routing instance `bleu`", "did you mean `blue`?"],
    );
    refuses("via = \"192.0.2.254\"", "interface = \"wann\" #!", &["no interface `wann`", "`wan`"]);
    refuses("parent = \"lan\"\nouter", "parent = \"lan.100\" #!\nouter", &["itself a VLAN", "`lan`"]);
}

#[test]
fn an_interface_is_a_port_or_a_vlan_of_one() {
    refuses("device = \"mem:wan\"", "device = \"mem:wan\"\nvlan = 5 #!", &["a tag on a port"]);
    refuses(
        "device = \"mem:wan\"",
        "device = \"mem:wan\"\nparent = \"lan\" #!",
        &["both `device` and `parent`"],
    );
    refuses("parent = \"lan\"\nvlan = 100", "parent = \"lan\" #!", &["`parent` without a tag"]);
    refuses("outer = 200\ninner = 7", "outer = 200 #!", &["half a QinQ tag", "`inner`"]);
    refuses("outer = 200", "vlan = 9\nouter = 200 #!", &["both `vlan` and a QinQ tag"]);
    refuses("vlan = 100", "vlan = 100\ndot1ad = true #!", &["outer tag of QinQ"]);
    refuses(
        "[[interface]]\nname = \"wan\"\ndevice = \"mem:wan\"",
        "[[interface]] #!\nname = \"wan\"",
        &["neither `device` nor `parent`"],
    );
    refuses("device = \"mem:wan\"", "device = \"mem:lan\" #!", &["the device of `lan` too"]);
    refuses("device = \"mem:wan\"", "device = \"tap:wan\" #!", &["all ports need DPDK", "or none does"]);
    refuses(
        "name = \"wan\"",
        "name = \"wan\"\nmtu = 9000 #!",
        &["packet buffers of 2048 bytes", "at least 9022"],
    );
}

#[test]
fn tags_and_subnets_do_not_clash() {
    refuses("outer = 200\ninner = 7", "vlan = 100 #!", &["VLAN 100 of `lan` is `lan.100` already"]);
    let two = |tags: &str| format!("inner = 7\n\n[[interface]]\nname = \"q\"\nparent = \"lan\"\n{tags}");
    refuses("inner = 7", &two("outer = 200\ninner = 7 #!"), &["VLAN 200.7 of `lan` is `lan.200.7` already"]);
    refuses(
        "address = [\"192.0.2.1/24\"]",
        "address = [\"192.0.2.1/24\", \"10.0.0.129/25\"] #!",
        &["overlaps 10.0.0.1/24 of `lan`"],
    );
    refuses(
        "vrf = \"blue\"\nside = \"inside\"\naddress = [\"10.0.0.1/24\"]",
        "vrf = \"blue\"\nside = \"inside\"\naddress = [\"10.0.0.1/24\", \"10.0.0.1/24\"] #!",
        &["overlaps 10.0.0.1/24"],
    );
}

#[test]
fn several_addresses_of_one_interface_may_share_a_subnet() {
    let text = changed("address = [\"192.0.2.1/24\"]", "address = [\"192.0.2.1/24\", \"192.0.2.2/24\"]");
    assert!(Config::from_str("t.toml", &text).is_ok());
}

#[test]
fn routes_lead_to_neighbours() {
    refuses(
        "via = \"192.0.2.254\"",
        "via = \"198.51.100.1\" #!",
        &["on no connected subnet of vrf `default`", "192.0.2.0/24"],
    );
    refuses("via = \"192.0.2.254\"", "via = \"192.0.2.1\" #!", &["this router itself"]);
    refuses(
        "via = \"192.0.2.254\"",
        "via = \"192.0.2.254\" #!\ninterface = \"lan\"",
        &["on no subnet of `lan`", "10.0.0.0/24"],
    );
    refuses("prefix = \"203.0.113.0/24\"", "prefix = \"10.0.0.0/24\" #!", &["connected on `lan`"]);
    refuses(
        "[[route]]\nprefix = \"203.0.113.0/24\"\nblackhole = true",
        "[[route]] #!\nprefix = \"203.0.113.0/24\"",
        &["does not say where it leads"],
    );
    refuses(
        "[[route]]\nprefix = \"203.0.113.0/24\"",
        "[[route]] #!\nprefix = \"203.0.113.0/24\"\nprohibit = true",
        &["leads to several places"],
    );
}

#[test]
fn a_nat_instance_has_both_sides_and_something_to_translate_to() {
    refuses(
        "name = \"cgn2\"",
        "name = \"cgn2\" #!\noutside_vrf = \"blue\"\n",
        &["no outside interface in vrf `blue`"],
    );
    refuses(
        "[[nat]]\nname = \"cgn2\"",
        "[[nat]]\nname = \"idle\" #!\nsubscribers = [\"10.9.0.0/16\"]\n\n[[nat]]\nname = \"cgn2\"",
        &["nothing to translate to"],
    );
    let text = changed("side = \"outside\"", "side = \"plain\"");
    let errors = Config::from_str("t.toml", &text).unwrap_err();
    assert!(
        errors.iter().any(|error| error.message.contains("`cgn1` has no outside interface")),
        "{errors:?}"
    );
}

#[test]
fn a_subscriber_belongs_to_one_instance() {
    refuses(
        "inside_vrf = \"blue\"\nsubscribers = [\"10.0.0.0/24\"]",
        "subscribers = [\"10.0.0.128/25\"] #!",
        &["overlap 10.0.0.0/24 of `cgn1`"],
    );
    refuses("\"10.1.0.0/16\"]", "\"10.1.0.0/16\", \"10.1.2.0/24\"] #!", &["covered by 10.1.0.0/16"]);
}

#[test]
fn the_pools_of_an_instance_have_together_no_more_addresses_than_have_numbers() {
    refuses(
        "name = \"public1\"\naddresses = [\"203.0.113.0/28\"]",
        "name = \"public1\" #!\naddresses = [\"203.0.113.0/28\", \"11.0.0.0/8\"]",
        &["`cgn1` has 16777232 addresses with this pool", "at most 65535"],
    );
    let second = |last: &str| {
        let range = format!("name = \"public2\" #!\naddresses = [\"100.64.0.0-100.64.255.{last}\"]");
        ("name = \"public2\"\naddresses = [\"203.0.113.64-203.0.113.79\"]", range)
    };
    let (from, to) = second("240");
    refuses(from, &to, &["65537 addresses with this pool"]);
    let (from, to) = second("239");
    refuses(from, &to, &["65536 addresses with this pool"]);
    let (from, to) = second("238");
    let config = Config::from_str("t.toml", &changed(from, &to));
    let refusal = config.err().map(|errors| format!("{errors:?}")).unwrap_or_default();
    assert!(!refusal.contains("addresses with this pool"), "{refusal}");
}

#[test]
fn an_outside_address_has_one_owner() {
    refuses(
        "addresses = [\"203.0.113.128/29\"]",
        "addresses = [\"203.0.113.14-203.0.113.21\"] #!",
        &["overlaps 203.0.113.0-203.0.113.15 of pool `public1`"],
    );
    refuses(
        "outside = \"203.0.113.32/30\"",
        "outside = \"203.0.113.4/30\" #!",
        &["one-to-one mapping of `cgn1`", "pool `public1`"],
    );
    refuses(
        "addresses = [\"203.0.113.0/28\"]",
        "addresses = [\"203.0.113.0/28\", \"192.0.2.0/29\"] #!",
        &["192.0.2.1, the router's own address on `wan`"],
    );
    refuses("addresses = [\"203.0.113.128/29\"]", "addresses = [\"224.0.0.0/29\"] #!", &["no host may have"]);
}

#[test]
fn blocks_are_powers_of_two_that_fit_the_ports() {
    refuses("block_size = 512", "block_size = 500 #!", &["powers of two", "256 or 512"]);
    let ports = |ports: &str| format!("name = \"public1\"\nports = \"{ports}\" #!");
    refuses("name = \"public1\"", &ports("1024-1300"), &["hold no whole block of 512"]);
    warns("name = \"public1\"", &ports("1024-65000"), &["489 of the 63977 ports", "ports = \"1024-64511\""]);
    refuses("block_size = 512", "mode = \"arbitrary\"\nblock_size = 512 #!", &["has an effect only with"]);
    refuses("block_size = 512", "ports_per_subscriber = 512 #!", &["only with mode = \"deterministic\""]);
}

/// RFC 7422 §2: each subscriber has its ports, and the inverse is exact.
#[test]
fn deterministic_pools_have_room_for_every_subscriber() {
    refuses(
        "ports_per_subscriber = 2016",
        "ports_per_subscriber = 4032 #!",
        &["256 subscribers with 4032 ports each need 16 outside addresses", "has 8", "lower it to 2016"],
    );
    refuses("ports_per_subscriber = 2016", "ports_per_subscriber = 2017 #!", &["need 9 outside addresses"]);
    refuses(
        "name = \"cgn2\"\ninside_vrf = \"blue\"\nsubscribers = [\"10.0.0.0/24\"]",
        "name = \"cgn2\" #!\ninside_vrf = \"blue\"",
        &["serves everybody", "list its `subscribers`"],
    );
    refuses(
        "name = \"public3\"",
        "name = \"a\"\naddresses = [\"203.0.113.160/29\"]\n\n[[nat.pool]]\nname = \"public3\"\nports = \"2048-65535\" #!",
        &["all pools of a deterministic instance have the same ports"],
    );
    warns("name = \"public3\"", "name = \"public3\"\nports = \"512-65535\" #!", &["RFC 7422 §2"]);
    // The dynamic ports are nobody's own.
    let own = |more: &str| format!("ports_per_subscriber = 1_760\n{more}");
    refuses(
        "ports_per_subscriber = 2016",
        &own("overflow_ports = 8_200 #!"),
        &["no whole blocks of 512", "8192 or 8704"],
    );
    refuses("ports_per_subscriber = 2016", &own("overflow_ports = 64_512 #!"), &["leave no port"]);
    let larger = "overflow_ports = 8_192\nports_per_subscriber = 1_761 #!";
    refuses("ports_per_subscriber = 2016", larger, &["need 9 outside addresses", "lower it to 1760"]);
    refuses("ports_per_subscriber = 2016", &own("block_size = 64 #!"), &["only with mode = \"blocks\""]);
    refuses("block_size = 512", "overflow_ports = 512 #!", &["only with mode = \"deterministic\""]);
    let forward = "addresses = [\"203.0.113.128/29\"]\n\n[[nat.forward]]\noutside = \"203.0.113.128:2000\" #!\ninside = \"10.0.0.9:80\"\n";
    refuses(
        "addresses = [\"203.0.113.128/29\"]",
        forward,
        &["belongs to a subscriber by the deterministic rule"],
    );
}

#[test]
fn static_mappings_lead_somewhere_and_do_not_collide() {
    refuses(
        "outside = \"203.0.113.32/30\"",
        "outside = \"203.0.113.32/29\" #!",
        &["4 inside addresses for 8 outside addresses"],
    );
    refuses(
        "inside = \"10.0.0.20-10.0.0.23\"",
        "inside = \"10.9.0.20-10.9.0.23\" #!",
        &["10.9.0.20 is not among the `subscribers` of `cgn1`"],
    );
    refuses(
        "inside = \"10.0.0.9:80\"",
        "inside = \"10.9.0.9:80\" #!",
        &["10.9.0.9 is not among the `subscribers`"],
    );
    refuses(
        "outside = \"203.0.113.1:8080\"",
        "outside = \"203.0.113.250:8080\" #!",
        &["203.0.113.250 is nobody's"],
    );
    refuses(
        "outside = \"203.0.113.1:8080\"",
        "outside = \"203.0.113.33:8080\" #!",
        &["one-to-one mapping in `cgn1`"],
    );
    refuses("outside = \"203.0.113.1:8080\"", "outside = \"203.0.113.129:80\" #!", &["in a pool of `cgn2`"]);
    warns(
        "outside = \"203.0.113.1:8080\"",
        "outside = \"192.0.2.1:8080\" #!",
        &["the router's own address", "not even ping"],
    );
    let second =
        |rule: &str| format!("[[nat.forward]]\n{rule}\ninside = \"10.0.0.8:80\"\n\n[[nat]]\nname = \"cgn2\"");
    refuses(
        "[[nat]]\nname = \"cgn2\"",
        &second("outside = \"203.0.113.1:8080\" #!"),
        &["second forwarding of tcp 203.0.113.1:8080"],
    );
    refuses(
        "[[nat]]\nname = \"cgn2\"",
        &second("outside = \"203.0.113.2:27015\" #!\nproto = \"udp\""),
        &["overlap those of the forwarding of 203.0.113.2:27000"],
    );
    let text = changed("count = 16", "count = 40_000");
    let errors = Config::from_str("t.toml", &text).unwrap_err();
    assert!(errors.iter().all(|error| error.message.contains("run past port 65535")), "{errors:?}");
    let again = "[[nat.one_to_one]]\ninside = \"10.0.0.23\" #!\noutside = \"203.0.113.40\"\n\n[[nat]]\nname = \"cgn2\"";
    refuses("[[nat]]\nname = \"cgn2\"", again, &["overlaps 10.0.0.20-10.0.0.23"]);
}

#[test]
fn required_keys_and_companions_are_asked_for() {
    refuses(
        "[[vrf]]\nname = \"blue\"",
        "[[vrf]]\nname = \"blue\"\n\n[[vrf]] #!",
        &["[[vrf]] has no `name`", "name = \"business\""],
    );
    refuses(
        "[[vrf]]",
        "[api.tcp] #!\nlisten = \"127.0.0.1:1\"\n\n[[vrf]]",
        &["`token_file`, `tls_cert`, `tls_key`", "all four keys"],
    );
    refuses("[[vrf]]", "[policers]\narp = { rate_pps = 5 } #!\n\n[[vrf]]", &["needs both keys"]);
    refuses(
        "[[vrf]]",
        "[policers]\narp = { rate_pps = 5, brst = 5 } #!\n\n[[vrf]]",
        &["did you mean `burst`?"],
    );
    refuses("udp = \"5m\"", "udp_port = { 5060 = 10 } #!", &["1 to 1023"]);
    refuses(
        "name = \"cgn1\"",
        "name = \"cgn1\"\nmapping = { tcp = \"endpoint-independent\" } #!",
        &["no value for udp and icmp"],
    );
    refuses(
        "[nat.timeouts]",
        "[nat.limits]\ncreations_burst = 5 #!\n\n[nat.timeouts]",
        &["without `creations_per_s`"],
    );
}

/// Times below the RFCs' minimum are allowed, but said: RFC 4787 REQ-5, RFC 5382 REQ-5, RFC 5508 REQ-2, RFC 7857 §2.1,
/// RFC 6888 REQ-8.
#[test]
fn short_times_are_taken_with_a_warning() {
    let udp = "udp = \"5m\"";
    warns(udp, "udp = 119 #!", &["119 s is below the 120 s of RFC 4787 REQ-5"]);
    warns(udp, "tcp_established = \"2h\" #!", &["below the 7440 s of RFC 5382 REQ-5"]);
    warns(udp, "tcp_opening = 239 #!", &["below the 240 s of RFC 7857 §2.1"]);
    warns(udp, "tcp_closing = 60 #!", &["below the 240 s"]);
    warns(udp, "tcp_reset = 60 #!", &["RFC 7857 §2.2"]);
    warns(udp, "tcp_unsolicited_syn = 5 #!", &["below the 6 s of RFC 5382 REQ-4"]);
    warns(udp, "icmp = 59 #!", &["below the 60 s of RFC 5508 REQ-2"]);
    warns("name = \"cgn1\"", "name = \"cgn1\"\nport_hold = 60 #!", &["RFC 6888 REQ-8"]);
    for exact in
        ["udp = 120", "tcp_established = 7440", "tcp_opening = 240", "icmp = 60", "udp_port = { 53 = 5 }"]
    {
        let (_, warnings) = Config::from_str("t.toml", &changed(udp, exact)).unwrap();
        assert_eq!(warnings, [], "{exact}");
    }
}

#[test]
fn all_errors_are_reported_in_file_order() {
    let text = changed("count = 2\n", "count = 0\n")
        .replace("side = \"outside\"", "side = \"west\"")
        .replace("udp = ", "upd = ");
    let errors = Config::from_str("t.toml", &text).unwrap_err();
    let words: Vec<&str> = ["out of range", "`west`", "`upd`"].to_vec();
    assert_eq!(errors.len(), words.len(), "{errors:?}");
    for (error, word) in errors.iter().zip(words) {
        assert!(error.message.contains(word), "{error}");
    }
    assert!(errors.is_sorted_by_key(|error| error.line));
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let errors = Config::from_file("/nonexistent/carrack.toml").unwrap_err();
    assert!(
        errors[0].to_string().starts_with("/nonexistent/carrack.toml: error: cannot be read"),
        "{}",
        errors[0]
    );
}

#[test]
fn unreadable_is_by_gateways_there_are() {
    let line = "[[nat]]\nunreadable = { sipp = \"reset\" } #!\n";
    refuses("[[nat]]\n", line, &["unknown gateway `sipp`", "sip"]);
}

/// Tables are shared out among the workers: a share that is next to nothing is said, with what to write.
#[test]
fn shares_of_many_workers_that_are_too_small_are_told() {
    let warnings = |memory: &str, workers: u8| {
        let text = format!("[workers]\ncount = {workers}\n[memory]\n{memory}\n");
        carrack_config::Config::from_str("t.toml", &text).unwrap_or_else(|errors| panic!("{}", errors[0])).1
    };
    let told = warnings("sessions = 1_024\nsubscribers = 16\nhosts = 1_023", 16);
    assert_eq!(told.iter().map(|warning| warning.line).collect::<Vec<_>>(), [5], "{told:?}");
    for part in ["leaves each of 16 workers 1;", "at least 1024, or take fewer workers"] {
        assert!(told[0].message.contains(part), "{}", told[0].message);
    }
    assert!(warnings("subscribers = 64", 1).is_empty());
    assert_eq!(warnings("hosts = 1_008", 16).len(), 1);
}
