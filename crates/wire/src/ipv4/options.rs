//! The options of an IPv4 header (RFC 791 §3.1).

/// Option kinds this edge tells apart, copied flag and class included.
pub mod kind {
    /// End of the list.
    pub const END: u8 = 0;
    /// No operation, one octet.
    pub const NOP: u8 = 1;
    /// Record route.
    pub const RECORD_ROUTE: u8 = 7;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 68;
    /// Loose source and record route.
    pub const LOOSE_SOURCE_ROUTE: u8 = 131;
    /// Strict source and record route.
    pub const STRICT_SOURCE_ROUTE: u8 = 137;
    /// Router alert.
    pub const ROUTER_ALERT: u8 = 148;
}

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Option<'a> {
    /// The type octet.
    pub kind: u8,
    /// The whole option: type, length and data; one octet for END and NOP.
    pub bytes: &'a [u8],
}

impl Ipv4Option<'_> {
    /// Whether every fragment carries this option (RFC 791 §3.1, the copied flag).
    #[inline]
    pub fn is_copied(&self) -> bool {
        self.kind & 0x80 != 0
    }

    /// Whether this option names addresses to pass: a source route.
    #[inline]
    pub fn is_source_route(&self) -> bool {
        matches!(self.kind, kind::LOOSE_SOURCE_ROUTE | kind::STRICT_SOURCE_ROUTE)
    }

    /// Whether this option names addresses that are still to be passed: its pointer, which counts from 1, is
    /// not beyond its end (RFC 791 §3.1).
    pub fn is_unexpired_source_route(&self) -> bool {
        let is_before_end = |pointer: &u8| usize::from(*pointer) <= self.bytes.len();
        self.is_source_route() && self.bytes.get(2).is_some_and(is_before_end)
    }
}

/// Walks the options; NOPs are given, the end of the list is not. Ends at the first malformed option.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
    malformed: bool,
}

impl<'a> Options<'a> {
    /// Walks an options area.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Options<'a> {
        Options { rest: bytes, malformed: false }
    }

    /// Whether the walk ended at an option whose length makes no sense.
    #[inline]
    pub fn is_malformed(&self) -> bool {
        self.malformed
    }

    /// Whether every option of the area makes sense.
    pub fn are_valid(mut self) -> bool {
        while self.next().is_some() {}
        !self.malformed
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Ipv4Option<'a>;

    fn next(&mut self) -> Option<Ipv4Option<'a>> {
        let kind = *self.rest.first()?;
        if kind == kind::END {
            self.rest = &[];
            return None;
        }
        let length = if kind == kind::NOP { 1 } else { self.rest.get(1).copied().map_or(0, usize::from) };
        let option = self.rest.split_at_checked(length).filter(|_| length >= 2 || kind == kind::NOP);
        let Some((bytes, rest)) = option else {
            self.rest = &[];
            self.malformed = true;
            return None;
        };
        self.rest = rest;
        Some(Ipv4Option { kind, bytes })
    }
}
