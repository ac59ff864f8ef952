use std::fs;

use super::*;
use crate::context::{Context, InstanceContext};
use crate::record::{Kind, Record};

fn context() -> Arc<Context> {
    let instance = |name: &str| InstanceContext { name: name.into(), ..InstanceContext::default() };
    Arc::new(Context { instances: vec![instance("cgn1"), instance("cgn2")], ..Context::default() })
}

/// Different in every field that the kind has.
fn record(n: u32) -> Record {
    let inside = if n.is_multiple_of(3) {
        std::net::Ipv6Addr::from(0x2001_0db8u128 << 96 | u128::from(n)).into()
    } else {
        std::net::Ipv4Addr::from(0x6440_0000 + n).into()
    };
    Record {
        worker: n as u8 % 4,
        instance: n as u16 % 2,
        pool: 3,
        protocol: 17,
        detail: 1,
        inside,
        inside_port: n as u16,
        outside: 0xcb00_7100 + n / 100,
        first: n as u16 % 100 * 512,
        last: n as u16 % 100 * 512 + 511,
        remote: match n % 4 {
            1 => std::net::Ipv4Addr::from(n).into(),
            3 => std::net::Ipv6Addr::from(0x0064_ff9bu128 << 96 | u128::from(n)).into(),
            _ => crate::record::NOBODY,
        },
        remote4: if n.is_multiple_of(2) { 0 } else { n },
        remote_port: if n.is_multiple_of(2) { 0 } else { 443 },
        value: n,
        count: n + 1,
        reason: carrack_base::Reason::from_index(n as usize % 10),
        ..Record::new(1_772_546_602_500 + u64::from(n), Kind::BlockAllocated)
    }
}

fn batch(records: Vec<Record>) -> Batch {
    Batch { context: context(), records }
}

fn written(dir: &std::path::Path, batches: &[Batch]) -> PathBuf {
    files::make(dir).unwrap();
    let mut journal = Journal::create(files::journal_path(dir, 1, 0)).unwrap();
    for batch in batches {
        journal.append(batch).unwrap();
    }
    journal.sync().unwrap();
    journal.path().to_owned()
}

#[test]
fn journal_cut_or_damaged_at_any_byte_gives_every_frame_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let batches = [batch((0..5).map(record).collect()), batch((5..9).map(record).collect())];
    let path = written(dir.path(), &batches);
    let bytes = fs::read(&path).unwrap();
    let whole = journal::decode(&bytes);
    assert!(!whole.torn);
    assert_eq!(whole.records, (0..9).map(record).collect::<Vec<_>>());
    assert_eq!(whole.instances, ["cgn1", "cgn2"]);
    let mut most = 0;
    for cut in 0..bytes.len() {
        let contents = journal::decode(&bytes[..cut]);
        let count = contents.records.len();
        assert!([0, 5].contains(&count) && count >= most, "{count} records of {cut} bytes");
        assert_eq!(contents.records[..], whole.records[..count]);
        most = count;
        let mut damaged = bytes.clone();
        damaged[cut] ^= 0x40;
        let contents = journal::decode(&damaged);
        assert!(contents.torn && contents.records.len() < 9, "damage at {cut} unseen");
        assert_eq!(contents.records[..], whole.records[..contents.records.len()]);
    }
    assert_eq!(most, 5);
}

#[test]
fn question_reads_of_a_journal_what_is_wanted_of_its_records_and_no_less() {
    let dir = tempfile::tempdir().unwrap();
    let mut other = batch((20..40).map(record).collect());
    other.records.push(Record::new(1_772_546_602_531, Kind::Stopped));
    let six = Record { inside: "2001:db8::7".parse().unwrap(), ..record(45) };
    let remote = Record { remote: "64:ff9b::1".parse().unwrap(), remote4: 9, remote_port: 443, ..record(46) };
    other.records.extend([six, remote, Record { remote: "198.51.100.1".parse().unwrap(), ..remote }]);
    let path = written(dir.path(), &[batch((0..20).map(record).collect()), other]);
    let bytes = fs::read(&path).unwrap();
    let whole = journal::decode(&bytes);
    assert_eq!(whole.records.len(), 44);
    let all = columns::Wanted::of_time(0, u64::MAX >> 1);
    let mut wanted = vec![all, columns::Wanted::of_time(1_772_546_602_510, 1_772_546_602_525)];
    for record in &whole.records {
        wanted.push(columns::Wanted { inside: Some(record.inside), ..all });
        wanted.push(columns::Wanted { outside: Some(record.outside), port: Some(record.first), ..all });
        wanted.push(columns::Wanted { outside: Some(record.outside), port: Some(record.last + 1), ..all });
    }
    for cut in [bytes.len(), bytes.len() - 1, bytes.len() / 2, 1] {
        let (unread, contents) = (journal::Unread::of(bytes[..cut].to_vec()), journal::decode(&bytes[..cut]));
        let times = || contents.records.iter().map(|record| record.unix_ms);
        assert_eq!(unread.times(), times().min().zip(times().max()));
        for wanted in &wanted {
            let mut read = Vec::new();
            unread.read(*wanted, |record, name| read.push((*record, name.to_owned())));
            let named = |record: &Record| (*record, contents.instances[usize::from(record.instance)].clone());
            let expected: Vec<_> =
                contents.records.iter().filter(|record| wanted.admits(record)).map(named).collect();
            assert_eq!(read, expected, "{wanted:?}");
        }
    }
}

