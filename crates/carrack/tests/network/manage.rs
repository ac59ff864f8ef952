//! Management of a running daemon: over TCP, in batches, and what a reload may not change.

use std::fs;

use carrack_lab::plan::{self, Ns};
use carrack_lab::{Finished, Io, Lab};
use serde_json::{Value, json};

use crate::{LIMIT, assert_conservation, counters, lab, must, pings, plain, replace};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const BASE: &str = "https://127.0.0.1:8443";

#[test]
fn the_api_over_tcp_answers_only_with_tls_and_the_token_and_deletes_by_batch() {
    let Some(mut lab) = plain("tcpapi") else { return };
    let dir = lab.dir().display().to_string();
    let certificate = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=carrack \
         -addext subjectAltName=IP:127.0.0.1 -keyout {dir}/key.pem -out {dir}/cert.pem"
    );
    must(&lab, Ns::Carrack, &certificate);
    fs::write(lab.dir().join("token"), TOKEN).unwrap();
    must(&lab, Ns::Carrack, &format!("chmod 600 {dir}/token"));
    let tcp = "\n[api.tcp]\nlisten = \"127.0.0.1:8443\"\ntoken_file = \"@LAB@/token\"\n\
               tls_cert = \"@LAB@/cert.pem\"\ntls_key = \"@LAB@/key.pem\"\n\n[[route]]";
    let config = replace(&carrack_lab::config(Io::AfXdp), "\n[[route]]", tcp);
    lab.stop("router");
    lab.set_config(&config).unwrap();
    lab.start_router().unwrap();

    for token in [None, Some("wrong")] {
        let refused = curl(&lab, token, "/v1/nat/sessions", &[]);
        assert!(refused.stdout.ends_with("401"), "{}", refused.describe());
        assert!(!refused.stdout.contains("100.64."), "{}", refused.describe());
    }
    let plain = ["curl", "-sS", "--max-time", "5", "http://127.0.0.1:8443/v1/health"];
    assert!(!lab.exec(Ns::Carrack, &plain, LIMIT).unwrap().ok(), "without TLS");

    assert!(pings(&lab, Ns::Sub1, plan::SERVER));
    let rows = sessions(&lab);
    let icmp: Vec<&Value> = rows.iter().filter(|row| row["protocol"] == "icmp").collect();
    assert!(!icmp.is_empty(), "{rows:?}");
    let keys = ["instance", "protocol", "inside", "inside_port", "remote", "remote_port"];
    let named = |row: &&Value| keys.iter().map(|key| ((*key).to_owned(), row[*key].clone())).collect();
    let batch = json!({ "sessions": icmp.iter().map(named).collect::<Vec<Value>>() }).to_string();
    let count = icmp.len();
    for expected in [count, 0] {
        let done = curl(&lab, Some(TOKEN), "/v1/nat/sessions/delete", &["-d", &batch]);
        assert_eq!(done.stdout, format!("{{\"deleted\":{expected}}}200"), "{}", done.describe());
    }
    assert!(!sessions(&lab).iter().any(|row| row["protocol"] == "icmp"));
    let (created, deleted) = (engine_count(&lab, "sessions-created"), engine_count(&lab, "sessions-deleted"));
    assert!(deleted >= count as u64, "{deleted} of {count}");
    assert!(created >= deleted, "{created} created, {deleted} deleted");
    assert!(pings(&lab, Ns::Sub1, plan::SERVER), "a deleted session comes back with the next packet");
    assert_conservation(&lab);
}

/// Asks in the daemon's namespace; the status follows the body.
fn curl(lab: &Lab, token: Option<&str>, path: &str, more: &[&str]) -> Finished {
    let certificate = lab.dir().join("cert.pem").display().to_string();
    let (url, header) =
        (format!("{BASE}{path}"), format!("Authorization: Bearer {}", token.unwrap_or_default()));
    let mut words = vec!["curl", "-sS", "--max-time", "5", "-w", "%{http_code}", "--cacert", &certificate];
    if token.is_some() {
        words.extend(["-H", &header]);
    }
    words.extend(more);
    words.push(&url);
    lab.exec(Ns::Carrack, &words, LIMIT).unwrap().success().unwrap()
}

/// One of the engine's own counters, 0 when it is not told.
fn engine_count(lab: &Lab, name: &str) -> u64 {
    let all = counters(lab);
    let rows = all["engine"].as_array().cloned().unwrap_or_default();
    rows.iter().find(|row| row["name"] == name).and_then(|row| row["count"].as_u64()).unwrap_or(0)
}

fn sessions(lab: &Lab) -> Vec<Value> {
    let answer = curl(lab, Some(TOKEN), "/v1/nat/sessions", &[]).stdout;
    serde_json::from_str(answer.trim_end_matches("200")).unwrap()
}

#[test]
fn a_reload_that_needs_a_restart_is_refused_by_name_and_changes_nothing() {
    let Some(mut lab) = plain("restart") else { return };
    let config = carrack_lab::config(Io::AfXdp);
    let both = replace(&config, "sessions = 65536", "sessions = 131072");
    let both = replace(&both, "hairpinning = true", "hairpinning = false");
    lab.set_config(&both).unwrap();
    let done = lab.carrack(&["reload"], LIMIT).unwrap();
    assert_eq!(done.code, Some(1), "{}", done.describe());
    let told = format!("{}{}", done.stdout, done.stderr);
    assert!(told.contains("sessions") && told.contains("restart") && told.contains("refused"), "{told}");
    let url = format!("http://{}:{}/", plan::FORWARD_ADDRESS, plan::FORWARD_PORT);
    let page = must(&lab, Ns::Sub2, &format!("curl --silent --max-time 5 {url}"));
    assert_eq!(page, plan::HOME_PAGE, "what could have been applied in place was not, either");
    lab.stop("router");
    lab.start_router().unwrap();
    let page = lab.exec(Ns::Sub2, &["curl", "--silent", "--max-time", "1", &url], LIMIT).unwrap();
    assert!(!page.ok(), "after the restart it holds");
}

#[test]
fn tables_and_buffers_in_huge_pages_work_and_say_so() {
    if !carrack_lab::can_run() {
        return;
    }
    let _pages = carrack_lab::HugePages::reserve(256).unwrap();
    let edit = |config: String| replace(&config, "huge_pages = \"off\"", "huge_pages = \"2M\"");
    let Some(lab) = lab("huge", Io::AfXdp, edit) else { return };
    let told = lab.carrack(&["show", "nat", "memory", "--json"], LIMIT).unwrap().success().unwrap().stdout;
    let rows: Vec<Value> = serde_json::from_str(&told).unwrap();
    // What gateways keep is for few packets.
    let of_gateways = |row: &&Value| row["table"].as_str().is_some_and(|table| table.starts_with("gateway-"));
    let mut of_packets = rows.iter().filter(|row| !of_gateways(row)).peekable();
    assert!(of_packets.peek().is_some() && of_packets.all(|row| row["pages"] == "2M"), "{told}");
    assert!(lab.log("router").contains("MiB of huge pages"), "{}", lab.log("router"));
    let page = must(&lab, Ns::Sub1, &format!("curl --silent --max-time 5 http://{}/", plan::SERVER));
    assert!(page.contains("Internet"), "{page}");
    assert_conservation(&lab);
}
