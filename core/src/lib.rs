//! What the collector, the edge's program and the controller agree on. No I/O.

pub mod bundle;
mod check;
pub mod instant;
pub mod layout;
mod prefix;
pub mod text;
