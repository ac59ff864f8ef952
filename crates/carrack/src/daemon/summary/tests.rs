use super::*;

fn accounts() -> Accounts {
    let mut a = Accounts {
        rx: 1_000,
        handed_in: 50,
        originated: 5,
        forwarded: 900,
        punted: 20,
        consumed: 10,
        handed_out: 40,
        held: 3,
        ..Accounts::default()
    };
    a.drop_n(Reason::Ipv4BadChecksum, 30);
    a.drop_n(Reason::FragmentOverlap, 2);
    a.drop_n(Reason::HandoverQueueFull, 1);
    a.drop_n(Reason::NatFiltered, 40);
    a.drop_n(Reason::FragmentationNeeded, 9);
    a
}

#[test]
fn every_packet_of_the_graph_ends_in_one_place() {
    let total = accounts();
    assert_eq!(total.balance(), 0, "the example itself balances");
    let graph = graph(&total);
    let ends = graph.stages.iter().flat_map(|s| s.ended.iter().chain(&s.drops)).map(|end| end.count);
    assert_eq!(ends.sum::<u64>(), 1_000 + 50 + 5);
    let stage = |name: &str| graph.stages.iter().find(|s| s.stage == name).unwrap();
    assert_eq!(stage("fragments").packets, 970);
    assert_eq!(stage("nat").packets, 970 - 2 - 41 + 50);
    assert_eq!(stage("finish").packets, 900 + 20 + 10 + 3);
    assert_eq!(stage("nat").drops, [NamedCount { name: "nat-filtered".into(), count: 40 }]);
}

#[test]
fn every_reason_belongs_to_a_stage_that_is_shown() {
    for row in REASONS {
        let mut total = Accounts { rx: 1, ..Accounts::default() };
        total.drop_n(row.reason, 1);
        let drops: u64 = graph(&total).stages.iter().flat_map(|s| &s.drops).map(|d| d.count).sum();
        assert_eq!(drops, 1, "{}", row.name);
    }
}

#[test]
fn sessions_began_if_they_live_or_have_ended() {
    let workers = [(10, 3), (5, 0)].map(|(sessions, sessions_deleted)| WorkerStats {
        sessions,
        sessions_deleted,
        ..WorkerStats::default()
    });
    let counts = session_counters(workers.iter()).map(|counter| (counter.name, counter.count));
    assert_eq!(counts, [("sessions-created".into(), 18), ("sessions-deleted".into(), 3)]);
}
