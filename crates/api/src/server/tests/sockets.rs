//! The local socket: whose it is and who may talk.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use super::*;
use crate::failure::Kind;

#[test]
fn the_socket_is_for_user_and_group_only_and_goes_with_the_server() {
    let served = serve(Fake::default());
    let mode = std::fs::metadata(&served.socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let Served { _server, socket, directory, .. } = served;
    _server.stop();
    assert!(!socket.exists());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("api.sock");
    let options = ServerOptions { socket: socket.clone(), tcp: None };
    // Bound and closed, as a killed daemon leaves it.
    drop(UnixListener::bind(&socket).unwrap());
    let first = Server::start(Arc::new(Fake::default()), &options).unwrap();
    let refused = Server::start(Arc::new(Fake::default()), &options).err().unwrap();
    assert_eq!(refused.kind, Kind::Conflict);
    assert!(refused.error.contains("another daemon serves"), "{refused}");
    let health: Value = Client::new(&socket).unwrap().get("/v1/health", &NoQuery {}).unwrap();
    assert_eq!(health["status"], "ok");
    first.stop();
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("api.sock");
    std::fs::write(&socket, "precious").unwrap();
    let options = ServerOptions { socket: socket.clone(), tcp: None };
    let refused = Server::start(Arc::new(Fake::default()), &options).err().unwrap();
    assert!(refused.error.contains("is no socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
}

#[test]
fn an_old_server_does_not_remove_its_successors_socket() {
    let served = serve(Fake::default());
    std::fs::remove_file(&served.socket).unwrap();
    let options = ServerOptions { socket: served.socket.clone(), tcp: None };
    let successor = Server::start(Arc::new(Fake::default()), &options).unwrap();
    let Served { _server, socket, directory, .. } = served;
    _server.stop();
    assert!(socket.exists());
    successor.stop();
    drop(directory);
}

#[test]
fn the_client_says_why_nobody_answers() {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("api.sock");
    let why =
        |socket: &std::path::Path| match Client::new(socket).unwrap().get::<Value>("/v1/health", &NoQuery {})
        {
            Err(ClientError::Unreachable(failure)) => failure.error,
            other => panic!("{other:?}"),
        };
    assert!(why(&socket).contains("does not exist"));
    drop(UnixListener::bind(&socket).unwrap());
    assert!(why(&socket).contains("nobody answers"));
}
