//! Aligned PER (ITU-T X.691), as far as it takes to find transport addresses: values are walked past, not kept.

use super::schema::{Field, Form, Role, Type};

/// Addresses of one message, at most.
pub(super) const FOUND_MAX: usize = 32;
/// Elements of one list, at most.
const LIST_MAX: usize = 64;
/// Values of one message, at most.
const STEPS_MAX: u32 = 4_096;

/// Lengths of one message around addresses, at most.
pub(super) const LENGTHS_MAX: usize = 96;

/// An address of either version, with its port behind it: 6 or 18 octets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// What it is for.
    pub(super) role: Role,
    /// Where its first octet is.
    pub(super) at: usize,
    /// Where the number of the alternative is that it is one of, in bits.
    pub(super) choice_at: usize,
    /// How it is encoded.
    pub(super) form: Form,
}

/// A length that counts an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Length {
    /// Where it is, and where what it counts begins and ends.
    pub(super) at: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// All of one message.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    list: [Option<Found>; FOUND_MAX],
    count: usize,
    lengths: Lengths,
}

/// Those around addresses, the inner ones before the outer ones.
#[derive(Debug)]
struct Lengths {
    list: [Option<Length>; LENGTHS_MAX],
    /// There may be more than there is room for.
    count: usize,
}

impl Default for Lengths {
    fn default() -> Self {
        Self { list: [None; LENGTHS_MAX], count: 0 }
    }
}

impl Addresses {
    pub(super) fn iter(&self) -> impl Iterator<Item = Found> + '_ {
        self.list.iter().flatten().copied()
    }

    /// The lengths that count addresses, the inner ones first; `None` when they are too many.
    pub(super) fn lengths(&self) -> Option<impl Iterator<Item = Length> + '_> {
        let lengths = self.lengths.list.get(..self.lengths.count)?;
        Some(lengths.iter().flatten().copied())
    }

    fn add_length(&mut self, length: Length) {
        if let Some(place) = self.lengths.list.get_mut(self.lengths.count) {
            *place = Some(length);
        }
        self.lengths.count += 1;
    }

    fn add(&mut self, found: Found) -> Option<()> {
        *self.list.get_mut(self.count)? = Some(found);
        self.count += 1;
        Some(())
    }
}

/// Does the walk go on? It stops where nothing more is to be found in what encloses a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Walk {
    On,
    Stop,
}

/// The addresses in a value of this type at the start of `bytes`; `None` for what is not its encoding.
pub(super) fn addresses(kind: &Type, bytes: &[u8]) -> Option<Addresses> {
    let mut found = Addresses::default();
    let mut reader = Reader { bytes, at: 0, end: bytes.len() * 8, steps: 0, choice_at: 0, found: &mut found };
    reader.walk(kind, Role::None)?;
    Some(found)
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// Position and end, in bits.
    at: usize,
    end: usize,
    steps: u32,
    /// Where the number of the last choice is.
    choice_at: usize,
    found: &'a mut Addresses,
}

