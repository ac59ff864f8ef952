//! A reload in two rounds: every worker makes ready for the new configuration while all go on by the old one, then all
//! are told to change over. If one does not get ready, none changes over.

use std::sync::Arc;

use carrack_base::Now;
use carrack_nat::{Change, Withdrawal};
use carrack_pipeline::mailbox::Command;

use crate::control::{ANSWER_NS, Control, InForce};
use crate::request::{Applied, Reply, RequestError};
use crate::shared::lock;

/// A reload under way.
pub(crate) struct PendingApply {
    /// What shall be in force; `None` once it is.
    new: Option<InForce>,
    withdrawals: Vec<Withdrawal>,
    generation: u64,
    /// By worker: has it made ready, or then, has it changed over?
    answered: Vec<bool>,
    sessions_ended: u64,
    deadline: Now,
    reply: Reply<Applied>,
}

impl Control {
    pub(crate) fn start_apply(
        &mut self,
        now: Now,
        new: InForce,
        changes: Vec<Box<Change>>,
        reply: Reply<Applied>,
    ) {
        if self.state.apply.is_some() {
            let _ =
                reply.send(Err(RequestError::Busy("another reload is under way; try again later".into())));
            return;
        }
        let generation = new.plan.snapshot.generation;
        let withdrawals = changes.iter().map(|change| change.withdrawal()).collect();
        let mut sent = changes.len() == self.ends.len();
        for (worker, change) in changes.into_iter().enumerate() {
            let plan = Arc::clone(&new.plan);
            sent &= self.command(worker, Command::Prepare { plan, change });
        }
        self.state.apply = Some(PendingApply {
            new: Some(new),
            withdrawals,
            generation,
            answered: vec![false; self.ends.len()],
            sessions_ended: 0,
            // A worker that does not even take commands gets no time.
            deadline: if sent { now.plus_ns(ANSWER_NS) } else { now },
            reply,
        });
    }

    /// A worker is at it: with millions of sessions that takes its time.
    pub(crate) fn preparing(&mut self, now: Now, generation: u64) {
        if let Some(pending) = self.state.apply.as_mut().filter(|apply| apply.generation == generation) {
            pending.deadline = now.plus_ns(ANSWER_NS);
        }
    }

    /// The last worker is ready: all change over.
    pub(crate) fn prepared(&mut self, now: Now, worker: usize, generation: u64) {
        let Some(pending) = self.state.apply.as_mut().filter(|apply| apply.generation == generation) else {
            return;
        };
        if let Some(answered) = pending.answered.get_mut(worker) {
            *answered = true;
        }
        pending.deadline = now.plus_ns(ANSWER_NS);
        if !pending.answered.iter().all(|answered| *answered) {
            return;
        }
        let Some(new) = pending.new.take() else { return };
        pending.answered.fill(false);
        pending.withdrawals.clear();
        self.broadcast(|| Command::Commit { generation });
        *lock(&self.shared.snapshot) = Arc::clone(&new.plan.snapshot);
        self.host.configure(new.host.clone(), now);
        self.drain_host();
        // What hosts ask from here on reaches the workers after their change.
        self.port_control.server.configure(new.port_control.clone(), now);
        self.drain_port_control();
        self.in_force = new;
    }

    /// A worker has changed over.
    pub(crate) fn reconfigured(&mut self, worker: usize, generation: u64, sessions_ended: u64) {
        if self.state.late.contains(&(generation, worker)) {
            self.state.late.retain(|late| *late != (generation, worker));
            tracing::info!(
                "worker {worker} now works by the new configuration (generation {generation}) too"
            );
        }
        let Some(pending) = self.state.apply.as_mut().filter(|apply| apply.generation == generation) else {
            return;
        };
        pending.sessions_ended += sessions_ended;
        if let Some(answered) = pending.answered.get_mut(worker) {
            *answered = true;
        }
        if pending.answered.iter().all(|answered| *answered)
            && let Some(done) = self.state.apply.take()
        {
            let _ = done.reply.send(Ok(Applied { sessions_ended: done.sessions_ended }));
        }
    }

    /// Gives up on workers that do not answer.
    pub(crate) fn expire_apply(&mut self, now: Now) {
        let Some(late) = self.state.apply.take_if(|apply| apply.deadline <= now) else { return };
        let generation = late.generation;
        let silent: Vec<usize> =
            late.answered.iter().enumerate().filter(|(_, answered)| !**answered).map(|(at, _)| at).collect();
        let names: Vec<String> = silent.iter().map(ToString::to_string).collect();
        let names = names.join(", ");
        let error = if late.new.is_some() {
            self.broadcast(|| Command::Abandon { generation });
            late.withdrawals.into_iter().for_each(Withdrawal::withdraw);
            RequestError::Refused(format!(
                "worker {names} did not make ready for the new configuration, so none changed over and the old one stays \
                 in force (sessions that the new one does not cover may have ended); look at `show workers`, then \
                 reload again"
            ))
        } else {
            self.state.late.extend(silent.into_iter().map(|worker| (generation, worker)));
            RequestError::Timeout(format!(
                "worker {names} has not changed over to the new configuration yet, all others have; it does so as soon as \
                 it runs again, and until then no port is given out of pools that are cut anew (`nat-pool-changing`): \
                 look at `show workers`"
            ))
        };
        tracing::error!("reload: {error}");
        let _ = late.reply.send(Err(error));
    }
}
