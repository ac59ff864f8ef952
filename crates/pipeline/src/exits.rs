//! Ways out that a burst has already found: route, interface and neighbour together, ready to be written before a packet.

use carrack_base::{IfIndex, VrfId};
use carrack_wire::ethernet::ethertype;

use crate::neighbours::{Address, Neighbours};
use crate::plan::{Hop, L2_BYTES_MAX, LinkHeader, Plan};

/// Ways remembered. A burst mostly has one or two.
const EXITS: usize = 8;
/// No hop has this number: hops are numbered from 0, and there is no room for so many.
const NO_HOP: u32 = u32::MAX;

/// A way out to a neighbour that is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    /// Largest IP packet.
    pub(crate) mtu: u16,
    /// Index of the port.
    pub(crate) port: u16,
    /// Both addresses, tags, type.
    pub(crate) header: LinkHeader,
}

/// 64 bytes, so that a place is found by a shift.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Known {
    /// Hop that leads to a gateway, the same for all destinations; [`NO_HOP`] for a neighbour's own hop.
    hop: u32,
    exit: Exit,
    /// Hop and destination of a neighbour's own way.
    direct: (u32, u32),
}

const _: () = assert!(size_of::<Known>() == 64);

const NOTHING: Known = Known {
    hop: NO_HOP,
    exit: Exit { mtu: 0, port: 0, header: LinkHeader { bytes: [0; L2_BYTES_MAX], len: 0 } },
    direct: (NO_HOP, 0),
};

/// A way of IPv6; its link header says so.
#[derive(Debug, Clone, Copy)]
struct Known6 {
    hop: u32,
    exit: Exit,
    /// The neighbour itself; 0 for a hop that leads to a gateway, the same for all destinations.
    destination: u128,
}

const NOTHING6: Known6 = Known6 { hop: NO_HOP, exit: NOTHING.exit, destination: 0 };

/// The addresses that surely go the way that the last one went which took a look at the routes: those that share its first
/// bits. Mostly that is a burst's every packet, and a look is a chain of loads.
#[derive(Debug, Clone, Copy)]
struct Around {
    vrf: VrfId,
    network: u128,
    mask: u128,
    exit: Exit,
}

/// No packet is short enough for this exit.
const NOWHERE: Around = Around { vrf: VrfId(0), network: 0, mask: u128::MAX, exit: NOTHING.exit };

/// The ways of one burst: neither plan nor neighbours change within it.
#[derive(Debug)]
pub(crate) struct Exits {
    known: [Known; EXITS],
    known6: [Known6; EXITS],
    around: Around,
    /// The port of all ways learned since they were forgotten: none, one, or [`MANY`].
    port: Option<u16>,
}

/// More than one port: no port has this number.
const MANY: u16 = u16::MAX;

impl Exits {
    pub(crate) fn new() -> Self {
        Self { known: [NOTHING; EXITS], known6: [NOTHING6; EXITS], around: NOWHERE, port: None }
    }

    /// Forgets all; each burst begins so.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        for known in &mut self.known {
            (known.hop, known.direct.0) = (NO_HOP, NO_HOP);
        }
        for known in &mut self.known6 {
            known.hop = NO_HOP;
        }
        self.around = NOWHERE;
        self.port = None;
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
        if known.hop != hop {
            if !known.learn(plan, neighbours, hop, destination) {
                return None;
            }
            let port = known.exit.port;
            self.port = Some(if self.port.is_none_or(|only| only == port) { port } else { MANY });
        }
        Some(&known.exit)
    }

    /// The same for IPv6. Its hops have numbers of their own, in places of their own.
    #[inline(always)]
    pub(crate) fn find6(
        &mut self,
        plan: &Plan,
        neighbours: &Neighbours,
        vrf: VrfId,
        destination: u128,
    ) -> Option<&Exit> {
        let around = &self.around;
        let is_near = around.vrf == vrf && (around.network ^ destination) & around.mask == 0;
        if !is_near {
            return self.look_around(plan, neighbours, vrf, destination);
        }
        Some(&self.around.exit)
    }

    /// The same by a look at the routes.
    #[inline(never)]
    fn look_around(
        &mut self,
        plan: &Plan,
        neighbours: &Neighbours,
        vrf: VrfId,
        destination: u128,
    ) -> Option<&Exit> {
        let (hop, bits) = plan.hop_number6_around(vrf, destination)?;
        // Invariant: the remainder is below EXITS.
        let known = &mut self.known6[hop as usize % EXITS];
        if known.hop != hop || (known.destination != 0 && known.destination != destination) {
            let (is_gateway, exit) = look_up6(plan, neighbours, hop, destination)?;
            *known = Known6 { hop, exit, destination: if is_gateway { 0 } else { destination } };
            self.port = Some(if self.port.is_none_or(|only| only == exit.port) { exit.port } else { MANY });
        }
        if known.destination == 0 {
            let mask = u128::MAX.unbounded_shl(128 - u32::from(bits));
            self.around = Around { vrf, network: destination, mask, exit: known.exit };
        }
        Some(&known.exit)
    }

    /// The port by which all packets leave that found a way; `None` when there are several.
    pub(crate) fn only_port(&self) -> Option<u16> {
        self.port.filter(|port| *port != MANY)
    }
}

impl Known {
    /// Becomes the way of this hop to this destination, if there is one and it is not.
    #[inline(never)]
    fn learn(&mut self, plan: &Plan, neighbours: &Neighbours, hop: u32, destination: u32) -> bool {
        if self.direct == (hop, destination) {
            return true;
        }
        let Some((is_gateway, exit)) = look_up(plan, neighbours, hop, destination) else { return false };
        *self = Self { exit, ..NOTHING };
        if is_gateway {
            self.hop = hop;
        } else {
            self.direct = (hop, destination);
        }
        true
    }
}

#[inline(never)]
fn look_up(plan: &Plan, neighbours: &Neighbours, hop: u32, destination: u32) -> Option<(bool, Exit)> {
    let Some(Hop::Neighbour { interface, gateway }) = plan.hop(hop) else { return None };
    let next = if gateway == 0 { destination } else { gateway };
    Some((gateway != 0, exit_to(plan, neighbours, interface, next.into())?))
}

#[inline(never)]
fn look_up6(plan: &Plan, neighbours: &Neighbours, hop: u32, destination: u128) -> Option<(bool, Exit)> {
    let Some(Hop::Neighbour { interface, gateway }) = plan.hop6(hop) else { return None };
    plan.line(interface).filter(|line| line.has_ipv6())?;
    let next = if gateway == 0 { destination } else { gateway };
    let mut exit = exit_to(plan, neighbours, interface, next.into())?;
    let kind = usize::from(exit.header.len) - 2;
    // Invariant: a link header has 14 to 22 bytes.
    exit.header.bytes[kind..kind + 2].copy_from_slice(&ethertype::IPV6.to_be_bytes());
    Some((gateway != 0, exit))
}

/// The way to a neighbour that is known, by an interface that is up.
fn exit_to(plan: &Plan, neighbours: &Neighbours, interface: IfIndex, next: Address) -> Option<Exit> {
    let line = plan.line(interface).filter(|line| line.up)?;
    let mac = neighbours.known(interface, next)?;
    let mut header = line.header;
    header.bytes[..6].copy_from_slice(&mac.0);
    Some(Exit { mtu: line.mtu, port: line.port.0, header })
}
