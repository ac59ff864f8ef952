//! A ring of packets: each in one slot, or in a few that follow each other.

use carrack_base::IfIndex;

/// Bytes of packet in one slot: all of it, but on links that take more than Ethernet's 1,500.
const SLOT_BYTES: usize = 1_536;
/// Longest packet, with its link header: what the largest packet buffer holds.
pub const PACKET_BYTES_MAX: usize = 9_728;

/// A packet or a part of one.
struct Slot {
    interface: IfIndex,
    /// Valid bytes.
    len: u16,
    /// The next slot goes on with the same packet.
    more: bool,
    bytes: [u8; SLOT_BYTES],
}

/// Where packets go in.
pub struct PacketSender(rtrb::Producer<Slot>);

/// Where they come out.
pub struct PacketReceiver {
    slots: rtrb::Consumer<Slot>,
    /// The packet that came out last.
    packet: Vec<u8>,
}

/// A ring of so many slots: packets of up to 1,536 bytes each, or fewer that are longer.
#[must_use]
pub fn packet_ring(slots: usize) -> (PacketSender, PacketReceiver) {
    let (sender, slots) = rtrb::RingBuffer::new(slots);
    (PacketSender(sender), PacketReceiver { slots, packet: Vec::with_capacity(PACKET_BYTES_MAX) })
}

impl PacketSender {
    /// Puts in a whole packet (with its Ethernet header) that came from an interface or shall leave by it. False when there is
    /// no room for all of it, or it is longer than [`PACKET_BYTES_MAX`].
    #[must_use]
    pub fn push(&mut self, interface: IfIndex, packet: &[u8]) -> bool {
        let parts = packet.len().div_ceil(SLOT_BYTES);
        if packet.len() > PACKET_BYTES_MAX {
            return false;
        }
        let Ok(room) = self.0.write_chunk_uninit(parts) else { return false };
        let slot = |(at, part): (usize, &[u8])| {
            let mut bytes = [0; SLOT_BYTES];
            bytes[..part.len()].copy_from_slice(part);
            Slot { interface, len: part.len() as u16, more: at + 1 < parts, bytes }
        };
        // All at once: the receiver never sees a part alone.
        room.fill_from_iter(packet.chunks(SLOT_BYTES).enumerate().map(slot));
        true
    }
}

impl PacketReceiver {
    /// The next packet and its interface.
    pub fn pop(&mut self) -> Option<(IfIndex, &[u8])> {
        self.packet.clear();
        loop {
            let slot = self.slots.pop().ok()?;
            // Within its capacity, as no sender takes a longer packet.
            self.packet.extend_from_slice(slot.bytes.get(..usize::from(slot.len)).unwrap_or(&[]));
            if !slot.more {
                return Some((slot.interface, &self.packet));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_any_length_come_out_as_they_went_in_or_not_at_all() {
        let (mut sender, mut receiver) = packet_ring(8);
        let packet = |len: usize| (0..len).map(|at| (at % 251) as u8).collect::<Vec<_>>();
        // Again and again, so that they lie across the ring's end.
        for round in 0..9 {
            for len in [60, 1_536, 1_537, 3_072, 9_022, PACKET_BYTES_MAX] {
                let packet = packet(len);
                assert!(sender.push(IfIndex(round), &packet));
                let (interface, found) = receiver.pop().unwrap();
                assert!(interface == IfIndex(round) && found == packet, "{len}");
            }
        }
        assert!(receiver.pop().is_none());
        assert!(!sender.push(IfIndex(0), &packet(PACKET_BYTES_MAX + 1)));
        assert!(sender.push(IfIndex(1), &packet(3_000)));
        assert!(!sender.push(IfIndex(2), &packet(9_300)), "seven slots where six are free");
        assert!(sender.push(IfIndex(3), &packet(9_200)));
        assert!(!sender.push(IfIndex(4), &packet(60)));
        for expected in [Some((IfIndex(1), 3_000)), Some((IfIndex(3), 9_200)), None] {
            assert_eq!(receiver.pop().map(|(interface, packet)| (interface, packet.len())), expected);
        }
    }
}
