//! A file that is replaced as a whole, by a thread of its own: a disk that hangs holds nothing up.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread;
use std::time::Duration;

use crate::text::reason;

/// Makes the file's content, from how often it was missed.
type Content = Box<dyn FnOnce(u64) -> String + Send>;

/// See the module.
pub(crate) struct TextFile {
    contents: SyncSender<Content>,
    done: Receiver<()>,
    missed: Arc<AtomicU64>,
}

impl TextFile {
    /// `complain` gets why the file cannot be written, once until it can be again.
    pub(crate) fn new(path: PathBuf, complain: impl Fn(&str) + Send + 'static) -> Self {
        let (contents, waiting) = mpsc::sync_channel::<Content>(1);
        let (tell, done) = mpsc::sync_channel(1);
        let missed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&missed);
        // Without a thread the channel is closed, and every file missed.
        let _ = thread::Builder::new().spawn(move || {
            let mut said = false;
            for content in waiting {
                let text = content(count.load(Ordering::Relaxed));
                match replace(&path, &text) {
                    Ok(()) => said = false,
                    Err(error) => {
                        count.fetch_add(1, Ordering::Relaxed);
                        if !said {
                            let why = reason(&error);
                            let path = path.display();
                            complain(&format!(
                                "{path}: cannot be written: {why}; it goes on without"
                            ));
                        }
                        said = true;
                    }
                }
                let _ = tell.try_send(());
            }
        });
        Self {
            contents,
            done,
            missed,
        }
    }

    /// Has it written, and waits for nothing. Where the last one is still being written, this one is missed.
    pub(crate) fn put(&self, content: impl FnOnce(u64) -> String + Send + 'static) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.contents.try_send(Box::new(content))
        {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until the last one is written, but not forever.
    pub(crate) fn finish(self, patience: Duration) {
        drop(self.contents);
        let _ = self.done.recv_timeout(patience);
    }
}

/// node_exporter is another user, and nothing in it is secret.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = path.with_file_name(format!(".{name}.{}", std::process::id()));
    // Writers of the directory may have put a link or a pipe there: only a new file is opened.
    let _ = fs::remove_file(&new);
    let mut options = OpenOptions::new();
    let done = options
        .write(true)
        .create_new(true)
        .open(&new)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.set_permissions(Permissions::from_mode(0o644))
        })
        .and_then(|()| fs::rename(&new, path));
    done.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_hangs_holds_nothing_up_and_what_was_missed_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edge.prom");
        let file = TextFile::new(path.clone(), |_| {});
        let (go_on, hangs) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        file.put(move |_| {
            begun.send(()).unwrap();
            hangs.recv().unwrap();
            "first".to_owned()
        });
        begins.recv().unwrap();
        // One waits, two find no room.
        for _ in 0..3 {
            file.put(|missed| format!("{missed} missed"));
        }
        go_on.send(()).unwrap();
        let TextFile {
            contents,
            done,
            missed: _,
        } = file;
        drop(contents);
        while done.recv().is_ok() {}
        assert_eq!(fs::read_to_string(&path).unwrap(), "2 missed");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_stands_in_the_place_of_the_new_file_is_neither_written_to_nor_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (path, others) = (folder.path().join("edge.prom"), folder.path().join("key"));
        let new = folder
            .path()
            .join(format!(".edge.prom.{}", std::process::id()));
        fs::write(&others, "secret").unwrap();
        std::os::unix::fs::symlink(&others, &new).unwrap();
        replace(&path, "first").unwrap();
        assert_eq!(fs::read_to_string(&others).unwrap(), "secret");
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &new, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        replace(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    }

    #[test]
    fn what_cannot_be_written_is_said_once_until_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        let (said, complaints) = mpsc::channel();
        let file = TextFile::new(absent.join("edge.prom"), move |text| {
            said.send(text.to_owned()).unwrap();
        });
        let put = || {
            file.put(|missed| missed.to_string());
            file.done.recv().unwrap();
        };
        put();
        put();
        fs::create_dir(&absent).unwrap();
        put();
        assert_eq!(fs::read_to_string(absent.join("edge.prom")).unwrap(), "2");
        fs::remove_dir_all(&absent).unwrap();
        put();
        drop(file);
        assert_eq!(complaints.iter().count(), 2);
    }
}
