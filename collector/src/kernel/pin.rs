//! A map that springtide-edge's eBPF program keeps pinned in a BPF file system.
//!
//! It comes, goes and is replaced while the collector runs: each poll looks with one stat, and opens the map anew when another
//! stands there.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use springtide_core::layout::LAYOUT;

/// A map that can be pinned there.
pub(crate) trait Pinned: Sized {
    /// The name of the pin.
    const NAME: &'static str;

    /// Opens it, if it is one that the collector can read; else why not.
    fn open(path: &Path) -> Result<Self, String>;
}

/// The directory of the pins, which is named after what the program leaves for readers.
fn set() -> String {
    format!("v{LAYOUT}")
}

/// Where a map is pinned, and what is known of it.
#[derive(Debug)]
pub(crate) struct Pin<T> {
    path: Option<PathBuf>,
    /// Device and inode of what was looked at last.
    seen: Option<(u64, u64)>,
    state: State<T>,
}

#[derive(Debug)]
enum State<T> {
    /// Nothing is pinned there.
    Absent,
    /// It can be read.
    Open(T),
    /// It cannot, and why.
    Refused(String),
}

impl<T: Pinned> Pin<T> {
    /// A pin of the program whose pins are in `directory`; empty for none at all.
    pub(crate) fn new(directory: &Path) -> Self {
        let wanted = !directory.as_os_str().is_empty();
        Self {
            path: wanted.then(|| directory.join(set()).join(T::NAME)),
            seen: None,
            state: State::Absent,
        }
    }

    /// Looks what is pinned there now. Whether it is another than before.
    pub(crate) fn look(&mut self) -> bool {
        let Some(path) = &self.path else {
            return false;
        };
        let found = match fs::metadata(path) {
            Ok(found) => (found.dev(), found.ino()),
            Err(error) => {
                let absent = matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                );
                self.state = match absent {
                    true => State::Absent,
                    false => State::Refused(hinted(&error)),
                };
                return self.seen.take().is_some();
            }
        };
        if self.seen == Some(found) {
            return false;
        }
        self.seen = Some(found);
        self.state = match T::open(path) {
            Ok(map) => State::Open(map),
            Err(why) => State::Refused(why),
        };
        true
    }

    /// The kernel refused what was asked of it: it is not asked again until another map is pinned.
    pub(crate) fn refuse(&mut self, error: &io::Error) {
        self.state = State::Refused(hinted(error));
    }

    /// The pinned map, where it can be read.
    pub(crate) fn get(&self) -> Option<&T> {
        match &self.state {
            State::Open(map) => Some(map),
            _ => None,
        }
    }

    /// As [`get`](Self::get).
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        match &mut self.state {
            State::Open(map) => Some(map),
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
pub(crate) fn hinted(error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            " (that needs CAP_BPF, and CAP_DAC_READ_SEARCH for a user other than root)"
        }
        _ => "",
    };
    format!("{error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File;

    impl Pinned for File {
        const NAME: &'static str = "starts";

        fn open(path: &Path) -> Result<Self, String> {
            match fs::read(path).is_ok_and(|text| text == b"right") {
                true => Ok(Self),
                false => Err("it is something else".into()),
            }
        }
    }

    #[test]
    fn where_nothing_is_pinned_nothing_is_read_and_nothing_said() {
        let directory = tempfile::tempdir().unwrap();
        for path in [
            PathBuf::new(),
            directory.path().to_owned(),
            directory.path().join("none"),
        ] {
            let mut pin = Pin::<File>::new(&path);
            assert!(!pin.look());
            assert!(pin.get().is_none() && pin.refusal().is_none(), "{path:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_until_it_has_gone_or_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(set()).join(File::NAME);
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, "wrong").unwrap();
        let mut pin = Pin::<File>::new(directory.path());
        assert!(pin.look() && !pin.look());
        let why = pin.refusal().unwrap();
        assert!(why.starts_with(&*path.to_string_lossy()), "{why}");
        let other = path.with_file_name("other");
        fs::write(&other, "right").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(pin.look() && pin.get().is_some() && pin.refusal().is_none());
        fs::remove_file(&path).unwrap();
        assert!(pin.look() && pin.get().is_none() && pin.refusal().is_none());
    }
}
