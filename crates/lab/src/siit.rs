//! Labs with stateless translation. The first subscriber moves behind the second, which becomes what stands at a
//! customer's or a rack's end:
//!
//! ```text
//!  464XLAT:  sub1 IPv4 only ── sub2 CLAT (carrack) ── IPv6 only ── carrack PLAT (NAT64) ── IPv4 Internet
//!  SIIT-DC:  sub1 IPv6 only ── sub2 IPv6 router    ── IPv6 only ── carrack SIIT         ── IPv4 Internet
//! ```

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::lab::Lab;
use crate::nat64::{PREFIX, ROUTER};
use crate::plan::{self, Ns};
use crate::router::{self, Io, Router};

/// The second subscriber, on the IPv6 link to the router.
pub const BEHIND: &str = "2001:db8:1::46";

/// The CLAT's addresses towards its host, and the host's only one.
pub const CLAT: &str = "192.168.4.1";
/// The IPv4-only host.
pub const HOST4: &str = "192.168.4.2";
/// What stands before the IPv4 addresses of the CLAT's hosts; 96 bits.
pub const CLAT_PREFIX: &str = "2001:db8:1:464::";
/// Where errors of IPv6 routers come from that have no IPv4 address (RFC 7600 §4.4 keeps this address for that).
pub const DUMMY: &str = "192.0.0.8";

/// The IPv6-only server, its router, and the IPv4 address that the world knows it by.
pub const HOST6: &str = "2001:db8:1:10::10";
/// The router's address on the server's link.
pub const RACK: &str = "2001:db8:1:10::1";
/// The server's IPv4 address.
pub const SERVICE: &str = "198.51.100.20";
/// Where errors of IPv6 routers on the way to it come from (RFC 6791).
pub const ERRORS_FROM: &str = "198.51.100.30";
/// Port of the IPv6-only web server.
pub const WEB_PORT: u16 = 8_046;

const LIMIT: Duration = Duration::from_secs(15);

/// The lab's config with an IPv6 address inside, and `more`.
fn with_six(io: Io, more: &str) -> String {
    let own = format!("address = [\"{}/24\"", plan::INSIDE_GATEWAY);
    let config = router::config(io).replacen(&own, &format!("{own}, \"{ROUTER}/64\""), 1);
    format!("{config}\n{more}")
}

/// The provider's side of 464XLAT (PLAT): NAT64 of every CLAT behind the IPv6 link.
#[must_use]
pub fn plat_config(io: Io) -> String {
    let config = with_six(io, &format!("[[route]]\nprefix = \"{CLAT_PREFIX}/96\"\nvia = \"{BEHIND}\"\n"));
    // Every link here takes as much: a long reply to a ping need not be cut, for a CLAT passes no ICMP in pieces.
    let nat64 = format!(
        "[nat.nat64]\nprefixes = [\"{PREFIX}/96\"]\nsubscribers = [\"2001:db8:1::/48\"]\nlowest_ipv6_mtu = 1500\n"
    );
    config.replacen("[[nat.pool]]", &format!("{nat64}\n[[nat.pool]]"), 1)
}

/// The customer's side (CLAT, RFC 6877): a stateless translator between IPv4 hosts and an IPv6 uplink.
fn clat_config(io: Io) -> String {
    format!(
        include_str!("siit/clat.toml"),
        io = io.scheme(),
        clat = CLAT,
        behind = BEHIND,
        router = ROUTER,
        plat_prefix = PREFIX,
        clat_prefix = CLAT_PREFIX,
        dummy = DUMMY,
    )
}

/// A stateless translator for servers that have IPv6 alone (SIIT-DC, RFC 7755).
#[must_use]
pub fn config(io: Io) -> String {
    with_six(
        io,
        &format!(
            "[[route]]\nprefix = \"2001:db8:1:10::/64\"\nvia = \"{BEHIND}\"\n\n\
             [[siit]]\nname = \"dc\"\nprefixes = [\"{PREFIX}/96\"]\n\
             eam = [{{ v4 = \"{SERVICE}/32\", v6 = \"{HOST6}/128\" }}]\n\
             icmp_sources = [\"{ERRORS_FROM}-{ERRORS_FROM}\"]\nreveal_icmp_source = true\n"
        ),
    )
}

