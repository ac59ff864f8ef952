//! What a lab needs from the machine, found out before anything is created.

use std::env;
use std::path::PathBuf;

/// Program and the Debian package it comes in.
const PROGRAMS: &[(&str, &str)] = &[
    ("ip", "iproute2"),
    ("ss", "iproute2"),
    ("ethtool", "ethtool"),
    ("ping", "iputils-ping"),
    ("traceroute", "traceroute"),
    ("curl", "curl"),
    ("dig", "bind9-dnsutils"),
    ("dnsmasq", "dnsmasq-base"),
    ("unbound", "unbound"),
    ("socat", "socat"),
    ("iperf3", "iperf3"),
    ("vsftpd", "vsftpd"),
    ("python3", "python3"),
    ("sipp", "sip-tester"),
    ("gst-launch-1.0", "gstreamer1.0-tools"),
    ("tshark", "tshark"),
    ("natpmpc", "natpmpc"),
    ("cmp", "diffutils"),
    ("sha256sum", "coreutils"),
];

/// Why no lab can be brought up on this machine, in a sentence that says what to do; `None` when one can.
pub fn missing() -> Option<String> {
    missing_of(PROGRAMS)
}

/// The same for other programs, each with its Debian package.
pub(crate) fn missing_of(wanted: &[(&'static str, &'static str)]) -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("network namespaces need root: run the same command with sudo, or as root".to_owned());
    }
    let mut programs = Vec::new();
    let mut packages: Vec<&str> = Vec::new();
    for (program, package) in wanted {
        if find(program).is_none() {
            programs.push(*program);
            if !packages.contains(package) {
                packages.push(package);
            }
        }
    }
    if programs.is_empty() {
        return None;
    }
    Some(format!(
        "missing programs: {}. On Debian: apt-get install {}",
        programs.join(", "),
        packages.join(" ")
    ))
}

/// For tests that need a lab: whether one can be brought up here. Says why not; with `CARRACK_NETWORK_TESTS=require` in
/// the environment that is a failure, so that continuous integration never passes without these tests.
///
/// # Panics
/// When a lab is required and cannot be brought up.
pub fn can_run() -> bool {
    let Some(why) = missing() else { return true };
    let required = env::var("CARRACK_NETWORK_TESTS").is_ok_and(|value| value == "require");
    assert!(!required, "network tests are required here, but {why}");
    eprintln!("not run: {why}");
    false
}

/// Where a program is: the system's own directories first, so that wrappers in a user's PATH do not slow it down.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    ["/usr/sbin", "/usr/bin", "/sbin", "/bin"]
        .into_iter()
        .map(PathBuf::from)
        .chain(env::split_paths(&path))
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}
