//! Application gateways, judged by other people's clients and servers: vsftpd with curl, lftp and BSD ftp, tftpd, SIPp,
//! GStreamer, strongSwan.

use std::fs;

use carrack_lab::checks::{rtsp, sip};
use carrack_lab::plan::{self, Ns};
use carrack_lab::{Io, Lab, nat64};

use crate::{LIMIT, assert_conservation, counters, exec, lab, must, replace};

/// The lab's own line.
const ALL: &str = "gateways = [\"ftp\", \"tftp\", \"sip\", \"rtsp\", \"pptp\", \"ipsec\"]";

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
    let off = |config: String| replace(&strict(config), ALL, "gateways = []");
    let Some(lab) = lab("noftp", Io::AfXdp, off) else { return };
    let url = format!("ftp://{}/{}", plan::SERVER, plan::SMALL_FILE);
    let line = format!("curl -sS -m 5 -o /dev/null --ftp-port - --disable-eprt {url}");
    assert!(!exec(&lab, Ns::Sub1, &line).ok());
    lab.down().unwrap();
}

/// A control line of 10 MB passes, unread: the server gets every byte of it, and the next command is read again. What names
/// another host is left as it is, so nobody is connected to but who asks for it (RFC 2577 §3).
#[test]
fn a_control_line_of_ten_megabytes_passes_and_a_bounce_opens_nothing() {
    let Some(mut lab) = lab("long", Io::AfXdp, strict) else { return };
    lab.stop("ftp");
    let script = lab.dir().join("long.py").display().to_string();
    fs::write(&script, include_str!("long.py")).unwrap();
    lab.start(Ns::Inet, "long", &["python3", "-u", &script, "serve", plan::SERVER]).unwrap();
    let said = lab.exec(Ns::Sub1, &["python3", "-u", &script, "say", plan::SERVER], LIMIT * 4).unwrap();
    let said = said.success().unwrap().stdout;
    let heard: Vec<&str> = said.lines().map(|line| line.trim_start_matches("200 heard ")).collect();
    let pool = format!("PORT {}", plan::POOL_PREFIX.replace('.', ","));
    assert_eq!((heard.len(), heard[0], heard[2]), (3, "all of it", "PORT 203,0,113,99,19,137"), "{said}");
    assert!(heard[1].starts_with(&pool), "{said}");
    assert_eq!((count(&lab, "ftp", "opened"), count(&lab, "ftp", "foreign")), (1, 1));
    assert_conservation(&lab);
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
    let line = format!("gateways = [{names}]");
    move |config| replace(&strict(config), ALL, &line)
}

/// RFC 1350 §4: Debian's server answers from a port of its own.
#[test]
fn a_tftp_client_fetches_a_file() {
    let Some(mut lab) = lab("tftp", Io::AfXdp, with_gateways("\"tftp\"")) else { return };
    fetches_by_tftp(&mut lab, &["-4", plan::SERVER]);
    lab.down().unwrap();
}

/// The same from IPv6 to IPv4.
#[test]
fn an_ipv6_only_tftp_client_fetches_a_file() {
    let config = replace(&nat64::config(Io::AfXdp), ALL, "gateways = [\"tftp\"]");
    let Some(mut lab) = lab("tftp64", Io::AfXdp, |_| strict(config)) else { return };
    nat64::switch(&mut lab).unwrap();
    fetches_by_tftp(&mut lab, &["-6", &nat64::by_prefix(plan::SERVER)]);
    lab.down().unwrap();
}

