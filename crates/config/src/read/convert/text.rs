//! Values that are written as text: names, paths, addresses, words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use carrack_alg::Protocol;
use carrack_base::{Prefix, Prefix4, Prefix6, Proto, Range4};
use carrack_io::DeviceSpec;
use carrack_nat::policy::{ExhaustedIcmp, Filtering, Logged, Mapping, Pooling, Unreadable};
use carrack_pipeline::snapshot::{EamHosts, IcmpErrors, Side};
use carrack_xlat::ZeroUdp;
use toml::de::DeValue;

use super::{Faults, FromToml, fault, short, wrong_type};
use crate::keys::Kind;
use crate::model::{
    EventClass, ExportProtocol, ExportTransport, HugePages, Idle, MessageCompression, SyslogFormat,
};
use crate::parse::Mode;
use crate::read::Value;
use crate::suggest;
use crate::value::{self, Endpoint, HostEndpoint, OwnAddress, PortRange};

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 32;
/// Longest path, in bytes.
const PATH_BYTES_MAX: usize = 1_024;

fn text<'v>(value: &'v Value<'_>, example: &str, faults: &mut Faults) -> Option<&'v str> {
    match value.get_ref() {
        DeValue::String(text) => Some(text),
        _ => wrong_type(faults, value, &format!("a text like {example}")),
    }
}

