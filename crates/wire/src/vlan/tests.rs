use super::*;
use proptest::prelude::*;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

#[test]
fn either_tag_type_is_accepted_at_either_place() {
    for outer in [ethertype::VLAN, ethertype::QINQ] {
        for inner in [ethertype::VLAN, ethertype::QINQ] {
            let mut frame = vec![0u8; 12];
            for word in [outer, 0xe00a, inner, 0x0fff, ethertype::IPV4] {
                frame.extend(word.to_be_bytes());
            }
            let l2 = parse_l2(&frame).unwrap();
            assert_eq!((l2.tags(), l2.ethertype, l2.payload_offset), (&[10, 4095][..], ethertype::IPV4, 22));
        }
    }
}

#[test]
fn third_tag_is_refused() {
    let mut frame = vec![0u8; 12];
    for _ in 0..3 {
        frame.extend([0x81, 0, 0, 1]);
    }
    frame.extend([8, 0]);
    assert_eq!(parse_l2(&frame), Err(L2Error::TooManyTags));
}

proptest! {
    #[test]
    fn written_header_reads_back(vlans in proptest::collection::vec(0u16..4096, 0..=2), kind in 0x0600u16..) {
        prop_assume!(!is_tag(kind));
        let mut out = [0u8; 22];
        let length = write_l2(&mut out, A, B, &vlans, kind).unwrap();
        let l2 = parse_l2(&out[..length]).unwrap();
        prop_assert_eq!((l2.dst, l2.src, l2.tags(), l2.ethertype), (A, B, &vlans[..], kind));
        prop_assert_eq!(usize::from(l2.payload_offset), length);
        for cut in 0..length {
            prop_assert_eq!(parse_l2(&out[..cut]), Err(L2Error::Truncated));
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(l2) = parse_l2(&bytes) {
            prop_assert!(usize::from(l2.payload_offset) <= bytes.len());
        }
    }
}
