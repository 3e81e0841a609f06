//! The tests of the collector, but for the comparison with `ss`: one program, so that it links once.

#[cfg(feature = "kafka")]
mod clock;
mod closes;
mod common;
mod config;
mod contract;
#[cfg(all(feature = "clickhouse", feature = "kafka"))]
mod docs;
mod fanout;
mod forged;
mod hangup;
mod layouts;
mod live;
mod namespaces;
mod operate;
mod planted;
mod queue;
mod reading;
mod replay;
mod rhythm;
mod run;
mod spool;
mod top;
