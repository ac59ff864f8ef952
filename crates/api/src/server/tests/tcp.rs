//! TCP: nothing without TLS, nothing without the token.

use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::*;
use crate::server::TcpOptions;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

struct Tcp {
    options: ServerOptions,
    certificate: CertificateDer<'static>,
    _directory: TempDir,
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn prepare() -> Tcp {
    let directory = TempDir::new().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let file = |name: &str| directory.path().join(name);
    write(&file("cert.pem"), &made.cert.pem(), 0o644);
    write(&file("key.pem"), &made.signing_key.serialize_pem(), 0o600);
    write(&file("token"), &format!("{TOKEN}\n"), 0o640);
    let tcp = TcpOptions {
        listen: "127.0.0.1:0".parse().unwrap(),
        token_file: file("token"),
        tls_cert: file("cert.pem"),
        tls_key: file("key.pem"),
    };
    let options = ServerOptions { socket: file("api.sock"), tcp: Some(tcp) };
    Tcp { options, certificate: made.cert.der().clone(), _directory: directory }
}

fn get(tcp: &Tcp, server: &Server, authorization: &str) -> String {
    let mut roots = RootCertStore::empty();
    roots.add(tcp.certificate.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let request =
        format!("GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // The server may close without a TLS goodbye; what matters is what came before.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn only_the_right_token_opens_tcp() {
    let tcp = prepare();
    let server = Server::start(Arc::new(Fake::default()), &tcp.options).unwrap();
    let right = get(&tcp, &server, &format!("authorization: Bearer {TOKEN}\r\n"));
    assert!(right.starts_with("HTTP/1.1 200 "), "{right}");
    let wrong_ones = [
        String::new(),
        "authorization: Bearer wrong\r\n".into(),
        format!("authorization: Bearer {}\r\n", &TOKEN[1..]),
        format!("authorization: Bearer {TOKEN}x\r\n"),
        format!("authorization: Basic {TOKEN}\r\n"),
    ];
    for wrong in wrong_ones {
        let answer = get(&tcp, &server, &wrong);
        assert!(answer.starts_with("HTTP/1.1 401 "), "{wrong}: {answer}");
        assert!(answer.contains("\"hint\""), "{answer}");
    }
    // The local socket needs no token.
    let health: Value = Client::new(&tcp.options.socket).unwrap().get("/v1/health", &NoQuery {}).unwrap();
    assert_eq!(health["status"], "ok");
}

#[test]
fn plain_http_on_tcp_gets_no_answer() {
    let tcp = prepare();
    let server = Server::start(Arc::new(Fake::default()), &tcp.options).unwrap();
    let mut stream = TcpStream::connect(server.tcp_address().unwrap()).unwrap();
    let request = format!("GET /v1/health HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&answer));
}

#[test]
fn secrets_that_everybody_can_read_are_refused() {
    for name in ["token", "key.pem"] {
        let tcp = prepare();
        let path = tcp._directory.path().join(name);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let refused = Server::start(Arc::new(Fake::default()), &tcp.options).err().unwrap();
        assert!(refused.error.contains("can be read by everybody"), "{refused}");
        assert!(refused.hint.starts_with("chmod 640"), "{refused}");
        assert!(!tcp.options.socket.exists(), "a refused start leaves no socket");
    }
}

#[test]
fn short_tokens_and_foreign_keys_are_refused() {
    let tcp = prepare();
    write(&tcp._directory.path().join("token"), "short\n", 0o600);
    let refused = Server::start(Arc::new(Fake::default()), &tcp.options).err().unwrap();
    assert!(refused.error.contains("at least 16"), "{refused}");
    let tcp = prepare();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    write(&tcp._directory.path().join("key.pem"), &other.signing_key.serialize_pem(), 0o600);
    let refused = Server::start(Arc::new(Fake::default()), &tcp.options).err().unwrap();
    assert!(refused.error.contains("TLS certificate and key do not work"), "{refused}");
}
