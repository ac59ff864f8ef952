//! Subscribers' sessions over a day: pages that open many at once, more in the evening than at night.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carrack_base::{Family, Proto, VrfId};
use carrack_nat::policy::Instance;
use carrack_nat::{Flow, Rng};
use carrack_wire::tcp::flag;

/// Share of each hour in a day's sessions.
const HOURS: [u32; 24] = [4, 2, 1, 1, 1, 1, 2, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 7, 8, 9, 9, 8, 7, 6];
/// Sessions of a page, and of a hundred of them those of names and of TCP; the rest is QUIC.
const PAGE: u32 = 30;
const NAMES: usize = 40;
const TCP: usize = 45;
/// Servers that there are, and resolvers.
const SERVERS: usize = 50_000;
const RESOLVERS: usize = 2;
const FIRST_SERVER: u32 = 0x0808_0000;
/// Ports that hosts choose from (RFC 6056 §2.1).
const PORTS: (u16, usize) = (49_152, 16_384);

pub(super) struct Traffic {
    vrf: VrfId,
    /// The first subscriber.
    first: IpAddr,
    /// Number of the NAT64 prefix that IPv6 subscribers use.
    via: u16,
    subscribers: u32,
    pages_per_day: f64,
    rng: Rng,
}

impl Traffic {
    /// Subscribers of the instance; IPv6 ones when it has no others.
    pub(super) fn new(instance: &Instance, subscribers: u32, sessions_per_day: u32) -> Self {
        let six = instance.nat64.as_ref().filter(|_| instance.subscribers.is_empty());
        let first = match (six.and_then(|six| six.subscribers.first()), instance.subscribers.first()) {
            (Some(prefix), _) => Ipv6Addr::from(prefix.address() + 1).into(),
            (None, Some(prefix)) if prefix.len() > 0 => Ipv4Addr::from(prefix.address() + 1).into(),
            // Everybody: as good as anybody.
            _ => Ipv4Addr::new(100, 64, 0, 1).into(),
        };
        Self {
            vrf: instance.inside_vrf,
            first,
            via: six.and_then(|six| six.prefixes.first()).map_or(0, |prefix| prefix.via),
            subscribers,
            pages_per_day: f64::from(sessions_per_day) / f64::from(PAGE),
            rng: Rng::new(42),
        }
    }

    /// Sessions that begin in that second of the day.
    pub(super) fn second(&mut self, second: u64, flows: &mut Vec<Flow>) {
        let hour = HOURS.get(second as usize / 3_600 % HOURS.len()).copied().unwrap_or(0);
        let chance = self.pages_per_day * f64::from(hour) / f64::from(HOURS.iter().sum::<u32>()) / 3_600.0;
        for subscriber in 0..self.subscribers {
            // More than one a second at most now and then: the rest of the chance.
            let pages = chance as usize + usize::from(self.unit() < chance.fract());
            for _ in 0..pages {
                (0..PAGE).for_each(|_| flows.push(self.session(subscriber)));
            }
        }
    }

    fn unit(&mut self) -> f64 {
        self.rng.below(1 << 30) as f64 / f64::from(1u32 << 30)
    }

    fn session(&mut self, subscriber: u32) -> Flow {
        let (proto, dport, servers, bits) = match self.rng.below(100) {
            n if n < NAMES => (Proto::Udp, 53, RESOLVERS, 0),
            n if n < NAMES + TCP => (Proto::Tcp, 443, SERVERS, flag::SYN),
            _ => (Proto::Udp, 443, SERVERS, 0),
        };
        let flow = Flow {
            dst: FIRST_SERVER + self.rng.below(servers) as u32,
            sport: PORTS.0 + self.rng.below(PORTS.1) as u16,
            dport,
            vrf: self.vrf,
            proto,
            ip_proto: if proto == Proto::Tcp { 6 } else { 17 },
            bits,
            ..Flow::default()
        };
        match moved(self.first, subscriber) {
            IpAddr::V4(ip) => Flow { src: ip.into(), ..flow },
            IpAddr::V6(ip) => Flow { family: Family::V6, src6: ip.into(), via: self.via, ..flow },
        }
    }
}

/// The address so many further on; an IPv6 one in another /64.
fn moved(ip: IpAddr, by: u32) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from(u32::from(ip).wrapping_add(by)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from(u128::from(ip).wrapping_add(u128::from(by) << 64)).into(),
    }
}
