//! State of the program: what is loaded, what it has done, and what is not as it was left.

use std::fmt;
use std::path::Path;

use ipnet::IpNet;
use libbpf_rs::{MapCore, MapFlags};
use serde::{Serialize, Serializer};
use zerocopy::FromBytes;

use super::copies;
use super::error::{Result, failed, plain};
use super::others::others;
use super::pins::{self, Places};
use super::prefixes::net_of;
use super::totals::{self, Totals};
use crate::clock;
use springtide_core::layout::{PERIOD_NS, PERIODS, Prefix, Settings, State};

/// Something is not as it was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Drift {
    /// The link's pin is gone.
    LinkGone,
    /// The link is on no cgroup, or on another one: it was detached, or the cgroup was removed.
    Detached,
    /// The link carries a program that is not ours.
    OtherProgram,
    /// A map's pin is gone.
    MapGone(&'static str),
    /// Segments are to be sent twice, and the program that does it is on no device; or the other way round.
    Copies,
    /// An application, or an upgrade, was interrupted.
    Unfinished,
    /// The rest of a step that was interrupted, or of another version.
    Leftover(String),
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkGone => f.write_str("the program's link is gone"),
            Self::Detached => {
                f.write_str("the program is not on the cgroup: detached, or the cgroup was removed")
            }
            Self::OtherProgram => f.write_str("the link carries another program"),
            Self::MapGone(name) => write!(f, "the map {name} is gone"),
            Self::Copies => {
                f.write_str("the program that sends segments twice is not as the bundle says")
            }
            Self::Unfinished => f.write_str("an application was interrupted"),
            Self::Leftover(name) => write!(f, "{name} was left by a step that was interrupted"),
        }
    }
}

impl Serialize for Drift {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Success of one arm of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArmStatus {
    /// Connections with our values.
    pub started: u64,
    /// Left at the kernel's default by the trial or the brake.
    pub untreated: u64,
    /// Sent more than the kernel's first window.
    pub exposed: u64,
    /// The exposed ones that lost in their first flights.
    pub lost: u64,
    /// 0 as the bundle says, 1 half of it, 2 the kernel's default.
    pub brake_step: u32,
}

/// A prefix that has seen connections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryStatus {
    /// The entry's destinations.
    pub prefix: IpNet,
    /// With the entry's values.
    pub entry: ArmStatus,
    /// With the trial's.
    pub trial: ArmStatus,
    /// Connections in their first flights.
    pub in_first_flights: u32,
    /// Switches of congestion control.
    pub switched: u64,
    /// Values that the kernel refused.
    pub refused: u64,
    /// Left alone because their SYN was sent again.
    pub late: u64,
    /// Steps of the brake, of all bundles.
    pub braked: u64,
    /// Times that it was taken back, as the kernel's default lost as much; of all bundles.
    pub excused: u64,
}

/// State in force, without what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// There are pins of this version.
    pub loaded: bool,
    /// Whether new connections meet the program.
    pub attached: bool,
    /// Counts applications since the program was loaded; 0 before the first.
    pub generation: u64,
    /// The bundle's round.
    pub round: i64,
    /// SHA-256 of the bundle's digest, hexadecimal.
    pub bundle: String,
    /// When it was applied, seconds since the epoch.
    pub applied_at: i64,
    /// When it stops to count.
    pub expires_at: i64,
    /// By the program's own clock, it is past its time.
    pub expired: bool,
    /// Entries in force.
    pub entries: u32,
    /// Excluded networks.
    pub excluded: u32,
    /// Ids of other sockops programs that see the same connections, on its cgroup or above.
    pub others: Vec<u32>,
    /// Numbers of the devices at which segments are sent twice.
    pub copying_devices: Vec<u32>,
    /// Differences from how it was left; empty where there are none.
    pub drift: Vec<Drift>,
}

/// State of the program, and what it has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Status {
    /// State in force.
    #[serde(flatten)]
    pub condition: Condition,
    /// Counters of the whole program.
    pub totals: Totals,
    /// Prefixes that it knows, because they have seen connections.
    pub prefixes_known: usize,
    /// Prefixes that it can know; further ones are left alone.
    pub prefixes_limit: u32,
    /// Prefixes that have seen connections, sorted.
    pub prefixes: Vec<EntryStatus>,
}

/// Reads everything and changes nothing.
pub fn status(places: &Places) -> Result<Status> {
    let set = places.set();
    let condition = condition(places)?;
    let mut found = Status::default();
    if condition.loaded {
        let missing = pins::missing(&set);
        if !missing.contains(&"totals") {
            found.totals = totals::read(&set)?;
        }
        if !missing.contains(&"opted_out") {
            found.totals.opted_out = totals::opted_out(&set)?;
        }
        if !missing.contains(&"states") {
            let states = states(&set)?;
            found.prefixes_known = states.len();
            found.prefixes_limit = pins::map(&set, "states")?.max_entries();
            found.prefixes = prefixes(&states, condition.round);
        }
    }
    Ok(Status { condition, ..found })
}

