//! The one-line description of a device that a config names: `KIND:WHICH[,option=value…]`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Which device a port uses, as one config line says it. Parsing and displaying round-trip.
///
/// | line | device |
/// |---|---|
/// | `pci:0000:03:00.0` | physical port by PCI address (DPDK driver) |
/// | `af_packet:IFNAME` | kernel interface through a packet socket (DPDK) |
/// | `af_xdp:IFNAME` | kernel interface through an XDP socket (DPDK) |
/// | `tap:IFNAME` | new kernel TAP interface of that name (DPDK) |
/// | `memif:SOCKET[,id=N][,role=client\|server][,zero-copy=yes\|no]` | shared-memory interface to another process (DPDK) |
/// | `dpdk-pcap:[rx=FILE][,tx=FILE]` | capture files through DPDK's driver |
/// | `vdev:NAME[,ARGS]` | any other DPDK virtual device, its arguments passed as they are |
/// | `pcap:[rx=FILE][,tx=FILE]` | capture files, in process |
/// | `mem:NAME` | rings of frames, in process |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceSpec {
    /// A physical port.
    Pci {
        /// `domain:bus:device.function`, with the domain filled in.
        address: String,
    },
    /// A kernel interface through a packet socket.
    AfPacket {
        /// The interface's name.
        interface: String,
    },
    /// A kernel interface through an XDP socket.
    AfXdp {
        /// The interface's name.
        interface: String,
    },
    /// A kernel TAP interface that the port creates.
    Tap {
        /// The name the new interface gets.
        interface: String,
    },
    /// A shared-memory interface.
    Memif {
        /// Path of the control socket.
        socket: PathBuf,
        /// Number of the interface on that socket; both ends name the same.
        id: u32,
        /// Which end this is.
        role: MemifRole,
        /// Whether frames are shared instead of copied; the client's choice.
        zero_copy: bool,
    },
    /// Capture files through DPDK's driver.
    DpdkPcap {
        /// File whose packets are received.
        rx: Option<PathBuf>,
        /// File that takes what is sent.
        tx: Option<PathBuf>,
    },
    /// Any DPDK virtual device.
    Vdev {
        /// The device's name and arguments in DPDK's own syntax.
        args: String,
    },
    /// Capture files, in process.
    Pcap {
        /// File whose packets are received.
        rx: Option<PathBuf>,
        /// File that takes what is sent.
        tx: Option<PathBuf>,
    },
    /// Rings of frames, in process.
    Mem {
        /// Name by which the test or bench finds the other end.
        name: String,
    },
}

/// The end of a memif: the server creates the socket, the client connects and owns the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemifRole {
    /// Connects; the default.
    #[default]
    Client,
    /// Listens.
    Server,
}

/// Why a device line is not understood: a sentence that says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpecError {
    spec: String,
    message: String,
}

const KINDS: [(&str, &str); 9] = [
    ("pci", "pci:0000:03:00.0"),
    ("af_packet", "af_packet:eth0"),
    ("af_xdp", "af_xdp:eth0"),
    ("tap", "tap:carrack0"),
    ("memif", "memif:/run/memif.sock,id=0,role=client"),
    ("dpdk-pcap", "dpdk-pcap:rx=in.pcap,tx=out.pcap"),
    ("vdev", "vdev:net_null0,size=64"),
    ("pcap", "pcap:rx=in.pcap,tx=out.pcap"),
    ("mem", "mem:lan"),
];

/// Longest interface name the kernel takes, in bytes (IFNAMSIZ less the final zero).
const INTERFACE_NAME_BYTES_MAX: usize = 15;
/// Longest path a local socket takes, in bytes (sun_path less the final zero).
const SOCKET_PATH_BYTES_MAX: usize = 107;

