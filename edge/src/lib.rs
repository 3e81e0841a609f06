//! Springtide on an edge: a signed bundle becomes what new TCP connections start with, and is taken back.
//!
//! Rooms, from outside to inside; each uses only what stands behind it (`python -m tools.circles`): the command line;
//! operations (apply, withdraw, expire, follow, watch, status); the state directory; `parity`, a service beside connections;
//! `enforce`, the two ways in which a bundle reaches the kernel; `kernel`, which speaks netlink and decides nothing; bundle and signature, which do no I/O.

#![warn(unreachable_pub)]

pub mod bundle;
mod cli;
pub mod clock;
pub mod enforce;
pub mod error;
pub mod files;
pub mod kernel;
pub mod notify;
pub mod operations;
mod parity;
mod probe;
pub mod signature;
pub mod state;
pub mod text;
mod textfile;

pub use cli::main;
pub use springtide_core::instant;
