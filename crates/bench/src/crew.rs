//! Several workers side by side, as a daemon has them: of one group, with one pool, each with the subscribers it owns, its
//! own generator and its own processor.
//!
//! Packets arrive at their owner, as a card that steers delivers them (ADR 6); none is handed over.

use std::sync::{Arc, Barrier};

use carrack_base::VrfId;
use carrack_nat::policy::NatPolicy;
use carrack_nat::{Directory, Inside, WorkerGroup};

use crate::clock::Tsc;
use crate::forward::{BenchError, SEED, pin};
use crate::generator::{SUBSCRIBER_FIRST, Session, Translation};
use crate::generator_cost::GeneratorCost;
use crate::generator6::subscriber6;
use crate::layout::{Layout, Walk};
use crate::offered::{Load, Outcome, Picks, Random, closed_loop, fill, offer};
use crate::rig::{Rig, RigSpec};
use crate::setup::Phase;

/// Workers with their generators.
pub struct Crew {
    rigs: Vec<Rig>,
}

impl Crew {
    /// Builds each worker on its own processor, so that its memory is there.
    pub fn new(spec: &RigSpec, workers: u8) -> Result<Self, BenchError> {
        tell_of_processors(workers);
        if workers == 1 {
            pin(0);
            return Ok(Self { rigs: vec![Rig::new(spec)?] });
        }
        spec.check(workers)?;
        let group = WorkerGroup::new(workers, SEED);
        let made = std::thread::scope(|scope| {
            let build = |(id, share): (u8, Vec<u32>)| {
                let group = group.clone();
                scope.spawn(move || {
                    pin(id);
                    Rig::of_worker(&spec_of(spec, &share), id, group, share)
                })
            };
            let threads: Vec<_> = (0..).zip(shares(spec, &group)).map(build).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(panicked()))).collect()
        });
        let made: Vec<Result<Rig, BenchError>> = made;
        Ok(Self { rigs: made.into_iter().collect::<Result<_, _>>()? })
    }

    /// The workers, for somebody else to run.
    pub fn into_rigs(self) -> Vec<Rig> {
        self.rigs
    }

    /// How many there are.
    pub fn workers(&self) -> u32 {
        self.rigs.len() as u32
    }

    /// The first one, for what one alone is asked.
    pub fn first(&mut self) -> Option<&mut Rig> {
        self.rigs.first_mut()
    }

    /// Does something with all of them, one after the other.
    pub fn all(&mut self, work: impl FnMut(&mut Rig)) {
        self.rigs.iter_mut().for_each(work);
    }

    /// What each does with something of its own, all at the same time.
    pub fn each<S: Send, R: Send>(
        &mut self,
        states: &mut [S],
        work: impl Fn(&mut Rig, &mut S) -> R + Sync,
    ) -> Vec<R> {
        // One alone stays on this thread, which is pinned.
        if let ([rig], [state, ..]) = (self.rigs.as_mut_slice(), &mut *states) {
            return vec![work(rig, state)];
        }
        let barrier = Barrier::new(self.rigs.len());
        std::thread::scope(|scope| {
            let start = |(id, (rig, state)): (u8, (_, _))| {
                let (work, barrier) = (&work, &barrier);
                scope.spawn(move || {
                    pin(id);
                    barrier.wait();
                    work(rig, state)
                })
            };
            let threads: Vec<_> = (0..).zip(self.rigs.iter_mut().zip(states)).map(start).collect();
            // Invariant: measurements do not panic; one that did is missing, and the report says that it is not ok.
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        })
    }

    /// Random sessions of each worker, of `flows` in all.
    pub fn random(&self, flows: u32) -> Vec<Random> {
        let workers = self.workers().max(1);
        let of = |rig: &Rig| rig.layout.sessions().min(flows.div_ceil(workers)).max(1);
        self.rigs.iter().map(|rig| Random::new(of(rig))).collect()
    }

    /// All sessions of each worker, far from each other.
    pub fn walks(&self) -> Vec<Walk> {
        self.rigs.iter().map(|rig| Walk::scattered(rig.layout.sessions())).collect()
    }

    /// Makes the first `part` of all sessions, as fast as it goes.
    pub fn fill(&mut self, tsc: Tsc, part: u32, both: bool) -> Phase {
        let workers = self.workers().max(1);
        let mut nothing = vec![(); self.rigs.len()];
        let phases = self.each(&mut nothing, |rig, ()| {
            let all = rig.layout.sessions();
            // The last share may be a little larger than the others.
            let part = if workers == 1 { part.min(all) } else { part.div_ceil(workers).min(all) };
            fill(rig, tsc, 0, part, both)
        });
        Phase::together(&phases)
    }

    /// Makes all sessions, as fast as it goes.
    pub fn fill_all(&mut self, tsc: Tsc, both: bool) -> Phase {
        self.fill(tsc, u32::MAX, both)
    }

    /// How fast they are when each has always a full burst waiting.
    pub fn closed_loop<P: Picks + Send>(
        &mut self,
        tsc: Tsc,
        seconds: f64,
        both: bool,
        picks: &mut [P],
    ) -> Phase {
        Phase::together(&self.each(picks, |rig, picks| closed_loop(rig, tsc, seconds, both, picks)))
    }

    /// What generator, and with `both` far end, take of each worker's time.
    pub fn generator<P: Picks + Send>(&mut self, both: bool, picks: &mut [P]) -> GeneratorCost {
        GeneratorCost::together(&self.each(picks, |rig, picks| GeneratorCost::measure(rig, both, picks)))
    }

    /// Offers a load, of which each worker gets an equal part.
    pub fn offer<P: Picks + Send>(&mut self, tsc: Tsc, load: Load, picks: &mut [P]) -> Outcome {
        let workers = self.workers().max(1);
        let (pps, packets) = (load.pps / f64::from(workers), load.packets.div_ceil(workers.into()));
        self.offer_parts(tsc, picks, |_| Load { pps, packets, ..load })
    }

    /// Offers the first packet of every session at this rate, to each worker as many as it has and all for as long.
    pub fn offer_each_once(&mut self, tsc: Tsc, pps: f64, ring: u64) -> Outcome {
        let all: u64 = self.rigs.iter().map(|rig| u64::from(rig.layout.sessions())).sum();
        let mut walks = self.walks();
        self.offer_parts(tsc, &mut walks, |rig| {
            let packets = u64::from(rig.layout.sessions());
            Load { pps: pps * packets as f64 / all.max(1) as f64, packets, both: false, ring }
        })
    }

    fn offer_parts<P: Picks + Send>(
        &mut self,
        tsc: Tsc,
        picks: &mut [P],
        part: impl Fn(&Rig) -> Load + Sync,
    ) -> Outcome {
        let outcomes = self.each(picks, |rig, picks| offer(rig, tsc, part(rig), picks));
        let is_whole = outcomes.len() == self.rigs.len();
        let all = outcomes.into_iter().reduce(Outcome::and).unwrap_or_default();
        Outcome { is_balanced: all.is_balanced && is_whole, ..all }
    }

    /// Lets every session expire and every hold time pass. True when nothing was left.
    pub fn expire_all(&mut self) -> bool {
        let mut nothing = vec![(); self.rigs.len()];
        self.each(&mut nothing, |rig, ()| rig.expire_all()).into_iter().all(|ended| ended)
    }

    /// Sessions now.
    pub fn sessions(&self) -> u64 {
        self.rigs.iter().map(Rig::sessions).sum()
    }

    /// Bytes of all tables with the pools' port maps.
    pub fn memory_bytes(&self) -> u64 {
        self.rigs.iter().flat_map(|rig| rig.worker.nat().memory()).map(|row| row.bytes).sum()
    }

    /// Packets dropped so far.
    pub fn dropped(&mut self) -> u64 {
        self.rigs.iter_mut().map(|rig| rig.accounts().dropped()).sum()
    }

    /// Is every packet accounted for now?
    pub fn is_balanced(&mut self) -> bool {
        self.rigs.iter_mut().all(Rig::is_balanced)
    }

    /// Packets verified so far; an error when one was wrong.
    pub fn verified(&self) -> Result<u64, BenchError> {
        self.rigs.iter().map(Rig::verified).sum()
    }
}