/// Whether somebody ended it as a withdrawal does, though perhaps not to the end: the pins are gone, or no new connection
/// is to be started. A program that was only detached is not meant, nor one of another version: that is drift.
pub fn is_taken_away(places: &Places) -> bool {
    match pins::about(&places.set()) {
        Ok(about) => about.draining > 0,
        Err(_) => !pins::has_another_layout(places),
    }
}

/// Reads what a pass of repair needs, whose cost does not grow with the prefixes that have seen connections.
pub fn condition(places: &Places) -> Result<Condition> {
    let set = places.set();
    let mut found = Condition {
        loaded: set.exists(),
        ..Condition::default()
    };
    found
        .drift
        .extend(pins::leftovers(places).iter().map(|path| {
            Drift::Leftover(
                path.file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
            )
        }));
    if !found.loaded {
        return Ok(found);
    }
    let missing = pins::missing(&set);
    found
        .drift
        .extend(missing.iter().map(|name| Drift::MapGone(name)));
    if !missing.contains(&"about") {
        about(&set, places, &mut found)?;
    }
    Ok(found)
}

fn about(set: &Path, places: &Places, found: &mut Condition) -> Result<()> {
    let about = pins::about(set)?;
    found.generation = about.generation;
    found.round = about.round;
    found.bundle = about
        .digest
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    found.applied_at = about.applied_at;
    found.expires_at = about.expires_at;
    found.entries = about.entries;
    found.excluded = about.excluded;
    found.others = others(places, &about).unwrap_or_default();
    found.copying_devices = copies::devices(set);
    let settings = settings(set, about.slot);
    let late = settings.map(|found| clock::boot_ns() >= found.deadline_ns);
    found.expired = about.generation > 0 && late.unwrap_or(clock::second().0 >= about.expires_at);
    let copies = settings.is_some_and(|found| found.copies_permille > 0);
    if copies == found.copying_devices.is_empty() {
        found.drift.push(Drift::Copies);
    }
    match pins::link(set)? {
        None => found.drift.push(Drift::LinkGone),
        Some(link) if !pins::is_on(&link, places) => found.drift.push(Drift::Detached),
        Some(link) if !pins::is_ours(Some(&link), &about) => found.drift.push(Drift::OtherProgram),
        Some(_) => found.attached = true,
    }
    if about.pending != about.slot
        || about.object == [0; 32]
        || about.draining > 0
        || set.join("link-new").exists()
    {
        found.drift.push(Drift::Unfinished);
    }
    Ok(())
}

/// Settings of the bundle in force; None where they cannot be read.
fn settings(set: &Path, slot: u32) -> Option<Settings> {
    let map = pins::map(set, "settings").ok()?;
    let bytes = map.lookup(&slot.to_ne_bytes(), MapFlags::ANY).ok()??;
    Settings::read_from_bytes(&bytes).ok()
}

fn states(set: &Path) -> Result<Vec<(Prefix, State)>> {
    let map = pins::map(set, "states")?;
    let mut found = Vec::new();
    for key in map.keys() {
        // A key may go between the two calls.
        let value = map.lookup(&key, MapFlags::ANY).map_err(|error| {
            failed(
                "cannot read",
                &set.join("states"),
                plain(&error),
                "ask again",
            )
        })?;
        let prefix = Prefix::read_from_bytes(&key).ok();
        let state = value.and_then(|bytes| State::read_from_bytes(&bytes).ok());
        found.extend(prefix.zip(state));
    }
    Ok(found)
}

/// Connections of the periods that count now, by the program's own clock.
fn live(state: &State) -> u32 {
    let period = u32::try_from(clock::monotonic_ns() / PERIOD_NS)
        .unwrap_or(u32::MAX)
        .saturating_add(1 + PERIODS as u32);
    state
        .flights
        .iter()
        .filter(|one| period.wrapping_sub(one.period) < PERIODS as u32)
        .map(|one| one.live)
        .sum()
}

/// `round`: of the bundle in force; another round's brake begins anew at the next connection.
fn arm(state: &State, arm: usize, round: i64) -> ArmStatus {
    ArmStatus {
        started: state.started[arm],
        untreated: state.untreated[arm],
        exposed: state.exposed[arm],
        lost: state.lost[arm],
        brake_step: if state.round == round {
            state.brakes[arm].step
        } else {
            0
        },
    }
}

fn prefixes(states: &[(Prefix, State)], round: i64) -> Vec<EntryStatus> {
    let mut found: Vec<EntryStatus> = states
        .iter()
        .filter_map(|(prefix, state)| {
            Some(EntryStatus {
                prefix: net_of(prefix)?,
                entry: arm(state, 0, round),
                trial: arm(state, 1, round),
                in_first_flights: live(state),
                switched: state.switched,
                refused: state.refused,
                late: state.late,
                braked: state.braked,
                excused: state.excused,
            })
        })
        .collect();
    found.sort_by_key(|one| one.prefix);
    found
}
