//! IPv6 through the daemon: neighbour discovery, ping, traceroute, TCP, path MTU, duplicate addresses.

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, Lab};

use crate::{LIMIT, assert_conservation, counters, exec, lab, must, replace, until, until_pings};

/// The router's addresses, and a station behind each.
const INSIDE: &str = "2001:db8:1::1";
const OUTSIDE: &str = "2001:db8:2::1";
const HOST: &str = "2001:db8:1::10";
const SERVER: &str = "2001:db8:2::2";

/// The usual lab with IPv6 beside IPv4, and `more` about the outside interface.
fn dual(name: &str, more: &str) -> Option<Lab> {
    let edit = |config: String| {
        let with = |config: &str, address: &str, own: &str, more: &str| {
            let old = format!("address = [\"{address}\"]");
            replace(config, &old, &format!("address = [\"{address}\", \"{own}/64\"]\n{more}"))
        };
        let config = with(&config, &format!("{}/24", plan::INSIDE_GATEWAY), INSIDE, "");
        with(&config, &format!("{}/30", plan::OUTSIDE), OUTSIDE, more)
    };
    let lab = lab(name, Io::AfXdp, edit)?;
    host(&lab, Ns::Sub1, "eth0", HOST, INSIDE);
    host(&lab, Ns::Isp, "carrack", SERVER, OUTSIDE);
    Some(lab)
}

/// Gives a station an IPv6 address at once, and the router as its gateway.
fn host(lab: &Lab, ns: Ns, device: &str, address: &str, gateway: &str) {
    let switch_on = format!("echo 0 > /proc/sys/net/ipv6/conf/{device}/disable_ipv6");
    lab.exec(ns, &["sh", "-c", &switch_on], LIMIT).unwrap().success().unwrap();
    must(lab, ns, &format!("ip -6 addr add {address}/64 dev {device} nodad"));
    must(lab, ns, &format!("ip -6 route add 2001:db8::/32 via {gateway} dev {device}"));
}

fn show(lab: &Lab, what: &str) -> String {
    lab.carrack(&["show", what], LIMIT).unwrap().success().unwrap().stdout
}

#[test]
fn hosts_ping_trace_and_talk_tcp_over_ipv6_and_show_up_as_neighbours() {
    let Some(mut lab) = dual("six", "") else { return };
    until_pings(&lab, Ns::Sub1, INSIDE);
    until_pings(&lab, Ns::Sub1, SERVER);
    for target in [INSIDE, SERVER] {
        let told = must(&lab, Ns::Sub1, &format!("ping -6 -n -c 3 -i 0.2 -W 2 {target}"));
        assert!(told.contains(" 0% packet loss"), "{told}");
    }
    let told = must(&lab, Ns::Sub1, &format!("traceroute -6 -n -q 1 -w 2 {SERVER}"));
    assert!(told.contains(&format!(" 1  {INSIDE}")) && told.contains(&format!(" 2  {SERVER}")), "{told}");
    lab.start(
        Ns::Isp,
        "six",
        &["socat", "TCP6-LISTEN:8080,fork,reuseaddr", "SYSTEM:head -c 300000 /dev/zero"],
    )
    .unwrap();
    until(&lab, "the server listens", || must(&lab, Ns::Isp, "ss -Hltn").contains(":8080"));
    let got = must(&lab, Ns::Sub1, &format!("socat -u TCP6:[{SERVER}]:8080 STDOUT"));
    assert_eq!(got.len(), 300_000);
    let (neighbours, routes, interfaces) =
        (show(&lab, "neighbours"), show(&lab, "routes"), show(&lab, "interfaces"));
    assert!(neighbours.contains(HOST) && neighbours.contains(SERVER), "{neighbours}");
    assert!(routes.contains("2001:db8:1::/64"), "{routes}");
    assert!(interfaces.contains("2001:db8:1::1/64") && interfaces.contains("fe80::"), "{interfaces}");
    assert_conservation(&lab);
}

/// RFC 1122 §3.3.2, RFC 8200 §4.5 and §5: requests longer than a link takes come in pieces, and go back so.
#[test]
fn the_router_answers_pings_longer_than_its_links_take() {
    let Some(lab) = dual("long-ping", "") else { return };
    until_pings(&lab, Ns::Sub1, INSIDE);
    until_pings(&lab, Ns::Isp, OUTSIDE);
    for (ns, four, six) in [(Ns::Sub1, plan::INSIDE_GATEWAY, INSIDE), (Ns::Isp, plan::OUTSIDE, OUTSIDE)] {
        for size in [1_473, 2_000, 4_096] {
            for (version, target) in [(4, four), (6, six)] {
                let ping = format!("ping -{version} -n -c 2 -i 0.2 -W 2 -s {size} {target}");
                let told = must(&lab, ns, &ping);
                assert!(told.contains(" 0% packet loss"), "{ping}: {told}");
            }
        }
    }
    assert_conservation(&lab);
}

/// RFC 8201: the router tells what the next link takes, and the sender keeps to it; fragments of its own pass.
#[test]
fn a_packet_too_big_for_the_next_link_is_told_to_its_sender() {
    let Some(lab) = dual("six-mtu", "mtu = 1400") else { return };
    // Both ends of a link have one MTU.
    must(&lab, Ns::Isp, "ip link set carrack mtu 1400");
    until_pings(&lab, Ns::Sub1, SERVER);
    let size = |size: u16| exec(&lab, Ns::Sub1, &format!("ping -6 -n -c 2 -i 0.2 -W 2 -s {size} {SERVER}"));
    size(1_400);
    assert!(counters(&lab).to_string().contains("fragmentation-needed"), "nobody was told");
    for octets in [1_400, 4_000] {
        let told = size(octets).stdout;
        assert!(told.contains(" 0% packet loss"), "{octets}: {told}");
    }
    assert_conservation(&lab);
}

/// RFC 4862 §5.4: who had the address first keeps it.
#[test]
fn an_address_that_a_station_has_already_is_not_answered_for() {
    let Some(mut lab) = dual("six-dad", "") else { return };
    lab.stop("router");
    must(&lab, Ns::Sub1, &format!("ip -6 addr add {INSIDE}/64 dev eth0 nodad"));
    lab.start_router().unwrap();
    until(&lab, "the address is another's", || {
        let log = lab.log("router");
        log.contains(INSIDE) && log.contains("already")
    });
    assert!(!exec(&lab, Ns::Isp, &format!("ping -6 -n -c 1 -W 1 {INSIDE}")).ok());
    // And whoever asks is told.
    let interfaces = show(&lab, "interfaces");
    assert!(interfaces.contains(&format!("{INSIDE}/64 (duplicate of ")), "{interfaces}");
    let health = show(&lab, "health");
    assert!(health.starts_with("degraded") && health.contains(INSIDE), "{health}");
    let events = show(&lab, "events");
    assert!(events.contains("address-duplicate") && events.contains(INSIDE), "{events}");
    assert_conservation(&lab);
}
