//! Declaration of an option of `run`: beside the option itself stand its key in the configuration
//! file and what a reload does with it. [`units`] and [`names`] read what options hold.

pub(crate) mod names;
pub(crate) mod units;

use clap::builder::ArgExt;

/// Effect of SIGHUP on a key whose value has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// Nothing: it waits for a restart.
    Restart,
    /// The poller goes on with the new value.
    Poller,
    /// The queue goes on with the new value.
    Queue,
}

/// An option's key in the configuration file: `add = key("queue.bytes")` among the option's attributes. An option without
/// one is for the command line only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Section and name, joined by a dot; at the top of the file the name alone.
    pub path: &'static str,
    /// Effect of SIGHUP on it.
    pub reload: Reload,
}

// Clap's mark for what may be added to an option; behind its feature `unstable-ext`, which Cargo.lock pins.
impl ArgExt for Key {}

/// A key that waits for a restart.
pub(crate) const fn key(path: &'static str) -> Key {
    Key {
        path,
        reload: Reload::Restart,
    }
}

impl Key {
    /// The same key, changed by SIGHUP.
    pub(crate) const fn on_reload(self, reload: Reload) -> Self {
        Self { reload, ..self }
    }
}
