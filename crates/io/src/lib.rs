//! The PacketIo trait with the in-process mem and pcap ports.
#![forbid(unsafe_code)]
