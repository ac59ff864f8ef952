//! The owned handle to one packet's bytes.

use std::mem::{offset_of, size_of};
use std::ptr::NonNull;

/// An owned packet: `headroom` free bytes, then `len` packet bytes, then `tailroom` free bytes, in one buffer.
///
/// There is exactly one handle to a buffer at any time, so a frame can be read and written without locks and moved
/// between threads. A frame has no destructor, because it does not know its pool: dropping one leaks its
/// buffer until the pool goes. Give it to [`FramePool::free`](crate::FramePool::free) or send it; pools count what is
/// [`outstanding`](crate::MemPool::outstanding), and tests assert that it is zero at the end.
///
/// All sizes are bytes. `headroom + len + tailroom` is constant over the frame's life.
#[repr(C)]
#[must_use = "a dropped frame leaks its buffer: free it to its pool or send it"]
pub struct Frame {
    data: NonNull<u8>,
    len: u16,
    headroom: u16,
    tailroom: u16,
    port: u16,
    cookie: NonNull<u8>,
}

// The packet I/O shims fill arrays of frames from C: these offsets are part of the contract.
const _: () = {
    assert!(size_of::<Frame>() == 24);
    assert!(offset_of!(Frame, data) == 0);
    assert!(offset_of!(Frame, len) == 8);
    assert!(offset_of!(Frame, headroom) == 10);
    assert!(offset_of!(Frame, tailroom) == 12);
    assert!(offset_of!(Frame, port) == 14);
    assert!(offset_of!(Frame, cookie) == 16);
};

// SAFETY: a frame is the only handle to its buffer (from_raw's contract), so sending it sends the ownership.
unsafe impl Send for Frame {}
// SAFETY: shared access only reads the buffer; nobody else can write it while a reference to the frame lives.
unsafe impl Sync for Frame {}

/// The raw contents of a [`Frame`], for pools and packet I/O.
#[derive(Clone, Copy, Debug)]
pub struct FrameParts {
    /// First byte of the packet.
    pub data: NonNull<u8>,
    /// Packet length in bytes.
    pub len: u16,
    /// Free bytes before `data`.
    pub headroom: u16,
    /// Free bytes after the packet.
    pub tailroom: u16,
    /// Port index the packet arrived on.
    pub port: u16,
    /// What the pool needs to take the buffer back.
    pub cookie: NonNull<u8>,
}

impl Frame {
    /// Makes a frame of a pool's buffer.
    ///
    /// # Safety
    /// `parts.data - headroom .. parts.data + len + tailroom` is one allocation, initialised, that stays valid and is touched
    /// through no other handle until the frame comes back by [`Frame::into_raw`].
    #[inline(always)]
    pub unsafe fn from_raw(parts: FrameParts) -> Frame {
        let FrameParts { data, len, headroom, tailroom, port, cookie } = parts;
        Frame { data, len, headroom, tailroom, port, cookie }
    }

    /// Takes the frame apart; the caller becomes the buffer's owner.
    #[inline(always)]
    pub fn into_raw(self) -> FrameParts {
        let Frame { data, len, headroom, tailroom, port, cookie } = self;
        FrameParts { data, len, headroom, tailroom, port, cookie }
    }

    /// What the pool takes the buffer back by.
    #[inline(always)]
    pub(crate) fn cookie(&self) -> NonNull<u8> {
        self.cookie
    }

    /// The packet's bytes.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: data..data+len lies in the buffer this frame owns (from_raw's contract, kept by every method).
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len as usize) }
    }

    /// The packet's bytes, to rewrite in place.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` makes this the only access.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len as usize) }
    }

    /// Packet length in bytes.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True when the packet has no bytes (a freshly allocated frame).
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Free bytes before the packet: what [`prepend`](Self::prepend) can still take.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        self.headroom as usize
    }

    /// Free bytes after the packet: what [`append`](Self::append) can still take.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        self.tailroom as usize
    }

    /// Index of the port the packet arrived on.
    #[inline(always)]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the port index, as when a frame is handed to a port of another numbering.
    #[inline(always)]
    pub fn set_port(&mut self, port: u16) {
        self.port = port;
    }

    /// Grows the packet by `n` bytes at its front and returns just those, holding whatever was there before.
    /// `None`, and no change, when the headroom is smaller.
    #[inline(always)]
    pub fn prepend(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.headroom as usize {
            return None;
        }
        // SAFETY: headroom bytes before data belong to the buffer and n is at most that many.
        self.data = unsafe { self.data.sub(n) };
        self.headroom -= n as u16;
        self.len += n as u16;
        self.bytes_mut().get_mut(..n)
    }

    /// Cuts `n` bytes off the packet's front. False, and no change, when the packet is shorter.
    #[inline(always)]
    pub fn trim_front(&mut self, n: usize) -> bool {
        if n > self.len as usize {
            return false;
        }
        // SAFETY: len bytes from data belong to the buffer and n is at most that many.
        self.data = unsafe { self.data.add(n) };
        self.headroom += n as u16;
        self.len -= n as u16;
        true
    }

    /// Grows the packet by `n` bytes at its end and returns just those, holding whatever was there before.
    /// `None`, and no change, when the tailroom is smaller.
    #[inline(always)]
    pub fn append(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.tailroom as usize {
            return None;
        }
        let start = self.len as usize;
        self.tailroom -= n as u16;
        self.len += n as u16;
        self.bytes_mut().get_mut(start..)
    }

    /// Cuts the packet to at most `n` bytes; a shorter packet stays as it is.
    #[inline(always)]
    pub fn truncate(&mut self, n: usize) {
        if n < self.len as usize {
            self.tailroom += self.len - n as u16;
            self.len = n as u16;
        }
    }

    /// Replaces the packet by `packet`, starting where the present one starts. False, and no change, when it does not fit.
    pub fn set_bytes(&mut self, packet: &[u8]) -> bool {
        let room = self.len as usize + self.tailroom as usize;
        if packet.len() > room {
            return false;
        }
        self.tailroom = (room - packet.len()) as u16;
        self.len = packet.len() as u16;
        self.bytes_mut().copy_from_slice(packet);
        true
    }

    /// Asks the processor to fetch the packet's first cache line, a stage before it is read.
    #[inline(always)]
    pub fn prefetch_header(&self) {
        prefetch(self.data.as_ptr());
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frame")
            .field("port", &self.port)
            .field("len", &self.len)
            .field("headroom", &self.headroom)
            .field("tailroom", &self.tailroom)
            .finish_non_exhaustive()
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch is a hint, it never faults, and SSE is part of x86_64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch(_address: *const u8) {}

#[cfg(test)]
mod tests;
