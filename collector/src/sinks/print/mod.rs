//! Samples on standard output.

pub mod json;
pub mod null;
pub mod table;
