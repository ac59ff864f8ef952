//! When questions for an address that several routers have are answered (RFC 4861 §7.2.7).

use carrack_base::{IfIndex, Now};
use carrack_wire::MacAddr;

use crate::advertise::drawn;

/// `MAX_ANYCAST_DELAY_TIME`.
const DELAY_MAX_NS: u64 = 1_000_000_000;
/// Hosts that wait for an answer.
const ASKING_MAX: usize = 256;

/// A host that asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking {
    pub(crate) interface: IfIndex,
    pub(crate) target: u128,
    pub(crate) address: u128,
    pub(crate) mac: MacAddr,
    due: Now,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Anycast {
    asking: Vec<Asking>,
    /// Questions so far, of which delays are drawn.
    asked: u32,
}

impl Anycast {
    /// Somebody asks who has `target`. He is answered after a random part of a second, so that the routers of a link do not all
    /// answer at once; who asks again meanwhile gets one answer. False: too many wait, he may ask again.
    pub(crate) fn asked_by(
        &mut self,
        now: Now,
        interface: IfIndex,
        target: u128,
        address: u128,
        mac: MacAddr,
    ) -> bool {
        let key = |asking: &Asking| (asking.interface, asking.target, asking.address);
        if self.asking.iter().any(|asking| key(asking) == (interface, target, address)) {
            return true;
        }
        let has_room = self.asking.len() < ASKING_MAX;
        if has_room {
            self.asked = self.asked.wrapping_add(1);
            let due = now.plus_ns((u64::from(drawn(self.asked, now)) * DELAY_MAX_NS) >> 32);
            self.asking.push(Asking { interface, target, address, mac, due });
        }
        has_room
    }

    /// Forgets those that asked on an interface for an address of which this says no.
    pub(crate) fn retain(&mut self, is_answered: impl Fn(IfIndex, u128) -> bool) {
        self.asking.retain(|asking| is_answered(asking.interface, asking.target));
    }

    /// Hosts that are to be answered now.
    pub(crate) fn answers(&mut self, now: Now) -> Vec<Asking> {
        self.asking.extract_if(.., |asking| asking.due <= now).collect()
    }

    /// When the next answer is due.
    pub(crate) fn next_due(&self) -> Option<Now> {
        self.asking.iter().map(|asking| asking.due).min()
    }
}
