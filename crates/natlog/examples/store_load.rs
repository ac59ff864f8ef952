//! How fast events reach the store, what they take on disk, and how fast a question is answered.
//!
//! `cargo run --release -p carrack-natlog --example store_load -- 10000000`
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use carrack_base::{InstanceId, WorkerId};
use carrack_config::{Config, PortFacts};
use carrack_nat::row::{BlockRow, NatEvent};
use carrack_natlog::Service;
use carrack_natlog::context::Context;
use carrack_natlog::search::{Question, who};
use carrack_runtime::{EventSink, LoggedEvent};

const BATCH: u64 = 4_096;
const START_MS: u64 = 1_772_546_602_500;
/// Blocks of 512 ports, 126 an address.
const BLOCKS: u64 = 126;

fn config(dir: &std::path::Path) -> Config {
    let text = format!(
        "[[interface]]\nname = \"a\"\ndevice = \"mem:a\"\nside = \"inside\"\n\n[[interface]]\nname = \"b\"\n\
         device = \"mem:b\"\nside = \"outside\"\n\n[[nat]]\nname = \"cgn\"\n\n[[nat.pool]]\nname = \"p\"\n\
         addresses = [\"203.0.113.0/24\"]\n\n[logging.store]\ndir = \"{}\"\nkeep = 315_360_000\n",
        dir.display()
    );
    Config::from_str("load", &text).expect("a good config").0
}

/// A number that looks like chance.
fn scatter(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (n ^ (n >> 27)).wrapping_mul(0x81da_def4_bc2d_d44d) >> 20
}

/// Each block of 1 024 addresses goes from subscriber to subscriber.
fn event(n: u64) -> LoggedEvent {
    let blocks = BLOCKS * 1_024;
    let (round, block) = (n / blocks, scatter(n % blocks) % blocks);
    let row = BlockRow {
        ip: 0xcb00_0000 + (block / BLOCKS) as u32,
        first: 1_024 + (block % BLOCKS) as u16 * 512,
        last: 1_024 + (block % BLOCKS) as u16 * 512 + 511,
    };
    let inside = Ipv4Addr::from(0x6440_0000 + (scatter(block + round / 2) % (1 << 20)) as u32).into();
    let instance = InstanceId(0);
    let event = if round.is_multiple_of(2) {
        NatEvent::BlockAllocated { instance, inside, block: row }
    } else {
        NatEvent::BlockReleased { instance, inside, block: row }
    };
    // A hundred thousand a second, for the calendar of the files.
    let ns = n * 10_000;
    LoggedEvent { sequence: n, at_ns: ns, unix_ns: START_MS * 1_000_000 + ns, worker: WorkerId(0), event }
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(4_000_000);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = config(dir.path());
    let compiled = carrack_config::compile(&config, &PortFacts::assumed(&config), None).expect("it compiles");
    let mut service =
        Service::start(&config, Context::of(&config, &compiled.snapshot), START_MS).expect("a service");
    let (began, mut busy) = (Instant::now(), Duration::ZERO);
    for batch in 0..count / BATCH {
        let events: Vec<LoggedEvent> = (batch * BATCH..(batch + 1) * BATCH).map(event).collect();
        let given = Instant::now();
        service.events(&events);
        busy += given.elapsed();
        while service.store().is_some_and(|store| store.waiting > 2_000_000) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let sent = count / BATCH * BATCH;
    while service.store().is_some_and(|store| store.stored + store.lost < sent) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = began.elapsed().as_secs_f64();
    let report = service.store().unwrap_or_default();
    println!(
        "{sent} events acknowledged in {took:.2} s: {:.2} M/s, {} lost",
        sent as f64 / took / 1e6,
        report.lost
    );
    println!("of that the logging thread: {:.0} ns an event", busy.as_nanos() as f64 / sent as f64);
    service.end(START_MS * 1_000_000 + sent * 10_000);
    // What is left in the journal is packed by the next start.
    let next =
        Service::start(&config, Context::of(&config, &compiled.snapshot), START_MS).expect("a service");
    drop(next);
    let mut bytes = 0;
    let mut files = 0;
    for day in std::fs::read_dir(dir.path()).expect("the store").flatten().filter(|d| d.path().is_dir()) {
        for file in std::fs::read_dir(day.path()).expect("a day").flatten() {
            if file.path().extension().is_some_and(|e| e == "parquet") {
                bytes += file.metadata().map_or(0, |m| m.len());
                files += 1;
            }
        }
    }
    println!("{files} files, {:.2} bytes an event", bytes as f64 / sent as f64);
    let (mut worst, asked, mut found) = (Duration::ZERO, Instant::now(), 0);
    for n in 0..50 {
        let at = scatter(n) % sent;
        let (NatEvent::BlockAllocated { block, .. } | NatEvent::BlockReleased { block, .. }) =
            event(at).event
        else {
            continue;
        };
        let question = Question {
            outside: block.ip.into(),
            port: block.first + 7,
            at_ms: START_MS + at / 100 + 1,
            protocol: None,
        };
        let began = Instant::now();
        found += u32::from(who(dir.path(), &question).is_ok_and(|answer| answer.holding.is_some()));
        worst = worst.max(began.elapsed());
    }
    println!(
        "50 questions ({found} with a holder): {:.1} ms each, {:.1} ms at worst",
        asked.elapsed().as_secs_f64() * 20.0,
        worst.as_secs_f64() * 1e3
    );
}
