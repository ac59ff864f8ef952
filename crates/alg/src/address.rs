//! Addresses in lines of text, in both IP versions (RFC 3261 §25.1), and what they are on the other side.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::ops::Range;

use crate::text::{Text, ascii};
use crate::{Ends, Ground, Side};

/// An address in a line.
pub(crate) struct Found {
    /// Where it is, with its brackets.
    pub(crate) place: Range<usize>,
    /// Which it is.
    pub(crate) ip: IpAddr,
    /// A parameter's value: behind an equals sign.
    pub(crate) is_value: bool,
    /// The value of `received`, which has no brackets.
    pub(crate) is_received: bool,
}

/// The first address in a part of `text`.
pub(crate) fn next(text: &[u8], part: Range<usize>) -> Option<Found> {
    let mut at = part.start;
    while at < part.end {
        let rest = text.get(at..part.end)?;
        let before = text.get(part.start..at).unwrap_or(&[]);
        let is_part = before.last().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
        let (len, ip) = if is_part { (0, None) } else { starts_with(rest, before.ends_with(b"=")) };
        if let Some(ip) = ip {
            return Some(Found {
                place: at..at + len,
                ip,
                is_value: before.ends_with(b"="),
                is_received: before.ends_with(b"received="),
            });
        }
        at += len.max(1);
    }
    None
}

/// The address at the start of `text` and its length, or how much there is no address in. Without brackets IPv6 is no
/// more than a value.
fn starts_with(text: &[u8], is_value: bool) -> (usize, Option<IpAddr>) {
    let run = |is: fn(&u8) -> bool, text: &[u8]| text.iter().take_while(|byte| is(byte)).count();
    let is_six = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    if let Some(inner) = text.strip_prefix(b"[") {
        let len = run(is_six, inner);
        let ip = parsed(inner, len).filter(|ip| ip.is_ipv6() && inner.get(len) == Some(&b']'));
        return (len + 1 + usize::from(ip.is_some()), ip);
    }
    let len = run(|byte| byte.is_ascii_digit() || *byte == b'.', text);
    let four = parsed(text, len).filter(|_| !text.get(len).is_some_and(u8::is_ascii_alphanumeric));
    if four.is_some() || !is_value {
        return (len, four);
    }
    let len = run(is_six, text);
    (len, parsed(text, len).filter(|_| !text.get(len).is_some_and(u8::is_ascii_alphanumeric)))
}

fn parsed(text: &[u8], len: usize) -> Option<IpAddr> {
    // Longer than any address is none.
    text.get(..len).filter(|text| (2..=45).contains(&text.len())).and_then(address)
}

/// An address alone.
pub(crate) fn address(text: &[u8]) -> Option<IpAddr> {
    ascii(text)?.parse().ok()
}

/// What an address is on the other side: the host's own, and others' when the other side has another IP version.
pub(crate) fn counterpart(side: Side, ends: &Ends, ground: &dyn Ground, ip: IpAddr) -> Option<IpAddr> {
    let outside = IpAddr::V4(*ends.outside.ip());
    let (own, other) = if side == Side::Inside { (ends.inside, outside) } else { (outside, ends.inside) };
    if ip == own { Some(other) } else { across(side, ends, ground, ip) }
}

/// What an address that is not the host's own is on the other side, when that is of the other IP version.
pub(crate) fn across(side: Side, ends: &Ends, ground: &dyn Ground, ip: IpAddr) -> Option<IpAddr> {
    if !ends.crosses() {
        return None;
    }
    match (side, ip) {
        // No address at all is none in either version (RFC 2326 §C.1.7, RFC 3264 §8.4).
        (Side::Inside, IpAddr::V6(Ipv6Addr::UNSPECIFIED)) => Some(Ipv4Addr::UNSPECIFIED.into()),
        (Side::Outside, IpAddr::V4(Ipv4Addr::UNSPECIFIED)) => Some(Ipv6Addr::UNSPECIFIED.into()),
        (Side::Inside, IpAddr::V6(ip)) => ground.four(ip).map(IpAddr::V4),
        (Side::Outside, IpAddr::V4(ip)) => ground.six(ip).map(IpAddr::V6),
        _ => None,
    }
}

/// An address as SIP writes it.
pub(crate) fn written(ip: IpAddr, port: Option<u16>, is_received: bool) -> Option<Text<56>> {
    match (ip, port) {
        (IpAddr::V6(ip), Some(port)) => Text::of(format_args!("[{ip}]:{port}")),
        (IpAddr::V6(ip), None) if !is_received => Text::of(format_args!("[{ip}]")),
        (ip, Some(port)) => Text::of(format_args!("{ip}:{port}")),
        (ip, None) => Text::of(format_args!("{ip}")),
    }
}
