use super::*;

const BASE: &str = include_str!("../../tests/base.toml");

fn config(text: &str) -> Config {
    Config::from_str("t.toml", text).unwrap_or_else(|errors| panic!("{}", errors[0])).0
}

fn changes(edits: &[(&str, &str)]) -> Vec<String> {
    let mut text = BASE.to_owned();
    for (old, new) in edits {
        assert!(text.contains(old), "base.toml has no {old:?}");
        text = text.replacen(old, new, 1);
    }
    diff(&config(BASE), &config(&text)).iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_only_written_differently_is_no_change() {
    assert_eq!(changes(&[]), [""; 0]);
    let same = [
        ("udp = \"5m\"", "udp = 300 # as before"),
        ("[workers]", "[system]\nname = \"carrack\"\n\n[workers]"),
        ("[[vrf]]\nname = \"blue\"\n\n", ""),
        ("[[nat]]\nname = \"cgn1\"", "[[vrf]]\nname = \"blue\"\n\n[[nat]]\nname = \"cgn1\""),
        ("block_size = 512", "mode = \"blocks\""),
    ];
    assert_eq!(changes(&same), [""; 0]);
}

#[test]
fn a_changed_value_is_named_by_its_path_with_both_values_and_its_effect() {
    assert_eq!(changes(&[("udp = \"5m\"", "udp = 200")]), ["nat.cgn1.timeouts.udp: 300 -> 200 (in place)"]);
    assert_eq!(
        changes(&[("udp = \"5m\"", "icmp = \"2m\"")]),
        ["nat.cgn1.timeouts.icmp: 60 -> 120 (in place)"]
    );
    assert_eq!(
        changes(&[("device = \"mem:wan\"", "device = \"mem:wan2\"")]),
        ["interface.wan.device: mem:wan -> mem:wan2 (needs a restart)"]
    );
    assert_eq!(
        changes(&[("side = \"outside\"", "side = \"outside\"\nmtu = 1400")]),
        ["interface.wan.mtu: not set -> 1400 (in place)"]
    );
    assert_eq!(changes(&[("count = 2", "count = 1"), ("[0, 1]", "[0]")]).len(), 2);
}

#[test]
fn added_and_removed_elements_are_one_change_each() {
    let sub = "[[interface]]\nname = \"lan.9\"\nparent = \"lan\"\nvlan = 9\n\n[[route]]";
    let added = changes(&[("[[route]]", sub)]);
    assert_eq!(added.len(), 1, "{added:?}");
    assert!(added[0].starts_with("interface.lan.9: added (re-derives"), "{}", added[0]);
    let port = "[[interface]]\nname = \"new\"\ndevice = \"mem:new\"\n\n[[route]]";
    assert_eq!(changes(&[("[[route]]", port)]), ["interface.new: added (needs a restart)"]);
    let pool = "[[nat.pool]]\nname = \"public2\"\naddresses = [\"203.0.113.64-203.0.113.79\"]\n";
    let removed = changes(&[(pool, "")]);
    assert_eq!(removed.len(), 1, "{removed:?}");
    assert!(removed[0].starts_with("nat.cgn1.pool.public2: removed (re-derives"), "{}", removed[0]);
    let (without, _) = BASE.split_once("[[nat]]\nname = \"cgn2\"").unwrap();
    let gone = diff(&config(BASE), &config(without));
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert_eq!((gone[0].path.as_str(), gone[0].to.as_deref()), ("nat.cgn2", None));
}

#[test]
fn a_name_that_begins_like_another_is_not_taken_for_its_part() {
    // `lan.100` and `lan.200.7` are elements of their own, not keys of `lan`.
    let gone = changes(&[(
        "[[interface]]\nname = \"lan.200.7\"\nparent = \"lan\"\nouter = 200\ninner = 7\naddress = [\"10.2.0.1/24\"]\n",
        "",
    )]);
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert!(gone[0].starts_with("interface.lan.200.7: removed"), "{}", gone[0]);
    let with_dots = "[[interface]]\nname = \"lan.200\"\nparent = \"lan\"\nvlan = 9\n\n[[route]]";
    let both = changes(&[("[[route]]", with_dots), ("10.2.0.1/24", "10.3.0.1/24")]);
    assert_eq!(both.len(), 2, "a change of `lan.200.7` is not hidden by a new `lan.200`: {both:?}");
    let renamed = changes(&[("name = \"lan.100\"", "name = \"lan.101\"")]);
    assert_eq!(renamed.len(), 2, "{renamed:?}");
}

#[test]
fn the_order_of_pools_counts() {
    let swapped =
        changes(&[("\"public1\"", "\"x\""), ("\"public2\"", "\"public1\""), ("\"x\"", "\"public2\"")]);
    assert!(
        swapped
            .iter()
            .any(|change| change.starts_with("nat.cgn1.pool: public1, public2 -> public2, public1")),
        "{swapped:?}"
    );
}
