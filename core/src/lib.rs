//! What the collector and the edge's programs agree on. No I/O.

pub mod layout;
