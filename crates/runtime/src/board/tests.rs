use super::*;
use std::sync::Arc;

#[test]
fn reader_never_sees_parts_of_two_publications() {
    let board = Arc::new(Board::new(64));
    let publisher = {
        let board = Arc::clone(&board);
        std::thread::spawn(move || {
            for n in 1..=50_000u64 {
                board.publish(&[n; 64]);
            }
        })
    };
    let mut last = 0;
    while last < 50_000 {
        let values = board.read();
        assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
        assert!(values[0] >= last);
        last = values[0];
    }
    publisher.join().unwrap();
    assert_eq!(board.publications(), 50_000);
}
