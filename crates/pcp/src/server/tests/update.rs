//! Clients told of what a reload has moved (RFC 6887 §14.2).

use super::*;

const NEW_POOL: u32 = 0xcb00_7101;
const NEW: &str = "203.0.113.1";

/// The pool gets another address: what the engine had is gone.
fn renumber(w: &mut World) {
    w.pool = NEW_POOL;
    w.ports.clear();
    w.server.configure(config(), w.now);
}

/// Updates of three seconds, with their milliseconds after the reload; the client says nothing.
fn listen(w: &mut World) -> Vec<(u64, Answer)> {
    let start = w.now;
    let mut told: Vec<(u64, Answer)> = w.run().into_iter().map(|octets| (0, Answer(octets))).collect();
    for _ in 0..60 {
        w.now = w.now.plus_ns(50_000_000);
        let at = (w.now.ns - start.ns) / 1_000_000;
        told.extend(w.run().into_iter().map(|octets| (at, Answer(octets))));
    }
    told
}

/// RFC 6887 §14.2: three times, the second a quarter of a second and the third 750 ms after the first; the answer to a
/// MAP with the new place, the time that is left, and the epoch that went on.
#[test]
fn a_renumbered_pool_is_told_to_whoever_has_a_mapping() {
    let mut w = World::new();
    w.wait(400);
    let before = w.ask(&map(8_080).with(&[filter(120, 443, "198.51.100.0")]));
    w.wait(100);
    renumber(&mut w);
    let told = listen(&mut w);
    let times: Vec<u64> = told.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 250, 750]);
    for (_, answer) in &told {
        assert_eq!((answer.0[1], answer.code()), (0x81, 0));
        assert!((499..=500).contains(&answer.lifetime_s()), "{}", answer.lifetime_s());
        assert!((500..=501).contains(&answer.epoch_s()), "the epoch goes on: {}", answer.epoch_s());
        assert_eq!(answer.0[24..42], before.0[24..42], "nonce, protocol and inside port");
        assert_eq!(answer.outside_port(), before.outside_port(), "free there, too");
        assert_eq!(answer.0[44..60], mapped(NEW));
        assert_eq!(answer.0[60..], filter(120, 443, "198.51.100.0"), "who may come in");
    }
    assert_eq!((w.server.counters().moved, w.server.counters().updates), (1, 3));
    assert_eq!((w.server.counters().lost, w.server.mappings(w.now).count()), (0, 1));
    // A reload that moves nothing is told to nobody.
    w.server.configure(config(), w.now);
    assert!(listen(&mut w).is_empty());
}

/// RFC 6887 §14.2: "Once the PCP server has received a refreshed state for that mapping, the PCP server SHOULD cease".
#[test]
fn a_client_that_renews_is_told_no_more() {
    let mut w = World::new();
    w.ask(&map(8_080));
    w.ask(&map(8_081));
    renumber(&mut w);
    assert_eq!(w.run().len(), 2, "both at once");
    assert_eq!(w.ask(&map(8_080)).0[44..60], mapped(NEW));
    let rest = listen(&mut w);
    assert_eq!(rest.len(), 2, "{rest:?}");
    assert!(rest.iter().all(|(_, answer)| answer.0[40..42] == 8_081u16.to_be_bytes()));
}

/// RFC 6887 §14.2: to the address that the last answer went to, and with THIRD_PARTY where that was asked with; a PEER by
/// an answer to a PEER.
#[test]
fn third_parties_and_peers_are_told_as_they_asked() {
    let mut w = World::new();
    let third = option(1, &mapped(HOST));
    let by = Ask { client: "10.0.0.9".into(), claimed: "10.0.0.9".into(), ..map(8_080) };
    w.ask(&by.with(std::slice::from_ref(&third)));
    w.ask(&peer(5_000, ("198.51.100.1", 443)));
    renumber(&mut w);
    w.server.handle_timeout(w.now);
    while let Some((request, ask)) = w.server.poll_ask() {
        let answer = w.engine(&ask);
        w.server.handle_answer(w.now, request, answer);
        w.server.handle_timeout(w.now);
    }
    w.server.handle_timeout(w.now);
    let frames = std::iter::from_fn(|| w.server.poll_transmit()).map(|(_, frame)| frame);
    let mut frames: Vec<Vec<u8>> = frames.filter(|frame| frame[0] & 1 == 0).collect();
    frames.sort_by_key(|frame| payload(frame)[1]);
    let [a_map, a_peer] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!(a_map[30..34], [10, 0, 0, 9], "to who asked");
    assert_eq!(payload(a_map)[60..], third);
    assert_eq!(a_peer[30..34], [10, 0, 0, 7]);
    let a_peer = payload(a_peer);
    assert_eq!((a_peer[1], a_peer[3]), (0x82, 0));
    assert_eq!(a_peer[44..60], mapped(NEW));
    assert_eq!(a_peer[60..62], 443u16.to_be_bytes());
    assert_eq!(a_peer[64..80], mapped("198.51.100.1"));
}

