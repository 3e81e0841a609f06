//! Choice of what is read, and how much of it.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use crate::kernel::dump::Extensions;
use crate::kernel::filter::Filter;
use crate::read::sampling::Sampling;

/// Network namespaces to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The namespace of this process.
    Own,
    /// Every one that is found; without the right to enter them, that of this process.
    AsAllowed,
    /// Every one that is found; without the right to enter them, nothing at all.
    All,
}

/// Choice of what is read, and how much of it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Sockets whose state's bit is set. Close events are read whatever the state was.
    pub states: u32,
    /// Attributes to request from the kernel for each.
    pub attributes: Extensions,
    /// Sockets that are wanted; None for every one.
    pub filter: Option<Filter>,
    /// Share of those to read.
    pub sampling: Sampling,
    /// When given, a socket that has not changed since it was exported is exported again only every so many polls.
    pub full_every: Option<NonZeroU32>,
    /// Size of the kernel's buffer for close events, bytes; None for no close events.
    pub close_buffer: Option<usize>,
    /// The namespaces.
    pub scope: Scope,
    /// Time from one look for namespaces to the next.
    pub scan_interval: Duration,
    /// A namespace other than this process' own, in which nothing happens, is read at least every so many polls.
    pub idle_polls: NonZeroU32,
    /// Where springtide-edge pins its maps; empty for none.
    pub start_values: PathBuf,
}

impl Settings {
    /// Every socket of this process' namespace whose state's bit is in `states`, in polls only.
    pub fn own(states: u32) -> Self {
        Self {
            states,
            attributes: Extensions::DEFAULT,
            filter: None,
            sampling: Sampling::ALL,
            full_every: None,
            close_buffer: None,
            scope: Scope::Own,
            scan_interval: Duration::from_secs(5),
            idle_polls: NonZeroU32::MIN,
            start_values: PathBuf::new(),
        }
    }
}
