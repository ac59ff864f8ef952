//! ICMP errors through the NAT, both ways (RFC 5508 §4, RFC 5382 REQ-9, RFC 4787 REQ-12, REQ-12b). Who sent an error
//! does not matter, only what it quotes (RFC 4787 REQ-12a).

use carrack_base::{Proto, Reason, VrfId};
use carrack_wire::gre;
use carrack_wire::icmpv4::Icmpv4View;
use carrack_wire::icmpv6::Icmpv6View;
use carrack_wire::ipv4::Ipv4View;
use carrack_wire::ipv4::protocol::ESP;
use carrack_wire::ipv6::Ipv6View;

use crate::directory::is_exempt;
use crate::engine::{Nat, Verdict};
use crate::flow::{Direction, Flow, Kind};
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
            Direction::Out => flow.is_six() || self.directory.has_inside(flow.vrf),
        };
        if !ours {
            return Verdict::Untouched;
        }
        let inner = if flow.is_six() {
            self.inner_flow_six(flow, frame).map(|inner| (inner, Embedded { quoted_len: 0 }))
        } else {
            inner_flow(flow, direction, frame, self.policy.learns_esp())
        };
        let (inner, embedded) = match inner {
            Ok(found) => found,
            Err(reason) => return Verdict::Drop(reason),
        };
        let hash = self.hash(&inner, direction);
        let Some((session, line)) = self.session_of_error(hash, &inner, direction) else {
            let untranslated = direction == Direction::Out
                && !flow.is_six()
                && self.is_untranslated(flow, &inner, routed_outside);
            return if untranslated { Verdict::Untouched } else { Verdict::Drop(Reason::NatIcmpNoSession) };
        };
        if session.is_six() {
            return self.error_crosses(&session, line, flow, direction);
        }
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

    /// An error of a session between IPv6 and IPv4: the translator of headers does the rest, by the way kept here, for
    /// the session may be gone.
    fn error_crosses(&mut self, session: &Session, line: u32, flow: &Flow, direction: Direction) -> Verdict {
        self.error_way = self.way_of(session);
        let vrf = VrfId(match direction {
            Direction::Out => session.outside_vrf,
            Direction::In => session.inside_vrf,
        });
        let hairpin = direction == Direction::Out
            && (session.flags & HAIRPIN != 0 || self.directory.outside(vrf, flow.dst).is_some());
        Verdict::Crosses { line, created: false, vrf, hairpin }
    }

    /// The packet in an ICMPv6 error from inside as the flow whose session is looked for.
    fn inner_flow_six(&self, flow: &Flow, frame: &[u8]) -> Result<Flow, Reason> {
        let outer = frame
            .get(usize::from(flow.l3)..usize::from(flow.l4))
            .and_then(|_| frame.get(usize::from(flow.l3)..))
            .and_then(|bytes| Ipv6View::parse(bytes).ok())
            .ok_or(Reason::IcmpMalformed)?;
        let at = usize::from(flow.l4 - flow.l3);
        let message = outer.packet().get(at..).ok_or(Reason::IcmpMalformed)?;
        let icmp = Icmpv6View::parse(message).map_err(|_| Reason::IcmpMalformed)?;
        // RFC 6146 §3.5: the checksum of the message must hold.
        if !icmp.checksum_ok(flow.src6, flow.dst6) {
            return Err(Reason::IcmpBadChecksum);
        }
        let embedded = icmp.embedded().map_err(|_| Reason::IcmpEmbeddedInvalid)?;
        let chain = embedded.extensions().map_err(|_| Reason::IcmpEmbeddedInvalid)?;
        let l4 = embedded.packet().get(usize::from(chain.offset)..).unwrap_or(&[]);
        let word = |at: usize| l4.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
        let (proto, sport, dport) = match chain.protocol {
            6 => (Proto::Tcp, word(0), word(2)),
            17 => (Proto::Udp, word(0), word(2)),
            58 => (Proto::Icmp, Some(0), word(4)),
            _ => return Err(Reason::IcmpEmbeddedInvalid),
        };
        let (Some(sport), Some(dport)) = (sport, dport) else { return Err(Reason::IcmpEmbeddedInvalid) };
        if chain.is_later_fragment() {
            return Err(Reason::IcmpEmbeddedInvalid);
        }
        let (host, remote) = (embedded.dst(), embedded.src());
        let found = self.directory.embedded(flow.vrf, host, remote).ok_or(Reason::NatIcmpNoSession)?;
        Ok(Flow {
            src6: host,
            dst6: remote,
            dst: found.address,
            via: found.via,
            sport: dport,
            dport: sport,
            proto,
            ip_proto: if proto == Proto::Icmp { 1 } else { chain.protocol },
            vrf: flow.vrf,
            family: flow.family,
            ..Flow::default()
        })
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
        let own = instance.and_then(|id| self.directory.one_to_one(id, sender));
        own.unwrap_or(session.outside_ip)
    }

    /// May a packet from outside lead to an IPv6 host, as far as its address tells?
    #[must_use]
    pub fn may_lead_to_six(&self, flow: &Flow) -> bool {
        let instance = self.directory.outside(flow.vrf, flow.dst).map(|what| what.instance());
        instance.and_then(|id| self.instance(id)).is_some_and(|instance| instance.nat64.is_some())
    }

    /// Does a packet from outside, or one that an error quotes, lead to an IPv6 host, as far as mappings
    /// tell? Whether it is admitted is another question.
    #[cold]
    pub fn leads_to_six(&mut self, flow: &Flow, frame: &[u8]) -> bool {
        self.tables.settle();
        let direction = Direction::In;
        let inner = match flow.kind {
            Kind::IcmpError => inner_flow(flow, direction, frame, false).map(|(inner, _)| inner).ok(),
            Kind::Whole | Kind::LaterFragment => Some(*flow),
        };
        let find = |f: Flow| self.tables.find_mapping(f.local(direction), f.vrf, f.proto, direction);
        let mapping = inner.and_then(find).and_then(|id| self.tables.mappings.get(id));
        mapping.is_some_and(Mapping::is_six)
    }

    /// The session of the embedded packet; where only its mapping is left, a stand-in with the mapping's rewrite
    /// (RFC 5508 REQ-4 asks for an active mapping, not for a session).
    fn session_of_error(&self, hash: u64, inner: &Flow, direction: Direction) -> Option<(Session, u32)> {
        if let Some(id) = self.tables.find_session(hash, inner, direction) {
            return self.tables.sessions.get(id).map(|session| (*session, id));
        }
        let mut local = inner.local(direction);
        if inner.is_six() {
            local.ip = self.tables.find_host(inner.src6, self.slot_of_prefix(inner.via), inner.vrf)?;
        }
        let six = inner.is_six();
        let id = self.tables.find_mapping_of(local, inner.vrf, inner.proto, direction, six)?;
        let mapping = self.tables.mappings.get(id)?;
        let remote = inner.remote(direction);
        let mut session = Session {
            remote_ip: remote.ip,
            remote_port: remote.port,
            ip_proto: inner.ip_proto,
            ..Session::on(mapping)
        };
        if mapping.is_six() {
            let via = if inner.is_six() { inner.via } else { self.prefix_back(mapping, Some(remote.ip)) };
            self.set_six(&mut session, mapping, via).ok()?;
            self.check_remote(&session).ok()?;
        } else {
            (session.l3_delta, session.l4_delta) = deltas(&session);
        }
        Some((session, crate::line::NONE))
    }
}

/// The embedded packet as the flow whose session is looked for, in the error's own direction: an error coming in
/// carries what went out, so its source is the outside endpoint, which the lookup takes as destination.
fn inner_flow(
    flow: &Flow,
    direction: Direction,
    frame: &[u8],
    learns: bool,
) -> Result<(Flow, Embedded), Reason> {
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
        Proto::Other if learns && embedded.protocol() == ESP => (word(0), word(2)),
        Proto::Other => match (gre::call_of(embedded.protocol(), l4), direction) {
            (Some(call), _) => (Some(gre::CALL_PORT), Some(call)),
            (None, Direction::In) => (Some(0), Some(u16::from(embedded.protocol()))),
            (None, Direction::Out) => (Some(u16::from(embedded.protocol())), Some(0)),
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
