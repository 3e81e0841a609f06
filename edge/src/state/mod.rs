//! The state directory: what is applied, what is being changed, and the last good bundle.

mod documents;
mod last_good;
mod store;
mod whole;

pub use documents::{Before, Claim, EnforcedBy, Intent, SCHEMA_VERSION, State, Withdrawn, written};
pub use store::{Lock, Store};
