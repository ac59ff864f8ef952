use super::*;

#[test]
fn accounts_and_stats_survive_the_board() {
    let mut accounts = Accounts { rx: 1, handed_in: 2, originated: 3, forwarded: 4, ..Accounts::default() };
    (accounts.punted, accounts.consumed, accounts.handed_out, accounts.held) = (5, 6, 7, 8);
    (accounts.rx_bytes, accounts.forwarded_bytes) = (9, 10);
    for (n, drop) in accounts.drops.iter_mut().enumerate() {
        *drop = 100 + n as u64;
    }
    let mut stats =
        LoopStats { loops: 1, loops_idle: 2, busy_ns: 3, idle_ns: 4, sleeps: 5, ..LoopStats::default() };
    stats.burst(64);
    let link = LinkInfo { mac: MacAddress([1, 2, 3, 4, 5, 6]), mtu: 1500, up: true, speed_mbps: Some(0) };
    let port = PortReport { link, stats: PortStats { rx_packets: 1, tx_errors: 8, ..PortStats::default() } };
    let mut words = Vec::new();
    write_accounts(&accounts, &mut words);
    assert_eq!(words.len(), ACCOUNTS_WORDS);
    stats.write(&mut words);
    assert_eq!(words.len(), ACCOUNTS_WORDS + LOOP_WORDS);
    port.write(&mut words);
    assert_eq!(words.len(), ACCOUNTS_WORDS + LOOP_WORDS + PortReport::WORDS);
    let mut words = Words(&words);
    assert_eq!(read_accounts(&mut words), accounts);
    assert_eq!(LoopStats::read(&mut words), stats);
    assert_eq!(PortReport::read(&mut words), port);
}

#[test]
fn bursts_fall_into_the_class_of_their_size() {
    for (packets, class) in [(0, "0"), (1, "1"), (2, "2"), (3, "3-4"), (4, "3-4"), (5, "5-8"), (8, "5-8")]
        .into_iter()
        .chain([(9, "9-16"), (16, "9-16"), (17, "17-32"), (33, "33-64"), (64, "33-64"), (65, "33-64")])
    {
        let mut stats = LoopStats::default();
        stats.burst(packets);
        let found = stats.bursts.iter().position(|n| *n == 1).unwrap();
        assert_eq!(BURST_CLASS_NAMES[found], class, "{packets}");
    }
}
