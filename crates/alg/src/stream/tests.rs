//! Two TCP ends that lose, reorder, repeat and cut up what they send, with a gateway between them: what arrives must be
//! the changed text, byte for byte, and no end may hear of bytes it has not sent.

use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::Side;

/// A repeatable source of choices.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Lines that begin with G grow, those with S shrink, those with L grow a little whatever their length, others stay.
fn changed(line: &[u8]) -> Vec<u8> {
    match line.first() {
        Some(b'G') => [b"G".as_slice(), &vec![b'g'; line.len() % 50 + 1], b"\n"].concat(),
        Some(b'S') => b"S\n".to_vec(),
        Some(b'L') => [b"Lll", &line[1..]].concat(),
        _ => line.to_vec(),
    }
}

/// Reads lines as a gateway does; `within` says by side whether it is in the middle of a line it does not read.
fn read(within: &mut [bool; 2], side: Side, bytes: &[u8], edits: &mut Edits) -> Reading {
    let end = bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
    let within = &mut within[side as usize];
    let matters = !*within && matches!(bytes[0], b'G' | b'S' | b'L');
    match end {
        Some(end) => {
            if matters {
                let new = changed(&bytes[..end]);
                if bytes[0] == b'L' {
                    assert!(edits.replace(0..1, b"Lll"));
                } else if new != bytes[..end] {
                    assert!(edits.replace(0..end, &new));
                }
            }
            *within = false;
            Reading::Done(end)
        }
        None if matters => Reading::More,
        None => {
            *within = true;
            Reading::Done(bytes.len())
        }
    }
}

/// One end: what it sends and has received, with the numbers of RFC 9293.
struct End {
    data: Vec<u8>,
    isn: u32,
    /// Acknowledged, and sent at most once, counted from the first byte; the FIN is one more.
    acked: usize,
    sent: usize,
    nagle: bool,
    /// How many bytes behind those it has received it takes.
    window: u16,
    /// Up to where it may send.
    edge: usize,
    received: Vec<u8>,
    /// The other's first byte.
    from: u32,
    waiting: BTreeMap<usize, u8>,
    fin_at: Option<usize>,
    closed: bool,
}

impl End {
    fn total(&self) -> usize {
        self.data.len() + 1
    }

    /// The number that it expects next.
    fn expects(&self) -> u32 {
        self.from.wrapping_add(self.received.len() as u32).wrapping_add(u32::from(self.closed))
    }

    fn segment(&self, from: usize, to: usize) -> Vec<u8> {
        let data_to = to.min(self.data.len());
        let fin = if from <= self.data.len() && to > self.data.len() { flag::FIN } else { 0 };
        let mut bytes = vec![0; 20];
        put32(&mut bytes, 4, self.isn.wrapping_add(from as u32));
        put32(&mut bytes, 8, self.expects());
        (bytes[12], bytes[13]) = (5 << 4, flag::ACK | fin);
        bytes[14..16].copy_from_slice(&self.window.to_be_bytes());
        if let Some((start, _)) = self.waiting.first_key_value() {
            let end = (*start..).find(|at| !self.waiting.contains_key(at)).unwrap();
            let number = |at: usize| self.from.wrapping_add(at as u32).to_be_bytes();
            bytes.extend([1, 1, 5, 10]);
            bytes.extend(number(*start));
            bytes.extend(number(end));
            bytes[12] = 8 << 4;
        }
        bytes.extend(&self.data[from.min(data_to)..data_to]);
        bytes
    }

    /// Takes a segment; true when it has to be answered by an acknowledgement.
    fn take(&mut self, segment: &[u8]) -> bool {
        let tcp = TcpView::parse(segment).unwrap();
        let acked = tcp.ack().wrapping_sub(self.isn) as i32;
        assert!(acked <= self.sent as i32, "acknowledged what was never sent: {acked} of {}", self.sent);
        self.acked = self.acked.max(acked.max(0) as usize);
        let window = usize::from(u16::from_be_bytes([segment[14], segment[15]]));
        self.edge = self.edge.max(acked.max(0) as usize + window);
        for option in tcp.options().filter(|option| option.kind == 5) {
            let [start, end] = [0, 4].map(|at| get32(option.data, at).wrapping_sub(self.isn) as i32);
            assert!(start < end && end <= self.sent as i32, "a range that was never sent");
        }
        let at = tcp.seq().wrapping_sub(self.from) as i32;
        let expected = self.expects().wrapping_sub(self.from) as i32;
        let end = at + tcp.payload().len() as i32;
        let room = self.received.len() + usize::from(self.window);
        let fits = end as usize + usize::from(tcp.has(flag::FIN)) <= room;
        for (n, byte) in tcp.payload().iter().enumerate() {
            let place = at + n as i32;
            if place >= self.received.len() as i32 && (place as usize) < room {
                self.waiting.insert((at + n as i32) as usize, *byte);
            }
        }
        if tcp.has(flag::FIN) && fits {
            assert!(self.fin_at.is_none_or(|known| known == end as usize));
            self.fin_at = Some(end as usize);
        }
        while let Some(byte) = self.waiting.remove(&self.received.len()) {
            self.received.push(byte);
        }
        self.closed |= self.fin_at == Some(self.received.len());
        !tcp.payload().is_empty() || tcp.has(flag::FIN) || at < expected
    }
}

