//! A file that is there whole or not at all, and is known again.

use std::ffi::OsString;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// A file's device, inode, time of change in seconds and ns, and size.
pub(super) type Identity = (u64, u64, i64, i64, u64);

fn identity(found: &Metadata) -> Identity {
    (
        found.dev(),
        found.ino(),
        found.mtime(),
        found.mtime_nsec(),
        found.size(),
    )
}

/// Identity of what stands there; None where nothing does.
pub(super) fn found(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().as_ref().map(identity)
}

/// Leaves what was there before when it fails.
pub(super) fn replace(path: &Path, content: &[u8], sync: bool) -> io::Result<Identity> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".new");
    let temporary = path.with_file_name(name);
    let write = || {
        // A run that stands still may have it open, and would write into ours.
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        if sync {
            file.sync_all()?;
        }
        let written = identity(&file.metadata()?);
        fs::rename(&temporary, path)?;
        Ok(written)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}