/// A file of Debian's TFTP server, by its client with these arguments for the server.
fn fetches_by_tftp(lab: &mut Lab, server: &[&str]) {
    let (www, own) = (lab.dir().join("www").display().to_string(), format!("{}:69", plan::SERVER));
    lab.start(Ns::Inet, "tftpd", &["in.tftpd", "-L", "-4", "-u", "root", "-a", &own, "-s", &www]).unwrap();
    let target = lab.dir().join("fetched").display().to_string();
    let get = ["-m", "binary", "-c", "get", plan::SMALL_FILE, &target];
    let argv = [&["tftp"], server, &get].concat();
    let fetched = |lab: &Lab| {
        lab.exec(Ns::Sub1, &argv, LIMIT).unwrap();
        fs::read(&target).unwrap_or_default() == served(lab)
    };
    // The server may not listen yet.
    assert!((0..5).any(|_| fetched(lab)), "{}", lab.log("tftpd"));
    assert!(count(lab, "tftp", "opened") >= 1);
    assert_conservation(lab);
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

/// A caller that is called back at the address in its messages hears nothing without the gateway.
#[test]
fn speech_reaches_a_caller_by_the_gateway_alone() {
    let Some(mut lab) = lab("sipoff", Io::AfXdp, with_gateways("")) else { return };
    // The signalling itself finds its way back, SIPp answers to where a request came from.
    assert!(sip::call_between(&mut lab, plan::SUB1, plan::SERVER).unwrap().caller < 5);
    lab.down().unwrap();
    let Some(mut lab) = self::lab("sipon", Io::AfXdp, with_gateways("\"sip\"")) else { return };
    let heard = sip::call_between(&mut lab, plan::SUB1, plan::SERVER).unwrap();
    assert!(heard.caller >= 20 && heard.callee >= 20, "{heard:?}");
    assert_eq!(sessions_expected(&lab), 0, "the answered BYE ends what was expected (RFC 3261 §15.1.1)");
    assert_conservation(&lab);
    lab.down().unwrap();
}

/// Connections that gateways still expect.
fn sessions_expected(lab: &Lab) -> u64 {
    let done = lab.carrack(&["show", "nat", "memory", "--json"], LIMIT).unwrap().success().unwrap();
    let memory: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let text = memory.to_string();
    let row = find(&memory, "gateway-expectations").unwrap_or_else(|| panic!("{text}"));
    row["used"].as_u64().unwrap_or_else(|| panic!("{text}"))
}

/// The object named so, wherever it is.
fn find<'a>(value: &'a serde_json::Value, name: &str) -> Option<&'a serde_json::Value> {
    match value {
        serde_json::Value::Object(fields) if fields.values().any(|field| field == name) => Some(value),
        serde_json::Value::Object(fields) => fields.values().find_map(|field| find(field, name)),
        serde_json::Value::Array(rows) => rows.iter().find_map(|row| find(row, name)),
        _ => None,
    }
}

/// RFC 6052 §2.2: an IPv6-only caller of an IPv4 callee; each reads addresses of its own version.
#[test]
fn an_ipv6_only_caller_and_an_ipv4_callee_hear_each_other() {
    let config = replace(&nat64::config(Io::AfXdp), ALL, "gateways = [\"sip\"]");
    let Some(mut lab) = lab("sip64", Io::AfXdp, |_| strict(config)) else { return };
    nat64::switch(&mut lab).unwrap();
    let heard = sip::call_between(&mut lab, nat64::HOST, &nat64::by_prefix(plan::SERVER)).unwrap();
    assert!(heard.caller >= 20 && heard.callee >= 20, "{heard:?}");
    let seen = fs::read_to_string(lab.dir().join("callee.msg")).unwrap();
    let named: Vec<&str> = seen.lines().filter(|line| line.contains("2001:db8")).collect();
    assert!(named.iter().all(|line| line.starts_with("Call-ID:")), "{named:?}");
    assert_conservation(&lab);
    lab.down().unwrap();
}

/// GStreamer on both ends: RTP and RTCP arrive at the ports that the client named, and media within the connection pass.
#[test]
fn a_stream_by_rtsp_comes_over_udp_and_within_the_connection() {
    let Some(mut lab) = lab("rtsp", Io::AfXdp, with_gateways("\"rtsp\"")) else { return };
    rtsp::serve(&mut lab, Ns::Inet, plan::SERVER).unwrap();
    let capture = lab.dir().join("media.pcap").display().to_string();
    let filter = format!("udp and src host {}", plan::SERVER);
    lab.start(Ns::Sub1, "tcpdump", &["tcpdump", "-U", "-i", "eth0", "-w", &capture, &filter]).unwrap();
    // Its first report comes within some seconds (RFC 3550 §6.2).
    let bytes = rtsp::fetch_packets(&lab, Ns::Sub1, plan::SERVER, "udp", 400).unwrap();
    assert!(bytes >= 60_000, "{bytes} of 400 packets of 160 bytes");
    lab.stop("tcpdump");
    let argv = ["tshark", "-r", &capture, "-T", "fields", "-e", "udp.dstport"];
    let ports = lab.exec(Ns::Sub1, &argv, LIMIT).unwrap().success().unwrap().stdout;
    let ports: Vec<u16> = ports.lines().map(|line| line.parse().unwrap()).collect();
    let rtp = *ports.first().unwrap();
    let count = |port: u16| ports.iter().filter(|seen| **seen == port).count();
    assert!(
        rtp.is_multiple_of(2) && count(rtp) >= 380 && count(rtp + 1) >= 1,
        "RTP {}, RTCP {}",
        count(rtp),
        count(rtp + 1)
    );
    let (opened, rewritten) = (count_of(&lab, "opened"), count_of(&lab, "rewritten"));
    assert_eq!((opened, rewritten), (2, 2), "a request and its answer");
    assert!(rtsp::fetch(&lab, Ns::Sub1, plan::SERVER, "tcp").unwrap() >= 6_000);
    assert_eq!((count_of(&lab, "opened"), count_of(&lab, "rewritten")), (opened, rewritten));
    assert_conservation(&lab);
    lab.down().unwrap();
}

