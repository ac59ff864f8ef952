//! IPv6 packets of subscribers behind a NAT64, computed from a number as those of IPv4 are.

use carrack_wire::checksum;
use carrack_wire::ethernet::MacAddr;

use crate::generator::{Session, fold};

/// Bytes before the payload: Ethernet, IPv6, UDP.
const HEADERS6: usize = 62;
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

/// What all packets of subscribers have in common.
pub struct Template6 {
    bytes: Vec<u8>,
    /// Sum over what never changes of UDP and its pseudo-header.
    udp_sum: u64,
}

impl Template6 {
    /// For packets of so many bytes in memory.
    pub fn new(length: usize, to: MacAddr, from: MacAddr) -> Self {
        let mut packet = vec![0; length.max(HEADERS6 + 8)];
        let udp_length = (packet.len() - 54) as u16;
        packet[0..6].copy_from_slice(&to.0);
        packet[6..12].copy_from_slice(&from.0);
        packet[12..14].copy_from_slice(&[0x86, 0xdd]);
        packet[14] = 0x60;
        packet[18..20].copy_from_slice(&udp_length.to_be_bytes());
        [packet[20], packet[21]] = [17, 64];
        packet[22..38].copy_from_slice(&SUBSCRIBERS6.to_be_bytes());
        packet[38..54].copy_from_slice(&PREFIX6.to_be_bytes());
        packet[58..60].copy_from_slice(&udp_length.to_be_bytes());
        let pseudo = checksum::pseudo_v6(SUBSCRIBERS6, PREFIX6, 17, udp_length.into());
        let udp_sum = u64::from(!pseudo.with_bytes(&packet[54..]).checksum());
        Self { bytes: packet, udp_sum }
    }

    /// Every byte of the packet is written.
    #[inline(always)]
    pub fn write(&self, serial: u32, session: &Session, frame: &mut [u8]) {
        if frame.len() != self.bytes.len() {
            return;
        }
        frame.copy_from_slice(&self.bytes);
        let Some(head) = frame.first_chunk_mut::<{ HEADERS6 + 8 }>() else { return };
        let ports = u32::from(session.port) << 16 | u32::from(session.remote_port);
        let changing = [session.inside, session.remote, ports, serial];
        let sum = changing.iter().fold(self.udp_sum, |sum, word| sum + u64::from(*word));
        let udp = fold(sum) as u16;
        // Invariant: constants within the 70 bytes.
        head[34..38].copy_from_slice(&session.inside.to_be_bytes());
        head[50..54].copy_from_slice(&session.remote.to_be_bytes());
        head[54..58].copy_from_slice(&ports.to_be_bytes());
        head[60..62].copy_from_slice(&(if udp == 0 { 0xffff } else { udp }).to_be_bytes());
        head[62..66].copy_from_slice(&serial.to_be_bytes());
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
