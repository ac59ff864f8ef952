//! Where frames come from and go back to.

use crate::region::{Balance, Region};
use crate::{Frame, FrameParts};
use std::ptr::NonNull;
use std::sync::Arc;

/// A source and sink of frames, used by one worker.
pub trait FramePool: Send {
    /// An empty frame with the pool's full headroom, or `None` when the pool is exhausted.
    fn alloc(&mut self) -> Option<Frame>;

    /// Takes a frame back. It must be of this pool's run (see the crate's documentation).
    fn free(&mut self, frame: Frame);

    /// Takes back all frames, leaving `frames` empty with its capacity kept.
    fn free_all(&mut self, frames: &mut Vec<Frame>) {
        while let Some(frame) = frames.pop() {
            self.free(frame);
        }
    }
}

impl<P: FramePool + ?Sized> FramePool for Box<P> {
    fn alloc(&mut self) -> Option<Frame> {
        (**self).alloc()
    }

    fn free(&mut self, frame: Frame) {
        (**self).free(frame);
    }

    fn free_all(&mut self, frames: &mut Vec<Frame>) {
        (**self).free_all(frames);
    }
}

/// Buffers moved at once between a handle's own stack and the shared one.
const EXCHANGE: usize = 64;

/// A handle to a pool of equal buffers in ordinary memory.
///
/// A handle keeps a last-in-first-out stack of its own, so the buffer used next is the one warmest in the cache; it exchanges
/// buffers with the other handles of the pool through a lock-free stack, 64 at a time. Nothing is allocated after
/// [`MemPool::new`] and [`MemPool::handle`]. A frame may be freed through any handle of its pool; a frame of another pool is not taken in
/// but counted in [`foreign`](Self::foreign) and leaked, so that mixing pools shows up and corrupts nothing.
pub struct MemPool {
    region: Arc<Region>,
    balance: Arc<Balance>,
    stack: Vec<NonNull<u8>>,
    stack_max: usize,
    headroom: u16,
    frame_bytes: u16,
    foreign: u64,
}

// SAFETY: the pointers in the stack are buffers only this handle holds; moving the handle moves them all.
unsafe impl Send for MemPool {}

impl MemPool {
    /// A pool of `count` frames with `headroom` bytes before and `frame_bytes` bytes for each packet.
    ///
    /// # Panics
    /// When `count` is zero, when `headroom + frame_bytes` exceeds 65,535 bytes, or when memory is refused.
    pub fn new(count: usize, frame_bytes: u16, headroom: u16) -> MemPool {
        assert!(
            headroom.checked_add(frame_bytes).is_some_and(|bytes| bytes > 0),
            "headroom {headroom} plus frame {frame_bytes} must be 1 to 65535 bytes"
        );
        let region = Arc::new(Region::new(count, headroom as usize + frame_bytes as usize));
        Self::over(region, count, frame_bytes, headroom)
    }

    /// Another handle to the same pool, for another worker. It keeps at most `cache` buffers (at least 128) to itself.
    pub fn handle(&self, cache: usize) -> MemPool {
        let stack_max = cache.clamp(2 * EXCHANGE, self.region.count().max(2 * EXCHANGE));
        Self::over(self.region.clone(), stack_max, self.frame_bytes, self.headroom)
    }

    /// Frames allocated from the pool and not yet freed, over all its handles. Exact when no handle is in use meanwhile.
    pub fn outstanding(&self) -> usize {
        self.region.outstanding()
    }

    /// Frames of other pools that were freed here: always a defect of the caller.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Number of frames in the pool.
    pub fn count(&self) -> usize {
        self.region.count()
    }

    /// Bytes each frame offers to its packet, beside the headroom.
    pub fn frame_bytes(&self) -> u16 {
        self.frame_bytes
    }

    /// A frame holding a copy of `packet`; `None` when the pool is exhausted or the packet does not fit.
    pub fn alloc_copy(&mut self, packet: &[u8]) -> Option<Frame> {
        let mut frame = self.alloc()?;
        if frame.set_bytes(packet) {
            return Some(frame);
        }
        self.free(frame);
        None
    }

