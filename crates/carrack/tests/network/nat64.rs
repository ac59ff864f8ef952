//! NAT64 through the daemon: an IPv6-only host reaches IPv4-only servers by name, by Debian's unbound as DNS64.

use carrack_lab::nat64::{HOST, ROUTER, by_prefix};
use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, nat64};

use crate::{LIMIT, assert_conservation, exec, lab, must};

/// RFC 7915 §4.2, §5.2: names, web, ping, traceroute, datagrams in pieces, path MTU.
#[test]
fn an_ipv6_only_host_reaches_ipv4_servers_by_name() {
    let Some(mut lab) = lab("nat64", Io::AfXdp, |_| nat64::config(Io::AfXdp)) else { return };
    nat64::switch(&mut lab).unwrap();
    let answer = must(&lab, Ns::Sub1, &format!("dig +short AAAA {}", plan::SERVER_NAME));
    assert_eq!(answer.trim(), "2001:db8:64::cb00:710a", "{}", lab.log("dns64"));
    let page = must(
        &lab,
        Ns::Sub1,
        &format!(
            "curl -sS -m 10 -o /dev/null -w %{{http_code}}:%{{remote_ip}}:%{{size_download}} http://{}/{}",
            plan::SERVER_NAME,
            plan::BIG_FILE
        ),
    );
    assert_eq!(page, format!("200:2001:db8:64::cb00:710a:{}", plan::BIG_FILE_BYTES));
    let server = by_prefix(plan::SERVER);
    let told = must(&lab, Ns::Sub1, &format!("ping -6 -n -c 3 -i 0.2 -W 2 {server}"));
    assert!(told.contains(" 0% packet loss"), "{told}");
    let told = must(&lab, Ns::Sub1, &format!("traceroute -6 -n -q 1 -w 2 {server}"));
    let hop = by_prefix(plan::ISP).parse::<std::net::Ipv6Addr>().unwrap();
    assert!(told.contains(&format!(" 1  {ROUTER}")) && told.contains(&format!(" 2  {hop}")), "{told}");
    for octets in [32, 1_400, 4_000] {
        let asked = vec![b'x'; octets];
        let target = format!("UDP6:[{server}]:{}", plan::ECHO_PORT);
        let argv = ["socat", "-b65507", "-t2", "-", &target];
        let done = lab.exec_until_answered(Ns::Sub1, &argv, &asked, octets, LIMIT).unwrap();
        assert_eq!(done.stdout.len(), octets, "{octets} octets came back");
    }
    // Only path MTU discovery across the translator finds the narrow link.
    let narrow = by_prefix(plan::NARROW);
    let told = exec(&lab, Ns::Sub1, &format!("ping -6 -n -c 3 -i 0.3 -W 2 -M do -s 1360 {narrow}")).stdout;
    assert!(told.contains("mtu") || told.contains("too long") || told.contains("too big"), "{told}");
    let told = must(&lab, Ns::Sub1, &format!("ping -6 -n -c 3 -i 0.2 -W 2 -s 1200 {narrow}"));
    assert!(told.contains(" 0% packet loss"), "{told}");
    let sessions =
        lab.carrack(&["show", "nat", "sessions", "--inside", HOST], LIMIT).unwrap().success().unwrap();
    assert!(sessions.stdout.contains(&format!("[{HOST}]:")), "{}", sessions.stdout);
    let show = |args: &[&str]| lab.carrack(args, LIMIT).unwrap().success().unwrap().stdout;
    let by_six = show(&["show", "nat", "sessions", "--remote", &server]);
    assert!(by_six.contains(&format!("[{HOST}]:")) && by_six.contains("2001:db8:64::cb00:710a"), "{by_six}");
    let mappings = show(&["show", "nat", "mappings", "--inside", HOST]);
    assert!(mappings.contains("NAT64 PREFIX") && mappings.contains("2001:db8:64::/96"), "{mappings}");
    let routes = show(&["show", "routes", "--address", &server]);
    assert!(routes.contains("2001:db8:64::/96") && routes.contains("translate"), "{routes}");
    let subscribers = lab.carrack(&["show", "nat", "subscribers"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(subscribers.contains(HOST) && subscribers.contains(plan::SUB2), "both versions: {subscribers}");
    assert_conservation(&lab);
}

/// RFC 6146 §3.1: an IPv4 client reaches an IPv6-only web server by a static binding (NAT46 by the NAT64's pool).
#[test]
fn an_ipv4_client_reaches_an_ipv6_only_server_by_static_binding() {
    let forward = format!(
        "[[nat.forward]]\nproto = \"tcp\"\noutside = \"{}:8046\"\ninside = \"[{HOST}]:8046\"\n",
        plan::FORWARD_ADDRESS
    );
    let config = nat64::config(Io::AfXdp) + "\n" + &forward;
    let Some(mut lab) = lab("nat46", Io::AfXdp, |_| config) else { return };
    nat64::switch(&mut lab).unwrap();
    let home = lab.dir().join("home").display().to_string();
    let argv = ["python3", "-m", "http.server", "8046", "--bind", "::", "--directory", &home];
    lab.start(Ns::Sub1, "web6", &argv).unwrap();
    let url = format!("http://{}:8046/", plan::FORWARD_ADDRESS);
    let page = must(&lab, Ns::Inet, &format!("curl -sS -m 10 --retry 5 --retry-connrefused {url}"));
    assert_eq!(page, plan::HOME_PAGE);
    // IPv4 subscribers of the same instance reach it by the same address (RFC 6146 §3.8).
    let page = must(&lab, Ns::Sub2, &format!("curl -sS -m 10 {url}"));
    assert_eq!(page, plan::HOME_PAGE);
    assert_conservation(&lab);
}
