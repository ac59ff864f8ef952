//! Starts and ends the threads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use carrack_base::thread::Thread;
use carrack_base::{BURST_PACKETS_MAX, Now, WORKERS_MAX, WorkerId};
use carrack_config::ConfigError;
use carrack_frame::{Frame, FramePool};
use carrack_host::{Host, HostConfig};
use carrack_io::PacketIo;
use carrack_pipeline::Plan;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use rtrb::{Consumer, Producer, RingBuffer};

use crate::clock::Clock;
use crate::control::{Control, ControlState, InForce, InputProgress, PortWatcher};
use crate::event_log::EventSink;
use crate::handle::Handle;
use crate::logger::Logger;
use crate::mail::{WorkerEnds, mailbox};
use crate::port_control::{PortControl, PortControlSetup};
use crate::shared::{EndReason, Shared};
use crate::worker_loop::{DataPlane, Idle, PortAccess, WorkerLoop};

/// Questions to the control thread that may wait.
const REQUESTS: usize = 64;
/// Frames that wait to be sent by the worker that polls the port.
const RELAY_FRAMES: usize = 1_024;

/// Why the daemon did not start.
#[derive(Debug, Clone, PartialEq)]
pub enum StartError {
    /// The config is wrong: everything that is, with places.
    Config(Vec<ConfigError>),
    /// Something else: a sentence that says what to do.
    Failed(String),
    /// Somebody ended it before it was finished.
    Ended,
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                f.write_str(&errors.join("\n"))
            }
            Self::Failed(why) => f.write_str(why),
            Self::Ended => f.write_str("the start was ended before it was finished"),
        }
    }
}

impl std::error::Error for StartError {}

/// One port, opened.
pub struct PortSetup {
    /// Its queue pairs: the first goes to worker 0, the second to worker 1 and so on. At least one, at most as many as there are
    /// workers; workers without one get the port's packets, and send theirs, through the others.
    pub queues: Vec<Box<dyn PacketIo>>,
    /// Looks at the port from the control thread. Without one, worker 0 looks, between bursts.
    pub watcher: Option<PortWatcher>,
}

/// One worker.
pub struct WorkerSetup {
    /// The processor it is pinned to.
    pub core: Option<usize>,
    /// Its door to the run's pool of frames.
    pub pool: Box<dyn FramePool>,
}

/// Runs once in each worker's thread before it starts, after pinning.
pub type ThreadHook = Arc<dyn Fn() + Send + Sync>;

/// Everything that is needed to start the threads; nothing in it knows where it came from.
pub struct Setup {
    /// What to forward by.
    pub plan: Arc<Plan>,
    /// What the host works by.
    pub host: HostConfig,
    /// Port control.
    pub port_control: PortControlSetup,
    /// Ports by [`PortId`](carrack_base::PortId).
    pub ports: Vec<PortSetup>,
    /// Workers by [`WorkerId`](carrack_base::WorkerId).
    pub workers: Vec<WorkerSetup>,
    /// The processors of everything else, what the caller starts later included; empty for no pinning.
    pub control_cores: Vec<usize>,
    /// What workers do when there is nothing to do.
    pub idle: Idle,
    /// Most packets a worker takes from a port at once, 1 to [`BURST_PACKETS_MAX`].
    pub burst: usize,
    /// Paces input from files.
    pub input: Option<InputProgress>,
    /// End when all input is read and nothing moves any more.
    pub exit_when_idle: bool,
    /// What each worker's thread does first.
    pub thread_hook: Option<ThreadHook>,
    /// Where NAT events go besides the last ones kept for management.
    pub sink: Option<Box<dyn EventSink>>,
}

/// The running threads.
pub(crate) struct Threads {
    pub handle: Handle,
    joins: Vec<JoinHandle<()>>,
}

