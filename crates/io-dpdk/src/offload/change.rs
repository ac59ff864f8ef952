//! What the guard did, and why it could not, as sentences.

use std::fmt;

/// One thing the guard changed, or has to say; displays as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OffloadChange {
    /// Features were switched off.
    SwitchedOff {
        /// The interface.
        interface: String,
        /// Its network namespace, when another than ours.
        place: Option<String>,
        /// The kernel's names of the features.
        features: Vec<String>,
    },
    /// The interface was down and is up now.
    BroughtUp {
        /// The interface.
        interface: String,
    },
    /// The MTU was changed.
    MtuSet {
        /// The interface.
        interface: String,
        /// Former MTU, in bytes.
        from: u32,
        /// Present MTU, in bytes.
        to: u32,
    },
    /// The peer of a veth is in a namespace that is not reachable.
    PeerNotFound {
        /// Our end.
        interface: String,
    },
    /// What a killed process had changed was set back.
    Restored {
        /// The interface.
        interface: String,
        /// Its network namespace, when another than ours.
        place: Option<String>,
        /// The kernel's names of the features switched on again.
        features: Vec<String>,
    },
    /// A state file could not be read.
    Unreadable {
        /// Which, why and what to do.
        message: String,
    },
}

impl fmt::Display for OffloadChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OffloadChange::SwitchedOff { interface, place, features } => {
                write!(f, "{}: switched off {} until exit", named(interface, place), features.join(", "))
            }
            OffloadChange::BroughtUp { interface } => write!(f, "{interface}: was down, set up until exit"),
            OffloadChange::MtuSet { interface, from, to } => {
                write!(f, "{interface}: MTU set from {from} to {to} bytes until exit")
            }
            OffloadChange::PeerNotFound { interface } => write!(
                f,
                "{interface}: its veth peer is in a namespace out of reach; run `ethtool -K PEER tx off txvlan off` there, or \
                 TCP and UDP from it arrive with unfinished checksums"
            ),
            OffloadChange::Restored { interface, place, features } => {
                let interface = named(interface, place);
                write!(f, "{interface}: a killed run left it changed; restored {}", features.join(", "))
            }
            OffloadChange::Unreadable { message } => f.write_str(message),
        }
    }
}

fn named(interface: &str, place: &Option<String>) -> String {
    match place {
        Some(place) => format!("{interface} in namespace {place}"),
        None => interface.to_owned(),
    }
}

/// Why an interface could not be guarded: a sentence with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffloadError {
    message: String,
}

impl OffloadError {
    pub(crate) fn new(message: impl Into<String>) -> OffloadError {
        OffloadError { message: message.into() }
    }

    /// The last system call's error, after what was being done.
    pub(crate) fn last_os(doing: impl fmt::Display) -> OffloadError {
        Self::io(doing, &std::io::Error::last_os_error())
    }

    pub(crate) fn io(doing: impl fmt::Display, error: &std::io::Error) -> OffloadError {
        let hint = match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => "; run as root",
            Some(libc::ENODEV) => "; `ip link` lists the interfaces",
            _ => "",
        };
        OffloadError { message: format!("{doing}: {error}{hint}") }
    }
}

impl fmt::Display for OffloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OffloadError {}
