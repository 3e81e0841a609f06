//! Tests of several rooms together. What the program itself does is tested from outside: collector/tests/suite.

mod config;
mod contract;
mod fanout;
mod filter;
#[path = "../../tests/suite/fixtures.rs"]
mod fixtures;
mod layouts;
mod mounted;
mod planted;
mod queue;
mod replay;
mod rooms;
mod spool;
