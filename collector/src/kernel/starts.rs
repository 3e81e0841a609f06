//! What connections started with: springtide-edge's eBPF program keeps it in each socket's storage, and a dump that names
//! the storage's map carries it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use super::bpf::{self, Access, MapInfo};
use super::inet_diag::{AttributeIter, attribute};
use super::pin::{LAYOUT, Pinned, hinted};

/// BPF_MAP_TYPE_SK_STORAGE.
const SK_STORAGE: u32 = 24;

/// The first bytes of struct start of edge/bpf/start.h, which are for readers: round, window, rate, arm, step, flags, layout.
pub(crate) const LEN: usize = 20;
const ARM: usize = 16;
const STEP: usize = 17;
const LAYOUT_AT: usize = 19;

/// Sizes of a value that are taken: all that readers need is there, and a dump's message stays far below its buffer.
const VALUE_SIZES: std::ops::RangeInclusive<u32> = 32..=1024;

/// What one connection started with, as the program wrote it.
pub(crate) type Start = [u8; LEN];

/// Whether a socket's storage says what it started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It does not: the socket is older than the program, or no entry matches it.
    Nothing,
    /// It does.
    Start(Start),
    /// There is something that cannot be such values.
    Unreadable,
}

/// Reads INET_DIAG_SK_BPF_STORAGES: the storage that belongs to the map with this number.
pub(crate) fn find(attribute: &[u8], map: u32) -> Found {
    for storage in AttributeIter::new(attribute) {
        let Ok(storage) = storage else {
            return Found::Unreadable;
        };
        let id = storage.nested(attribute::STORAGE_MAP_ID);
        if storage.kind != attribute::STORAGE || id != Some(&map.to_ne_bytes()[..]) {
            continue;
        }
        let value = storage.nested(attribute::STORAGE_MAP_VALUE);
        return match value.and_then(<[u8]>::first_chunk) {
            Some(value) => read(value),
            None => Found::Unreadable,
        };
    }
    Found::Nothing
}

/// A value is taken whole or not at all.
fn read(value: &Start) -> Found {
    // The kernel makes a value of zeros, which the program is filling.
    if value[LAYOUT_AT] == 0 {
        return Found::Nothing;
    }
    let round = value
        .first_chunk()
        .map_or(-1, |bytes| i64::from_ne_bytes(*bytes));
    let window = value[8..]
        .first_chunk()
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    let known = value[LAYOUT_AT] == LAYOUT
        && u32::try_from(round).is_ok()
        && u16::try_from(window).is_ok()
        && value[ARM] <= 1
        && value[STEP] <= 2;
    if known {
        Found::Start(*value)
    } else {
        Found::Unreadable
    }
}

/// The map in whose storages start values stand.
#[derive(Debug)]
pub(crate) struct Starts {
    map: OwnedFd,
    id: u32,
}

impl Starts {
    /// The kernel's number of the map.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

impl AsFd for Starts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl Pinned for Starts {
    const NAME: &'static str = "starts";

    fn open(path: &Path) -> Result<Self, String> {
        let map = bpf::open_pinned(path, Access::Read).map_err(|error| hinted(&error))?;
        let info = bpf::map_info(&map).map_err(|error| hinted(&error))?;
        check(&info)?;
        Ok(Self { map, id: info.id })
    }
}

fn check(info: &MapInfo) -> Result<(), String> {
    if info.kind != SK_STORAGE || info.key_size != 4 || !VALUE_SIZES.contains(&info.value_size) {
        return Err(format!(
            "it is not the map that this collector knows: type {}, keys of {} and values of {} bytes, not type {SK_STORAGE}, 4 and {} to {}",
            info.kind,
            info.key_size,
            info.value_size,
            VALUE_SIZES.start(),
            VALUE_SIZES.end()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_value_stand_where_the_program_writes_them() {
        let members = crate::kernel::flights::tests::members("start");
        let parts: Vec<_> = members[..7]
            .iter()
            .map(|(name, at, _)| (&**name, *at))
            .collect();
        let expected = [
            ("round", 0),
            ("window", 8),
            ("rate", 12),
            ("arm", ARM),
            ("step", STEP),
            ("flags", 18),
            ("layout", LAYOUT_AT),
        ];
        assert_eq!(parts, expected);
        assert_eq!(members[7].1, LEN);
    }

    #[test]
    fn another_kind_of_map_or_value_is_not_asked_for() {
        let right = MapInfo {
            kind: SK_STORAGE,
            id: 7,
            key_size: 4,
            value_size: 32,
            max_entries: 0,
        };
        assert_eq!(check(&right), Ok(()));
        let wrong = [
            MapInfo { kind: 1, ..right },
            MapInfo {
                key_size: 8,
                ..right
            },
            MapInfo {
                value_size: 31,
                ..right
            },
            MapInfo {
                value_size: 1025,
                ..right
            },
        ];
        assert!(wrong.iter().all(|info| check(info).is_err()));
    }
}
