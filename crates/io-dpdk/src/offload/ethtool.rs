//! The kernel's per-interface controls: features by ethtool, flags and MTU.

use super::OffloadError;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// One switchable property of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feature {
    /// The kernel's name, such as `tx-checksum-ip-generic`.
    pub name: String,
    /// Whether anybody can switch it.
    pub changeable: bool,
    /// Whether it is asked for.
    pub requested: bool,
    /// Whether it is in effect, which may depend on other features.
    pub active: bool,
}

/// A control channel to one interface of the network namespace it was opened in.
pub(crate) struct Control {
    socket: OwnedFd,
    name: String,
}

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_BYTES: usize = 32;
/// More features than any kernel has; a count beyond it is not believed.
const FEATURES_MAX: usize = 1024;

impl Control {
    /// # Errors
    /// When there is no such interface.
    pub(crate) fn open(name: &str) -> Result<Control, OffloadError> {
        // SAFETY: socket takes no pointers.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(OffloadError::last_os("cannot open a control socket"));
        }
        // SAFETY: the descriptor is new and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        let control = Control { socket, name: name.to_owned() };
        control.flags()?;
        Ok(control)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn index(&self) -> Result<u32, OffloadError> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFINDEX as libc::c_ulong, &mut request, "read the number")?;
        // SAFETY: a successful SIOCGIFINDEX has filled this member.
        Ok(unsafe { request.ifr_ifru.ifru_ifindex } as u32)
    }

    pub(crate) fn mtu(&self) -> Result<u32, OffloadError> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFMTU as libc::c_ulong, &mut request, "read the MTU")?;
        // SAFETY: a successful SIOCGIFMTU has filled this member.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as u32)
    }

    pub(crate) fn set_mtu(&self, mtu: u32) -> Result<(), OffloadError> {
        let mut request = self.request();
        request.ifr_ifru.ifru_mtu = mtu as i32;
        self.ioctl(libc::SIOCSIFMTU as libc::c_ulong, &mut request, &format!("set an MTU of {mtu}")).map(drop)
    }

    pub(crate) fn flags(&self) -> Result<i32, OffloadError> {
        let mut request = self.request();
        self.ioctl(libc::SIOCGIFFLAGS as libc::c_ulong, &mut request, "read the state")?;
        // SAFETY: a successful SIOCGIFFLAGS has filled this member.
        Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
    }

    /// Sets or clears a flag such as IFF_UP; nothing happens when it is so already.
    pub(crate) fn set_flag(&self, flag: i32, on: bool) -> Result<(), OffloadError> {
        let present = self.flags()?;
        let wanted = if on { present | flag } else { present & !flag };
        if wanted == present {
            return Ok(());
        }
        let mut request = self.request();
        request.ifr_ifru.ifru_flags = wanted as i16;
        self.ioctl(libc::SIOCSIFFLAGS as libc::c_ulong, &mut request, "change the state").map(drop)
    }

    /// Receive queues in use; `None` when the driver does not say.
    pub(crate) fn rx_queues(&self) -> Option<u32> {
        // cmd, four maxima, then the present counts: rx, tx, other, combined.
        let mut channels = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        self.ethtool(&mut channels, "read the queues").ok()?;
        Some(channels[5] + channels[8])
    }

    pub(crate) fn features(&self) -> Result<Vec<Feature>, OffloadError> {
        let names = self.feature_names()?;
        let blocks = names.len().div_ceil(32);
        // cmd, size, then per block of 32 features: available, requested, active, never_changed.
        let mut buffer = vec![0u32; 2 + 4 * blocks];
        buffer[0] = ETHTOOL_GFEATURES;
        buffer[1] = blocks as u32;
        self.ethtool(&mut buffer, "read the offload features")?;
        let bit = |word: usize, number: usize| buffer[2 + 4 * (number / 32) + word] >> (number % 32) & 1 == 1;
        let feature = |(number, name): (usize, String)| Feature {
            name,
            changeable: bit(0, number) && !bit(3, number),
            requested: bit(1, number),
            active: bit(2, number),
        };
        Ok(names.into_iter().enumerate().map(feature).collect())
    }

    /// Switches the named features; those the interface lacks or that are so already are passed over. Returns
    /// the names of those whose effect has changed.
    pub(crate) fn set_features(&self, names: &[String], on: bool) -> Result<Vec<String>, OffloadError> {
        let before = self.features()?;
        let blocks = before.len().div_ceil(32);
        // cmd, size, then per block of 32 features: valid, requested.
        let mut buffer = vec![0u32; 2 + 2 * blocks];
        buffer[0] = ETHTOOL_SFEATURES;
        buffer[1] = blocks as u32;
        for (number, feature) in before.iter().enumerate() {
            if feature.changeable && names.contains(&feature.name) {
                let (block, bit) = (2 + 2 * (number / 32), 1 << (number % 32));
                buffer[block] |= bit;
                buffer[block + 1] |= if on { bit } else { 0 };
            }
        }
        if !names.is_empty() {
            self.ethtool(&mut buffer, "switch offload features")?;
        }
        let after = self.features()?;
        let changed = before.iter().zip(&after).filter(|(before, after)| before.active != after.active);
        Ok(changed.map(|(_, after)| after.name.clone()).collect())
    }

    fn feature_names(&self) -> Result<Vec<String>, OffloadError> {
        // cmd, reserved, 64-bit mask of string sets, count of the one asked for.
        let mut info = [ETHTOOL_GSSET_INFO, 0, 1 << ETH_SS_FEATURES, 0, 0];
        self.ethtool(&mut info, "count the offload features")?;
        let count = (info[4] as usize).min(FEATURES_MAX);
        // cmd, string set, count, then the names.
        let mut buffer = vec![0u32; 3 + count * ETH_GSTRING_BYTES / 4];
        buffer[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        self.ethtool(&mut buffer, "read the names of the offload features")?;
        let bytes: Vec<u8> = buffer[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let name = |raw: &[u8]| {
            String::from_utf8_lossy(raw.split(|byte| *byte == 0).next().unwrap_or(&[])).into_owned()
        };
        Ok(bytes.chunks(ETH_GSTRING_BYTES).map(name).collect())
    }

    fn ethtool(&self, buffer: &mut [u32], doing: &str) -> Result<i32, OffloadError> {
        let mut request = self.request();
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        self.ioctl(SIOCETHTOOL, &mut request, doing)
    }

    fn request(&self) -> libc::ifreq {
        // SAFETY: an ifreq is plain numbers and pointers, for which zeroes are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // The last byte stays zero: it ends the name.
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name.iter_mut().take(room).zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request
    }

    fn ioctl(
        &self,
        code: libc::c_ulong,
        request: &mut libc::ifreq,
        doing: &str,
    ) -> Result<i32, OffloadError> {
        // SAFETY: the request is a whole ifreq; for ethtool its data points to a buffer whose leading count says how much the
        // kernel may write, and every caller sizes it so.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), code as _, std::ptr::from_mut(request)) };
        if result < 0 {
            return Err(OffloadError::last_os(format!("interface {}: cannot {doing}", self.name)));
        }
        Ok(result)
    }
}

/// The name of an interface of the calling thread's network namespace.
pub(crate) fn name_of(index: u32) -> Result<String, OffloadError> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the size the call requires.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return Err(OffloadError::last_os(format!("interface number {index}")));
    }
    let name = CStr::from_bytes_until_nul(&name).map(CString::from).unwrap_or_default();
    Ok(name.to_string_lossy().into_owned())
}
