//! Options: type, length in units of eight octets, value (RFC 4861 §4.6).

use super::NdpError;
use crate::ethernet::MacAddr;

pub(super) const SOURCE_MAC: u8 = 1;
pub(super) const TARGET_MAC: u8 = 2;
const PREFIX: u8 = 3;
const MTU: u8 = 5;
const NAME_SERVERS: u8 = 25;
/// Octets that an option's length counts.
const UNIT: usize = 8;
/// Most prefixes and name servers kept of one advertisement.
const LIST_MAX: usize = 64;

/// A prefix of the link (RFC 4861 §4.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixInformation {
    /// First address, host byte order.
    pub address: u128,
    /// Prefix length, bits.
    pub len: u8,
    /// Its addresses are neighbours.
    pub on_link: bool,
    /// Hosts may make themselves addresses of it (RFC 4862).
    pub autonomous: bool,
    /// Seconds for which it is on the link; all ones for ever.
    pub valid_s: u32,
    /// Seconds for which addresses of it are preferred.
    pub preferred_s: u32,
}

/// Recursive name servers (RFC 8106 §5.1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameServers {
    /// Seconds for which they may be used.
    pub lifetime_s: u32,
    /// Their addresses, host byte order; one at least.
    pub addresses: Vec<u128>,
}

/// The options that are read; unknown ones are skipped (RFC 4861 §4.6).
#[derive(Default)]
pub(super) struct Options {
    pub(super) source: Option<MacAddr>,
    pub(super) target: Option<MacAddr>,
    pub(super) mtu: Option<u32>,
    pub(super) prefixes: Vec<PrefixInformation>,
    pub(super) name_servers: Option<NameServers>,
}

impl Options {
    /// All options have a length above zero and end with the message, or none counts.
    pub(super) fn read(mut bytes: &[u8]) -> Result<Options, NdpError> {
        let mut options = Options::default();
        while !bytes.is_empty() {
            let [kind, units, ..] = *bytes else { return Err(NdpError::Option) };
            let len = usize::from(units) * UNIT;
            let (option, rest) = bytes.split_at_checked(len).filter(|_| len > 0).ok_or(NdpError::Option)?;
            options.take(kind, option);
            bytes = rest;
        }
        Ok(options)
    }

    /// An option whose value is not as long as its type says is skipped like an unknown one.
    fn take(&mut self, kind: u8, option: &[u8]) {
        match kind {
            SOURCE_MAC => self.source = mac(option).or(self.source),
            TARGET_MAC => self.target = mac(option).or(self.target),
            MTU => self.mtu = word(option, 4).filter(|_| option.len() == UNIT).or(self.mtu),
            PREFIX if self.prefixes.len() < LIST_MAX => self.prefixes.extend(PrefixInformation::read(option)),
            NAME_SERVERS => self.name_servers = NameServers::read(option).or(self.name_servers.take()),
            _ => {}
        }
    }
}

impl PrefixInformation {
    fn read(option: &[u8]) -> Option<Self> {
        let option = option.first_chunk::<32>().filter(|_| option.len() == 32)?;
        Some(Self {
            address: address(option, 16)?,
            len: option[2].min(128),
            on_link: option[3] & 0x80 != 0,
            autonomous: option[3] & 0x40 != 0,
            valid_s: word(option, 4)?,
            preferred_s: word(option, 8)?,
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.on_link) << 7 | u8::from(self.autonomous) << 6;
        out.extend_from_slice(&[PREFIX, 4, self.len, flags]);
        out.extend_from_slice(&self.valid_s.to_be_bytes());
        out.extend_from_slice(&self.preferred_s.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.address.to_be_bytes());
    }
}

impl NameServers {
    fn read(option: &[u8]) -> Option<Self> {
        let addresses = option.get(8..)?.as_chunks::<16>();
        if addresses.0.is_empty() || !addresses.1.is_empty() {
            return None;
        }
        let addresses = addresses.0.iter().take(LIST_MAX).map(|a| u128::from_be_bytes(*a)).collect();
        Some(Self { lifetime_s: word(option, 4)?, addresses })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let addresses = self.addresses.iter().take(LIST_MAX);
        out.extend_from_slice(&[NAME_SERVERS, 1 + 2 * addresses.len() as u8, 0, 0]);
        out.extend_from_slice(&self.lifetime_s.to_be_bytes());
        for address in addresses {
            out.extend_from_slice(&address.to_be_bytes());
        }
    }
}

pub(super) fn put_mac(out: &mut Vec<u8>, kind: u8, mac: Option<MacAddr>) {
    if let Some(mac) = mac {
        out.extend_from_slice(&[kind, 1]);
        out.extend_from_slice(&mac.0);
    }
}

pub(super) fn put_mtu(out: &mut Vec<u8>, mtu: Option<u32>) {
    if let Some(mtu) = mtu {
        out.extend_from_slice(&[MTU, 1, 0, 0]);
        out.extend_from_slice(&mtu.to_be_bytes());
    }
}

fn mac(option: &[u8]) -> Option<MacAddr> {
    let octets = option.get(2..)?.first_chunk::<6>().filter(|_| option.len() == UNIT)?;
    Some(MacAddr(*octets))
}

fn word(option: &[u8], at: usize) -> Option<u32> {
    option.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

fn address(option: &[u8], at: usize) -> Option<u128> {
    option.get(at..)?.first_chunk().map(|octets| u128::from_be_bytes(*octets))
}
