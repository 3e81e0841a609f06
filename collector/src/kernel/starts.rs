//! What connections started with: springtide-edge's eBPF program keeps it in each socket's storage, and a dump that names
//! the storage's map carries it.
//!
//! The map is pinned in a BPF file system. It comes, goes and is replaced while the collector runs: each poll looks with
//! one stat, and opens the map anew when another stands there.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::bpf::{self, MapInfo};
use super::inet_diag::{AttributeIter, attribute};

/// LAYOUT of edge/bpf/start.h, after which the directory of the pins is named, and the map's name there.
const LAYOUT: u8 = 1;
const PIN: &str = "v1/starts";

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

/// Where the map is pinned, and what is known of it.
#[derive(Debug)]
pub(crate) struct Pin {
    path: Option<PathBuf>,
    /// Device and inode of what was looked at last.
    seen: Option<(u64, u64)>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Nothing is pinned there.
    Absent,
    /// It can be asked for.
    Open { map: OwnedFd, id: u32 },
    /// It cannot, and why.
    Refused(String),
}

impl Pin {
    /// Of the program whose pins are in `directory`; empty for none at all.
    pub(crate) fn new(directory: &Path) -> Self {
        let wanted = !directory.as_os_str().is_empty();
        Self {
            path: wanted.then(|| directory.join(PIN)),
            seen: None,
            state: State::Absent,
        }
    }

    /// Looks what is pinned there now.
    pub(crate) fn look(&mut self) {
        let Some(path) = &self.path else {
            return;
        };
        let found = match fs::metadata(path) {
            Ok(found) => (found.dev(), found.ino()),
            Err(error) => {
                self.seen = None;
                let absent = matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                );
                self.state = match absent {
                    true => State::Absent,
                    false => State::Refused(hinted(&error)),
                };
                return;
            }
        };
        if self.seen == Some(found) {
            return;
        }
        self.seen = Some(found);
        self.state = match open(path) {
            Ok((map, id)) => State::Open { map, id },
            Err(why) => State::Refused(why),
        };
    }

    /// The kernel refused a dump that asked for it: it is not asked again until another map is pinned.
    pub(crate) fn refuse(&mut self, error: &io::Error) {
        self.state = State::Refused(hinted(error));
    }

    /// The map, to ask for.
    pub(crate) fn map(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Open { map, .. } => Some(map.as_fd()),
            _ => None,
        }
    }

    /// The kernel's number of the map.
    pub(crate) fn id(&self) -> Option<u32> {
        match self.state {
            State::Open { id, .. } => Some(id),
            _ => None,
        }
    }

    /// Why what may be there cannot be read.
    pub(crate) fn refusal(&self) -> Option<String> {
        match (&self.path, &self.state) {
            (Some(path), State::Refused(why)) => Some(format!("{}: {why}", path.display())),
            _ => None,
        }
    }
}

/// With what is missing, where that is a right.
fn hinted(error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (that needs CAP_BPF, and CAP_DAC_READ_SEARCH for a user other than root)"
        }
        _ => "",
    };
    format!("{error}{hint}")
}

/// Opens the map, if it is one that the collector can read.
fn open(path: &Path) -> Result<(OwnedFd, u32), String> {
    let map = bpf::open_pinned(path).map_err(|error| hinted(&error))?;
    let info = bpf::map_info(&map).map_err(|error| hinted(&error))?;
    check(&info)?;
    Ok((map, info.id))
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
    fn where_nothing_is_pinned_nothing_is_asked_for_and_nothing_said() {
        let directory = tempfile::tempdir().unwrap();
        for path in [
            PathBuf::new(),
            directory.path().to_owned(),
            directory.path().join("none"),
        ] {
            let mut pin = Pin::new(&path);
            pin.look();
            assert!(pin.map().is_none() && pin.refusal().is_none(), "{path:?}");
        }
    }

    #[test]
    fn what_is_no_map_is_refused_until_it_has_gone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(PIN);
        fs::create_dir(file.parent().unwrap()).unwrap();
        fs::write(&file, "").unwrap();
        let mut pin = Pin::new(directory.path());
        pin.look();
        let why = pin.refusal().unwrap();
        assert!(why.starts_with(&*file.to_string_lossy()), "{why}");
        fs::remove_file(&file).unwrap();
        pin.look();
        assert_eq!(pin.refusal(), None);
    }

    #[test]
    fn another_kind_of_map_or_value_is_not_asked_for() {
        let right = MapInfo {
            kind: SK_STORAGE,
            id: 7,
            key_size: 4,
            value_size: 32,
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
