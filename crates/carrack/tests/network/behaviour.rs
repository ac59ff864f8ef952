//! What real programs see that the demonstration does not show.

use carrack_lab::Io;
use carrack_lab::plan::{self, Ns};

use crate::{assert_conservation, lab, must, outside_of, pings, plain, replace};

#[test]
fn a_subscriber_keeps_its_outside_endpoint_for_all_destinations() {
    // RFC 4787 REQ-1: endpoint-independent mapping. RFC 4787 REQ-2: one outside address for a subscriber.
    let Some(lab) = plain("eim") else { return };
    let first = outside_of(&lab, Ns::Sub1, 30_000).expect("no answer");
    let target = format!("UDP4:{}:{},sourceport=30000", plan::NARROW, plan::WHOAMI_PORT);
    let argv = ["socat", "-t2", "-", &target];
    let done = lab.exec_until_answered(Ns::Sub1, &argv, b"who?\n", 0, crate::LIMIT).unwrap();
    assert_eq!(done.stdout.trim(), first, "another destination saw another endpoint");
    let other_port = outside_of(&lab, Ns::Sub1, 30_001).expect("no answer");
    assert_ne!(other_port, first);
    assert_eq!(other_port.split(' ').next(), first.split(' ').next(), "two outside addresses");
}

#[test]
fn a_smaller_outside_mtu_is_told_to_senders_that_forbid_fragments_and_fragmented_for_others() {
    // RFC 4787 REQ-13.
    let edit = |config: String| replace(&config, "side = \"outside\"", "side = \"outside\"\nmtu = 1400");
    let Some(lab) = lab("mtu", Io::AfXdp, edit) else { return };
    // The wire's other end has the same MTU, as on a real one.
    must(&lab, Ns::Isp, "ip link set carrack mtu 1400");
    let ping = format!("ping -n -M do -s 1400 -c 1 -W 2 {}", plan::SERVER);
    let told = crate::exec(&lab, Ns::Sub1, &ping).stdout;
    assert!(told.contains("From 100.64.0.1 ") && told.contains("(mtu = 1400)"), "{told}");
    must(&lab, Ns::Sub2, &format!("ping -n -M dont -s 1450 -c 2 -W 2 {}", plan::SERVER));
    assert_conservation(&lab);
}

#[test]
fn three_hundred_connections_at_once_all_succeed() {
    let Some(lab) = plain("many") else { return };
    let shell = format!(
        "seq 300 | xargs -P 25 -I @ curl --silent --show-error --fail --max-time 10 --output /dev/null http://{}/?@",
        plan::SERVER
    );
    lab.exec(Ns::Sub1, &["sh", "-c", &shell], crate::LIMIT * 3).unwrap().success().unwrap();
    assert_conservation(&lab);
}

#[test]
fn a_flood_of_pings_to_the_router_starves_neither_arp_nor_forwarding() {
    let Some(mut lab) = plain("flood") else { return };
    lab.start(Ns::Sub2, "flood", &["ping", "-n", "-q", "-f", "-w", "3", plan::INSIDE_GATEWAY]).unwrap();
    while lab.running("flood") {
        must(&lab, Ns::Sub1, "ip neigh flush dev eth0");
        assert!(pings(&lab, Ns::Sub1, plan::SERVER), "{}", lab.log("router"));
    }
    assert_conservation(&lab);
}
