//! TCP: states, timers, unsolicited SYNs (RFC 5382, RFC 7857 §2).

mod common;

use carrack_base::Reason;
use carrack_nat::Direction;
use carrack_nat::row::TcpState;
use common::*;

const IN: &str = "10.0.0.1:1000";
const SERVER: &str = "198.51.100.1:80";

fn state(w: &mut World) -> TcpState {
    let rows = w.sessions();
    assert_eq!(rows.len(), 1);
    rows[0].tcp
}

/// RFC 5382 REQ-2: three-way handshake, then close from both sides.
#[test]
fn connection_opens_and_closes() {
    let mut w = world(instance());
    let outside = w.connect(IN, SERVER);
    assert_eq!(state(&mut w), TcpState::Established);
    w.tcp_out(IN, SERVER, FIN | ACK).unwrap();
    assert_eq!(state(&mut w), TcpState::InsideFin);
    w.tcp_in(SERVER, outside, ACK).unwrap();
    w.tcp_in(SERVER, outside, FIN | ACK).unwrap();
    assert_eq!(state(&mut w), TcpState::BothFin);
    w.tcp_out(IN, SERVER, ACK).unwrap();
    w.wait(239);
    assert_eq!(state(&mut w), TcpState::BothFin);
    w.wait(2);
    check::empty(&mut w);
}

/// RFC 5382 REQ-2, REQ-2a: simultaneous open through the NAT.
#[test]
fn simultaneous_open_establishes() {
    let mut w = world(instance());
    let outside = w.tcp_out(IN, SERVER, SYN).unwrap();
    w.tcp_in(SERVER, outside, SYN).unwrap();
    w.tcp_out(IN, SERVER, SYN | ACK).unwrap();
    w.tcp_in(SERVER, outside, SYN | ACK).unwrap();
    assert_eq!(state(&mut w), TcpState::Established);
}

/// RFC 5382 REQ-5: an established connection idles 2 hours 4 minutes.
#[test]
fn established_connection_idles_two_hours_four_minutes() {
    let mut w = world(instance());
    let outside = w.connect(IN, SERVER);
    w.wait(7_439);
    assert!(w.tcp_in(SERVER, outside, ACK).is_ok());
    w.wait(7_439);
    assert!(w.tcp_out(IN, SERVER, ACK).is_ok());
    w.wait(7_442);
    assert_eq!(w.tcp_out(IN, SERVER, ACK), Err(Reason::NatTcpNoSession));
    check::empty(&mut w);
}

/// RFC 7857 §2.1, RFC 5382 REQ-5: opening and closing have timers of their own, four minutes by default.
#[test]
fn opening_and_closing_have_their_own_timers() {
    let mut w = world(instance());
    w.tcp_out(IN, SERVER, SYN).unwrap();
    w.wait(239);
    assert_eq!(w.session_count(), 1);
    w.wait(2);
    check::empty(&mut w);

    let mut w = world(instance_with(|i| (i.timeouts.tcp_opening_s, i.timeouts.tcp_closing_s) = (30, 60)));
    w.tcp_out(IN, SERVER, SYN).unwrap();
    w.wait(32);
    check::empty(&mut w);
    let outside = w.connect(IN, SERVER);
    w.wait(300);
    w.tcp_out(IN, SERVER, FIN | ACK).unwrap();
    w.tcp_in(SERVER, outside, FIN | ACK).unwrap();
    w.wait(59);
    assert_eq!(w.session_count(), 1);
    w.wait(3);
    check::empty(&mut w);
}

/// RFC 5382 REQ-5: a half-closed connection still carries data for hours.
#[test]
fn half_closed_connection_keeps_the_long_timer() {
    let mut w = world(instance());
    let outside = w.connect(IN, SERVER);
    w.tcp_out(IN, SERVER, FIN | ACK).unwrap();
    w.wait(3_600);
    assert!(w.tcp_in(SERVER, outside, ACK).is_ok());
}

/// RFC 7857 §2.2: a RST is translated and starts four minutes; data revives the connection.
#[test]
fn reset_keeps_state_for_four_minutes() {
    let mut w = world(instance());
    let outside = w.connect(IN, SERVER);
    w.tcp_in(SERVER, outside, RST).unwrap();
    assert_eq!(state(&mut w), TcpState::Reset);
    w.wait(200);
    // A repeated RST does not start the four minutes again.
    w.tcp_in(SERVER, outside, RST).unwrap();
    w.wait(42);
    check::empty(&mut w);

    let outside = w.connect(IN, SERVER);
    w.tcp_in(SERVER, outside, RST).unwrap();
    w.wait(200);
    w.tcp_out(IN, SERVER, ACK).unwrap();
    assert_eq!(state(&mut w), TcpState::Established);
    w.wait(7_000);
    assert!(w.tcp_in(SERVER, outside, ACK).is_ok());
}

