//! Definitions that the collector, the edge's program and the controller share. No I/O.

pub mod bundle;
mod check;
pub mod gain;
pub mod instant;
pub mod layout;
mod part;
mod prefix;
pub mod step;
pub mod text;
