//! Why something could not be done.

use std::io;
use std::path::Path;

/// One line: what failed, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This host cannot run the program; nothing was changed, and routes may do instead.
    #[error("{0}")]
    Unsupported(String),
    /// The bundle asks for what the program cannot carry; nothing was changed.
    #[error("{0}")]
    Bundle(String),
    /// A step failed. What was in force before still is, and a repetition completes or repairs it.
    #[error("{0}")]
    Failed(String),
}

/// The result of what this module does.
pub type Result<T> = std::result::Result<T, Error>;

pub(super) fn failed(
    what: &str,
    path: &Path,
    error: impl std::fmt::Display,
    advice: &str,
) -> Error {
    Error::Failed(format!("{what} {}: {error}: {advice}", path.display()))
}

/// The kernel's message, without libbpf's repetition of it.
pub(super) fn plain(error: &libbpf_rs::Error) -> String {
    let text = format!("{error:#}");
    text.lines()
        .next()
        .unwrap_or_default()
        .trim_end_matches('.')
        .to_owned()
}

pub(super) fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}
