//! A reload, in three steps, so that packets never wait for a walk over a table.
//!
//! 1. [`Change::prepare`], on any thread, reserves and builds all that is new.
//! 2. From [`Nat::begin`] on, the worker still works by the old policy, all of it, while [`Nat::advance`] ends what the
//!    new policy does not cover, a few lines between bursts. A session whose turn has not come goes on as it is; new ones
//!    that the change would end are not made (`nat-pool-changing`). Nothing that stays is touched.
//! 3. [`Nat::commit`] exchanges the policies at once: by then every session there is may stay as it is. Until then
//!    [`Nat::abandon`] takes it all back, but for the sessions that have ended.
//!
//! Lines know their instance by a slot and their pool address by a number that no reload changes, so nothing has to be
//! renumbered.

use std::sync::{Arc, Weak};

use carrack_base::{InstanceId, Now, Reason, WorkerId};
use carrack_tables::{ArenaError, KeyedHasher, PagePreference};

use crate::directory::{Directory, is_exempt};
use crate::engine::{InstanceState, Nat};
use crate::flow::Inside;
use crate::line::{FORWARD, Mapping, SIX, Session, Subscriber};
use crate::mediate::GatewayTables;
use crate::needs::Needs;
use crate::ownership::{BlockMap, WorkerGroup};
use crate::pins::Pins;
use crate::policy::{Capacity, Instance, NatPolicy, Pooling};
use crate::pool::ForwardPorts;
use crate::reconfigure::{
    Built, Fate, Laying, covers, fates, forward_ports, is_forward_of, is_seen_alike, same_ports,
};
use crate::tables::{Hosts, Permissions};

/// Lines looked at in one call: about as long as a burst takes.
const LINES_AT_ONCE: u32 = 256;
/// Sessions and wishes ended, and mappings and subscribers given up, in one call at most.
const ENDS_AT_ONCE: u32 = 64;

/// A new policy for one worker with all it needs, built away from the packet path. After [`Nat::commit`] it holds
/// what the policy before needed, to be freed away from the packet path.
#[derive(Debug)]
pub struct Change {
    policy: Arc<NatPolicy>,
    directory: Directory,
    /// What becomes of each old instance.
    fates: Vec<Fate>,
    /// Port tables of each new instance; `None` where it can keep those it has.
    fresh: Vec<Option<InstanceState>>,
    /// Ports of forward rules, by new instance.
    forwards: Vec<Vec<ForwardPorts>>,
    permissions: Option<Permissions>,
    hosts: Option<Hosts>,
    pins: Option<Pins>,
    gateways: Option<GatewayTables>,
    /// The old state after the commit.
    retired: Vec<InstanceState>,
}

impl Change {
    /// Builds the change from one policy to another for one worker of the group.
    ///
    /// # Errors
    /// When memory for it cannot be had.
    pub fn prepare(
        worker: WorkerId,
        group: &WorkerGroup,
        capacity: Capacity,
        pages: PagePreference,
        old: &NatPolicy,
        new: Arc<NatPolicy>,
    ) -> Result<Box<Self>, ArenaError> {
        let fates = fates(old, &new);
        let mut fresh = Vec::with_capacity(new.instances.len());
        for (to, instance) in new.instances.iter().enumerate() {
            let before = fates.iter().position(|fate| fate.to == Some(to));
            let before = before.and_then(|at| old.instances.get(at));
            fresh.push(if before.is_some_and(|before| same_ports(before, instance)) {
                None
            } else {
                Some(InstanceState::new(instance, worker, group, pages)?)
            });
        }
        // Once reserved they stay: only what the old policy had no need of can be missing.
        let (small, needs) = (pages.for_small_tables(), Needs::of(&new).beyond(Needs::of(old)));
        let permissions = needs.permissions.then(|| Permissions::new(capacity, small)).transpose()?;
        let hosts = needs.hosts.then(|| Hosts::new(capacity, small)).transpose()?;
        let pins = needs.port_control.then(|| Pins::new(capacity.mappings, small)).transpose()?;
        let hasher = KeyedHasher::new(group.seed());
        let gateways =
            needs.gateways.then(|| GatewayTables::new(capacity.controls, hasher, small)).transpose()?;
        let directory = Directory::new(&new, group);
        let forwards = new.instances.iter().map(forward_ports).collect();
        let retired = Vec::new();
        Ok(Box::new(Self {
            policy: new,
            directory,
            fates,
            fresh,
            forwards,
            permissions,
            hosts,
            pins,
            gateways,
            retired,
        }))
    }

