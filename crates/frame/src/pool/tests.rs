use crate::{Frame, FramePool, MemPool};
use std::collections::HashSet;

fn take_all(pool: &mut MemPool) -> Vec<Frame> {
    std::iter::from_fn(|| pool.alloc()).collect()
}

#[test]
fn an_exhausted_pool_answers_none_and_recovers() {
    let mut pool = MemPool::new(300, 64, 0);
    let mut frames = take_all(&mut pool);
    assert_eq!((frames.len(), pool.outstanding()), (300, 300));
    assert!(pool.alloc().is_none());
    pool.free_all(&mut frames);
    assert_eq!(pool.outstanding(), 0);
    let mut again = take_all(&mut pool);
    assert_eq!(again.len(), 300);
    pool.free_all(&mut again);
}

#[test]
fn two_frames_never_share_a_byte() {
    let mut pool = MemPool::new(257, 100, 28);
    let mut frames = take_all(&mut pool);
    for (number, frame) in frames.iter_mut().enumerate() {
        frame.append(100).expect("empty frame").fill(number as u8);
        frame.prepend(28).expect("untouched headroom").fill(number as u8);
    }
    for (number, frame) in frames.iter().enumerate() {
        assert!(frame.bytes().iter().all(|&byte| byte == number as u8), "frame {number} was overwritten");
    }
    pool.free_all(&mut frames);
}

#[test]
fn the_frame_freed_last_is_allocated_first() {
    let mut pool = MemPool::new(8, 64, 0);
    let (first, second) = (pool.alloc().expect("a frame"), pool.alloc().expect("a frame"));
    let warm = second.bytes().as_ptr();
    pool.free(first);
    pool.free(second);
    let again = pool.alloc().expect("a frame");
    assert_eq!(again.bytes().as_ptr(), warm);
    pool.free(again);
}

#[test]
fn a_frame_may_come_home_through_another_handle() {
    let mut one = MemPool::new(1000, 64, 0);
    let mut two = one.handle(128);
    for _ in 0..20 {
        let mut frames = take_all(&mut one);
        assert!(frames.len() >= 1000 - 128, "the other handle keeps at most its cache: {}", frames.len());
        two.free_all(&mut frames);
        assert_eq!(one.outstanding(), 0);
    }
}

#[test]
fn threads_exchanging_frames_never_hold_the_same_one() {
    let pool = MemPool::new(512, 64, 0);
    let (to_free, from_alloc) = std::sync::mpsc::sync_channel::<Frame>(256);
    let mut sink = pool.handle(128);
    let mut source = pool.handle(128);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sent = 0u32;
            while sent < 50_000 {
                if let Some(mut frame) = source.alloc() {
                    frame.append(4).expect("64 bytes").copy_from_slice(&sent.to_be_bytes());
                    to_free.send(frame).expect("the other side listens");
                    sent += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        });
        scope.spawn(move || {
            for expected in 0u32.. {
                let Ok(frame) = from_alloc.recv() else { break };
                assert_eq!(frame.bytes(), expected.to_be_bytes());
                sink.free(frame);
            }
        });
    });
    assert_eq!(pool.outstanding(), 0);
}

#[test]
fn a_foreign_frame_is_counted_and_not_taken_in() {
    let mut small = MemPool::new(4, 16, 0);
    let mut large = MemPool::new(4, 1024, 0);
    let stray = small.alloc().expect("a frame");
    large.free(stray);
    assert_eq!(large.foreign(), 1);
    let mut frames = take_all(&mut large);
    let starts: HashSet<_> = frames.iter().map(|frame| frame.bytes().as_ptr()).collect();
    assert_eq!((frames.len(), starts.len()), (4, 4));
    large.free_all(&mut frames);
}

#[test]
fn a_frame_outlives_its_pool() {
    let mut pool = MemPool::new(2, 64, 0);
    let mut frame = pool.alloc_copy(b"still here").expect("a frame");
    drop(pool);
    frame.bytes_mut()[0] = b'S';
    assert_eq!(frame.bytes(), b"Still here");
    let _ = frame.into_raw();
}
