//! The offload guard: makes a kernel interface hand over packets as they are on the wire, and sets it back.
//!
//! A kernel interface may hand over TCP segments merged into 64 kB packets, checksums yet to be computed, and VLAN tags
//! beside the packet. A router that rewrites headers needs finished packets, so the guard switches those features off: on
//! the interface itself and, for a veth, on its peer, whichever network namespace that is in, because there
//! the sender's side decides. What it changes goes into a state file first, so that a killed
//! process's changes are undone at the next start.

mod change;
mod ethtool;
mod namespace;
mod netlink;
mod state;

pub use change::{OffloadChange, OffloadError};

use ethtool::{Control, Feature};
use namespace::Namespace;
use state::{DeviceRecord, GuardRecord};
use std::path::{Path, PathBuf};

/// How to guard an interface.
#[derive(Clone, Debug)]
pub struct GuardOptions {
    /// Directory of state files, such as `/run/carrack`; created when missing.
    pub state_directory: PathBuf,
    /// Sets the interface's largest layer-3 packet, in bytes, for as long as the guard lives.
    pub mtu: Option<u16>,
}

/// An interface under guard. Dropping it restores what was changed; drop the port first.
#[derive(Debug)]
pub struct OffloadGuard {
    devices: Vec<(Namespace, DeviceRecord)>,
    changes: Vec<OffloadChange>,
    state_file: PathBuf,
}

impl OffloadGuard {
    /// Prepares `interface` of the calling thread's network namespace: offloads off there and on a veth's peer, MTU set, interface up.
    /// A killed run's changes to it are undone first.
    ///
    /// # Errors
    /// When the interface is not there, when another living process guards it, when rights are missing, or when the state
    /// file cannot be written. Then nothing has been changed.
    pub fn take(interface: &str, options: &GuardOptions) -> Result<OffloadGuard, OffloadError> {
        let here = Namespace::current()?;
        let state_file = state::file_of(&options.state_directory, interface, here.inode());
        let mut changes = Vec::new();
        if let Some(former) = state::read(&state_file)? {
            if former.owner_lives() {
                return Err(OffloadError::new(format!(
                    "interface {interface} is in use by process {}; stop that one first.",
                    former.pid
                )));
            }
            changes.extend(undo_stale(&former));
        }
        let mut devices = Vec::new();
        let (own, peer) = survey(interface, &here, &mut changes)?;
        devices.push((here, own));
        devices.extend(peer);
        let record = GuardRecord::of(devices.iter().map(|(_, device)| device.clone()).collect());
        state::write(&state_file, &record)?;
        let mut guard = OffloadGuard { devices, changes, state_file };
        // From here on a failure drops the guard, which restores what was done so far.
        guard.apply(options.mtu)?;
        Ok(guard)
    }

    /// What was changed, each as a sentence.
    pub fn changes(&self) -> &[OffloadChange] {
        &self.changes
    }

    fn apply(&mut self, mtu: Option<u16>) -> Result<(), OffloadError> {
        for (position, (namespace, device)) in self.devices.iter().enumerate() {
            let own = position == 0;
            let (name, place) = (device.name.clone(), namespace.label());
            let wanted = device.features_on.clone();
            let (up, old_mtu) = (device.was_up, device.mtu);
            let off = namespace.run(move || {
                let control = Control::open(&name)?;
                let off = control.set_features(&wanted, false)?;
                if own {
                    if let Some(mtu) = mtu.filter(|mtu| u32::from(*mtu) != old_mtu) {
                        control.set_mtu(u32::from(mtu))?;
                    }
                    if !up {
                        control.set_flag(libc::IFF_UP, true)?;
                    }
                }
                Ok(off)
            })?;
            let interface = device.name.clone();
            if !off.is_empty() {
                let (interface, place) = (interface.clone(), place.clone());
                self.changes.push(OffloadChange::SwitchedOff { interface, place, features: off });
            }
            if own && let Some(to) = mtu.map(u32::from).filter(|to| *to != old_mtu) {
                self.changes.push(OffloadChange::MtuSet { interface: interface.clone(), from: old_mtu, to });
            }
            if own && !up {
                self.changes.push(OffloadChange::BroughtUp { interface });
            }
        }
        Ok(())
    }
}

impl Drop for OffloadGuard {
    fn drop(&mut self) {
        let restored =
            self.devices.iter().all(|(namespace, device)| restore(namespace, device, false).is_ok());
        // What could not be restored now is tried again at the next start.
        if restored {
            state::remove(&self.state_file);
        }
    }
}

/// Undoes what guards of killed processes left changed, from the state files in `directory`. Returns what it
/// restored; an interface or namespace that is gone needs nothing. Files of living processes are left alone.
pub fn restore_stale(directory: &Path) -> Vec<OffloadChange> {
    let mut changes = Vec::new();
    for file in state::files_in(directory) {
        match state::read(&file) {
            Ok(Some(record)) if !record.owner_lives() => {
                changes.extend(undo_stale(&record));
                state::remove(&file);
            }
            Ok(_) => {}
            Err(error) => changes.push(OffloadChange::Unreadable { message: error.to_string() }),
        }
    }
    changes
}

