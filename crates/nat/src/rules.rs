//! The static rules of an instance, found by address: packets and reloads ask for them, and there may be tens of
//! thousands.

use carrack_base::{Proto, Range4};

use crate::flow::Inside;
use crate::policy::{Instance, StaticRule};

/// Static rules, to be asked in a time that hardly grows with their number.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Inside addresses with an outside address each; sorted, disjoint.
    one_to_one: Vec<(Range4, Range4)>,
    /// Forwarded ports by their outside endpoint; sorted, disjoint.
    outside: Vec<Forward>,
    /// Inside endpoints that are forwarded to; sorted, disjoint.
    inside: Vec<Led>,
    /// Hosts that are forwarded to, with the lowest outside address each; sorted.
    homes: Vec<(Inside, u32)>,
}

#[derive(Debug, Clone, Copy)]
struct Forward {
    proto: Proto,
    outside: u32,
    first: u16,
    last: u16,
    inside: Inside,
    inside_first: u16,
}

#[derive(Debug, Clone, Copy)]
struct Led {
    inside: Inside,
    proto: Proto,
    first: u16,
    last: u16,
}

/// The last entry of a sorted list that does not come after what is looked for.
fn last_before<T>(sorted: &[T], is_not_after: impl Fn(&T) -> bool) -> Option<&T> {
    let until = sorted.partition_point(|entry| {
        #[cfg(test)]
        tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
        is_not_after(entry)
    });
    sorted.get(until.checked_sub(1)?)
}

impl Rules {
    pub(crate) fn of(instance: &Instance) -> Self {
        let mut this = Self::default();
        for rule in &instance.statics {
            match *rule {
                StaticRule::OneToOne { inside, outside } => this.one_to_one.push((inside, outside)),
                StaticRule::Forward { proto, outside, outside_port, count, inside, inside_port } => {
                    let last = |first: u16| first.saturating_add(count.saturating_sub(1));
                    this.outside.push(Forward {
                        proto,
                        outside,
                        first: outside_port,
                        last: last(outside_port),
                        inside,
                        inside_first: inside_port,
                    });
                    this.homes.push((inside, outside));
                    this.inside.push(Led { inside, proto, first: inside_port, last: last(inside_port) });
                }
            }
        }
        this.one_to_one.sort_unstable_by_key(|(inside, _)| inside.first);
        this.outside.sort_unstable_by_key(|f| (f.outside, f.proto, f.first));
        this.inside.sort_unstable_by_key(|led| (led.inside, led.proto, led.first));
        this.homes.sort_unstable();
        this.homes.dedup_by_key(|(inside, _)| *inside);
        // Several outside endpoints may lead to the same inside one.
        this.inside.dedup_by(|next, before| {
            let joins =
                (next.inside, next.proto) == (before.inside, before.proto) && next.first <= before.last;
            before.last = if joins { before.last.max(next.last) } else { before.last };
            joins
        });
        this
    }

    /// The outside address of an inside address that has one of its own.
    #[inline]
    pub(crate) fn one_to_one(&self, ip: u32) -> Option<u32> {
        // Every new session asks, and most instances have none.
        if self.one_to_one.is_empty() { None } else { self.one_to_one_among(ip) }
    }

    #[inline(never)]
    fn one_to_one_among(&self, ip: u32) -> Option<u32> {
        let (inside, outside) = last_before(&self.one_to_one, |(inside, _)| inside.first <= ip)?;
        inside.contains(ip).then(|| outside.first + (ip - inside.first))
    }

    /// The inside endpoint that an outside port is forwarded to.
    pub(crate) fn forwarded(&self, proto: Proto, (ip, port): (u32, u16)) -> Option<(Inside, u16)> {
        let key = (ip, proto, port);
        let found = last_before(&self.outside, |f| (f.outside, f.proto, f.first) <= key)?;
        let is_it = (found.outside, found.proto) == (ip, proto) && port <= found.last;
        is_it.then(|| (found.inside, found.inside_first.wrapping_add(port - found.first)))
    }

    /// Is any port forwarded to the inside endpoint?
    pub(crate) fn leads_to(&self, proto: Proto, (inside, port): (Inside, u16)) -> bool {
        let key = (inside, proto, port);
        let found = last_before(&self.inside, |led| (led.inside, led.proto, led.first) <= key);
        found.is_some_and(|led| (led.inside, led.proto) == (inside, proto) && port <= led.last)
    }

    /// The outside address of the host's forward rules, the lowest one of several.
    pub(crate) fn home_of(&self, host: Inside) -> Option<u32> {
        let (inside, outside) = last_before(&self.homes, |(inside, _)| *inside <= host)?;
        (*inside == host).then_some(*outside)
    }

    /// Is any port of any protocol forwarded to the host?
    pub(crate) fn forwards_to(&self, host: Inside) -> bool {
        last_before(&self.inside, |led| led.inside <= host).is_some_and(|led| led.inside == host)
    }
}

#[cfg(test)]
mod tests;
