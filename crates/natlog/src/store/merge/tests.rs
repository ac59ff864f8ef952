use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::*;
use crate::context::{Context, InstanceContext};
use crate::exporter::Batch;
use crate::record::Kind;
use crate::search::{Question, of, who};
use crate::store::columns::{self, Wanted};
use crate::store::journal::Journal;

/// 2026-03-03T00:00:00Z.
const DAY_MS: u64 = 1_772_496_000_000;
const OUTSIDE: u32 = 0xcb00_7100;

/// Block number `place` of 2,000 passes from one subscriber to the next, some of them with IPv6 addresses.
fn block(n: u32) -> Record {
    let (place, round) = (n * 7 % 2_000, n / 2_000);
    let holder = place * 3 + round / 2;
    let inside = if holder.is_multiple_of(5) {
        std::net::Ipv6Addr::from(0x2001_0db8u128 << 96 | u128::from(holder)).into()
    } else {
        Ipv4Addr::from(0x6440_0000 + holder).into()
    };
    Record {
        inside,
        instance: place as u16 % 2,
        outside: OUTSIDE + place / 100,
        first: 1_024 + place as u16 % 100 * 512,
        last: 1_024 + place as u16 % 100 * 512 + 511,
        ..Record::new(
            DAY_MS + u64::from(n) * 50,
            if round.is_multiple_of(2) { Kind::BlockAllocated } else { Kind::BlockReleased },
        )
    }
}

/// Packs these as one file of the day.
fn pack(dir: &Path, number: u32, records: Vec<Record>) {
    files::make(dir).unwrap();
    // Instances have other numbers in every other file.
    let names = if number.is_multiple_of(2) { ["a", "b"] } else { ["b", "a"] };
    let instances = names.map(|name| InstanceContext { name: name.into(), ..InstanceContext::default() });
    let context = Arc::new(Context { instances: instances.into(), ..Context::default() });
    let swap = |record: Record| Record { instance: (record.instance + number as u16) % 2, ..record };
    let records = records.into_iter().map(swap).collect();
    let path = files::journal_path(dir, 1, number);
    let mut journal = Journal::create(path.clone()).unwrap();
    journal.append(&Batch { context, records }).unwrap();
    files::pack(dir, &path).unwrap();
}

/// A day of `files` files of `each` events, and an event of the daemon in each.
fn day(files: u32, each: u32) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..files {
        let blocks = number * each..(number + 1) * each;
        let lost = Record::new(block(blocks.start).unix_ms, Kind::EventsLost);
        pack(dir.path(), number, blocks.map(block).chain([lost]).collect());
    }
    let day = dir.path().join("2026-03-03");
    (dir, day)
}

/// Every event as text, by how often it is there.
fn contents(dir: &Path) -> BTreeMap<String, u32> {
    let mut all = BTreeMap::new();
    for part in files::parts(dir).unwrap() {
        columns::read(&part.path, Wanted::of_time(0, u64::MAX >> 1), |record, name| {
            assert!((part.from_ms..=part.to_ms).contains(&record.unix_ms));
            assert!(part.outside.is_none_or(|(first, last)| (first..=last).contains(&record.outside)));
            *all.entry(format!("{name} {record:?}")).or_default() += 1;
        })
        .unwrap();
    }
    all
}