/// The MTU of a kernel interface of the calling thread's network namespace, in bytes.
pub(crate) fn interface_mtu(interface: &str) -> Result<u32, OffloadError> {
    Control::open(interface)?.mtu()
}

/// Receive queues of a kernel interface; `None` when its driver does not say.
pub(crate) fn interface_rx_queues(interface: &str) -> Option<u32> {
    Control::open(interface).ok()?.rx_queues()
}

/// Whether a feature changes what a packet looks like on its way to us, or what we must finish for the receiver.
fn is_offload(feature: &str) -> bool {
    let exact = ["rx-checksum", "rx-lro", "rx-udp-gro-forwarding"];
    feature.starts_with("tx-checksum-")
        || feature.ends_with("-segmentation")
        || feature.starts_with("tx-gso-")
        || feature.starts_with("rx-gro")
        || (feature.contains("-vlan-") && feature.contains("-hw-"))
        || exact.contains(&feature)
}

type Peer = Option<(Namespace, DeviceRecord)>;

/// The interface as it is, and its veth peer as it is.
fn survey(
    interface: &str,
    here: &Namespace,
    changes: &mut Vec<OffloadChange>,
) -> Result<(DeviceRecord, Peer), OffloadError> {
    let control = Control::open(interface)?;
    let own = record(&control, here, is_offload)?;
    let link = netlink::link(own.index)?;
    if link.kind.as_deref() != Some("veth") {
        return Ok((own, None));
    }
    let peer = find_peer(&link, here).and_then(|(namespace, index)| {
        let there = namespace.clone();
        let device = namespace.run(move || {
            let control = Control::open(&ethtool::name_of(index)?)?;
            // The peer's receiving side is its own business.
            record(&control, &there, |feature| feature.starts_with("tx-") && is_offload(feature))
        });
        device.ok().map(|device| (namespace, device))
    });
    if peer.is_none() {
        changes.push(OffloadChange::PeerNotFound { interface: interface.to_owned() });
    }
    Ok((own, peer))
}

fn find_peer(link: &netlink::Link, here: &Namespace) -> Option<(Namespace, u32)> {
    let index = link.peer_index?;
    match link.peer_namespace_id {
        None => Some((here.clone(), index)),
        Some(id) => {
            let found =
                namespace::all().find(|namespace| netlink::namespace_id(namespace.as_fd()).ok() == Some(id));
            found.map(|namespace| (namespace, index))
        }
    }
}

fn record(
    control: &Control,
    namespace: &Namespace,
    wanted: impl Fn(&str) -> bool,
) -> Result<DeviceRecord, OffloadError> {
    let on = |feature: &Feature| {
        feature.changeable && (feature.requested || feature.active) && wanted(&feature.name)
    };
    let index = control.index()?;
    let flags = control.flags()?;
    Ok(DeviceRecord {
        namespace_inode: namespace.inode(),
        place: namespace.label(),
        name: control.name().to_owned(),
        index,
        features_on: control.features()?.into_iter().filter(on).map(|feature| feature.name).collect(),
        was_up: flags & libc::IFF_UP != 0,
        was_promiscuous: flags & libc::IFF_PROMISC != 0,
        mtu: control.mtu()?,
        had_xdp: netlink::link(index)?.xdp_attached,
    })
}

fn undo_stale(record: &GuardRecord) -> Vec<OffloadChange> {
    let mut changes = Vec::new();
    for device in &record.devices {
        let Some(namespace) = namespace::by_inode(device.namespace_inode) else { continue };
        if restore(&namespace, device, true).is_ok_and(|there| there) {
            let (interface, place) = (device.name.clone(), device.place.clone());
            changes.push(OffloadChange::Restored { interface, place, features: device.features_on.clone() });
        }
    }
    changes
}

/// Sets a device back; false when it is there no more. After a killed process its XDP program is removed too.
fn restore(namespace: &Namespace, device: &DeviceRecord, killed: bool) -> Result<bool, OffloadError> {
    let device = device.clone();
    namespace.run(move || {
        // The number and the name together: a new interface may have taken either.
        if ethtool::name_of(device.index).ok().as_deref() != Some(&device.name) {
            return Ok(false);
        }
        let control = Control::open(&device.name)?;
        if killed && !device.had_xdp && netlink::link(device.index)?.xdp_attached {
            netlink::detach_xdp(device.index)?;
        }
        if control.mtu()? != device.mtu {
            control.set_mtu(device.mtu)?;
        }
        control.set_flag(libc::IFF_PROMISC, device.was_promiscuous)?;
        control.set_features(&device.features_on, true)?;
        control.set_flag(libc::IFF_UP, device.was_up)?;
        Ok(true)
    })
}

#[cfg(test)]
mod tests;
