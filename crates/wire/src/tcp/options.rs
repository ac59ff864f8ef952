//! The options of a TCP header (RFC 9293 §3.1).

const KIND_END: u8 = 0;
const KIND_NOP: u8 = 1;
const KIND_MSS: u8 = 2;

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOption<'a> {
    /// The kind octet.
    pub kind: u8,
    /// What follows kind and length; empty for NOP.
    pub data: &'a [u8],
}

impl TcpOption<'_> {
    /// The maximum segment size, when this is that option and its length is right.
    pub fn mss(&self) -> Option<u16> {
        match (self.kind, self.data) {
            (KIND_MSS, [high, low]) => Some(u16::from_be_bytes([*high, *low])),
            _ => None,
        }
    }
}

/// Walks the options; the end of the list is not given. Ends at the first malformed option.
#[derive(Clone, Debug)]
pub struct TcpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> TcpOptions<'a> {
    /// Walks an options area.
    pub fn new(bytes: &'a [u8]) -> TcpOptions<'a> {
        TcpOptions { rest: bytes }
    }

    /// Where in the options area the two octets of the maximum segment size are.
    pub(super) fn mss_value_offset(bytes: &[u8]) -> Option<usize> {
        let mut walk = TcpOptions::new(bytes);
        loop {
            let at = bytes.len() - walk.rest.len();
            if walk.next()?.mss().is_some() {
                return Some(at + 2);
            }
        }
    }
}

impl<'a> Iterator for TcpOptions<'a> {
    type Item = TcpOption<'a>;

    fn next(&mut self) -> Option<TcpOption<'a>> {
        let kind = *self.rest.first()?;
        let length = match kind {
            KIND_END => 0,
            KIND_NOP => 1,
            _ => self.rest.get(1).copied().filter(|length| *length >= 2).map_or(0, usize::from),
        };
        let option = self.rest.split_at_checked(length).filter(|_| length > 0);
        let Some((bytes, rest)) = option else {
            self.rest = &[];
            return None;
        };
        self.rest = rest;
        Some(TcpOption { kind, data: bytes.get(2..).unwrap_or(&[]) })
    }
}
