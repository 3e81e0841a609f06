//! Facts about this host from the kernel, beside its tables.

use std::path::Path;

use rustix::net::netdevice::index_to_name;
use rustix::net::{AddressFamily, SocketType, socket};

use super::family::Family;
use super::way::{self, Way};
use crate::text::reason;

/// The IP versions that this host has.
pub(crate) fn families() -> Vec<Family> {
    if Path::new("/proc/net/if_inet6").exists() {
        Family::BOTH.to_vec()
    } else {
        vec![Family::V4]
    }
}

/// Why connections of this host cannot use a congestion control, or None. The question makes the kernel load its module
/// (net/ipv4/tcp_cong.c, `tcp_set_congestion_control`), where it may.
pub(crate) fn congestion_problem(name: &str) -> Option<String> {
    let asked = socket(AddressFamily::INET, SocketType::STREAM, None)
        .and_then(|socket| rustix::net::sockopt::set_tcp_congestion(&socket, name));
    let problem = |error: rustix::io::Errno| {
        let why = reason(&error.into());
        format!(
            "congestion control {name} cannot be used here: {why}; load its module (`modprobe tcp_{name}`)"
        )
    };
    asked.err().map(problem)
}

/// A way as people read it, with the names of interfaces.
pub fn show(way: &Way, family: Family) -> String {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
    let name = |index: u32| {
        let found = socket
            .as_ref()
            .ok()
            .and_then(|socket| index_to_name(socket, index).ok());
        found.unwrap_or_else(|| format!("if{index}"))
    };
    way::show(way, family == Family::V6, &name)
}