/// RFC 7857 §7.1: RSTs from inside to a stranger keep nothing alive.
#[test]
fn outbound_resets_refresh_nothing() {
    let mut w = world(instance());
    w.connect(IN, SERVER);
    for _ in 0..10 {
        let _ = w.tcp_out(IN, SERVER, RST);
        w.wait(60);
    }
    check::empty(&mut w);
}

/// RFC 6146 §3.5.2.2: a RST behind both FINs, and a late segment behind that, do not open the connection again.
#[test]
fn reset_of_a_closed_connection_lengthens_nothing() {
    let mut w = world(instance());
    let outside = w.connect(IN, SERVER);
    w.tcp_out(IN, SERVER, FIN | ACK).unwrap();
    w.tcp_in(SERVER, outside, FIN | ACK).unwrap();
    w.tcp_in(SERVER, outside, RST).unwrap();
    w.tcp_out(IN, SERVER, ACK).unwrap();
    assert_eq!(state(&mut w), TcpState::BothFin);
    w.wait(200);
    // RFC 7857 §7.1: nor do more of them keep it.
    w.tcp_out(IN, SERVER, RST).unwrap();
    w.wait(42);
    check::empty(&mut w);
}

/// RFC 6146 §3.5.2.2: neither a stranger who is let in nor a host holds a session for hours by SYN, RST and ACK: only the
/// SYN of the other side establishes.
#[test]
fn a_reset_establishes_nothing() {
    let mut w = world(instance());
    let outside = w.connect(IN, SERVER);
    for stranger in ["198.51.100.66:1", "198.51.100.66:2"] {
        for bits in [SYN, RST, ACK] {
            w.tcp_in(stranger, outside, bits).unwrap();
        }
    }
    for bits in [SYN, RST, ACK] {
        w.tcp_out("10.0.0.2:2", SERVER, bits).unwrap();
    }
    w.wait(242);
    assert_eq!(w.session_count(), 1);
    assert_eq!(state(&mut w), TcpState::Established);
}

/// A closed connection's ports may open again at once.
#[test]
fn same_ports_open_again_after_close() {
    let mut w = world(instance());
    let outside = w.connect(IN, SERVER);
    w.tcp_out(IN, SERVER, FIN | ACK).unwrap();
    w.tcp_in(SERVER, outside, FIN | ACK).unwrap();
    assert_eq!(w.connect(IN, SERVER), outside);
    assert_eq!(state(&mut w), TcpState::Established);
    w.wait(3_600);
    assert_eq!(w.session_count(), 1);
}

/// RFC 5382 REQ-4: an unsolicited SYN is met with silence for 6 s, then comes back to be answered.
#[test]
fn unsolicited_syn_is_answered_after_six_seconds() {
    let mut w = world(instance());
    let frame = frames::tcp(e("203.0.113.1:5000"), e("192.0.2.1:2000"), SYN);
    assert_eq!(w.incoming(&frame), Outcome::Held);
    // Its repetitions add nothing.
    assert_eq!(w.incoming(&frame), Outcome::Drop(Reason::NatNoMapping));
    w.wait(5);
    assert!(w.overdue().is_empty());
    assert_eq!(w.nats[0].held_syns(), 1);
    w.wait(1);
    let overdue = w.overdue();
    assert_eq!(overdue.len(), 1);
    assert_eq!((overdue[0].vrf.0, overdue[0].packet()), (1, &frame[L3..L3 + overdue[0].packet().len()]));
    assert!(overdue[0].packet().len() >= 28, "header and eight octets for the ICMP error");
    check::empty(&mut w);
}

/// RFC 5382 REQ-4: an outbound SYN for the same connection absorbs the held one.
#[test]
fn matching_outbound_syn_absorbs_the_held_one() {
    // Everything needs a mapping first, so that the outside endpoint is known; the filter then holds the SYN.
    let mut w = world(instance_with(|i| {
        i.filtering[0] = carrack_nat::policy::Filtering::AddressAndPortDependent;
    }));
    let outside = w.connect(IN, SERVER);
    let peer = "203.0.113.1:5000";
    assert_eq!(w.incoming(&frames::tcp(e(peer), outside, SYN)), Outcome::Held);
    w.wait(3);
    assert_eq!(w.tcp_out(IN, peer, SYN), Ok(outside));
    assert_eq!(w.nats[0].take_absorbed(), 1);
    assert_eq!(w.nats[0].take_absorbed(), 0);
    w.wait(10);
    assert!(w.overdue().is_empty());
    assert_eq!(w.nats[0].held_syns(), 0);
    assert!(w.tcp_in(peer, outside, SYN | ACK).is_ok());
}

