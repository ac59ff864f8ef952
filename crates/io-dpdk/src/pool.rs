//! The pool of packet buffers all ports of a DPDK run share.

use crate::eal::Environment;
use crate::ffi;
use carrack_frame::{Frame, FramePool};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// A handle to the run's one pool, for one worker. A frame may be allocated through one handle and freed through another.
pub struct DpdkPool {
    environment: Arc<Environment>,
}

/// How much of the pool is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Frames in the pool.
    pub frames: u32,
    /// Frames free now: neither in a worker's hands nor in a driver's ring.
    pub available: u32,
}

impl PoolUsage {
    /// Frames in workers' hands and in drivers' rings.
    pub fn outstanding(&self) -> u32 {
        self.frames.saturating_sub(self.available)
    }
}

impl DpdkPool {
    pub(crate) fn new(environment: Arc<Environment>) -> DpdkPool {
        DpdkPool { environment }
    }

    /// How much of the pool is in use, over all handles and ports.
    pub fn usage(&self) -> PoolUsage {
        self.environment.usage()
    }
}

impl FramePool for DpdkPool {
    #[inline]
    fn alloc(&mut self) -> Option<Frame> {
        let mut frame = MaybeUninit::uninit();
        // SAFETY: the pool lives as long as the environment, and on success the shim has filled the frame from a
        // buffer that is now this caller's alone.
        unsafe {
            match ffi::carrack_frame_alloc(self.environment.pool(), frame.as_mut_ptr()) {
                0 => Some(frame.assume_init()),
                _ => None,
            }
        }
    }

    #[inline]
    fn free(&mut self, frame: Frame) {
        // SAFETY: in a DPDK run every frame's cookie is an mbuf; the frame is consumed, so it is freed once.
        unsafe { ffi::carrack_frame_free(&frame, 1) };
        let _ = frame.into_raw();
    }

    #[inline]
    fn free_all(&mut self, frames: &mut Vec<Frame>) {
        // SAFETY: as in `free`, for all of the vector's frames; a frame has no destructor, and the length drops to zero
        // before anybody can see them again.
        unsafe {
            ffi::carrack_frame_free(frames.as_ptr(), frames.len());
            frames.set_len(0);
        }
    }
}
