//! What NAT behaviour discovery (RFC 5780) finds: Debian's `coturn` with two addresses and its client.

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, Lab};

use crate::{exec, lab, replace};

/// Programs of these tests that the demonstration does not need, and their Debian packages.
const JUDGES: [(&str, &str); 2] =
    [("/usr/bin/turnserver", "coturn"), ("/usr/lib/python3/dist-packages/aioice", "python3-aioice")];

/// Are they there? Where they are required, that is asserted.
fn has_judges() -> bool {
    let missing: Vec<_> = JUDGES
        .iter()
        .filter(|(file, _)| !std::path::Path::new(file).exists())
        .map(|(_, package)| *package)
        .collect();
    let required = std::env::var("CARRACK_NETWORK_TESTS").is_ok_and(|value| value == "require");
    assert!(missing.is_empty() || !required, "apt-get install {}", missing.join(" "));
    if !missing.is_empty() {
        eprintln!("not run: missing programs; on Debian: apt-get install {}", missing.join(" "));
    }
    missing.is_empty()
}

/// A lab whose instance filters that way, with a STUN server of two addresses; `None` where it cannot run.
fn with_stun(name: &str, filtering: &str) -> Option<Lab> {
    if !has_judges() {
        return None;
    }
    let edit = |config: String| {
        replace(&config, "hairpinning = true", &format!("hairpinning = true\nfiltering = \"{filtering}\""))
    };
    let mut lab = lab(name, Io::AfXdp, edit)?;
    let argv = [
        "turnserver",
        "-n",
        "-S",
        "-L",
        plan::SERVER,
        "-L",
        plan::DNS,
        "--no-tls",
        "--no-dtls",
        "--no-cli",
        "--log-file=stdout",
        "--simple-log",
    ];
    lab.start(Ns::Inet, "stun", &argv).unwrap();
    let up = || exec(&lab, Ns::Inet, "ss -Hlun").stdout.contains(":3479");
    for _ in 0..100 {
        if up() {
            return Some(lab);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("turnserver did not come up: {}", lab.log("stun"));
}

fn discover(lab: &Lab, what: &str) -> String {
    let done = exec(lab, Ns::Sub1, &format!("turnutils_natdiscovery {what} {}", plan::SERVER));
    format!("{}{}", done.stdout, done.stderr)
}

/// RFC 4787 REQ-1 and RFC 4787 REQ-8, found out by somebody else's program.
#[test]
fn discovery_finds_endpoint_independent_mapping_and_filtering() {
    let Some(lab) = with_stun("nattype", "endpoint-independent") else { return };
    let mapping = discover(&lab, "-m");
    assert!(mapping.contains("NAT with Endpoint Independent Mapping"), "{mapping}");
    let filtering = discover(&lab, "-f");
    assert!(filtering.contains("NAT with Endpoint Independent Filtering"), "{filtering}");
    let hairpin = discover(&lab, "-H");
    assert!(hairpin.contains("successful hairpinning"), "{hairpin}");
}

#[test]
fn discovery_finds_address_dependent_filtering() {
    let Some(lab) = with_stun("nattypead", "address-dependent") else { return };
    let mapping = discover(&lab, "-m");
    assert!(mapping.contains("NAT with Endpoint Independent Mapping"), "{mapping}");
    let filtering = discover(&lab, "-f");
    assert!(filtering.contains("NAT with Address Dependent Filtering"), "{filtering}");
}

#[test]
fn discovery_finds_address_and_port_dependent_filtering() {
    let Some(lab) = with_stun("nattypeapd", "address-and-port-dependent") else { return };
    let mapping = discover(&lab, "-m");
    assert!(mapping.contains("NAT with Endpoint Independent Mapping"), "{mapping}");
    let filtering = discover(&lab, "-f");
    assert!(filtering.contains("NAT with Address and Port Dependent Filtering"), "{filtering}");
}

/// Two ICE agents (Debian's `python3-aioice`) in two namespaces; what each heard, and where its peer is.
fn ice(lab: &mut Lab, other: Ns, kinds: &str) -> (String, String) {
    let script = lab.dir().join("ice.py").display().to_string();
    std::fs::write(&script, include_str!("ice.py")).unwrap();
    for role in ["a", "b"] {
        let _ = std::fs::remove_file(lab.dir().join(format!("ice-{role}")));
    }
    let dir = lab.dir().display().to_string();
    lab.start(other, "ice", &["/usr/bin/python3", &script, "b", plan::SERVER, &dir, kinds]).unwrap();
    let argv = ["/usr/bin/python3", &script, "a", plan::SERVER, &dir, kinds];
    let done = lab.exec(Ns::Sub1, &argv, crate::LIMIT * 2).unwrap();
    lab.wait("ice", crate::LIMIT);
    let theirs = lab.log("ice");
    lab.stop("ice");
    (format!("{}{}", done.stdout, done.stderr), theirs)
}

/// RFC 4787 REQ-9 and simultaneous open: whoever is behind this NAT reaches whoever else is, with no relay, at the
/// outside address where only that is known, whatever the filtering.
#[test]
fn ice_agents_connect_directly() {
    for (name, filtering) in [("iceei", "endpoint-independent"), ("iceapd", "address-and-port-dependent")] {
        let Some(mut lab) = with_stun(name, filtering) else { return };
        let (a, b) = ice(&mut lab, Ns::Sub2, "host,srflx");
        assert!(a.starts_with("hello from b at ") && b.starts_with("hello from a at "), "{a}\n{b}");
        let (a, b) = ice(&mut lab, Ns::Sub2, "srflx");
        let outside = format!("at {}", plan::POOL_PREFIX);
        assert!(a.contains("hello from b") && a.contains(&outside), "{filtering}, by hairpin: {a}\n{b}");
        assert!(b.contains("hello from a") && b.contains(&outside), "{filtering}, by hairpin: {a}\n{b}");
        let (a, b) = ice(&mut lab, Ns::Inet, "host,srflx");
        assert!(a.contains("hello from b") && b.contains("hello from a"), "with the Internet: {a}\n{b}");
        crate::assert_conservation(&lab);
    }
}
