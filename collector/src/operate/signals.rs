//! Signals, turned into things to do between polls.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// Request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// SIGINT or SIGTERM: finish.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// Takes the signals over: they no longer end the process by themselves, but for a second SIGINT or SIGTERM, which ends
/// it at once.
pub(crate) struct Signals {
    wake: UnixStream,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// From now on.
    pub(crate) fn listen() -> io::Result<Self> {
        let (wake, signalled) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let signals = Self {
            wake,
            stop: Arc::default(),
            reload: Arc::default(),
        };
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, 1, signals.stop.clone())?;
            flag::register(signal, signals.stop.clone())?;
            low_level::pipe::register(signal, signalled.try_clone()?)?;
        }
        flag::register(SIGHUP, signals.reload.clone())?;
        low_level::pipe::register(SIGHUP, signalled)?;
        Ok(signals)
    }

    /// Request of the signals so far. A signal that comes later can be waited for.
    pub(crate) fn request(&mut self) -> Option<Request> {
        // The bytes only wake; the flags hold what came.
        while matches!(self.wake.read(&mut [0; 64]), Ok(1..)) {}
        if self.stop.load(Ordering::Relaxed) {
            Some(Request::Stop)
        } else {
            self.reload
                .swap(false, Ordering::Relaxed)
                .then_some(Request::Reload)
        }
    }
}

impl AsFd for Signals {
    /// Can be read when a signal has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
