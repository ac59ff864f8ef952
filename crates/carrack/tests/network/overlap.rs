//! Two customers with the same address at the same time, by wires of their own and by tags on one wire: each has a
//! routing instance, a NAT instance and outside addresses.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, Lab};
use serde_json::Value;

use crate::{LIMIT, assert_conservation, exec, lab, must, pings, replace, until};

/// The customers: namespace, instance, the first outside addresses of their pools.
const CUSTOMERS: [(Ns, &str, &str); 2] = [(Ns::Sub1, "red", "198.51.100."), (Ns::Sub2, "blue", "192.0.2.20")];

/// The routing and NAT instances of both customers; red's interface is `red`, blue's is `blue`.
fn instances(config: &str, interfaces: &str) -> String {
    let vrfs = "[[vrf]]\nname = \"red\"\n\n[[vrf]]\nname = \"blue\"\n";
    let config = replace(config, "\n[[route]]", &format!("\n{vrfs}\n{interfaces}\n[[route]]"));
    let config = replace(&config, "name = \"cgn\"", "name = \"red\"\ninside_vrf = \"red\"");
    format!(
        "{config}\n[[nat]]\nname = \"blue\"\ninside_vrf = \"blue\"\nsubscribers = [\"{}\"]\n\n[nat.ports]\n\
         mode = \"blocks\"\nblock_size = 512\n\n[[nat.pool]]\nname = \"blue\"\naddresses = [\"192.0.2.200/29\"]\n",
        plan::INSIDE_NET
    )
}

/// An inside interface; `rest` says where it is.
fn interface(name: &str, rest: &str) -> String {
    format!(
        "[[interface]]\nname = \"{name}\"\nvrf = \"{name}\"\nside = \"inside\"\naddress = [\"{}/24\"]\n{rest}\n\n",
        plan::INSIDE_GATEWAY
    )
}

/// Gives a customer this device and no other.
fn settle(lab: &Lab, ns: Ns, device: &str) {
    for step in [
        "ip link set eth0 down".to_owned(),
        format!("ip link set {device} up"),
        format!("ip address replace {}/24 dev {device}", plan::SUB1),
        format!("ip route replace default via {}", plan::INSIDE_GATEWAY),
    ] {
        must(lab, ns, &step);
    }
}

/// Brings the router up again by this configuration, and a way back to blue's pool.
fn restart(lab: &mut Lab, config: &str) {
    must(lab, Ns::Isp, &format!("ip route add 192.0.2.200/29 via {}", plan::OUTSIDE));
    lab.set_config(config).unwrap();
    lab.start_router().unwrap();
}

/// Ends of a veth pair, in two namespaces.
fn wire(lab: &Lab, (ns, end): (Ns, &str), device: &str, mtu: u16) {
    let router = Ns::Carrack.full_name(lab.name());
    for step in [
        format!("ip link add {end} mtu {mtu} type veth peer name {device} mtu {mtu} netns {router}"),
        format!("ethtool -K {end} tx off tso off gso off"),
        format!("ip link set {end} up"),
    ] {
        must(lab, ns, &step);
    }
    must(lab, Ns::Carrack, &format!("ip link set {device} up"));
}

/// Each on a wire of its own.
fn on_wires(io: Io) -> Option<Lab> {
    let mut lab = lab("overlap", io, |config| config)?;
    lab.stop("router");
    wire(&lab, (Ns::Sub1, "eth1"), "red", 1_500);
    wire(&lab, (Ns::Sub2, "eth1"), "blue", 1_500);
    for (ns, ..) in CUSTOMERS {
        settle(&lab, ns, "eth1");
    }
    let device = |name: &str| interface(name, &format!("device = \"{}:{name}\"", io.scheme()));
    let config = instances(&carrack_lab::config(io), &(device("red") + &device("blue")));
    restart(&mut lab, &without_inside(&config));
    Some(lab)
}