/// GStreamer and FFmpeg in an IPv6-only network, with the name of a server that has IPv4 alone.
#[test]
fn an_ipv6_only_client_watches_an_ipv4_server() {
    let config = replace(&nat64::config(Io::AfXdp), ALL, "gateways = [\"rtsp\"]");
    let Some(mut lab) = lab("rtsp64", Io::AfXdp, |_| strict(config)) else { return };
    nat64::switch(&mut lab).unwrap();
    rtsp::serve(&mut lab, Ns::Inet, plan::SERVER).unwrap();
    assert!(rtsp::fetch(&lab, Ns::Sub1, plan::SERVER_NAME, "udp").unwrap() >= 6_000);
    let opened = count_of(&lab, "opened");
    assert_eq!((opened, count_of(&lab, "rewritten")), (2, 3), "description, request, and its answer");
    let target = lab.dir().join("tone.ulaw").display().to_string();
    let ffmpeg =
        format!("ffmpeg -nostdin -v error -y -rtsp_transport @ -i rtsp://{}/tone", plan::SERVER_NAME);
    for transport in ["udp", "tcp"] {
        let line = ffmpeg.replace('@', transport);
        must(&lab, Ns::Sub1, &format!("{line} -t 1 -c copy -f mulaw {target}"));
        assert!(fs::metadata(&target).unwrap().len() >= 6_000, "{transport}");
        fs::remove_file(&target).unwrap();
    }
    assert_eq!(count_of(&lab, "opened"), opened + 2, "nothing for what is interleaved");
    assert_conservation(&lab);
    lab.down().unwrap();
}

fn count_of(lab: &Lab, note: &str) -> u64 {
    count(lab, "rtsp", note)
}

/// The server is behind the NAT, its port forwarded.
#[test]
fn a_server_of_streams_inside_is_watched_from_outside() {
    let forward = |config: String| {
        let rule = format!(
            "\n[[nat.forward]]\nproto = \"tcp\"\noutside = \"{}:554\"\ninside = \"{}:554\"\n",
            plan::FORWARD_ADDRESS,
            plan::SUB1
        );
        with_gateways("\"rtsp\"")(config) + &rule
    };
    let Some(mut lab) = lab("rtspin", Io::AfXdp, forward) else { return };
    rtsp::serve(&mut lab, Ns::Sub1, plan::SUB1).unwrap();
    assert!(rtsp::fetch(&lab, Ns::Inet, plan::FORWARD_ADDRESS, "udp").unwrap() >= 6_000);
    // The forwarded address need not be the host's own in the pool.
    assert!(count_of(&lab, "opened") >= 1);
    assert_conservation(&lab);
    lab.down().unwrap();
}

#[test]
fn without_the_gateway_a_stream_over_udp_does_not_come() {
    let Some(mut lab) = lab("nortsp", Io::AfXdp, with_gateways("")) else { return };
    rtsp::serve(&mut lab, Ns::Inet, plan::SERVER).unwrap();
    assert!(rtsp::fetch(&lab, Ns::Sub1, plan::SERVER, "udp").is_err());
    lab.down().unwrap();
}

/// All subscribers behind one address.
fn one_address(config: String) -> String {
    let pool = format!("addresses = [\"{}\"]", plan::POOL);
    replace(&with_gateways("\"ipsec\"")(config), &pool, &format!("addresses = [\"{}\"]", plan::POOL_FIRST))
}

