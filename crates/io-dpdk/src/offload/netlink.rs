//! The three questions to rtnetlink that ioctls cannot ask: a link's kind and peer, a namespace's number, and XDP off.

use super::OffloadError;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// What the guard needs to know of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Link {
    /// Such as `veth`; `None` for physical interfaces.
    pub kind: Option<String>,
    /// The peer's interface number, in its own namespace.
    pub peer_index: Option<u32>,
    /// The peer's namespace, by this namespace's numbering; `None` when it is this one.
    pub peer_namespace_id: Option<i32>,
    /// Whether an XDP program is attached.
    pub xdp_attached: bool,
}

const RTM_GETNSID: u16 = 90;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_XDP_FD: u16 = 1;
const IFLA_XDP_ATTACHED: u16 = 2;
const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = !(3 << 14);
const HEADER_BYTES: usize = 16;
const IFINFOMSG_BYTES: usize = 16;

/// Reads a link of the calling thread's network namespace.
pub(crate) fn link(index: u32) -> Result<Link, OffloadError> {
    let reply = ask(libc::RTM_GETLINK, 0, &ifinfomsg(index), "cannot read the link")?;
    let mut link = Link::default();
    for (kind, value) in attributes(reply.get(IFINFOMSG_BYTES..).unwrap_or_default()) {
        match kind {
            IFLA_LINK => link.peer_index = number(value),
            IFLA_LINK_NETNSID => link.peer_namespace_id = number(value).map(|id| id as i32),
            IFLA_LINKINFO => link.kind = attribute(value, IFLA_INFO_KIND).map(text),
            IFLA_XDP => {
                let attached = attribute(value, IFLA_XDP_ATTACHED).and_then(|mode| mode.first());
                link.xdp_attached = attached.is_some_and(|mode| *mode != 0);
            }
            _ => {}
        }
    }
    Ok(link)
}

/// The number by which the calling thread's network namespace knows another one.
pub(crate) fn namespace_id(namespace: BorrowedFd<'_>) -> Result<i32, OffloadError> {
    let mut body = vec![0; 4];
    push(&mut body, NETNSA_FD, &namespace.as_raw_fd().to_ne_bytes());
    let reply = ask(RTM_GETNSID, 0, &body, "cannot number a network namespace")?;
    let id = attribute(reply.get(4..).unwrap_or_default(), NETNSA_NSID).and_then(number).map(|id| id as i32);
    id.filter(|id| *id >= 0).ok_or_else(|| OffloadError::new("the network namespace has no number here"))
}

/// Takes any XDP program off a link of the calling thread's network namespace.
pub(crate) fn detach_xdp(index: u32) -> Result<(), OffloadError> {
    let mut nested = Vec::new();
    push(&mut nested, IFLA_XDP_FD, &(-1i32).to_ne_bytes());
    let mut body = ifinfomsg(index);
    push(&mut body, IFLA_XDP | NLA_F_NESTED, &nested);
    ask(libc::RTM_SETLINK, libc::NLM_F_ACK as u16, &body, "cannot detach the XDP program").map(drop)
}

fn ifinfomsg(index: u32) -> Vec<u8> {
    let mut body = vec![0; IFINFOMSG_BYTES];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    body
}

fn push(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Sends one request and returns the body of the one reply; an acknowledgement has an empty body.
fn ask(kind: u16, flags: u16, body: &[u8], doing: &str) -> Result<Vec<u8>, OffloadError> {
    let socket = open(doing)?;
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend((flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    // SAFETY: the message is readable for its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 {
        return Err(OffloadError::last_os(doing));
    }
    let mut reply = vec![0u8; 32_768];
    // SAFETY: the buffer is writable for its length.
    let received = unsafe { libc::recv(socket.as_raw_fd(), reply.as_mut_ptr().cast(), reply.len(), 0) };
    if received < 0 {
        return Err(OffloadError::last_os(doing));
    }
    reply.truncate(received as usize);
    body_of(&reply, doing)
}

fn body_of(reply: &[u8], doing: &str) -> Result<Vec<u8>, OffloadError> {
    let cut_off = || OffloadError::new(format!("{doing}: the kernel's answer is cut off"));
    let length = reply.get(..4).and_then(number).ok_or_else(cut_off)? as usize;
    let kind =
        reply.get(4..6).and_then(|raw| raw.try_into().ok()).map(u16::from_ne_bytes).ok_or_else(cut_off)?;
    let body = reply.get(HEADER_BYTES..length).ok_or_else(cut_off)?;
    if i32::from(kind) != libc::NLMSG_ERROR {
        return Ok(body.to_vec());
    }
    match body.get(..4).and_then(number).ok_or_else(cut_off)? as i32 {
        0 => Ok(Vec::new()),
        error => Err(OffloadError::io(doing, &std::io::Error::from_raw_os_error(error.saturating_neg()))),
    }
}

fn open(doing: &str) -> Result<OwnedFd, OffloadError> {
    // SAFETY: socket takes no pointers.
    let fd =
        unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    if fd < 0 {
        return Err(OffloadError::last_os(doing));
    }
    // SAFETY: the descriptor is new and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn attribute(attributes_of: &[u8], wanted: u16) -> Option<&[u8]> {
    attributes(attributes_of).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// The attributes of a message, up to the first that does not fit.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?) & NLA_TYPE_MASK;
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn number(raw: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(raw.get(..4)?.try_into().ok()?))
}

fn text(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests;
