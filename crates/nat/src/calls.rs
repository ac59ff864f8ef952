//! Calls of PPTP (RFC 2637): packets of enhanced GRE that bear the number of the end they go to, and no other.
//!
//! So a call is two sessions on one mapping, one a direction. What comes in is by the number that the mapping has outside, as by a
//! port; what goes out is by the far end's number, and the place of the near port is taken by a constant.

use carrack_alg::Want;
use carrack_base::{Now, Proto, Reason};
use carrack_wire::gre;
use carrack_wire::ipv4::protocol;

use crate::engine::Nat;
use crate::flow::{Direction, Flow};
use crate::line::{Mapping, Session};

impl Nat {
    /// Keeps both ways of a call open: of a host whose control connection this is, to a number of its far end.
    pub(crate) fn keep_call(
        &mut self,
        control: &Session,
        want: &Want,
        remote: u16,
        now: Now,
    ) -> Result<(), Reason> {
        let outside = self.expect(control, want, now)?;
        let policy = self.policy.clone();
        let instance = policy.instances.get(self.slots.at(control.slot)).ok_or(Reason::NatNoInstance)?;
        let flow = Flow {
            src: control.inside_ip,
            sport: gre::CALL_PORT,
            dst: control.remote_ip,
            dport: remote,
            vrf: instance.inside_vrf,
            proto: Proto::Other,
            ip_proto: protocol::GRE,
            ..Flow::default()
        };
        self.tables.settle();
        let hash = self.tables.session_hash(&flow, Direction::Out);
        if let Some(id) = self.tables.find_session(hash, &flow, Direction::Out) {
            if let Some(session) = self.tables.sessions.get_mut(id) {
                session.seen_s = now.s();
            }
            return Ok(());
        }
        let vrf = instance.outside_vrf;
        let mapping = self.tables.find_mapping(outside, vrf, Proto::Other, Direction::In);
        let id = mapping.ok_or(Reason::NatNoMapping)?;
        // A one-to-one mapping needs no help.
        let Some(line) = self.tables.mappings.get(id).filter(|line| !line.is_static()) else { return Ok(()) };
        self.tables.has_room(false)?;
        let (subscriber, hairpin) = (line.subscriber, self.directory.outside(vrf, flow.dst).is_some());
        self.open(instance, subscriber, id, &flow, Direction::Out, hairpin, now).map(|_| ())
    }

    /// The session as a reload judges it: a call's way out by the number of its mapping, which is what takes the place of a
    /// port.
    pub(crate) fn judged(&self, session: &Session) -> Session {
        if session.proto() != Proto::Other {
            return *session;
        }
        let mapping = self.tables.mappings.get(session.mapping).filter(|mapping| !mapping.is_static());
        mapping.map_or(*session, |mapping| Session { outside_port: mapping.outside_port, ..*session })
    }

    /// Is the mapping of config's making?
    #[cold]
    pub(crate) fn has_static(&self, mapping: u32) -> bool {
        self.tables.mappings.get(mapping).is_some_and(Mapping::is_static)
    }
}