impl DeviceSpec {
    /// The word before the colon.
    pub fn kind(&self) -> &'static str {
        match self {
            DeviceSpec::Pci { .. } => "pci",
            DeviceSpec::AfPacket { .. } => "af_packet",
            DeviceSpec::AfXdp { .. } => "af_xdp",
            DeviceSpec::Tap { .. } => "tap",
            DeviceSpec::Memif { .. } => "memif",
            DeviceSpec::DpdkPcap { .. } => "dpdk-pcap",
            DeviceSpec::Vdev { .. } => "vdev",
            DeviceSpec::Pcap { .. } => "pcap",
            DeviceSpec::Mem { .. } => "mem",
        }
    }

    /// Whether the device needs DPDK. A run is all-DPDK or all in-process, never both.
    pub fn needs_dpdk(&self) -> bool {
        !matches!(self, DeviceSpec::Pcap { .. } | DeviceSpec::Mem { .. })
    }

    /// The existing kernel interface the device takes over, whose offloads then need guarding.
    pub fn kernel_interface(&self) -> Option<&str> {
        match self {
            DeviceSpec::AfPacket { interface } | DeviceSpec::AfXdp { interface } => Some(interface),
            _ => None,
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = DeviceSpecError;

    fn from_str(spec: &str) -> Result<DeviceSpec, DeviceSpecError> {
        parse(spec).map_err(|message| DeviceSpecError { spec: spec.to_owned(), message })
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind())?;
        match self {
            DeviceSpec::Pci { address: rest }
            | DeviceSpec::AfPacket { interface: rest }
            | DeviceSpec::AfXdp { interface: rest }
            | DeviceSpec::Tap { interface: rest }
            | DeviceSpec::Vdev { args: rest }
            | DeviceSpec::Mem { name: rest } => f.write_str(rest),
            DeviceSpec::Memif { socket, id, role, zero_copy } => {
                let role = if *role == MemifRole::Client { "client" } else { "server" };
                let zero_copy = if *zero_copy { "yes" } else { "no" };
                write!(f, "{},id={id},role={role},zero-copy={zero_copy}", socket.display())
            }
            DeviceSpec::DpdkPcap { rx, tx } | DeviceSpec::Pcap { rx, tx } => {
                let files = [("rx", rx), ("tx", tx)];
                let named = files
                    .iter()
                    .filter_map(|(key, file)| file.as_ref().map(|file| format!("{key}={}", file.display())));
                f.write_str(&named.collect::<Vec<_>>().join(","))
            }
        }
    }
}

impl fmt::Display for DeviceSpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device \"{}\": {}", self.spec, self.message)
    }
}

impl std::error::Error for DeviceSpecError {}

fn parse(spec: &str) -> Result<DeviceSpec, String> {
    let (kind, rest) = spec
        .split_once(':')
        .ok_or_else(|| format!("write a kind, a colon and the device, such as {}", examples()))?;
    match kind {
        "pci" => Ok(DeviceSpec::Pci { address: pci_address(rest)? }),
        "af_packet" => Ok(DeviceSpec::AfPacket { interface: interface_name(rest)? }),
        "af_xdp" => Ok(DeviceSpec::AfXdp { interface: interface_name(rest)? }),
        "tap" => Ok(DeviceSpec::Tap { interface: interface_name(rest)? }),
        "memif" => memif(rest),
        "dpdk-pcap" => capture_files(rest).map(|(rx, tx)| DeviceSpec::DpdkPcap { rx, tx }),
        "pcap" => capture_files(rest).map(|(rx, tx)| DeviceSpec::Pcap { rx, tx }),
        "vdev" if rest.starts_with("net_") => Ok(DeviceSpec::Vdev { args: rest.to_owned() }),
        "vdev" => {
            Err("name a DPDK network device after \"vdev:\", such as vdev:net_null0,size=64".to_owned())
        }
        "mem" if !rest.is_empty() => Ok(DeviceSpec::Mem { name: rest.to_owned() }),
        "mem" => Err("give the port a name after \"mem:\", such as mem:lan".to_owned()),
        unknown => Err(unknown_kind(unknown, rest)),
    }
}

fn unknown_kind(kind: &str, rest: &str) -> String {
    // "eth0" or "0000:03:00.0" alone is the commonest slip: the kind was forgotten.
    if pci_address(&format!("{kind}:{rest}")).is_ok() {
        return format!("this looks like a PCI address; write pci:{kind}:{rest}");
    }
    let kinds = KINDS.map(|(name, _)| name);
    match nearest(kind, &kinds) {
        Some(near) => format!("there is no device kind \"{kind}\"; did you mean \"{near}\"?"),
        None => format!("there is no device kind \"{kind}\"; the kinds are {}", kinds.join(", ")),
    }
}

fn examples() -> String {
    KINDS.map(|(_, example)| example).join(" | ")
}

fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(&word, &name.replace('-', "_")), *name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}

