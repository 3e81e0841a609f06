//! Ends the view on request or when its terminal goes, whatever the rest of it is doing.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::terminal::disable_raw_mode;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// The view has this long to end by itself. Where output is blocked, or a key arrived in part, it cannot.
const GRACE: Duration = Duration::from_secs(1);

/// Whether the view is to end.
pub(super) struct End(Arc<AtomicBool>);

impl End {
    /// Listens from now on, in a thread of its own. Once it is to end, the process does so within [`GRACE`], with 0.
    pub(super) fn listen() -> io::Result<Self> {
        let (wake, signalled) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, signalled.try_clone()?)?;
        }
        let ending = Arc::new(AtomicBool::new(false));
        let flag = ending.clone();
        let wait = move || {
            while is_calm(wake.as_fd(), None) {}
            flag.store(true, Ordering::Relaxed);
            thread::sleep(GRACE);
            // It never stops writing: only the modes can be restored. An error has no reader left.
            let _ = disable_raw_mode();
            std::process::exit(0);
        };
        thread::Builder::new().name("end".to_owned()).spawn(wait)?;
        Ok(Self(ending))
    }

    /// Whether it is to end.
    pub(super) fn is_told(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether the terminal is gone, so that nothing can be restored on it.
pub(super) fn is_gone() -> bool {
    !is_calm(io::stdout().as_fd(), Some(&Timespec::default()))
}

/// Waits until `wake` can be read or a terminal is hung up; false when that is so.
fn is_calm(wake: BorrowedFd<'_>, time: Option<&Timespec>) -> bool {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    // Another input than a terminal shows nothing: keys come from the controlling terminal then.
    let keys = if stdin.is_terminal() {
        stdin.as_fd()
    } else {
        stdout.as_fd()
    };
    // A terminal reports a hang-up in any case.
    let mut ends = [
        PollFd::from_borrowed_fd(wake, PollFlags::IN),
        PollFd::from_borrowed_fd(keys, PollFlags::empty()),
        PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()),
    ];
    match poll(&mut ends, time) {
        Ok(ready) => ready == 0,
        Err(errno) => errno == Errno::INTR,
    }
}
