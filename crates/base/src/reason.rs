//! THE table of reasons: why a packet was dropped. The enum, CLI text, metric name, ICMP policy and
//! `docs/counters.md` all come from it.

/// How much a drop should worry an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Expected on a healthy network.
    Info,
    /// Somebody's traffic is hurt or somebody misbehaves; worth a graph.
    Warning,
    /// A resource of the router ran out or a fault: worth a call at night.
    Error,
}

impl Severity {
    /// The word for CLI and API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Which ICMP error the sender gets, always subject to the policy of RFC 1812 §4.3.2 or RFC 4443 §2.4 and to rate limits.
/// Types and codes are those of IPv4 and, behind the bar, of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpReply {
    /// None.
    Silent,
    /// Time Exceeded in transit (11/0 | 3/0).
    TimeExceeded,
    /// Destination Unreachable, network (3/0 | 1/0).
    NetUnreachable,
    /// Destination Unreachable, host (3/1 | 1/3).
    HostUnreachable,
    /// Destination Unreachable, port (3/3 | 1/4).
    PortUnreachable,
    /// Destination Unreachable, protocol; IPv6 calls it port (3/2 | 1/4).
    ProtocolUnreachable,
    /// Destination Unreachable, fragmentation needed (3/4), or Packet Too Big (2/0), with the next hop's MTU.
    FragmentationNeeded,
    /// Source Route Failed (3/5; nothing in IPv6).
    SourceRouteFailed,
    /// Destination Unreachable, beyond the scope of the source address (IPv6 alone: 1/2).
    BeyondScope,
    /// Parameter problem at the routing header's count of segments (IPv6 alone: 4/0).
    ParameterProblem,
    /// Communication administratively prohibited (3/13 | 1/1).
    AdminProhibited,
    /// The NAT instance's configured code for lack of resources (3/1, 3/13 or none; RFC 6888 REQ-11, RFC 5508 REQ-8).
    NatExhausted,
}

