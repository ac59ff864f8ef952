//! IPv6 packets of subscribers behind a NAT64, computed from a number as those of IPv4 are.

use carrack_wire::checksum;
use carrack_wire::ethernet::MacAddr;

use crate::generator::{Session, fold};

/// Subscriber addresses: 2001:db8:1::/96 and the IPv4 address that the same subscriber has in a NAT44 scenario.
pub const SUBSCRIBERS6: u128 = 0x2001_0db8_0001_u128 << 80;
/// The NAT64 prefix, 2001:db8:64::/96.
pub const PREFIX6: u128 = 0x2001_0db8_0064_u128 << 80;

/// The IPv6 address of a subscriber.
#[inline(always)]
pub const fn subscriber6(session: &Session) -> u128 {
    SUBSCRIBERS6 | session.inside as u128
}

/// What stands for the remote.
#[inline(always)]
pub const fn remote6(session: &Session) -> u128 {
    PREFIX6 | session.remote as u128
}

/// Bytes of a frame put together in registers: what the shortest has in memory.
const SHORT: usize = 76;

/// What all packets of subscribers have in common. Words are eight bytes of the frame, network order.
pub struct Template6 {
    /// The whole packet with everything zero that differs.
    bytes: Vec<u8>,
    /// Bytes 0 to 55: link header, IPv6 header, and two bytes for the source port.
    heads: [u64; 7],
    udp_length: u64,
    /// Sum over what never changes of UDP and its pseudo-header.
    udp_sum: u64,
}

impl Template6 {
    /// For packets of so many bytes in memory.
    pub fn new(length: usize, to: MacAddr, from: MacAddr) -> Self {
        let mut packet = vec![0; length.max(SHORT)];
        let udp_length = (packet.len() - 54) as u16;
        packet[0..6].copy_from_slice(&to.0);
        packet[6..12].copy_from_slice(&from.0);
        packet[12..14].copy_from_slice(&[0x86, 0xdd]);
        packet[14] = 0x60;
        packet[18..20].copy_from_slice(&udp_length.to_be_bytes());
        [packet[20], packet[21]] = [17, 64];
        packet[22..38].copy_from_slice(&SUBSCRIBERS6.to_be_bytes());
        packet[38..54].copy_from_slice(&PREFIX6.to_be_bytes());
        let pseudo = checksum::pseudo_v6(SUBSCRIBERS6, PREFIX6, 17, udp_length.into());
        let udp_sum = u64::from(!pseudo.checksum()) + u64::from(udp_length);
        let word = |at: usize| packet[at..at + 8].iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        let heads = [0, 8, 16, 24, 32, 40, 48].map(word);
        Self { bytes: packet, heads, udp_length: udp_length.into(), udp_sum }
    }

    /// Every byte of the packet is written: a short one from registers, the rest of a longer one from the template.
    #[inline(always)]
    pub fn write(&self, serial: u32, session: &Session, frame: &mut [u8]) {
        let Some((short, rest)) = frame.split_first_chunk_mut::<SHORT>() else { return };
        if !rest.is_empty()
            && let Some(from_rest) = self.bytes.get(SHORT..)
            && rest.len() == from_rest.len()
        {
            rest.copy_from_slice(from_rest);
        }
        let mut put = |at: usize, word: u64| {
            // Invariant: callers' offsets are constants, at most 68.
            short[at..at + 8].copy_from_slice(&word.to_be_bytes());
        };
        let (inside, remote) = (u64::from(session.inside), u64::from(session.remote));
        let (port, remote_port) = (u64::from(session.port), u64::from(session.remote_port));
        let serial = u64::from(serial);
        let udp = fold(self.udp_sum + inside + remote + (port << 16 | remote_port) + serial);
        // RFC 8200 §8.1: a computed 0 is sent as 0xffff.
        let udp = if udp == 0 { 0xffff } else { udp };
        let [first, second, third, fourth, fifth, sixth, seventh] = self.heads;
        put(0, first);
        put(8, second);
        put(16, third);
        put(24, fourth);
        // The source ends at byte 38, the destination at byte 54.
        put(32, fifth | inside << 16);
        put(40, sixth);
        put(48, seventh | remote << 16 | port);
        put(56, remote_port << 48 | self.udp_length << 32 | udp << 16 | serial >> 16);
        put(68, 0);
        put(64, (serial & 0xffff) << 48);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carrack_wire::Ipv6View;

    #[test]
    fn written_packets_have_right_checksums_and_differ() {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        for length in [76, 124, 1_500] {
            let template = Template6::new(length, mac, mac);
            let mut before = Vec::new();
            for number in 0..500_u32 {
                let session = crate::generator::session(&[0x0a00_0000, 0x0a00_4d4d], number % 128);
                let mut frame = vec![0; length];
                template.write(number * 77, &session, &mut frame);
                let packet = Ipv6View::parse(&frame[14..]).unwrap();
                assert_eq!((packet.src(), packet.dst()), (subscriber6(&session), remote6(&session)));
                let length = packet.payload().len() as u32;
                let pseudo = checksum::pseudo_v6(packet.src(), packet.dst(), 17, length);
                assert_eq!(pseudo.with_bytes(packet.payload()).checksum(), 0);
                assert_ne!(before, frame);
                before = frame;
            }
        }
    }
}
