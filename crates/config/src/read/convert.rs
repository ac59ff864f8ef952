//! From TOML values to ours: numbers, lists, and values by protocol. Texts and words are in [`text`].

mod text;

use std::fmt::Write as _;

use carrack_alg::Protocol;
use carrack_base::{Prefix4, Prefix6, Proto};
use carrack_pipeline::snapshot::Policer;
use carrack_xlat::eam::Entry;
use toml::de::{DeInteger, DeValue};

use super::Value;
use crate::keys::Kind;
use crate::source::{At, Span};
use crate::suggest;
use crate::value;

/// What went wrong, and where.
pub(crate) type Faults = Vec<(Span, String)>;

/// A type that a key may have.
pub(crate) trait FromToml: Sized {
    /// Reads the value; `None` after at least one fault.
    fn from_toml(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<Self>;

    /// The one way to write the value, by which two configs are compared.
    fn canonical(&self) -> String;
}

/// A value for each of TCP, UDP, ICMP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PerProto<T>(pub(crate) [T; 3]);

/// A value for each gateway.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PerGateway<T>(pub(crate) [T; Protocol::ALL.len()]);

/// What a TOML value is, with its article.
pub(crate) fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Notes a fault and gives up on the value.
fn fault<T>(faults: &mut Faults, value: &Value<'_>, message: impl Into<String>) -> Option<T> {
    faults.push((value.span().into(), message.into()));
    None
}

fn wrong_type<T>(faults: &mut Faults, value: &Value<'_>, wanted: &str) -> Option<T> {
    let message = format!("{} where {wanted} is wanted", describe(value.get_ref()));
    fault(faults, value, message)
}

/// Text, shortened for messages.
fn short(text: &str) -> String {
    let mut short: String = text.chars().take(60).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn integer(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}

fn number(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<u64> {
    let (low, high, unit) = match *kind {
        Kind::Int(low, high, unit) | Kind::Count(low, high, unit) => (low, high, unit),
        Kind::Seconds(low, high) | Kind::SecondsByPort(low, high) => (low, high, "seconds"),
        _ => return fault(faults, value, "internal: not a number's kind"),
    };
    let how = match kind {
        Kind::Count(..) => "a number like 65_536 or \"64k\"",
        Kind::Seconds(..) | Kind::SecondsByPort(..) => {
            "a number of seconds, or a text like \"5m\" or \"2h4m\""
        }
        _ => "a whole number without quotes",
    };
    let read = match (value.get_ref(), kind) {
        (DeValue::Integer(number), _) => integer(number),
        (DeValue::String(text), Kind::Count(..)) => value::count(text).map(i128::from),
        (DeValue::String(text), Kind::Seconds(..) | Kind::SecondsByPort(..)) => {
            value::seconds(text).map(i128::from)
        }
        _ => return wrong_type(faults, value, how),
    };
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let Some(read) = read else {
        return fault(faults, value, format!("not understood; write {how}, from {low} to {high}{unit}"));
    };
    match u64::try_from(read).ok().filter(|read| (low..=high).contains(read)) {
        Some(read) => Some(read),
        None => fault(faults, value, format!("{read} is out of range; choose from {low} to {high}{unit}")),
    }
}

macro_rules! from_number {
    ($($type:ty),*) => {$(
        impl FromToml for $type {
            fn from_toml(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<Self> {
                let read = number(value, kind, faults)?;
                match Self::try_from(read) {
                    Ok(read) => Some(read),
                    Err(_) => fault(faults, value, "internal: the key's range is wider than its type"),
                }
            }

            fn canonical(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
from_number!(u8, u16, u32);

impl FromToml for bool {
    fn from_toml(value: &Value<'_>, _: &Kind, faults: &mut Faults) -> Option<Self> {
        match value.get_ref() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => wrong_type(faults, value, "true or false (without quotes)"),
        }
    }

    fn canonical(&self) -> String {
        self.to_string()
    }
}

impl FromToml for Policer {
    fn from_toml(value: &Value<'_>, _: &Kind, faults: &mut Faults) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            return wrong_type(faults, value, "a table like { rate_pps = 1000, burst = 200 }");
        };
        let before = faults.len();
        let (mut rate_pps, mut burst) = (None, None);
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            match name {
                "rate_pps" => {
                    rate_pps = u32::from_toml(value, &Kind::Int(0, 100_000_000, "packets a second"), faults)
                }
                "burst" => burst = u32::from_toml(value, &Kind::Int(1, 100_000_000, "packets"), faults),
                _ => {
                    let hint = suggest::hint(name, ["rate_pps", "burst"]);
                    faults.push((key.span().into(), format!("unknown key `{}`; {hint}", short(name))));
                }
            }
        }
        match (rate_pps, burst) {
            (Some(rate_pps), Some(burst)) if faults.len() == before => Some(Self { rate_pps, burst }),
            _ if faults.len() > before => None,
            _ => fault(faults, value, "needs both keys, like { rate_pps = 1000, burst = 200 }"),
        }
    }

    fn canonical(&self) -> String {
        format!("{{ rate_pps = {}, burst = {} }}", self.rate_pps, self.burst)
    }
}

impl FromToml for Entry {
    fn from_toml(value: &Value<'_>, _: &Kind, faults: &mut Faults) -> Option<Self> {
        let example = "{ v4 = \"192.0.2.0/28\", v6 = \"2001:db8:46::/124\" }";
        let DeValue::Table(table) = value.get_ref() else {
            return wrong_type(faults, value, &format!("a table like {example}"));
        };
        let before = faults.len();
        let (mut v4, mut v6) = (None, None);
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            match name {
                "v4" => v4 = Prefix4::from_toml(value, &Kind::Prefix, faults),
                "v6" => v6 = Prefix6::from_toml(value, &Kind::Prefix6, faults),
                _ => {
                    let hint = suggest::hint(name, ["v4", "v6"]);
                    faults.push((key.span().into(), format!("unknown key `{}`; {hint}", short(name))));
                }
            }
        }
        match (v4, v6) {
            (Some(v4), Some(v6)) if faults.len() == before => Some(Self { v4, v6 }),
            _ if faults.len() > before => None,
            _ => fault(faults, value, format!("needs both keys, like {example}")),
        }
    }

    fn canonical(&self) -> String {
        format!("{{ v4 = {}, v6 = {} }}", self.v4, self.v6)
    }
}

impl<T: FromToml> FromToml for Vec<At<T>> {
    fn from_toml(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<Self> {
        let Kind::List(inner, most) = kind else {
            return fault(faults, value, "internal: not a list's kind");
        };
        let DeValue::Array(elements) = value.get_ref() else {
            return wrong_type(faults, value, "a list in square brackets");
        };
        if elements.len() > *most {
            return fault(
                faults,
                value,
                format!("a list of {}; at most {most} are possible", elements.len()),
            );
        }
        let read: Vec<Option<At<T>>> = elements
            .iter()
            .map(|element| Some(At::new(T::from_toml(element, inner, faults)?, element.span())))
            .collect();
        read.into_iter().collect()
    }

    fn canonical(&self) -> String {
        let elements: Vec<String> = self.iter().map(|element| element.value.canonical()).collect();
        format!("[{}]", elements.join(", "))
    }
}

impl<T: FromToml + Copy + PartialEq> FromToml for PerProto<T> {
    fn from_toml(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<Self> {
        let Kind::PerProto(inner) = kind else { return fault(faults, value, "internal: not by protocol") };
        let DeValue::Table(table) = value.get_ref() else {
            return T::from_toml(value, inner, faults).map(|all| Self([all; 3]));
        };
        let before = faults.len();
        let mut read = [None; 3];
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            let slot = Proto::from_name(name).and_then(|proto| read.get_mut(proto.index()));
            match slot {
                Some(slot) => *slot = T::from_toml(value, inner, faults),
                None => {
                    let hint = suggest::hint(name, Proto::WITH_PORTS.map(Proto::name));
                    faults.push((key.span().into(), format!("unknown protocol `{}`; {hint}", short(name))));
                }
            }
        }
        match read {
            [Some(tcp), Some(udp), Some(icmp)] if faults.len() == before => Some(Self([tcp, udp, icmp])),
            _ if faults.len() > before => None,
            _ => {
                let missing: Vec<&str> = Proto::WITH_PORTS
                    .into_iter()
                    .zip(read)
                    .filter_map(|(proto, read)| read.is_none().then_some(proto.name()))
                    .collect();
                fault(
                    faults,
                    value,
                    format!("no value for {}; give one for each protocol", missing.join(" and ")),
                )
            }
        }
    }

    fn canonical(&self) -> String {
        let [tcp, udp, icmp] = self.0;
        if tcp == udp && udp == icmp {
            return tcp.canonical();
        }
        format!("{{ tcp = {}, udp = {}, icmp = {} }}", tcp.canonical(), udp.canonical(), icmp.canonical())
    }
}

impl<T: FromToml + Copy + Default + PartialEq> FromToml for PerGateway<T> {
    fn from_toml(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<Self> {
        let Kind::PerGateway(inner) = kind else { return fault(faults, value, "internal: not by gateway") };
        let DeValue::Table(table) = value.get_ref() else {
            return T::from_toml(value, inner, faults).map(|all| Self([all; Protocol::ALL.len()]));
        };
        let before = faults.len();
        let mut read = Self::default();
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            let slot = Protocol::from_name(name).and_then(|protocol| read.0.get_mut(protocol as usize));
            if let Some(slot) = slot {
                *slot = T::from_toml(value, inner, faults).unwrap_or_default();
            } else {
                let hint = suggest::hint(name, Protocol::ALL.map(Protocol::name));
                faults.push((key.span().into(), format!("unknown gateway `{}`; {hint}", short(name))));
            }
        }
        (faults.len() == before).then_some(read)
    }

    fn canonical(&self) -> String {
        let [first, rest @ ..] = &self.0;
        if rest.iter().all(|other| other == first) {
            return first.canonical();
        }
        let named = Protocol::ALL.iter().zip(self.0).filter(|(_, value)| *value != T::default());
        let named: Vec<String> =
            named.map(|(protocol, value)| format!("{} = {}", protocol.name(), value.canonical())).collect();
        format!("{{ {} }}", named.join(", "))
    }
}

/// `(port, seconds)`, sorted by port.
impl FromToml for Vec<(u16, u32)> {
    fn from_toml(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            return wrong_type(faults, value, "a table like { 53 = \"10s\" }");
        };
        let before = faults.len();
        let mut read = Self::new();
        for (key, value) in table.iter() {
            let name: &str = key.get_ref();
            let port = name.parse::<u16>().ok().filter(|port| (1..1_024).contains(port));
            let seconds = u32::from_toml(value, kind, faults);
            match (port, seconds) {
                (Some(port), Some(seconds)) => read.push((port, seconds)),
                (None, _) => {
                    let message = format!(
                        "`{}` is no remote port from 1 to 1023; only those may have times of their own (RFC 4787 REQ-5)",
                        short(name)
                    );
                    faults.push((key.span().into(), message));
                }
                _ => {}
            }
        }
        read.sort_unstable();
        if let Some([(port, _), _]) = read.array_windows::<2>().find(|[a, b]| a.0 == b.0) {
            return fault(faults, value, format!("port {port} is there twice; remove one"));
        }
        (faults.len() == before).then_some(read)
    }

    fn canonical(&self) -> String {
        let mut out = String::from("{");
        for (i, (port, seconds)) in self.iter().enumerate() {
            let comma = if i == 0 { " " } else { ", " };
            // Writing to a String cannot fail.
            let _ = write!(out, "{comma}{port} = {seconds}");
        }
        out.push_str(if self.is_empty() { "}" } else { " }" });
        out
    }
}
