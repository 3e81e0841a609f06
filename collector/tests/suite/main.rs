//! The tests of the collector, but for the comparison with `ss`: one program, so that it links once.

mod common;
mod config;
mod contract;
mod layouts;
mod live;
mod queue;
mod replay;
mod run;
mod spool;
