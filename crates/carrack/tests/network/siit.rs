//! Stateless translation through the daemon: 464XLAT with an IPv4-only host over an IPv6-only link, and an IPv6-only
//! server that the IPv4 world knows.

use carrack_lab::nat64::{PREFIX, by_prefix};
use carrack_lab::plan::{self, Ns};
use carrack_lab::siit::{self, CLAT, CLAT_PREFIX, DUMMY, ERRORS_FROM, HOST4, HOST6, RACK, SERVICE, WEB_PORT};
use carrack_lab::{Io, Lab};

use crate::{LIMIT, assert_conservation, exec, lab, must};

fn page(lab: &Lab, ns: Ns, url: &str) -> String {
    let what = "curl -sS -m 10 -o /dev/null -w %{http_code}:%{size_download}";
    must(lab, ns, &format!("{what} {url}"))
}

fn show(lab: &Lab, words: &[&str]) -> serde_json::Value {
    let words = [&["show"], words, &["--json"]].concat();
    let done = lab.carrack(&words, LIMIT).unwrap().success().unwrap();
    serde_json::from_str(&done.stdout).unwrap()
}

/// RFC 6877: names, web, ping, traceroute, datagrams in pieces and path MTU of a program that knows no IPv6.
#[test]
fn an_ipv4_only_host_reaches_ipv4_over_ipv6_by_464xlat() {
    let Some(mut lab) = lab("xlat", Io::AfXdp, |_| siit::plat_config(Io::AfXdp)) else { return };
    siit::switch_464xlat(&mut lab).unwrap();
    let answer = must(&lab, Ns::Sub1, &format!("dig +short A {}", plan::SERVER_NAME));
    assert_eq!(answer.trim(), plan::SERVER);
    let url = format!("http://{}/{}", plan::SERVER_NAME, plan::BIG_FILE);
    assert_eq!(page(&lab, Ns::Sub1, &url), format!("200:{}", plan::BIG_FILE_BYTES));
    let told = must(&lab, Ns::Sub1, &format!("ping -n -c 3 -i 0.2 -W 2 {}", plan::SERVER));
    assert!(told.contains(" 0% packet loss"), "{told}");
    // A long reply that may be cut stays whole where links are said to take it.
    let told = must(&lab, Ns::Sub1, &format!("ping -n -c 3 -i 0.2 -W 2 -s 1400 {}", plan::SERVER));
    assert!(told.contains(" 0% packet loss"), "{told}");
    // The provider's router has no IPv4 address on this link; behind it the IPv4 hops are what they are.
    let told = must(&lab, Ns::Sub1, &format!("traceroute -n -q 1 -w 2 {}", plan::SERVER));
    for (hop, address) in [(1, CLAT), (2, DUMMY), (3, plan::ISP), (4, plan::SERVER)] {
        assert!(told.contains(&format!(" {hop}  {address}")), "hop {hop} is not {address}:\n{told}");
    }
    for octets in [32, 1_400, 4_000] {
        let asked = vec![b'x'; octets];
        let target = format!("UDP4:{}:{}", plan::SERVER, plan::ECHO_PORT);
        let argv = ["socat", "-b65507", "-t2", "-", &target];
        let done = lab.exec_until_answered(Ns::Sub1, &argv, &asked, octets, LIMIT).unwrap();
        assert_eq!(done.stdout.len(), octets, "{octets} octets came back");
    }
    let told =
        exec(&lab, Ns::Sub1, &format!("ping -n -c 3 -i 0.3 -W 2 -M do -s 1360 {}", plan::NARROW)).stdout;
    assert!(told.contains("Frag needed") || told.contains("too long"), "{told}");
    let told = must(&lab, Ns::Sub1, &format!("ping -n -c 3 -i 0.2 -W 2 -s 1200 {}", plan::NARROW));
    assert!(told.contains(" 0% packet loss"), "{told}");
    // The provider sees the host by its IPv6 address.
    let octets: Vec<u8> = HOST4.split('.').map(|octet| octet.parse().unwrap()).collect();
    let inside = format!("{CLAT_PREFIX}{:x}:{:x}", u16::from(octets[0]) << 8 | u16::from(octets[1]), 0x0402);
    let rows = lab.carrack(&["show", "nat", "sessions", "--inside", &inside], LIMIT).unwrap().stdout;
    assert!(rows.contains(&format!("[{inside}]:")), "{rows}");
    let instances = show(&lab, &["nat", "instances"]);
    assert!(instances[0]["tcp_states"][0]["sessions"].as_u64() >= Some(1), "{instances:#}");
    assert_conservation(&lab);
}

/// RFC 7755, RFC 7757, RFC 6791: both ways, with what the routers between are called.
#[test]
fn an_ipv6_only_server_is_reached_from_ipv4_without_state() {
    let Some(mut lab) = lab("siit", Io::AfXdp, |_| siit::config(Io::AfXdp)) else { return };
    siit::switch(&mut lab).unwrap();
    let url = format!("http://{SERVICE}:{WEB_PORT}/");
    assert_eq!(page(&lab, Ns::Inet, &url), format!("200:{}", plan::HOME_PAGE.len()));
    let told = must(&lab, Ns::Inet, &format!("ping -n -c 3 -i 0.2 -W 2 {SERVICE}"));
    assert!(told.contains(" 0% packet loss"), "{told}");
    let told = must(&lab, Ns::Inet, &format!("traceroute -n -q 1 -w 2 {SERVICE}"));
    for (hop, address) in [(1, plan::ISP_WAN), (2, plan::OUTSIDE), (3, ERRORS_FROM), (4, SERVICE)] {
        assert!(told.contains(&format!(" {hop}  {address}")), "hop {hop} is not {address}:\n{told}");
    }
    // The other way: the server as a client.
    let server = by_prefix(plan::SERVER);
    let url = format!("http://[{server}]/{}", plan::BIG_FILE);
    assert_eq!(page(&lab, Ns::Sub1, &url), format!("200:{}", plan::BIG_FILE_BYTES));
    let told = must(&lab, Ns::Sub1, &format!("traceroute -6 -n -q 1 -w 2 {server}"));
    let hop = by_prefix(plan::ISP).parse::<std::net::Ipv6Addr>().unwrap();
    assert!(told.contains(&format!(" 1  {RACK}")) && told.contains(&format!(" 3  {hop}")), "{told}");
    let rows = lab.carrack(&["show", "nat", "sessions"], LIMIT).unwrap().stdout;
    assert!(!rows.contains(HOST6), "no sessions: {rows}");
    // A host that has no IPv4 address is not translated, and counted.
    exec(&lab, Ns::Sub2, &format!("ping -6 -n -c 2 -i 0.2 -W 1 {server}"));
    let translators = show(&lab, &["siit"]);
    let it = &translators[0];
    let count = |key: &str| it[key].as_u64().unwrap_or(0);
    let packets = plan::BIG_FILE_BYTES / 1_500;
    assert!(count("packets_to_v6") > packets && count("bytes_to_v6") > plan::BIG_FILE_BYTES, "{it:#}");
    assert!(count("packets_to_v4") > 100 && count("bytes_to_v4") > 4_000, "{it:#}");
    let drops = &it["drops"][0];
    assert_eq!((&drops["reason"], &drops["packets"]), (&"siit-source-unmapped".into(), &2.into()), "{it:#}");
    let table = lab.carrack(&["show", "siit"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(table.contains("TO-IPV6") && table.contains("siit-source-unmapped"), "{table}");
    assert!(table.contains(&format!("{PREFIX}/96")), "{table}");
    assert_conservation(&lab);
}
