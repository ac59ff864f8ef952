//! The logging thread: takes NAT events from every worker in order, gives them the calendar's time, and passes them on.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use carrack_base::WorkerId;
use carrack_pipeline::mailbox::NatNews;
use rtrb::Consumer;

use crate::event_log::{EventSink, LoggedEvent};
use crate::plane::read_stats;
use crate::shared::{Shared, WorkerState};
use crate::stats::{LoopStats, Words, read_accounts};

/// Events taken from one worker in one turn.
const EVENTS_PER_TURN: usize = 8_192;
/// Rest between two turns without events.
const REST: Duration = Duration::from_millis(1);
/// Time between two ticks of the sink.
const TICK_NS: u64 = 100_000_000;
/// How far the calendar may run away from monotonic time unremarked: slewing stays below, setting the clock does not.
const STEP_NS: u64 = 20_000_000;

/// Everything the logging thread owns.
pub(crate) struct Logger {
    shared: Arc<Shared>,
    sink: Option<Box<dyn EventSink>>,
    pub rings: Vec<Consumer<NatNews>>,
    batch: Vec<LoggedEvent>,
    /// The calendar minus monotonic time.
    offset_ns: u64,
    ticked_ns: u64,
}

impl Logger {
    pub(crate) fn new(shared: Arc<Shared>, sink: Option<Box<dyn EventSink>>) -> Self {
        let offset_ns = shared.clock.calendar_offset_ns();
        Self { shared, sink, rings: Vec::new(), batch: Vec::new(), offset_ns, ticked_ns: 0 }
    }

    /// Runs until the daemon stops and the workers have said all they had to say.
    pub(crate) fn run(mut self) {
        if let Some(sink) = &mut self.sink {
            sink.begin();
        }
        loop {
            // Looked at before the rings: what a worker sent before its end is taken below.
            let over = self.shared.stopping() && self.workers_ended();
            let busy = self.turn();
            if over && !busy {
                break;
            }
            if !busy {
                std::thread::sleep(REST);
            }
        }
        let unix_ns = self.unix_ns();
        self.tick();
        if let Some(sink) = &mut self.sink {
            sink.end(unix_ns);
        }
    }

    fn workers_ended(&self) -> bool {
        (0..self.rings.len()).all(|worker| self.shared.worker_state(worker) != WorkerState::Running)
    }

    /// One turn; says whether there were events.
    fn turn(&mut self) -> bool {
        self.set_clock();
        self.batch.clear();
        for (worker, ring) in self.rings.iter_mut().enumerate() {
            let waiting = ring.slots().min(EVENTS_PER_TURN);
            let Ok(chunk) = ring.read_chunk(waiting) else { continue };
            let logged = |NatNews { at_ns, event }| LoggedEvent {
                sequence: 0,
                at_ns,
                unix_ns: at_ns.saturating_add(self.offset_ns),
                worker: WorkerId(worker as u8),
                event,
            };
            self.batch.extend(chunk.into_iter().map(logged));
        }
        let busy = !self.batch.is_empty();
        if busy {
            self.shared.events.push(&mut self.batch);
            if let Some(sink) = &mut self.sink {
                sink.events(&self.batch);
            }
        }
        if self.shared.clock.now().ns.saturating_sub(self.ticked_ns) >= TICK_NS {
            self.tick();
        }
        busy
    }

    fn tick(&mut self) {
        self.ticked_ns = self.shared.clock.now().ns;
        let unix_ns = self.unix_ns();
        let lost = self.lost();
        if let Some(sink) = &mut self.sink {
            sink.tick(unix_ns, lost);
        }
    }

    fn unix_ns(&self) -> u64 {
        self.shared.clock.now().ns.saturating_add(self.offset_ns)
    }

    /// Follows the calendar. Between steps, time in the log runs as evenly as monotonic time.
    fn set_clock(&mut self) {
        let offset_ns = self.shared.clock.calendar_offset_ns();
        if offset_ns.abs_diff(self.offset_ns) > STEP_NS {
            self.offset_ns = offset_ns;
        }
    }

    /// Events that found a worker's ring full, since the start.
    fn lost(&self) -> u64 {
        let boards = (0..self.shared.workers()).filter_map(|worker| self.shared.worker_board(worker));
        boards
            .map(|board| {
                let values = board.read();
                let mut words = Words(&values);
                read_accounts(&mut words);
                LoopStats::read(&mut words);
                read_stats(&mut words).events_lost
            })
            .sum()
    }
}
