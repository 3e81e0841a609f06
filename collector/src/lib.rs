//! Springtide's collector: tcp_info of every socket, from the kernel to whoever wants it.
//!
//! Data flows one way through the modules:
//!
//! - [`kernel`] asks the kernel and hands on a view of each socket in the receive buffer;
//! - [`sample`] turns a view into a TcpSample's bytes, in one pass and from one table of fields; readers' forms (JSON)
//!   come from the same table;
//! - [`batch`] gathers the rows into a message;
//! - [`sink`] takes messages: the [`spool`], JSON lines, or a table;
//! - [`poller`] and [`replay`] drive it: from the live kernel, from a capture;
//! - [`run`] repeats polls until one of the [`signals`] says to stop, as the [`schedule`] wants it; [`sequence`] numbers
//!   them; [`stats`] counts; [`config`] is the command line.

#![forbid(unsafe_code)]

pub mod accounting;
pub mod batch;
pub mod config;
pub mod connection;
pub mod kernel;
pub mod lock;
pub mod log;
pub mod operator;
pub mod poller;
pub mod replay;
pub mod report;
pub mod run;
pub mod sample;
pub mod sampling;
pub mod schedule;
pub mod sequence;
pub mod signals;
pub mod sink;
pub mod sockets;
pub mod spool;
pub mod stats;
pub mod top;
pub mod watch;
