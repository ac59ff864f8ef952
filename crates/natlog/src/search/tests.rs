use std::sync::Arc;

use super::*;
use crate::context::{Context, InstanceContext};
use crate::exporter::Batch;
use crate::store::files;
use crate::store::journal::Journal;
use Kind::{BlockAllocated as Got, BlockReleased as Gave, ClockSet, Started, Stopped};

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 7);

fn event(kind: Kind, unix_ms: u64, host: u8) -> Record {
    Record {
        inside: Ipv4Addr::new(100, 64, 0, host).into(),
        outside: OUTSIDE.into(),
        first: 4_096,
        last: 4_607,
        ..Record::new(unix_ms, kind)
    }
}

/// Each list becomes a file; all but the last are packed.
fn store(lists: &[&[Record]]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    files::make(dir.path()).unwrap();
    let instances = vec![InstanceContext { name: "cgn1".into(), ..InstanceContext::default() }];
    let context = Arc::new(Context { instances, ..Context::default() });
    for (n, records) in (0..).zip(lists) {
        let path = files::journal_path(dir.path(), 1, n);
        let mut journal = Journal::create(path.clone()).unwrap();
        journal.append(&Batch { context: Arc::clone(&context), records: records.to_vec() }).unwrap();
        if n as usize + 1 < lists.len() {
            files::pack(dir.path(), &path).unwrap();
        }
    }
    dir
}

fn ask(dir: &tempfile::TempDir, at_ms: u64) -> Answer {
    who(dir.path(), &Question { outside: OUTSIDE, port: 4_200, at_ms, protocol: None }).unwrap()
}

fn holder(dir: &tempfile::TempDir, at_ms: u64) -> Option<(u8, u64, Option<u64>)> {
    let holding = ask(dir, at_ms).holding?;
    let IpAddr::V4(inside) = holding.subscriber else { panic!("{}", holding.subscriber) };
    assert_eq!(
        (holding.first, holding.last, &*holding.instance, holding.what),
        (4_096, 4_607, "cgn1", "block")
    );
    Some((inside.octets()[3], holding.from_ms, holding.to_ms))
}

/// RFC 6888 REQ-12.
#[test]
fn every_instant_of_a_blocks_life_is_answered_over_all_files() {
    let dir = store(&[
        &[event(Got, 1_000, 1)],
        &[event(Gave, 2_000, 1), event(Got, 3_000, 2)],
        &[Record { first: 5_120, last: 5_631, ..event(Got, 3_500, 9) }],
        &[event(Gave, 4_000, 2), event(Got, 5_000, 3)],
    ]);
    assert_eq!(holder(&dir, 999), None);
    assert_eq!(ask(&dir, 999).free_since_ms, None);
    for at in [1_000, 1_500, 1_999] {
        assert_eq!(holder(&dir, at), Some((1, 1_000, Some(2_000))), "at {at}");
    }
    assert_eq!(holder(&dir, 2_500), None);
    assert_eq!(ask(&dir, 2_500).free_since_ms, Some(2_000));
    for at in [3_000, 3_600, 3_999] {
        assert_eq!(holder(&dir, at), Some((2, 3_000, Some(4_000))), "at {at}");
    }
    assert_eq!(holder(&dir, 9_000), Some((3, 5_000, None)));
    let other = Question { outside: OUTSIDE, port: 6_000, at_ms: 3_600, protocol: None };
    assert_eq!(who(dir.path(), &other).unwrap().holding, None);
}

#[test]
fn restart_frees_everything_and_a_crash_leaves_a_doubt() {
    let ended = [Record::new(2_000, Stopped), Record::new(3_000, Started)];
    let dir = store(&[&[event(Got, 1_000, 1)], &ended, &[]]);
    assert_eq!(holder(&dir, 1_500), Some((1, 1_000, Some(2_000))));
    assert_eq!(ask(&dir, 1_500).doubts, Vec::<String>::new());
    assert_eq!(holder(&dir, 2_500), None);
    let dir = store(&[&[event(Got, 1_000, 1)], &[Record::new(3_000, Started)], &[]]);
    assert_eq!(holder(&dir, 1_500), Some((1, 1_000, Some(3_000))));
    assert_eq!(ask(&dir, 1_500).doubts.len(), 1);
}

