//! The number of the poll within the boot: never used twice, also over restarts of the collector.
//!
//! `run` keeps it in `<host>.state` in its spool directory, written before a poll's first row. It needs no fsync: only a
//! crash of the whole machine can lose it, and then the boot id changes too. Without such a file the first number is the
//! time since boot in milliseconds: a collector that polls less than a thousand times a second never counted that far.
//! `once` has no directory and uses the time since boot in nanoseconds, far above every number of `run`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::kernel::host;

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SequenceError {
    /// Two collectors of one host cannot share a directory.
    #[error("{}: another collector of this host is running on this spool directory", .0.display())]
    Locked(PathBuf),
    /// The file cannot be used.
    #[error("{}: cannot keep the poll's number in it: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Numbers polls. Holds the host's lock on the spool directory as long as it lives.
pub struct Sequence {
    file: File,
    path: PathBuf,
    boot_id: String,
    last: u64,
}

impl Sequence {
    /// Opens or creates the state of `host` in `directory` and locks it.
    pub fn open(directory: &Path, host: &str, boot_id: &str) -> Result<Self, SequenceError> {
        let path = directory.join(format!("{host}.state"));
        let io = |source| SequenceError::Io {
            path: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|errno| match errno {
            rustix::io::Errno::WOULDBLOCK => SequenceError::Locked(path.clone()),
            errno => io(errno.into()),
        })?;
        let mut text = Vec::new();
        file.by_ref().take(256).read_to_end(&mut text).map_err(io)?;
        let last = last(&text, boot_id).unwrap_or(host::uptime_ns() / 1_000_000);
        Ok(Self {
            file,
            path,
            boot_id: boot_id.to_owned(),
            last,
        })
    }

    /// The next poll's number.
    pub fn advance(&mut self) -> Result<u64, SequenceError> {
        let next = self.last + 1;
        let text = state(&self.boot_id, next);
        self.file
            .write_all_at(text.as_bytes(), 0)
            .map_err(|source| SequenceError::Io {
                path: self.path.clone(),
                source,
            })?;
        self.last = next;
        Ok(next)
    }
}

/// The number for a poll that no directory belongs to.
pub fn of_single_poll() -> u64 {
    host::uptime_ns()
}

/// The file's content: always of the same length, so that writing over it needs no truncation.
fn state(boot_id: &str, sequence: u64) -> String {
    format!("{boot_id} {sequence:020}\n")
}

/// The last number used in this boot, if the file says so.
fn last(text: &[u8], boot_id: &str) -> Option<u64> {
    let (boot, sequence) = std::str::from_utf8(text)
        .ok()?
        .strip_suffix('\n')?
        .split_once(' ')?;
    (boot == boot_id).then(|| sequence.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_rise_by_one_over_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Sequence::open(dir.path(), "h", "boot").unwrap();
        let (a, b) = (first.advance().unwrap(), first.advance().unwrap());
        drop(first);
        let c = Sequence::open(dir.path(), "h", "boot")
            .unwrap()
            .advance()
            .unwrap();
        assert_eq!((b, c), (a + 1, a + 2));
    }

    #[test]
    fn a_new_boot_or_a_damaged_file_starts_from_the_time_since_boot() {
        let dir = tempfile::tempdir().unwrap();
        for damage in [
            "",
            "boot",
            "other 00000000000000000007\n",
            "boot 7",
            "boot x\n",
        ] {
            std::fs::write(dir.path().join("h.state"), damage).unwrap();
            let uptime = host::uptime_ns() / 1_000_000;
            assert!(
                Sequence::open(dir.path(), "h", "boot")
                    .unwrap()
                    .advance()
                    .unwrap()
                    > uptime,
                "{damage:?}"
            );
        }
    }

    #[test]
    fn a_second_collector_of_the_host_is_refused_and_another_host_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Sequence::open(dir.path(), "h", "boot").unwrap();
        assert!(matches!(
            Sequence::open(dir.path(), "h", "boot"),
            Err(SequenceError::Locked(_))
        ));
        assert!(Sequence::open(dir.path(), "i", "boot").is_ok());
    }
}
