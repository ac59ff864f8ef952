//! Application gateways, judged by other people's clients and servers: vsftpd with curl, lftp and BSD ftp.

use std::fs;

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, Lab, nat64};

use crate::{LIMIT, assert_conservation, counters, exec, lab, must, replace};

/// Only who is asked may come in: what the gateways allow for is all that there is.
fn strict(config: String) -> String {
    replace(
        &config,
        "pooling = \"paired\"",
        "pooling = \"paired\"\nfiltering = \"address-and-port-dependent\"",
    )
}

/// A figure of a gateway.
fn count(lab: &Lab, protocol: &str, note: &str) -> u64 {
    let (all, name) = (counters(lab), format!("gateway-{protocol}-{note}"));
    let row = all["engine"].as_array().unwrap().iter().find(|row| row["name"] == name.as_str());
    row.map_or(0, |row| row["count"].as_u64().unwrap())
}

fn served(lab: &Lab) -> Vec<u8> {
    fs::read(lab.dir().join("www").join(plan::SMALL_FILE)).unwrap()
}

/// Runs a client that writes `name` into the lab's directory; the file must be the served one.
fn fetches(lab: &Lab, line: &str) {
    let target = lab.dir().join("fetched");
    let line = line.replace("@TARGET@", &target.display().to_string());
    must(lab, Ns::Sub1, &line);
    assert!(fs::read(&target).unwrap() == served(lab), "{line}");
    fs::remove_file(&target).unwrap();
}

#[test]
fn ftp_clients_fetch_files_actively_and_passively() {
    let Some(lab) = lab("ftp", Io::AfXdp, strict) else { return };
    let url = format!("ftp://{}/{}", plan::SERVER, plan::SMALL_FILE);
    for options in ["--ftp-port - --disable-eprt", "--ftp-port - --eprt", "--disable-epsv", "--epsv"] {
        fetches(&lab, &format!("curl -sS -m 8 -o @TARGET@ {options} {url}"));
    }
    assert_eq!((count(&lab, "ftp", "opened"), count(&lab, "ftp", "rewritten")), (2, 2));
    for passive in ["off", "on"] {
        let settings = format!("set ftp:passive-mode {passive}; set net:max-retries 1; set net:timeout 5");
        let get = format!("get -c {} -o {}", plan::SMALL_FILE, lab.dir().join("fetched").display());
        let script = format!("{settings}; open {}; {get}; bye", plan::SERVER);
        lab.exec(Ns::Sub1, &["lftp", "-c", &script], LIMIT).unwrap().success().unwrap();
        assert!(fs::read(lab.dir().join("fetched")).unwrap() == served(&lab), "lftp, passive {passive}");
        fs::remove_file(lab.dir().join("fetched")).unwrap();
    }
    for passive in ["passive\n", ""] {
        let target = lab.dir().join("fetched").display().to_string();
        let script = format!("user anonymous x@\nbinary\n{passive}get {} {target}\nquit\n", plan::SMALL_FILE);
        let argv = ["ftp", "-n", "-4", plan::SERVER];
        let done = lab.exec_with_input(Ns::Sub1, &argv, script.as_bytes(), LIMIT).unwrap();
        let fetched = fs::read(&target).unwrap_or_default();
        assert!(fetched == served(&lab), "BSD ftp: {}\n{}", done.stdout, done.stderr);
        fs::remove_file(&target).unwrap();
    }
    assert!(count(&lab, "ftp", "opened") >= 4, "lftp and ftp were active, too");
    assert_eq!(count(&lab, "ftp", "foreign"), 0);
    assert_conservation(&lab);
    lab.down().unwrap();
}

#[test]
fn without_the_gateway_an_active_client_fetches_nothing() {
    let off = |config: String| {
        replace(&strict(config), "pooling = \"paired\"", "pooling = \"paired\"\ngateways = []")
    };
    let Some(lab) = lab("noftp", Io::AfXdp, off) else { return };
    let url = format!("ftp://{}/{}", plan::SERVER, plan::SMALL_FILE);
    let line = format!("curl -sS -m 5 -o /dev/null --ftp-port - --disable-eprt {url}");
    assert!(!exec(&lab, Ns::Sub1, &line).ok());
    lab.down().unwrap();
}

