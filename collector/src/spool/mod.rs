//! The spool: a directory of files of checksummed records that outlives the process.
//!
//! A file is `<host>-<unix_us>-<pid>-<n>.spool`, with `.open` behind it while it is being written. Readers take only
//! what ends in `.spool`.

pub(crate) mod name;
pub(crate) mod queue;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod recover;
pub(crate) mod scan;
pub(crate) mod writer;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

/// A failure on one file or directory of the spool.
#[derive(Debug, thiserror::Error)]
#[error("{}: cannot {what}: {source}", path.display())]
pub struct SpoolError {
    /// The action that failed.
    pub what: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// For `map_err`: adds what was tried on which path.
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

/// Makes the directory where only it is missing. A longer path that is missing is a slip or a disk that is not mounted.
pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "the directory above it is missing: make it, or mount what it is on",
        )),
        result => result,
    }
}

/// Opens what must be a file: of a FIFO nobody waits for the other end.
pub(crate) fn open_file(options: &OpenOptions, path: &Path) -> io::Result<File> {
    open_as(options, path, OFlags::NONBLOCK)
}

/// Opens a file in a directory of our own; a link in there is not ours and is not followed.
pub(crate) fn open_own(options: &OpenOptions, path: &Path) -> io::Result<File> {
    open_as(options, path, OFlags::NONBLOCK | OFlags::NOFOLLOW)
}

fn open_as(options: &OpenOptions, path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags.bits() as i32;
    let file = match options.clone().custom_flags(flags).open(path) {
        // A link that is not followed, and the end of a FIFO without another.
        Err(error)
            if [Errno::LOOP, Errno::NXIO]
                .map(|errno| Some(errno.raw_os_error()))
                .contains(&error.raw_os_error()) =>
        {
            return Err(no_file());
        }
        result => result?,
    };
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(no_file())
    }
}

fn no_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")
}

/// For reading.
pub(crate) fn reading() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true);
    options
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
