//! Everything is removed, and the host is as it was.

use std::fs;
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::copies;
use super::error::{Result, failed, is_missing, plain};
use super::pins::{self, LINK, Places};
use super::put_back::put_back;
use super::totals;
use crate::bundle::Live;
use springtide_core::layout::ALGORITHM_NAME;

/// Connections in their first flights have this long to have their cap lifted by the program itself: those that the iterator
/// does not reach.
const PATIENCE: Duration = Duration::from_secs(1);

/// Effect of a withdrawal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Withdrawn {
    /// There was something to remove.
    pub changed: bool,
    /// Open connections whose cap was lifted.
    pub lifted: u64,
    /// Open connections that got the host's congestion control back.
    pub restored: u64,
    /// Steps that failed, though the program is gone.
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
    // A link in its place would have what it leads to removed.
    pins::check_owner(&places.pins)?;
    done.changed = pins::stands(places);
    let mut sets = vec![places.set()];
    sets.extend(pins::leftovers(places));
    for set in &sets {
        settle(set, &places.cgroup, live, &mut done);
        copies::detach(set);
        if let Ok(Some(link)) = pins::link(set) {
            // Another handle may hold the link: it ends here all the same.
            if let Err(error) = link.detach() {
                done.warnings.push(format!(
                    "cannot detach the program: {}: its pin is removed all the same",
                    plain(&error)
                ));
            }
        }
        pins::remove(set)?;
    }
    match fs::remove_dir(&places.pins) {
        // Files that are not ours stay, and the directory with them.
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(done),
        Err(error) if !is_missing(&error) => Err(failed(
            "cannot remove",
            &places.pins,
            error,
            "remove it by hand",
        )),
        _ => Ok(done),
    }
}

/// The caps of what other sets have started, before their pins are removed; what could not be done.
pub(super) fn settle_leftovers(places: &Places) -> Vec<String> {
    let mut done = Withdrawn::default();
    for set in pins::leftovers(places) {
        settle(&set, &places.cgroup, Live::Leave, &mut done);
    }
    done.warnings
}

/// Stops a set's program from starting more, and puts open connections right. Needs two of its pins: `about`, for the
/// program to lift caps at acknowledgements, and `starts`, for connections that get none. Makes do with one of them,
/// and with none while the program is attached.
fn settle(set: &Path, cgroup: &Path, live: Live, done: &mut Withdrawn) {
    pins::pin_again(set);
    let has = |name: &str| set.join(name).exists();
    if !has("about") && !has("starts") {
        if has(LINK) {
            let why = "its maps `about` and `starts` are gone: what it has started may keep a cap";
            done.warnings.push(format!("{}: {why}", set.display()));
        }
        return;
    }
    let mut wrong = Vec::new();
    if has("about") {
        wrong.extend(pins::drain(set).err());
    }
    let (lifted_before, mut unreached) = (done.lifted, None);
    if has("starts") {
        match algorithm(live).and_then(|name| put_back(set, cgroup, &name)) {
            Ok(found) => {
                done.lifted += found.lifted;
                done.restored += found.restored;
                unreached = Some(found.closed);
            }
            Err(error) => wrong.push(error),
        }
    }
    // The program itself lifts the caps that the iterator has not reached, at an acknowledgement:
    // it stays so long in any case.
    let lifted = done.lifted - lifted_before;
    let left = || has("totals").then(|| left(set, lifted)).flatten();
    let deadline = Instant::now() + PATIENCE;
    while has(LINK) && Instant::now() < deadline && left() != Some(0) {
        thread::sleep(Duration::from_millis(20));
    }
    done.warnings.extend(wrong.iter().map(ToString::to_string));
    done.warnings.extend(kept(set, left(), unreached));
}

/// Caps that were set and neither lifted, by the program or by the iterator (`by_iterator`), nor closed with their
/// connection; None where it cannot be known. Connections that closed while the program was not attached still count.
fn left(set: &Path, by_iterator: u64) -> Option<u64> {
    if !pins::is_of_this_layout(set) {
        return None;
    }
    let found = totals::read(set).ok()?;
    Some(found.caps.saturating_sub(found.caps_ended + by_iterator))
}

/// Warning about connections that keep a cap, or may. `unreached`: network namespaces that the
/// iterator could not enter, or None where it did not run.
fn kept(set: &Path, left: Option<u64>, unreached: Option<usize>) -> Option<String> {
    let how_many = match left {
        Some(0) => return None,
        None if unreached == Some(0) || !set.join(LINK).exists() => return None,
        Some(left) => format!("at most {left}"),
        None => "silent".to_owned(),
    };
    let why = match unreached {
        None => "nobody has gone through the sockets".to_owned(),
        Some(0) => "none of theirs was found".to_owned(),
        Some(count) => format!("{count} network namespaces cannot be entered (CAP_SYS_ADMIN)"),
    };
    let set = set.display();
    Some(format!("{set}: {how_many} connections keep a cap: {why}"))
}

/// Algorithm that switched connections get; empty leaves them alone.
fn algorithm(live: Live) -> Result<[u8; ALGORITHM_NAME]> {
    let mut name = [0; ALGORITHM_NAME];
    if live == Live::Restore {
        let default = host_algorithm()?;
        let length = default.len().min(ALGORITHM_NAME - 1);
        name[..length].copy_from_slice(&default.as_bytes()[..length]);
    }
    Ok(name)
}

fn host_algorithm() -> Result<String> {
    let path = Path::new("/proc/sys/net/ipv4/tcp_congestion_control");
    let text = fs::read_to_string(path)
        .map_err(|error| failed("cannot read", path, error, "is /proc mounted?"))?;
    Ok(text.trim().to_owned())
}
