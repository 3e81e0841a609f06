//! The tests of the collector, but for the comparison with `ss`: one program, so that it links once.

mod cat;
#[cfg(feature = "kafka")]
mod clock;
mod closes;
mod common;
mod config;
mod decode;
#[cfg(all(feature = "clickhouse", feature = "kafka"))]
mod docs;
mod estimate;
mod fixtures;
mod forged;
mod hangup;
mod live;
mod namespaces;
mod operate;
mod reading;
mod rhythm;
mod run;
mod top;
