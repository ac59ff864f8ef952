//! The wires: namespaces, veth pairs, addresses and routes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::run;
use crate::plan::{self, Ns};

const LIMIT: Duration = Duration::from_secs(15);

/// Creates the namespaces and everything in them that is not the router's.
pub(crate) fn create(lab: &str) -> Result<()> {
    for ns in Ns::ALL {
        let name = ns.full_name(lab);
        resolver(&name)?;
        ip(&["netns", "add", &name])?;
        settings(&name, ns)?;
    }
    for step in script(lab).lines() {
        let words: Vec<&str> = step.split_whitespace().collect();
        ip(&words)?;
    }
    for (ns, device) in OFFLOADS_OFF {
        let name = ns.full_name(lab);
        let argv =
            ["ip", "netns", "exec", &name, "ethtool", "-K", device, "tx", "off", "tso", "off", "gso", "off"];
        run(&argv, LIMIT, None)?.success()?;
    }
    Ok(())
}

/// Removes every namespace of this lab that exists, and what belongs to it under `/etc/netns`.
pub(crate) fn remove(lab: &str) -> Result<()> {
    for name in existing(lab) {
        ip(&["netns", "del", &name])?;
    }
    for name in entries("/etc/netns", &plan::prefix(lab)) {
        let _ = fs::remove_dir_all(Path::new("/etc/netns").join(name));
    }
    Ok(())
}

/// Names of this lab's namespaces that exist now.
pub(crate) fn existing(lab: &str) -> Vec<String> {
    entries("/run/netns", &plan::prefix(lab))
}

/// Processes in a namespace.
pub(crate) fn pids(name: &str) -> Vec<i32> {
    let listed = run(&["ip", "netns", "pids", name], LIMIT, None);
    listed.map(|done| done.stdout.lines().filter_map(|l| l.trim().parse().ok()).collect()).unwrap_or_default()
}

/// These send into the router's ports, which must see finished checksums and segments no larger than the wire's, as on
/// a real wire. The router cannot change them itself: they are in other namespaces.
const OFFLOADS_OFF: [(Ns, &str); 2] = [(Ns::Lan, "carrack"), (Ns::Isp, "carrack")];

/// One `ip` command a line.
fn script(lab: &str) -> String {
    let [sub1, sub2, lan, carrack, isp, inet] = Ns::ALL.map(|ns| ns.full_name(lab));
    let narrow_mtu = plan::NARROW_MTU;
    let (gateway, isp_address) = (plan::INSIDE_GATEWAY, plan::ISP);
    format!(
        "-n {lan} link add sub1 type veth peer name eth0 netns {sub1}
         -n {lan} link add sub2 type veth peer name eth0 netns {sub2}
         -n {lan} link add carrack type veth peer name inside netns {carrack}
         -n {isp} link add carrack type veth peer name outside netns {carrack}
         -n {isp} link add wan type veth peer name wan netns {inet}
         -n {isp} link add narrow mtu {narrow_mtu} type veth peer name narrow netns {inet}
         -n {lan} link add lan type bridge
         -n {lan} link set sub1 master lan up
         -n {lan} link set sub2 master lan up
         -n {lan} link set carrack master lan up
         -n {lan} link set lan up
         -n {sub1} link set lo up
         -n {sub1} link set eth0 up
         -n {sub1} address add {sub1_ip}/24 dev eth0
         -n {sub1} route add default via {gateway}
         -n {sub2} link set lo up
         -n {sub2} link set eth0 up
         -n {sub2} address add {sub2_ip}/24 dev eth0
         -n {sub2} route add default via {gateway}
         -n {carrack} link set lo up
         -n {carrack} link set inside up
         -n {carrack} link set outside up
         -n {isp} link set lo up
         -n {isp} link set carrack up
         -n {isp} link set wan up
         -n {isp} link set narrow up
         -n {isp} address add {isp_address}/30 dev carrack
         -n {isp} address add {isp_wan}/25 dev wan
         -n {isp} address add {isp_narrow}/25 dev narrow
         -n {isp} route add {pool} via {outside}
         -n {inet} link set lo up
         -n {inet} link set wan up
         -n {inet} link set narrow up
         -n {inet} address add {server}/25 dev wan
         -n {inet} address add {dns}/25 dev wan
         -n {inet} address add {narrow}/25 dev narrow
         -n {inet} route add default via {isp_wan}
         -n {inet} rule add from {narrow} lookup 100
         -n {inet} route add default via {isp_narrow} mtu lock {narrow_mtu} advmss 1460 table 100",
        sub1_ip = plan::SUB1,
        sub2_ip = plan::SUB2,
        isp_wan = plan::ISP_WAN,
        isp_narrow = plan::ISP_NARROW,
        pool = plan::POOL,
        outside = plan::OUTSIDE,
        server = plan::SERVER,
        dns = plan::DNS,
        narrow = plan::NARROW,
    )
}

/// Kernel settings: no IPv6 chatter; routers forward; ICMP is not held back, or a quick traceroute shows stars.
fn settings(name: &str, ns: Ns) -> Result<()> {
    let mut shell = String::from(
        "for f in default all; do echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6; done 2>/dev/null; \
         echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; ",
    );
    if ns == Ns::Isp {
        shell.push_str("echo 1 > /proc/sys/net/ipv4/ip_forward; ");
    }
    run(&["ip", "netns", "exec", name, "sh", "-c", &shell], LIMIT, None)?.success()?;
    Ok(())
}

/// Programs in the namespace resolve names at the lab's own DNS server (`ip netns exec` binds this file over the
/// machine's), so `curl http://www.example.net` works there and nothing waits for an unreachable resolver.
fn resolver(name: &str) -> Result<()> {
    let dir = Path::new("/etc/netns").join(name);
    fs::create_dir_all(&dir)
        .and_then(|()| {
            let text = format!("nameserver {}\noptions timeout:1 attempts:1\n", plan::DNS);
            fs::write(dir.join("resolv.conf"), text)
        })
        .with_context(|| format!("cannot write {}", dir.display()))
}

fn ip(args: &[&str]) -> Result<()> {
    let argv: Vec<&str> = [&["ip"], args].concat();
    run(&argv, LIMIT, None)?.success()?;
    Ok(())
}

fn entries(dir: &str, prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}
