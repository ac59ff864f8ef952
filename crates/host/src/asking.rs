//! Hosts that wait for an answer of their own, each for a random while, so that the routers of a link do not all answer at once.

use carrack_base::{IfIndex, Now};
use carrack_wire::MacAddr;

use crate::advertise::drawn;

/// Hosts that wait.
const ASKING_MAX: usize = 256;

/// Those that ask who has an address of all routers (RFC 4861 §7.2.7): at most `MAX_ANYCAST_DELAY_TIME`.
pub(crate) type Anycast = Askers<u128, 1_000_000_000>;
/// Those that ask what routers there are (RFC 4861 §6.2.6): at most `MAX_RA_DELAY_TIME`.
pub(crate) type Soliciting = Askers<(), 500_000_000>;

/// A host that asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<T> {
    pub(crate) interface: IfIndex,
    /// What it asked for.
    pub(crate) target: T,
    pub(crate) address: u128,
    pub(crate) mac: MacAddr,
    due: Now,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Askers<T, const DELAY_MAX_NS: u64> {
    asking: Vec<Asking<T>>,
    /// Questions so far, of which delays are drawn.
    asked: u32,
}

impl<T: Copy + PartialEq, const DELAY_MAX_NS: u64> Askers<T, DELAY_MAX_NS> {
    /// Somebody asks; who asks again meanwhile gets one answer. False: too many wait.
    pub(crate) fn asked_by(
        &mut self,
        now: Now,
        interface: IfIndex,
        target: T,
        address: u128,
        mac: MacAddr,
    ) -> bool {
        let key = |asking: &Asking<T>| (asking.interface, asking.target, asking.address);
        if self.asking.iter().any(|asking| key(asking) == (interface, target, address)) {
            return true;
        }
        let has_room = self.asking.len() < ASKING_MAX;
        if has_room {
            let due = self.soon(now);
            self.asking.push(Asking { interface, target, address, mac, due });
        }
        has_room
    }

    /// After a random part of the longest delay.
    pub(crate) const fn soon(&mut self, now: Now) -> Now {
        self.asked = self.asked.wrapping_add(1);
        now.plus_ns((drawn(self.asked, now) as u64 * DELAY_MAX_NS) >> 32)
    }

    /// Forgets those that asked on an interface for something of which this says no.
    pub(crate) fn retain(&mut self, is_answered: impl Fn(IfIndex, T) -> bool) {
        self.asking.retain(|asking| is_answered(asking.interface, asking.target));
    }

    /// Hosts that are to be answered now.
    pub(crate) fn answers(&mut self, now: Now) -> Vec<Asking<T>> {
        self.asking.extract_if(.., |asking| asking.due <= now).collect()
    }

    /// When the next answer is due.
    pub(crate) fn next_due(&self) -> Option<Now> {
        self.asking.iter().map(|asking| asking.due).min()
    }
}
