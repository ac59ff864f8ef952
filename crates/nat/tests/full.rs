//! Full tables and indexes, and sources chosen to collide: refused by name, nothing lost, everything comes back.

mod common;

use carrack_base::{Reason, VrfId};
use carrack_nat::Direction;
use carrack_nat::policy::Capacity;
use common::*;

/// The bits of a hash that make the tag.
const TAG: u64 = 0xfffe;
const REMOTE: &str = "198.51.100.1:53";

/// Remote endpoints whose sessions all want the same two buckets: what only somebody who knows the key could choose.
/// Where a hash goes is repeated here from `tables/src/index.rs`.
fn colliding(w: &World, sessions: u64, count: usize) -> Vec<(u32, u16)> {
    let buckets = (sessions * 2).div_ceil(8) + 2;
    let place = |hash: u64| ((u128::from(hash) * u128::from(buckets)) >> 64, hash & TAG);
    let mut flow = parse(&frames::udp(e("10.0.0.1:1000"), e("198.51.100.1:1")), VrfId(0), Direction::Out);
    let wanted = place(w.nats[0].hash(&flow, Direction::Out));
    let mut found = vec![];
    for ip in addr("198.18.0.0").. {
        for port in 1..=u16::MAX {
            (flow.dst, flow.dport) = (ip, port);
            if place(w.nats[0].hash(&flow, Direction::Out)) == wanted {
                found.push((ip, port));
                if found.len() == count {
                    return found;
                }
            }
        }
    }
    found
}

/// `nat-index-full`: an index whose bounded search finds no slot refuses the session and takes nothing for it, while
/// others go on.
#[test]
fn full_bucket_refuses_by_name_and_leaks_nothing() {
    let sessions = 64;
    let mut w = World::new(vec![instance()], 1, Capacity { sessions, ..SMALL });
    let remotes = colliding(&w, u64::from(sessions), 24);
    for round in 0..2 {
        let mut refused = 0;
        for (ip, port) in &remotes {
            let remote = format!("{}:{port}", std::net::Ipv4Addr::from(*ip));
            match w.udp_out("10.0.0.1:1000", &remote) {
                Ok(_) => {}
                Err(Reason::NatIndexFull) => refused += 1,
                Err(other) => panic!("{other:?}"),
            }
            check::invariants(&mut w);
        }
        // Two buckets of ten slots.
        assert_eq!((refused, w.session_count()), (4, 20), "round {round}");
        assert!(w.udp_out("10.0.0.1:1000", "198.51.100.1:7").is_ok(), "others go on");
        w.wait(302 + 125);
        check::empty(&mut w);
    }
}

/// A table of any size holds as many sessions as it says, and says so when it is full.
#[test]
fn tables_of_any_size_fill_to_their_last_line() {
    for sessions in 1..160 {
        let mut w = World::new(vec![instance()], 1, Capacity { sessions, ..SMALL });
        for n in 0..sessions + 8 {
            let made = w.udp_out(&format!("10.0.0.{}:{}", n % 200 + 1, n + 1), REMOTE);
            let full = if n < sessions { None } else { Some(Reason::NatSessionTableFull) };
            assert_eq!(made.err(), full, "{n} of {sessions}");
        }
        check::invariants(&mut w);
        w.wait(302 + 125);
        check::empty(&mut w);
    }
}

/// Sources that differ only where a linear hash would not see it (CRC, sums, low bits masked off) fill the tables as
/// well as any: every one gets its session, up to the last line.
#[test]
fn colliding_sources_fill_the_table_to_its_last_line() {
    let strides: [fn(u32) -> (u32, u32); 4] = [
        // Same port and low bits: only the high bits of the address move.
        |n| (addr("10.0.0.1") + (n << 12), 1_000),
        // Address and port move against each other: their sum and their exclusive or stay.
        |n| (addr("10.0.0.0") + n, 60_000 - n),
        |n| (addr("10.0.0.0") + n, (n ^ 0x5555) & 0xffff),
        // Multiples of the CRC-32C polynomial.
        |n| (addr("10.0.0.0") ^ (0x1edc_6f41u32.wrapping_mul(n) & 0x00ff_ffff), 1_000),
    ];
    for stride in strides {
        let capacity = Capacity { sessions: 2_048, mappings: 2_048, subscribers: 2_048, ..SMALL };
        let mut w = World::new(vec![instance()], 1, capacity);
        let mut made = 0;
        for n in 1..=2_048 {
            let (ip, port) = stride(n);
            let inside = format!("{}:{port}", std::net::Ipv4Addr::from(ip));
            made += u32::from(w.udp_out(&inside, REMOTE).is_ok());
        }
        assert_eq!(made, 2_048);
        w.wait(302 + 125);
        check::empty(&mut w);
    }
}
