//! Which call a message is of, and whether it ends it (RFC 3261 §12, RFC 3261 §15).

use super::header;
use crate::text::{lines, number};

/// A number for the call that a message is of, by its Call-ID; 0 for none.
pub(super) fn of(head: &[u8]) -> u32 {
    // FNV-1a: those who share a call's number share nothing but the end of what is expected.
    let mix = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    value(head, &[b"Call-ID", b"i"]).map_or(0, |id| id.iter().fold(0x811c_9dc5, mix).max(1))
}

/// The call that this message ends: a BYE that is answered, whatever the answer is (RFC 3261 §15.1.1), and an INVITE that
/// is refused, unless it comes again with credentials (RFC 3261 §22.2).
pub(super) fn ended_by(head: &[u8]) -> Option<u32> {
    let first = head.get(lines(head).next()?)?;
    let (code, 3) = number(first.strip_prefix(b"SIP/2.0 ")?, 699)? else { return None };
    let sequence = value(head, &[b"CSeq"])?;
    let method = sequence.split(|byte| byte.is_ascii_whitespace()).rfind(|word| !word.is_empty())?;
    let ends = match method {
        b"BYE" => code >= 200,
        b"INVITE" => code >= 300 && !matches!(code, 401 | 407),
        _ => false,
    };
    Some(of(head)).filter(|dialog| ends && *dialog != 0)
}

/// The value of the first header of one of these names.
fn value<'a>(head: &'a [u8], names: &[&[u8]]) -> Option<&'a [u8]> {
    lines(head).skip(1).find_map(|line| {
        let (name, value) = header(head, line)?;
        let is_it = names.iter().any(|known| known.eq_ignore_ascii_case(name));
        is_it.then(|| head.get(value)).flatten().map(<[u8]>::trim_ascii)
    })
}
