//! Why DPDK did not do what was asked.

use crate::ffi;
use std::fmt;

/// A failure of DPDK's, as sentences: what was tried, what happened, what to do, and the last words of DPDK's own log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkError {
    message: String,
    log: String,
}

/// Lines of DPDK's log that an error quotes at most.
const LOG_LINES_MAX: usize = 4;

impl DpdkError {
    pub(crate) fn new(message: impl Into<String>) -> DpdkError {
        DpdkError { message: message.into(), log: String::new() }
    }

    /// An error that quotes what DPDK has logged since the last one.
    pub(crate) fn with_log(message: impl Into<String>) -> DpdkError {
        let log = take_log();
        let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines.get(lines.len().saturating_sub(LOG_LINES_MAX)..).unwrap_or_default();
        DpdkError { message: message.into(), log: last.join("; ") }
    }
}

impl fmt::Display for DpdkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.log.is_empty() {
            write!(f, " DPDK says: {}", self.log)?;
        }
        Ok(())
    }
}

impl std::error::Error for DpdkError {}

/// The system's sentence for a negative errno.
pub(crate) fn errno_text(result: i32) -> String {
    let text = std::io::Error::from_raw_os_error(result.saturating_neg()).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Empties the log buffer.
pub(crate) fn take_log() -> String {
    let mut text = vec![0u8; 8192];
    // SAFETY: the buffer is writable for the length given, and at most that much is written.
    let length = unsafe { ffi::carrack_log_take(text.as_mut_ptr().cast(), text.len()) };
    text.truncate(length);
    String::from_utf8_lossy(&text).into_owned()
}
