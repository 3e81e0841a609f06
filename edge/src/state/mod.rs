//! The state directory: what is applied, what is being changed, and the last good bundle.

mod last_good;
mod records;
mod store;

pub use records::{Before, Claim, EnforcedBy, Intent, SCHEMA_VERSION, State, Withdrawn, written};
pub use store::{Lock, Store};
