//! The Linux kernel's TCP sockets, over netlink SOCK_DIAG.

pub(crate) mod bpf;
pub(crate) mod closes;
pub mod dump;
pub(crate) mod filter;
pub(crate) mod flights;
pub mod host;
pub(crate) mod inet_diag;
pub(crate) mod namespaces;
pub mod netlink;
pub(crate) mod pin;
pub(crate) mod ring;
pub(crate) mod sockstat;
pub(crate) mod starts;
