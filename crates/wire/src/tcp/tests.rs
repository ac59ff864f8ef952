use super::*;
use crate::{Ipv4View, PacketBuilder};
use proptest::prelude::*;

#[test]
fn data_offset_is_judged() {
    let mut bytes = [0u8; 24];
    for (words, error) in [
        (0u8, Some(TcpError::BadDataOffset)),
        (4, Some(TcpError::BadDataOffset)),
        (5, None),
        (6, None),
        (7, Some(TcpError::Truncated)),
    ] {
        bytes[12] = words << 4;
        assert_eq!(TcpView::parse(&bytes).err(), error, "{words} words");
    }
    assert_eq!(TcpView::parse(&bytes[..19]).err(), Some(TcpError::Truncated));
}

#[test]
fn only_a_bare_syn_opens() {
    let opening = |flags| {
        let packet = PacketBuilder::new().ipv4(1, 2).tcp(3, 4, flags).build();
        TcpView::parse(&packet[20..]).unwrap().is_opening()
    };
    assert!(opening(flag::SYN) && opening(flag::SYN | flag::ECE | flag::CWR));
    assert!(
        !opening(flag::SYN | flag::ACK) && !opening(flag::SYN | flag::RST) && !opening(flag::SYN | flag::FIN)
    );
    assert!(!opening(flag::ACK) && !opening(0));
}

#[test]
fn segment_size_is_clamped_at_even_and_odd_offsets() {
    for options in [&[2, 4, 0x05, 0xb4][..], &[1, 2, 4, 0x05, 0xb4, 1, 1, 0], &[1, 1, 1, 2, 4, 0x05, 0xb4, 0]]
    {
        let packet = |mss: u16| {
            let mut options = options.to_vec();
            let at = options.windows(2).position(|pair| pair == [0x05, 0xb4]).unwrap();
            options[at..at + 2].copy_from_slice(&mss.to_be_bytes());
            PacketBuilder::new().ipv4(1, 2).tcp(3, 4, flag::SYN).tcp_options(&options).payload(b"odd").build()
        };
        let mut clamped = packet(1460);
        assert!(TcpMut::parse(&mut clamped[20..]).unwrap().clamp_mss(1280));
        assert_eq!(clamped, packet(1280));
        assert!(!TcpMut::parse(&mut clamped[20..]).unwrap().clamp_mss(1400));
        assert_eq!(TcpView::parse(&clamped[20..]).unwrap().mss(), Some(1280));
    }
}

#[test]
fn malformed_options_end_the_walk() {
    for (options, count) in
        [(&[1, 1, 3, 0][..], 2), (&[2, 9, 1, 1], 0), (&[8], 0), (&[0, 2, 4, 5], 0), (&[3, 1, 1, 1], 0)]
    {
        assert_eq!(TcpOptions::new(options).count(), count, "{options:?}");
    }
    // A segment size option of the wrong length announces nothing.
    assert_eq!(TcpOptions::new(&[2, 3, 9, 0]).find_map(|option| option.mss()), None);
}

proptest! {
    #[test]
    fn segment_survives_and_the_judge_agrees(
        src in any::<u32>(), dst in any::<u32>(), ports in any::<(u16, u16)>(), numbers in any::<(u32, u32)>(),
        flags in any::<u8>(), words in 0usize..=10, payload in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let options = vec![1u8; words * 4];
        let packet = PacketBuilder::new().ipv4(src, dst).tcp(ports.0, ports.1, flags)
            .tcp_numbers(numbers.0, numbers.1).tcp_options(&options).payload(&payload).build();
        let ip = Ipv4View::parse(&packet).unwrap();
        let tcp = TcpView::parse(ip.payload()).unwrap();
        prop_assert_eq!((tcp.src_port(), tcp.dst_port()), ports);
        prop_assert_eq!((tcp.seq(), tcp.ack(), tcp.flags(), tcp.window()), (numbers.0, numbers.1, flags, 0xffff));
        prop_assert_eq!((tcp.header_len(), tcp.payload()), (20 + words * 4, &payload[..]));
        prop_assert!(tcp.checksum_ok(src, dst));
        let judge = etherparse::TcpSlice::from_slice(ip.payload()).unwrap();
        prop_assert_eq!(judge.calc_checksum_ipv4(src.to_be_bytes(), dst.to_be_bytes()).unwrap(), tcp.checksum());
        prop_assert_eq!((judge.syn(), judge.ack(), judge.fin(), judge.rst()),
            (tcp.has(flag::SYN), tcp.has(flag::ACK), tcp.has(flag::FIN), tcp.has(flag::RST)));
    }

    #[test]
    fn shifted_stream_keeps_the_checksum_right(seq in any::<u32>(), ack in any::<u32>(), new in any::<(u32, u32)>()) {
        let build = |seq, ack| PacketBuilder::new().ipv4(1, 2).tcp(3, 4, flag::ACK).tcp_numbers(seq, ack).build();
        let mut packet = build(seq, ack);
        let mut tcp = TcpMut::parse(&mut packet[20..]).unwrap();
        tcp.rewrite_seq(new.0);
        tcp.rewrite_ack(new.1);
        prop_assert_eq!(packet, build(new.0, new.1));
    }

    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), limit in any::<u16>()) {
        prop_assert_eq!(TcpView::parse(&bytes).is_ok(), etherparse::TcpSlice::from_slice(&bytes).is_ok());
        if let Ok(view) = TcpView::parse(&bytes) {
            prop_assert_eq!(view.header_len() + view.payload().len(), bytes.len());
            let _ = (view.options().count(), view.mss(), view.checksum_ok(1, 2));
        }
        if let Ok(mut tcp) = TcpMut::parse(&mut bytes) {
            tcp.clamp_mss(limit);
            tcp.fill_checksum(1, 2);
        }
    }
}
