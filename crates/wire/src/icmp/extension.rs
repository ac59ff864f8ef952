//! The ICMP extension structure (RFC 4884 §7 and §8).

use crate::checksum;
use std::fmt;

/// Octets an "original datagram" field has at least when an extension follows (RFC 4884 §3).
pub const ORIGINAL_LEN_MIN: usize = 128;
const HEADER_LEN: usize = 4;
const VERSION: u8 = 2;

/// Why octets behind the "original datagram" field are no extension structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtensionError {
    /// Less than 128 octets stand before it.
    OriginalTooShort,
    /// Shorter than its header.
    Truncated,
    /// The version is not 2.
    BadVersion,
    /// The checksum is present and wrong.
    BadChecksum,
    /// An object is shorter than its header, no multiple of 4 octets, or longer than the structure.
    BadObject,
}

impl fmt::Display for ExtensionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExtensionError::OriginalTooShort => {
                "fewer than 128 octets of original datagram before an ICMP extension"
            }
            ExtensionError::Truncated => "ICMP extension structure ends inside its header",
            ExtensionError::BadVersion => "ICMP extension version is not 2",
            ExtensionError::BadChecksum => "ICMP extension checksum is wrong",
            ExtensionError::BadObject => "ICMP extension object has a wrong length",
        })
    }
}

impl std::error::Error for ExtensionError {}

/// A checked extension structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    bytes: &'a [u8],
}

/// One object of an extension structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object<'a> {
    /// Class number.
    pub class: u8,
    /// Type within the class.
    pub c_type: u8,
    /// What follows the object header.
    pub payload: &'a [u8],
}

impl<'a> Extension<'a> {
    /// Checks a whole structure: version, checksum unless 0, and that the objects fill it exactly.
    ///
    /// # Errors
    /// [`ExtensionError`].
    pub fn parse(bytes: &'a [u8]) -> Result<Extension<'a>, ExtensionError> {
        let head = bytes.first_chunk::<HEADER_LEN>().ok_or(ExtensionError::Truncated)?;
        if head[0] >> 4 != VERSION {
            return Err(ExtensionError::BadVersion);
        }
        let has_checksum = head[2] != 0 || head[3] != 0;
        if has_checksum && !checksum::verify(bytes) {
            return Err(ExtensionError::BadChecksum);
        }
        let extension = Extension { bytes };
        let objects_len: usize = extension.objects().map(|object| HEADER_LEN + object.payload.len()).sum();
        if objects_len + HEADER_LEN != bytes.len() {
            return Err(ExtensionError::BadObject);
        }
        Ok(extension)
    }

    /// The structure behind the first `original_len` octets of an error's payload; `None` when nothing is there.
    pub(crate) fn behind(
        payload: &'a [u8],
        original_len: usize,
    ) -> Result<Option<Extension<'a>>, ExtensionError> {
        match payload.get(original_len..) {
            None | Some([]) => Ok(None),
            Some(_) if original_len < ORIGINAL_LEN_MIN => Err(ExtensionError::OriginalTooShort),
            Some(bytes) => Extension::parse(bytes).map(Some),
        }
    }

    /// The whole structure.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The objects in order.
    pub fn objects(&self) -> impl Iterator<Item = Object<'a>> + use<'a> {
        let mut rest = self.bytes.get(HEADER_LEN..).unwrap_or(&[]);
        std::iter::from_fn(move || {
            let head = rest.first_chunk::<HEADER_LEN>()?;
            let length = usize::from(u16::from_be_bytes([head[0], head[1]]));
            if length < HEADER_LEN || !length.is_multiple_of(4) {
                return None;
            }
            let (object, behind) = rest.split_at_checked(length)?;
            rest = behind;
            Some(Object { class: head[2], c_type: head[3], payload: object.get(HEADER_LEN..)? })
        })
    }
}
