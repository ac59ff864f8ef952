//! The lab as a NAT64: the first subscriber has IPv6 alone, the second is a resolver that makes IPv6 addresses of the
//! servers' IPv4 ones (DNS64, by Debian's `unbound`), and the router translates.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::Lab;
use crate::plan::{self, Ns};
use crate::router::{self, Io};
use crate::siit::await_ping;

/// The router inside.
pub const ROUTER: &str = "2001:db8:1::1";
/// The first subscriber.
pub const HOST: &str = "2001:db8:1::10";
/// The resolver, which has IPv4 as well.
pub const RESOLVER: &str = "2001:db8:1::53";
/// What stands before IPv4 addresses; 96 bits.
pub const PREFIX: &str = "2001:db8:64::";
const LIMIT: Duration = Duration::from_secs(15);

/// The lab's config with IPv6 inside and a NAT64 in its instance.
#[must_use]
pub fn config(io: Io) -> String {
    let own = format!("address = [\"{}/24\"", plan::INSIDE_GATEWAY);
    let nat64 = format!("[nat.nat64]\nprefixes = [\"{PREFIX}/96\"]\nsubscribers = [\"2001:db8:1::/64\"]\n");
    router::config(io).replacen(&own, &format!("{own}, \"{ROUTER}/64\""), 1).replacen(
        "[[nat.pool]]",
        &format!("{nat64}\n[[nat.pool]]"),
        1,
    )
}

/// The IPv6 address that stands for an IPv4 one.
#[must_use]
pub fn by_prefix(server: &str) -> String {
    format!("{PREFIX}{server}")
}

/// Makes the subscribers of a lab that is up what this lab wants them to be.
///
/// # Errors
/// What a program in a namespace said.
pub fn switch(lab: &mut Lab) -> Result<()> {
    for (ns, address) in [(Ns::Sub1, HOST), (Ns::Sub2, RESOLVER)] {
        let steps = format!(
            "set -e
             echo 0 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6
             ip -6 addr add {address}/64 dev eth0 nodad
             ip -6 route add default via {ROUTER} dev eth0"
        );
        lab.exec(ns, &["sh", "-c", &steps], LIMIT)?.success()?;
    }
    lab.exec(Ns::Sub1, &["ip", "-4", "addr", "flush", "dev", "eth0"], LIMIT)?.success()?;
    let resolver = Path::new("/etc/netns").join(Ns::Sub1.full_name(lab.name())).join("resolv.conf");
    write(&resolver, &format!("nameserver {RESOLVER}\noptions timeout:2 attempts:2\n"))?;
    let config = lab.dir().join("unbound.conf");
    write(&config, &unbound())?;
    lab.start(Ns::Sub2, "dns64", &["unbound", "-d", "-c", &config.display().to_string()])?;
    // Own addresses are used a second after they were asked for (RFC 4862 §5.4).
    await_ping(lab, Ns::Sub1, ROUTER, "router")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// RFC 6147 by the module of that name; all names are the lab's own server's.
fn unbound() -> String {
    format!(
        "server:
  interface: {RESOLVER}
  access-control: ::/0 allow
  module-config: \"dns64 iterator\"
  dns64-prefix: {PREFIX}/96
  username: \"\"
  chroot: \"\"
  pidfile: \"\"
  use-syslog: no
  logfile: \"\"
  do-daemonize: no
remote-control:
  control-enable: no
forward-zone:
  name: \".\"
  forward-addr: {}
",
        plan::DNS
    )
}
