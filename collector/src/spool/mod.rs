//! The spool: a directory of files of checksummed records that outlives the process.
//!
//! A file is `<host>-<unix_us>-<pid>-<n>.spool`, with `.open` behind it while it is being written. Readers take only
//! what ends in `.spool`.

pub mod name;
pub mod queue;
pub mod reader;
pub mod record;
pub mod recover;
pub mod scan;
pub mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A failure on one file or directory of the spool.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {what}: {source}", path.display())]
pub struct SpoolError {
    /// What was tried.
    pub what: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// For `map_err`: says what was tried on which path.
fn failed<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SpoolError + use<'a> {
    move |source| SpoolError {
        what,
        path: path.to_owned(),
        source,
    }
}

/// Makes a file's content and its new name durable: fsync, rename, fsync of the directory.
fn complete(file: &File, open: &Path, directory: &Path) -> Result<PathBuf, SpoolError> {
    let path = open.with_extension("");
    file.sync_all().map_err(failed("sync it to disk", open))?;
    std::fs::rename(open, &path).map_err(failed("rename it", open))?;
    File::open(directory)
        .and_then(|dir| dir.sync_all())
        .map_err(failed("sync it to disk", directory))?;
    Ok(path)
}

/// Whether the disk is full, read-only or broken, which may pass and must not end the collector.
pub(crate) fn is_outage(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(
        error.kind(),
        StorageFull | ReadOnlyFilesystem | QuotaExceeded
    ) || error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