fn text(dice: &mut Dice) -> Vec<u8> {
    let mut text = vec![];
    for _ in 0..dice.below(12) {
        text.push(b"GSLxy"[dice.below(5)]);
        let longest = if dice.chance(10) { 1_500 } else { 30 };
        for _ in 0..dice.below(longest) {
            text.push(b'a' + dice.below(26) as u8);
        }
        text.push(b'\n');
    }
    if dice.chance(30) {
        text.extend(b"Gnever ended");
    }
    text
}

fn end(dice: &mut Dice, isn: u32, from: u32) -> End {
    End {
        data: text(dice),
        isn,
        acked: 0,
        sent: 0,
        nagle: dice.chance(50),
        window: if dice.chance(50) { u16::MAX } else { 600 + dice.below(3_000) as u16 },
        edge: 0,
        received: vec![],
        from,
        waiting: BTreeMap::new(),
        fin_at: None,
        closed: false,
    }
}

fn run(seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let isns = [0, 1].map(|_| u32::MAX.wrapping_sub(dice.below(3_000) as u32));
    let mut ends = [end(&mut dice, isns[0], isns[1]), end(&mut dice, isns[1], isns[0])];
    let mut talk = Talk::default();
    let (mut halves, mut scratch) = (Halves::new(4), Scratch::default());
    let mut within = [false; 2];
    // By the sender: on the way to the gateway, and from it on.
    let mut before_gateway: [VecDeque<Vec<u8>>; 2] = Default::default();
    let mut behind: [VecDeque<Vec<u8>>; 2] = Default::default();
    for side in [0, 1] {
        ends[side].edge = ends[1 - side].window.into();
    }
    for (side, stream) in talk.streams.iter_mut().enumerate() {
        (stream.known, stream.next) = (true, isns[side]);
    }
    let loss = dice.below(40);
    for step in 0..60_000 {
        let loss = if step > 20_000 { 0 } else { loss };
        let side = dice.below(2);
        let end = &mut ends[side];
        let (from, to) = match dice.below(20) {
            // New bytes; RFC 1122 §4.2.3.4 holds small ones back while some are on their way.
            0..=3 if end.sent < end.total() && !(end.nagle && end.acked < end.sent) => {
                let longest = if dice.chance(20) { 1_400 } else { 20 };
                // A shut window is probed by one byte (RFC 9293 §3.8.6.1).
                let to = (end.sent + 1 + dice.below(longest)).min(end.total()).min(end.edge);
                (end.sent, to.max(end.sent + usize::from(end.acked == end.sent)))
            }
            // Bytes again.
            4 if end.acked < end.sent => (end.acked, end.acked + 1 + dice.below(end.sent - end.acked)),
            5 if dice.chance(5) => (end.sent, end.sent),
            _ => (usize::MAX, 0),
        };
        if from < to || from == end.sent {
            end.sent = end.sent.max(to);
            let segment = end.segment(from, to);
            before_gateway[side].push_back(segment);
        }
        for at_gateway in [true, false] {
            let queue = if at_gateway { &mut before_gateway[side] } else { &mut behind[side] };
            if queue.is_empty() || !dice.chance(40) {
                continue;
            }
            let at = if dice.chance(80) { 0 } else { dice.below(queue.len()) };
            let segment = queue.remove(at).unwrap();
            if dice.chance(loss) {
                continue;
            }
            if dice.chance(loss / 4) {
                queue.push_back(segment.clone());
            }
            if at_gateway {
                let side = [Side::Inside, Side::Outside][side];
                let passed = talk.pass(side, &segment, &mut halves, &mut scratch, |bytes, edits| {
                    read(&mut within, side, bytes, edits)
                });
                match passed {
                    Ok(Passed::Same) => behind[side as usize].push_back(segment),
                    Ok(Passed::Changed(len)) => behind[side as usize].push_back(scratch.out[..len].to_vec()),
                    Err(Refused::OutOfOrder | Refused::Busy) => {}
                    Err(Refused::Malformed) => panic!("refused"),
                }
            } else if ends[1 - side].take(&segment) {
                let other = &ends[1 - side];
                let ack = other.segment(other.sent, other.sent);
                before_gateway[1 - side].push_back(ack);
            }
        }
        if ends.iter().all(|end| end.closed && end.acked == end.total()) {
            break;
        }
    }
    for side in [0, 1] {
        let sent = &ends[side].data;
        let expected: Vec<u8> = sent
            .split_inclusive(|b| *b == b'\n')
            .flat_map(|line| if line.ends_with(b"\n") { changed(line) } else { line.to_vec() })
            .collect();
        let got = &ends[1 - side].received;
        assert!(
            *got == expected,
            "seed {seed}, side {side}: {:?} became {:?}",
            String::from_utf8_lossy(sent),
            String::from_utf8_lossy(got)
        );
        assert!(
            ends[side].closed && ends[side].acked == ends[side].total(),
            "seed {seed}, side {side}: not closed"
        );
    }
    talk.forget(&mut halves);
    assert_eq!(halves.used(), 0);
}

