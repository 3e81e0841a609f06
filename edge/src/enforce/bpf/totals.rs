//! Counters of the program over all connections.

use std::path::Path;

use libbpf_rs::{MapCore, MapFlags};
use serde::Serialize;
use zerocopy::FromBytes;

use super::error::{Result, failed, plain};
use super::pins;
use springtide_core::layout::{TOTALS, Total};

/// Counters of the whole program since it was loaded, summed over the CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Connections with our window or rate.
    pub started: u64,
    /// Matched, and left at the kernel's default by the trial or the brake.
    pub untreated: u64,
    /// To excluded destinations.
    pub excluded: u64,
    /// With ports or addresses of this host that are left alone.
    pub opted_out: u64,
    /// Matched a bundle that is past its time.
    pub expired: u64,
    /// Left alone because their SYN was sent again.
    pub late: u64,
    /// The kernel refused the window.
    pub refused_window: u64,
    /// The kernel refused the rate.
    pub refused_rate: u64,
    /// The kernel refused the congestion control.
    pub refused_algorithm: u64,
    /// The application has set a rate of its own, which stays.
    pub own_rate: u64,
    /// No memory for a socket's storage: left alone.
    pub no_memory: u64,
    /// No room for a prefix's state: left alone.
    pub no_state: u64,
    /// Sent more than the kernel's first window because of us.
    pub exposed: u64,
    /// The exposed ones that lost in their first flights.
    pub lost: u64,
    /// Got another congestion control.
    pub switched: u64,
    /// Steps of brakes.
    pub braked: u64,
    /// Brakes that were taken back, as the kernel's default lost as much.
    pub excused: u64,
    /// Segments sent twice.
    pub copies: u64,
    /// Bytes of these.
    pub copied_bytes: u64,
    /// Copies that the budget or the kernel refused.
    pub copies_refused: u64,
    /// First-flight records written.
    pub records: u64,
    /// First-flight records that found no room.
    pub records_lost: u64,
    /// Rates that were set on connections as caps.
    pub caps: u64,
    /// Caps that were lifted, or whose connection closed.
    pub caps_ended: u64,
}

impl Totals {
    fn of(sums: [u64; TOTALS]) -> Self {
        let of = |which: Total| sums[which as usize];
        Self {
            started: of(Total::Started),
            untreated: of(Total::Untreated),
            excluded: of(Total::Excluded),
            opted_out: 0,
            expired: of(Total::Expired),
            late: of(Total::Late),
            refused_window: of(Total::RefusedWindow),
            refused_rate: of(Total::RefusedRate),
            refused_algorithm: of(Total::RefusedAlgorithm),
            own_rate: of(Total::OwnRate),
            no_memory: of(Total::NoMemory),
            no_state: of(Total::NoState),
            exposed: of(Total::Exposed),
            lost: of(Total::Lost),
            switched: of(Total::Switched),
            braked: of(Total::Braked),
            excused: of(Total::Excused),
            copies: of(Total::Copies),
            copied_bytes: of(Total::CopiedBytes),
            copies_refused: of(Total::CopiesRefused),
            records: of(Total::Records),
            records_lost: of(Total::RecordsLost),
            caps: of(Total::Caps),
            caps_ended: of(Total::CapsEnded),
        }
    }
}

/// All but `opted_out`, whose map is another one.
pub(super) fn read(set: &Path) -> Result<Totals> {
    let mut sums = [0; TOTALS];
    for (key, found) in (0u32..).zip(&mut sums) {
        *found = sum(set, "totals", key)?;
    }
    Ok(Totals::of(sums))
}

/// Connections of this host's ports and addresses that are left alone.
pub(super) fn opted_out(set: &Path) -> Result<u64> {
    sum(set, "opted_out", 0)
}

/// The sum over all CPUs.
fn sum(set: &Path, name: &str, key: u32) -> Result<u64> {
    let parts = pins::map(set, name)?
        .lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| failed("cannot read", &set.join(name), plain(&error), "ask again"))?;
    let numbers = parts
        .iter()
        .flatten()
        .filter_map(|part| u64::read_from_bytes(part).ok());
    Ok(numbers.sum())
}
