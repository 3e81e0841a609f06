//! Messages of a service to systemd: sd_notify(3), without its library.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::text::one_line;

/// Where systemd listens, and how often it wants a message. Without either, nothing is sent.
#[derive(Debug, Default)]
pub struct Notify {
    address: Option<SocketAddr>,
    /// Half of the watchdog's time: what does not answer within the whole of it is restarted.
    pub at_least_every: Option<Duration>,
}

impl Notify {
    /// By NOTIFY_SOCKET and WATCHDOG_USEC of the environment.
    ///
    /// # Errors
    ///
    /// When the socket's name cannot be one.
    pub fn from_environment() -> io::Result<Self> {
        let watchdog = std::env::var("WATCHDOG_USEC").ok();
        let half = |microseconds: u64| Duration::from_micros(microseconds / 2);
        Ok(Self {
            address: std::env::var_os("NOTIFY_SOCKET")
                .map(|name| address(&name))
                .transpose()?,
            at_least_every: watchdog.and_then(|text| text.parse().ok()).map(half),
        })
    }

    /// It is ready, alive, and did this. A socket that is gone keeps nothing from being done.
    pub fn alive(&self, status: &str) {
        let Some(address) = &self.address else {
            return;
        };
        let text = format!("READY=1\nWATCHDOG=1\nSTATUS={}\n", one_line(status));
        let _ = UnixDatagram::unbound()
            .and_then(|socket| socket.send_to_addr(text.as_bytes(), address));
    }
}

/// A path, or with @ in front a name in Linux's abstract namespace.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(rest) => SocketAddr::from_abstract_name(rest),
        None => SocketAddr::from_pathname(name),
    }
}
