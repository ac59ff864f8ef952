//! What sessions keep of the policy is brought up to date after a reload: a few lines between bursts, so that packets
//! never wait for a walk over the whole table. Until its turn comes a session goes on by what it kept before.

use carrack_base::VrfId;

use crate::engine::Nat;
use crate::line::{HAIRPIN, NONE, REFRESH_IN};

/// Sessions brought up to date in one call: about as long as a burst takes.
pub(crate) const LINES_AT_ONCE: u32 = 256;

/// How far it has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal {
    /// The next line; [`NONE`] when there is nothing to do.
    cursor: u32,
    /// Timeouts have changed as well: every session gets a new deadline.
    rearm: bool,
}

impl Renewal {
    pub(crate) const NOTHING: Self = Self { cursor: NONE, rearm: false };

    /// Begins anew, from the first line. What an earlier change had still to do is done with it.
    pub(crate) fn start(&mut self, timeouts_changed: bool) {
        let unfinished = self.cursor != NONE && self.rearm;
        *self = Self { cursor: 0, rearm: timeouts_changed || unfinished };
    }
}

impl Nat {
    /// Brings the next few sessions up to date.
    #[inline]
    pub(crate) fn renew_some(&mut self, now_s: u32) {
        if self.renewal.cursor != NONE {
            self.renew_lines(now_s);
        }
    }

    #[cold]
    fn renew_lines(&mut self, now_s: u32) {
        for _ in 0..LINES_AT_ONCE {
            let Some((id, line)) = self.tables.sessions.iter_from(self.renewal.cursor).next() else {
                self.renewal = Renewal::NOTHING;
                return;
            };
            let line = *line;
            self.renewal.cursor = id + 1;
            let Some(instance) = self.policy.instances.get(self.slots.at(line.slot)) else { continue };
            let refresh = instance.inbound_refresh.get(line.proto().index()).copied().unwrap_or(true);
            let hairpin = self.directory.outside(VrfId(line.outside_vrf), line.remote_ip).is_some();
            if let Some(session) = self.tables.sessions.get_mut(id) {
                session.flags = session.flags & !(REFRESH_IN | HAIRPIN)
                    | if refresh { REFRESH_IN } else { 0 }
                    | if hairpin { HAIRPIN } else { 0 };
            }
            self.tables.permit_session(id);
            if self.renewal.rearm {
                // It is looked at within the next half minute and gets its deadline from the timeouts in force.
                self.tables.deadlines.set(id, now_s + 1 + id % 32);
            }
        }
    }
}
