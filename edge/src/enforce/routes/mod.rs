//! Start values per destination, by routes of our own.
//!
//! Table 201 holds a copy of the host's own route to each destination, with the values; one rule has it looked up first.
//! `survey` reads what a bundle's destinations mean by the host's routing of this moment, by `plan`, which is pure; `steps`
//! leads there from what stands, and `ours` knows again what is ours.

mod apply;
mod encode;
mod index;
mod ours;
mod plan;
mod status;
mod steps;
mod support;
mod survey;
#[cfg(test)]
mod tests;
mod withdraw;

pub use encode::{NotEnforced, encode};
pub(crate) use ours::RULE;
pub use ours::{Routes, Snapshot};
pub use plan::{Destination, HostTables, Plan};
pub use status::{Check, OwnTable, Routing};
pub use steps::{Change, difference};
pub use support::supported;
pub(crate) use survey::{stale, survey};
