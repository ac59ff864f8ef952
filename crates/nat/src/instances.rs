//! Numbers of instances in the lines of tables. They stay over a reload that changes the order of instances, so that no
//! line has to be written because another instance came or went.

use carrack_base::InstanceId;

/// No instance, and no slot.
pub(crate) const GONE: u16 = u16::MAX;

/// Slots to instances and back.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// By slot: the instance's index in the policy, or [`GONE`].
    instances: Vec<u16>,
    /// By index: the slot.
    slots: Vec<u16>,
}

impl Slots {
    /// The index of a slot's instance in the policy in force; out of range when it is gone.
    #[inline]
    pub(crate) fn at(&self, slot: u16) -> usize {
        usize::from(self.instances.get(usize::from(slot)).copied().unwrap_or(GONE))
    }

    /// The same as an id.
    pub(crate) fn id(&self, slot: u16) -> InstanceId {
        InstanceId(self.instances.get(usize::from(slot)).copied().unwrap_or(GONE))
    }

    /// The slot of an instance.
    #[inline]
    pub(crate) fn of(&self, instance: InstanceId) -> u16 {
        self.slots.get(instance.index()).copied().unwrap_or(GONE)
    }

    /// The slots after a reload to `count` instances; `to` tells what index an instance has then.
    pub(crate) fn moved(&self, count: usize, to: impl Fn(usize) -> Option<usize>) -> Self {
        let mut instances: Vec<u16> = self
            .instances
            .iter()
            .map(|at| to(usize::from(*at)).and_then(|at| u16::try_from(at).ok()).unwrap_or(GONE))
            .collect();
        let mut slots = vec![GONE; count];
        for (slot, at) in instances.iter().enumerate() {
            if let Some(place) = slots.get_mut(usize::from(*at)) {
                *place = slot as u16;
            }
        }
        for (at, place) in slots.iter_mut().enumerate().filter(|(_, place)| **place == GONE) {
            let free = instances.iter().position(|taken| *taken == GONE);
            *place = free.unwrap_or(instances.len()) as u16;
            match free.and_then(|free| instances.get_mut(free)) {
                Some(taken) => *taken = at as u16,
                None => instances.push(at as u16),
            }
        }
        Self { instances, slots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_keeps_its_slot_wherever_it_goes() {
        let first = Slots::default().moved(3, |_| None);
        assert_eq!([0, 1, 2].map(|id| first.of(InstanceId(id))), [0, 1, 2]);
        // The one in the middle goes, the others change places, two come.
        let next = first.moved(4, |at| [Some(3), None, Some(0)].get(at).copied().flatten());
        assert_eq!((next.at(0), next.at(2)), (3, 0));
        assert_eq!((next.of(InstanceId(3)), next.of(InstanceId(0))), (0, 2));
        let mut slots: Vec<u16> = (0..4).map(|id| next.of(InstanceId(id))).collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2, 3], "the free slot is used again");
        let none = next.moved(0, |_| None);
        assert!(none.at(0) > 1_000 && none.at(9) > 1_000);
    }
}
