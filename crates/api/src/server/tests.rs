mod lists;
mod sockets;
mod tcp;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use super::{Server, ServerOptions, openapi_json};
use crate::client::{Client, ClientError};
use crate::fake::Fake;
use crate::types::{BatchDelete, Counters, Deleted, Interface, SessionKey};
use crate::{NoQuery, Params, RowFilter};

/// A server on a socket in a directory of its own.
struct Served {
    fake: Arc<Fake>,
    socket: PathBuf,
    _server: Server,
    directory: TempDir,
}

fn serve(fake: Fake) -> Served {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("api.sock");
    let fake = Arc::new(fake);
    let options = ServerOptions { socket: socket.clone(), tcp: None };
    let server = Server::start(fake.clone(), &options).unwrap();
    Served { fake, socket, _server: server, directory }
}

/// One request, as bytes on the wire; status and the whole answer.
fn raw(served: &Served, request: &str) -> (u16, String) {
    let mut stream = UnixStream::connect(&served.socket).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    (status, answer)
}

fn ask(served: &Served, method: &str, target: &str) -> (u16, String) {
    raw(served, &format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"))
}

fn client(served: &Served) -> Client {
    Client::new(&served.socket).unwrap()
}

/// Paths with their methods, as the OpenAPI document lists them.
fn documented() -> Vec<(String, String)> {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = |item: &Value| item.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    paths.iter().flat_map(|(path, item)| methods(item).into_iter().map(|m| (m, path.clone()))).collect()
}

#[test]
fn every_documented_path_answers_and_every_promised_one_is_documented() {
    let served = serve(Fake::default());
    let documented = documented();
    for path in [
        "/v1/interfaces",
        "/v1/neighbours",
        "/v1/routes",
        "/v1/nat/instances",
        "/v1/siit",
        "/v1/nat/pools",
        "/v1/nat/subscribers",
        "/v1/nat/mappings",
        "/v1/nat/sessions",
        "/v1/nat/sessions/delete",
        "/v1/nat/memory",
        "/v1/pcp/mappings",
        "/v1/nat/deterministic",
        "/v1/counters",
        "/v1/workers",
        "/v1/threads",
        "/v1/graph",
        "/v1/events",
        "/v1/capture",
        "/v1/trace",
        "/v1/config",
        "/v1/reload",
        "/v1/version",
        "/v1/health",
        "/metrics",
        "/openapi.json",
    ] {
        assert!(documented.iter().any(|(_, known)| known == path), "{path}");
    }
    for (method, path) in documented {
        let query = match (method.as_str(), path.as_str()) {
            ("delete", _) => "?all=true",
            (_, "/v1/nat/deterministic") => "?inside=100.64.0.5",
            _ => "",
        };
        let (status, answer) = ask(&served, &method.to_uppercase(), &format!("{path}{query}"));
        // A batch without a body is refused, and the refusal is its own.
        let expected = if path == "/v1/nat/sessions/delete" { 400 } else { 200 };
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
}

#[test]
fn every_path_refuses_unknown_parameters() {
    let served = serve(Fake::default());
    for (method, path) in documented() {
        let (status, answer) = ask(&served, &method.to_uppercase(), &format!("{path}?nonsense=1"));
        assert_eq!(status, 400, "{method} {path}: {answer}");
        assert!(answer.contains("unknown parameter `nonsense`"), "{answer}");
    }
}

#[test]
fn the_committed_openapi_document_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == openapi_json(),
        "docs/openapi.json is stale; run: cargo run -p carrack-api --example openapi > docs/openapi.json"
    );
}

#[test]
fn mistakes_are_json_with_a_hint() {
    let served = serve(Fake::default());
    for (method, target, status, hint) in [
        ("GET", "/v1/nat/sesions", 404, "did you mean /v1/nat/sessions?"),
        ("GET", "/completely/else", 404, "/openapi.json lists every path"),
        ("PUT", "/v1/counters", 405, "/openapi.json lists the methods"),
        ("GET", "/v1/nat/sessions?insid=10.0.0.1", 400, "did you mean `inside`?"),
        ("GET", "/v1/nat/sessions?inside=10.0.0.300", 400, "write it like 192.0.2.0/24"),
        ("GET", "/v1/nat/sessions?instance=cgn2", 404, "did you mean `cgn1`?"),
        ("DELETE", "/v1/nat/sessions", 400, "all=true"),
        ("DELETE", "/v1/nat/sessions?all=false", 400, "all=true"),
        ("DELETE", "/v1/nat/sessions?limit=5", 400, "known here"),
        ("GET", "/v1/nat/deterministic", 400, "give `inside`"),
        ("GET", "/v1/nat/deterministic?outside=192.0.2.1", 400, "give `inside`"),
        ("GET", "/v1/trace?interface=insde", 404, "did you mean `inside`?"),
    ] {
        let (got, answer) = ask(&served, method, target);
        assert_eq!(got, status, "{method} {target}: {answer}");
        let body = answer.split("\r\n\r\n").nth(1).unwrap();
        let body: Value = serde_json::from_str(body).unwrap();
        assert!(!body["error"].as_str().unwrap().is_empty());
        assert!(body["hint"].as_str().unwrap().contains(hint), "{method} {target}: {body}");
    }
}

