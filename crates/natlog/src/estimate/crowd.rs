//! What a few subscribers logged, as it would be had others logged it too: elsewhere and at other times. Copies that are alike
//! would pack better than what many subscribers really do.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::record::Record;

/// Subscribers and outside addresses of the others.
const SUBSCRIBERS: u64 = 1 << 20;
const ADDRESSES: u64 = 1 << 12;
const FIRST_SUBSCRIBER: u32 = 0x6440_0000;
const FIRST_ADDRESS: u32 = 0xcb00_0000;
/// Ports from 1024 on.
const FIRST_PORT: u16 = 1_024;
const PORTS: u64 = 64_512;
const HOUR_MS: u64 = 3_600_000;

/// The record, of copy number `copy`: what belonged together belongs together still.
pub(super) fn elsewhere(record: &Record, copy: u64) -> Record {
    let who = scattered(copy, folded(record.inside));
    let place = scattered(copy, u64::from(record.outside) << 16 | u64::from(record.first));
    let size = u64::from(record.last.saturating_sub(record.first)) + 1;
    let is_block = size > 1;
    let (outside, first) = match record {
        Record { outside: 0, .. } => (0, record.first),
        // Of a subscriber that is tied to an address, all ports are of that one.
        Record { first: 0, .. } => (address(who), 0),
        _ if is_block => (address(place >> 20), FIRST_PORT + (place % (PORTS / size).max(1) * size) as u16),
        _ => (address(who), FIRST_PORT + (place % PORTS) as u16),
    };
    Record {
        unix_ms: record.unix_ms + (who >> 20) % HOUR_MS,
        inside: match record.inside {
            IpAddr::V4(ip) if ip.is_unspecified() => record.inside,
            IpAddr::V4(_) => Ipv4Addr::from(FIRST_SUBSCRIBER + (who % SUBSCRIBERS) as u32).into(),
            IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip) ^ u128::from(who % SUBSCRIBERS) << 64).into(),
        },
        outside,
        first,
        last: if outside == 0 { record.last } else { first.saturating_add((size - 1) as u16) },
        ..*record
    }
}

fn address(chance: u64) -> u32 {
    FIRST_ADDRESS + (chance % ADDRESSES) as u32
}

fn folded(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => (u128::from(ip) >> 64) as u64 ^ u128::from(ip) as u64,
    }
}

/// A number that looks like chance; the same for the same two.
fn scattered(copy: u64, of: u64) -> u64 {
    let mixed = |n: u64| (n ^ n >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    let n = mixed(mixed(mixed(copy.wrapping_add(1)).wrapping_add(of)));
    n ^ n >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Kind;

    #[test]
    fn what_begins_and_ends_somewhere_does_so_elsewhere() {
        let begin = Record {
            inside: Ipv4Addr::new(100, 64, 0, 9).into(),
            outside: 0xc000_0201,
            first: 4_096,
            last: 4_607,
            ..Record::new(5_000, Kind::BlockAllocated)
        };
        let end = Record { unix_ms: 9_000, kind: Kind::BlockReleased, ..begin };
        let mut places = std::collections::BTreeSet::new();
        for copy in 0..1_000 {
            let (begin, end) = (elsewhere(&begin, copy), elsewhere(&end, copy));
            assert_eq!(Record { unix_ms: begin.unix_ms + 4_000, kind: Kind::BlockReleased, ..begin }, end);
            assert!(begin.last - begin.first == 511 && begin.first >= 1_024 && begin.first % 512 == 0);
            places.insert((begin.outside, begin.first, begin.inside));
        }
        assert!(places.len() > 990, "{}", places.len());
    }
}