/// Both on one wire: red with an 802.1ad and an 802.1Q tag, blue with one 802.1Q tag and a smaller MTU than its hosts
/// know of.
fn on_tags(name: &str, io: Io) -> Option<Lab> {
    let mut lab = lab(name, io, |config| config)?;
    lab.stop("router");
    // What the tags take comes on top of 1500.
    wire(&lab, (Ns::Lan, "wire"), "trunk", 1_508);
    let script = lab.dir().join("tags.py");
    fs::write(&script, include_str!("tags.py")).unwrap();
    let [red, blue] = CUSTOMERS.map(|(ns, name, _)| format!("{name}@{}", ns.full_name(lab.name())));
    let (red, blue) = (format!("{red}=88a8.200,8100.7"), format!("{blue}=8100.10"));
    let argv = ["python3", &script.display().to_string(), "wire", &red, &blue];
    lab.start(Ns::Lan, "tags", &argv).unwrap();
    while !lab.log("tags").contains("ready") {
        assert!(lab.running("tags"), "{}", lab.log("tags"));
        thread::sleep(Duration::from_millis(20));
    }
    for (ns, device, _) in CUSTOMERS {
        settle(&lab, ns, device);
    }
    let trunk = format!("[[interface]]\nname = \"trunk\"\ndevice = \"{}:trunk\"\n\n", io.scheme());
    let red = interface("red", "parent = \"trunk\"\nouter = 200\ninner = 7\ndot1ad = true\nmtu = 1500");
    let blue = interface("blue", "parent = \"trunk\"\nvlan = 10\nmtu = 1400");
    let config = instances(&carrack_lab::config(io), &format!("{trunk}{red}{blue}"));
    restart(&mut lab, &without_inside(&config));
    Some(lab)
}

/// The lab's own inside interface would be a third customer.
fn without_inside(config: &str) -> String {
    let from = config.find("[[interface]]\nname = \"inside\"").expect("the lab has one");
    let len = config[from..].find("[[interface]]\nname = \"outside\"").expect("and an outside one");
    format!("{}{}", &config[..from], &config[from + len..])
}

fn rows(lab: &Lab, words: &[&str]) -> Vec<Value> {
    let done = lab.carrack(&[words, &["--json"]].concat(), LIMIT).unwrap().success().unwrap();
    serde_json::from_str(&done.stdout).unwrap_or_else(|_| panic!("{}", done.stdout))
}

/// Both download at the same time, and ping and ask for names meanwhile; what they get is right, and their sessions are
/// shown apart.
fn both_work(lab: &mut Lab) {
    let url = format!("http://{}/{}", plan::SERVER, plan::BIG_FILE);
    let served = lab.dir().join("www").join(plan::BIG_FILE).display().to_string();
    let file = |name: &str| lab.dir().join(format!("got-{name}")).display().to_string();
    let files = CUSTOMERS.map(|(_, name, _)| file(name));
    for ((ns, name, _), file) in CUSTOMERS.iter().zip(&files) {
        let argv = ["curl", "-sS", "--fail", "--limit-rate", "3M", "-o", file, &url];
        lab.start(*ns, name, &argv).unwrap();
    }
    for (ns, name, pool) in CUSTOMERS {
        assert!(pings(lab, ns, plan::SERVER), "{name}: {}", lab.log("router"));
        let told = must(lab, ns, &format!("dig +short +time=2 @{} {}", plan::DNS, plan::SERVER_NAME));
        assert_eq!(told.trim(), plan::SERVER, "{name}");
        let sessions = rows(lab, &["show", "nat", "sessions", "--instance", name]);
        for protocol in ["tcp", "icmp", "udp"] {
            assert!(
                sessions.iter().any(|row| row["protocol"] == protocol),
                "{name} {protocol}: {sessions:#?}"
            );
        }
        for row in &sessions {
            assert_eq!((&row["instance"], &row["inside"]), (&name.into(), &plan::SUB1.into()), "{row:#}");
            assert!(row["outside"].as_str().is_some_and(|outside| outside.starts_with(pool)), "{row:#}");
        }
    }
    for ((_, name, _), file) in CUSTOMERS.iter().zip(&files) {
        assert!(lab.wait(name, LIMIT), "{name}'s download hangs: {}", lab.log(name));
        must(lab, Ns::Lan, &format!("cmp {served} {file}"));
    }
    let instances = rows(lab, &["show", "nat", "instances"]);
    for (_, name, _) in CUSTOMERS {
        let row = instances.iter().find(|row| row["instance"] == name).expect("the instance is shown");
        assert!(row["sessions"].as_u64() > Some(0), "{row:#}");
    }
    assert_conservation(lab);
}

