//! The filters that requests carry.

use core::net::{IpAddr, Ipv4Addr};

use carrack_base::{Prefix, Prefix4, Proto, Reason};
use carrack_nat::row::TcpState;

use crate::params::params;

params! {
    /// Which sessions, mappings, subscribers or pools; what is not given matches all.
    pub struct RowFilter {
        /// Name of the NAT instance.
        instance: String,
        /// Protocol: tcp, udp, icmp or other.
        protocol: Proto,
        /// Inside address or prefix.
        inside: Prefix,
        /// Inside port or ICMP identifier.
        inside_port: u16,
        /// Outside address or prefix.
        outside: Prefix4,
        /// Outside port or ICMP identifier.
        outside_port: u16,
        /// Remote address or prefix, or the IPv6 one that stands for it behind a NAT64 prefix.
        remote: Prefix,
        /// Remote port.
        remote_port: u16,
        /// TCP state: inside-init, outside-init, established, inside-fin, outside-fin, both-fin or reset.
        tcp_state: TcpState,
        /// Most rows to answer with; 0 or absent for all.
        limit: u64,
    }
}

params! {
    /// What to delete: the filters of the session list, and a switch that lets an empty filter mean everything.
    pub struct DeleteQuery {
        /// Name of the NAT instance.
        instance: String,
        /// Protocol: tcp, udp, icmp or other.
        protocol: Proto,
        /// Inside address or prefix.
        inside: Prefix,
        /// Inside port or ICMP identifier.
        inside_port: u16,
        /// Outside address or prefix.
        outside: Prefix4,
        /// Outside port or ICMP identifier.
        outside_port: u16,
        /// Remote address or prefix, or the IPv6 one that stands for it behind a NAT64 prefix.
        remote: Prefix,
        /// Remote port.
        remote_port: u16,
        /// TCP state: inside-init, outside-init, established, inside-fin, outside-fin, both-fin or reset.
        tcp_state: TcpState,
        /// Delete every session: needed when no filter is given.
        all: bool,
    }
}

params! {
    /// Which interfaces, neighbours or routes; what is not given matches all.
    pub struct NetworkQuery {
        /// Name of the interface.
        interface: String,
        /// Name of the routing instance.
        vrf: String,
        /// Address or prefix: routes that hold it or lie in it, neighbours in it, interfaces whose subnet meets it.
        address: Prefix,
        /// Most rows to answer with; 0 or absent for all.
        limit: u64,
    }
}

params! {
    /// Which packets to capture or trace; addresses and ports match either direction.
    pub struct PacketQuery {
        /// Interface the packet came in by.
        interface: String,
        /// Either address, or a prefix it is in.
        address: Prefix,
        /// Protocol: tcp, udp, icmp or other.
        protocol: Proto,
        /// Either port.
        port: u16,
        /// Only packets that are dropped.
        drops_only: bool,
        /// Only packets dropped for this reason.
        reason: Reason,
        /// Stop after so many packets, on all workers together.
        count: u64,
    }
}

params! {
    /// Which events.
    pub struct EventQuery {
        /// Only events of this kind.
        kind: String,
        /// Only events after this sequence number.
        after: u64,
        /// Most events to answer with, the newest; 0 or absent for all that are kept.
        limit: u64,
    }
}

params! {
    /// Which direction of deterministic NAT's arithmetic: give `inside`, or `outside` and `outside_port`.
    pub struct DeterministicQuery {
        /// Name of the NAT instance; absent for all deterministic ones.
        instance: String,
        /// Inside address whose outside address and ports are asked for.
        inside: IpAddr,
        /// Outside address whose subscriber is asked for.
        outside: Ipv4Addr,
        /// Outside port whose subscriber is asked for.
        outside_port: u16,
    }
}

params! {
    /// Which counters.
    pub struct CounterQuery {
        /// Leave out reasons and engine counters that are zero.
        nonzero: bool,
    }
}

params! {
    /// Which mappings that hosts asked for.
    pub struct PortMappingQuery {
        /// Inside address or prefix.
        inside: Prefix,
        /// Protocol: tcp or udp.
        protocol: Proto,
        /// Most rows to answer with; 0 or absent for all.
        limit: u64,
    }
}

params! {
    /// Whose mappings to end that hosts asked for.
    pub struct PortMappingDelete {
        /// Inside address or prefix.
        inside: Prefix,
        /// End every one: needed when no prefix is given.
        all: bool,
    }
}

params! {
    /// No parameters at all.
    pub struct NoQuery {}
}

impl DeleteQuery {
    /// The filter without the switch.
    #[must_use]
    pub fn filter(self) -> RowFilter {
        RowFilter {
            instance: self.instance,
            protocol: self.protocol,
            inside: self.inside,
            inside_port: self.inside_port,
            outside: self.outside,
            outside_port: self.outside_port,
            remote: self.remote,
            remote_port: self.remote_port,
            tcp_state: self.tcp_state,
            limit: None,
        }
    }

    /// Does any filter narrow the deletion?
    #[must_use]
    pub fn narrows(&self) -> bool {
        self.instance.is_some()
            || self.protocol.is_some()
            || self.inside.is_some()
            || self.inside_port.is_some()
            || self.outside.is_some()
            || self.outside_port.is_some()
            || self.remote.is_some()
            || self.remote_port.is_some()
            || self.tcp_state.is_some()
    }
}

impl RowFilter {
    /// As a deletion; a limit has no meaning there and is left out.
    #[must_use]
    pub fn delete(self, all: bool) -> DeleteQuery {
        DeleteQuery {
            instance: self.instance,
            protocol: self.protocol,
            inside: self.inside,
            inside_port: self.inside_port,
            outside: self.outside,
            outside_port: self.outside_port,
            remote: self.remote,
            remote_port: self.remote_port,
            tcp_state: self.tcp_state,
            all: all.then_some(true),
        }
    }

    /// The same for workers, once the instance's name has been looked up.
    #[must_use]
    pub fn compile(&self, instance: Option<carrack_base::InstanceId>) -> carrack_nat::row::Filter {
        carrack_nat::row::Filter {
            instance,
            proto: self.protocol,
            inside: self.inside,
            inside_port: self.inside_port,
            outside: self.outside,
            outside_port: self.outside_port,
            remote: self.remote,
            remote_port: self.remote_port,
            tcp: self.tcp_state,
        }
    }
}