#[test]
fn clock_set_back_brings_the_other_candidate_along() {
    let set = Record { value: 5_000, count: 1, ..Record::new(6_000, ClockSet) };
    let records =
        [event(Got, 1_000, 1), event(Gave, 10_000, 1), set, event(Got, 7_000, 2), event(Gave, 20_000, 2)];
    for dir in [store(&[&records]), store(&[&records, &[]])] {
        let answer = ask(&dir, 8_000);
        assert_eq!(answer.holding.unwrap().subscriber, IpAddr::from([100, 64, 0, 2]));
        assert_eq!(answer.others, [IpAddr::from([100, 64, 0, 1])]);
        assert!(answer.doubts[0].contains("set 5000 ms back"), "{:?}", answer.doubts);
        assert_eq!(ask(&dir, 19_000).doubts, Vec::<String>::new());
    }
}

#[test]
fn lost_events_in_between_make_the_answer_doubtful() {
    let lost = Record { count: 3, ..Record::new(2_000, Kind::EventsLost) };
    let dir = store(&[&[event(Got, 1_000, 1)], &[lost], &[]]);
    assert_eq!(ask(&dir, 1_500).doubts, Vec::<String>::new());
    assert!(ask(&dir, 2_500).doubts[0].starts_with("3 events were lost at 1970-01-01T00:00:02.000Z"));
}

#[test]
fn mappings_of_one_port_are_told_apart_by_protocol() {
    let mapping = |host, protocol| Record {
        protocol,
        first: 4_200,
        last: 4_200,
        ..event(Kind::MappingCreated, 1_000, host)
    };
    let dir = store(&[&[mapping(1, 6), mapping(2, 17)]]);
    for (protocol, host) in [(6, 1), (17, 2)] {
        let question = Question { outside: OUTSIDE, port: 4_200, at_ms: 1_500, protocol: Some(protocol) };
        let holding = who(dir.path(), &question).unwrap().holding.unwrap();
        assert_eq!(holding.subscriber, IpAddr::from([100, 64, 0, host]));
    }
}

#[test]
fn subscriber_is_told_all_it_had() {
    let dir = store(&[
        &[event(Gave, 500, 1), event(Got, 1_000, 1)],
        &[event(Gave, 2_000, 1), event(Got, 2_500, 2), Record { first: 0, ..event(Got, 3_000, 1) }],
    ]);
    let held = of(dir.path(), IpAddr::from([100, 64, 0, 1]), 0, 9_000).unwrap();
    let spans: Vec<_> = held.iter().map(|h| (h.from_ms, h.to_ms, h.first)).collect();
    assert_eq!(spans, [(0, Some(500), 4_096), (1_000, Some(2_000), 4_096), (3_000, None, 0)]);
}

fn session(kind: Kind, unix_ms: u64, host: u8) -> Record {
    Record { protocol: 6, inside_port: 5_000, first: 4_200, last: 4_200, ..event(kind, unix_ms, host) }
}

/// RFC 6888 REQ-12: without destinations sessions look all the same.
#[test]
fn port_is_held_as_long_as_one_of_its_sessions_is_open() {
    use Kind::{SessionCreated as Opened, SessionDeleted as Ended};
    let records = [
        Record::new(500, Started),
        session(Opened, 1_000, 1),
        session(Opened, 2_000, 1),
        session(Opened, 3_000, 1),
        session(Ended, 4_000, 1),
        session(Ended, 5_000, 1),
        session(Ended, 6_000, 1),
        session(Opened, 7_000, 2),
        session(Ended, 8_000, 2),
    ];
    let dir = store(&[&records[..4], &records[4..6], &records[6..]]);
    let who = |at| ask(&dir, at).holding.map(|holding| (holding.subscriber, holding.what));
    let host = |n: u8| Some((IpAddr::from([100, 64, 0, n]), "session"));
    for (at, wanted) in [
        (999, None),
        (1_000, host(1)),
        (3_500, host(1)),
        (4_500, host(1)),
        (5_999, host(1)),
        (6_500, None),
        (7_500, host(2)),
        (8_500, None),
    ] {
        assert_eq!(who(at), wanted, "at {at}");
    }
    assert_eq!(ask(&dir, 6_500).free_since_ms, Some(6_000));
    assert_eq!(ask(&dir, 6_500).doubts, Vec::<String>::new());
    assert!(ask(&dir, 3_500).holding.unwrap().to_ms.is_some_and(|end| (3_501..=6_000).contains(&end)));
}

#[test]
fn end_of_a_mapping_does_not_end_the_block_it_was_of() {
    let within = |kind, at| Record { detail: 1, ..session(kind, at, 1) };
    let dir = store(&[&[
        event(Got, 1_000, 1),
        within(Kind::MappingCreated, 1_100),
        within(Kind::MappingDeleted, 1_200),
        within(Kind::SessionDeleted, 1_300),
        event(Gave, 2_000, 1),
    ]]);
    assert_eq!(holder(&dir, 1_150), Some((1, 1_000, Some(2_000))));
    assert_eq!(holder(&dir, 1_500), Some((1, 1_000, Some(2_000))));
}

