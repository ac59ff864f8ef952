//! What stands between subscribers and the Internet: the daemon under test, or the kernel's NAT for comparison.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::run;
use crate::plan;

/// How the daemon takes its packets from the veth ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Io {
    /// DPDK's `net_af_xdp` in copy mode.
    AfXdp,
    /// DPDK's `net_af_packet`.
    AfPacket,
}

impl Io {
    /// The word before the colon in the config's `device`.
    pub fn scheme(self) -> &'static str {
        match self {
            Io::AfPacket => "af_packet",
            Io::AfXdp => "af_xdp",
        }
    }
}

/// The router of a lab.
#[derive(Clone, Debug)]
pub enum Router {
    /// The daemon: `binary run -c CONFIG` with a config written for the lab.
    Carrack {
        /// The `carrack` executable.
        binary: PathBuf,
        /// Its kind of ports.
        io: Io,
        /// Its config, usually made from [`config`]; `@LAB@` stands for the lab's directory.
        config: String,
    },
    /// nftables in the kernel.
    LinuxNft,
}

impl Router {
    /// This executable as the daemon.
    pub fn this_binary(io: Io) -> Result<Router> {
        Ok(Router::Carrack {
            binary: std::env::current_exe().context("cannot find this executable")?,
            io,
            config: config(io),
        })
    }

    /// For people and for the state file.
    pub fn label(&self) -> String {
        match self {
            Router::Carrack { io, .. } => format!("carrack ({})", io.scheme()),
            Router::LinuxNft => "linux-nft".to_owned(),
        }
    }
}

/// The daemon's management socket.
pub(crate) fn socket(dir: &Path) -> PathBuf {
    dir.join("api.sock")
}

/// The daemon's config file.
pub(crate) fn config_file(dir: &Path) -> PathBuf {
    dir.join("carrack.toml")
}

/// Writes the daemon's config; `@LAB@` in it becomes the lab's directory.
pub(crate) fn write_config(dir: &Path, text: &str) -> Result<()> {
    let path = config_file(dir);
    fs::write(&path, text.replace("@LAB@", &dir.display().to_string()))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The lab's own config for the daemon: two interfaces, one pool in blocks of 512 ports, one port forward. `@LAB@`
/// stands for the lab's directory.
pub fn config(io: Io) -> String {
    format!(
        include_str!("router/lab.toml"),
        io = io.scheme(),
        gateway = plan::INSIDE_GATEWAY,
        inside = plan::INSIDE_NET,
        outside = plan::OUTSIDE,
        isp = plan::ISP,
        pool = plan::POOL,
        forward = plan::FORWARD_ADDRESS,
        port = plan::FORWARD_PORT,
        sub1 = plan::SUB1,
    )
}

/// Makes namespace `name` a NAT router with the kernel's own means: same addresses, same pool, same port forward.
pub(crate) fn start_nft(name: &str) -> Result<()> {
    let limit = Duration::from_secs(15);
    let address = |address: &str, bits: u8, device: &str| format!("{address}/{bits} dev {device}");
    let steps = format!(
        "set -e
         echo 1 > /proc/sys/net/ipv4/ip_forward
         ip address add {inside}
         ip address add {outside}
         ip route add default via {isp}
         ip route add blackhole {pool}",
        inside = address(plan::INSIDE_GATEWAY, 24, "inside"),
        outside = address(plan::OUTSIDE, 30, "outside"),
        isp = plan::ISP,
        pool = plan::POOL,
    );
    run(&["ip", "netns", "exec", name, "sh", "-c", &steps], limit, None)?.success()?;
    let rules = format!(
        "table ip nat {{
            chain pre {{
                type nat hook prerouting priority dstnat;
                ip daddr {forward} tcp dport {port} dnat to {sub1}
            }}
            chain post {{
                type nat hook postrouting priority srcnat;
                ip saddr {inside} ct status dnat snat to {forward}
                ip saddr {inside} oifname outside snat to {first}-{last} persistent
            }}
        }}",
        forward = plan::FORWARD_ADDRESS,
        port = plan::FORWARD_PORT,
        sub1 = plan::SUB1,
        inside = plan::INSIDE_NET,
        first = plan::POOL_FIRST,
        last = plan::POOL_LAST,
    );
    run(&["ip", "netns", "exec", name, "nft", "-f", "-"], limit, Some(rules.as_bytes()))?
        .success()
        .context("nftables refused the rules (Debian package `nftables`)")?;
    Ok(())
}

#[cfg(test)]
mod tests;