/// RFC 6384: an IPv6-only client of an IPv4 server.
#[test]
fn an_ipv6_only_client_fetches_files_actively_and_passively() {
    let Some(mut lab) = lab("ftp64", Io::AfXdp, |_| strict(nat64::config(Io::AfXdp))) else { return };
    nat64::switch(&mut lab).unwrap();
    let url = format!("ftp://{}/{}", plan::SERVER_NAME, plan::SMALL_FILE);
    for options in ["--epsv", "--ftp-port -"] {
        fetches(&lab, &format!("curl -sS -m 8 -o @TARGET@ {options} {url}"));
    }
    let get = format!("get {} -o {}", plan::SMALL_FILE, lab.dir().join("fetched").display());
    let script = format!("set net:max-retries 1; open {}; {get}; bye", plan::SERVER_NAME);
    lab.exec(Ns::Sub1, &["lftp", "-c", &script], LIMIT).unwrap().success().unwrap();
    assert!(fs::read(lab.dir().join("fetched")).unwrap() == served(&lab));
    assert!(count(&lab, "ftp", "opened") >= 1 && count(&lab, "ftp", "rewritten") >= 5);
    assert_conservation(&lab);
    lab.down().unwrap();
}

/// The lab's config with these gateways, and only who is asked may come in.
fn with_gateways(names: &str) -> impl FnOnce(String) -> String {
    let line = format!("pooling = \"paired\"\ngateways = [{names}]");
    move |config| replace(&strict(config), "pooling = \"paired\"", &line)
}

/// RFC 1350 §4: Debian's server answers from a port of its own.
#[test]
fn a_tftp_client_fetches_a_file() {
    let Some(mut lab) = lab("tftp", Io::AfXdp, with_gateways("\"tftp\"")) else { return };
    let (www, server) = (lab.dir().join("www").display().to_string(), format!("{}:69", plan::SERVER));
    lab.start(Ns::Inet, "tftpd", &["in.tftpd", "-L", "-4", "-u", "root", "-a", &server, "-s", &www]).unwrap();
    let target = lab.dir().join("fetched").display().to_string();
    let argv = ["tftp", "-4", "-m", "binary", plan::SERVER, "-c", "get", plan::SMALL_FILE, &target];
    let fetched = |lab: &Lab| {
        lab.exec(Ns::Sub1, &argv, LIMIT).unwrap();
        fs::read(&target).unwrap_or_default() == served(lab)
    };
    // The server may not listen yet.
    assert!((0..5).any(|_| fetched(&lab)), "{}", lab.log("tftpd"));
    assert!(count(&lab, "tftp", "opened") >= 1);
    assert_conservation(&lab);
    lab.down().unwrap();
}

/// SIPp calls SIPp: whoever answers sees outside addresses alone, and the call is set up and taken down.
#[test]
fn a_sip_call_is_made_and_ended() {
    let Some(mut lab) = lab("sip", Io::AfXdp, with_gateways("\"sip\"")) else { return };
    let trace = lab.dir().join("uas.msg").display().to_string();
    let uas = [
        "sipp",
        "-sn",
        "uas",
        "-i",
        plan::SERVER,
        "-p",
        "5060",
        "-mi",
        plan::SERVER,
        "-rtp_echo",
        "-nostdin",
        "-trace_msg",
        "-message_file",
        &trace,
    ];
    lab.start(Ns::Inet, "uas", &uas).unwrap();
    let target = format!("{}:5060", plan::SERVER);
    let uac = [
        "sipp",
        "-sn",
        "uac",
        "-i",
        plan::SUB1,
        "-p",
        "5060",
        "-mi",
        plan::SUB1,
        "-m",
        "3",
        "-r",
        "3",
        "-d",
        "200",
        "-timeout",
        "12s",
        "-nostdin",
        "-timeout_error",
        &target,
    ];
    let done = lab.exec(Ns::Sub1, &uac, LIMIT).unwrap();
    assert!(done.ok(), "{}\n{}", done.stdout, done.stderr);
    let seen = fs::read_to_string(&trace).unwrap();
    assert!(seen.contains(&format!("IN IP4 {}", plan::POOL_PREFIX)), "{seen}");
    let named: Vec<&str> = seen.lines().filter(|line| line.contains(plan::SUB1)).collect();
    // An identifier, not an address (RFC 3261 §8.1.1.4).
    assert!(named.iter().all(|line| line.starts_with("Call-ID:")), "{named:?}");
    assert!(count(&lab, "sip", "rewritten") >= 6 && count(&lab, "sip", "opened") >= 3);
    assert_conservation(&lab);
    lab.down().unwrap();
}