/// RFC 4303: two hosts behind one address begin tunnels to one far end at the same time, are answered each in its own, and go
/// on by new keys.
#[test]
fn tunnels_of_two_hosts_behind_one_address_are_told_apart() {
    let Some(mut lab) = lab("esp", Io::AfXdp, one_address) else { return };
    let (dir, script) = (lab.dir().display().to_string(), lab.dir().join("esp.py").display().to_string());
    fs::write(&script, include_str!("../../../lab/src/checks/esp.py")).unwrap();
    lab.start(Ns::Inet, "esp-server", &["python3", "-u", &script, "serve", plan::SERVER]).unwrap();
    let argv = ["python3", "-u", &script, "call", plan::SERVER, "0", &dir, "first", "second"];
    lab.start(Ns::Sub1, "esp", &argv).unwrap();
    let second =
        must(&lab, Ns::Sub2, &format!("python3 -u {script} call {} 0 {dir} second first", plan::SERVER));
    lab.wait("esp", LIMIT);
    assert!(lab.log("esp").contains("heard FIRST") && second.contains("heard SECOND"), "{}", lab.log("esp"));
    let sources = format!("of {} begins", plan::POOL_FIRST);
    assert_eq!(lab.log("esp-server").matches(&sources).count(), 4, "{}", lab.log("esp-server"));
    assert_eq!(count(&lab, "ipsec", "opened"), 4);
    assert_conservation(&lab);
    lab.down().unwrap();
}

/// RFC 4303, by somebody else's ESP (Scapy's): what two hosts behind one address encrypt for one far end is decrypted there,
/// and its answers by the host they are for alone.
#[test]
fn encrypted_tunnels_of_two_hosts_behind_one_address_carry_both_ways() {
    let Some(mut lab) = lab("sealed", Io::AfXdp, one_address) else { return };
    let script = lab.dir().join("sealed.py").display().to_string();
    fs::write(&script, include_str!("sealed.py")).unwrap();
    lab.start(Ns::Inet, "sealed-server", &["/usr/bin/python3", "-u", &script, "serve"]).unwrap();
    lab.start(Ns::Sub1, "sealed", &["/usr/bin/python3", "-u", &script, "call", plan::SERVER, "0"]).unwrap();
    let argv = ["/usr/bin/python3", "-u", &script, "call", plan::SERVER, "1"];
    let second = lab.exec(Ns::Sub2, &argv, LIMIT * 2).unwrap().success().unwrap().stdout;
    lab.wait("sealed", LIMIT * 2);
    let first = lab.log("sealed");
    let server = lab.log("sealed-server");
    assert!(first.contains("host 0: 20 of 20") && second.contains("host 1: 20 of 20"), "{first}\n{server}");
    for host in 0..2 {
        let seen = format!("host {host} from {}", plan::POOL_FIRST);
        assert!(server.contains(&seen), "{server}");
    }
    assert_eq!(count(&lab, "ipsec", "opened"), 2);
    assert_conservation(&lab);
    lab.stop("sealed-server");
    lab.down().unwrap();
}

/// RFC 7296 §2.23, RFC 3948: two of strongSwan's clients behind one address, to one of its servers, by ESP in UDP. What they
/// say within their tunnels arrives, with the gateway switched on.
#[test]
fn two_clients_of_strongswan_have_tunnels_to_one_server() {
    let Some(mut lab) = lab("swan", Io::AfXdp, one_address) else { return };
    let dir = lab.dir().display().to_string();
    let script = format!("{dir}/swan.sh");
    fs::write(&script, include_str!("swan.sh")).unwrap();
    for (ns, role) in [(Ns::Inet, "server"), (Ns::Sub1, "first"), (Ns::Sub2, "second")] {
        lab.start(ns, role, &["unshare", "-m", "sh", &script, &dir, role, plan::SERVER]).unwrap();
    }
    for (ns, role) in [(Ns::Sub1, "first"), (Ns::Sub2, "second")] {
        let uri = format!("unix://{dir}/{role}.vici");
        let initiate = ["swanctl", "--initiate", "--child", "net", "--timeout", "5", "--uri", &uri];
        // The daemons take a while to begin.
        let heard = (0..20).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(500));
            let _ = lab.exec(ns, &initiate, LIMIT);
            exec(&lab, ns, "ping -n -c 3 -i 0.2 -W 2 10.99.0.1").ok()
        });
        assert!(heard, "{}\n{}", lab.log(role), lab.log("server"));
    }
    let established = format!("[server]...{}", plan::POOL_FIRST);
    assert!(lab.log("server").matches(&established).count() >= 2, "{}", lab.log("server"));
    assert!(count(&lab, "ipsec", "connections") >= 2);
    assert_conservation(&lab);
    for role in ["first", "second", "server"] {
        lab.stop(role);
    }
    lab.down().unwrap();
}
