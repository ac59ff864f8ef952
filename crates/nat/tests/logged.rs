//! What the log is told of single translations (RFC 8158 §4.6.1 to §4.6.4; RFC 6888 REQ-12).

mod common;

use carrack_nat::policy::{Assignment, Logged};
use carrack_nat::row::{Change, NatEvent};
use common::*;

fn telling(logged: Logged) -> carrack_nat::policy::Instance {
    instance_with(|i| {
        i.logged = logged;
        i.assignment = Assignment::Arbitrary;
    })
}

/// What was told of translations: change, inside port, outside port, remote port.
fn told(w: &World) -> Vec<(Change, u16, u16, Option<u16>)> {
    let translation = |event: &NatEvent| match event {
        NatEvent::Translation { change, inside, outside, remote, remote6: None, protocol: 17, .. } => {
            assert_eq!(inside.ip, host("10.0.0.1"));
            Some((*change, inside.port, outside.port, remote.map(|remote| remote.port)))
        }
        NatEvent::Translation { .. } => panic!("{event:?}"),
        _ => None,
    };
    w.events.iter().filter_map(translation).collect()
}

/// Two sessions of one mapping, then all of it ends.
fn changes(logged: Logged) -> Vec<(Change, Option<u16>)> {
    let mut w = world(telling(logged));
    let outside = w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap().port;
    w.udp_out("10.0.0.1:1000", "198.51.100.2:54").unwrap();
    w.wait(1_000);
    let told = told(&w);
    assert!(told.iter().all(|(_, inside, port, _)| (*inside, *port) == (1_000, outside)), "{told:?}");
    let mut changes: Vec<_> = told.into_iter().map(|(change, _, _, remote)| (change, remote)).collect();
    // Sessions end in the order of their lines, which nobody promises.
    changes.sort_by_key(|(change, remote)| (*change as u8, *remote));
    changes
}

#[test]
fn nothing_of_single_translations_is_told_unless_asked_for() {
    assert_eq!(changes(Logged::Blocks), []);
}

#[test]
fn mappings_are_told_once_however_many_sessions_they_have() {
    assert_eq!(changes(Logged::Mappings), [(Change::MappingCreated, None), (Change::MappingDeleted, None)]);
}

#[test]
fn sessions_are_told_instead_of_mappings_and_without_their_destination() {
    let (created, deleted) = ((Change::SessionCreated, None), (Change::SessionDeleted, None));
    assert_eq!(changes(Logged::Sessions), [created, created, deleted, deleted]);
}

#[test]
fn destinations_are_told_only_on_demand() {
    let at = |change, port| (change, Some(port));
    assert_eq!(
        changes(Logged::Destinations),
        [
            at(Change::SessionCreated, 53),
            at(Change::SessionCreated, 54),
            at(Change::SessionDeleted, 53),
            at(Change::SessionDeleted, 54)
        ]
    );
}

/// An end without a beginning would free what somebody has; a beginning without an end would never free it.
#[test]
fn end_is_told_exactly_when_the_beginning_was_whatever_a_reload_says_in_between() {
    let mut w = world(telling(Logged::Destinations));
    w.udp_out("10.0.0.1:1000", "198.51.100.1:53").unwrap();
    w.configure(vec![telling(Logged::Blocks)]);
    w.udp_out("10.0.0.1:1001", "198.51.100.1:53").unwrap();
    w.configure(vec![telling(Logged::Mappings)]);
    w.wait(1_000);
    let ports: Vec<_> =
        told(&w).into_iter().map(|(change, inside, _, remote)| (change, inside, remote)).collect();
    assert_eq!(ports, [(Change::SessionCreated, 1_000, Some(53)), (Change::SessionDeleted, 1_000, Some(53))]);
}
