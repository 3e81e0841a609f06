//! The directory's files, its lock, and the mark beside it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::documents::{Claim, Intent, SCHEMA_VERSION, State, Withdrawn};
use super::whole::{Identity, found, replace};
use crate::error::{Error, Result};
use crate::files::read_regular;
use crate::text::{hex, reason};

/// 100,000 routes with many hops each, wanted and refused.
const MAX_STATE_BYTES: usize = 256 * 1024 * 1024;
const MAX_MARK_BYTES: usize = 64 * 1024;
const STATE: &str = "state.json";
const INTENT: &str = "intent.json";

/// The lock of a state directory, until it is dropped.
pub struct Lock(#[expect(dead_code, reason = "the lock goes with its descriptor")] File);

/// `lock`, `state.json` (what is applied), `intent.json` (while changing), `bundle-<digest>.json` (last good).
///
/// Beside it, in the run directory, the mark: that a withdrawal was asked for, and why. Memory that needs no disk, until the
/// next restart. [`Claim::withdrawal_seen`] is the mark that stood when that run began; any other mark came later, and
/// counts.
///
/// [`Store::check`] notices that another run has withdrawn the routes without waiting for the lock that this one holds:
/// that one leaves a mark, an intent or a state, whichever can still be written, and this one knows its own. The mark counts
/// from the beginning of the run, the files from when it has the lock.
pub struct Store {
    /// Where it is.
    pub directory: PathBuf,
    mark: PathBuf,
    expected: RefCell<BTreeMap<&'static str, Option<Identity>>>,
    expected_mark: Cell<Option<Identity>>,
    /// The mark that stood when this run began.
    pub withdrawal_seen: Option<String>,
}

impl Store {
    /// Reads the mark, and makes nothing.
    pub fn new(directory: &Path, run_dir: &Path) -> Self {
        let absolute = std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
        let name = &hex(&Sha256::digest(absolute.as_os_str().as_bytes()))[..16];
        let store = Self {
            directory: directory.to_owned(),
            mark: run_dir.join(format!("withdrawn-{name}.json")),
            expected: RefCell::default(),
            expected_mark: Cell::default(),
            withdrawal_seen: None,
        };
        store.expected_mark.set(found(&store.mark));
        store.expect_files();
        let (withdrawal_seen, _) = store.marked();
        Self {
            withdrawal_seen,
            ..store
        }
    }

    fn expect_files(&self) {
        let files = [STATE, INTENT].map(|name| (name, found(&self.directory.join(name))));
        *self.expected.borrow_mut() = files.into();
    }

    fn expect(&self, name: &str, written: Option<Identity>) {
        if let Some(known) = self.expected.borrow_mut().get_mut(name) {
            *known = written;
        }
    }

    /// Whether nothing may be put back any more.
    ///
    /// # Errors
    ///
    /// [`Error::Withdrawn`].
    pub fn check(&self) -> Result<()> {
        let same =
            |(name, known): (&&str, &Option<Identity>)| found(&self.directory.join(name)) == *known;
        if self.expected.borrow().iter().all(same) && found(&self.mark) == self.expected_mark.get()
        {
            return Ok(());
        }
        Err(Error::Withdrawn(
            "another run withdrew every route meanwhile".to_owned(),
        ))
    }

    /// Waits for the lock.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] (unusable directory) or [`Error::Failed`] (another run still has it).
    pub fn lock(&self, wait: Duration) -> Result<Lock> {
        let shown = self.directory.display();
        let file = self.open_lock().map_err(|error| {
            Error::refused(format!(
                "{shown}: {}; name another with --state-dir",
                reason(&error)
            ))
        })?;
        let begin = Instant::now();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK | Errno::INTR) if begin.elapsed() <= wait => {
                    sleep(Duration::from_millis(20))
                }
                Err(_) => {
                    let seconds = wait.as_secs();
                    return Err(Error::failed(format!(
                        "{shown}/lock: taken by another run for {seconds} s; wait for it, or see `fuser` on it"
                    )));
                }
            }
        }
        self.expect_files();
        Ok(Lock(file))
    }

    fn open_lock(&self) -> io::Result<File> {
        let path = self.directory.join("lock");
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let closed = |mode: &Permissions| mode.mode() & 0o7777 == 0o700;
        // Making what is there already waits for a disk that hangs.
        if fs::metadata(&self.directory).is_ok_and(|found| closed(&found.permissions()))
            && let Ok(file) = options.open(&path)
        {
            return Ok(file);
        }
        let make = || {
            DirBuilder::new()
                .mode(0o700)
                .recursive(true)
                .create(&self.directory)?;
            if !closed(&fs::metadata(&self.directory)?.permissions()) {
                fs::set_permissions(&self.directory, Permissions::from_mode(0o700))?;
            }
            options.clone().create(true).mode(0o600).open(&path)
        };
        // A disk that takes no writes any more: whoever only reads can hold the lock as well.
        make().or_else(|error| options.write(false).open(&path).map_err(|_| error))
    }

    /// All or nothing, on the disk when it returns.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let written = replace(&self.directory.join(name), content, true)?;
        self.expect(name, Some(written));
        self.sync()
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.directory)?.sync_all()
    }

    /// A line with the sha256 of the rest, so that damage is seen, then the document.
    fn save(&self, name: &str, document: &impl Serialize) -> io::Result<()> {
        let body = serde_json::to_vec(document)?;
        let mut content = hex(&Sha256::digest(&body)).into_bytes();
        content.push(b'\n');
        content.extend(body);
        self.write(name, &content)
    }

    /// Saves what is applied from now on.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn save_state(&self, state: &State) -> io::Result<()> {
        self.save(STATE, state)
    }

    /// Saves what this run is about to do.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn save_intent(&self, intent: &Intent) -> io::Result<()> {
        self.save(INTENT, intent)
    }

    fn load<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let path = self.directory.join(name);
        let damaged = |problem: &str| Error::Damaged(format!("{}: {problem}", path.display()));
        let content = match read_regular(&path, MAX_STATE_BYTES) {
            Ok((_, content)) => content,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                return Ok(None);
            }
            Err(error) => return Err(damaged(&reason(&error))),
        };
        let mut parts = content.splitn(2, |byte| *byte == b'\n');
        let (checksum, body) = (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        );
        if checksum != hex(&Sha256::digest(body)).as_bytes() {
            return Err(damaged("its checksum does not match its content"));
        }
        let document: serde_json::Value =
            serde_json::from_slice(body).map_err(|error| damaged(&error.to_string()))?;
        if document["schema_version"] != SCHEMA_VERSION {
            return Err(damaged("written by another version of this program"));
        }
        serde_json::from_value(document)
            .map(Some)
            .map_err(|error| damaged(&error.to_string()))
    }

    /// None when there is none.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn state(&self) -> Result<Option<State>> {
        self.load(STATE)
    }

    /// None when no run was interrupted.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`].
    pub fn intent(&self) -> Result<Option<Intent>> {
        self.load(INTENT)
    }

    /// Whether a run was interrupted.
    pub fn has_intent(&self) -> bool {
        self.directory.join(INTENT).exists()
    }

    /// The run has come to its end.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn remove_intent(&self) -> io::Result<()> {
        match fs::remove_file(self.directory.join(INTENT)) {
            Ok(()) => {
                self.expect(INTENT, None);
                self.sync()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// # Errors
    ///
    /// The system's.
    pub fn set_aside_state(&self) -> io::Result<()> {
        self.set_aside(STATE)
    }

    /// # Errors
    ///
    /// The system's.
    pub fn set_aside_intent(&self) -> io::Result<()> {
        self.set_aside(INTENT)
    }

    fn set_aside(&self, name: &str) -> io::Result<()> {
        let damaged = self.directory.join(format!("{name}.damaged"));
        match fs::rename(self.directory.join(name), damaged) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => {
                self.expect(name, None);
                other
            }
        }
    }

    /// Removes every bundle but one.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn keep_only(&self, bundle: &str) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let text = name.to_string_lossy();
            if text.starts_with("bundle-") && text.ends_with(".json") && text != bundle {
                fs::remove_file(self.directory.join(&name))?;
            }
        }
        Ok(())
    }

    /// Remembers in the run directory that everything is withdrawn; whether that is possible.
    pub fn mark(&self, at: &str, why: &str) -> bool {
        let mut by = [0; 8];
        let _ = rustix::rand::getrandom(&mut by, rustix::rand::GetRandomFlags::empty());
        let content = serde_json::json!({"at": at, "reason": why, "by": hex(&by)}).to_string();
        let written = self.mark.parent().map_or(Ok(()), |parent| {
            DirBuilder::new().mode(0o700).recursive(true).create(parent)
        });
        match written.and_then(|()| replace(&self.mark, content.as_bytes(), false)) {
            Ok(written) => {
                self.expected_mark.set(Some(written));
                true
            }
            Err(_) => false,
        }
    }

    /// Returns the mark that stands now, None without one, and what it says.
    pub fn marked(&self) -> (Option<String>, Option<Withdrawn>) {
        let Ok((_, content)) = read_regular(&self.mark, MAX_MARK_BYTES) else {
            return (None, None);
        };
        let unknown = || Withdrawn {
            at: "a time that is not known".to_owned(),
            reason: "withdrawn".to_owned(),
        };
        let words = serde_json::from_slice(&content).unwrap_or_else(|_| unknown());
        (
            Some(hex(&Sha256::digest(&content))[..16].to_owned()),
            Some(words),
        )
    }

    /// Why everything was withdrawn after a state or an intent was begun, where only the run directory remembers it.
    pub fn later_withdrawal(&self, claim: &Claim) -> Option<Withdrawn> {
        let (mark, words) = self.marked();
        words.filter(|_| mark.is_some() && mark != claim.withdrawal_seen)
    }
}
