//! DPDK's environment: started once a process, and lasting as long.

use crate::error::{DpdkError, errno_text, take_log};
use crate::pool::{DpdkPool, PoolUsage};
use crate::port::{self, PortOptions, PortWatch};
use crate::{ffi, stale};
use carrack_frame::DEFAULT_FRAME_BYTES;
use carrack_io::{DeviceSpec, PacketIo};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How to start DPDK and how large its pool of packet buffers is.
#[derive(Clone, Debug)]
pub struct EalOptions {
    /// True takes memory from reserved huge pages, false from ordinary ones (slower, but runs anywhere).
    pub huge_pages: bool,
    /// Memory in MiB for everything DPDK allocates; `None` derives it from the pool.
    pub memory_mib: Option<u32>,
    /// Packet buffers for all ports together. Each receive queue keeps a ring full of them.
    pub frames: u32,
    /// Bytes of each buffer beside the 128 bytes of headroom: 2,048 holds any standard packet, 9,728 any jumbo packet.
    pub frame_bytes: u16,
    /// Physical ports to take, as `domain:bus:device.function`. When empty the PCI bus is not searched at all.
    pub pci: Vec<String>,
    /// Repeats DPDK's log on the standard error output.
    pub verbose: bool,
    /// Further arguments for DPDK's environment, last so that they win.
    pub extra: Vec<String>,
}

impl Default for EalOptions {
    fn default() -> EalOptions {
        EalOptions {
            huge_pages: false,
            memory_mib: None,
            frames: 32_767,
            frame_bytes: DEFAULT_FRAME_BYTES,
            pci: Vec::new(),
            verbose: false,
            extra: Vec::new(),
        }
    }
}

/// DPDK, running. Its memory lasts as long as the process, its ports as long as their queues.
pub struct Dpdk {
    environment: Arc<Environment>,
    watches: Mutex<Vec<PortWatch>>,
}

/// The version of the DPDK in use, such as `DPDK 22.11.11`.
pub fn dpdk_version() -> String {
    // SAFETY: the shim returns a constant string that ends in zero and lives forever.
    let version = unsafe { CStr::from_ptr(ffi::carrack_dpdk_version()) };
    version.to_string_lossy().into_owned()
}

impl Dpdk {
    /// Starts DPDK and makes the pool. Removes what killed runs left behind first.
    ///
    /// # Errors
    /// When DPDK was started in this process before (it cannot start twice), when memory or rights are missing, or when an
    /// option is out of range.
    pub fn init(options: EalOptions) -> Result<Dpdk, DpdkError> {
        check(&options)?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(DpdkError::new(
                "DPDK runs once a process and has been started already; restart the process.",
            ));
        }
        stale::remove_stale_files();
        start_environment(&options)?;
        let pool = create_pool(&options)?;
        let environment = Arc::new(Environment {
            pool,
            frames: options.frames,
            frame_bytes: options.frame_bytes,
            pci: options.pci,
        });
        Ok(Dpdk { environment, watches: Mutex::new(Vec::new()) })
    }

    /// Opens a device and returns one `PacketIo` per queue, in queue order. Dropping all of them closes it and, for virtual devices,
    /// removes it. Put a kernel interface under an [`OffloadGuard`](crate::OffloadGuard) first.
    ///
    /// # Errors
    /// When the device is not there, is in use, has too few queues, or is one that needs no DPDK.
    pub fn open(
        &self,
        device: &DeviceSpec,
        options: PortOptions,
    ) -> Result<Vec<Box<dyn PacketIo>>, DpdkError> {
        let (queues, watch) = port::open(&self.environment, device, options)?;
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|known| known.name() != watch.name());
        watches.push(watch);
        Ok(queues)
    }

    /// A view of an open port's link and counters, by its name, for use while workers own its queues.
    pub fn watch(&self, name: &str) -> Option<PortWatch> {
        let watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        watches.iter().find(|watch| watch.name() == name).cloned()
    }

    /// A handle to the one pool all ports share, for one worker.
    pub fn pool(&self) -> DpdkPool {
        DpdkPool::new(self.environment.clone())
    }

    /// How much of the pool is in use. Receive rings count as used.
    pub fn pool_usage(&self) -> PoolUsage {
        self.environment.usage()
    }

    /// Gives the calling thread its own cache of packet buffers. Receiving does it by itself; a thread that only allocates or frees
    /// calls it once for speed. Without it everything works, more slowly.
    pub fn register_thread(&self) {
        register_thread();
    }
}

