//! Which queue receives what on cards that steer: a stand-in offers what cards offer, notes what it is asked for, and does it.

mod common;

use std::ffi::c_int;

use carrack_io_dpdk::{PortOptions, Spread, Steer, SteerBy};

/// As in `card/card.c`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Card {
    offers_one_address: bool,
    accepts_one_address: bool,
    accepts_table: bool,
    accepts_rules: bool,
    accepts_tagged_rules: bool,
    table_size: u16,
    key_bytes: u8,
}

#[link(name = "carrack_test_card", kind = "static")]
unsafe extern "C" {
    fn card_insert(card: *const Card);
    fn card_queue(frame: *const u8, in_place: bool) -> c_int;
}

/// A card that hashes one address by itself and has a table of queues.
const BY_TABLE: Card = Card {
    offers_one_address: true,
    accepts_one_address: true,
    accepts_table: true,
    accepts_rules: false,
    accepts_tagged_rules: false,
    table_size: 512,
    key_bytes: 52,
};

/// A card that does so by rules only.
const BY_RULES: Card = Card {
    offers_one_address: false,
    accepts_rules: true,
    accepts_tagged_rules: true,
    table_size: 128,
    key_bytes: 40,
    ..BY_TABLE
};

const KEY: [u8; 4] = [0x9a, 0x31, 0x5c, 0x77];
const QUEUES: u16 = 3;

fn steer(by: SteerBy) -> Steer {
    // No order that a driver might begin with.
    Steer { by, key: KEY, table: std::array::from_fn(|slot| (slot as u16 * 5 / 7) % QUEUES) }
}

/// The Toeplitz hash of one address under a key that repeats [`KEY`].
fn hash(address: u32) -> u32 {
    let key = u32::from_be_bytes(KEY);
    (0..32).filter(|bit| address << bit >> 31 != 0).fold(0, |sum, bit| sum ^ key.rotate_left(bit))
}

/// Opens a port on the card, one that no other test of this process has; what is said of it.
fn open(dpdk: &carrack_io_dpdk::Dpdk, number: usize, card: &Card, by: SteerBy) -> Spread {
    // SAFETY: the layout is that of the C side, and no other thread uses the card.
    unsafe { card_insert(card) };
    let device = format!("vdev:net_null{number},size=64,copy=1").parse().expect("a device line");
    let name = format!("card{number}");
    let options =
        PortOptions { name: name.clone(), queues: QUEUES, steer: Some(steer(by)), ..PortOptions::default() };
    let ports = dpdk.open(&device, options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(ports.len(), usize::from(QUEUES));
    dpdk.watch(&name).expect("the port is open").spread()
}

/// Where the card delivers a packet.
fn queue_of(source: u32, destination: u32, tagged: bool, in_place: bool) -> Option<u16> {
    let mut frame = vec![0; 12];
    if tagged {
        frame.extend([0x81, 0x00, 0x00, 0x2a]);
    }
    frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend(source.to_be_bytes());
    frame.extend(destination.to_be_bytes());
    frame.resize(64, 0);
    // SAFETY: the frame is longer than the headers that are read.
    let queue = unsafe { card_queue(frame.as_ptr(), in_place) };
    u16::try_from(queue).ok()
}

/// How many of a thousand packets come to the queue that the table has for their address.
fn in_their_queue(by: SteerBy, tagged: bool, in_place: bool) -> usize {
    let table = steer(by).table;
    let scatter = |n: u32| n.wrapping_mul(0x9e37_79b1) ^ n << 7;
    let packets = (1..=1_000).map(|n| (scatter(n), scatter(n + 5_000)));
    let is_right = |&(source, destination): &(u32, u32)| {
        let own = if by == SteerBy::Source { source } else { destination };
        let wanted = table[hash(own) as usize % table.len()];
        queue_of(source, destination, tagged, in_place) == Some(wanted)
    };
    packets.filter(is_right).count()
}

/// All cases are one test: there is one card, and one DPDK, in a process.
#[test]
fn cards_deliver_each_packet_to_the_queue_of_its_address() {
    need_root!();
    let dpdk = common::dpdk();
    let mut number = 0;
    let mut opened = |card: &Card, by| {
        number += 1;
        open(&dpdk, number, card, by)
    };
    for card in [BY_TABLE, Card { table_size: 128, key_bytes: 40, ..BY_TABLE }, BY_RULES] {
        for by in [SteerBy::Source, SteerBy::Destination] {
            assert_eq!(opened(&card, by), Spread::AsAsked);
            for (tagged, in_place) in [(false, false), (false, true), (true, false), (true, true)] {
                assert_eq!(in_their_queue(by, tagged, in_place), 1_000, "{by:?} {tagged} {in_place}");
            }
        }
    }
    // Tagged packets are spread as the card likes, all others go where they belong.
    assert_eq!(opened(&Card { accepts_tagged_rules: false, ..BY_RULES }, SteerBy::Source), Spread::AsAsked);
    assert_eq!(in_their_queue(SteerBy::Source, false, true), 1_000);
    assert!(in_their_queue(SteerBy::Source, true, true) < 600);
    for (what, card) in [
        ("a table of another shape", Card { table_size: 200, ..BY_TABLE }),
        ("no table", Card { table_size: 0, ..BY_TABLE }),
        ("a table that cannot be changed", Card { accepts_table: false, ..BY_TABLE }),
        ("one address offered, then refused", Card { accepts_one_address: false, ..BY_TABLE }),
        ("a key that is too long", Card { key_bytes: 200, ..BY_TABLE }),
        ("no key for its hash", Card { key_bytes: 0, ..BY_TABLE }),
        ("no key for rules", Card { key_bytes: 0, ..BY_RULES }),
        ("no rules", Card { accepts_rules: false, ..BY_RULES }),
    ] {
        assert_eq!(opened(&card, SteerBy::Source), Spread::ByItsHash, "{what}");
    }
    // What is offered only to be refused may still be granted by a rule.
    let refused = Card { accepts_one_address: false, accepts_rules: true, ..BY_TABLE };
    assert_eq!(opened(&refused, SteerBy::Source), Spread::AsAsked);
    assert_eq!(in_their_queue(SteerBy::Source, false, false), 1_000);
}