#[test]
fn nonsense_on_the_wire_is_refused_and_the_server_lives_on() {
    let served = serve(Fake::default());
    for nonsense in ["\r\n\r\n", "GET\r\n\r\n", "\u{1}\u{2}\u{3}\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        let mut stream = UnixStream::connect(&served.socket).unwrap();
        stream.write_all(nonsense.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{nonsense:?}");
    }
    assert_eq!(ask(&served, "GET", "/v1/health").0, 200);
}

#[test]
fn counters_carry_the_whole_table_of_reasons_and_the_equation() {
    let served = serve(Fake::default());
    let all: Counters = client(&served).get("/v1/counters", &NoQuery {}).unwrap();
    assert_eq!(all.reasons.len(), carrack_base::REASONS.len());
    assert_eq!(all.balance, 0);
    let into = all.rx + all.handed_in + all.originated;
    let out = all.forwarded + all.punted + all.consumed + all.handed_out + all.held + all.dropped;
    assert_eq!(into, out);
    assert_eq!(all.dropped, all.reasons.iter().map(|r| r.count).sum::<u64>());
    let query = crate::CounterQuery { nonzero: Some(true) };
    let some: Counters = client(&served).get("/v1/counters", &query).unwrap();
    let names: Vec<&str> = some.reasons.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["nat-filtered", "nat-pool-exhausted"]);
    assert_eq!(some.engine.len(), 1);
}

#[test]
fn deletions_reach_the_backend_as_they_were_asked() {
    let served = serve(Fake::default());
    let client = client(&served);
    let filter = RowFilter { instance: Some("cgn1".into()), remote_port: Some(53), ..RowFilter::default() };
    let Deleted { deleted } = client.delete("/v1/nat/sessions", &filter.delete(false)).unwrap();
    assert_eq!(deleted, 1_234);
    let key = SessionKey {
        instance: "cgn1".into(),
        protocol: "udp".into(),
        inside: [100, 64, 0, 5].into(),
        inside_port: 4_000,
        remote: [203, 0, 113, 10].into(),
        remote_port: 53,
    };
    let batch = |sessions: Vec<SessionKey>| {
        let body = serde_json::to_vec(&BatchDelete { sessions }).unwrap();
        client.post("/v1/nat/sessions/delete", Some(body)).unwrap()
    };
    assert_eq!(batch(vec![key.clone(), key.clone()]), (200, b"{\"deleted\":2}".to_vec()));
    let (status, body) = batch(vec![key.clone(); 10_001]);
    assert_eq!(status, 400, "{}", String::from_utf8_lossy(&body));
    let (status, _) = batch(vec![SessionKey { protocol: "sctp".into(), ..key }]);
    assert_eq!(status, 400);
    let (status, _) = client.post("/v1/nat/sessions/delete", Some(b"{\"session\":[]}".to_vec())).unwrap();
    assert_eq!(status, 400);
    let seen = served.fake.deletions.lock().unwrap().clone();
    assert_eq!(seen, ["?instance=cgn1&remote_port=53", "batch 2"]);
}

#[test]
fn a_refused_reload_says_so_in_its_status() {
    let served = serve(Fake::default());
    let client = client(&served);
    assert_eq!(client.post("/v1/reload", None).unwrap().0, 200);
    {
        let mut report = served.fake.reload.lock().unwrap();
        report.applied = false;
    }
    assert_eq!(client.post("/v1/reload", None).unwrap().0, 422);
    served.fake.reload.lock().unwrap().changes[0].effect = "needs-restart".into();
    assert_eq!(client.post("/v1/reload", None).unwrap().0, 409);
}

#[test]
fn metrics_name_every_reason_and_are_well_formed() {
    let served = serve(Fake::default());
    let text = client(&served).get_bytes("/metrics", &NoQuery {}).unwrap();
    let text = String::from_utf8(text).unwrap();
    for row in carrack_base::REASONS {
        let sample = format!("carrack_dropped_packets_total{{reason=\"{}\",", row.name);
        assert!(text.contains(&sample), "{}", row.name);
    }
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            family = rest.split(' ').next().unwrap();
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            assert_eq!(name, family, "a sample outside its family");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.contains("carrack_balance_packets 0\n"));
    // Whatever a device lost, the whole machine's and by interface.
    for (sample, count) in [
        ("carrack_nic_missed_packets_total", 3),
        ("carrack_nic_nombuf_packets_total", 2),
        ("carrack_interface_rx_errors_total{interface=\"outside\"}", 0),
        ("carrack_interface_rx_nombuf_packets_total{interface=\"outside\"}", 2),
        ("carrack_interface_tx_errors_total{interface=\"outside\"}", 1_001),
    ] {
        assert!(text.contains(&format!("\n{sample} {count}\n")), "{sample}");
    }
}

#[test]
fn the_client_reads_what_the_server_writes() {
    let served = serve(Fake::default());
    let all: Vec<Interface> = client(&served).get("/v1/interfaces", &NoQuery {}).unwrap();
    assert_eq!(all.len(), 2);
    let filter = RowFilter { instance: Some("other".into()), ..RowFilter::default() };
    let answer = client(&served).get::<Value>(&format!("/v1/nat/pools{}", filter.query()), &NoQuery {});
    assert!(matches!(answer, Err(ClientError::Failed(f)) if f.hint.contains("cgn1")));
}
