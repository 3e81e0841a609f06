//! Everything is removed, and the host is as it was.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::{Iter, MapCore, MapFlags, Object};
use serde::Serialize;

use super::error::{Result, failed, is_missing, plain};
use super::layout::{ALGORITHM_NAME, About};
use super::pins::{self, Places};
use super::program;
use super::status::in_first_flights;
use crate::bundle::Live;

/// Connections in their first flights have this long to have their cap lifted by the program itself: those of other
/// network namespaces, which the iterator does not see.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a withdrawal did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Withdrawn {
    /// There was something to remove.
    pub changed: bool,
    /// Open connections whose cap was lifted.
    pub lifted: u64,
    /// Open connections that got the host's congestion control back.
    pub restored: u64,
    /// What could not be done, though the program is gone.
    pub warnings: Vec<String>,
}

/// Removes program, maps and pins. Nobody would lift a start rate later, so caps are lifted first.
///
/// It may be repeated: what a killed one left is removed.
pub fn withdraw(places: &Places, live: Live) -> Result<Withdrawn> {
    let mut done = Withdrawn::default();
    if !places.pins.exists() {
        return Ok(done);
    }
    done.changed = true;
    let set = places.set();
    if let Err(error) = settle(&set, live, &mut done) {
        done.warnings.push(error.to_string());
    }
    if let Ok(Some(link)) = pins::link(&set) {
        // Another handle may hold the link: it ends here all the same.
        if let Err(error) = link.detach() {
            done.warnings.push(format!(
                "cannot detach the program: {}: its pin is removed all the same",
                plain(&error)
            ));
        }
    }
    pins::remove(&set)?;
    for path in pins::leftovers(places) {
        pins::remove(&path)?;
    }
    match fs::remove_dir(&places.pins) {
        Err(error) if !is_missing(&error) => Err(failed(
            "cannot remove",
            &places.pins,
            error,
            "remove it by hand",
        )),
        _ => Ok(done),
    }
}

/// No new connection is started with our values, and the open ones are put right.
fn settle(set: &Path, live: Live, done: &mut Withdrawn) -> Result<()> {
    if !pins::missing(set).is_empty() {
        return Ok(());
    }
    let about = pins::about(set)?;
    pins::set_about(
        set,
        &About {
            draining: 1,
            ..about
        },
    )?;
    // An empty slot is an error here and what is wanted.
    let _ = pins::map(set, "bundle")?.delete(&0u32.to_ne_bytes());
    let mut name = [0; ALGORITHM_NAME];
    if live == Live::Restore {
        let default = host_algorithm()?;
        let length = default.len().min(ALGORITHM_NAME - 1);
        name[..length].copy_from_slice(&default.as_bytes()[..length]);
    }
    let put_back = put_back(set, &name);
    if let Ok((lifted, restored)) = put_back {
        done.lifted = lifted;
        done.restored = restored;
    }
    // What the iterator has not reached, the program itself lifts at an acknowledgement: it stays so long in any case.
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline && in_first_flights(set)? > done.lifted {
        thread::sleep(Duration::from_millis(20));
    }
    put_back.map(drop)
}

fn host_algorithm() -> Result<String> {
    let path = Path::new("/proc/sys/net/ipv4/tcp_congestion_control");
    let text = fs::read_to_string(path)
        .map_err(|error| failed("cannot read", path, error, "is /proc mounted?"))?;
    Ok(text.trim().to_owned())
}

/// Runs the iterator over this network namespace's sockets; how many caps it lifted, how many algorithms it set.
fn put_back(set: &Path, algorithm: &[u8]) -> Result<(u64, u64)> {
    let starts = set.join("starts");
    let object = program::load_restore(&starts, algorithm)?;
    let wrong = |error: &libbpf_rs::Error| {
        failed(
            "cannot go through the sockets of",
            &starts,
            plain(error),
            "none was changed",
        )
    };
    let link = program::program(&object)?
        .attach()
        .map_err(|error| wrong(&error))?;
    let mut sockets = Iter::new(&link).map_err(|error| wrong(&error))?;
    sockets.read_to_end(&mut Vec::new()).map_err(|error| {
        failed(
            "cannot go through the sockets of",
            &starts,
            error,
            "some were not changed",
        )
    })?;
    Ok(counted(&object))
}

/// The iterator's two global variables.
fn counted(object: &Object) -> (u64, u64) {
    let bytes = object
        .maps()
        .find(|map| map.name().to_string_lossy().ends_with(".bss"))
        .and_then(|map| {
            map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
                .ok()
                .flatten()
        })
        .unwrap_or_default();
    let at = |from: usize| {
        bytes
            .get(from..from + 8)
            .and_then(|one| one.try_into().ok())
            .map_or(0, u64::from_ne_bytes)
    };
    (at(0), at(8))
}
