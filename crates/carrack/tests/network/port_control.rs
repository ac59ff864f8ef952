//! Hosts open ports for themselves: Debian's `natpmpc`, and the PCP client of the crate `crab_nat`.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU16;

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, Lab, nat64};
use crab_nat::{GatewayAddress, InternetProtocol, PortMapping, PortMappingOptions, PortMappingType};
use nix::sched::{CloneFlags, setns};

use crate::{LIMIT, assert_conservation, counters, exec, lab, must, plain, replace};

/// Inside port of the web server that only its host opens.
const PORT: u16 = 8_090;

/// Runs something in a namespace's network, on a thread of its own.
fn within<T: Send + 'static>(lab: &Lab, ns: Ns, what: impl FnOnce() -> T + Send + 'static) -> T {
    let path = format!("/var/run/netns/{}", ns.full_name(lab.name()));
    let inside = move || {
        let file = std::fs::File::open(&path).unwrap();
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        what()
    };
    std::thread::spawn(inside).join().unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Asks by PCP for a mapping of `sub2`'s port.
async fn open(lifetime_s: u32) -> PortMapping {
    let gateway: Ipv4Addr = plan::INSIDE_GATEWAY.parse().unwrap();
    open_at(GatewayAddress::IpV4(gateway), plan::SUB2, lifetime_s).await
}

async fn open_at(gateway: GatewayAddress, client: &str, lifetime_s: u32) -> PortMapping {
    let options = PortMappingOptions {
        external_port: None,
        lifetime_seconds: Some(lifetime_s),
        ..PortMappingOptions::default()
    };
    let client: IpAddr = client.parse().unwrap();
    let port = NonZeroU16::new(PORT).unwrap();
    PortMapping::new(gateway, client, InternetProtocol::Tcp, port, options)
        .await
        .unwrap_or_else(|error| panic!("crab_nat: {error}"))
}

fn place(mapping: &PortMapping) -> (IpAddr, u16) {
    match mapping.mapping_type() {
        PortMappingType::Pcp { external_ip, .. } => {
            (external_ip.to_canonical(), mapping.external_port().get())
        }
        PortMappingType::NatPmp => panic!("crab_nat fell back to NAT-PMP"),
    }
}

fn serve(lab: &mut Lab) {
    serve_at(lab, Ns::Sub2, "0.0.0.0");
}

fn serve_at(lab: &mut Lab, ns: Ns, address: &str) {
    let home = lab.dir().join("home").display().to_string();
    let port = PORT.to_string();
    let argv = ["python3", "-u", "-m", "http.server", &port, "--bind", address, "--directory", &home];
    lab.start(ns, "asked-web", &argv).unwrap();
    // On a busy machine an interpreter takes its time to start.
    let listens = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        !exec(lab, ns, &format!("ss -Hltn sport = :{PORT}")).stdout.is_empty()
    });
    assert!(listens, "{}", lab.log("asked-web"));
}

fn reaches(lab: &Lab, from: Ns, (ip, port): (IpAddr, u16)) -> bool {
    let line = format!(
        "curl --silent --max-time 3 --retry 3 --retry-delay 1 --retry-connrefused http://{ip}:{port}/"
    );
    exec(lab, from, &line).stdout == plan::HOME_PAGE
}

