//! Signals, turned into things to do between polls.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// SIGINT or SIGTERM: finish.
    Stop,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// Takes the signals over: they no longer end the process by themselves, but for a second SIGINT or SIGTERM, which ends
/// it at once.
pub struct Signals {
    wake: UnixStream,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Signals {
    /// From now on.
    pub fn listen() -> io::Result<Self> {
        let (wake, signalled) = UnixStream::pair()?;
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

    /// Sleeps for `time`, or until a signal has come, and tells what is wished.
    pub fn within(&mut self, time: Duration) -> io::Result<Option<Wish>> {
        if let Some(wish) = self.wish() {
            return Ok(Some(wish));
        }
        // A timeout of zero would mean none.
        let time = time.max(Duration::from_millis(1));
        self.wake.set_read_timeout(Some(time))?;
        match self.wake.read(&mut [0; 64]) {
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                ) => {}
            Err(error) => return Err(error),
        }
        Ok(self.wish())
    }

    fn wish(&self) -> Option<Wish> {
        if self.stop.load(Ordering::Relaxed) {
            Some(Wish::Stop)
        } else {
            self.reload
                .swap(false, Ordering::Relaxed)
                .then_some(Wish::Reload)
        }
    }
}