    /// Appends up to `count` frames with packets of `len` bytes (whatever was there before) to `frames`, never beyond its
    /// capacity, and returns how many: fewer when the pool is exhausted, none when such a packet does not fit a frame.
    #[inline]
    pub fn alloc_burst(&mut self, frames: &mut Vec<Frame>, count: usize, len: u16) -> usize {
        let Some(tailroom) = self.frame_bytes.checked_sub(len) else { return 0 };
        let count = count.min(frames.capacity() - frames.len());
        let headroom = self.headroom;
        let mut taken = 0;
        while taken < count {
            if self.stack.is_empty() {
                match self.refill() {
                    Some(buffer) => self.stack.push(buffer),
                    None => break,
                }
            }
            let from = self.stack.len() - (count - taken).min(self.stack.len());
            taken += self.stack.len() - from;
            frames.extend(self.stack.drain(from..).rev().map(|buffer| {
                // SAFETY: the buffer has headroom + frame_bytes bytes, zeroed at birth, and was held by this handle
                // alone; len and tailroom add up to frame_bytes.
                unsafe {
                    let data = buffer.add(headroom as usize);
                    Frame::from_raw(FrameParts { data, len, headroom, tailroom, port: 0, cookie: buffer })
                }
            }));
        }
        self.balance.add(taken as i64);
        taken
    }

    fn over(region: Arc<Region>, stack_max: usize, frame_bytes: u16, headroom: u16) -> MemPool {
        let balance = region.balance();
        let stack = Vec::with_capacity(stack_max);
        MemPool { region, balance, stack, stack_max, headroom, frame_bytes, foreign: 0 }
    }

    #[cold]
    fn refill(&mut self) -> Option<NonNull<u8>> {
        while self.stack.len() < EXCHANGE.min(self.stack_max) {
            match self.region.pop() {
                Some(buffer) => self.stack.push(buffer),
                None => break,
            }
        }
        self.stack.pop()
    }

    #[cold]
    fn spill(&mut self) {
        for buffer in self.stack.drain(..EXCHANGE.min(self.stack.len())) {
            self.region.push(buffer);
        }
    }
}

impl FramePool for MemPool {
    #[inline]
    fn alloc(&mut self) -> Option<Frame> {
        let buffer = match self.stack.pop() {
            Some(buffer) => buffer,
            None => self.refill()?,
        };
        self.balance.add(1);
        // SAFETY: the buffer has headroom + frame_bytes bytes, zeroed at birth, and was held by this handle alone.
        Some(unsafe {
            Frame::from_raw(FrameParts {
                data: buffer.add(self.headroom as usize),
                len: 0,
                headroom: self.headroom,
                tailroom: self.frame_bytes,
                port: 0,
                cookie: buffer,
            })
        })
    }

    #[inline]
    fn free(&mut self, frame: Frame) {
        let buffer = frame.into_raw().cookie;
        if !self.region.owns(buffer) {
            self.foreign += 1;
            return;
        }
        if self.stack.len() >= self.stack_max {
            self.spill();
        }
        self.stack.push(buffer);
        self.balance.add(-1);
    }

    #[inline]
    fn free_all(&mut self, frames: &mut Vec<Frame>) {
        let owned = frames.iter().fold(true, |owned, frame| owned & self.region.owns(frame.cookie()));
        if !owned || self.stack.len() + frames.len() > self.stack_max {
            frames.drain(..).for_each(|frame| self.free(frame));
            return;
        }
        self.stack.extend(frames.iter().map(Frame::cookie));
        self.balance.add(-(frames.len() as i64));
        // A frame has no destructor: its buffer is in the stack now.
        frames.clear();
    }
}

impl Drop for MemPool {
    fn drop(&mut self) {
        for buffer in self.stack.drain(..) {
            self.region.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests;