/// What is measured of more workers than there are processors says nothing of one worker.
pub fn tell_of_processors(workers: u8) {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if usize::from(workers) > processors {
        eprintln!(
            "note: {workers} workers share {processors} processors; figures of one worker mean nothing"
        );
    }
}

fn panicked() -> BenchError {
    BenchError("a worker thread panicked".into())
}

/// The inside addresses of the scenario's subscribers by the worker that owns them.
fn shares(spec: &RigSpec, group: &WorkerGroup) -> Vec<Vec<u32>> {
    let policy = NatPolicy { instances: vec![spec.instance.instance()], ..NatPolicy::default() };
    let directory = Directory::new(&Arc::new(policy), group);
    let mut shares = vec![Vec::new(); usize::from(group.workers())];
    for address in (SUBSCRIBER_FIRST..).take(spec.layout.subscribers as usize) {
        let subscriber = match spec.instance.translation {
            Translation::Nat44 => Inside::V4(address),
            Translation::Nat64 | Translation::Siit => {
                Inside::V6(subscriber6(&Session { inside: address, ..Session::default() }))
            }
        };
        let owner = directory.owner_of(VrfId(0), subscriber);
        if let Some(share) = shares.get_mut(usize::from(owner.0)) {
            share.push(address);
        }
    }
    shares
}

