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
mod chosen;
mod commit;
mod follow;
mod metrics;
mod repair;
mod report;
mod run;
mod status;
mod watch;
mod withdraw;

pub use apply::{apply, preview, verify};
pub use check::{Checked, check, mounted};
pub use follow::follow;
pub use metrics::{METRICS, Metrics, measure};
pub use report::{
    Applied, Drift, Followed, Preview, RefusedDestination, Report, Status, TakenBack, Verified,
    WithdrawalPreview, lines, value,
};
pub use run::{Places, Source};
pub use status::status;
pub use watch::{WATCH_INTERVAL_S, watch};
pub use withdraw::{expire, preview_withdrawal, withdraw};
