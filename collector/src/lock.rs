//! One process for a file or directory.

use std::os::fd::AsFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Time that a holder may take to go: a predecessor that is ending, or a child that it has forked
/// and that has not yet become another program, which holds the lock with it for a moment.
const PATIENCE: Duration = Duration::from_secs(2);

/// Takes the exclusive lock, which goes with the file's descriptor. `WOULDBLOCK` when another process keeps it.
pub(crate) fn exclusive(file: impl AsFd) -> Result<(), Errno> {
    let start = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if start.elapsed() < PATIENCE => {
                sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}
