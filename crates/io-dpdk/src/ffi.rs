//! The shim's functions; `shim/shim.h` describes them.

use carrack_frame::Frame;
use std::ffi::{c_char, c_int, c_void};

/// What a receive queue dropped itself.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RxDrops {
    pub packets: u64,
}

/// Entries of the table of queues.
pub(crate) const STEERING_SLOTS: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartOptions {
    pub queues: u16,
    pub rx_descriptors: u16,
    pub tx_descriptors: u16,
    pub mtu: u16,
    pub promiscuous: c_int,
    pub client: c_int,
    pub steer_by: c_int,
    pub steer_key: [u8; 4],
    pub steer_table: [u16; STEERING_SLOTS],
    pub spread: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Link {
    pub mac: [u8; 6],
    pub mtu: u16,
    pub speed_mbps: u32,
    pub up: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub rx_packets: u64,
    pub rx_bytes: u64,
    pub tx_packets: u64,
    pub tx_bytes: u64,
    pub rx_missed: u64,
    pub rx_errors: u64,
    pub rx_nombuf: u64,
    pub tx_errors: u64,
}

unsafe extern "C" {
    pub fn carrack_eal_init(argc: c_int, argv: *mut *mut c_char, verbose: c_int) -> c_int;
    pub fn carrack_log_take(out: *mut c_char, size: usize) -> usize;
    pub fn carrack_thread_register() -> c_int;
    pub fn carrack_thread_unregister();
    pub fn carrack_dpdk_version() -> *const c_char;

    pub fn carrack_pool_create(name: *const c_char, frames: u32, cache: u32, frame_bytes: u16)
    -> *mut c_void;
    pub fn carrack_pool_available(pool: *const c_void) -> u32;
    pub fn carrack_frame_alloc(pool: *mut c_void, out: *mut Frame) -> c_int;
    pub fn carrack_frame_free(frames: *const Frame, count: usize);

    pub fn carrack_port_attach(
        bus: *const c_char,
        name: *const c_char,
        arguments: *const c_char,
        port: *mut u16,
    ) -> c_int;
    pub fn carrack_port_start(port: u16, options: *mut StartOptions, pool: *mut c_void) -> c_int;
    pub fn carrack_port_close(port: u16, bus: *const c_char, name: *const c_char) -> c_int;
    pub fn carrack_port_link(port: u16, out: *mut Link) -> c_int;
    pub fn carrack_port_stats(port: u16, out: *mut Stats) -> c_int;

    pub fn carrack_rx(
        port: u16,
        queue: u16,
        index: u16,
        out: *mut Frame,
        max: u16,
        drops: *mut RxDrops,
    ) -> u16;
    pub fn carrack_tx(port: u16, queue: u16, frames: *const Frame, count: u16) -> u16;
}
