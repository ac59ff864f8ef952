//! The one error type of the API: what happened and what to do.

use core::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What sort of failure, and with it the HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request is wrong: 400.
    BadRequest,
    /// No or wrong token: 401.
    Unauthorized,
    /// The named thing does not exist: 404.
    NotFound,
    /// Refused because of the daemon's state (a reload that would need a restart): 409.
    Conflict,
    /// The request is well-formed but what it names is invalid (a config with errors): 422.
    Invalid,
    /// The daemon is busy, starting or stopping; the same request may work later: 503.
    Unavailable,
    /// A fault of the daemon: 500.
    Internal,
}

impl Kind {
    /// The HTTP status code.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::NotFound => 404,
            Self::Conflict => 409,
            Self::Invalid => 422,
            Self::Internal => 500,
            Self::Unavailable => 503,
        }
    }

    /// The kind of an HTTP status code; anything unknown counts as the daemon's fault.
    #[must_use]
    pub const fn from_status(status: u16) -> Self {
        match status {
            400 | 405 | 413 | 415 => Self::BadRequest,
            401 => Self::Unauthorized,
            404 => Self::NotFound,
            409 => Self::Conflict,
            422 => Self::Invalid,
            503 => Self::Unavailable,
            _ => Self::Internal,
        }
    }
}

/// A refused or failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What sort.
    pub kind: Kind,
    /// What happened, one sentence.
    pub error: String,
    /// What to do about it; may be empty.
    pub hint: String,
}

/// The JSON body of every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What happened.
    pub error: String,
    /// What to do about it; may be empty.
    #[serde(default)]
    pub hint: String,
}

impl Failure {
    /// A failure of that kind, without a hint.
    #[must_use]
    pub fn new(kind: Kind, error: impl Into<String>) -> Self {
        Self { kind, error: error.into(), hint: String::new() }
    }

    /// The request is wrong.
    #[must_use]
    pub fn bad_request(error: impl Into<String>) -> Self {
        Self::new(Kind::BadRequest, error)
    }

    /// The named thing does not exist.
    #[must_use]
    pub fn not_found(error: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, error)
    }

    /// The daemon cannot answer now.
    #[must_use]
    pub fn unavailable(error: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, error)
    }

    /// The daemon is at fault.
    #[must_use]
    pub fn internal(error: impl Into<String>) -> Self {
        Self::new(Kind::Internal, error)
    }

    /// The same with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }

    /// What goes over the wire.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody { error: self.error.clone(), hint: self.hint.clone() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

impl core::error::Error for Failure {}