/// RFC 6887 §14.2: "If the earlier associated request contained the PREFER_FAILURE option, and the same external IP
/// address, protocol, and port cannot be provided, the error CANNOT_PROVIDE_EXTERNAL SHOULD be sent."
#[test]
fn who_insists_on_a_place_is_told_that_it_is_gone() {
    let mut w = World::new();
    w.wait(50);
    let insists = Ask { suggested: (41_000, "192.0.2.1"), ..map(8_080) }.with(&[option(2, &[])]);
    assert_eq!(w.ask(&insists).code(), 0);
    renumber(&mut w);
    let told = listen(&mut w);
    assert_eq!(told.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 250, 750]);
    for (_, answer) in &told {
        assert_eq!((answer.code(), answer.lifetime_s()), (11, 30));
        assert_eq!(answer.0[24..], insists.octets()[24..], "an error is the request again");
        assert!(answer.epoch_s() >= 50, "told is not lost");
    }
    assert_eq!((w.server.counters().lost, w.server.mappings(w.now).count()), (1, 0));
}

/// What the engine cannot give anew is an error for who had it, and a new epoch for all.
#[test]
fn a_pool_that_is_full_is_told_and_begins_the_epoch_anew() {
    let mut w = World::new();
    w.wait(50);
    w.ask(&map(8_080));
    renumber(&mut w);
    w.refusal = Some(PortRefusal::Short(Reason::NatPortsExhausted));
    let told = listen(&mut w);
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|(_, answer)| answer.code() == 8), "NO_RESOURCES");
    assert_eq!(w.server.counters().lost, 1);
    assert!(w.server.epoch_s(w.now) <= 3);
}

/// RFC 6887 §15.1: as after an end of its own, a mapping that management ends has lifetime 0; whoever is served no more is
/// told that.
#[test]
fn who_loses_a_mapping_to_management_or_to_policy_is_told() {
    let mut w = World::new();
    let before = w.ask(&map(8_080));
    assert_eq!(w.server.clear(w.now, None), 1);
    let told = listen(&mut w);
    assert_eq!(told.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 250, 750]);
    for (_, answer) in told {
        assert_eq!((answer.code(), answer.lifetime_s()), (0, 0));
        assert_eq!(answer.0[24..], before.0[24..], "which it was");
    }
    // Asked for anew meanwhile, it is there.
    w.ask(&map(8_080));
    w.server.clear(w.now, None);
    assert_eq!(w.run().len(), 1);
    assert_eq!(w.ask(&map(8_080)).lifetime_s(), 600);
    assert!(listen(&mut w).is_empty());
    let narrow = Served { subscribers: vec!["10.1.0.0/16".parse().unwrap()], ..config().served.remove(0) };
    w.server.configure(Config { served: vec![narrow], ..config() }, w.now);
    let told = listen(&mut w);
    assert!(told.len() == 3 && told.iter().all(|(_, answer)| answer.code() == 2), "{told:?}");
}

/// Workers change over one after the other, and give out no port before all have.
#[test]
fn a_mapping_is_not_lost_while_workers_change_over() {
    let mut w = World::new();
    w.wait(50);
    w.ask(&map(8_080));
    renumber(&mut w);
    w.refusal = Some(PortRefusal::Short(Reason::NatPoolChanging));
    assert!(w.run().is_empty());
    w.now = w.now.plus_ns(5_000_000);
    assert!(w.run().is_empty() && w.server.poll_timeout(w.now) <= Some(w.now.plus_ns(5_000_000)));
    w.refusal = None;
    let told = listen(&mut w);
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|(_, answer)| answer.code() == 0 && answer.epoch_s() >= 50));
    // When it lasts, it is told.
    renumber(&mut w);
    w.refusal = Some(PortRefusal::Short(Reason::NatPoolChanging));
    w.pool = 0xc000_0201;
    let told: Vec<_> = (0..2).flat_map(|_| listen(&mut w)).collect();
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|(at, answer)| answer.code() == 7 && (*at == 3_000 || *at <= 750)), "{told:?}");
    assert_eq!(w.server.counters().lost, 1);
}

/// NAT-PMP has no such message, and after a restart nobody knows where a client was: the epoch begins anew for them.
#[test]
fn who_cannot_be_told_hears_of_a_new_epoch() {
    let mut w = World::new();
    w.wait(50);
    w.pmp(&[0, 2, 0, 0, 0x1f, 0x90, 0, 0, 0, 0, 2, 0]);
    renumber(&mut w);
    assert!(listen(&mut w).is_empty());
    assert_eq!((w.server.counters().lost, w.server.counters().updates), (1, 0));
    assert!(w.server.epoch_s(w.now) <= 3);
}

/// The table may be far longer than the queue of frames: all are told, none is crowded out.
#[test]
fn thousands_are_told_without_losing_one() {
    let many = |n: u32| {
        let mut config = config();
        config.mappings_max = n;
        config.served[0].allowed.mappings_max = n;
        config
    };
    let mut w = World::with(many(6_000), None);
    for port in 0..6_000 {
        assert_eq!(w.ask(&map(2_000 + port)).code(), 0);
    }
    (w.pool, w.next_port) = (NEW_POOL, 1_000);
    w.ports.clear();
    w.server.configure(many(6_000), w.now);
    assert_eq!(listen(&mut w).len(), 18_000);
    assert_eq!(w.server.counters().transmit_full, 0);
}