    /// What takes the change back for all workers, should one of them never answer: until a worker puts the change in
    /// force, nobody gives out ports by it, and once it is withdrawn nobody waits for one who might.
    #[must_use]
    pub fn withdrawal(&self) -> Withdrawal {
        let fresh = self.fresh.iter().flatten();
        Withdrawal(fresh.map(|state| Arc::downgrade(&state.ports.map)).collect())
    }

    /// Does it concern sessions that are there, beyond timers, limits and the like?
    fn reaches_sessions(&self) -> bool {
        self.fates.iter().any(|fate| fate.reach_changed)
    }

    fn fate_of(&self, at: usize) -> Option<(&Fate, Option<Built<'_>>, Option<&InstanceState>)> {
        let fate = self.fates.get(at)?;
        let instance = fate.to.and_then(|to| self.policy.instances.get(to));
        let instance = instance.map(|instance| Built { instance, directory: &self.directory });
        let fresh = fate.to.and_then(|to| self.fresh.get(to)).and_then(Option::as_ref);
        Some((fate, instance, fresh))
    }
}

/// Takes back a change that will not be put in force.
#[derive(Debug)]
pub struct Withdrawal(Vec<Weak<BlockMap>>);

impl Withdrawal {
    /// Does so.
    pub fn withdraw(self) {
        self.0.iter().filter_map(Weak::upgrade).for_each(|map| map.withdraw());
    }
}

/// A change under way.
#[derive(Debug)]
pub(crate) struct Transition {
    change: Box<Change>,
    step: Step,
    cursor: u32,
    ended: u64,
}

/// What is looked through, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Sessions,
    Pins,
    Mappings,
    Subscribers,
    Ready,
}

impl Nat {
    /// Takes a new policy into force. Sessions that it still covers go on untouched; the others end. Returns how many
    /// ended. Instances are known by name. On error nothing has changed. All at once, for where no packet waits: at
    /// start and in tests. A running worker goes through the steps of the module's text.
    ///
    /// # Errors
    /// When memory for a changed pool cannot be had.
    pub fn configure(&mut self, policy: Arc<NatPolicy>, now: Now) -> Result<u64, ArenaError> {
        let change = self.prepare_change(policy)?;
        self.begin(change);
        while !self.advance(now) {}
        let ended = self.ended_by_change();
        drop(self.commit(now));
        while !self.lay_some(now.s()) {}
        Ok(ended)
    }

    /// Prepares a change of this worker's own policy, with nobody else's memory: [`Change::prepare`].
    ///
    /// # Errors
    /// When memory for it cannot be had.
    pub fn prepare_change(&self, policy: Arc<NatPolicy>) -> Result<Box<Change>, ArenaError> {
        let (group, capacity) = (&self.group, self.tables.capacity());
        Change::prepare(self.worker, group, capacity, self.pages, &self.policy, policy)
    }

    /// Begins a change. One that was under way is given up, and returned to be freed.
    pub fn begin(&mut self, change: Box<Change>) -> Option<Box<Change>> {
        let step = if change.reaches_sessions() { Step::Sessions } else { Step::Ready };
        let before = self.abandon();
        // Of forward rules that the change does away with no more may be made; the others are tried again after it.
        self.forwards_missing |= self.laying.take().is_some();
        // Invariant: the change was prepared for the policy in force; of another it could not tell what stays.
        debug_assert_eq!(change.fates.len(), self.policy.instances.len());
        self.transition = Some(Transition { change, step, cursor: 0, ended: 0 });
        before
    }

    /// Gives up a change that is not in force yet: the old policy goes on. To be freed.
    pub fn abandon(&mut self) -> Option<Box<Change>> {
        self.transition.take().map(|transition| transition.change)
    }

    /// Is a change under way?
    #[must_use]
    pub const fn is_changing(&self) -> bool {
        self.transition.is_some()
    }

    /// Sessions that the change under way has ended.
    #[must_use]
    pub fn ended_by_change(&self) -> u64 {
        self.transition.as_ref().map_or(0, |transition| transition.ended)
    }

