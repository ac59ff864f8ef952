use std::sync::Arc;

use super::*;
use crate::context::{Context, InstanceContext};
use crate::exporter::Batch;
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

/// RFC 7422 §5: without a single event.
#[test]
fn deterministic_pool_is_answered_from_the_configuration_of_the_time() {
    let config = |pool: &str| {
        format!(
            "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\n\n[[interface]]\nname = \"b\"\n\
             device = \"mem:b\"\nside = \"outside\"\n\n[[nat]]\nname = \"d\"\nsubscribers = [\"100.64.0.0/28\"]\n\n\
             [nat.ports]\nmode = \"deterministic\"\nports_per_subscriber = 512\n\n[[nat.pool]]\nname = \"p\"\n\
             addresses = [\"{pool}\"]\n"
        )
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
