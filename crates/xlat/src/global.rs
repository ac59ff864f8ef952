//! Which IPv4 addresses are global, and which sources no packet may have.

#[cfg(test)]
mod tests;

use carrack_wire::ipv6;

/// The blocks that are not global: RFC 1918, and section 3 of RFC 5735 as RFC 6052 §3.1 wants it, with the shared
/// address space of RFC 6598 that came later. Network and prefix length.
const NON_GLOBAL: [(u32, u32); 15] = [
    (0x0000_0000, 8),  // this network
    (0x0a00_0000, 8),  // private
    (0x6440_0000, 10), // shared (RFC 6598)
    (0x7f00_0000, 8),  // loopback
    (0xa9fe_0000, 16), // link local
    (0xac10_0000, 12), // private
    (0xc000_0000, 24), // protocol assignments
    (0xc000_0200, 24), // documentation 1
    (0xc058_6300, 24), // 6to4 relays
    (0xc0a8_0000, 16), // private
    (0xc612_0000, 15), // benchmarking
    (0xc633_6400, 24), // documentation 2
    (0xcb00_7100, 24), // documentation 3
    (0xe000_0000, 4),  // multicast
    (0xf000_0000, 4),  // reserved, broadcast
];

/// Whether the address (host order) is global: what the well-known prefix may stand before (RFC 6052 §3.1).
pub const fn is_global(address: u32) -> bool {
    let mut index = 0;
    while index < NON_GLOBAL.len() {
        // Invariant: `index` is below the length by the loop's condition.
        let (network, len) = NON_GLOBAL[index];
        if (address ^ network) >> (32 - len) == 0 {
            return false;
        }
        index += 1;
    }
    true
}

/// Whether no host sends from the address, so that a packet from it is dropped in silence (RFC 7915 §4.1, RFC 1812
/// §5.3.7): this network, loopback, multicast, reserved, broadcast. Errors from there are translated all the same.
#[inline(always)]
pub const fn is_illegal_source_v4(address: u32) -> bool {
    let net = address >> 24;
    net.wrapping_sub(1) >= 0xdf || net == 127
}

/// As [`is_illegal_source_v4`] for IPv6 (RFC 7915 §5.1): unspecified, loopback, multicast, IPv4-mapped
/// (`::ffff:0:0/96`, never on the wire).
#[inline(always)]
pub const fn is_illegal_source_v6(address: u128) -> bool {
    !ipv6::is_answerable(address) || address >> 32 == 0xffff
}