#[test]
fn port_of_two_protocols_is_of_both_unless_one_is_asked_for() {
    let mapping = |host, protocol| Record { protocol, ..session(Kind::MappingCreated, 1_000, host) };
    let dir = store(&[&[mapping(1, 6), mapping(2, 17)]]);
    let answer = ask(&dir, 1_500);
    assert_eq!((answer.others.len(), answer.doubts.len()), (1, 1), "{answer:?}");
    assert!(answer.doubts[0].contains("ask with --protocol"));
}

#[test]
fn silence_of_the_log_is_never_sure() {
    let dir = store(&[&[]]);
    let answer = ask(&dir, 1_500);
    assert_eq!((answer.holding, answer.reach_ms), (None, None));
    assert!(answer.doubts[0].starts_with("nothing is recorded in "), "{:?}", answer.doubts);
    let dir = store(&[&[Record { first: 9_216, last: 9_727, ..event(Got, 1_000, 1) }]]);
    for (at, said) in
        [(999, "reaches back to 1970-01-01T00:00:01.000Z only"), (1_500, "begins at 1970-01-01T00:00:01")]
    {
        let answer = ask(&dir, at);
        assert_eq!(answer.reach_ms, Some(1_000));
        assert!(answer.doubts[0].contains(said), "{:?}", answer.doubts);
    }
    let dir = store(&[&[Record::new(1_000, Started)]]);
    assert_eq!((ask(&dir, 1_500).free_since_ms, ask(&dir, 1_500).doubts.len()), (Some(1_000), 0));
}

fn config(nat: &str) -> String {
    format!(
        "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\n\n[[interface]]\nname = \"b\"\n\
         device = \"mem:b\"\nside = \"outside\"\n\n[[nat]]\nname = \"d\"\n{nat}"
    )
}

#[test]
fn instance_that_logged_nothing_of_its_ports_makes_the_answer_doubtful() {
    let arbitrary =
        "[nat.ports]\nmode = \"arbitrary\"\n\n[[nat.pool]]\nname = \"p\"\naddresses = [\"203.0.113.7\"]\n";
    for (nat, said) in [
        (arbitrary.to_owned(), Some("logs nothing that tells who had a port")),
        (format!("log = \"mappings\"\n{arbitrary}"), None),
        (arbitrary.replace("113.7", "113.8"), Some("is in no pool")),
    ] {
        let dir = store(&[&[Record::new(900, Started)]]);
        files::keep_config(dir.path(), &config(&nat), 1, 1_000).unwrap();
        let doubts = ask(&dir, 1_500).doubts;
        assert_eq!(doubts.len(), usize::from(said.is_some()), "{doubts:?}");
        assert!(said.is_none_or(|said| doubts[0].contains(said)), "{doubts:?}");
    }
}

#[test]
fn static_mapping_is_answered_from_the_configuration_of_the_time() {
    let nat = "\n[[nat.pool]]\nname = \"p\"\naddresses = [\"203.0.113.8\"]\n\n[[nat.one_to_one]]\n\
               outside = \"203.0.113.7\"\ninside = \"100.64.0.9\"\n";
    let dir = store(&[&[Record::new(900, Started)]]);
    files::keep_config(dir.path(), &config(nat), 1, 1_000).unwrap();
    let holding = ask(&dir, 1_500).holding.unwrap();
    assert_eq!((holding.what, holding.subscriber), ("static", IpAddr::from([100, 64, 0, 9])));
}

/// RFC 7422 §3: without a single event.
#[test]
fn deterministic_pool_is_answered_from_the_configuration_of_the_time() {
    let config = |pool: &str| {
        config(&format!(
            "subscribers = [\"100.64.0.0/28\"]\n\n[nat.ports]\nmode = \"deterministic\"\nports_per_subscriber = 512\n\n\
             [[nat.pool]]\nname = \"p\"\naddresses = [\"{pool}\"]\n"
        ))
    };
    let dir = store(&[&[]]);
    files::keep_config(dir.path(), &config("203.0.113.7"), 1, 1_000).unwrap();
    files::keep_config(dir.path(), &config("203.0.113.8"), 2, 2_000).unwrap();
    assert_eq!(ask(&dir, 999).holding, None);
    let holding = ask(&dir, 1_500).holding.unwrap();
    assert_eq!((holding.what, holding.from_ms, holding.to_ms), ("deterministic", 1_000, Some(2_000)));
    assert_eq!((holding.first, holding.last), (4_096, 4_607));
    assert_eq!(holding.subscriber, IpAddr::from([100, 64, 0, 6]));
    assert_eq!(ask(&dir, 2_500).holding, None);
}
