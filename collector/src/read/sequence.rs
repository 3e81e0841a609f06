//! The number of the poll within the boot: never used twice, also over restarts of the collector.
//!
//! `run` keeps it in `<host>.state` in its spool directory, written before a poll's first row. It needs no fsync: only a
//! crash of the whole machine can lose it, and then the boot id changes too. Without such a file the first number is the
//! time since boot in milliseconds: a collector that polls less than a thousand times a second never counted that far.
//! While the file cannot be written, numbers go on from the time since boot in the same way: what was used meanwhile is
//! above all that a restart would use, for as long as the collector polls less than once a millisecond.
//! `once` has no directory and uses the time since boot in nanoseconds, far above every number of `run`; so does a run
//! that keeps nothing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::kernel::host;
use crate::lock;
use crate::spool::{is_outage, open_own, reading};

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SequenceError {
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

/// Numbers polls. Holds the host's lock on its directory as long as it lives.
pub(crate) struct Sequence {
    file: Option<File>,
    boot_id: String,
    last: u64,
    kept: bool,
}

impl Sequence {
    /// Opens or creates the state of `host` in `directory` and locks it.
    pub(crate) fn open(directory: &Path, host: &str, boot_id: &str) -> Result<Self, SequenceError> {
        let path = directory.join(format!("{host}.state"));
        let io = |source| SequenceError::Io {
            path: path.clone(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = match open_own(&options, &path) {
            Ok(file) => file,
            // A full or read-only disk must not keep the collector from running.
            Err(error) if is_outage(&error) => {
                return Ok(Self {
                    file: open_own(&reading(), &path).ok(),
                    boot_id: boot_id.to_owned(),
                    last: host::uptime_ns() / 1_000_000,
                    kept: false,
                });
            }
            Err(error) => return Err(io(error)),
        };
        lock::exclusive(&file).map_err(|errno| match errno {
            rustix::io::Errno::WOULDBLOCK => SequenceError::Locked(path.clone()),
            errno => io(errno.into()),
        })?;
        let mut text = Vec::new();
        file.by_ref().take(256).read_to_end(&mut text).map_err(io)?;
        Ok(Self {
            file: Some(file),
            boot_id: boot_id.to_owned(),
            last: last(&text, boot_id).unwrap_or(host::uptime_ns() / 1_000_000),
            kept: true,
        })
    }

    /// Numbers that no later run has to go on from.
    pub(crate) fn unkept() -> Self {
        Self {
            file: None,
            boot_id: String::new(),
            last: of_single_poll(),
            kept: false,
        }
    }

    /// The next poll's number.
    pub(crate) fn advance(&mut self) -> u64 {
        let next = self.last + 1;
        let kept = self.keep(next);
        self.last = if kept || !self.kept {
            next
        } else {
            next.max(host::uptime_ns() / 1_000_000)
        };
        self.kept = kept;
        self.last
    }

    /// Whether the last number is known to whoever comes next.
    pub(crate) fn kept(&self) -> bool {
        self.kept
    }

    fn keep(&self, number: u64) -> bool {
        let text = state(&self.boot_id, number);
        self.file
            .as_ref()
            .is_some_and(|file| file.write_all_at(text.as_bytes(), 0).is_ok())
    }
}

/// The number for a poll that no directory belongs to.
pub(crate) fn of_single_poll() -> u64 {
    host::uptime_ns()
}

/// The file's content: always of the same length, so that writing over it needs no truncation.
fn state(boot_id: &str, sequence: u64) -> String {
    format!("{boot_id} {sequence:020}\n")
}

/// The last number used in this boot, if the file has it.
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
        let (a, b) = (first.advance(), first.advance());
        drop(first);
        let c = Sequence::open(dir.path(), "h", "boot").unwrap().advance();
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
                Sequence::open(dir.path(), "h", "boot").unwrap().advance() > uptime,
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
