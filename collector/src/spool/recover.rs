//! Completes the files that a dead process left open.

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::reader::{Item, SpoolReader};
use super::{SpoolError, complete, failed, name};
use crate::stats::Stats;

/// Cuts what is no complete record off the end of each of the host's open files, and drops the `.open` from its name; a
/// file without a complete record is removed. The caller holds the host's lock on the directory, so that no living
/// process writes them.
pub fn recover(directory: &Path, host: &str, stats: &mut Stats) -> Result<(), SpoolError> {
    for entry in fs::read_dir(directory).map_err(failed("list it", directory))? {
        let entry = entry.map_err(failed("list it", directory))?;
        if entry.file_name().to_str().and_then(name::host_of_open) == Some(host) {
            recover_file(directory, &entry.path(), stats)?;
        }
    }
    Ok(())
}

fn recover_file(directory: &Path, path: &Path, stats: &mut Stats) -> Result<(), SpoolError> {
    let mut reader = SpoolReader::open(path)?;
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
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .map_err(failed("open it", path))?;
    file.set_len(good)
        .map_err(failed("cut its torn end", path))?;
    complete(&file, path, directory)?;
    Ok(())
}
