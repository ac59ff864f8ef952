use std::cell::Cell;

use proptest::prelude::*;

use super::*;

thread_local! {
    /// Entries that lookups have looked at.
    pub(super) static LOOKED_AT: Cell<u32> = const { Cell::new(0) };
}

fn rules(statics: Vec<StaticRule>) -> Rules {
    Rules::of(&Instance { statics, ..crate::ownership::tests::instance(1, 2_000, 64) })
}

const fn forward(outside: (u32, u16), count: u16, inside: (u32, u16)) -> StaticRule {
    StaticRule::Forward {
        proto: Proto::Tcp,
        outside: outside.0,
        outside_port: outside.1,
        count,
        inside: Inside::V4(inside.0),
        inside_port: inside.1,
    }
}

#[test]
fn what_a_lookup_looks_at_hardly_grows_with_the_number_of_rules() {
    for (number, most) in [(1, 1), (1_000, 11), (50_000, 17)] {
        let of = |step: u32| forward((1, 1_000 + step as u16), 1, (1_000 + step, 80));
        let many = rules((0..number).map(of).collect());
        LOOKED_AT.set(0);
        let host = Inside::V4(1_000 + number / 2);
        let port = 1_000 + (number / 2) as u16;
        assert_eq!(many.forwarded(Proto::Tcp, (1, port)), Some((host, 80)));
        assert!(many.leads_to(Proto::Tcp, (host, 80)) && many.forwards_to(host));
        assert!(LOOKED_AT.get() <= 3 * most, "{} of {number}", LOOKED_AT.get());
    }
}

proptest! {
    /// Against a look through all rules, one after the other.
    #[test]
    fn lookups_find_what_a_walk_through_all_rules_finds(
        forwards in prop::collection::vec((1_u32..4, 0_u16..30, 1_u16..6, 0_u32..4, 0_u16..40, any::<bool>()), 0..12),
        own in prop::collection::vec((0_u32..12, 0_u32..3), 0..4),
        asked in prop::collection::vec((0_u32..16, 0_u16..50), 40),
    ) {
        let mut statics: Vec<StaticRule> = vec![];
        let (mut taken, mut inside_taken) = (vec![], vec![]);
        for (at, (ip, len)) in (0..).zip(own) {
            if (ip..=ip + len).all(|ip| !inside_taken.contains(&ip)) {
                inside_taken.extend(ip..=ip + len);
                let range = |first| Range4 { first, last: first + len };
                statics.push(StaticRule::OneToOne { inside: range(ip), outside: range(100 + 10 * at) });
            }
        }
        for (outside, port, count, inside, inside_port, udp) in forwards {
            let all = (port..port + count).map(|port| (udp, outside, port));
            if all.clone().all(|each| !taken.contains(&each)) {
                taken.extend(all);
                let mut rule = forward((outside, port), count, (inside, inside_port));
                if let (true, StaticRule::Forward { proto, .. }) = (udp, &mut rule) {
                    *proto = Proto::Udp;
                }
                statics.push(rule);
            }
        }
        let built = rules(statics.clone());
        for (ip, port) in asked {
            let one_to_one = statics.iter().find_map(|rule| match *rule {
                StaticRule::OneToOne { inside, outside } => inside.contains(ip).then(|| outside.first + (ip - inside.first)),
                StaticRule::Forward { .. } => None,
            });
            prop_assert_eq!(built.one_to_one(ip), one_to_one);
            for asked in [Proto::Tcp, Proto::Udp] {
                let (mut to, mut leads, mut to_host) = (None, false, false);
                for rule in &statics {
                    let StaticRule::Forward { proto, outside, outside_port, count, inside, inside_port } = *rule else {
                        continue;
                    };
                    to_host |= inside == Inside::V4(ip);
                    for step in (0..count).filter(|_| proto == asked) {
                        if (outside, outside_port + step) == (ip, port) {
                            to = Some((inside, inside_port + step));
                        }
                        leads |= (inside, inside_port + step) == (Inside::V4(ip), port);
                    }
                }
                prop_assert_eq!(built.forwarded(asked, (ip, port)), to);
                prop_assert_eq!(built.leads_to(asked, (Inside::V4(ip), port)), leads);
                prop_assert_eq!(built.forwards_to(Inside::V4(ip)), to_host);
                let homes = statics.iter().filter_map(|rule| match *rule {
                    StaticRule::Forward { inside, outside, .. } => (inside == Inside::V4(ip)).then_some(outside),
                    StaticRule::OneToOne { .. } => None,
                });
                prop_assert_eq!(built.home_of(Inside::V4(ip)), homes.min());
            }
        }
    }
}

#[test]
fn no_rules_lead_nowhere() {
    let none = rules(vec![]);
    assert_eq!(none.one_to_one(7), None);
    assert_eq!(none.forwarded(Proto::Udp, (7, 7)), None);
    assert!(!none.leads_to(Proto::Udp, (Inside::V4(7), 7)) && !none.forwards_to(Inside::V6(7)));
}