impl IcmpReply {
    /// The text for documentation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "none",
            Self::TimeExceeded => "11/0 | 3/0 time exceeded",
            Self::NetUnreachable => "3/0 | 1/0 network unreachable",
            Self::HostUnreachable => "3/1 | 1/3 host unreachable",
            Self::PortUnreachable => "3/3 | 1/4 port unreachable",
            Self::ProtocolUnreachable => "3/2 protocol unreachable | 1/4 port unreachable",
            Self::FragmentationNeeded => "3/4 fragmentation needed | 2/0 packet too big",
            Self::SourceRouteFailed => "3/5 source route failed",
            Self::BeyondScope => "1/2 beyond scope of source address",
            Self::ParameterProblem => "- | 4/0 parameter problem, of options 4/2",
            Self::AdminProhibited => "3/13 | 1/1 administratively prohibited",
            Self::NatExhausted => "as `exhausted_icmp` of the NAT instance says",
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub struct ReasonInfo {
    /// The reason.
    pub reason: Reason,
    /// Its name in CLI, API, metrics and captures.
    pub name: &'static str,
    /// How much it should worry.
    pub severity: Severity,
    /// What one count is.
    pub unit: &'static str,
    /// Which ICMP error answers it.
    pub icmp: IcmpReply,
    /// One sentence for people.
    pub description: &'static str,
}

macro_rules! reasons {
    ($($variant:ident, $name:literal, $severity:ident, $icmp:ident, $text:literal;)*) => {
        /// Why a packet was dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Reason {
            $(#[doc = $text] $variant,)*
        }

        /// The table, in the order of the enum.
        pub const REASONS: &[ReasonInfo] = &[
            $(ReasonInfo {
                reason: Reason::$variant,
                name: $name,
                severity: Severity::$severity,
                unit: "packets",
                icmp: IcmpReply::$icmp,
                description: $text,
            },)*
        ];

        /// Number of reasons.
        pub const REASON_COUNT: usize = [$($name,)*].len();
    };
}

reasons! {
    // Layer 2
    L2Truncated, "l2-truncated", Warning, Silent, "The frame ends inside its Ethernet or VLAN header.";
    L2UnknownVlan, "l2-unknown-vlan", Info, Silent, "No sub-interface has the frame's VLAN tags.";
    L2NotForUs, "l2-not-for-us", Info, Silent, "The destination MAC address is another station's.";
    L2UnknownEthertype, "l2-unknown-ethertype", Info, Silent, "The frame carries neither IPv4, IPv6 nor ARP.";
    L2SourceInvalid, "l2-source-invalid", Warning, Silent, "The source MAC address is a group address or our own.";
    InterfaceDown, "interface-down", Info, Silent, "The interface is administratively down.";
    FrameOversized, "frame-oversized", Warning, Silent, "The frame came in several segments that do not fit one buffer; switch off LRO/GRO on the sender.";
    // ARP
    ArpMalformed, "arp-malformed", Warning, Silent, "The ARP packet is truncated or not for Ethernet and IPv4.";
    // IPv4
    Ipv4Truncated, "ipv4-truncated", Warning, Silent, "The frame ends inside its IPv4 header.";
    Ipv4BadVersion, "ipv4-bad-version", Warning, Silent, "The EtherType says IPv4 but the version field does not.";
    Ipv4BadHeaderLength, "ipv4-bad-header-length", Warning, Silent, "The IPv4 header length is below 20 bytes or beyond the packet.";
    Ipv4BadTotalLength, "ipv4-bad-total-length", Warning, Silent, "The IPv4 total length is below the header or beyond the frame.";
    Ipv4BadChecksum, "ipv4-bad-checksum", Warning, Silent, "The IPv4 header checksum is wrong.";
    Ipv4SourceInvalid, "ipv4-source-invalid", Warning, Silent, "The source address is multicast, broadcast, loopback or unspecified; or, of a packet to the router, its own (in transit that is for `urpf`).";
    Ipv4DestinationInvalid, "ipv4-destination-invalid", Info, Silent, "The destination address is unspecified, loopback, reserved, or a broadcast that is not forwarded.";
    Ipv4Multicast, "ipv4-multicast", Info, Silent, "Multicast is not forwarded by this router.";
    Ipv4SourceRoute, "ipv4-source-route", Warning, SourceRouteFailed, "The packet asks for a source route, which is not honoured (RFC 7126 §4.3).";
    Ipv4TtlExpired, "ipv4-ttl-expired", Info, TimeExceeded, "The time to live ran out here.";
    Ipv4FragmentInvalid, "ipv4-fragment-invalid", Warning, Silent, "The fragment is impossible: not a multiple of 8, beyond 65,535 bytes, or too short to hold its ports (RFC 1858).";
    // IPv6
    Ipv6Disabled, "ipv6-disabled", Info, Silent, "The interface has no IPv6 address, so it takes no IPv6.";
    Ipv6Truncated, "ipv6-truncated", Warning, Silent, "The frame ends inside its IPv6 header.";
    Ipv6BadVersion, "ipv6-bad-version", Warning, Silent, "The EtherType says IPv6 but the version field does not.";
    Ipv6BadLength, "ipv6-bad-length", Warning, Silent, "The IPv6 payload length goes beyond the frame.";
    Ipv6Jumbogram, "ipv6-jumbogram", Warning, Silent, "A jumbogram (RFC 2675), which no link here carries.";
    Ipv6ExtensionInvalid, "ipv6-extension-invalid", Warning, Silent, "An extension header is truncated, misplaced or doubled (RFC 8200 §4.1).";
    Ipv6ExtensionLimit, "ipv6-extension-limit", Warning, Silent, "More extension headers than are walked: at most 8 of at most 512 bytes.";
    Ipv6RoutingHeader, "ipv6-routing-header", Warning, ParameterProblem, "A routing header that is not at its end: of type 0 (RFC 5095 §3), or of any type in a packet to the router itself (RFC 8200 §4.4).";
    Ipv6OptionRefused, "ipv6-option-refused", Info, ParameterProblem, "An option that the router does not know, in a packet to the router itself, wants its sender told (RFC 8200 §4.2).";
    Ipv6OptionDiscard, "ipv6-option-discard", Info, Silent, "An option that the router does not know, in a packet to the router itself, wants the packet discarded silently (RFC 8200 §4.2).";
    Ipv6SourceInvalid, "ipv6-source-invalid", Warning, Silent, "The source address is multicast, loopback, unspecified or IPv4-mapped; or, of a packet to the router, its own (in transit that is for `urpf`).";
    Ipv6DestinationInvalid, "ipv6-destination-invalid", Info, Silent, "The destination address is unspecified, loopback or IPv4-mapped.";
    Ipv6Scope, "ipv6-scope", Info, BeyondScope, "The source or destination is link-local, so the packet may not leave its link (RFC 4291 §2.5.6).";
    Ipv6Multicast, "ipv6-multicast", Info, Silent, "Multicast is not forwarded by this router, and it is in no such group.";
    Ipv6HopLimitExpired, "ipv6-hop-limit-expired", Info, TimeExceeded, "The hop limit ran out here.";
    Ipv6FragmentInvalid, "ipv6-fragment-invalid", Warning, Silent, "The fragment is impossible: not a multiple of 8, beyond 65,535 bytes, or too short to hold its headers (RFC 7112 §5).";
    NdMalformed, "nd-malformed", Warning, Silent, "A neighbour discovery message that RFC 4861 §6.1 or §7.1 wants ignored: hop limit, checksum, length, options.";
    // Transport
    TcpMalformed, "tcp-malformed", Warning, Silent, "The TCP header is truncated or its length field is impossible.";
    TcpFlagsInvalid, "tcp-flags-invalid", Warning, Silent, "The TCP flags make no sense together (none at all, SYN with FIN, SYN with RST).";
    UdpMalformed, "udp-malformed", Warning, Silent, "The UDP header is truncated or its length is impossible.";
    IcmpMalformed, "icmp-malformed", Warning, Silent, "The ICMP message is truncated.";
    IcmpBadChecksum, "icmp-bad-checksum", Warning, Silent, "The ICMP checksum is wrong (RFC 5508 REQ-3).";
    IcmpEmbeddedInvalid, "icmp-embedded-invalid", Warning, Silent, "The packet inside the ICMP error is truncated or its IP checksum is wrong (RFC 5508 REQ-3a).";
    IcmpTypeUnsupported, "icmp-type-unsupported", Info, Silent, "ICMP of this type does not pass a NAT (RFC 5508 REQ-11).";
    // Routing
    NoRoute, "no-route", Info, NetUnreachable, "No route to the destination.";
    RouteBlackhole, "route-blackhole", Info, Silent, "The route says to discard.";
    RouteProhibit, "route-prohibit", Info, AdminProhibited, "The route says that this destination is prohibited.";
    NeighbourUnresolved, "neighbour-unresolved", Info, HostUnreachable, "The next hop did not answer ARP or neighbour discovery in time.";
    NeighbourQueueFull, "neighbour-queue-full", Warning, Silent, "Too many packets wait for a neighbour to answer ARP or neighbour discovery.";
    FragmentationNeeded, "fragmentation-needed", Info, FragmentationNeeded, "The packet is larger than the next hop's MTU and must not be fragmented.";
    UrpfFailed, "urpf-failed", Warning, Silent, "The source address does not belong to the interface it came from.";
    NotForwarding, "not-forwarding", Info, AdminProhibited, "Neither NAT nor routing policy lets this interface pair forward.";
    // NAT: no state, or state says no
    NatNoMapping, "nat-no-mapping", Info, Silent, "Nothing inside is mapped to that outside address and port.";
    NatFiltered, "nat-filtered", Info, Silent, "A mapping exists but its filter does not admit this sender (RFC 4787 REQ-8).";
    NatTcpUnsolicitedSyn, "nat-tcp-unsolicited-syn", Info, PortUnreachable, "A TCP SYN from outside matched nothing for 6 s (RFC 5382 REQ-4).";
    NatTcpSynSuperseded, "nat-tcp-syn-superseded", Info, Silent, "A held TCP SYN from outside met a matching SYN from inside and was absorbed (RFC 5382 REQ-4).";
    NatTcpNoSession, "nat-tcp-no-session", Info, Silent, "A TCP segment without SYN belongs to no session and may not open one.";
    NatIcmpNoSession, "nat-icmp-no-session", Info, Silent, "The packet inside an ICMP error belongs to no session (RFC 5508 REQ-4).";
    NatNoInstance, "nat-no-instance", Info, Silent, "The packet is for a pool address but no NAT instance of this routing instance serves it.";
    NatSubscriberDenied, "nat-subscriber-denied", Info, AdminProhibited, "The inside address is in no range that the NAT instance serves.";
    NatHairpinDenied, "nat-hairpin-denied", Info, AdminProhibited, "Hairpinning is switched off in the NAT instance.";
    NatProtocolUnsupported, "nat-protocol-unsupported", Info, Silent, "A protocol without ports needs a one-to-one mapping, and this subscriber has none.";
    Nat64ProtocolUnsupported, "nat64-protocol-unsupported", Info, ProtocolUnreachable, "Another protocol than TCP, UDP and ICMP between IPv6 and IPv4 (RFC 6146 §3.4).";
    Nat64SourceInvalid, "nat64-source-invalid", Warning, Silent, "The IPv6 source is within a NAT64 prefix itself: it would go round for ever (RFC 6146 §3.5).";
    Nat64DestinationInvalid, "nat64-destination-invalid", Info, NetUnreachable, "The IPv4 address in the destination is none of a host, or not global behind the well-known prefix (RFC 6052 §3.1).";
    Nat64OtherPrefix, "nat64-other-prefix", Info, Silent, "From an IPv6 host that talks to the same remote endpoint from the same port by another NAT64 prefix already: answers say nothing of prefixes (RFC 6146 §3.1).";
    Nat64NonGlobal, "nat64-non-global", Info, Silent, "From an IPv4 address that is not global to an IPv6 host behind the well-known prefix, which may not stand for it (RFC 6052 §3.1).";
    Nat64UdpZeroChecksum, "nat64-udp-zero-checksum", Info, Silent, "UDP without checksum to an IPv6 host, for which IPv6 needs one, where `zero_checksum_udp = \"drop\"` says that none is made.";
    // IPv6 to IPv4 and back
    XlatSegmentsLeft, "xlat-segments-left", Info, ParameterProblem, "A routing header has nodes left to visit, which IPv4 cannot say (RFC 7915 §5.1).";
    XlatExtensionBehindFragment, "xlat-extension-behind-fragment", Info, AdminProhibited, "An extension header follows the fragment header (RFC 7915 §5.1.1).";
    XlatOptionsInvalid, "xlat-options-invalid", Warning, Silent, "IPv4 options that cannot be read, so whether they hold a source route is unknown.";
    XlatIcmpFragment, "xlat-icmp-fragment", Info, AdminProhibited, "A piece of an ICMP message, whose checksum cannot be brought to the other version (RFC 7915 §1.2).";
    XlatIcmpUntranslatable, "xlat-icmp-untranslatable", Info, Silent, "An ICMP message, or IGMP, without counterpart in the other version (RFC 7915 §4.2, §5.2).";
    XlatUdpZeroChecksum, "xlat-udp-zero-checksum", Info, AdminProhibited, "UDP without checksum, for which IPv6 needs one (RFC 7915 §4.5): a fragment of it, or any where `zero_checksum_udp = \"drop\"` says so.";
    XlatForeignProtocol, "xlat-foreign-protocol", Warning, AdminProhibited, "A protocol number that means ICMP, or an extension header, in the other version only: copied, it would let the sender forge those.";
    SiitSourceInvalid, "siit-source-invalid", Warning, Silent, "No host sends from this source address: loopback, multicast, unspecified, reserved (RFC 7915 §4.1, §5.1); or it embeds the address of an IPv4 host, and neither end is served by this translator (RFC 6052 §5.1).";
    SiitSourceUnmapped, "siit-source-unmapped", Info, AdminProhibited, "The source stands for no address of the other IP version, and there is no pool of ICMP sources to speak for it (RFC 7915 §6, RFC 6791 §3.2).";
    SiitDestinationUnmapped, "siit-destination-unmapped", Info, AdminProhibited, "The destination stands for no address of the other IP version (RFC 7915 §6).";
    SiitNonGlobal, "siit-non-global", Info, Silent, "The well-known prefix with a non-global IPv4 address (RFC 6052 §3.1).";
    SiitLoop, "siit-loop", Warning, Silent, "The packet was translated there and back already and would go round: a route to the IPv6 hosts is missing.";
    // NAT: resources
    NatPoolExhausted, "nat-pool-exhausted", Error, NatExhausted, "No address of the pool has a port (or block) left.";
    NatPoolChanging, "nat-pool-changing", Warning, Silent, "A reload is under way that would end this session at once, or changes how the pool's ports are shared out and has not reached all workers yet.";
    NatPortsExhausted, "nat-ports-exhausted", Error, NatExhausted, "The subscriber's paired address has no port of that kind left.";
    NatBlockLimit, "nat-block-limit", Warning, NatExhausted, "The subscriber holds as many port blocks as it may and all are full.";
    NatPortLimit, "nat-port-limit", Warning, NatExhausted, "The subscriber uses as many ports as it may (RFC 6888 REQ-4).";
    NatSessionLimit, "nat-session-limit", Warning, NatExhausted, "The subscriber has as many sessions as it may (RFC 6888 REQ-5).";
    NatMappingSessionLimit, "nat-mapping-session-limit", Warning, NatExhausted, "The mapping has as many sessions as it may (RFC 6888 REQ-5).";
    NatRateLimit, "nat-rate-limit", Warning, NatExhausted, "The subscriber makes mappings faster than it may (RFC 6888 REQ-4c).";
    NatSessionTableFull, "nat-session-table-full", Error, NatExhausted, "The session table is full.";
    NatMappingTableFull, "nat-mapping-table-full", Error, NatExhausted, "The mapping table is full.";
    NatSubscriberTableFull, "nat-subscriber-table-full", Error, NatExhausted, "The subscriber table is full.";
    NatHostTableFull, "nat-host-table-full", Error, NatExhausted, "The table of IPv6 hosts is full.";
    NatIndexFull, "nat-index-full", Error, NatExhausted, "The lookup index found no slot within its bounded search.";
    GatewayOutOfOrder, "gateway-out-of-order", Info, Silent, "A segment of a control connection came before one that is missing: a gateway reads in order, and its sender sends it again.";
    GatewayBusy, "gateway-busy", Warning, Silent, "Gateways hold as much of control connections as they may; the segment is sent again.";
    GatewayBadChecksum, "gateway-bad-checksum", Warning, Silent, "A packet of a control connection that a gateway would have read has a wrong transport checksum.";
    NatEspWaiting, "nat-esp-waiting", Info, Silent, "A new ESP tunnel while another subscriber's to the same far end is not answered yet, or too many are not.";
    GatewayFragment, "gateway-fragment", Info, Silent, "A fragment of a TCP segment of a control connection: a gateway reads whole segments.";
    NatSynTableFull, "nat-syn-table-full", Warning, Silent, "Too many unsolicited TCP SYNs from outside are held at once.";
    // Fragments
    FragmentTableFull, "fragment-table-full", Warning, Silent, "Too many fragmented packets are in flight.";
    FragmentQueueFull, "fragment-queue-full", Warning, Silent, "Too many fragments wait for their first fragment, or, of UDP without checksum to an IPv6 host, for all the others (RFC 6146 §3.4); the rest of such a datagram.";
    FragmentTimeout, "fragment-timeout", Info, Silent, "The first fragment did not arrive in time, or another one where all are waited for: UDP without checksum to an IPv6 host (RFC 6146 §3.4), control connections of gateways.";
    FragmentOverlap, "fragment-overlap", Warning, Silent, "A second first-fragment with other ports overlaps one already seen (RFC 1858). Of UDP without checksum to an IPv6 host, which has to be whole to get one: a fragment that came twice, and all of a datagram whose fragments overlap (RFC 5722).";
    // Control plane
    PuntPolicedArp, "punt-policed-arp", Warning, Silent, "ARP came faster than its policer lets it up.";
    PuntPolicedNd, "punt-policed-nd", Warning, Silent, "Neighbour discovery came faster than its policer lets it up.";
    PuntPolicedIcmp, "punt-policed-icmp", Warning, Silent, "ICMP to the router came faster than its policer lets it up.";
    PuntPolicedPortControl, "punt-policed-port-control", Warning, Silent, "Requests of port control came faster than the policer of their host, or of all hosts, lets them up.";
    PuntPolicedOther, "punt-policed-other", Warning, Silent, "Other traffic to the router came faster than its policer lets it up.";
    PuntQueueFull, "punt-queue-full", Error, Silent, "The control plane is behind: its ring is full.";
    LocalNoService, "local-no-service", Info, PortUnreachable, "The router itself has no service at that address, protocol and port.";
    // Plumbing
    HandoverQueueFull, "handover-queue-full", Error, Silent, "The owning worker's ring is full.";
    TxQueueFull, "tx-queue-full", Error, Silent, "The port did not take the packet: its transmit ring is full.";
    TxPortMissing, "tx-port-missing", Error, Silent, "The outgoing port is gone since the packet was routed.";
    FrameHeadroom, "frame-headroom", Error, Silent, "No headroom left to put the outgoing header.";
    FramePoolEmpty, "frame-pool-empty", Error, Silent, "No packet buffer was free.";
    SnapshotStale, "snapshot-stale", Info, Silent, "A held packet's interface or instance went away in a reload.";
}

impl Reason {
    /// The row of the table.
    #[inline]
    #[must_use]
    pub const fn info(self) -> &'static ReasonInfo {
        &REASONS[self as usize]
    }

    /// The name in CLI, API, metrics and captures.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.info().name
    }

    /// The reason of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        REASONS.iter().find(|row| row.name == name).map(|row| row.reason)
    }

    /// The reason at that index of the table.
    #[must_use]
    pub fn from_index(index: usize) -> Option<Self> {
        REASONS.get(index).map(|row| row.reason)
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_unique_kebab_name_and_a_sentence() {
        let mut names = std::collections::BTreeSet::new();
        for (i, row) in REASONS.iter().enumerate() {
            assert_eq!(row.reason as usize, i);
            assert!(names.insert(row.name), "{} twice", row.name);
            assert!(row.name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
            assert!(row.description.ends_with('.'), "{}", row.name);
            assert_eq!(Reason::from_name(row.name), Some(row.reason));
        }
        assert_eq!(REASONS.len(), REASON_COUNT);
    }
}
