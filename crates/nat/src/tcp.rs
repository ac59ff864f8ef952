//! What a TCP segment does to a session's state (RFC 6146 §3.5.2.2 with the sides called inside and outside,
//! RFC 5382 REQ-2, RFC 7857 §2).

use carrack_wire::tcp::flag;

use crate::flow::Direction;
use crate::row::TcpState;

/// The state after a segment with these control bits.
///
/// * SYN from both sides, in either order, establishes (RFC 5382 REQ-2, REQ-2a: simultaneous open included).
/// * A FIN from one side keeps the long timer, since the other side may send for hours; both sides' FINs start the
///   closing timer (RFC 7857 §2.1).
/// * RST starts the reset timer but ends nothing at once; any other segment revives the session (RFC 7857 §2.2). That is for
///   what was established: a connection that never was, or that both sides have closed, has a short timer already, and
///   a RST and one segment more would give it the long one (RFC 6146 §3.5.2.2, figure 1 of RFC 7857 §2).
/// * A fresh SYN from inside after both FINs or a RST starts over: the same ports are being used again.
#[must_use]
pub const fn next_state(state: TcpState, bits: u8, direction: Direction) -> TcpState {
    let (syn, fin, rst) = (bits & flag::SYN != 0, bits & flag::FIN != 0, bits & flag::RST != 0);
    let fresh_syn = syn && bits & flag::ACK == 0;
    if rst {
        return match state {
            TcpState::Established | TcpState::InsideFin | TcpState::OutsideFin | TcpState::Reset => {
                TcpState::Reset
            }
            TcpState::None | TcpState::InsideInit | TcpState::OutsideInit | TcpState::BothFin => state,
        };
    }
    match (state, direction) {
        (TcpState::Reset | TcpState::BothFin, Direction::Out) if fresh_syn => TcpState::InsideInit,
        (TcpState::Reset | TcpState::BothFin, Direction::In) if fresh_syn => TcpState::OutsideInit,
        (TcpState::Reset, _) if !fin => TcpState::Established,
        (TcpState::InsideInit, Direction::In) | (TcpState::OutsideInit, Direction::Out) if syn => {
            TcpState::Established
        }
        (TcpState::Established, Direction::Out) if fin => TcpState::InsideFin,
        (TcpState::Established, Direction::In) if fin => TcpState::OutsideFin,
        (TcpState::InsideFin, Direction::In) | (TcpState::OutsideFin, Direction::Out) if fin => {
            TcpState::BothFin
        }
        (state, _) => state,
    }
}

/// The state a session starts in. A segment without SYN opens one only where policy is loose about it; it then
/// counts as established.
#[must_use]
pub const fn first_state(bits: u8, direction: Direction) -> TcpState {
    if bits & flag::SYN == 0 {
        return TcpState::Established;
    }
    match direction {
        Direction::Out => TcpState::InsideInit,
        Direction::In => TcpState::OutsideInit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACK: u8 = flag::ACK;
    const SYN: u8 = flag::SYN;

    /// Runs segments through the machine.
    fn run(start: TcpState, segments: &[(u8, Direction)]) -> TcpState {
        segments.iter().fold(start, |state, (bits, direction)| next_state(state, *bits, *direction))
    }

    /// RFC 5382 REQ-2: three-way handshake and simultaneous open both establish.
    #[test]
    fn both_ways_of_opening_establish() {
        let handshake = [(SYN | ACK, Direction::In), (ACK, Direction::Out)];
        assert_eq!(run(TcpState::InsideInit, &handshake), TcpState::Established);
        assert_eq!(run(TcpState::InsideInit, &[(SYN, Direction::In)]), TcpState::Established);
        assert_eq!(run(TcpState::OutsideInit, &[(SYN, Direction::Out)]), TcpState::Established);
    }

    /// RFC 7857 §2.1: only both FINs start the closing timer.
    #[test]
    fn half_close_keeps_the_long_timer() {
        let fin = ACK | flag::FIN;
        assert_eq!(run(TcpState::Established, &[(fin, Direction::Out)]), TcpState::InsideFin);
        assert_eq!(run(TcpState::InsideFin, &[(ACK, Direction::In)]), TcpState::InsideFin);
        assert_eq!(run(TcpState::InsideFin, &[(fin, Direction::In)]), TcpState::BothFin);
        assert_eq!(run(TcpState::BothFin, &[(ACK, Direction::Out)]), TcpState::BothFin);
    }

    /// RFC 7857 §2.2: a (perhaps forged) RST does not end a connection that goes on.
    #[test]
    fn data_after_reset_revives() {
        assert_eq!(run(TcpState::Established, &[(flag::RST, Direction::In)]), TcpState::Reset);
        assert_eq!(run(TcpState::Reset, &[(ACK, Direction::Out)]), TcpState::Established);
        assert_eq!(run(TcpState::Reset, &[(SYN, Direction::Out)]), TcpState::InsideInit);
    }

    /// RFC 6146 §3.5.2.2: before it is established and after both FINs, a RST and what follows it lengthen nothing.
    #[test]
    fn reset_of_what_is_not_established_changes_nothing() {
        for direction in [Direction::In, Direction::Out] {
            for state in [TcpState::InsideInit, TcpState::OutsideInit, TcpState::BothFin] {
                assert_eq!(run(state, &[(flag::RST, direction), (ACK, direction)]), state);
            }
            for state in [TcpState::InsideFin, TcpState::OutsideFin] {
                assert_eq!(run(state, &[(flag::RST, direction)]), TcpState::Reset);
            }
        }
        let again = [(flag::RST | ACK, Direction::In), (SYN, Direction::Out), (SYN | ACK, Direction::In)];
        assert_eq!(run(TcpState::InsideInit, &again), TcpState::Established);
    }

    #[test]
    fn syn_retransmission_changes_nothing() {
        assert_eq!(run(TcpState::InsideInit, &[(SYN, Direction::Out)]), TcpState::InsideInit);
        assert_eq!(run(TcpState::OutsideInit, &[(SYN, Direction::In)]), TcpState::OutsideInit);
    }
}
