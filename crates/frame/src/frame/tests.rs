use crate::{Frame, FramePool, MemPool};
use proptest::prelude::*;

fn frame_in(pool: &mut MemPool, packet: &[u8]) -> Frame {
    pool.alloc_copy(packet).expect("the pool has a frame and the packet fits")
}

#[test]
fn prepended_bytes_come_first_and_use_up_headroom() {
    let mut pool = MemPool::new(1, 64, 16);
    let mut frame = frame_in(&mut pool, b"payload");
    frame.prepend(4).expect("16 bytes of headroom").copy_from_slice(b"vlan");
    assert_eq!(frame.bytes(), b"vlanpayload");
    assert_eq!(frame.headroom(), 12);
    assert!(frame.prepend(13).is_none(), "more than the headroom is refused");
    assert_eq!(frame.bytes(), b"vlanpayload", "a refused prepend changes nothing");
    pool.free(frame);
}

#[test]
fn appended_bytes_come_last_and_never_leave_the_buffer() {
    let mut pool = MemPool::new(1, 8, 0);
    let mut frame = frame_in(&mut pool, b"12345");
    frame.append(3).expect("3 bytes of tailroom").copy_from_slice(b"678");
    assert_eq!(frame.bytes(), b"12345678");
    assert!(frame.append(1).is_none());
    frame.truncate(2);
    assert_eq!((frame.bytes(), frame.tailroom()), (&b"12"[..], 6));
    pool.free(frame);
}

#[test]
fn trimming_more_than_the_packet_is_refused() {
    let mut pool = MemPool::new(1, 8, 0);
    let mut frame = frame_in(&mut pool, b"abc");
    assert!(!frame.trim_front(4));
    assert!(frame.trim_front(3));
    assert!(frame.is_empty());
    assert_eq!(frame.headroom(), 3);
    pool.free(frame);
}

#[test]
fn a_packet_larger_than_the_frame_is_refused() {
    let mut pool = MemPool::new(1, 8, 4);
    let mut frame = pool.alloc().expect("one frame");
    assert!(!frame.set_bytes(&[0; 9]));
    assert!(frame.is_empty());
    assert!(frame.set_bytes(&[7; 8]));
    pool.free(frame);
    assert!(pool.alloc_copy(&[0; 9]).is_none());
    assert_eq!(pool.outstanding(), 0, "the frame of the refused copy went home");
}

#[derive(Clone, Debug)]
enum Step {
    Prepend(Vec<u8>),
    Append(Vec<u8>),
    TrimFront(usize),
    Truncate(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..24);
    prop_oneof![
        bytes().prop_map(Step::Prepend),
        bytes().prop_map(Step::Append),
        (0usize..40).prop_map(Step::TrimFront),
        (0usize..40).prop_map(Step::Truncate),
    ]
}

proptest! {
    /// A frame behaves like a plain vector that refuses to outgrow its buffer.
    #[test]
    fn a_frame_is_a_bounded_vector(steps in proptest::collection::vec(step(), 0..60)) {
        const ROOM: usize = 96;
        let mut pool = MemPool::new(1, 64, 32);
        let mut frame = pool.alloc().expect("one frame");
        let mut model: Vec<u8> = Vec::new();
        for step in steps {
            match step {
                Step::Prepend(bytes) => {
                    if let Some(room) = frame.prepend(bytes.len()) {
                        room.copy_from_slice(&bytes);
                        model.splice(0..0, bytes);
                    } else {
                        prop_assert!(bytes.len() > frame.headroom());
                    }
                }
                Step::Append(bytes) => {
                    if let Some(room) = frame.append(bytes.len()) {
                        room.copy_from_slice(&bytes);
                        model.extend(bytes);
                    } else {
                        prop_assert!(bytes.len() > frame.tailroom());
                    }
                }
                Step::TrimFront(n) => {
                    prop_assert_eq!(frame.trim_front(n), n <= model.len());
                    if n <= model.len() {
                        model.drain(..n);
                    }
                }
                Step::Truncate(n) => {
                    frame.truncate(n);
                    model.truncate(n);
                }
            }
            prop_assert_eq!(frame.bytes(), &model[..]);
            prop_assert_eq!(frame.headroom() + frame.len() + frame.tailroom(), ROOM);
        }
        pool.free(frame);
        prop_assert_eq!(pool.outstanding(), 0);
    }
}
