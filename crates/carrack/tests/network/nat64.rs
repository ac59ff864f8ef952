//! NAT64 through the daemon: an IPv6-only host reaches IPv4-only servers by name, by Debian's unbound as DNS64.

use std::fs;
use std::thread;
use std::time::Duration;

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, Lab};

use crate::{LIMIT, assert_conservation, exec, lab, must, replace};

const ROUTER: &str = "2001:db8:1::1";
const HOST: &str = "2001:db8:1::10";
/// The resolver, which has IPv4 as well.
const RESOLVER: &str = "2001:db8:1::53";
const PREFIX: &str = "2001:db8:64::";

/// The usual lab, its first subscriber without IPv4, its second a resolver.
fn six_only(name: &str) -> Option<Lab> {
    let edit = |config: String| {
        let old = format!("address = [\"{}/24\"]", plan::INSIDE_GATEWAY);
        let config =
            replace(&config, &old, &format!("address = [\"{}/24\", \"{ROUTER}/64\"]", plan::INSIDE_GATEWAY));
        let nat64 =
            format!("[nat.nat64]\nprefixes = [\"{PREFIX}/96\"]\nsubscribers = [\"2001:db8:1::/64\"]\n");
        replace(&config, "[[nat.pool]]", &format!("{nat64}\n[[nat.pool]]"))
    };
    let mut lab = lab(name, Io::AfXdp, edit)?;
    for (ns, address) in [(Ns::Sub1, HOST), (Ns::Sub2, RESOLVER)] {
        let switch_on = "echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6";
        lab.exec(ns, &["sh", "-c", switch_on], LIMIT).unwrap().success().unwrap();
        must(&lab, ns, &format!("ip -6 addr add {address}/64 dev eth0 nodad"));
        must(&lab, ns, &format!("ip -6 route add default via {ROUTER} dev eth0"));
    }
    must(&lab, Ns::Sub1, "ip -4 addr flush dev eth0");
    let full = Ns::Sub1.full_name(lab.name());
    fs::write(format!("/etc/netns/{full}/resolv.conf"), format!("nameserver {RESOLVER}\n")).unwrap();
    let config = std::env::temp_dir().join(format!("{full}.unbound.conf"));
    let text = format!(
        "server:\n interface: {RESOLVER}\n access-control: ::/0 allow\n module-config: \"dns64 iterator\"\n \
         dns64-prefix: {PREFIX}/96\n username: \"\"\n chroot: \"\"\n pidfile: \"\"\n use-syslog: no\n logfile: \"\"\n \
         do-daemonize: no\nremote-control:\n control-enable: no\nforward-zone:\n name: \".\"\n forward-addr: {}\n",
        plan::DNS
    );
    fs::write(&config, text).unwrap();
    lab.start(Ns::Sub2, "dns64", &["unbound", "-d", "-c", &config.display().to_string()]).unwrap();
    // Own addresses are used a second after they were asked for (RFC 4862 §5.4).
    thread::sleep(Duration::from_millis(1_500));
    Some(lab)
}

/// The address of an IPv4 server as the host knows it.
fn by_prefix(server: &str) -> String {
    format!("{PREFIX}{server}")
}

/// RFC 6146 §1.2.1, RFC 7915 §4.2, §5.2: names, web, ping, traceroute, datagrams in pieces, path MTU.
#[test]
fn an_ipv6_only_host_reaches_ipv4_servers_by_name() {
    let Some(lab) = six_only("nat64") else { return };
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
    let subscribers = lab.carrack(&["show", "nat", "subscribers"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(subscribers.contains(HOST) && subscribers.contains(plan::SUB2), "both versions: {subscribers}");
    assert_conservation(&lab);
}