/// RFC 6887 §11, §15; RFC 6888 REQ-9: a real client opens, renews and closes, and a real TCP connection passes.
#[test]
fn a_pcp_client_opens_a_port_and_is_reached_from_outside() {
    let Some(mut lab) = plain("pcp") else { return };
    serve(&mut lab);
    let (mapping, at) = within(&lab, Ns::Sub2, || {
        let mapping = block_on(open(600));
        let at = place(&mapping);
        (mapping, at)
    });
    assert_eq!(mapping.lifetime(), 600);
    assert!(at.0.to_string().starts_with(plan::POOL_PREFIX), "{at:?}");
    assert!(reaches(&lab, Ns::Inet, at), "{}", lab.log("router"));
    assert!(reaches(&lab, Ns::Sub1, at), "a neighbour by hairpin: {}", lab.log("router"));
    let told = lab.carrack(&["show", "pcp", "mappings"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(told.contains(&format!("{}:{PORT}", plan::SUB2)) && told.contains("pcp"), "{told}");
    let events = lab.carrack(&["show", "events"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(events.contains("mapping-bound"), "{events}");
    within(&lab, Ns::Sub2, move || {
        let mut mapping = mapping;
        block_on(mapping.renew()).unwrap();
        assert_eq!(place(&mapping), at);
        block_on(mapping.try_drop()).unwrap_or_else(|(error, _)| panic!("{error}"));
    });
    let told = lab.carrack(&["show", "pcp", "mappings"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(told.contains("no mappings match"), "{told}");
    // No service for the Internet's side: neither there nor with the inside address.
    let outside = format!("natpmpc -g {}", plan::OUTSIDE);
    assert!(!exec(&lab, Ns::Isp, &outside).stdout.contains("Public IP address"));
    assert_conservation(&lab);
}

/// RFC 6887 §11 over IPv6: a host that has IPv6 alone gets an IPv4 endpoint, and is reached there through the NAT64.
#[test]
fn an_ipv6_only_host_opens_a_port_and_is_reached_over_ipv4() {
    let Some(mut lab) = lab("pcp6", Io::AfXdp, |_| nat64::config(Io::AfXdp)) else { return };
    nat64::switch(&mut lab).unwrap();
    serve_at(&mut lab, Ns::Sub1, "::");
    let gateway = GatewayAddress::IpV6(nat64::ROUTER.parse().unwrap(), None);
    let (mapping, at) = within(&lab, Ns::Sub1, move || {
        let mapping = block_on(open_at(gateway, nat64::HOST, 600));
        let at = place(&mapping);
        (mapping, at)
    });
    assert!(at.0.to_string().starts_with(plan::POOL_PREFIX), "{at:?}");
    assert!(reaches(&lab, Ns::Inet, at), "{}", lab.log("router"));
    let told = lab.carrack(&["show", "pcp", "mappings"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(told.contains(&format!("[{}]:{PORT}", nat64::HOST)), "{told}");
    within(&lab, Ns::Sub1, move || {
        let mut mapping = mapping;
        block_on(mapping.renew()).unwrap();
        assert_eq!(place(&mapping), at);
        block_on(mapping.try_drop()).unwrap_or_else(|(error, _)| panic!("{error}"));
    });
    let told = lab.carrack(&["show", "pcp", "mappings"], LIMIT).unwrap().success().unwrap().stdout;
    assert!(told.contains("no mappings match"), "{told}");
    assert_conservation(&lab);
}

/// RFC 6887 §8.5: the state file carries mapping and epoch over a restart.
#[test]
fn a_mapping_and_the_epoch_outlive_a_restart_of_the_daemon() {
    let kept = "[port_control]\nstate_file = \"@LAB@/port-control\"\n\n[[interface]]\nname = \"inside\"";
    let edit = |config: String| replace(&config, "[[interface]]\nname = \"inside\"", kept);
    let Some(mut lab) = lab("pcpkeep", Io::AfXdp, edit) else { return };
    serve(&mut lab);
    let (mapping, at) = within(&lab, Ns::Sub2, || {
        let mapping = block_on(open(600));
        let at = place(&mapping);
        (mapping, at)
    });
    assert!(reaches(&lab, Ns::Inet, at), "{}", lab.log("router"));
    let epoch = mapping.gateway_epoch();
    std::thread::sleep(std::time::Duration::from_secs(2));
    lab.stop("router");
    lab.start_router().unwrap();
    assert!(reaches(&lab, Ns::Inet, at), "{}", lab.log("router"));
    let again = within(&lab, Ns::Sub2, move || {
        let mut mapping = mapping;
        block_on(mapping.renew()).unwrap();
        (place(&mapping), mapping.gateway_epoch())
    });
    assert_eq!(again.0, at);
    assert!((epoch + 2..epoch + 60).contains(&again.1), "{} after {epoch}", again.1);
    assert_conservation(&lab);
}

/// RFC 6887 §14.2: a reload that takes the pool's addresses away gives the mapping another place, where it works, and tells
/// the client by the answer it would get, three times to the port it asked from.
#[test]
fn a_client_hears_where_a_reload_has_moved_its_mapping() {
    let renumbered = |config: String, pool: &str, forward: &str| {
        let config = replace(&config, plan::POOL, pool);
        let old = format!("{}:{}", plan::FORWARD_ADDRESS, plan::FORWARD_PORT);
        replace(&config, &old, &format!("{forward}:{}", plan::FORWARD_PORT))
    };
    let before = |config| renumbered(config, "198.51.100.0/29", plan::FORWARD_ADDRESS);
    let Some(mut lab) = lab("pcpmove", Io::AfXdp, before) else { return };
    serve(&mut lab);
    let client = within(&lab, Ns::Sub2, || {
        let client = std::net::UdpSocket::bind((plan::SUB2, 0)).unwrap();
        client.connect((plan::INSIDE_GATEWAY, 5_351)).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client
    });
    // RFC 6887 §7, §11.1: version 2, MAP, 600 s, the client; a nonce, TCP, the port, nothing suggested.
    let own = plan::SUB2.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().octets();
    let [high, low] = PORT.to_be_bytes();
    let head = [&[2, 1, 0, 0, 0, 0, 2, 88][..], &own].concat();
    let any = Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().octets();
    let request = [&head[..], &[9; 12], &[6, 0, 0, 0, high, low, 0, 0], &any].concat();
    let hear = || {
        let mut answer = [0; 1_100];
        let len = client.recv(&mut answer).unwrap();
        assert_eq!((len, answer[..4].to_vec()), (60, vec![2, 0x81, 0, 0]), "a MAP that succeeded");
        assert_eq!(answer[24..42], request[24..42], "nonce, protocol and port");
        let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().unwrap());
        let place = (Ipv4Addr::from(word(56)), u16::from_be_bytes([answer[42], answer[43]]));
        ((IpAddr::V4(place.0), place.1), word(4), word(8))
    };
    client.send(&request).unwrap();
    let (old, lifetime, epoch) = hear();
    assert_eq!(lifetime, 600);
    assert!(reaches(&lab, Ns::Inet, old), "{}", lab.log("router"));
    let after = renumbered(carrack_lab::config(Io::AfXdp), plan::POOL_LAST, plan::POOL_LAST);
    lab.set_config(&after).unwrap();
    lab.carrack(&["reload"], LIMIT).unwrap().success().unwrap();
    let told = [hear(), hear(), hear()];
    let [(new, ..), ..] = told;
    assert_eq!(new.0.to_string(), plan::POOL_LAST);
    for (place, lifetime, again) in told {
        assert_eq!(place, new);
        assert!((1..=600).contains(&lifetime) && again >= epoch, "{lifetime} s left, epoch {again}");
    }
    assert!(reaches(&lab, Ns::Inet, new), "{}", lab.log("router"));
    let counted = counters(&lab).to_string();
    assert!(counted.contains("pcp-moved"), "{counted}");
    assert_conservation(&lab);
}

/// RFC 6886 §3.2, §3.3: and a flood of requests of one host leaves its neighbour's answered.
#[test]
fn a_flood_of_requests_of_one_host_starves_nobody() {
    let Some(mut lab) = plain("pcpflood") else { return };
    let flood = format!(
        "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\ne=time.time()+4\n\
         while time.time()<e:\n [s.sendto(b'\\0\\0',('{}',5351)) for _ in range(50)]\n time.sleep(.01)\n",
        plan::INSIDE_GATEWAY
    );
    lab.start(Ns::Sub1, "flood", &["python3", "-c", &flood]).unwrap();
    let ask = format!("natpmpc -g {} -a 7000 7000 udp 60", plan::INSIDE_GATEWAY);
    let mut answered = 0;
    while lab.running("flood") {
        let told = must(&lab, Ns::Sub2, &ask);
        assert!(told.contains("Mapped public port"), "{told}");
        answered += 1;
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    assert!(answered > 0);
    let counted = counters(&lab).to_string();
    assert!(counted.contains("punt-policed-port-control"), "{counted}");
    assert_conservation(&lab);
}
