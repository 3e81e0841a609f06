//! Start values of connections: springtide-edge's eBPF program keeps them in each socket's storage,
//! and a dump that names the storage's map carries them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use springtide_core::layout::{self, ARMS, LAYOUT, STEPS};
use zerocopy::FromBytes;

use super::bpf::{self, Access, MapInfo};
use super::inet_diag::{AttributeIter, attribute};
use super::pin::{Pinned, hinted};

/// BPF_MAP_TYPE_SK_STORAGE.
const SK_STORAGE: u32 = 24;

/// Bytes of a value.
const VALUE_SIZE: u32 = size_of::<layout::Start>() as u32;

/// Values that one connection started with, as the contract has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    pub(crate) round: u64,
    pub(crate) window: u32,
    pub(crate) rate: u32,
    pub(crate) arm: u32,
    pub(crate) step: u32,
    pub(crate) copied_segments: u32,
}

impl Start {
    /// Takes what the program has written; None where it cannot be such values.
    pub(crate) fn known(
        layout: u8,
        round: i64,
        (window, rate): (u32, u32),
        (arm, step): (u8, u8),
        copied_segments: u32,
    ) -> Option<Self> {
        let known = layout == LAYOUT
            && u16::try_from(window).is_ok()
            && usize::from(arm) < ARMS
            && usize::from(step) < STEPS;
        known.then_some(Self {
            round: u32::try_from(round).ok()?.into(),
            window,
            rate,
            arm: arm.into(),
            step: step.into(),
            copied_segments,
        })
    }
}

/// Whether a socket's storage says what it started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// It does not: the socket is older than the program, or is none that it watches.
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
        return value.map_or(Found::Unreadable, read);
    }
    Found::Nothing
}

/// A value is taken whole or not at all.
fn read(value: &[u8]) -> Found {
    let Ok(start) = layout::Start::read_from_bytes(value) else {
        return Found::Unreadable;
    };
    // The kernel makes a value of zeros, which the program is filling.
    if start.layout == 0 {
        return Found::Nothing;
    }
    let known = Start::known(
        start.layout,
        start.round,
        (start.window, start.rate),
        (start.arm, start.step),
        start.copied_segments,
    );
    known.map_or(Found::Unreadable, Found::Start)
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
    if (info.kind, info.key_size, info.value_size) != (SK_STORAGE, 4, VALUE_SIZE) {
        return Err(format!(
            "it is not the map that this collector knows: type {}, keys of {} and values of {} bytes, not type {SK_STORAGE}, 4 and {VALUE_SIZE}",
            info.kind, info.key_size, info.value_size,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kind_of_map_or_value_is_not_asked_for() {
        let right = MapInfo {
            kind: SK_STORAGE,
            id: 7,
            key_size: 4,
            value_size: VALUE_SIZE,
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
                value_size: VALUE_SIZE - 1,
                ..right
            },
        ];
        assert!(wrong.iter().all(|info| check(info).is_err()));
    }
}
