use super::*;
use crate::filter::{DeleteQuery, RowFilter};

#[test]
fn a_filter_survives_its_own_query_string() {
    let filter = RowFilter {
        instance: Some("cgn 1&x=ü%".into()),
        protocol: Some(Proto::Tcp),
        inside: "100.64.0.0/24".parse().ok(),
        remote_port: Some(443),
        tcp_state: Some(TcpState::BothFin),
        limit: Some(7),
        ..RowFilter::default()
    };
    let query = filter.query();
    assert_eq!(RowFilter::from_query(query.trim_start_matches('?')), Ok(filter));
}

#[test]
fn an_unknown_parameter_suggests_the_nearest() {
    let failure = RowFilter::from_query("insde=10.0.0.1").unwrap_err();
    assert_eq!(failure.kind.status(), 400);
    assert_eq!(failure.hint, "did you mean `inside`?");
}

#[test]
fn bad_values_say_what_to_write() {
    for (query, hint) in [
        ("inside=10.1.2.3/24", "did you mean 10.1.2.0/24?"),
        ("protocol=tpc", "did you mean `tcp`?"),
        ("tcp_state=establishd", "did you mean `established`?"),
        ("inside_port=65536", "not a number from 0 to 65535"),
        ("limit=-1", "not a number"),
        ("instance=", "must not be empty"),
    ] {
        let failure = RowFilter::from_query(query).unwrap_err();
        assert!(failure.hint.contains(hint), "{query}: {}", failure.hint);
    }
    for broken in ["limit=%4", "limit=%zz", "limit=%ff", "limit=1&limit=2"] {
        assert!(RowFilter::from_query(broken).is_err(), "{broken}");
    }
}

#[test]
fn deletion_takes_every_filter_of_the_session_list() {
    let names = |table: &[(&'static str, &'static str, &'static str)]| {
        table
            .iter()
            .map(|(name, ..)| *name)
            .filter(|name| !["all", "limit"].contains(name))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(RowFilter::TABLE), names(DeleteQuery::TABLE));
    for (name, kind, _) in RowFilter::TABLE.iter().filter(|(name, ..)| *name != "limit") {
        let value = match (*kind, *name) {
            ("integer", _) => "7",
            (_, "instance") => "x",
            (_, "protocol") => "udp",
            (_, "tcp_state") => "reset",
            _ => "192.0.2.1",
        };
        let query = DeleteQuery::from_query(&format!("{name}={value}")).unwrap();
        assert!(query.narrows(), "{name}");
        let back = query.clone().filter().delete(false);
        assert_eq!(back, query, "{name}");
    }
}
