//! For whoever operates the collector: the [`run`] itself, the [`operator`] that looks after it, and what they see of it:
//! Prometheus' [`metrics`], [`health`], the [`log`], and the service manager's [`notify`].

pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod monitor;
pub(crate) mod notify;
pub(crate) mod operator;
mod process;
pub(crate) mod run;
pub(crate) mod signals;
