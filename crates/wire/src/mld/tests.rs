use super::*;

const ROUTER: u128 = 0xfe80 << 112 | 7;
const GROUP: u128 = 0xff02 << 112 | 0x01_ff00_0001;

/// A query's message with another max response code, group and length.
fn query(src: u128, code: u16, group: u128, len: usize) -> Vec<u8> {
    let mut message = vec![kind::LISTENER_QUERY, 0, 0, 0];
    message.extend_from_slice(&code.to_be_bytes());
    message.extend_from_slice(&[0, 0]);
    message.extend_from_slice(&group.to_be_bytes());
    message.resize(len.max(8), 0);
    packet(src, 0xff02 << 112 | 1, message)
}

fn read(packet: &[u8]) -> Result<Query, MldError> {
    Query::parse(&Ipv6View::parse(packet).unwrap())
}

/// RFC 3810 §8.1: the length tells the version.
#[test]
fn queries_of_both_versions_are_read() {
    let asked = |response_ms, version| Ok(Query { group: GROUP, response_ms, version });
    assert_eq!(read(&query(ROUTER, 10_000, GROUP, 24)), asked(10_000, MldVersion::V1));
    assert_eq!(read(&query(ROUTER, 40_000, GROUP, 24)), asked(40_000, MldVersion::V1));
    assert_eq!(read(&query(ROUTER, 10_000, GROUP, 28)), asked(10_000, MldVersion::V2));
    // Exponent 1, mantissa 0x234.
    assert_eq!(read(&query(ROUTER, 0x9234, GROUP, 28)), asked(0x1234 << 4, MldVersion::V2));
    assert_eq!(read(&query(ROUTER, 1, 0, 28)).map(|q| q.group), Ok(0));
}

/// RFC 3810 §6.2.
#[test]
fn what_is_no_query_of_this_link_is_ignored() {
    let good = query(ROUTER, 1_000, 0, 28);
    let with = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        read(&packet)
    };
    assert!(read(&good).is_ok());
    assert_eq!(with(7, 2), Err(MldError::Forwarded), "hop limit");
    assert_eq!(with(42, 1), Err(MldError::Forwarded), "padding in place of router alert");
    assert_eq!(with(50, 1), Err(MldError::Checksum));
    assert_eq!(with(48, kind::LISTENER_REPORT), Err(MldError::Kind));
    assert_eq!(read(&query(0x2001 << 112 | 7, 1_000, 0, 28)), Err(MldError::Forwarded), "source");
    assert_eq!(read(&query(ROUTER, 1_000, 0x2001 << 112, 28)), Err(MldError::Group));
    for len in [8, 20, 23, 25, 27] {
        assert_eq!(read(&query(ROUTER, 1_000, 0, len)), Err(MldError::Truncated), "{len} octets");
    }
    for len in 40..good.len() {
        let mut cut = good[..len].to_vec();
        cut[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
        assert!(read(&cut).is_err(), "{len} octets");
    }
}

/// RFC 3810 §5.2, octet by octet.
#[test]
fn a_report_has_a_router_alert_and_a_record_a_group() {
    let bytes = report(ROUTER, &[(Said::Joined, GROUP), (Said::Left, GROUP + 1)]);
    let view = Ipv6View::parse(&bytes).unwrap();
    assert_eq!((view.src(), view.dst(), view.hop_limit()), (ROUTER, REPORTS_TO, 1));
    let found = view.extensions().unwrap();
    assert!(found.has_router_alert);
    assert_eq!((found.protocol, found.offset), (ICMPV6, 48));
    let message = &bytes[48..];
    assert_eq!((message[0], &message[4..8]), (143, &[0, 0, 0, 2][..]));
    assert_eq!(message[8..12], [4, 0, 0, 0]);
    assert_eq!(message[12..28], GROUP.to_be_bytes());
    assert_eq!(message[28..32], [3, 0, 0, 0]);
    assert_eq!(message.len(), 48);
    let sum = pseudo_v6(ROUTER, REPORTS_TO, ICMPV6, 48).with_bytes(message);
    assert_eq!(sum.fold(), 0xffff);
    let many = vec![(Said::Listening, GROUP); 100];
    assert_eq!(report(0, &many).len(), 56 + RECORDS_MAX * 20);
    assert!(report(0, &many).len() <= 1_280);
}

/// RFC 2710 §3.
#[test]
fn a_report_of_version_1_goes_to_its_group() {
    let bytes = report_v1(ROUTER, GROUP);
    let view = Ipv6View::parse(&bytes).unwrap();
    assert_eq!((view.dst(), view.hop_limit(), bytes.len()), (GROUP, 1, 72));
    assert_eq!((bytes[48], &bytes[56..]), (131, &GROUP.to_be_bytes()[..]));
}
