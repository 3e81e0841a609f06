//! Springtide on an edge: a signed bundle becomes what new TCP connections start with, and is taken back.
//!
//! Rooms, from outside to inside: the command line, operations (apply, withdraw, expire, follow, watch, status), the state
//! directory, the kernel's netlink, and what decides and does no I/O (bundle,
//! signature, plan).

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
pub mod plan;
mod probe;
pub mod signature;
pub mod state;
pub mod text;
mod textfile;

pub use cli::main;
pub use springtide_core::instant;