#[test]
fn two_customers_with_the_same_address_work_at_the_same_time() {
    let Some(mut lab) = on_wires(Io::AfXdp) else { return };
    both_work(&mut lab);
}

#[test]
fn two_customers_with_the_same_address_work_behind_an_802_1q_tag_and_qinq() {
    for io in [Io::AfXdp, Io::AfPacket] {
        let Some(mut lab) = on_tags("tags", io) else { return };
        both_work(&mut lab);
        assert!(!lab.log("tags").contains("unknown"), "{}", lab.log("tags"));
    }
}

/// RFC 4787 REQ-13: MTU, fragments and ICMP errors are the same with tags as without.
#[test]
fn fragments_errors_and_address_resolution_work_through_tags() {
    let Some(lab) = on_tags("tagged", Io::AfXdp) else { return };
    for (ns, device, _) in CUSTOMERS {
        let told = must(&lab, ns, &format!("traceroute -n -q 1 -w 2 {}", plan::SERVER));
        let hops: Vec<&str> = told.lines().skip(1).filter_map(|l| l.split_whitespace().nth(1)).collect();
        assert_eq!(hops, [plan::INSIDE_GATEWAY, plan::ISP, plan::SERVER], "{told}");
        // In four pieces there and back.
        let told = must(&lab, ns, &format!("ping -n -s 4400 -c 2 -i 0.2 -W 2 {}", plan::SERVER));
        assert!(told.contains(" 0% packet loss"), "{told}");
        let told = exec(&lab, ns, &format!("ping -n -M do -s 1350 -c 1 -W 2 {}", plan::NARROW)).stdout;
        assert!(told.contains(&format!("From {} ", plan::ISP)), "{told}");
        assert!(told.contains(&format!("(mtu = {})", plan::NARROW_MTU)), "{told}");
        must(&lab, ns, &format!("ip neigh flush dev {device}"));
        assert!(pings(&lab, ns, plan::SERVER));
        assert!(must(&lab, ns, "ip neigh").contains("lladdr"));
        let known = rows(&lab, &["show", "neighbours", "--vrf", device]);
        assert!(known.iter().any(|row| row["address"] == plan::SUB1), "{known:#?}");
    }
    assert!(!lab.log("tags").contains("unknown"), "{}", lab.log("tags"));
    assert_conservation(&lab);
}

/// RFC 4787 REQ-9, RFC 5382 REQ-8: who calls the address that is forwarded to a host behind two tags reaches it: from
/// outside, from behind one tag, and the host itself.
#[test]
fn a_forwarded_port_is_reached_through_tags_from_everywhere() {
    let Some(lab) = on_tags("tagturn", Io::AfXdp) else { return };
    let url = format!("http://{}:{}", plan::FORWARD_ADDRESS, plan::FORWARD_PORT);
    let [(red, _, reds), (blue, _, blues)] = CUSTOMERS;
    for (ns, path, seen_as) in
        [(Ns::Inet, "/?outside", plan::SERVER), (blue, "/?blue", blues), (red, "/?itself", reds)]
    {
        let page = must(&lab, ns, &format!("curl -sS --fail --max-time 5 {url}{path}"));
        assert_eq!(page, plan::HOME_PAGE);
        let log = lab.log("home-web");
        let told = log.lines().find(|line| line.contains(path)).unwrap_or_else(|| panic!("{log}"));
        assert!(told.starts_with(seen_as), "{told} should be {seen_as}…");
    }
    assert!(!lab.log("tags").contains("unknown"), "{}", lab.log("tags"));
    assert_conservation(&lab);
}