    /// Prepares a few lines more for the change. True when all are, and when there is none.
    pub fn advance(&mut self, now: Now) -> bool {
        // Taken out for the time of the call; the ends of sessions do not ask for it.
        let Some(mut transition) = self.transition.take() else { return true };
        if transition.step == Step::Sessions && transition.cursor == 0 {
            self.end_expectations(now.s());
        }
        let mut ends = 0;
        for _ in 0..LINES_AT_ONCE {
            let found = match transition.step {
                Step::Sessions => self.leave_session(&mut transition, now.s()),
                Step::Pins => self.leave_pin(&mut transition, now.s()),
                Step::Mappings => self.leave_mapping(&mut transition),
                Step::Subscribers => self.leave_subscriber(&mut transition, now.s()),
                Step::Ready => break,
            };
            match found {
                Some(ended) => ends += u32::from(ended),
                None => {
                    transition.cursor = 0;
                    transition.step = match transition.step {
                        Step::Sessions => Step::Pins,
                        Step::Pins => Step::Mappings,
                        Step::Mappings => Step::Subscribers,
                        Step::Subscribers | Step::Ready => Step::Ready,
                    };
                }
            }
            if ends >= ENDS_AT_ONCE {
                break;
            }
        }
        let ready = transition.step == Step::Ready;
        self.transition = Some(transition);
        ready
    }

    /// Ends the next session if the new policy does not cover it. `None` when there is no next.
    fn leave_session(&mut self, transition: &mut Transition, now_s: u32) -> Option<bool> {
        let (id, session) = self.tables.sessions.iter_from(transition.cursor).next()?;
        let session = *session;
        transition.cursor = id + 1;
        let ends = !self.outlives(&transition.change, &session);
        if ends {
            transition.ended += 1;
            self.end_session(id, now_s);
        }
        Some(ends)
    }

