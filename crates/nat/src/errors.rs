//! ICMP errors through the NAT, both ways (RFC 5508 §4, RFC 5382 REQ-9, RFC 4787 REQ-12, REQ-12b). Who sent an error
//! does not matter, only what it quotes (RFC 4787 REQ-12a).

use carrack_base::{Proto, Reason, VrfId};
use carrack_wire::icmpv4::Icmpv4View;
use carrack_wire::ipv4::Ipv4View;

use crate::directory::{is_exempt, one_to_one_of};
use crate::engine::{Nat, Verdict};
use crate::flow::{Direction, Flow};
use crate::line::{HAIRPIN, Mapping, Session};
use crate::rewrite::{Embedded, deltas, translate_error};

impl Nat {
    /// Translates an ICMP error by the session of the packet it carries. It neither refreshes nor ends anything
    /// (RFC 5508 REQ-6, RFC 5382 REQ-10, RFC 7857 §7.1).
    #[cold]
    pub(crate) fn icmp_error(
        &mut self,
        flow: &Flow,
        direction: Direction,
        frame: &mut [u8],
        routed_outside: impl FnOnce(VrfId, u32) -> bool,
    ) -> Verdict {
        let ours = match direction {
            Direction::In => self.directory.outside(flow.vrf, flow.dst).is_some(),
            Direction::Out => self.directory.has_inside(flow.vrf),
        };
        if !ours {
            return Verdict::Untouched;
        }
        let (inner, embedded) = match inner_flow(flow, direction, frame) {
            Ok(found) => found,
            Err(reason) => return Verdict::Drop(reason),
        };
        let hash = self.hash(&inner, direction);
        let Some((session, line)) = self.session_of_error(hash, &inner, direction) else {
            let untranslated =
                direction == Direction::Out && self.is_untranslated(flow, &inner, routed_outside);
            return if untranslated { Verdict::Untouched } else { Verdict::Drop(Reason::NatIcmpNoSession) };
        };
        let sender = match direction {
            Direction::Out => self.address_of_sender(&session, flow.src),
            Direction::In => session.inside_ip,
        };
        translate_error(&session, sender, flow, direction, embedded, frame);
        let vrf = match direction {
            Direction::Out => VrfId(session.outside_vrf),
            Direction::In => VrfId(session.inside_vrf),
        };
        // RFC 5508 REQ-7, REQ-7a and RFC 7857 §12: errors about hairpinned packets come in again.
        let hairpin = direction == Direction::Out
            && (session.flags & HAIRPIN != 0 || self.directory.outside(vrf, flow.dst).is_some());
        Verdict::Translated { line, created: false, vrf, hairpin }
    }

    /// May an error from inside about a packet of no session travel as it is (RFC 6888 REQ-6)? Only where any packet
    /// may that is not translated: to an exempt destination, or where nothing outside is. What the error says it is
    /// about proves nothing, so its own destination decides.
    fn is_untranslated(
        &self,
        flow: &Flow,
        inner: &Flow,
        routed_outside: impl FnOnce(VrfId, u32) -> bool,
    ) -> bool {
        let of = |address| self.directory.instance_of_inside(flow.vrf, address);
        let instance = of(inner.src).or_else(|| of(flow.src)).and_then(|id| self.instance(id));
        let Some(instance) = instance else { return !routed_outside(flow.vrf, flow.dst) };
        let vrf = instance.outside_vrf;
        is_exempt(instance, flow.dst)
            || (self.directory.outside(vrf, flow.dst).is_none() && !routed_outside(vrf, flow.dst))
    }

    /// RFC 5508 REQ-5c: the outer source of an error from inside is the sender's own one-to-one address when it has
    /// one, else the outside address of the session.
    fn address_of_sender(&self, session: &Session, sender: u32) -> u32 {
        let instance = self.directory.instance_of_inside(VrfId(session.inside_vrf), sender);
        let own = instance.and_then(|id| self.instance(id)).and_then(|i| one_to_one_of(i, sender));
        own.unwrap_or(session.outside_ip)
    }

    /// The session of the embedded packet; where only its mapping is left, a stand-in with the mapping's rewrite
    /// (RFC 5508 REQ-4 asks for an active mapping, not for a session).
    fn session_of_error(&self, hash: u64, inner: &Flow, direction: Direction) -> Option<(Session, u32)> {
        if let Some(id) = self.tables.find_session(hash, inner, direction) {
            return self.tables.sessions.get(id).map(|session| (*session, id));
        }
        let id = self.tables.find_mapping(inner.local(direction), inner.vrf, inner.proto, direction)?;
        let mapping = self.tables.mappings.get(id)?;
        Some((stand_in(mapping, inner), crate::line::NONE))
    }
}

fn stand_in(mapping: &Mapping, inner: &Flow) -> Session {
    let mut session = Session {
        inside_ip: mapping.inside_ip,
        outside_ip: mapping.outside_ip,
        inside_port: mapping.inside_port,
        outside_port: mapping.outside_port,
        inside_vrf: mapping.inside_vrf,
        outside_vrf: mapping.outside_vrf,
        proto: mapping.proto,
        ip_proto: inner.ip_proto,
        ..Session::default()
    };
    (session.l3_delta, session.l4_delta) = deltas(&session);
    session
}

/// The embedded packet as the flow whose session is looked for, in the error's own direction: an error coming in
/// carries what went out, so its source is the outside endpoint, which the lookup takes as destination.
fn inner_flow(flow: &Flow, direction: Direction, frame: &[u8]) -> Result<(Flow, Embedded), Reason> {
    let outer = frame
        .get(usize::from(flow.l3)..)
        .and_then(|bytes| Ipv4View::parse(bytes).ok())
        .ok_or(Reason::Ipv4Truncated)?;
    let icmp = Icmpv4View::parse(outer.payload()).map_err(|_| Reason::IcmpMalformed)?;
    // RFC 5508 REQ-3: the checksum of the message must hold. RFC 5508 REQ-3a: so must the embedded IP header's.
    // RFC 5508 REQ-3c: the embedded transport checksum is nobody's business.
    if !icmp.checksum_ok() {
        return Err(Reason::IcmpBadChecksum);
    }
    let embedded = icmp.embedded().map_err(|_| Reason::IcmpEmbeddedInvalid)?;
    if !embedded.checksum_ok() || embedded.is_later_fragment() {
        return Err(Reason::IcmpEmbeddedInvalid);
    }
    let quoted_len = icmp.original_len().map_err(|_| Reason::IcmpEmbeddedInvalid)?;
    let l4 = embedded.payload();
    let word = |at: usize| l4.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    let proto = Proto::from_ip(embedded.protocol());
    let (sport, dport) = match proto {
        Proto::Tcp | Proto::Udp => (word(0), word(2)),
        Proto::Icmp => match direction {
            Direction::In => (word(4), Some(0)),
            Direction::Out => (Some(0), word(4)),
        },
        Proto::Other => match direction {
            Direction::In => (Some(0), Some(u16::from(embedded.protocol()))),
            Direction::Out => (Some(u16::from(embedded.protocol())), Some(0)),
        },
    };
    let (Some(sport), Some(dport)) = (sport, dport) else { return Err(Reason::IcmpEmbeddedInvalid) };
    // Seen from the error's direction the embedded packet runs backwards.
    let inner = Flow {
        src: embedded.dst(),
        dst: embedded.src(),
        sport: dport,
        dport: sport,
        proto,
        ip_proto: embedded.protocol(),
        vrf: flow.vrf,
        ..Flow::default()
    };
    Ok((inner, Embedded { quoted_len }))
}
