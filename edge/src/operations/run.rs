//! Parts that every step of a run needs.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, pthread_sigmask};

use crate::bundle::Live;
use crate::clock::Clock;
use crate::enforce::bpf::Program;
use crate::enforce::routes::{Check, Routing};
use crate::error::{Error, Result};
use crate::state::Store;
use crate::text::reason;

/// Where things are on this host.
#[derive(Clone, Debug)]
pub struct Places {
    /// The directory of the state.
    pub state: PathBuf,
    /// The directory of the mark.
    pub run: PathBuf,
    /// Time that a run waits for another one.
    pub lock_wait: Duration,
    /// Where the eBPF program acts and is kept.
    pub program: crate::enforce::bpf::Places,
}

/// Parts that every step of a run needs.
pub(super) struct Run<'a> {
    pub(super) store: &'a Store,
    pub(super) routing: Routing<'a>,
    pub(super) program: Program,
    pub(super) clock: Clock,
}

/// Objects taken out of the kernel.
pub(super) struct Cleared {
    pub(super) routes: usize,
    pub(super) rules: usize,
    pub(super) program: bool,
    /// Steps that failed, though new connections meet nothing of ours.
    pub(super) warnings: Vec<String>,
}

impl<'a> Run<'a> {
    pub(super) fn new(store: &'a Store, check: Check<'a>, places: &Places, clock: Clock) -> Self {
        let program = Program::new(places.program.clone());
        Self {
            store,
            routing: Routing::new(check),
            program,
            clock,
        }
    }

    /// Everything of ours out of the kernel: the routes first, and each even where the other fails.
    pub(super) fn clear(&self, live: Live) -> Result<Cleared> {
        let routes = self.routing.withdraw();
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
    pub(super) fn marked(&self) -> Result<bool> {
        Ok(self.program.stands() || !self.routing.marked()?.is_empty())
    }
}

pub(super) fn read_clock() -> Result<Clock> {
    Clock::read().map_err(|error| Error::failed(format!("/proc: {}; mount it", reason(&error))))
}

/// Ctrl-C and a polite kill wait until the kernel is whole again.
pub(super) struct Uninterrupted(SigSet);

impl Uninterrupted {
    pub(super) fn begin() -> Self {
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