#[test]
fn a_changed_stream_arrives_whatever_happens_on_the_way() {
    for seed in 0..400 {
        run(seed);
    }
}

/// RFC 1122 §4.2.3.4: a sender that waits for an acknowledgement gets one for held bytes.
#[test]
fn a_held_segment_goes_on_as_a_probe_whose_answer_covers_it() {
    let mut talk = Talk::default();
    let (mut halves, mut scratch) = (Halves::new(1), Scratch::default());
    let mut within = [false; 2];
    let segment = |seq: u32, ack: u32, bits: u8, payload: &[u8]| {
        let mut bytes = vec![0; 20];
        put32(&mut bytes, 4, seq);
        put32(&mut bytes, 8, ack);
        (bytes[12], bytes[13]) = (5 << 4, bits);
        bytes.extend(payload);
        bytes
    };
    let mut pass = |side, bytes: &[u8]| {
        let passed = talk.pass(side, bytes, &mut halves, &mut scratch, |bytes, edits| {
            read(&mut within, side, bytes, edits)
        });
        match passed.unwrap() {
            Passed::Same => bytes.to_vec(),
            Passed::Changed(len) => scratch.out[..len].to_vec(),
        }
    };
    pass(Side::Inside, &segment(99, 0, flag::SYN, b""));
    pass(Side::Outside, &segment(499, 100, flag::SYN | flag::ACK, b""));
    assert_eq!(pass(Side::Inside, &segment(100, 500, flag::ACK, b"Gab")), segment(99, 500, flag::ACK, b""));
    assert_eq!(pass(Side::Outside, &segment(500, 100, flag::ACK, b"")), segment(500, 103, flag::ACK, b""));
    assert_eq!(
        pass(Side::Inside, &segment(103, 500, flag::ACK, b"\n")),
        segment(100, 500, flag::ACK, b"Gggggg\n")
    );
    assert_eq!(pass(Side::Outside, &segment(500, 107, flag::ACK, b"")), segment(500, 104, flag::ACK, b""));
    assert_eq!(
        pass(Side::Inside, &segment(104, 500, flag::ACK, b"x\n")),
        segment(107, 500, flag::ACK, b"x\n")
    );
    assert_eq!(halves.used(), 0);
}

/// Says what a segment becomes: its number, its acknowledgement, its window.
fn numbers(bytes: &[u8]) -> (u32, u32, u16) {
    let tcp = TcpView::parse(bytes).unwrap();
    (tcp.seq(), tcp.ack(), u16::from_be_bytes([bytes[14], bytes[15]]))
}