/// A SYN of another connection is not absorbed.
#[test]
fn other_outbound_syn_absorbs_nothing() {
    let mut w = world(instance());
    assert_eq!(w.incoming(&frames::tcp(e("203.0.113.1:5000"), e("192.0.2.1:2000"), SYN)), Outcome::Held);
    w.connect(IN, "203.0.113.1:5000");
    assert_eq!(w.nats[0].take_absorbed(), 0);
    w.wait(6);
    assert_eq!(w.overdue().len(), 1);
}

/// `nat-syn-table-full`: held SYNs are bounded, and the table recovers.
#[test]
fn held_syns_are_bounded() {
    let mut w = world(instance());
    for port in 1..=16 {
        let frame = frames::tcp(e(&format!("203.0.113.1:{port}")), e("192.0.2.1:2000"), SYN);
        assert_eq!(w.incoming(&frame), Outcome::Held, "{port}");
    }
    let frame = frames::tcp(e("203.0.113.1:17"), e("192.0.2.1:2000"), SYN);
    assert_eq!(w.incoming(&frame), Outcome::Drop(Reason::NatSynTableFull));
    w.wait(6);
    assert_eq!(w.overdue().len(), 16);
    assert_eq!(w.incoming(&frame), Outcome::Held);
    w.wait(6);
    assert_eq!(w.overdue().len(), 1);
    check::empty(&mut w);
}

/// `nat-tcp-no-session`: only a SYN opens; loosely, anything but a RST from inside does.
#[test]
fn only_a_syn_opens() {
    let mut w = world(instance());
    for flags in [ACK, FIN | ACK, RST, SYN | ACK, RST | ACK] {
        assert_eq!(w.tcp_out(IN, SERVER, flags), Err(Reason::NatTcpNoSession));
    }
    let outside = w.connect(IN, SERVER);
    for flags in [ACK, FIN | ACK, RST, SYN | ACK] {
        assert_eq!(w.tcp_in("203.0.113.1:1", outside, flags), Err(Reason::NatTcpNoSession));
    }
    let mut w = world(instance_with(|i| i.tcp_loose = true));
    assert_eq!(w.tcp_out(IN, SERVER, RST), Err(Reason::NatTcpNoSession));
    assert!(w.tcp_out(IN, SERVER, ACK).is_ok());
    assert_eq!(state(&mut w), TcpState::Established);
}

/// RFC 6888 REQ-8a: a tracked TCP port may be used again at once, by anybody.
#[test]
fn tcp_port_is_free_at_once() {
    let mut w = world(instance_with(|i| i.pools = vec![pool(0, &["192.0.2.1"], 5_000, 5_000)]));
    w.tcp_out(IN, SERVER, SYN).unwrap();
    w.wait(242);
    assert!(w.tcp_out("10.0.0.2:1", SERVER, SYN).is_ok());
}

/// A SYN from outside to an open mapping opens a session (RFC 5382 REQ-3, endpoint-independent filtering).
#[test]
fn syn_from_outside_opens_through_an_open_filter() {
    let mut w = world(instance());
    let outside = w.connect(IN, SERVER);
    let peer = "203.0.113.1:5000";
    assert_eq!(w.tcp_in(peer, outside, SYN), Ok(e(IN)));
    assert_eq!(w.tcp_out(IN, peer, SYN | ACK), Ok(outside));
    let rows = w.sessions();
    let row = rows.iter().find(|r| r.remote == e(peer)).unwrap();
    assert_eq!((row.tcp, row.inbound), (TcpState::Established, true));
}

/// A later fragment of TCP follows its session and opens none.
#[test]
fn later_fragment_follows_its_session() {
    let mut w = world(instance());
    let frame = frames::packet(e(IN).ip, e(SERVER).ip).protocol(6).fragment(1_480, false).build();
    let mut flow = parse(&frames::tcp(e(IN), e(SERVER), ACK), carrack_base::VrfId(0), Direction::Out);
    (flow.kind, flow.l4) = (carrack_nat::Kind::LaterFragment, 0);
    let dropped = w.send_flow(&flow, Direction::Out, &frame);
    assert_eq!(dropped, Outcome::Drop(Reason::NatTcpNoSession));
    let outside = w.connect(IN, SERVER);
    let sent = w.send_flow(&flow, Direction::Out, &frame).frame();
    assert_eq!(outer(&sent).source.ip, outside.ip);
}
