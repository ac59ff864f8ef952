//! Addresses written into a message, and the lengths around them where they have become longer or shorter.
//!
//! In aligned PER (ITU-T X.691) an address and its port are whole octets at the end of their alternative, so that what
//! follows keeps its bits: octets are put in or taken out, nothing is shifted. What counts them are the lengths of open types
//! (§10.2), of the user information (Q.931 §4.5.30) and of the TPKT (RFC 1006 §6).

use core::net::{IpAddr, Ipv6Addr};
use core::ops::Range;

use super::TPKT;
use super::per::{Addresses, FOUND_MAX, Found, LENGTHS_MAX};
use crate::{EDIT_TEXT_MAX, Edits};

/// The longest change: two octets with the alternative's number, an IPv6 address, a port.
const TEXT_MAX: usize = 20;
/// Changes of one message: the addresses, the lengths, and those of the user information and the TPKT.
const PATCHES_MAX: usize = FOUND_MAX + LENGTHS_MAX + 2;
/// Changes so near to each other become one, as a message has room for a few only.
const NEAR: usize = 16;

/// One change.
#[derive(Debug, Clone, Copy, Default)]
struct Patch {
    start: usize,
    end: usize,
    text: [u8; TEXT_MAX],
    len: usize,
}

impl Patch {
    fn new(range: Range<usize>, text: &[u8]) -> Option<Self> {
        let mut patch = Self { start: range.start, end: range.end, len: text.len(), ..Self::default() };
        patch.text.get_mut(..text.len())?.copy_from_slice(text);
        Some(patch)
    }

    /// Octets that it adds.
    const fn growth(&self) -> isize {
        self.len as isize - (self.end - self.start) as isize
    }

    fn text(&self) -> &[u8] {
        self.text.get(..self.len).unwrap_or(&[])
    }
}

/// The changes of one message.
pub(super) struct Patches {
    list: [Patch; PATCHES_MAX],
    count: usize,
    /// Where the encoding begins in which addresses and lengths have their places.
    offset: usize,
}

impl Found {
    /// The endpoint in a message whose encoding begins at `offset`.
    pub(super) fn read(&self, bytes: &[u8], offset: usize) -> Option<(IpAddr, u16)> {
        let at = offset + self.at;
        let octets = bytes.get(at..at + self.form.octets())?;
        let (ip, port) = octets.split_last_chunk::<2>()?;
        let ip = match ip.first_chunk::<16>() {
            Some(six) => Ipv6Addr::from(*six).into(),
            None => IpAddr::from(*ip.first_chunk::<4>()?),
        };
        Some((ip, u16::from_be_bytes(*port)))
    }

    /// Is one of the extensions there that nobody knows?
    fn is_extended(&self, bytes: &[u8], offset: usize) -> bool {
        let at = offset * 8 + self.choice_at + 3;
        self.form.extends() && bytes.get(at / 8).is_none_or(|octet| octet >> (7 - at % 8) & 1 == 1)
    }
}

/// Octets that are written bit by bit.
#[derive(Default)]
struct Writer {
    text: [u8; TEXT_MAX],
    bits: usize,
}

impl Writer {
    fn bits(&mut self, value: u8, count: usize) {
        for at in (0..count).rev() {
            if let Some(octet) = self.text.get_mut(self.bits / 8) {
                *octet |= (value >> at & 1) << (7 - self.bits % 8);
            }
            self.bits += 1;
        }
    }

    fn octets(&mut self, octets: &[u8]) {
        self.bits = self.bits.next_multiple_of(8);
        octets.iter().for_each(|octet| self.bits(*octet, 8));
    }
}

impl Patches {
    pub(super) fn new(offset: usize) -> Self {
        Self { list: [Patch::default(); PATCHES_MAX], count: 0, offset }
    }

    /// Another endpoint in place of one. One with extensions stays what it is when the version would change.
    pub(super) fn endpoint(&mut self, bytes: &[u8], found: Found, (ip, port): (IpAddr, u16)) {
        let (start, end) = (self.offset + found.at, self.offset + found.at + found.form.octets());
        if ip.is_ipv6() == found.form.is_six() {
            let mut writer = Writer::default();
            writer.endpoint(ip, port);
            self.add(start..end, &writer);
        } else if !found.is_extended(bytes, self.offset) {
            let form = found.form.other();
            let start = self.offset + found.choice_at / 8;
            let mut writer = Writer::default();
            // What is before the alternative's number in its octet stays.
            let kept = found.choice_at % 8;
            writer.bits(bytes.get(start).map_or(0, |octet| octet >> (8 - kept).min(7)), kept);
            writer.bits(form.number(), 3);
            writer.bits(0, usize::from(form.extends()));
            writer.endpoint(ip, port);
            self.add(start..end, &writer);
        }
    }