fn go_on() -> impl FnMut() -> bool {
    || true
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn merged_day_has_every_event_once() {
    // More than are merged at once.
    let (dir, day) = day(RUNS_MAX as u32 + 6, 100);
    let before = contents(dir.path());
    assert_eq!(before.values().sum::<u32>(), (RUNS_MAX as u32 + 6) * 101);
    let merged = merge(&day, &mut go_on()).unwrap();
    assert_eq!(merged, Merged { files_before: RUNS_MAX + 6, files: 2, events: (RUNS_MAX as u64 + 6) * 101 });
    assert_eq!(contents(dir.path()), before);
    assert_eq!(names(&day), ["merged-2"]);
    // The daemon's own events are apart, so that a question reads them and one other file.
    let parts = files::parts(dir.path()).unwrap();
    assert_eq!(parts.iter().filter(|part| part.admits(OUTSIDE + 3)).count(), 2);
    assert_eq!(parts.iter().filter(|part| part.admits(OUTSIDE + 50)).count(), 1);
    // What comes late is merged with the rest.
    pack(dir.path(), 900, vec![block(3), block(4)]);
    let merged = merge(&day, &mut go_on()).unwrap();
    assert_eq!((merged.files_before, merged.events), (3, (RUNS_MAX as u64 + 6) * 101 + 2));
    assert_eq!(names(&day), ["merged-3"]);
}

/// RFC 6888 REQ-12.
#[test]
fn every_question_has_the_same_answer_before_and_after() {
    let (dir, day) = day(8, 1_500);
    let ask = || {
        let answers = (0..300u32).map(|n| {
            let place = n * 41 % 2_100;
            let question = Question {
                outside: (OUTSIDE + place / 100).into(),
                port: 1_024 + place as u16 % 100 * 512 + n as u16 % 512,
                at_ms: DAY_MS + u64::from(n * 2_003 % 660_000),
                protocol: None,
            };
            let mut answer = who(dir.path(), &question).unwrap();
            answer.doubts.sort();
            answer
        });
        let held = [block(10).inside, block(11).inside, block(1_000).inside, "10.0.0.1".parse().unwrap()];
        let held = held.map(|inside| of(dir.path(), inside, DAY_MS, DAY_MS + 1_000_000).unwrap());
        (answers.collect::<Vec<_>>(), held)
    };
    let before = ask();
    assert!(before.0.iter().filter(|answer| answer.holding.is_some()).count() > 100);
    assert!(before.1.iter().filter(|held| !held.is_empty()).count() == 3, "{:?}", before.1);
    merge(&day, &mut go_on()).unwrap();
    assert_eq!(ask(), before);
}

#[test]
fn killed_merge_loses_nothing_and_doubles_nothing() {
    let (dir, day) = day(3, 200);
    let before = contents(dir.path());
    let packed: Vec<(String, Vec<u8>)> =
        names(&day).into_iter().map(|name| (name.clone(), fs::read(day.join(name)).unwrap())).collect();
    // Before the set has its name.
    fs::create_dir(day.join(MERGING)).unwrap();
    fs::write(day.join(MERGING).join("0.unfinished"), "PAR1").unwrap();
    fs::write(day.join(MERGING).join("1-2-1.2.3.4-1.2.3.5-0.parquet"), "PAR1").unwrap();
    assert_eq!(contents(dir.path()), before);
    recover(dir.path()).unwrap();
    assert_eq!(names(&day).len(), 3);
    // After that, with any of what it replaces still there.
    merge(&day, &mut go_on()).unwrap();
    let set = day.join("merged-1");
    for left in 0..=packed.len() {
        let list: String = packed.iter().map(|(name, _)| format!("{name}\n")).collect();
        fs::write(set.join(INPUTS), list).unwrap();
        for (name, bytes) in packed.iter().skip(left) {
            fs::write(day.join(name), bytes).unwrap();
        }
        assert_eq!(contents(dir.path()), before, "with all but {left} of the files it replaces");
        recover(dir.path()).unwrap();
        assert_eq!(contents(dir.path()), before);
        assert_eq!(names(&day), ["merged-1"]);
        assert!(!set.join(INPUTS).exists());
    }
    // While a set is deleted.
    fs::rename(&set, day.join("deleting-merged-1")).unwrap();
    assert_eq!(contents(dir.path()), BTreeMap::new());
    recover(dir.path()).unwrap();
    assert_eq!(names(&day), Vec::<String>::new());
}

#[test]
fn stopped_merge_leaves_everything_as_it_was() {
    let (dir, day) = day(2, 70_000);
    let (before, files) = (names(&day), contents(dir.path()));
    assert_eq!(merge(&day, &mut || false), Err(Unmerged::Stopped));
    assert_eq!((names(&day), contents(dir.path())), (before, files));
}

#[test]
fn day_is_merged_when_it_is_over_and_retention_takes_it_whole() {
    let (dir, day) = day(3, 200);
    let midnight = DAY_MS + 86_400_000;
    assert_eq!(due(dir.path(), midnight + OVER_MS - 1).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(due(dir.path(), midnight + OVER_MS).unwrap(), std::slice::from_ref(&day));
    merge(&day, &mut go_on()).unwrap();
    assert_eq!(due(dir.path(), midnight + OVER_MS).unwrap(), Vec::<PathBuf>::new());
    let bytes: u64 = files::parts(dir.path()).unwrap().iter().map(|part| part.bytes).sum();
    // Its last event is not too old.
    assert_eq!(files::tidy(dir.path(), block(599).unix_ms, bytes).unwrap(), bytes);
    assert_eq!(files::tidy(dir.path(), 0, bytes - 1).unwrap(), 0);
    assert!(!day.exists());
}

#[test]
fn file_cut_at_any_byte_stops_its_days_merge_and_leaves_a_doubt_where_it_matters() {
    let (dir, day) = day(2, 40);
    let victim = files::parts(dir.path()).unwrap()[1].path.clone();
    let bytes = fs::read(&victim).unwrap();
    let ask = |n: u32| {
        let record = block(n);
        let question = Question {
            outside: record.outside.into(),
            port: record.first,
            at_ms: record.unix_ms,
            protocol: None,
        };
        who(dir.path(), &question).unwrap()
    };
    let whole = names(&day);
    for cut in 0..bytes.len() {
        fs::write(&victim, &bytes[..cut]).unwrap();
        assert!(columns::Sorted::open(&victim).is_err(), "opened, cut at {cut}");
        // The rest takes longer.
        if cut % 97 > 1 {
            continue;
        }
        let Err(Unmerged::Failed(why)) = merge(&day, &mut go_on()) else { panic!("merged, cut at {cut}") };
        assert!(why.contains(victim.to_str().unwrap()), "{why}");
        // What it told is not known now; what the other file tells is, and whether the lost one matters for it.
        let answer = ask(50);
        assert!(
            answer.holding.is_none() && answer.doubts.iter().any(|doubt| doubt.contains("cannot read")),
            "{answer:?}"
        );
        assert_eq!(ask(5).holding.unwrap().subscriber, block(5).inside);
    }
    assert_eq!(names(&day), whole);
    fs::write(&victim, &bytes).unwrap();
    assert_eq!(ask(50).holding.unwrap().subscriber, block(50).inside);
    merge(&day, &mut go_on()).unwrap();
}

#[test]
fn who_asks_during_a_merge_gets_the_answer_all_the_same() {
    let (dir, day) = day(40, 200);
    let question = |n: u32| {
        let record = block(n);
        Question { outside: record.outside.into(), port: record.first, at_ms: record.unix_ms, protocol: None }
    };
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| {
            let mut asked = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) || asked < 10 {
                let n = asked * 13 % 1_900;
                let answer = who(dir.path(), &question(n)).unwrap();
                assert_eq!(answer.holding.map(|holding| holding.subscriber), Some(block(n).inside));
                asked += 1;
            }
            asked
        });
        for round in 0..20 {
            merge(&day, &mut go_on()).unwrap();
            // A set of its own each time: one is replaced by the next.
            pack(dir.path(), 1_000 + round, vec![Record::new(DAY_MS + u64::from(round), Kind::EventsLost)]);
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(asked.join().unwrap() >= 10);
    });
}

/// More IPv6 subscribers than the dictionary of a column holds: who is not in it may be in the column.
#[test]
fn subscriber_is_found_among_more_than_a_dictionary_holds() {
    let dir = tempfile::tempdir().unwrap();
    let of_host = |n: u32| Record {
        inside: std::net::Ipv6Addr::from(0x2001_0db8u128 << 96 | u128::from(n)).into(),
        instance: 0,
        outside: OUTSIDE + n / 128,
        first: n as u16 % 128 * 512,
        last: n as u16 % 128 * 512 + 511,
        ..Record::new(DAY_MS + u64::from(n), Kind::BlockAllocated)
    };
    pack(dir.path(), 0, (0..100_000).map(of_host).collect());
    for n in [0, 1, 65_000, 99_999] {
        assert_eq!(of(dir.path(), of_host(n).inside, DAY_MS, DAY_MS + 86_400_000).unwrap().len(), 1, "{n}");
    }
    assert_eq!(of(dir.path(), of_host(100_000).inside, DAY_MS, DAY_MS + 86_400_000).unwrap(), []);
}
