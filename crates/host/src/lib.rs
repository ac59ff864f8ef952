//! The router's own functions: ARP, ICMP echo, neighbour ageing. Sans-I/O.
#![forbid(unsafe_code)]