    fn add(&mut self, range: Range<usize>, writer: &Writer) {
        let text = writer.text.get(..writer.bits / 8).unwrap_or(&[]);
        self.push(Patch::new(range, text));
    }

    fn push(&mut self, patch: Option<Patch>) {
        if let (Some(patch), Some(place)) = (patch, self.list.get_mut(self.count)) {
            *place = patch;
            self.count += 1;
        }
    }

    /// How much longer what is in this range has become.
    fn growth(&self, range: &Range<usize>) -> isize {
        let list = self.list.get(..self.count).unwrap_or(&[]);
        let inside = list.iter().filter(|patch| range.contains(&patch.start));
        inside.map(Patch::growth).sum()
    }

    /// Puts all changes into `edits`, with the lengths they need: of the encoding, of the user information when it is in one,
    /// and of the TPKT. False when a length cannot be kept up with.
    pub(super) fn write(
        mut self,
        bytes: &[u8],
        in_user_information: bool,
        addresses: &Addresses,
        edits: &mut Edits,
    ) -> bool {
        if self.growth(&(0..usize::MAX)) != 0 && self.lengths(bytes, in_user_information, addresses).is_none()
        {
            return false;
        }
        let list = self.list.get_mut(..self.count).unwrap_or(&mut []);
        list.sort_unstable_by_key(|patch| patch.start);
        let mut text = [0; EDIT_TEXT_MAX];
        let mut rest: &[Patch] = list;
        while let Some((first, _)) = rest.split_first() {
            let near = rest.windows(2).take_while(|two| matches!(two, [a, b] if b.start - a.end <= NEAR));
            let (run, others) = rest.split_at((near.count() + 1).min(rest.len()));
            let end = run.last().map_or(first.end, |last| last.end);
            let Some(len) = joined(bytes, run, &mut text) else { return false };
            edits.replace(first.start..end, text.get(..len).unwrap_or(&[]));
            rest = others;
        }
        true
    }

    /// The lengths of whatever has become longer or shorter: the inner ones first, as they may themselves need another octet.
    fn lengths(&mut self, bytes: &[u8], in_user_information: bool, addresses: &Addresses) -> Option<()> {
        for length in addresses.lengths()? {
            let [at, start, end] = [length.at, length.start, length.end].map(|place| self.offset + place);
            let new = (end - start).checked_add_signed(self.growth(&(start..end)))?;
            // X.691 §10.9.3.6, §10.9.3.7: 127 is the longest with one octet.
            let patch = match new {
                0..=127 => Patch::new(at..start, &[new as u8]),
                128..=16_383 => Patch::new(at..start, &(0x8000 | new as u16).to_be_bytes()),
                _ => None,
            };
            self.push(Some(patch?));
        }
        let all = self.growth(&(0..usize::MAX));
        let two = |this: &mut Self, at: usize| {
            let old = u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?);
            let new = u16::try_from(usize::from(old).checked_add_signed(all)?).ok()?;
            this.push(Patch::new(at..at + 2, &new.to_be_bytes()));
            Some(())
        };
        two(self, TPKT - 2)?;
        // Before the encoding: the length, then the protocol discriminator.
        if in_user_information { two(self, self.offset - 3) } else { Some(()) }
    }
}

impl Writer {
    fn endpoint(&mut self, ip: IpAddr, port: u16) {
        match ip {
            IpAddr::V4(ip) => self.octets(&ip.octets()),
            IpAddr::V6(ip) => self.octets(&ip.octets()),
        }
        self.octets(&port.to_be_bytes());
    }
}

/// The texts of changes with what is between them, in `out`: its length.
fn joined(bytes: &[u8], run: &[Patch], out: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    let mut put = |part: &[u8]| {
        out.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
        Some(())
    };
    for (at, patch) in run.iter().enumerate() {
        if let Some(before) = at.checked_sub(1).and_then(|before| run.get(before)) {
            put(bytes.get(before.end..patch.start)?)?;
        }
        put(patch.text())?;
    }
    Some(len)
}
