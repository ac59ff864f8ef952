//! A reload on one worker: it makes ready between bursts, forwards by the old plan meanwhile, and changes over at once.

use std::sync::Arc;

use carrack_base::{IfIndex, Now, Reason};
use carrack_nat::Change;

use crate::mailbox::Event;
use crate::plan::Plan;
use crate::policer::Buckets;
use crate::worker::Worker;

/// A plan that is not in force yet.
#[derive(Debug)]
pub(crate) struct Next {
    plan: Arc<Plan>,
    /// Has the control plane been told that all is ready?
    told: bool,
    /// Second in which it last heard of it.
    heard_s: u32,
}

/// A plan in force that is not all in effect yet, or of which the control plane has not been told.
#[derive(Debug)]
pub(crate) struct Taken {
    generation: u64,
    sessions_ended: u64,
}

impl Worker {
    /// Is there something to make ready? Then the time between bursts is not idle.
    #[must_use]
    pub fn is_preparing(&self) -> bool {
        self.taken.is_some() || self.next.as_ref().is_some_and(|next| !next.told)
    }

    /// Tells the control plane of the plan in force, once its forward rules are too.
    pub(crate) fn tell_taken(&mut self) {
        if self.taken.is_none() || self.nat.is_laying() || self.mail.events.slots() < 4 {
            return;
        }
        if let Some(Taken { generation, sessions_ended }) = self.taken.take() {
            let _ = self.mail.events.push(Event::Reconfigured { generation, sessions_ended });
        }
    }

    pub(crate) fn prepare(&mut self, plan: Arc<Plan>, change: Box<Change>, now: Now) {
        self.drop_next();
        let unused = self.nat.begin(change);
        debug_assert!(unused.is_none(), "the change before was given up above");
        self.next = Some(Next { plan, told: false, heard_s: now.s() });
    }

    /// Makes a little more ready.
    pub(crate) fn prepare_some(&mut self, now: Now) {
        let Some(next) = self.next.as_mut().filter(|next| !next.told) else { return };
        let ready = self.nat.advance(now);
        if self.mail.events.slots() < 4 {
            return;
        }
        let generation = next.plan.snapshot.generation;
        if ready {
            next.told = true;
            let _ = self.mail.events.push(Event::Prepared { generation });
        } else if next.heard_s != now.s() {
            next.heard_s = now.s();
            let _ = self.mail.events.push(Event::Preparing { generation });
        }
    }

    pub(crate) fn commit(&mut self, generation: u64, now: Now) {
        let Some(next) = self.next.take_if(|next| next.plan.snapshot.generation == generation) else {
            return;
        };
        // What is not ready after all is made ready here; the control plane does not ask for that.
        while !self.nat.advance(now) {}
        let sessions_ended = self.nat.ended_by_change();
        let change = self.nat.commit(now);
        self.buckets = Buckets::new(&next.plan.snapshot.policers, self.rng.next_u64(), now);
        let old = std::mem::replace(&mut self.plan, next.plan);
        self.translators.renumber(&old.snapshot.siit, &self.plan.snapshot.siit);
        self.leave_interfaces(&old, now);
        self.taken = Some(Taken { generation, sessions_ended });
        let _ = self.mail.events.push(Event::Retired { plan: old, change });
    }

    pub(crate) fn abandon(&mut self, generation: u64) {
        if self.next.as_ref().is_some_and(|next| next.plan.snapshot.generation == generation) {
            self.drop_next();
        }
    }

    fn drop_next(&mut self) {
        if let Some(next) = self.next.take() {
            let change = self.nat.abandon();
            let _ = self.mail.events.push(Event::Retired { plan: next.plan, change });
        }
    }

    /// What belongs to interfaces that are gone, or now are another link, ends.
    fn leave_interfaces(&mut self, old: &Plan, now: Now) {
        let plan = self.plan.clone();
        let gone = |interface: IfIndex| plan.line(interface).is_none();
        while let Some(waiting) = self.neighbours.next_of(gone) {
            self.discard(waiting.frame, &waiting.meta, Reason::SnapshotStale, now);
        }
        self.neighbours.forget(|interface| match (old.line(interface), plan.line(interface)) {
            (Some(before), Some(after)) => !before.is_same_link(after),
            _ => true,
        });
    }
}
