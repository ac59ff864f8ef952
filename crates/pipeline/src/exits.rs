//! Ways out that a burst has already found: route, interface and neighbour together, ready to be written before a packet.

use carrack_base::VrfId;

use crate::neighbours::Neighbours;
use crate::plan::{Hop, Plan};

/// Untagged Ethernet.
pub(crate) const HEADER_BYTES: usize = 14;
/// Ways remembered. A burst mostly has one or two.
const EXITS: usize = 8;
/// No hop has this number: hops are numbered from 0, and there is no room for so many.
const NO_HOP: u32 = u32::MAX;

/// A way out by an untagged interface to a neighbour that is known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Exit {
    /// Largest IPv4 packet.
    pub(crate) mtu: u16,
    /// Index of the port.
    pub(crate) port: u16,
    /// Both addresses and the type.
    pub(crate) header: [u8; HEADER_BYTES],
}

#[derive(Debug, Clone, Copy, Default)]
struct Known {
    hop: u32,
    /// The hop is a gateway, the same for all destinations; otherwise it is good for `destination`.
    gateway: bool,
    destination: u32,
    exit: Exit,
}

/// The ways of one burst: neither plan nor neighbours change within it.
#[derive(Debug)]
pub(crate) struct Exits {
    known: [Known; EXITS],
}

impl Exits {
    pub(crate) fn new() -> Self {
        Self { known: [Known { hop: NO_HOP, ..Known::default() }; EXITS] }
    }

    /// Forgets all; each burst begins so.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        for known in &mut self.known {
            known.hop = NO_HOP;
        }
    }

    /// The way to `destination`; `None` when the general stages have more to say of it.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        plan: &Plan,
        neighbours: &Neighbours,
        vrf: VrfId,
        destination: u32,
    ) -> Option<&Exit> {
        let hop = plan.hop_number(vrf, destination)?;
        // Invariant: the remainder is below EXITS.
        let known = &mut self.known[hop as usize % EXITS];
        if (known.hop != hop) | (!known.gateway & (known.destination != destination)) {
            *known = look_up(plan, neighbours, hop, destination)?;
        }
        Some(&known.exit)
    }
}

#[inline(never)]
fn look_up(plan: &Plan, neighbours: &Neighbours, hop: u32, destination: u32) -> Option<Known> {
    let Some(Hop::Neighbour { interface, gateway }) = plan.hop(hop) else { return None };
    let line = plan.line(interface)?;
    if !line.up || usize::from(line.header.len) != HEADER_BYTES {
        return None;
    }
    let next = if gateway == 0 { destination } else { gateway };
    let mac = neighbours.known(interface, next)?;
    let mut header = *line.header.bytes.first_chunk::<HEADER_BYTES>()?;
    header[..6].copy_from_slice(&mac.0);
    let exit = Exit { mtu: line.mtu, port: line.port.0, header };
    Some(Known { hop, gateway: gateway != 0, destination, exit })
}
