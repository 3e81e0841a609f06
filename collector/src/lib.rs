//! Springtide's collector: tcp_info of every socket, from the kernel to whoever wants it.
//!
//! Data flows one way through the rooms:
//!
//! - [`kernel`] asks the kernel and hands on a view of each socket in the receive buffer;
//! - [`sample`] turns a view into a TcpSample's bytes, in one pass and from one table of fields, and gathers the rows into
//!   messages; readers' forms (JSON, columns) come from the same table;
//! - [`read`] and [`replay`] drive it: from the live kernel, from a capture;
//! - [`sinks`] take messages: those that are remote through the [`spool`]'s queue;
//! - [`options`] declare their keys; [`config`] is the command line with the file and the environment behind it; [`operate`] repeats polls until a signal
//!   says to stop, and shows metrics and health; [`top`] shows connections live.
//!
//! Every room counts in [`stats`] and [`accounting`], and complains to a [`report`].

#![forbid(unsafe_code)]

pub mod accounting;
pub mod config;
pub mod kernel;
pub mod lock;
pub mod operate;
pub mod options;
pub mod read;
pub mod replay;
pub mod report;
pub mod sample;
pub mod sinks;
pub mod spool;
pub mod stats;
pub mod top;
