//! What the commands do: check, apply, withdraw, expire, follow, watch, status, and a look at a bundle.
//!
//! How it stays whole: a run that changes the kernel first writes an intent (what stood before), then changes, reads back,
//! and commits by renaming state.json. A failure restores what stood before; after a kill or a crash the next run does it,
//! whichever command it is (`status` only reports it). In doubt, the routes go: the kernel's default is always safe.
//!
//! How taking back always ends: it waits for the lock a few seconds and goes on without it. The run that holds the lock
//! looks before and after each write whether that has happened, and then takes its own routes back
//! ([`crate::state::Store::check`]). A withdrawal that the state directory does not take is remembered in the run
//! directory, and by the rule itself: within one boot a rule that is gone was taken away, and is not put back by anything
//! but an apply.

mod apply;
mod check;
mod commit;
mod follow;
mod metrics;
mod program;
mod repair;
mod report;
mod status;
mod survey;
mod watch;
mod withdraw;

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

pub use apply::{apply, preview, verify};
pub use check::{Checked, check, mounted};
pub use follow::follow;
pub use metrics::{METRICS, Metrics, measure};
pub use report::{
    Applied, Drift, Followed, NotEnforced, Preview, RefusedDestination, Report, Status, TakenBack,
    Verified, WithdrawalPreview, lines, value,
};
pub use status::status;
pub use watch::{WATCH_INTERVAL_S, watch};
pub use withdraw::{expire, preview_withdrawal, withdraw};

use crate::bundle::Live;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::kernel::{Check, Kernel};
use crate::state::Store;
use crate::text::reason;
use program::Program;

/// For taking back, which then goes on without the lock.
const SHORT_WAIT: Duration = Duration::from_secs(2);
/// An edge whose clock is further off must not judge expiry.
const CLOCK_TOLERANCE_S: f64 = 300.0;

/// Where things are on this host.
#[derive(Clone, Debug)]
pub struct Places {
    /// Of the state.
    pub state: PathBuf,
    /// Of the mark.
    pub run: PathBuf,
    /// How long a run waits for another one.
    pub lock_wait: Duration,
    /// Where the eBPF program acts and is kept.
    pub program: crate::enforce::bpf::Places,
}

/// What every step of a run needs.
struct Run<'a> {
    store: &'a Store,
    kernel: Kernel<'a>,
    program: Program,
    clock: Clock,
}

/// What was taken out of the kernel.
struct Cleared {
    routes: usize,
    rules: usize,
    program: bool,
    /// What could not be done, though new connections meet nothing of ours.
    warnings: Vec<String>,
}

impl<'a> Run<'a> {
    fn new(store: &'a Store, check: Check<'a>, places: &Places, clock: Clock) -> Self {
        let program = Program::new(places.program.clone());
        Self {
            store,
            kernel: Kernel::new(check),
            program,
            clock,
        }
    }

    /// Everything of ours out of the kernel: the routes first, and each even where the other fails.
    fn clear(&self, live: Live) -> Result<Cleared> {
        let routes = self.kernel.withdraw();
        let program = self.program.withdraw(live);
        let (routes, rules) = routes?;
        let (program, warnings) = program?;
        Ok(Cleared {
            routes,
            rules,
            program,
            warnings,
        })
    }

    /// Whether anything in the kernel carries our marks.
    fn marked(&self) -> Result<bool> {
        Ok(self.program.stands() || !self.kernel.marked()?.is_empty())
    }
}

/// Which bundle, and whose signature counts.
pub struct Source<'a> {
    /// The bundle's file; its signature is PATH.sig.
    pub bundle: &'a Path,
    /// None takes it on anybody's word.
    pub allowed_signers: Option<&'a Path>,
    /// This edge's name.
    pub edge: &'a str,
}

fn read_clock() -> Result<Clock> {
    Clock::read().map_err(|error| Error::failed(format!("/proc: {}; mount it", reason(&error))))
}

/// Ctrl-C and a polite kill wait until the kernel is whole again.
struct Uninterrupted(SigSet);

impl Uninterrupted {
    fn begin() -> Self {
        let signals: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]
            .into_iter()
            .collect();
        let before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK);
        Self(before.unwrap_or_else(|_| SigSet::empty()))
    }
}

impl Drop for Uninterrupted {
    fn drop(&mut self) {
        let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&self.0), None);
    }
}
