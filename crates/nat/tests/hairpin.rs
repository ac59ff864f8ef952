//! Hairpinning: subscribers reach each other by their outside endpoints (RFC 4787 REQ-9, RFC 5382 REQ-8,
//! RFC 5508 REQ-7, RFC 7857 §12), on one worker and on three.

mod common;

use carrack_base::{Proto, Reason};
use carrack_nat::Direction;
use common::frames::icmp_error;
use common::*;

fn worlds() -> [World; 2] {
    [1, 3].map(|workers| {
        let it = instance_with(|i| {
            i.pools = vec![pool(0, &["192.0.2.1", "192.0.2.3"], 1_024, 65_535)];
            i.statics = vec![
                forward(Proto::Tcp, "192.0.2.1:80", "10.0.0.9:8080"),
                one_to_one("10.0.1.0/28", "192.0.2.16/28"),
            ];
        });
        World::new(vec![it], workers, SMALL)
    })
}

/// RFC 4787 REQ-9, REQ-9a: both legs are translated, the peer sees the outside source and answers to it.
#[test]
fn both_legs_are_translated() {
    for mut w in worlds() {
        let bob = w.udp_out("10.0.0.2:2000", "198.51.100.1:53").unwrap();
        let call = frames::udp(e("10.0.0.1:1000"), bob);
        let got = w.out(&call).frame();
        let alice = outer(&got).source;
        assert_eq!(outer(&got).destination, e("10.0.0.2:2000"));
        assert_ne!(alice.ip >> 8, addr("10.0.0.0") >> 8, "external source address and port");
        // Alice's outside endpoint is the one that everybody sees.
        assert_eq!(w.udp_out("10.0.0.1:1000", "198.51.100.1:53"), Ok(alice));
        let answer = w.out(&frames::udp(e("10.0.0.2:2000"), alice)).frame();
        assert_eq!(outer(&answer), common::frames::Outer { source: bob, destination: e("10.0.0.1:1000") });
        check::invariants(&mut w);
        w.wait(301);
        check::empty(&mut w);
    }
}

/// A subscriber may call itself.
#[test]
fn subscriber_reaches_itself() {
    for mut w in worlds() {
        let own = w.udp_out("10.0.0.2:2000", "198.51.100.1:53").unwrap();
        let got = w.out(&frames::udp(e("10.0.0.2:2000"), own)).frame();
        assert_eq!(outer(&got), common::frames::Outer { source: own, destination: e("10.0.0.2:2000") });
    }
}

/// RFC 5382 REQ-8, REQ-8a: TCP through a forwarded port, and to a one-to-one address; the server sees the
/// outside source.
#[test]
fn tcp_hairpins_to_static_mappings() {
    for mut w in worlds() {
        for (server, inside) in [("192.0.2.1:80", "10.0.0.9:8080"), ("192.0.2.18:22", "10.0.1.2:22")] {
            let got = w.out(&frames::tcp(e("10.0.0.1:1000"), e(server), SYN)).frame();
            assert_eq!(outer(&got).destination, e(inside));
            let client = outer(&got).source;
            assert_eq!(client.ip >> 8, addr("192.0.2.0") >> 8, "external source address and port");
            let answer = w.out(&frames::tcp(e(inside), client, SYN | ACK)).frame();
            assert_eq!((outer(&answer).source, outer(&answer).destination), (e(server), e("10.0.0.1:1000")));
            let data = w.out(&frames::tcp(e("10.0.0.1:1000"), e(server), ACK)).frame();
            assert_eq!(outer(&data).destination, e(inside));
        }
        check::invariants(&mut w);
    }
}

/// RFC 5508 REQ-7, RFC 7857 §12: queries hairpin to a one-to-one address.
#[test]
fn queries_hairpin() {
    for mut w in worlds() {
        let got = w.out(&frames::echo(e("10.0.0.1:7"), addr("192.0.2.18"))).frame();
        let client = outer(&got).source;
        assert_eq!(outer(&got).destination.ip, addr("10.0.1.2"));
        let answer = w.out(&frames::echo_reply(addr("10.0.1.2"), client)).frame();
        assert_eq!(
            (outer(&answer).source.ip, outer(&answer).destination),
            (addr("192.0.2.18"), e("10.0.0.1:7"))
        );
    }
}

/// RFC 5508 REQ-7, REQ-7a, RFC 7857 §12: an error about a hairpinned packet comes back to who sent it, quoting what
/// it sent; the outer destination is the embedded source.
#[test]
fn errors_hairpin() {
    for mut w in worlds() {
        let bob = w.udp_out("10.0.0.2:2000", "198.51.100.1:53").unwrap();
        let call = frames::udp(e("10.0.0.1:1000"), bob);
        let got = w.out(&call).frame();
        let alice = outer(&got).source;
        for from in ["10.0.0.2", "10.7.7.7"] {
            let error = icmp_error(3, 3, addr(from), alice.ip, &got, usize::MAX);
            let back = w.out(&error).frame();
            assert_eq!((outer(&back).source.ip, outer(&back).destination.ip), (bob.ip, addr("10.0.0.1")));
            assert_eq!(&back[L3 + 28..], &call[L3..]);
        }
    }
}

/// `nat-hairpin-denied`: switched off, nothing hairpins and no state is made.
#[test]
fn hairpinning_may_be_off() {
    let mut w = world(instance_with(|i| i.hairpinning = false));
    let bob = w.udp_out("10.0.0.2:2000", "198.51.100.1:53").unwrap();
    assert_eq!(w.out(&frames::udp(e("10.0.0.1:1000"), bob)), Outcome::Drop(Reason::NatHairpinDenied));
    assert_eq!(w.session_count(), 1);
}

/// A call to an outside endpoint that nobody has ends at the filter, as a stranger's would.
#[test]
fn nobody_behind_the_endpoint_is_a_drop() {
    for mut w in worlds() {
        let call = frames::udp(e("10.0.0.1:1000"), e("192.0.2.3:4444"));
        let Outcome::Translated { frame, hairpin, .. } = w.send(0, Direction::Out, &call) else { panic!() };
        assert!(hairpin);
        assert_eq!(w.incoming(&frame), Outcome::Drop(Reason::NatNoMapping));
        w.wait(301);
        check::empty(&mut w);
    }
}
