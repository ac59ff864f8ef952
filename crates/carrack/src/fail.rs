//! How commands fail, and with which exit code.

use std::io;
use std::process::ExitCode;

use carrack_api::client::ClientError;
use carrack_api::{Failure, Kind};

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub enum Fail {
    /// The operation failed: exit code 1.
    Operation(Failure),
    /// The command line or configuration is wrong: exit code 2.
    Usage(Failure),
    /// The daemon cannot be reached: exit code 3.
    Unreachable(Failure),
    /// All is said already; only the exit code is missing.
    Said(u8),
    /// Whoever reads the output has seen enough (`… | head`): no error at all.
    ReaderGone,
}

/// What commands return.
pub type Outcome = Result<(), Fail>;

impl Fail {
    /// Says what is to be said on standard error.
    pub fn report(self) -> ExitCode {
        let (code, failure) = match self {
            Self::Operation(failure) => (1, failure),
            Self::Usage(failure) => (2, failure),
            Self::Unreachable(failure) => (3, failure),
            Self::Said(code) => return ExitCode::from(code),
            Self::ReaderGone => return ExitCode::SUCCESS,
        };
        eprintln!("error: {}", failure.error);
        if !failure.hint.is_empty() {
            eprintln!("  hint: {}", failure.hint);
        }
        ExitCode::from(code)
    }
}

impl From<ClientError> for Fail {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Unreachable(failure) => Self::Unreachable(failure),
            ClientError::Failed(failure) if failure.kind == Kind::BadRequest => Self::Usage(failure),
            ClientError::Failed(failure) => Self::Operation(failure),
        }
    }
}

impl From<io::Error> for Fail {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderGone
        } else {
            Self::Operation(Failure::internal(format!("cannot write: {error}")))
        }
    }
}

impl From<Failure> for Fail {
    fn from(failure: Failure) -> Self {
        Self::Operation(failure)
    }
}