/// RFC 9293 §3.8.6, RFC 7323 §2.2: the receiver's window ends at the same byte for the sender, however it is scaled.
#[test]
fn the_window_ends_at_the_same_byte_on_both_sides_of_a_change() {
    for (scale, window, told) in [(None, 1_000, 997), (Some(3), 125, 125), (Some(0), 3, 2), (None, 0, 0)] {
        let mut talk = Talk::default();
        let (mut halves, mut scratch) = (Halves::new(1), Scratch::default());
        let mut within = [false; 2];
        let mut pass = |side, (seq, ack): (u32, u32), bits: u8, window: u16, payload: &[u8]| {
            let mut bytes = vec![0; 20];
            put32(&mut bytes, 4, seq);
            put32(&mut bytes, 8, ack);
            (bytes[12], bytes[13]) = (5 << 4, bits);
            bytes[14..16].copy_from_slice(&window.to_be_bytes());
            if let Some(scale) = scale.filter(|_| bits & flag::SYN != 0) {
                bytes[12] = 6 << 4;
                bytes.extend([1, 3, 3, scale]);
            }
            bytes.extend(payload);
            let passed = talk.pass(side, &bytes, &mut halves, &mut scratch, |bytes, edits| {
                read(&mut within, side, bytes, edits)
            });
            match passed.unwrap() {
                Passed::Same => numbers(&bytes),
                Passed::Changed(len) => numbers(&scratch.out[..len]),
            }
        };
        pass(Side::Inside, (99, 0), flag::SYN, 500, b"");
        assert_eq!(pass(Side::Outside, (499, 100), flag::SYN | flag::ACK, 500, b"").2, 500);
        // Two bytes become five; the window reaches beyond them, into them, or nowhere.
        pass(Side::Inside, (100, 500), flag::ACK, 500, b"G\n");
        let (_, ack, window) = pass(Side::Outside, (500, 100), flag::ACK, window, b"");
        assert_eq!((ack, window), (100, told), "scale {scale:?}");
    }
}

/// A message that was held goes out in as many segments as it takes: each answer lets the next part out.
#[test]
fn a_held_message_longer_than_a_segment_goes_out_piece_by_piece() {
    let mut talk = Talk::default();
    let (mut halves, mut scratch) = (Halves::new(1), Scratch::default());
    let mut within = [false; 2];
    let message = [b"L".as_slice(), &vec![b'x'; 2_998], b"\n"].concat();
    let expected = changed(&message);
    let mut got = vec![];
    let mut send = |got: &mut Vec<u8>, from: usize, to: usize| {
        let mut bytes = vec![0; 20];
        put32(&mut bytes, 4, 100 + from as u32);
        (bytes[12], bytes[13]) = (5 << 4, flag::ACK);
        bytes.extend(&message[from..to]);
        let passed = talk.pass(Side::Inside, &bytes, &mut halves, &mut scratch, |bytes, edits| {
            read(&mut within, Side::Inside, bytes, edits)
        });
        let Ok(Passed::Changed(len)) = passed else { panic!("{passed:?}") };
        let tcp = TcpView::parse(&scratch.out[..len]).unwrap();
        let at = tcp.seq().wrapping_sub(100) as usize;
        if at <= got.len() && !tcp.payload().is_empty() {
            got.truncate(at);
            got.extend(tcp.payload());
        }
        let mut answer = vec![0; 20];
        put32(&mut answer, 8, 100 + got.len() as u32);
        (answer[12], answer[13]) = (5 << 4, flag::ACK);
        let passed = talk.pass(Side::Outside, &answer, &mut halves, &mut scratch, |bytes, edits| {
            read(&mut within, Side::Outside, bytes, edits)
        });
        match passed {
            Ok(Passed::Changed(len)) => numbers(&scratch.out[..len]).1 as usize - 100,
            _ => numbers(&answer).1 as usize - 100,
        }
    };
    assert_eq!(send(&mut got, 0, 1_400), 1_400, "held, and acknowledged");
    assert_eq!(send(&mut got, 1_400, 2_800), 2_800);
    for _ in 0..4 {
        let acked = send(&mut got, 2_800, 3_000);
        assert!(acked == 2_800 || got.len() == expected.len());
    }
    assert_eq!(got, expected);
}

#[test]
fn arbitrary_segments_never_break_it() {
    let mut dice = Dice(7);
    for _ in 0..2_000 {
        let mut talk = Talk::default();
        let (mut halves, mut scratch) = (Halves::new(2), Scratch::default());
        let mut within = [false; 2];
        for _ in 0..40 {
            let mut bytes: Vec<u8> =
                (0..20 + dice.below(60)).map(|_| b"GS\nx\0\xff"[dice.below(6)]).collect();
            for at in [4, 8] {
                put32(&mut bytes, at, dice.below(200) as u32);
            }
            bytes[12] = (dice.below(16) as u8) << 4;
            bytes[13] = dice.below(64) as u8;
            let side = [Side::Inside, Side::Outside][dice.below(2)];
            let _ = talk.pass(side, &bytes, &mut halves, &mut scratch, |bytes, edits| {
                if dice.chance(2) { Reading::Transparent } else { read(&mut within, side, bytes, edits) }
            });
        }
        talk.forget(&mut halves);
        assert_eq!(halves.used(), 0);
    }
}