impl Threads {
    /// Ends all threads and waits for them.
    pub(crate) fn stop(&mut self) {
        self.handle.shared.stop(EndReason::Stopped);
        for join in self.joins.drain(..) {
            // A thread that died has said so through its state.
            let _ = join.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What one worker's thread starts from, before its data plane exists.
struct Seat {
    index: usize,
    setup: WorkerSetup,
    ends: WorkerEnds,
    ports: Vec<PortAccess>,
    idle: Idle,
    burst: usize,
}

/// Starts the threads. `build` makes a worker's data plane inside its own thread, so that its memory lies near its
/// processor; `stage_words` is how many numbers the data plane publishes.
pub(crate) fn launch<W, B>(mut setup: Setup, stage_words: usize, build: B) -> Result<Threads, StartError>
where
    W: DataPlane + 'static,
    B: Fn(usize, WorkerEnds, Now) -> Result<W, String> + Send + Sync + 'static,
{
    check(&setup)?;
    let clock = Clock::start();
    let shared = Arc::new(Shared::new(
        clock,
        Arc::clone(&setup.plan.snapshot),
        setup.workers.len(),
        setup.ports.len(),
        stage_words,
    ));
    let (requests, request_queue) = sync_channel(REQUESTS);
    let mut threads = Threads {
        handle: Handle { shared: Arc::clone(&shared), requests, desired: None },
        joins: Vec::new(),
    };
    let watchers = take_watchers(&mut setup.ports);
    let accesses = distribute(std::mem::take(&mut setup.ports), setup.workers.len(), &watchers);
    let mut control_ends = Vec::new();
    let mut logger = Logger::new(Arc::clone(&shared), setup.sink.take());
    let (ready, readiness) = sync_channel(setup.workers.len());
    let build = Arc::new(build);
    let (idle, burst) = (setup.idle, setup.burst.clamp(1, BURST_PACKETS_MAX));
    for ((index, worker), ports) in setup.workers.drain(..).enumerate().zip(accesses) {
        let (ends, control, nat_events) = mailbox();
        control_ends.push(control);
        logger.rings.push(nat_events);
        let seat = Seat { index, setup: worker, ends, ports, idle, burst };
        let join = spawn_worker(seat, &build, &shared, setup.thread_hook.clone(), ready.clone())?;
        threads.joins.push(join);
    }
    drop(ready);
    await_workers(&readiness, control_ends.len())?;
    // The control thread and whatever the caller starts from here on inherit it.
    place_control(&setup.control_cores)?;
    let port_control = setup.port_control.config.clone();
    let control = Control {
        host: Host::new(setup.host.clone(), clock.now()),
        port_control: PortControl::new(setup.port_control, clock),
        in_force: InForce { plan: setup.plan, host: setup.host, port_control },
        ends: control_ends,
        requests: request_queue,
        shared,
        watchers,
        input: setup.input,
        exit_when_idle: setup.exit_when_idle,
        state: ControlState::default(),
    };
    threads.joins.push(spawn(Thread::Control, move || control.run())?);
    threads.joins.push(spawn(Thread::Log, move || logger.run())?);
    Ok(threads)
}

fn check(setup: &Setup) -> Result<(), StartError> {
    let workers = setup.workers.len();
    if workers == 0 || workers > WORKERS_MAX {
        return Err(StartError::Failed(format!(
            "{workers} workers are not possible; set workers.count from 1 to {WORKERS_MAX}"
        )));
    }
    match setup.ports.iter().position(|port| port.queues.is_empty() || port.queues.len() > workers) {
        Some(port) => Err(StartError::Failed(format!(
            "port {port} came with {} queues for {workers} workers; this is a defect of its driver",
            setup.ports.get(port).map_or(0, |port| port.queues.len())
        ))),
        None => Ok(()),
    }
}

fn take_watchers(ports: &mut [PortSetup]) -> Vec<(usize, PortWatcher)> {
    let watchers = ports.iter_mut().enumerate();
    watchers.filter_map(|(index, port)| Some((index, port.watcher.take()?))).collect()
}

/// Gives every worker its way to every port: a queue where there is one, else a ring to the worker whose turn it is.
fn distribute(
    ports: Vec<PortSetup>,
    workers: usize,
    watchers: &[(usize, PortWatcher)],
) -> Vec<Vec<PortAccess>> {
    let mut accesses: Vec<Vec<PortAccess>> = (0..workers).map(|_| Vec::new()).collect();
    for (index, port) in ports.into_iter().enumerate() {
        let watched = watchers.iter().any(|(watched, _)| *watched == index);
        let queues = port.queues.len();
        let mut relays: Vec<Vec<Consumer<Frame>>> = (0..queues).map(|_| Vec::new()).collect();
        let mut rings: Vec<Producer<Frame>> = Vec::new();
        for worker in queues..workers {
            let (producer, consumer) = RingBuffer::new(RELAY_FRAMES);
            relays[worker % queues].push(consumer);
            rings.push(producer);
        }
        let own = port
            .queues
            .into_iter()
            .zip(relays)
            .enumerate()
            .map(|(queue, (io, others))| PortAccess::queue(io, others, queue == 0 && !watched));
        let all = own.chain(rings.into_iter().map(PortAccess::Relay));
        for (worker, access) in accesses.iter_mut().zip(all) {
            worker.push(access);
        }
    }
    accesses
}

fn spawn_worker<W, B>(
    seat: Seat,
    build: &Arc<B>,
    shared: &Arc<Shared>,
    hook: Option<ThreadHook>,
    ready: SyncSender<Result<(), StartError>>,
) -> Result<JoinHandle<()>, StartError>
where
    W: DataPlane + 'static,
    B: Fn(usize, WorkerEnds, Now) -> Result<W, String> + Send + Sync + 'static,
{
    let (build, shared) = (Arc::clone(build), Arc::clone(shared));
    spawn(Thread::Worker(WorkerId(seat.index as u8)), move || {
        let Seat { index, setup, ends, ports, idle, burst } = seat;
        let clock = shared.clock;
        let pinned = setup.core.map_or(Ok(()), |core| pin(index, core));
        if let Some(hook) = hook {
            hook();
        }
        let made = pinned.and_then(|()| {
            build(index, ends, clock.now())
                .map_err(|why| StartError::Failed(format!("worker {index}: {why}")))
        });
        match made {
            Ok(worker) => {
                let _ = ready.send(Ok(()));
                drop(ready);
                WorkerLoop { worker, index, pool: setup.pool, ports, clock, idle, burst, shared }.run();
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    })
}

fn await_workers(readiness: &Receiver<Result<(), StartError>>, workers: usize) -> Result<(), StartError> {
    for _ in 0..workers {
        readiness.recv().unwrap_or_else(|_| {
            Err(StartError::Failed("a worker died while it started; its message is in the log above".into()))
        })?;
    }
    Ok(())
}

/// Places this thread, and those it starts. The first processor that cannot be had, if any, and why.
fn pin_to(cores: &[usize]) -> Result<(), (usize, nix::Error)> {
    let mut set = CpuSet::new();
    for core in cores {
        // One by one: the kernel takes a set of which only some exist.
        let mut one = CpuSet::new();
        let alone = one.set(*core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &one));
        alone.and_then(|()| set.set(*core)).map_err(|error| (*core, error))?;
    }
    sched_setaffinity(Pid::from_raw(0), &set).map_err(|error| (cores.first().copied().unwrap_or(0), error))
}

/// Places the calling thread, and those it starts from here on, on these processors; no processors, no change.
///
/// # Errors
/// Which of them cannot be had, and why.
pub fn place_thread(cores: &[usize]) -> Result<(), String> {
    if cores.is_empty() {
        return Ok(());
    }
    pin_to(cores).map_err(|(core, error)| format!("processor {core} cannot be had: {error}"))
}

fn place_control(cores: &[usize]) -> Result<(), StartError> {
    if cores.is_empty() {
        return Ok(());
    }
    pin_to(cores).map_err(|(core, error)| {
        StartError::Failed(format!(
            "the control plane cannot run on processor {core}: {error}; choose others in workers.control_cores, or \
             leave it out"
        ))
    })
}

fn pin(worker: usize, core: usize) -> Result<(), StartError> {
    pin_to(&[core]).map_err(|(core, error)| {
        StartError::Failed(format!(
            "worker {worker} cannot run on processor {core}: {error}; choose others in workers.cores, or leave it out"
        ))
    })
}

fn spawn(thread: Thread<'_>, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let name = thread.name();
    std::thread::Builder::new().name(name.clone()).spawn(body).map_err(|error| {
        StartError::Failed(format!("cannot start thread {name}: {error}; raise the limit on threads"))
    })
}

#[cfg(test)]
mod tests;