/// Somebody else's program reads the same tags on the wire and in what `carrack capture` writes, and sees the router
/// announce its address behind each of them.
#[test]
fn tshark_finds_the_tags_on_the_wire_and_in_a_capture() {
    let Some(mut lab) = on_tags("tagshark", Io::AfXdp) else { return };
    let (wire, own) = (lab.dir().join("wire.pcap"), lab.dir().join("own.pcapng"));
    let (wire, own) = (wire.display().to_string(), own.display().to_string());
    lab.stop("router");
    lab.start(
        Ns::Lan,
        "tcpdump",
        &["tcpdump", "-Z", "root", "--immediate-mode", "-U", "-n", "-i", "wire", "-w", &wire],
    )
    .unwrap();
    while !lab.log("tcpdump").contains("listening") {
        assert!(lab.running("tcpdump"), "{}", lab.log("tcpdump"));
        thread::sleep(Duration::from_millis(20));
    }
    lab.start_router().unwrap();
    let socket = lab.dir().join("api.sock").display().to_string();
    let carrack = env!("CARGO_BIN_EXE_carrack");
    lab.start(Ns::Carrack, "capture", &[carrack, "capture", "-w", &own, "--socket", &socket]).unwrap();
    // The daemon has agreed once there is a file.
    until(&lab, "the capture begins", || Path::new(&own).exists());
    for (ns, ..) in CUSTOMERS {
        must(&lab, ns, &format!("ping -n -c 2 -i 0.2 -W 2 {}", plan::SERVER));
    }
    // The two that write may be behind: last is a packet that is found again in both.
    let last = b"the last one";
    let pattern: String = last.iter().map(|byte| format!("{byte:02x}")).collect();
    must(&lab, CUSTOMERS[0].0, &format!("ping -n -c 1 -W 2 -p {pattern} {}", plan::SERVER));
    let holds = |file: &str| fs::read(file).is_ok_and(|file| file.windows(last.len()).any(|at| at == last));
    until(&lab, "both have written all", || holds(&wire) && holds(&own));
    for what in ["capture", "tcpdump"] {
        lab.stop(what);
    }
    let fields = "-T fields -e ieee8021ad.id -e vlan.id -e ip.src -e ip.dst -e arp.src.proto_ipv4";
    let read = |file: &str, filter: &str| {
        let line = format!("tshark -n -r {file} -Y {filter} {fields}");
        let rows = must(&lab, Ns::Lan, &line);
        rows.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for file in [&wire, &own] {
        let rows = read(file, "icmp");
        for tags in ["200\t7", "\t10"] {
            for (from, to) in [(plan::SUB1, plan::SERVER), (plan::SERVER, plan::SUB1)] {
                let wanted = format!("{tags}\t{from}\t{to}\t");
                assert!(rows.contains(&wanted), "{wanted:?} is not in {file}: {rows:#?}");
            }
        }
    }
    let outside = read(&own, "icmp").into_iter().filter(|row| row.contains("192.0.2.20")).collect::<Vec<_>>();
    assert!(!outside.is_empty() && outside.iter().all(|row| row.starts_with("\t\t")), "{outside:#?}");
    let announced = read(&wire, "arp.isgratuitous");
    for tags in ["200\t7", "\t10"] {
        let wanted = format!("{tags}\t\t\t{}", plan::INSIDE_GATEWAY);
        assert!(announced.contains(&wanted), "{wanted:?} is not announced: {announced:#?}");
    }
    assert_conservation(&lab);
}