/// A value that has `FromStr`: its error already says what to write.
fn parsed<T: FromStr>(value: &Value<'_>, example: &str, faults: &mut Faults) -> Option<T>
where
    T::Err: std::fmt::Display,
{
    let text = text(value, example, faults)?;
    match text.parse() {
        Ok(parsed) => Some(parsed),
        Err(_) if text.len() > 200 => fault(faults, value, format!("too long; write it like {example}")),
        Err(error) => fault(faults, value, format!("{error}")),
    }
}

impl FromToml for String {
    /// A name.
    fn from_toml(value: &Value<'_>, _: &Kind, faults: &mut Faults) -> Option<Self> {
        let name = text(value, "\"inside0\"", faults)?;
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(good) {
            let shown = short(name);
            let message =
                format!("`{shown}` is no name; use 1 to {NAME_BYTES_MAX} letters, digits, `.`, `_` or `-`");
            return fault(faults, value, message);
        }
        Some(name.to_owned())
    }

    fn canonical(&self) -> String {
        self.clone()
    }
}

impl FromToml for PathBuf {
    fn from_toml(value: &Value<'_>, _: &Kind, faults: &mut Faults) -> Option<Self> {
        let path = text(value, "\"/run/carrack\"", faults)?;
        if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains('\0') {
            let message = format!("not a path; write 1 to {PATH_BYTES_MAX} characters like \"/run/carrack\"");
            return fault(faults, value, message);
        }
        Some(Self::from(path))
    }

    fn canonical(&self) -> String {
        self.display().to_string()
    }
}

impl FromToml for SocketAddr {
    fn from_toml(value: &Value<'_>, _: &Kind, faults: &mut Faults) -> Option<Self> {
        let example = "\"127.0.0.1:8443\"";
        let text = text(value, example, faults)?;
        match text.parse() {
            Ok(listen) => Some(listen),
            Err(_) => {
                let message =
                    format!("`{}` is not an IP address and port; write it like {example}", short(text));
                fault(faults, value, message)
            }
        }
    }

    fn canonical(&self) -> String {
        self.to_string()
    }
}

impl FromToml for IpAddr {
    fn from_toml(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<Self> {
        let example = "\"192.0.2.254\" or \"2001:db8::fe\"";
        let written = text(value, example, faults)?;
        if !written.contains(':') {
            return Ipv4Addr::from_toml(value, kind, faults).map(Self::V4);
        }
        match written.parse::<Ipv6Addr>() {
            Ok(address) if value::is_host_address6(address.into()) => Some(Self::V6(address)),
            Ok(address) => fault(
                faults,
                value,
                format!("{address} is no address that a host may have; give a unicast one"),
            ),
            Err(_) => {
                let message = format!("`{}` is not an IPv6 address; write it like {example}", short(written));
                fault(faults, value, message)
            }
        }
    }

    fn canonical(&self) -> String {
        self.to_string()
    }
}

impl FromToml for Ipv4Addr {
    fn from_toml(value: &Value<'_>, _: &Kind, faults: &mut Faults) -> Option<Self> {
        let example = "\"192.0.2.254\"";
        let text = text(value, example, faults)?;
        match text.parse() {
            Ok(address) if value::is_host_address(u32::from(address)) => Some(address),
            Ok(address) => fault(
                faults,
                value,
                format!("{address} is no address that a host may have; give a unicast one"),
            ),
            Err(_) => {
                let message = format!("`{}` is not an IPv4 address; write it like {example}", short(text));
                fault(faults, value, message)
            }
        }
    }

    fn canonical(&self) -> String {
        self.to_string()
    }
}

macro_rules! from_text {
    ($($type:ty, $example:literal;)*) => {$(
        impl FromToml for $type {
            fn from_toml(value: &Value<'_>, _: &Kind, faults: &mut Faults) -> Option<Self> {
                parsed(value, $example, faults)
            }

            fn canonical(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
from_text! {
    DeviceSpec, "\"af_packet:eth1\"";
    Prefix4, "\"192.0.2.0/24\"";
    Range4, "\"192.0.2.1-192.0.2.9\"";
    OwnAddress, "\"192.0.2.1/24\"";
    Prefix, "\"192.0.2.0/24\"";
    PortRange, "\"1024-65535\"";
    Endpoint, "\"192.0.2.1:80\"";
    HostEndpoint, "\"192.0.2.1:80\" or \"[2001:db8::1]:80\"";
    Prefix6, "\"2001:db8::/32\"";
}

/// Enums that are written as a word; the words are also in the table of keys, and a test compares the two.
macro_rules! from_word {
    ($($type:ty { $($word:literal => $variant:path),* $(,)? })*) => {$(
        impl FromToml for $type {
            fn from_toml(value: &Value<'_>, kind: &Kind, faults: &mut Faults) -> Option<Self> {
                let words: &[&str] = match kind {
                    Kind::Word(words) => words,
                    _ => &[$($word),*],
                };
                let written = text(value, &format!("\"{}\"", words.first().unwrap_or(&"")), faults)?;
                match written {
                    $($word if words.contains(&$word) => Some($variant),)*
                    _ => {
                        let hint = suggest::hint(written, words.iter().copied());
                        fault(faults, value, format!("`{}` is not one of its words; {hint}", short(written)))
                    }
                }
            }

            fn canonical(&self) -> String {
                match self {
                    $($variant => $word,)*
                    #[allow(unreachable_patterns, reason = "some enums have a variant that config cannot say")]
                    _ => "",
                }
                .to_owned()
            }
        }
    )*};
}
from_word! {
    Idle { "sleep" => Idle::Sleep, "poll" => Idle::Poll }
    HugePages { "auto" => HugePages::Auto, "1G" => HugePages::OneG, "2M" => HugePages::TwoM, "off" => HugePages::Off }
    IcmpErrors { "all" => IcmpErrors::All, "path-mtu" => IcmpErrors::PathMtu, "none" => IcmpErrors::None }
    Side { "plain" => Side::Plain, "inside" => Side::Inside, "outside" => Side::Outside }
    Protocol { "ftp" => Protocol::Ftp, "tftp" => Protocol::Tftp, "sip" => Protocol::Sip, "rtsp" => Protocol::Rtsp, "h323" => Protocol::H323, "pptp" => Protocol::Pptp, "ipsec" => Protocol::Ipsec }
    Unreadable { "pass" => Unreadable::Pass, "reset" => Unreadable::Reset }
    Pooling { "paired" => Pooling::Paired, "arbitrary" => Pooling::Arbitrary }
    Mapping {
        "endpoint-independent" => Mapping::EndpointIndependent,
        "address-and-port-dependent" => Mapping::AddressAndPortDependent,
    }
    Filtering {
        "endpoint-independent" => Filtering::EndpointIndependent,
        "address-dependent" => Filtering::AddressDependent,
        "address-and-port-dependent" => Filtering::AddressAndPortDependent,
    }
    ExhaustedIcmp {
        "silent" => ExhaustedIcmp::Silent,
        "host-unreachable" => ExhaustedIcmp::HostUnreachable,
        "admin-prohibited" => ExhaustedIcmp::AdminProhibited,
    }
    EamHosts { "ipv6" => EamHosts::Ipv6, "ipv4" => EamHosts::Ipv4 }
    ZeroUdp { "compute" => ZeroUdp::Compute, "drop" => ZeroUdp::Drop }
    Proto { "tcp" => Proto::Tcp, "udp" => Proto::Udp, "icmp" => Proto::Icmp }
    Logged {
        "blocks" => Logged::Blocks,
        "mappings" => Logged::Mappings,
        "sessions" => Logged::Sessions,
        "destinations" => Logged::Destinations,
    }
    ExportProtocol {
        "ipfix" => ExportProtocol::Ipfix,
        "netflow9" => ExportProtocol::NetFlow9,
        "syslog" => ExportProtocol::Syslog,
        "radius" => ExportProtocol::Radius,
        "clickhouse" => ExportProtocol::ClickHouse,
        "kafka" => ExportProtocol::Kafka,
    }
    ExportTransport {
        "udp" => ExportTransport::Udp,
        "tcp" => ExportTransport::Tcp,
        "tls" => ExportTransport::Tls,
    }
    EventClass {
        "blocks" => EventClass::Blocks,
        "bindings" => EventClass::Bindings,
        "mappings" => EventClass::Mappings,
        "sessions" => EventClass::Sessions,
        "limits" => EventClass::Limits,
        "system" => EventClass::System,
    }
    MessageCompression { "none" => MessageCompression::None, "gzip" => MessageCompression::Gzip }
    SyslogFormat { "structured" => SyslogFormat::Structured, "compact" => SyslogFormat::Compact }
    Mode {
        "blocks" => Mode::Blocks,
        "arbitrary" => Mode::Arbitrary,
        "deterministic" => Mode::Deterministic,
    }
}
