//! Packets as one line of text.
//!
//! ```text
//! udp 10.0.0.5:1000>198.51.100.9:53 ttl=64 len=20
//! tcp 10.0.0.5:1000>198.51.100.9:80 SA          flags by their first letters
//! ping 10.0.0.5:7>198.51.100.9                  an echo request with identifier 7; `pong` for its reply
//! icmp 13/0 10.0.0.5>198.51.100.9               type and code
//! error 3/4 10.0.0.1>10.0.0.5 mtu=1400 about udp 10.0.0.5:1000>198.51.100.9:53
//! ip 47 10.0.0.5>198.51.100.9                   any protocol number
//! arp 10.0.0.5>10.0.0.1                         a request
//! hex 00112233…                                 a whole frame
//! udp [2001:db8::5]:1000>[2001:db8::9]:53       IPv6 alike, addresses in brackets; `ttl` is its hop limit, `tos` its
//!                                               traffic class, types and codes are ICMPv6's
//! ```
//!
//! Words behind: `ttl=`, `tos=`, `id=`, `len=` (payload octets), `df`, `mf`, `off=` (octets; the payload is then that
//! part of the datagram), `nocsum` (UDP), `options=` (hex), `ptr=` (an error's pointer), `flow=` (label), `ext=60:0102` (an
//! extension header by number, and in hex what stands behind its length octet), `to=`/`from=` (MAC addresses), `tags=` (VLAN ids, outer
//! first), `cut=` (frame cut to so many octets), `quote=` (octets of the packet in an error), `l2[N]=`, `l3[N]=`,
//! `l4[N]=` (hex octets written over the finished frame; the IPv4 checksum is made right again for `l3`, the ICMP
//! checksum for `l4` of ICMP, unless `raw` is there too).

mod read;
mod show;

pub use read::frame;
pub use show::describe;