    /// An instance of the policy in force.
    fn built(&self, at: usize) -> Option<Built<'_>> {
        let instance = self.policy.instances.get(at)?;
        Some(Built { instance, directory: &self.directory })
    }

    /// Would the session go on under the new policy?
    fn outlives(&self, change: &Change, session: &Session) -> bool {
        let at = self.slots.at(session.slot);
        let (Some((fate, after, fresh)), Some(before)) = (change.fate_of(at), self.built(at)) else {
            return false;
        };
        if !fate.reach_changed {
            return true;
        }
        let Some(after) = after else { return false };
        let session = &self.judged(session);
        let endpoint_kept = match (fresh, self.states.get(at)) {
            (None, _) => true,
            (Some(new), Some(old)) => {
                let subscriber = self.directory.subscriber_of(InstanceId(at as u16), session.inside());
                new.ports.could_have_given(session, subscriber, &old.ports)
            }
            (Some(_), None) => false,
        };
        covers(after, session, endpoint_kept, before)
    }

    /// Ends the next wish of a host if the new policy would end a session of its mapping.
    fn leave_pin(&mut self, transition: &mut Transition, now_s: u32) -> Option<bool> {
        let (id, pin) = self.tables.pins.as_ref()?.lines.iter_from(transition.cursor).next()?;
        let mapping = self.tables.mappings.get(pin.mapping).copied();
        transition.cursor = id + 1;
        let ends =
            mapping.is_none_or(|mapping| !self.outlives(&transition.change, &self.session_like(&mapping)));
        if ends {
            self.end_pin(id, now_s);
        }
        Some(ends)
    }

    /// A session as the mapping's could be, with nobody.
    fn session_like(&self, mapping: &Mapping) -> Session {
        let mut session = Session::on(mapping);
        if let Some(host) = self.tables.host(mapping.inside_ip).filter(|_| mapping.is_six()) {
            session.set_inside6(host.address);
            (session.flags, session.l3_delta) = (SIX, self.prefix_back(mapping, None));
        }
        session
    }

    /// Removes the next mapping if it is of a forward rule that is gone or changed. Its sessions have ended.
    fn leave_mapping(&mut self, transition: &mut Transition) -> Option<bool> {
        let (id, mapping) = self.tables.mappings.iter_from(transition.cursor).next()?;
        let mapping = *mapping;
        transition.cursor = id + 1;
        if mapping.flags & FORWARD == 0 {
            return Some(false);
        }
        let at = self.slots.at(mapping.slot);
        let after = transition.change.fate_of(at).and_then(|(_, after, _)| after);
        let inside = self.tables.inside_of(&mapping);
        let kept = self.policy.instances.get(at).zip(after).is_some_and(|(before, after)| {
            is_forward_of(after, &mapping, inside) && is_seen_alike(before, after.instance, inside)
        });
        let ends = !kept && mapping.sessions == 0;
        if ends {
            self.tables.remove_mapping(id, self.tables.hashes_of_mapping(&mapping));
        }
        Some(ends)
    }

    /// The next subscriber gives back what it cannot keep, if its instance serves it no more, or by other pools.
    fn leave_subscriber(&mut self, transition: &mut Transition, now_s: u32) -> Option<bool> {
        let (id, subscriber) = self.tables.subscribers.iter_from(transition.cursor).next()?;
        let subscriber = *subscriber;
        transition.cursor = id + 1;
        Some(self.give_back(&transition.change, id, &subscriber, now_s))
    }

    /// A session that the change would end was not made, but what was taken for it may still be the subscriber's.
    #[cold]
    pub(crate) fn give_back_again(&mut self, id: u32, now_s: u32) {
        let Some(transition) = self.transition.take() else { return };
        if self.tables.subscribers.is_live(id)
            && let Some(subscriber) = self.tables.subscribers.get(id).copied()
        {
            self.give_back(&transition.change, id, &subscriber, now_s);
        }
        self.transition = Some(transition);
    }

    /// A subscriber gives back what it cannot keep. False when it can keep all.
    fn give_back(&mut self, change: &Change, id: u32, subscriber: &Subscriber, now_s: u32) -> bool {
        let at = self.slots.at(subscriber.slot);
        let (Some((_, after, fresh)), Some(before)) = (change.fate_of(at), self.policy.instances.get(at))
        else {
            return false;
        };
        let served = after.is_some_and(|after| {
            after.instance.inside_vrf.0 == subscriber.inside_vrf && after.serves(before, subscriber.who())
        });
        let new = fresh.filter(|_| served);
        if served && new.is_none() {
            return false;
        }
        let Self { tables, states, events, .. } = self;
        let (Some(line), Some(state)) = (tables.subscribers.get_mut(id), states.get_mut(at)) else {
            return false;
        };
        let mut send = |event| {
            events.push(event);
        };
        for block in subscriber.blocks() {
            if new.is_none_or(|new| new.ports.block_like(&state.ports, *block).is_none()) {
                state.ports.release_block(before, line, *block, now_s, &mut send);
            }
        }
        let ip = state.ports.ip_of(line.address);
        let keeps = |new: &InstanceState| ip.is_some_and(|ip| new.ports.number_of(ip).is_some());
        let stays_bound =
            after.map(|after| after.instance.pooling) == Some(Pooling::Paired) && new.is_some_and(keeps);
        if !stays_bound || line.is_unused() {
            state.ports.unbind(before, line, &mut send);
        }
        if line.is_unused() {
            tables.remove_subscriber(id);
        }
        true
    }

    /// Puts the prepared change in force. What was before is in the change that comes back, to be freed where no packet
    /// waits for it. `None` when none was under way.
    ///
    /// To be called when [`Nat::advance`] has said that all lines are prepared; those that are not are prepared here.
    /// Mappings of forward rules follow, a few with each [`Nat::expire`], as long as [`Nat::is_laying`]; nobody else gets
    /// their ports meanwhile.
    pub fn commit(&mut self, now: Now) -> Option<Box<Change>> {
        while !self.advance(now) {}
        let Transition { mut change, .. } = self.transition.take()?;
        let old = std::mem::replace(&mut self.policy, change.policy.clone());
        std::mem::swap(&mut self.directory, &mut change.directory);
        self.tables.take_extra(&mut change.permissions, &mut change.hosts, &mut change.pins);
        if self.controls.is_none()
            && let Some(GatewayTables { controls, expectations }) = change.gateways.take()
        {
            (self.controls, self.expectations) = (Some(controls), Some(expectations));
        }
        self.take_states(&mut change, now.s());
        let to = |at: usize| change.fates.get(at).and_then(|fate| fate.to);
        self.slots = self.slots.moved(self.policy.instances.len(), to);
        for (state, forwards) in self.states.iter_mut().zip(&mut change.forwards) {
            state.ports.set_forwards(forwards, now.s());
        }
        (self.laying, self.forwards_missing) = (Some(Laying::default()), false);
        let timeouts = old.instances.iter().map(|i| &i.timeouts);
        self.renewal.start(timeouts.ne(self.policy.instances.iter().map(|i| &i.timeouts)));
        self.renew_some(now.s());
        change.policy = old;
        Some(change)
    }

    /// Puts the states in the new order; new port tables take over from those they replace.
    fn take_states(&mut self, change: &mut Change, now_s: u32) {
        let mut old: Vec<Option<InstanceState>> =
            std::mem::take(&mut self.states).into_iter().map(Some).collect();
        for (to, fresh) in change.fresh.iter_mut().enumerate() {
            let from = change.fates.iter().position(|fate| fate.to == Some(to));
            let before = from.and_then(|at| old.get_mut(at)).and_then(Option::take);
            let instance = self.policy.instances.get(to);
            let mut state = match (fresh.take(), before) {
                (Some(mut state), Some(mut before)) => {
                    let paired = instance.is_some_and(|i| i.pooling == Pooling::Paired);
                    state.ports.adopt(&mut before.ports, paired, now_s);
                    std::mem::swap(&mut state.refused, &mut before.refused);
                    change.retired.push(before);
                    state
                }
                (Some(state), None) | (None, Some(state)) => state,
                // Invariant: without a new state there is an old one, of the same name.
                (None, None) => continue,
            };
            if let Some(instance) = instance {
                state.ports.held_ports_max = crate::pool::held_ports_max(instance, &self.group);
            }
            state.ports.map.put_in_force();
            self.states.push(state);
        }
        change.retired.extend(old.into_iter().flatten());
    }

    /// Refuses a session that the change under way would end, and a mapping that a new forward rule is about to make: before
    /// anything is taken for it.
    /// `mapping_new` says that it would need a mapping as well.
    #[inline]
    pub(crate) fn may_begin(
        &self,
        at: usize,
        inside: Inside,
        remote_ip: u32,
        mapping_new: bool,
    ) -> Result<(), Reason> {
        match &self.transition {
            None if mapping_new && self.laying.is_some() && self.is_led_to(at, inside) => {
                Err(Reason::NatPoolChanging)
            }
            None => Ok(()),
            Some(transition) if self.stays(&transition.change, at, inside, remote_ip, mapping_new) => Ok(()),
            Some(_) => Err(Reason::NatPoolChanging),
        }
    }

    /// Does a forward rule lead to the host? Then it waits for the rule's mapping rather than be given another.
    #[cold]
    fn is_led_to(&self, at: usize, inside: Inside) -> bool {
        let rules = self.built(at).and_then(Built::rules);
        rules.is_some_and(|rules| rules.forwards_to(inside))
    }

    #[cold]
    fn stays(&self, change: &Change, at: usize, inside: Inside, remote_ip: u32, mapping_new: bool) -> bool {
        let (Some((fate, after, fresh)), Some(before)) = (change.fate_of(at), self.built(at)) else {
            return false;
        };
        if !fate.reach_changed {
            return true;
        }
        let Some(after) = after else { return false };
        let one_to_one = |built: Built<'_>| match inside {
            Inside::V4(ip) => built.one_to_one(ip),
            Inside::V6(_) => None,
        };
        let (then, now) = (before.instance, after.instance);
        if then.inside_vrf != now.inside_vrf
            || then.outside_vrf != now.outside_vrf
            || (is_exempt(now, remote_ip) && !is_exempt(then, remote_ip))
            || (!after.serves(then, inside) && !after.leads_to(inside))
            || one_to_one(before) != one_to_one(after)
        {
            return false;
        }
        let Some(new) = fresh.filter(|_| mapping_new) else { return true };
        let blocks = |instance: &Instance| instance.assignment.blocks().map(|blocks| blocks.size);
        let subscriber = self.directory.subscriber_of(InstanceId(at as u16), inside);
        let line = self.tables.find_subscriber(subscriber, then.inside_vrf);
        let paired_elsewhere = |line: &Subscriber| {
            let ip = self.states.get(at).and_then(|state| state.ports.ip_of(line.address));
            ip.is_some_and(|ip| new.ports.number_of(ip).is_none())
        };
        then.pooling == now.pooling
            && blocks(then) == blocks(now)
            && !line.and_then(|id| self.tables.subscribers.get(id)).is_some_and(paired_elsewhere)
    }

    /// Would a change under way end this new session at once?
    #[inline]
    pub(crate) fn is_doomed(&self, session: &Session) -> bool {
        match &self.transition {
            None => false,
            Some(transition) => !self.outlives(&transition.change, session),
        }
    }
}
