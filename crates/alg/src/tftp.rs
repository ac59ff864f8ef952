//! TFTP (RFC 1350): the answer comes from another port of the server than the one that was asked.

use crate::{From, Gateway, Note, Reading, Said, Side, Want};

/// How long the answer is waited for: a few of the client's repetitions.
const LIFETIME_S: u16 = 30;

const READ: u16 = 1;
const WRITE: u16 = 2;

/// TFTP's gateway.
#[derive(Debug, Clone, Copy)]
pub struct Tftp;

impl Gateway for Tftp {
    fn read(&self, said: Said<'_>) -> Reading {
        let Said { side, bytes, ends, ground, .. } = said;
        let kind = bytes.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
        // A server inside needs no help: its answer opens its own way out.
        if side == Side::Inside && ends.client == side && matches!(kind, Some(READ | WRITE)) {
            // RFC 1350 §5: name and mode, each with a zero behind it.
            let is_whole = bytes.iter().skip(2).filter(|byte| **byte == 0).count() >= 2;
            if is_whole {
                ground.note(Note::Connection);
                // RFC 1350 §4: the server chooses a port for the transfer.
                ground.open(&Want {
                    proto: carrack_base::Proto::Udp,
                    inside_port: ends.inside_port,
                    from: From::Remote,
                    lifetime_s: LIFETIME_S,
                    uses: 1,
                    pair: false,
                    dialog: 0,
                });
            } else {
                ground.note(Note::Malformed);
            }
        }
        Reading::Done(bytes.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Edits;
    use crate::ground::{Field, ends};

    #[test]
    fn a_request_lets_one_answer_in_from_any_port_of_the_server() {
        let mut field = Field::default();
        let mut read = |side, bytes: &[u8]| {
            let mut memory = crate::Memory::default();
            let (memory, ends, ground) = (&mut memory, &ends("10.0.0.5"), &mut field);
            Tftp.read(Said { memory, side, bytes, ends, ground, edits: &mut Edits::default() });
        };
        read(Side::Inside, b"\0\x01file\0octet\0");
        read(Side::Inside, b"\0\x02file\0octet\0blksize\x001400\0");
        read(Side::Inside, b"\0\x01file");
        read(Side::Inside, b"\0\x03\0\x01data");
        read(Side::Inside, b"");
        read(Side::Outside, b"\0\x01file\0octet\0");
        assert_eq!(field.opened, [1_234, 1_234]);
        assert_eq!(field.notes, [Note::Connection, Note::Connection, Note::Malformed]);
    }
}
