//! Telling the log of single mappings and sessions, for instances that ask for it. A line says itself whether its beginning
//! was told, so that its end is, whatever the policy asks for by then.

use carrack_base::{InstanceId, Proto};
use carrack_wire::ipv4::protocol;

use crate::engine::Nat;
use crate::line::{Mapping, Session, TOLD, TOLD_REMOTE};
use crate::policy::{Instance, Logged};
use crate::row::{Change, HostEndpoint, Mark, NatEvent};

/// Flags of a dynamic mapping that begins.
pub(crate) fn mapping_flags(instance: &Instance) -> u8 {
    if instance.logged == Logged::Mappings { TOLD } else { 0 }
}

/// Flags of a session that begins.
pub(crate) fn session_flags(instance: &Instance) -> u8 {
    match instance.logged {
        Logged::Blocks | Logged::Mappings => 0,
        Logged::Sessions => TOLD,
        Logged::Destinations => TOLD | TOLD_REMOTE,
    }
}

impl Nat {
    /// RFC 8158 §4.6.3, RFC 8158 §4.6.4. Of a mapping that is in its table.
    #[inline(never)]
    pub(crate) fn tell_mapping(&mut self, change: Change, id: u32) {
        let Self { tables, slots, events, .. } = self;
        let Some(mapping) = tables.mappings.get(id) else { return };
        let Some(place) = events.room() else { return };
        *place = NatEvent::Translation {
            change,
            instance: slots.id(mapping.slot),
            protocol: protocol_of(mapping),
            inside: mapping.inside().into(),
            outside: mapping.outside(),
            remote: None,
            remote6: None,
        };
        if mapping.is_six()
            && let NatEvent::Translation { inside, .. } = place
        {
            *inside = HostEndpoint { ip: tables.inside_of(mapping).into(), port: mapping.inside_port };
        }
    }

    /// What a new dynamic mapping is to the log.
    #[inline(always)]
    pub(crate) fn note_mapped(
        &mut self,
        instance: InstanceId,
        (logged, marks): (Logged, [u32; 2]),
        subscriber: u32,
        id: u32,
    ) {
        if logged == Logged::Mappings {
            self.tell_mapping(Change::MappingCreated, id);
        }
        if marks != [0; 2] {
            self.watch_mappings(instance, marks, subscriber);
        }
    }

    /// RFC 8158 §4.6.8.3, RFC 8158 §4.6.8.4: a mapping of the subscriber's has begun; are they as many as a threshold now?
    /// Who hovers there is told once. That it had fewer is seen when the next begins: without one it cannot have as many
    /// again.
    #[cold]
    fn watch_mappings(&mut self, instance: InstanceId, marks: [u32; 2], subscriber: u32) {
        let Some(line) = self.tables.subscribers.get_mut(subscriber) else { return };
        let mappings: u32 = line.mappings.iter().sum();
        let inside = line.who().into();
        for ((mark, threshold), is_above) in Mark::ALL.into_iter().zip(marks).zip(&mut line.is_above) {
            if crosses(mappings, threshold, is_above) {
                self.events.push(NatEvent::SubscriberThreshold { mark, instance, inside, mappings });
            }
        }
    }

    /// The session in that line has begun.
    #[inline(never)]
    pub(crate) fn tell_begin(&mut self, id: u32) {
        let Self { tables, slots, events, .. } = self;
        let Some(session) = tables.sessions.get(id) else { return };
        if session.is_six() {
            let session = *session;
            return self.tell_six(Change::SessionCreated, &session);
        }
        if let Some(place) = events.room() {
            *place = event_of(Change::SessionCreated, slots.id(session.slot), session);
        }
    }

    /// A session that was in a line has ended.
    #[inline(never)]
    pub(crate) fn tell_end(&mut self, session: &Session) {
        if session.is_six() {
            return self.tell_six(Change::SessionDeleted, session);
        }
        if let Some(place) = self.events.room() {
            *place = event_of(Change::SessionDeleted, self.slots.id(session.slot), session);
        }
    }

    /// Of an IPv6 host's: apart, so that the others need not carry its longer address about.
    #[cold]
    #[inline(never)]
    fn tell_six(&mut self, change: Change, session: &Session) {
        let mut event = event_of(change, self.slots.id(session.slot), session);
        if let NatEvent::Translation { inside, remote, remote6, .. } = &mut event {
            inside.ip = session.inside().into();
            *remote6 = remote.map(|_| self.way_of(session).remote6().into());
        }
        self.events.push(event);
    }
}

/// Has a number come up to its threshold? `is_above` remembers that it has, until it was an eighth less.
pub(crate) fn crosses(number: u32, threshold: u32, is_above: &mut bool) -> bool {
    if threshold == 0 || number <= threshold - (threshold / 8).max(1).min(threshold) {
        *is_above = false;
        return false;
    }
    number >= threshold && !std::mem::replace(is_above, true)
}

/// RFC 8158 §4.6.1, RFC 8158 §4.6.2. Of an IPv4 host's session.
#[inline(always)]
fn event_of(change: Change, instance: InstanceId, session: &Session) -> NatEvent {
    NatEvent::Translation {
        change,
        instance,
        protocol: if session.proto() == Proto::Other { session.ip_proto } else { ip_number(session.proto()) },
        inside: session.inside4().into(),
        outside: session.outside(),
        remote: (session.flags & TOLD_REMOTE != 0).then(|| session.remote()),
        remote6: None,
    }
}

/// The number of a mapping's protocol in an IPv4 header. All that one of a shared address can be for, beside protocols with
/// ports, is calls, and tunnels, which have no number of their own.
#[inline(always)]
fn protocol_of(mapping: &Mapping) -> u8 {
    match mapping.proto() {
        Proto::Other if !mapping.is_static() && mapping.inside_port == 0 => protocol::ESP,
        Proto::Other if !mapping.is_static() => protocol::GRE,
        proto => ip_number(proto),
    }
}

/// The protocol's number in an IPv4 header.
#[inline(always)]
const fn ip_number(proto: Proto) -> u8 {
    match proto {
        Proto::Tcp => protocol::TCP,
        Proto::Udp => protocol::UDP,
        Proto::Icmp => protocol::ICMP,
        Proto::Other => 0,
    }
}
