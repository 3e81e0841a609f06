//! Files that somebody else may have put in place of ours.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

/// Reads a file's metadata and up to `limit` + 1 bytes. Never waits, as for the writer of a pipe.
///
/// # Errors
///
/// Those of the system; `IsADirectory` and `InvalidInput` for what is not a regular file.
pub fn read_regular(path: &Path, limit: usize) -> io::Result<(Metadata, Vec<u8>)> {
    let handle = openat(
        CWD,
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let file = File::from(handle);
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "Is a directory",
        ));
    }
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "is not a regular file",
        ));
    }
    let mut content = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut content)?;
    Ok((metadata, content))
}