/// The running environment and its pool.
pub(crate) struct Environment {
    pool: NonNull<c_void>,
    frames: u32,
    frame_bytes: u16,
    pci: Vec<String>,
}

// SAFETY: the pool is DPDK's mempool, which any thread may use at any time.
unsafe impl Send for Environment {}
// SAFETY: as above.
unsafe impl Sync for Environment {}

impl Environment {
    pub(crate) fn pool(&self) -> *mut c_void {
        self.pool.as_ptr()
    }

    pub(crate) fn frame_bytes(&self) -> u16 {
        self.frame_bytes
    }

    pub(crate) fn takes_pci(&self, address: &str) -> bool {
        self.pci.iter().any(|taken| taken.eq_ignore_ascii_case(address))
    }

    pub(crate) fn usage(&self) -> PoolUsage {
        // SAFETY: the pool lives as long as this environment.
        let available = unsafe { ffi::carrack_pool_available(self.pool.as_ptr()) };
        PoolUsage { frames: self.frames, available }
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // DPDK's own cleanup unmaps its memory while its interrupt thread still reads it. Ports are closed by now, and the
        // rest goes with the process; so frames and registered threads may outlive this value, too.
        stale::remove_own_files();
    }
}

thread_local! {
    static REGISTRATION: RefCell<Option<Registration>> = const { RefCell::new(None) };
}

/// A thread's place among DPDK's; given back when the thread ends.
struct Registration;

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: this very thread has registered, and the environment lasts as long as the process.
        unsafe { ffi::carrack_thread_unregister() };
    }
}

/// Registers the calling thread unless it has been tried before.
pub(crate) fn register_thread() {
    REGISTRATION.with_borrow_mut(|registration| {
        if registration.is_none() {
            // SAFETY: whoever calls holds a port or the environment, so it runs; the shim leaves threads alone that DPDK already knows.
            let _ = unsafe { ffi::carrack_thread_register() };
            *registration = Some(Registration);
        }
    });
}

static STARTED: AtomicBool = AtomicBool::new(false);

const FRAMES_MIN: u32 = 1024;
const FRAMES_MAX: u32 = 16 << 20;
const FRAME_BYTES_MIN: u16 = 2048;
const FRAME_BYTES_MAX: u16 = 16_384;
/// Buffers each thread keeps to itself.
const THREAD_CACHE_FRAMES: u32 = 256;
/// What a buffer costs beside its bytes: headroom, DPDK's descriptor, alignment.
const FRAME_OVERHEAD_BYTES: u64 = 128 + 128 + 128;
/// Memory for rings and drivers beside the pool.
const DRIVER_MEMORY_MIB: u64 = 96;

fn check(options: &EalOptions) -> Result<(), DpdkError> {
    if !(FRAMES_MIN..=FRAMES_MAX).contains(&options.frames) {
        let frames = options.frames;
        return Err(DpdkError::new(format!(
            "{frames} frames are out of range; use {FRAMES_MIN} to {FRAMES_MAX}."
        )));
    }
    if !(FRAME_BYTES_MIN..=FRAME_BYTES_MAX).contains(&options.frame_bytes) {
        let bytes = options.frame_bytes;
        return Err(DpdkError::new(format!(
            "frames of {bytes} bytes are out of range; use {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}."
        )));
    }
    Ok(())
}

