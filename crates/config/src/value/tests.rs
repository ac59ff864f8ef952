use super::*;

#[test]
fn durations_read_as_people_write_them() {
    let good = [("300", 300), ("5m", 300), ("2h4m", 7_440), ("1d", 86_400), ("1h30s", 3_630), ("0s", 0)];
    for (text, want) in good {
        assert_eq!(seconds(text), Some(want), "{text}");
    }
    for text in ["", "m", "5x", "4m2h", "5m5m", "5m3", "-1", "1.5h", "99999999999999999999d"] {
        assert_eq!(seconds(text), None, "{text}");
    }
}

#[test]
fn sizes_take_decimal_suffixes() {
    for (text, want) in [("65536", 65_536), ("64k", 64_000), ("1M", 1_000_000), ("1_000_000", 1_000_000)] {
        assert_eq!(count(text), Some(want), "{text}");
    }
    for text in ["", "M", "1.5M", "-1", "1MB", "99999999999999G"] {
        assert_eq!(count(text), None, "{text}");
    }
}

#[test]
fn interface_addresses_refuse_network_and_broadcast_addresses_with_the_usable_range() {
    let network = "10.0.0.0/24".parse::<InterfaceAddress>().unwrap_err();
    assert!(network.contains("network") && network.contains("between 10.0.0.1 and 10.0.0.254"), "{network}");
    assert!("10.0.0.255/24".parse::<InterfaceAddress>().unwrap_err().contains("broadcast"));
    assert!("10.0.0.0/31".parse::<InterfaceAddress>().is_ok(), "RFC 3021");
    assert!("10.0.0.7/32".parse::<InterfaceAddress>().is_ok());
    for text in ["10.0.0.1", "10.0.0.1/33", "10.0.0.1/0", "224.0.0.5/24", "127.0.0.1/8", "0.0.0.1/8"] {
        assert!(text.parse::<InterfaceAddress>().is_err(), "{text}");
    }
}

#[test]
fn ports_and_endpoints_round_trip_and_refuse_port_zero() {
    for text in ["1024-65535", "1-1"] {
        assert_eq!(text.parse::<PortRange>().unwrap().to_string(), text);
    }
    assert_eq!("192.0.2.1:80".parse::<Endpoint>().unwrap().to_string(), "192.0.2.1:80");
    for text in ["0-10", "10-5", "x", "70000", ""] {
        assert!(text.parse::<PortRange>().is_err(), "{text}");
    }
    for text in ["192.0.2.1", "192.0.2.1:0", ":80", "host:80", "192.0.2.1:65536"] {
        assert!(text.parse::<Endpoint>().is_err(), "{text}");
    }
}