fn interface_name(name: &str) -> Result<String, String> {
    if name.is_empty() {
        return Err("name the interface after the colon; `ip link` lists them".to_owned());
    }
    if let Some((name, options)) = name.split_once(',') {
        return Err(format!("this kind takes no options; write only \"{name}\" and drop \",{options}\""));
    }
    if name.len() > INTERFACE_NAME_BYTES_MAX {
        return Err(format!(
            "\"{name}\" has {} characters; an interface name has at most {INTERFACE_NAME_BYTES_MAX}",
            name.len()
        ));
    }
    if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
        || name.starts_with('.')
    {
        return Err(format!("\"{name}\" is no interface name; `ip link` lists the interfaces"));
    }
    Ok(name.to_owned())
}

fn pci_address(text: &str) -> Result<String, String> {
    let full = if text.matches(':').count() == 1 { format!("0000:{text}") } else { text.to_owned() };
    let wrong = || {
        format!("\"{text}\" is no PCI address; write domain:bus:device.function, such as pci:0000:03:00.0")
    };
    let parts: Vec<&str> = full.split([':', '.']).collect();
    let hex = |part: &str, digits: usize| part.len() == digits && part.bytes().all(|b| b.is_ascii_hexdigit());
    match parts[..] {
        [domain, bus, device, function]
            if hex(domain, 4)
                && hex(bus, 2)
                && hex(device, 2)
                && hex(function, 1)
                && full.ends_with(&format!(".{function}")) =>
        {
            Ok(full.to_lowercase())
        }
        _ => Err(wrong()),
    }
}

fn memif(rest: &str) -> Result<DeviceSpec, String> {
    let (path, options) = rest.split_once(',').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err("give the path of the control socket, such as memif:/run/memif.sock".to_owned());
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        return Err(format!(
            "the socket path has {} bytes; at most {SOCKET_PATH_BYTES_MAX} are possible",
            path.len()
        ));
    }
    let mut options = key_values(options, &["id", "role", "zero-copy"])?;
    let id = match options.remove("id") {
        None => 0,
        Some(id) => {
            id.parse().map_err(|_| format!("id=\"{id}\" is no number; write id=0 or another whole number"))?
        }
    };
    let role = match options.remove("role") {
        None | Some("client") => MemifRole::Client,
        Some("server") => MemifRole::Server,
        Some(other) => return Err(format!("role=\"{other}\" is unknown; write role=client or role=server")),
    };
    let zero_copy = match options.remove("zero-copy") {
        None | Some("no") => false,
        Some("yes") => true,
        Some(other) => {
            return Err(format!("zero-copy=\"{other}\" is unknown; write zero-copy=yes or zero-copy=no"));
        }
    };
    if zero_copy && role == MemifRole::Server {
        return Err(
            "zero-copy is the client's choice; drop zero-copy=yes here and write it at the client".to_owned()
        );
    }
    Ok(DeviceSpec::Memif { socket: device_path(path)?, id, role, zero_copy })
}

fn capture_files(rest: &str) -> Result<(Option<PathBuf>, Option<PathBuf>), String> {
    let mut options = key_values(rest, &["rx", "tx"])?;
    let rx = options.remove("rx").map(device_path).transpose()?;
    let tx = options.remove("tx").map(device_path).transpose()?;
    if rx.is_none() && tx.is_none() {
        return Err("name the file to read or the file to write, such as rx=in.pcap,tx=out.pcap".to_owned());
    }
    if rx == tx {
        return Err("rx and tx name the same file; the output would overwrite the input".to_owned());
    }
    Ok((rx, tx))
}

fn device_path(path: &str) -> Result<PathBuf, String> {
    if path.is_empty() {
        return Err("a file name is empty".to_owned());
    }
    // Device arguments are a comma-separated list with brackets and quotes of its own.
    if path.contains(|c: char| matches!(c, '[' | ']' | '"' | '=') || c.is_control()) {
        return Err(format!(
            "\"{path}\" has a character that device arguments cannot carry; rename the file"
        ));
    }
    Ok(PathBuf::from(path))
}

fn key_values<'a>(text: &'a str, known: &[&str]) -> Result<BTreeMap<&'a str, &'a str>, String> {
    let mut values = BTreeMap::new();
    for option in text.split(',').filter(|option| !option.is_empty()) {
        let (key, value) = option
            .split_once('=')
            .ok_or_else(|| format!("option \"{option}\" has no value; write {option}=VALUE"))?;
        if !known.contains(&key) {
            let hint = nearest(key, known).map_or_else(
                || format!("the options are {}", known.join(", ")),
                |near| format!("did you mean \"{near}\"?"),
            );
            return Err(format!("there is no option \"{key}\"; {hint}"));
        }
        if values.insert(key, value).is_some() {
            return Err(format!("option \"{key}\" is given twice; keep one"));
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests;
