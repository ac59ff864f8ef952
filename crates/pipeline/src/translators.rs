//! What each stateless translator has done on one worker.

use carrack_base::reason::REASON_COUNT;
use carrack_base::{REASONS, Reason};

use crate::snapshot::SiitInstance;

/// Translators at most; config refuses more. Room for so many is there from the start.
pub const TRANSLATORS_MAX: usize = 256;

/// Packets one way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Translated {
    /// Packets.
    pub packets: u64,
    /// Bytes of the IP packets they came as.
    pub bytes: u64,
}

impl Translated {
    #[inline(always)]
    pub(crate) fn count(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// The counts of one translator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) to_v6: Translated,
    pub(crate) to_v4: Translated,
    drops: [u64; REASON_COUNT],
}

impl Counts {
    const NONE: Self = Self {
        to_v6: Translated { packets: 0, bytes: 0 },
        to_v4: Translated { packets: 0, bytes: 0 },
        drops: [0; REASON_COUNT],
    };

    /// The figure of that place: both ways, then the reasons in their order.
    fn figure(&self, place: usize) -> Option<(TranslatorFigure, Translated)> {
        Some(match place {
            0 => (TranslatorFigure::ToV6, self.to_v6),
            1 => (TranslatorFigure::ToV4, self.to_v4),
            _ => {
                let reason = REASONS.get(place - 2)?.reason;
                let packets = *self.drops.get(reason as usize)?;
                (TranslatorFigure::Dropped(reason), Translated { packets, bytes: 0 })
            }
        })
    }
}

/// Figures of one translator.
const FIGURES: usize = 2 + REASON_COUNT;

/// One figure of a translator, as a walk over them tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranslatorRow {
    /// Number of the translator in the snapshot.
    pub number: u16,
    /// What is counted.
    pub what: TranslatorFigure,
    /// How often, and bytes where those are counted.
    pub count: Translated,
}

/// What is counted of a translator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TranslatorFigure {
    /// Packets that became IPv6.
    ToV6,
    /// Packets that became IPv4.
    ToV4,
    /// Packets that were not translated, for this reason.
    Dropped(Reason),
}

/// The counts of all translators of the plan in force, by their numbers.
#[derive(Debug)]
pub(crate) struct Translators {
    all: Vec<Counts>,
    /// Where they are arranged anew after a reload.
    spare: Vec<Counts>,
}

impl Translators {
    pub(crate) fn new(siit: &[SiitInstance]) -> Self {
        let (mut all, spare) = (Vec::with_capacity(TRANSLATORS_MAX), Vec::with_capacity(TRANSLATORS_MAX));
        all.resize(siit.len().min(TRANSLATORS_MAX), Counts::NONE);
        Self { all, spare }
    }

    /// A reload: translators are known by their names.
    pub(crate) fn renumber(&mut self, old: &[SiitInstance], new: &[SiitInstance]) {
        self.spare.clear();
        for siit in new.iter().take(TRANSLATORS_MAX) {
            let before = old.iter().position(|other| other.name == siit.name);
            let counts = before.and_then(|at| self.all.get(at)).cloned();
            self.spare.push(counts.unwrap_or(Counts::NONE));
        }
        std::mem::swap(&mut self.all, &mut self.spare);
    }

    #[inline(always)]
    pub(crate) fn of(&mut self, number: usize) -> Option<&mut Counts> {
        self.all.get_mut(number)
    }

    pub(crate) fn dropped(&mut self, number: u16, reason: Reason) {
        let counts = self.all.get_mut(usize::from(number));
        if let Some(count) = counts.and_then(|counts| counts.drops.get_mut(reason as usize)) {
            *count += 1;
        }
    }

    /// Tells the figures from `cursor` on that are not zero, looking at most at `lines` of them. True at the end.
    pub(crate) fn walk(&self, cursor: &mut u32, lines: usize, mut put: impl FnMut(TranslatorRow)) -> bool {
        for _ in 0..lines {
            let at = *cursor as usize;
            let Some(counts) = self.all.get(at / FIGURES) else { return true };
            *cursor += 1;
            if let Some((what, count)) = counts.figure(at % FIGURES).filter(|(_, count)| count.packets != 0) {
                put(TranslatorRow { number: (at / FIGURES) as u16, what, count });
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::EamHosts;

    fn named(name: &str) -> SiitInstance {
        let translator = carrack_xlat::Siit::default();
        SiitInstance { name: name.into(), vrf: carrack_base::VrfId(0), eam_hosts: EamHosts::Ipv6, translator }
    }

    #[test]
    fn counts_go_with_the_name_over_a_reload() {
        let (old, new) = ([named("one"), named("two")], [named("two"), named("three")]);
        let mut it = Translators::new(&old);
        it.of(0).unwrap().to_v6.count(100);
        it.of(1).unwrap().to_v4.count(60);
        it.of(1).unwrap().to_v4.count(40);
        it.dropped(1, Reason::SiitLoop);
        it.dropped(7, Reason::SiitLoop);
        it.renumber(&old, &new);
        let row =
            |what, packets, bytes| TranslatorRow { number: 0, what, count: Translated { packets, bytes } };
        let (mut told, mut cursor) = (vec![], 0);
        while !it.walk(&mut cursor, 7, |row| told.push(row)) {}
        assert_eq!(
            told,
            [row(TranslatorFigure::ToV4, 2, 100), row(TranslatorFigure::Dropped(Reason::SiitLoop), 1, 0)]
        );
    }
}