/// Makes a lab that is up, with [`plat_config`], one of 464XLAT; the CLAT is the same program once more.
///
/// # Errors
/// What a program in a namespace said.
pub fn switch_464xlat(lab: &mut Lab) -> Result<()> {
    let Router::Carrack { binary, io, .. } = lab.router().clone() else {
        bail!("464XLAT needs carrack as the router: the kernel has no NAT64");
    };
    move_behind(lab)?;
    let steps = format!("ip addr add {HOST4}/24 dev eth0\nip route add default via {CLAT}");
    script(lab, Ns::Sub1, &steps)?;
    script(lab, Ns::Sub2, "ip -4 addr flush dev eth0")?;
    let dir = lab.dir().join("clat");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let file = dir.join("carrack.toml");
    let text = clat_config(io).replace("@LAB@", &dir.display().to_string());
    fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let argv = [&binary.display().to_string(), "run", "-c", &file.display().to_string()];
    lab.start(Ns::Sub2, "clat", &argv)?;
    await_ping(lab, Ns::Sub1, plan::SERVER, "clat")
}

/// Makes a lab that is up, with [`config`], one with an IPv6-only server.
///
/// # Errors
/// What a program in a namespace said.
pub fn switch(lab: &mut Lab) -> Result<()> {
    move_behind(lab)?;
    let (server, router) = (format!("{HOST6}/64"), format!("{RACK}/64"));
    let on = |device: &str| format!("echo 0 > /proc/sys/net/ipv6/conf/{device}/disable_ipv6");
    let steps = [
        on("eth0"),
        format!("ip -6 addr add {server} dev eth0 nodad"),
        format!("ip -6 route add default via {RACK} dev eth0"),
    ];
    script(lab, Ns::Sub1, &steps.join("\n"))?;
    let steps = [
        on("eth0"),
        on("home"),
        "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding".to_owned(),
        "echo 0 > /proc/sys/net/ipv6/icmp/ratelimit".to_owned(),
        "ip -4 addr flush dev eth0".to_owned(),
        format!("ip -6 addr add {BEHIND}/64 dev eth0 nodad"),
        format!("ip -6 addr add {router} dev home nodad"),
        format!("ip -6 route add default via {ROUTER} dev eth0"),
    ];
    script(lab, Ns::Sub2, &steps.join("\n"))?;
    script(lab, Ns::Isp, &format!("ip route add 198.51.100.16/28 via {}", plan::OUTSIDE))?;
    let home = lab.dir().join("home").display().to_string();
    let port = WEB_PORT.to_string();
    lab.start(
        Ns::Sub1,
        "web6",
        &["python3", "-m", "http.server", &port, "--bind", "::", "--directory", &home],
    )?;
    // Own addresses are used a second after they were asked for (RFC 4862 §5.4).
    await_ping(lab, Ns::Inet, SERVICE, "router")
}

/// Cuts the first subscriber off the switch and joins it to the second.
fn move_behind(lab: &Lab) -> Result<()> {
    let sub1 = Ns::Sub1.full_name(lab.name());
    script(lab, Ns::Lan, "ip link del sub1")?;
    script(
        lab,
        Ns::Sub2,
        &format!("ip link add home type veth peer name eth0 netns {sub1}\nip link set home up"),
    )?;
    // What is sent into the CLAT's port must have finished checksums, as on a real wire.
    script(lab, Ns::Sub1, "ip link set eth0 up\nethtool -K eth0 tx off tso off gso off")
}

fn script(lab: &Lab, ns: Ns, steps: &str) -> Result<()> {
    let done = lab.exec(ns, &["sh", "-c", &format!("set -e\n{steps}")], LIMIT)?;
    done.success().map(|_| ())
}

/// Waits until one echo request is answered.
pub(crate) fn await_ping(lab: &Lab, ns: Ns, target: &str, what: &str) -> Result<()> {
    let started = Instant::now();
    while !lab.exec(ns, &["ping", "-n", "-c", "1", "-W", "1", target], LIMIT)?.ok() {
        if started.elapsed() > LIMIT {
            bail!("{target} does not answer; the end of the output of {what}:\n{}", lab.log(what));
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use carrack_config::Config;

    use super::*;
    use crate::nat64;

    #[test]
    fn the_daemon_accepts_the_configs_of_translation_without_a_warning() {
        for io in [Io::AfPacket, Io::AfXdp] {
            for text in [nat64::config(io), plat_config(io), clat_config(io), config(io)] {
                let text = text.replace("@LAB@", "/run/carrack-lab/demo");
                let (_, warnings) = Config::from_str("carrack.toml", &text).unwrap_or_else(|errors| {
                    panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
                });
                assert!(warnings.is_empty(), "{}", warnings[0]);
            }
        }
    }
}