/// The same scenario with the subscribers of one worker; what serves them is the same.
fn spec_of(spec: &RigSpec, share: &[u32]) -> RigSpec {
    let Layout { ports, remotes, remote_port, .. } = spec.layout;
    let layout = Layout::new(share.len() as u32, ports, remotes, remote_port);
    // As much room for each session as there is in all.
    let room =
        u64::from(layout.sessions()) * u64::from(spec.sessions) / u64::from(spec.layout.sessions().max(1));
    RigSpec { layout, sessions: (room as u32).max(64), ..spec.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offered::RING_PACKETS;
    use crate::world::{InstanceSpec, Mode};

    #[test]
    fn two_workers_have_all_subscribers_between_them_and_lose_and_hand_over_nothing() {
        let layout = Layout::for_sessions(20_000, 16, 2);
        for (translation, mode) in [
            (Translation::Nat44, Mode::Pba),
            (Translation::Nat44, Mode::Static),
            (Translation::Nat44, Mode::Deterministic),
            (Translation::Nat64, Mode::Pba),
        ] {
            let instance = InstanceSpec {
                translation,
                mode,
                subscribers: layout.subscribers,
                ports: layout.ports,
                block: 64,
                udp_s: 300,
                hold_s: 4,
                logged: Default::default(),
            };
            let spec =
                RigSpec { instance, layout, sessions: layout.sessions(), frame_bytes: 100, tagged: false };
            let (mut crew, tsc) = (Crew::new(&spec, 2).unwrap(), Tsc::measure());
            let phase = crew.fill_all(tsc, true);
            assert_eq!(phase.sessions, u64::from(layout.sessions()), "{translation:?} {mode:?}");
            let mut picks = crew.random(layout.sessions());
            let load = Load::lasting(20_000.0, 0.1, true, RING_PACKETS);
            let outcome = crew.offer(tsc, load, &mut picks);
            assert_eq!((outcome.offered, outcome.lost()), (4_000, 0), "{translation:?} {mode:?}");
            assert!(outcome.is_accounted() && crew.is_balanced());
            crew.all(|rig| assert!(rig.sessions() > 1_000));
            assert!(crew.expire_all());
            assert_eq!((crew.sessions(), crew.dropped()), (0, 0));
        }
    }
}
