//! A bundle as somebody hands it over.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::bundle::MAX_BYTES;
use crate::error::{Error, Result, code};
use crate::files::read_regular;
use crate::signature;
use crate::text::reason;

/// A bundle, and whose signature counts.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The bundle.
    pub bundle: Given<'a>,
    /// None takes it on anybody's word.
    pub allowed_signers: Option<&'a Path>,
    /// This edge's name.
    pub edge: &'a str,
    /// Keeps withdrawn what somebody withdrew since the bundle was made.
    pub heeds_withdrawals: bool,
}

/// A bundle and its signature, as they come.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// The bundle's file; its signature is PATH.sig.
    File(&'a Path),
    /// Their bytes, and where those come from. The signature is empty where there is none.
    Bytes {
        /// In words.
        from: &'a str,
        /// The bundle.
        content: &'a [u8],
        /// Armored.
        signature: &'a [u8],
    },
}

impl Given<'_> {
    /// Names its origin.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Bytes { from, .. } => (*from).to_owned(),
        }
    }

    /// Names the origin of its signature.
    pub(super) fn shown_signature(&self) -> String {
        match self {
            Self::File(path) => signature_of(path).display().to_string(),
            Self::Bytes { .. } => self.shown(),
        }
    }

    /// The bundle's bytes.
    pub(super) fn content(&self) -> Result<Vec<u8>> {
        let path = match self {
            Self::Bytes { content, .. } => return Ok(content.to_vec()),
            Self::File(path) => path,
        };
        let (_, raw) = read_regular(path, MAX_BYTES).map_err(|error| {
            let regular = error.kind() != std::io::ErrorKind::InvalidInput;
            let fix = if regular {
                "name a bundle that this user can read"
            } else {
                "name a bundle"
            };
            let shown = path.display();
            Error::refused(format!("{shown}: file: {}; {fix}", reason(&error)))
        })?;
        Ok(raw)
    }

    /// The armored signature.
    pub(super) fn signature(&self) -> Result<Vec<u8>> {
        match self {
            Self::File(path) => signature::read(&signature_of(path)),
            Self::Bytes {
                from,
                signature: b"",
                ..
            } => {
                let fix = "see what is served there";
                let message = format!("{from}: what the origin sent is not a signed bundle; {fix}");
                Err(Error::refused_as(code::UNSIGNED, message))
            }
            Self::Bytes { signature, .. } => Ok(signature.to_vec()),
        }
    }
}

fn signature_of(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".sig");
    name.into()
}
