//! IPsec: key exchanges (IKE, RFC 7296, RFC 2408) are counted, and rewritten by nobody: they are signed. What passes with their
//! help, ESP of several hosts that share an address, is the engine's (`nat`'s `esp`).

use crate::{Gateway, Note, Reading, Said};

/// Octets of the header (RFC 7296 §3.1).
const HEADER: usize = 28;

/// IPsec's gateway.
#[derive(Debug, Clone, Copy)]
pub struct Ipsec;

impl Gateway for Ipsec {
    fn read(&self, said: Said<'_>) -> Reading {
        let Said { side, bytes, ends, ground, .. } = said;
        // RFC 7296 §3.1: in the first message the responder has no number yet.
        let begins = bytes.get(8..16) == Some(&[0; 8]) && bytes.get(..8) != Some(&[0; 8]);
        if side == ends.client && begins {
            ground.note(if bytes.len() < HEADER { Note::Malformed } else { Note::Connection });
        }
        Reading::Done(bytes.len().max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ground::{Field, ends};
    use crate::{Edits, Side};

    #[test]
    fn an_exchange_is_counted_once_and_left_as_it_is() {
        let mut field = Field::default();
        let mut edits = Edits::default();
        let mut read = |side, spis: [u8; 2], len: usize| {
            let mut bytes = [[spis[0]; 8], [spis[1]; 8], [1; 8], [1; 8]].concat();
            bytes.truncate(len);
            let mut memory = crate::Memory::default();
            let (memory, ends, ground) = (&mut memory, &ends("10.0.0.5"), &mut field);
            Ipsec.read(Said { memory, side, bytes: &bytes, ends, ground, edits: &mut edits });
        };
        read(Side::Inside, [7, 0], 32);
        read(Side::Outside, [7, 9], 32);
        read(Side::Inside, [7, 9], 32);
        read(Side::Outside, [7, 0], 32);
        read(Side::Inside, [7, 0], 20);
        read(Side::Inside, [7, 0], 0);
        assert!(edits.is_empty());
        assert_eq!(field.notes, [Note::Connection, Note::Malformed]);
    }
}
