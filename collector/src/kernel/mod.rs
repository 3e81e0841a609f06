//! What the Linux kernel says about its TCP sockets, over netlink SOCK_DIAG.

pub mod closes;
pub mod dump;
pub mod filter;
pub mod host;
pub mod inet_diag;
pub mod namespaces;
pub mod netlink;
pub mod sockstat;
