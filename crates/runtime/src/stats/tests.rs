use super::*;

#[test]
fn accounts_and_stats_survive_the_board() {
    let mut accounts = Accounts { rx: 1, handed_in: 2, originated: 3, forwarded: 4, ..Accounts::default() };
    (accounts.punted, accounts.consumed, accounts.handed_out, accounts.held) = (5, 6, 7, 8);
    (accounts.rx_bytes, accounts.forwarded_bytes) = (9, 10);
    for (n, drop) in accounts.drops.iter_mut().enumerate() {
        *drop = 100 + n as u64;
    }
    let stats = LoopStats { loops: 1, loops_idle: 2, busy_ns: 3, idle_ns: 4, sleeps: 5 };
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
