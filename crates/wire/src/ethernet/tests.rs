use super::*;

#[test]
fn address_survives_text_and_back() {
    let mac = MacAddr([0x02, 0, 0xab, 0xcd, 0xef, 0xff]);
    assert_eq!(mac.to_string(), "02:00:ab:cd:ef:ff");
    assert_eq!(mac.to_string().parse(), Ok(mac));
    assert_eq!("02-00-AB-CD-EF-FF".parse(), Ok(mac));
}

#[test]
fn malformed_addresses_are_refused() {
    for text in [
        "",
        "02:00:00:00:00",
        "02:00:00:00:00:00:00",
        "2:0:0:0:0:0",
        "+2:00:00:00:00:00",
        "gg:00:00:00:00:00",
    ] {
        assert_eq!(text.parse::<MacAddr>(), Err(BadMacAddr), "{text}");
    }
}

#[test]
fn only_unicast_addresses_are_stations() {
    assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_station());
    assert!(!MacAddr::BROADCAST.is_station());
    assert!(!MacAddr::ZERO.is_station());
    assert!(!MacAddr([1, 0, 0x5e, 0, 0, 1]).is_station());
}

#[test]
fn header_fields_are_where_the_standard_puts_them() {
    let frame = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0x08, 0x06, 0xaa];
    let view = EthernetView::parse(&frame).unwrap();
    assert_eq!(view.dst(), MacAddr([1, 2, 3, 4, 5, 6]));
    assert_eq!(view.src(), MacAddr([7, 8, 9, 10, 11, 12]));
    assert_eq!(view.ethertype(), ethertype::ARP);
    assert_eq!(view.payload(), &[0xaa]);
    assert!(EthernetView::parse(&frame[..13]).is_none());
}
