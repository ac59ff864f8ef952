use std::sync::Mutex;

use carrack_base::InstanceId;
use carrack_nat::policy::NatPolicy;
use carrack_nat::row::NatEvent;
use carrack_pipeline::snapshot::{Policers, Snapshot};
use rtrb::{Producer, RingBuffer};

use super::*;
use crate::clock::Clock;
use crate::shared::EndReason;

/// What a sink was told.
#[derive(Default)]
struct Told {
    events: Vec<(u8, u64, u32)>,
    ended: bool,
}

struct Ear(Arc<Mutex<Told>>);

impl EventSink for Ear {
    fn events(&mut self, batch: &[LoggedEvent]) {
        let mut told = self.0.lock().unwrap();
        assert!(!told.ended);
        for logged in batch {
            let NatEvent::AddressBound { inside, .. } = logged.event else { panic!("another event") };
            let std::net::IpAddr::V4(inside) = inside else { panic!("another family") };
            told.events.push((logged.worker.0, logged.sequence, inside.into()));
        }
    }

    fn tick(&mut self, _: u64, lost: u64) {
        assert_eq!(lost, 0);
    }

    fn end(&mut self, _: u64) {
        self.0.lock().unwrap().ended = true;
    }
}

fn rig(workers: usize) -> (Logger, Vec<Producer<NatNews>>, Arc<Mutex<Told>>) {
    let snapshot = Snapshot {
        generation: 1,
        ports: Vec::new(),
        interfaces: Vec::new(),
        vrfs: Vec::new(),
        routes: Vec::new(),
        routes6: Vec::new(),
        nat: Arc::new(NatPolicy::default()),
        policers: Policers::default(),
        fragment_timeout_ms: 2_000,
        siit: vec![],
    };
    let shared = Arc::new(Shared::new(Clock::start(), Arc::new(snapshot), workers, 0, 0));
    let told = Arc::new(Mutex::new(Told::default()));
    let mut logger = Logger::new(shared, Some(Box::new(Ear(Arc::clone(&told)))));
    let mut producers = Vec::new();
    for _ in 0..workers {
        let (producer, consumer) = RingBuffer::new(64);
        producers.push(producer);
        logger.rings.push(consumer);
    }
    (logger, producers, told)
}

fn news(inside: u32) -> NatNews {
    let inside_ip = std::net::Ipv4Addr::from(inside).into();
    let event = NatEvent::AddressBound { instance: InstanceId(0), inside: inside_ip, outside: 9 };
    NatNews { at_ns: u64::from(inside), event }
}

#[test]
fn events_of_each_worker_reach_the_sink_in_order_and_the_last_before_its_end() {
    let (logger, mut producers, told) = rig(2);
    let shared = Arc::clone(&logger.shared);
    for n in 0..50 {
        producers[0].push(news(n)).unwrap();
        producers[1].push(news(1_000 + n)).unwrap();
    }
    shared.stop(EndReason::Stopped);
    shared.set_worker_state(0, WorkerState::Ended);
    let log = std::thread::spawn(move || logger.run());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!told.lock().unwrap().ended, "worker 1 may still say something");
    producers[1].push(news(1_050)).unwrap();
    shared.set_worker_state(1, WorkerState::Ended);
    log.join().unwrap();
    let told = told.lock().unwrap();
    assert!(told.ended);
    let of = |worker| told.events.iter().filter(move |(w, ..)| *w == worker).map(|(.., inside)| *inside);
    assert!(of(0).eq(0..50));
    assert!(of(1).eq(1_000..1_051));
    assert!(told.events.iter().map(|(_, sequence, _)| *sequence).eq(1..102));
}

#[test]
fn event_carries_the_calendars_time() {
    let (mut logger, mut producers, _) = rig(1);
    let now = logger.shared.clock.now().ns;
    producers[0].push(NatNews { at_ns: now, ..news(1) }).unwrap();
    logger.turn();
    let logged = logger.shared.events.read(0, 1, Duration::ZERO).events[0];
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
    assert!(unix.abs_diff(logged.unix_ns) < 1_000_000_000, "{} is not {unix}", logged.unix_ns);
}
