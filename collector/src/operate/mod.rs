//! For whoever operates the collector: the [`run`] itself, the [`operator`] that looks after it, and what they see of it:
//! Prometheus' [`metrics`], [`health`], the [`log`], and the service manager's [`notify`].

pub mod health;
pub mod http;
pub mod log;
pub mod metrics;
pub mod monitor;
pub mod notify;
pub mod operator;
mod process;
pub mod run;
pub mod signals;
