use super::*;
use proptest::prelude::*;

#[test]
fn optional_fields_move_the_payload() {
    let plain =
        GreView::parse(&[0, 0, 8, 0, 0x45]).map(|gre| (gre.header_len(), gre.key(), gre.payload().len()));
    assert_eq!(plain, Some((4, None, 1)));
    let full = [0xb0, 0, 8, 0, 1, 2, 0, 0, 0, 0, 0, 7, 0, 0, 0, 1, 0x45];
    let view = GreView::parse(&full).unwrap();
    assert_eq!((view.header_len(), view.key(), view.payload()), (16, Some(7), &[0x45][..]));
    assert!(GreView::parse(&full[..15]).is_none());
}

#[test]
fn pptp_call_is_found() {
    let packet = [0x30, 0x81, 0x88, 0x0b, 0, 1, 0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 2, 0xff];
    let view = GreView::parse(&packet).unwrap();
    assert_eq!((view.call_id(), view.header_len(), view.payload().len()), (Some(0x1234), 16, 1));
}

#[test]
fn source_routes_and_unknown_versions_are_refused() {
    assert!(GreView::parse(&[0x40, 0, 8, 0, 0, 0, 0, 0]).is_none());
    assert!(GreView::parse(&[0, 2, 8, 0]).is_none());
    assert!(GreView::parse(&[0x20, 1, 8, 0, 0, 0, 0, 0]).is_none());
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Some(view) = GreView::parse(&bytes) {
            let _ = (view.key(), view.call_id());
            prop_assert_eq!(view.header_len() + view.payload().len(), bytes.len());
        }
    }
}

#[test]
fn only_enhanced_gre_has_a_call_even_when_quoted_in_part() {
    let packet = [0x30, 0x81, 0x88, 0x0b, 0, 20, 0x12, 0x34];
    assert_eq!(call_of(47, &packet), Some(0x1234));
    assert_eq!(call_of(50, &packet), None);
    assert_eq!(call_of(47, &packet[..7]), None);
    for (at, value) in [(0, 0), (0, 0xb0), (1, 0), (1, 2), (2, 8), (3, 0)] {
        let mut other = packet;
        other[at] = value;
        assert_eq!(call_of(47, &other), None, "{at}");
    }
    let mut none = packet;
    (none[6], none[7]) = (0, 0);
    assert_eq!(call_of(47, &none), None);
}
