//! Commands: check, apply, pull, withdraw, expire, follow, watch, status, and a look at a bundle.
//!
//! State stays whole: a run that changes the kernel first writes an intent (what stood before),
//! then changes, reads back, and commits by renaming state.json. A failure restores what stood
//! before; after a kill or a crash the next run does it, whichever command it is (`status` only
//! reports it). In doubt, the routes go: the kernel's default is always safe.
//!
//! Taking back always ends: it waits for the lock a few seconds and goes on without it. The run
//! that holds the lock looks before and after each write whether that has happened, and then takes
//! its own routes back ([`crate::state::Store::check`]). A withdrawal that the state directory does
//! not take is remembered in the run directory, and by the rule itself: within one boot a rule that
//! is gone was taken away, and is not put back by anything but an apply.

mod apply;
mod check;
mod chosen;
mod commit;
mod follow;
mod given;
mod metrics;
mod parity;
mod pull;
mod repair;
mod report;
mod run;
mod status;
mod verify;
mod watch;
mod withdraw;

pub use crate::parity::PORT as PARITY_PORT;
pub use apply::{Applied, Preview, apply, preview};
pub use check::{Checked, check, mounted};
pub use follow::{Followed, follow};
pub use given::{Given, Source};
pub use metrics::{METRICS, Metrics, measure};
pub use parity::parity;
pub use pull::{Origin, PULL_INTERVAL_S, Pulled, pull};
pub use report::{Counts, RefusedDestination, Report, lines, value};
pub use run::Places;
pub use status::{Drift, Status, status};
pub use verify::{Verified, verify};
pub use watch::{WATCH_INTERVAL_S, watch};
pub use withdraw::{TakenBack, WithdrawalPreview, expire, preview_withdrawal, withdraw};