#[test]
fn packed_events_are_those_of_the_journal_and_packing_again_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = written(dir.path(), &[batch((0..1_000).map(record).collect())]);
    let journal = fs::read(&path).unwrap();
    files::pack(dir.path(), &path).unwrap();
    assert!(!path.exists());
    // As after a crash between the new file's name and the old one's end.
    fs::write(&path, &journal).unwrap();
    files::pack(dir.path(), &path).unwrap();
    let parts = files::parts(dir.path()).unwrap();
    assert_eq!(parts.len(), 1);
    assert_eq!((parts[0].from_ms, parts[0].to_ms), (1_772_546_602_500, 1_772_546_603_499));
    assert!(parts[0].path.parent().unwrap().ends_with("2026-03-03"));
    let mut read = Vec::new();
    let all = columns::Wanted::of_time(0, u64::MAX >> 1);
    columns::read(&parts[0].path, all, |record, name| {
        assert_eq!(name, ["cgn1", "cgn2"][record.value as usize % 2]);
        read.push(Record { instance: record.value as u16 % 2, ..*record });
    })
    .unwrap();
    read.sort_by_key(|record| record.unix_ms);
    assert_eq!(read, (0..1_000).map(record).collect::<Vec<_>>());
}

#[test]
fn store_acknowledges_what_is_on_disk_and_the_next_start_packs_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig { dir: dir.path().to_owned(), keep_s: u32::MAX, max_mb: 100 };
    let store = Store::start(config.clone(), &Arc::from([])).unwrap();
    store.take(&Arc::new(batch((0..100).map(record).collect())));
    let began = Instant::now();
    while store.report().stored < 100 {
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", store.report());
        std::thread::sleep(Duration::from_millis(5));
    }
    // What is acknowledged is there for any other reader, while the store runs.
    let journals = files::journals(dir.path()).unwrap();
    assert_eq!(journal::read(&journals[0]).unwrap().records.len(), 100);
    drop(store);
    drop(Store::start(config, &Arc::from([])).unwrap());
    assert_eq!(files::journals(dir.path()).unwrap(), Vec::<PathBuf>::new());
    assert_eq!(files::parts(dir.path()).unwrap().len(), 1);
}

#[test]
fn too_old_and_too_much_is_deleted_oldest_first() {
    let dir = tempfile::tempdir().unwrap();
    let day = dir.path().join("2026-03-03");
    fs::create_dir(&day).unwrap();
    for (from, to) in [(10, 20), (20, 30), (30, 40), (40, 50)] {
        fs::write(day.join(format!("{from}-{to}-1-0.parquet")), [0; 100]).unwrap();
    }
    let left =
        |dir: &std::path::Path| files::parts(dir).unwrap().iter().map(|p| p.from_ms).collect::<Vec<_>>();
    assert_eq!(files::tidy(dir.path(), 25, 1_000).unwrap(), 300);
    assert_eq!(left(dir.path()), [20, 30, 40]);
    assert_eq!(files::tidy(dir.path(), 25, 250).unwrap(), 200);
    assert_eq!(left(dir.path()), [30, 40]);
}

/// /dev/full takes no byte: the disk is full.
#[test]
fn full_disk_is_a_counted_loss_and_what_was_acknowledged_stays() {
    let dir = tempfile::tempdir().unwrap();
    files::make(dir.path()).unwrap();
    let path = files::journal_path(dir.path(), 1, 0);
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let counters = Arc::new(Counters::default());
    let queue = Arc::new(Queue::new(1_000));
    let full = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    let writer = Writer {
        dir: dir.path().to_owned(),
        queue: Arc::clone(&queue),
        counters: Arc::clone(&counters),
        to_pack: channel().0,
        journal: Some(Journal::of(full, path)),
        opened: Instant::now(),
        synced: Instant::now(),
        unsynced: 0,
        number: 0,
        complained: None,
    };
    queue.push(&Arc::new(batch((0..10).map(record).collect())));
    queue.close();
    writer.run();
    assert_eq!(counters.lost.load(Ordering::Relaxed), 10);
    assert_eq!(counters.stored.load(Ordering::Relaxed), 0);
}

/// The target is 12 bytes for a block event; the mix is that of a busy hour, every subscriber at a random moment.
#[test]
fn block_event_takes_at_most_twelve_bytes_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let records: Vec<Record> = (0..200_000u64)
        .map(|n| {
            let block = random(126 * 256 * 16) as u32;
            Record {
                inside: std::net::Ipv4Addr::from(0x6440_0000 + random(1 << 20) as u32).into(),
                outside: 0xcb00_0000 + block / 126,
                first: 1_024 + (block % 126) as u16 * 512,
                last: 1_024 + (block % 126) as u16 * 512 + 511,
                ..Record::new(
                    1_772_546_602_500 + n * 18,
                    if random(2) == 0 { Kind::BlockAllocated } else { Kind::BlockReleased },
                )
            }
        })
        .collect();
    let count = records.len() as f64;
    let path = written(dir.path(), &[batch(records)]);
    files::pack(dir.path(), &path).unwrap();
    let bytes = files::parts(dir.path()).unwrap()[0].bytes as f64 / count;
    println!("{bytes:.2} bytes an event");
    assert!(bytes <= 12.0, "{bytes:.2} bytes an event");
}