fn start_environment(options: &EalOptions) -> Result<(), DpdkError> {
    let affinity = Affinity::of_this_thread();
    let arguments = arguments(options, &affinity.processors());
    let strings: Vec<CString> = arguments.iter().filter_map(|one| CString::new(one.as_str()).ok()).collect();
    let mut pointers: Vec<*mut c_char> = strings.iter().map(|one| one.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let count = strings.len() as c_int;
    // SAFETY: argv holds `count` strings and a final null, all alive for the call; DPDK reorders the pointers and copies the
    // strings, it does not write into them.
    let result = unsafe { ffi::carrack_eal_init(count, pointers.as_mut_ptr(), c_int::from(options.verbose)) };
    affinity.restore();
    if result == 0 {
        take_log();
        return Ok(());
    }
    let help = if options.huge_pages {
        "Reserve huge pages (`sysctl vm.nr_hugepages=512`) or switch them off, and run as root."
    } else {
        "Check that the memory is free and that this runs as root."
    };
    Err(DpdkError::with_log(format!("DPDK did not start: {}. {help}", errno_text(result))))
}

/// The environment's command line.
fn arguments(options: &EalOptions, processors: &str) -> Vec<String> {
    let mut arguments = vec![
        "carrack".to_owned(),
        // One DPDK thread, the caller, allowed where it is allowed now: pinning is the runtime's business.
        format!("--lcores=0@({processors})"),
        format!("--file-prefix={}", stale::own_prefix()),
        "--no-telemetry".to_owned(),
        "--iova-mode=va".to_owned(),
        // Shared-memory interfaces pass whole segments to their peers as file descriptors.
        "--single-file-segments".to_owned(),
    ];
    if options.huge_pages {
        // Anonymous huge pages: nothing is left in the huge-page mount when the process is killed.
        arguments.push("--in-memory".to_owned());
        if let Some(memory) = options.memory_mib {
            arguments.push(format!("-m{memory}"));
        }
    } else {
        arguments.push("--no-huge".to_owned());
        arguments.push("--no-shconf".to_owned());
        arguments.push(format!("-m{}", options.memory_mib.unwrap_or_else(|| memory_mib(options))));
    }
    if options.pci.is_empty() {
        arguments.push("--no-pci".to_owned());
    }
    for address in &options.pci {
        arguments.push(format!("--allow={address}"));
    }
    arguments.extend(options.extra.iter().cloned());
    arguments
}

fn memory_mib(options: &EalOptions) -> u32 {
    let pool = u64::from(options.frames) * (u64::from(options.frame_bytes) + FRAME_OVERHEAD_BYTES);
    // Two MiB at a time, as the environment rounds anyway.
    u32::try_from(DRIVER_MEMORY_MIB + pool.div_ceil(2 << 20) * 2).unwrap_or(u32::MAX)
}

fn create_pool(options: &EalOptions) -> Result<NonNull<c_void>, DpdkError> {
    // SAFETY: the environment runs and the name is a string that ends in zero.
    let pool = unsafe {
        ffi::carrack_pool_create(
            c"carrack_frames".as_ptr(),
            options.frames,
            THREAD_CACHE_FRAMES,
            options.frame_bytes,
        )
    };
    NonNull::new(pool).ok_or_else(|| {
        DpdkError::with_log(format!(
            "no memory for {} frames of {} bytes (about {} MiB). Use fewer frames or give DPDK more memory.",
            options.frames,
            options.frame_bytes,
            memory_mib(options)
        ))
    })
}

/// The processors a thread may run on.
struct Affinity(libc::cpu_set_t);

impl Affinity {
    fn of_this_thread() -> Affinity {
        // SAFETY: a cpu_set_t is a bit mask, for which all zeroes are valid.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is writable and its size is given. On failure it stays empty, handled in `processors`.
        unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) };
        Affinity(set)
    }

    /// As a list, such as `0,1,5`.
    fn processors(&self) -> String {
        // SAFETY: the index stays below the set's size.
        let allowed = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &self.0) });
        let list: Vec<String> = allowed.map(|cpu| cpu.to_string()).collect();
        if list.is_empty() { "0".to_owned() } else { list.join(",") }
    }

    fn restore(&self) {
        // SAFETY: the set came from sched_getaffinity; a failure leaves the thread where DPDK put it, which works.
        unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &self.0) };
    }
}

#[cfg(test)]
mod tests;
