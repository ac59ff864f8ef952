//! Small pieces of text protocols.

use core::fmt::{self, Write};
use core::ops::Range;

/// Text of bounded length, written without a heap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// The text, or nothing when it is longer than `N` bytes.
    pub(crate) fn of(arguments: fmt::Arguments<'_>) -> Option<Self> {
        let mut text = Self { bytes: [0; N], len: 0 };
        text.write_fmt(arguments).ok()?;
        Some(text)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.len..self.len + part.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(part.as_bytes());
        self.len += part.len();
        Ok(())
    }
}

/// The decimal number at the start of `bytes`, at most `max`, and how many digits it has (at most ten). `None` for no
/// digit and for numbers that are greater.
pub(crate) fn number(bytes: &[u8], max: u32) -> Option<(u32, usize)> {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > 10 {
        return None;
    }
    let value = bytes.iter().take(digits).fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    (value <= u64::from(max)).then_some((value as u32, digits))
}

/// `bytes` as text, when they are ASCII.
pub(crate) fn ascii(bytes: &[u8]) -> Option<&str> {
    if bytes.is_ascii() { core::str::from_utf8(bytes).ok() } else { None }
}

/// Where the header of a message ends: behind its first empty line.
pub(crate) fn header_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4)
}

/// The lines of a text without their ends.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = 0;
    core::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let len = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let start = at;
        at = start + len + 1;
        let text = rest.get(..len)?;
        Some(start..start + text.strip_suffix(b"\r").unwrap_or(text).len())
    })
}

/// Could a message of RTSP or SIP begin so? Methods are words of capitals, answers begin with the protocol's name.
pub(crate) fn may_be_message(bytes: &[u8]) -> bool {
    let start = bytes.split(|byte| matches!(byte, b' ' | b'/')).next().unwrap_or(&[]);
    start.len() <= 32 && start.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_')
}
