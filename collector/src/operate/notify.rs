//! Reports the collector's state to the service manager, as sd_notify(3) describes it: datagrams to the socket that
//! NOTIFY_SOCKET names. Without that variable nothing is sent.
//!
//! By hand: the crate sd-notify (0.5) opens a blocking socket for each message, so that a manager that does not read would
//! hold up the polls; it connects to paths only, not to abstract names, and finds out only then that a name is wrong.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The socket of the service manager.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: Option<UnixDatagram>,
    /// Interval of signs of life for the manager; half of the time after which it would end us.
    every: Option<Duration>,
    last: Option<Instant>,
}

/// Why the service manager cannot be notified.
#[derive(Debug, thiserror::Error)]
#[error("NOTIFY_SOCKET={name}: cannot use it: {source}")]
pub(crate) struct NotifyError {
    name: String,
    source: io::Error,
}

impl Notifier {
    /// From the values of NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID.
    pub(crate) fn new(
        socket: Option<&OsStr>,
        watchdog_usec: Option<&str>,
        watchdog_pid: Option<&str>,
    ) -> Result<Self, NotifyError> {
        let socket = socket
            .filter(|name| !name.is_empty())
            .map(|name| {
                connect(name).map_err(|source| NotifyError {
                    name: name.to_string_lossy().into_owned(),
                    source,
                })
            })
            .transpose()?;
        let ours = watchdog_pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
        let usec = watchdog_usec.and_then(|usec| usec.parse().ok());
        let every = usec
            .filter(|&usec: &u64| usec > 0 && ours && socket.is_some())
            .map(|usec| Duration::from_micros(usec) / 2);
        Ok(Self {
            socket,
            every,
            last: None,
        })
    }

    /// From the environment.
    pub(crate) fn from_environment() -> Result<Self, NotifyError> {
        let text = |name| std::env::var(name).ok();
        Self::new(
            std::env::var_os("NOTIFY_SOCKET").as_deref(),
            text("WATCHDOG_USEC").as_deref(),
            text("WATCHDOG_PID").as_deref(),
        )
    }

    /// Start-up or a reload is over.
    pub(crate) fn ready(&self) {
        self.send("READY=1");
    }

    /// The configuration is being read again; [`ready`](Self::ready) follows.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let usec = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// The end has begun.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// A line for `systemctl status`.
    pub(crate) fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    /// A sign of life, when one is due at `now`. Returns the time until the next; None when nobody waits for it.
    pub(crate) fn alive(&mut self, now: Instant) -> Option<Duration> {
        let every = self.every?;
        let next = self.last.map(|last| last + every);
        if next.is_none_or(|next| next <= now) {
            self.send("WATCHDOG=1");
            self.last = Some(now);
            return Some(every);
        }
        next.map(|next| next - now)
    }

    /// The manager may have gone or be slow: that is not a reason to stop working.
    fn send(&self, what: &str) {
        if let Some(socket) = &self.socket {
            let _ = socket.send(what.as_bytes());
        }
    }
}

/// A path, or with a leading `@` a name in the abstract namespace.
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => {
            let what = "it is neither a path nor an abstract name";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> Vec<String> {
        socket.set_nonblocking(true).unwrap();
        let mut buffer = [0; 256];
        let next = || {
            Some(
                socket
                    .recv(&mut buffer)
                    .ok()
                    .map(|len| String::from_utf8_lossy(&buffer[..len]).into_owned()),
            )
        };
        std::iter::from_fn(next).map_while(|line| line).collect()
    }

    #[test]
    fn a_manager_on_a_path_or_an_abstract_name_receives_everything() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let on_path = UnixDatagram::bind(&path).unwrap();
        let name = format!("springtide-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let abstract_one = UnixDatagram::bind_addr(&address).unwrap();
        for (socket, name) in [
            (on_path, path.into_os_string()),
            (abstract_one, format!("@{name}").into()),
        ] {
            let notifier = Notifier::new(Some(&name), None, None).unwrap();
            notifier.ready();
            notifier.reloading();
            notifier.status("two\nlines");
            notifier.stopping();
            let received = received(&socket);
            assert_eq!(
                [&received[0], &received[2], &received[3]],
                ["READY=1", "STATUS=two lines", "STOPPING=1"]
            );
            let usec = received[1]
                .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
                .unwrap();
            assert!(usec.parse::<u64>().unwrap() > 0);
        }
    }

    #[test]
    fn signs_of_life_come_at_twice_the_rate_that_the_watchdog_wants() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let pid = std::process::id().to_string();
        let mut notifier =
            Notifier::new(Some(path.as_os_str()), Some("10000000"), Some(&pid)).unwrap();
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let next: Vec<_> = [0, 1, 4, 5, 12]
            .map(|at| notifier.alive(start + at * second))
            .to_vec();
        assert_eq!(next, [5, 4, 1, 5, 5].map(|left| Some(left * second)));
        assert_eq!(received(&socket), ["WATCHDOG=1"; 3]);
    }

    #[test]
    fn without_a_manager_nothing_is_sent() {
        for (socket, usec, pid) in [
            (None, None, None),
            (None, Some("1"), None),
            (Some(""), Some("1"), None),
        ] {
            let mut notifier = Notifier::new(socket.map(OsStr::new), usec, pid).unwrap();
            notifier.ready();
            assert_eq!(notifier.alive(Instant::now()), None);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let _socket = UnixDatagram::bind(&path).unwrap();
        for (usec, pid) in [("0", None), ("x", None), ("1", Some("1"))] {
            let mut notifier = Notifier::new(Some(path.as_os_str()), Some(usec), pid).unwrap();
            assert_eq!(notifier.alive(Instant::now()), None, "{usec} {pid:?}");
        }
    }

    #[test]
    fn an_invalid_name_is_reported() {
        let error = |name| {
            Notifier::new(Some(OsStr::new(name)), None, None)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            error("vsock:2:1"),
            "NOTIFY_SOCKET=vsock:2:1: cannot use it: it is neither a path nor an abstract name"
        );
        assert!(error("/nonexistent").contains("No such file"));
    }
}
