use super::*;
use carrack_base::InstanceId;

fn event(inside: u32) -> NatEvent {
    let inside = std::net::Ipv4Addr::from(inside).into();
    NatEvent::AddressBound { instance: InstanceId(0), inside, outside: 7 }
}

#[test]
fn slow_reader_learns_how_many_it_missed_and_reads_on() {
    let log = EventLog::default();
    for n in 0..EVENTS_KEPT as u32 + 10 {
        let (worker, event) = (WorkerId(0), event(n));
        log.push(&mut [LoggedEvent { sequence: 0, at_ns: 0, unix_ns: 0, worker, event }]);
    }
    let batch = log.read(5, 3, Duration::ZERO);
    assert_eq!(batch.lost, 5, "events 6 to 10 are gone");
    assert_eq!(batch.events.iter().map(|e| e.sequence).collect::<Vec<_>>(), [11, 12, 13]);
    let rest = log.read(batch.next, usize::MAX, Duration::ZERO);
    assert_eq!((rest.lost, rest.events.len()), (0, EVENTS_KEPT - 3));
    let none = log.read(rest.next, 10, Duration::from_millis(1));
    assert_eq!((none.events.len(), none.next), (0, rest.next));
}
