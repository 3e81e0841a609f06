//! Completes the files that a dead process left open.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::reader::{Item, SpoolReader};
use super::{SpoolError, complete, failed, name, open_own};
use crate::report::Reporter;
use crate::stats::Stats;

/// Cuts an incomplete record off the end of each of the host's open files, and drops the `.open` from its name; a
/// file without a complete record is removed. One that cannot be used is reported and left as it is; the others are completed.
/// The caller holds the host's lock on the directory, so that no living process writes them.
pub(crate) fn recover(
    directory: &Path,
    host: &str,
    reporter: &Reporter,
    stats: &mut Stats,
) -> Result<(), SpoolError> {
    for entry in fs::read_dir(directory).map_err(failed("list it", directory))? {
        let entry = entry.map_err(failed("list it", directory))?;
        if entry.file_name().to_str().and_then(name::host_of_open) == Some(host)
            && let Err(error) = recover_file(directory, &entry.path(), stats)
        {
            reporter.complain(format!("{error}: it is left as it is"));
        }
    }
    Ok(())
}

fn recover_file(directory: &Path, path: &Path, stats: &mut Stats) -> Result<(), SpoolError> {
    let completed = path.with_extension("");
    if completed.symlink_metadata().is_ok() {
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        return Err(failed("complete it beside a file of that name", path)(
            source,
        ));
    }
    let mut reader = SpoolReader::open_own(path)?;
    let (mut good, mut length) = (0, 0);
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Record { end, .. } => (good, length) = (end, end),
            Item::Corrupt { offset, bytes, .. } => length = offset + bytes,
        }
    }
    stats.spool_files_recovered += 1;
    stats.spool_bytes_cut += length - good;
    if good == 0 {
        return fs::remove_file(path).map_err(failed("remove it", path));
    }
    let file = open_own(OpenOptions::new().write(true), path).map_err(failed("open it", path))?;
    file.set_len(good)
        .map_err(failed("cut its torn end", path))?;
    complete(&file, path, directory)?;
    Ok(())
}
