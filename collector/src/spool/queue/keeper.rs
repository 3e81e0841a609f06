//! Work that the reader must not wait for: syncing, removing and ageing segments, in a thread of
//! its own.

use std::fs;
use std::io;
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::Shared;
use crate::spool::{open_own, reading};

const TICK: Duration = Duration::from_secs(1);

/// Starts the thread. It ends when the queue has been closed or given up.
pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let weak = Arc::downgrade(shared);
    thread::Builder::new()
        .name("queue".to_owned())
        .spawn(move || while tick(&weak) {})?;
    Ok(())
}

fn tick(weak: &Weak<Shared>) -> bool {
    let Some(shared) = weak.upgrade() else {
        return false;
    };
    let state = shared.lock();
    if state.closing.is_some() {
        return false;
    }
    if state.doomed.is_empty() {
        let waited = shared.chores.wait_timeout(state, TICK);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    } else {
        drop(state);
    }
    // Nobody is left: what follows belongs to whoever opens the directory next.
    if Arc::strong_count(&shared) == 1 {
        return false;
    }
    let age = shared.limits().age;
    shared.lock().drop_aged(age, Instant::now());
    tidy(&shared, Some(TICK));
    true
}

/// Removes what nobody needs. Syncs what somebody needs: full segments once they stay for `settled`, or all.
pub(super) fn tidy(shared: &Shared, settled: Option<Duration>) {
    let mut state = shared.lock();
    let doomed = std::mem::take(&mut state.doomed);
    let due: Vec<_> = state
        .segments
        .iter()
        .filter(|segment| !segment.synced && segment.memory.is_none())
        .filter(|segment| {
            settled.is_none_or(|time| segment.sealed && segment.newest.elapsed() > time)
        })
        .map(|segment| segment.id)
        .collect();
    drop(state);
    for id in doomed {
        let path = shared.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                shared
                    .reporter
                    .complain(format!("{}: cannot remove it: {error}", path.display()));
            }
            _ => {}
        }
    }
    for id in due {
        let path = shared.path(id);
        match open_own(&reading(), &path).and_then(|file| file.sync_all()) {
            // Removed meanwhile, because every sink has passed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => shared.reporter.complain(format!(
                "{}: cannot sync it to disk: {error}",
                path.display()
            )),
            Ok(()) => {
                if let Some(segment) = shared
                    .lock()
                    .segments
                    .iter_mut()
                    .find(|segment| segment.id == id)
                {
                    segment.synced = segment.sealed;
                }
            }
        }
    }
}