impl Reader<'_> {
    fn bits(&mut self, count: usize) -> Option<u32> {
        if self.end - self.at < count {
            return None;
        }
        let mut value = 0;
        for at in self.at..self.at + count {
            let bit = self.bytes.get(at / 8)? >> (7 - at % 8) & 1;
            value = value << 1 | u32::from(bit);
        }
        self.at += count;
        Some(value)
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(8).min(self.end);
    }

    fn skip(&mut self, bits: usize) -> Option<()> {
        if self.end - self.at < bits {
            return None;
        }
        self.at += bits;
        Some(())
    }

    /// X.691 §10.9.3.5: a length without bounds; 16 K and more are sent in fragments, which no address needs.
    fn length(&mut self) -> Option<usize> {
        self.align();
        let first = self.bits(8)?;
        match first >> 6 {
            0 | 1 => Some(first as usize),
            2 => Some(((first & 0x3f) << 8 | self.bits(8)?) as usize),
            _ => None,
        }
    }

    /// X.691 §10.6: a number that is small as a rule.
    fn small(&mut self) -> Option<usize> {
        let is_large = self.bits(1)? == 1;
        if is_large { None } else { self.bits(6).map(|number| number as usize) }
    }

    /// X.691 §10.2: a value with its length before it. What it is goes unread when it is not known.
    fn open(&mut self, kind: Option<&Type>) -> Option<()> {
        let length_at = self.at.div_ceil(8);
        let len = self.length()? * 8;
        let (start, end) = (self.at, self.end);
        self.skip(len)?;
        if let Some(kind) = kind.filter(|kind| !matches!(kind, Type::Unknown)) {
            (self.at, self.end) = (start, start + len);
            let before = self.found.count;
            self.walk(kind, Role::None)?;
            (self.at, self.end) = (start + len, end);
            if self.found.count > before {
                let (start, end) = (start / 8, (start + len) / 8);
                self.found.add_length(Length { at: length_at, start, end });
            }
        }
        Some(())
    }

    fn walk(&mut self, kind: &Type, role: Role) -> Option<Walk> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return None;
        }
        match kind {
            Type::Null => {}
            Type::Bits(count) => self.skip(usize::from(*count))?,
            Type::Octets(count) => {
                self.align();
                self.skip(usize::from(*count) * 8)?;
            }
            Type::Wide => {
                // X.691 §10.5.7.4: how many octets, one to four, then those.
                let octets = self.bits(2)? as usize + 1;
                self.align();
                self.skip(octets * 8)?;
            }
            Type::Bytes => {
                let len = self.length()?;
                self.skip(len * 8)?;
            }
            Type::Text { length_bits, char_bits } => {
                if *length_bits == 8 {
                    self.align();
                }
                let len = self.bits(usize::from(*length_bits))? as usize + 1;
                self.align();
                self.skip(len * usize::from(*char_bits))?;
            }
            Type::List(of) => {
                let len = self.length()?;
                if len > LIST_MAX {
                    return None;
                }
                for _ in 0..len {
                    if self.walk(of, role)? == Walk::Stop {
                        return Some(Walk::Stop);
                    }
                }
            }
            Type::Sequence { extends, fields, more } => return self.sequence(*extends, fields, more, role),
            Type::Choice { extends, root, more } => return self.choice(*extends, root, more, role),
            Type::Encoded(of) => self.open(Some(of))?,
            Type::For(role, of) => return self.walk(of, *role),
            Type::Address(form) => {
                let choice_at = self.choice_at;
                self.align();
                let at = self.at / 8;
                self.skip(form.octets() * 8)?;
                self.found.add(Found { role, at, choice_at, form: *form })?;
            }
            Type::Rest => return Some(Walk::Stop),
            Type::Unknown => return None,
        }
        Some(Walk::On)
    }

    /// X.691 §18.
    fn sequence(&mut self, extends: bool, fields: &[Field], more: &[&Type], role: Role) -> Option<Walk> {
        let extended = extends && self.bits(1)? == 1;
        let optional = fields.iter().filter(|field| matches!(field, Field::Optional(_))).count();
        let present = self.bits(optional)?;
        let mut left = optional;
        for field in fields {
            let kind = match field {
                Field::Always(kind) => kind,
                Field::Optional(kind) => {
                    left -= 1;
                    if present >> left & 1 == 0 {
                        continue;
                    }
                    kind
                }
            };
            if self.walk(kind, role)? == Walk::Stop {
                return Some(Walk::Stop);
            }
        }
        if extended {
            let count = self.small()? + 1;
            let bitmap = self.at;
            self.skip(count)?;
            for n in 0..count {
                let at = bitmap + n;
                if self.bytes.get(at / 8)? >> (7 - at % 8) & 1 == 1 {
                    self.open(more.get(n).copied())?;
                }
            }
        }
        Some(Walk::On)
    }

    /// X.691 §22.
    fn choice(&mut self, extends: bool, root: &[&Type], more: &[&Type], role: Role) -> Option<Walk> {
        if extends && self.bits(1)? == 1 {
            let index = self.small()?;
            self.open(more.get(index).copied())?;
            return Some(Walk::On);
        }
        let width = root.len().next_power_of_two().trailing_zeros() as usize;
        self.choice_at = self.at;
        let index = self.bits(width)? as usize;
        self.walk(root.get(index)?, role)
    }
}
