//! Errors, as one line for whoever runs the command: what failed, on which input, what to do.

use std::fmt;

/// Exit codes: nothing else has these meanings.
pub mod code {
    /// Done, or nothing to do.
    pub const DONE: u8 = 0;
    /// Failed; the message says what state the host is in.
    pub const FAILED: u8 = 1;
    /// Refused: nothing was changed.
    pub const REFUSED: u8 = 2;
    /// Not whole: some destinations are refused, or the kernel differs from what is wanted.
    pub const PARTIAL: u8 = 3;
    /// No signature.
    pub const UNSIGNED: u8 = 10;
    /// Signed by a key that is not allowed.
    pub const WRONG_SIGNER: u8 = 11;
    /// Not the bytes that were signed, or not those that were digested.
    pub const ALTERED: u8 = 12;
    /// Another edge's bundle.
    pub const OTHER_EDGE: u8 = 13;
    /// Older than the last applied one.
    pub const REPLAYED: u8 = 14;
    /// Past its expiry.
    pub const EXPIRED: u8 = 15;
}

/// Why a command ended without its result.
#[derive(Debug)]
pub enum Error {
    /// Input or host not fit; nothing was changed.
    Refused {
        /// One line.
        message: String,
        /// See [`code`].
        code: u8,
    },
    /// Something broke while working; the message says what state the host is in.
    Failed(String),
    /// Another run has withdrawn everything without waiting for this one: nothing may be put back.
    Withdrawn(String),
    /// The kernel holds just what the bundle wants, and no longer than it wants it; only the record is the older one.
    Unrecorded(String),
    /// A file of the state directory is not what this program wrote.
    Damaged(String),
}

/// Result of most functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Nothing was changed.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
            code: code::REFUSED,
        }
    }

    /// Nothing was changed, for a reason that has an exit code of its own.
    pub fn refused_as(code: u8, message: impl Into<String>) -> Self {
        Self::Refused {
            message: message.into(),
            code,
        }
    }

    /// Something broke.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed(message.into())
    }

    /// Exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused { code, .. } => *code,
            _ => code::FAILED,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Refused { message, .. }
            | Self::Failed(message)
            | Self::Withdrawn(message)
            | Self::Unrecorded(message)
            | Self::Damaged(message) => message,
        })
    }
}

impl std::error::Error for Error {}
