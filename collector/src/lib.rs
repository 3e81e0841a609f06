//! Springtide's collector: tcp_info of every socket, from the kernel to whoever wants it.
//!
//! Data flows one way through the rooms:
//!
//! - [`kernel`] queries the kernel and passes on a view of each socket in the receive buffer;
//! - [`sample`] turns a view into a TcpSample's bytes, in one pass and from one table of fields, and gathers the rows into
//!   messages; readers' forms (JSON, columns) come from the same table;
//! - [`read`] and [`replay`] drive it: from the live kernel, from a capture;
//! - [`sinks`] take messages: those that are remote through the [`spool`]'s queue;
//! - [`options`] declare their keys; [`config`] is the command line with the file and the environment behind it;
//!   [`operate`] repeats polls until a signal stops it, and shows metrics and health; [`top`] shows connections live, [`estimate`]
//!   what starting at the proved rate would save.
//!
//! The [`commands`] put it together. Every room counts in [`stats`] and [`accounting`], and complains to a [`report`].

// Forbidden but for one system call: see kernel::bpf.
#![deny(unsafe_code)]
#![warn(unreachable_pub)]

mod accounting;
mod commands;
mod config;
mod estimate;
mod kernel;
mod lock;
mod operate;
mod options;
mod read;
mod replay;
mod report;
mod sample;
#[cfg_attr(
    not(any(feature = "clickhouse", feature = "kafka")),
    allow(
        dead_code,
        unused_imports,
        reason = "without a remote sink nothing takes from the queue"
    )
)]
mod sinks;
#[cfg_attr(
    not(any(feature = "clickhouse", feature = "kafka")),
    allow(
        dead_code,
        unused_imports,
        reason = "without a remote sink nothing takes from the queue"
    )
)]
mod spool;
mod stats;
#[cfg(test)]
mod tests;
mod top;

pub use commands::main;

/// Parts that benches, examples, fuzz targets and the generator of the reference use; everything
/// else is private, so that the compiler finds what nothing uses.
pub mod parts {
    pub use crate::config::keys::keys;
    pub use crate::config::render::packaged_file;
    pub use crate::config::source::{Following, Source};
    pub use crate::kernel::filter::Filter;
    pub use crate::kernel::flights::Flight;
    pub use crate::kernel::inet_diag::SocketView;
    pub use crate::kernel::starts::Start;
    pub use crate::kernel::{dump, host, netlink};
    pub use crate::read::poller::Poller;
    pub use crate::read::schedule::Schedule;
    pub use crate::replay::pcap::{COOKED_HEADER, PcapReader};
    pub use crate::replay::replay;
    pub use crate::sample::batch::Batch;
    pub use crate::sample::digest::digest;
    pub use crate::sample::encode::{AccEcn, Encoder, Identity};
    pub use crate::sample::proto::SampleKind;
    pub use crate::sinks::print::null::NullSink;
    pub use crate::stats::Stats;
}
