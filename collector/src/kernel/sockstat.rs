//! Number of TCP sockets in a network namespace, without a walk over the hash table that all
//! namespaces share.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The files' first two kilobytes hold the lines that are wanted.
const BUFFER: usize = 2048;

/// TCP sockets by /proc/net/sockstat and sockstat6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InUse {
    /// Sockets of both families in the kernel's hash tables; those in TIME-WAIT and NEW-SYN-RECV and those that are
    /// only bound are not counted.
    pub sockets: u64,
    /// Sockets in TIME-WAIT, of both families.
    pub time_wait: u64,
}

/// Both files, kept open: they are about the network namespace in which they were opened.
pub(crate) struct SockStat {
    v4: File,
    v6: Option<File>,
}

impl SockStat {
    /// Opens them in the network namespace of the calling thread. A kernel without IPv6 has no sockstat6.
    pub(crate) fn open() -> io::Result<Self> {
        let open = |name| File::open(format!("/proc/thread-self/net/{name}"));
        let v6 = match open("sockstat6") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            file => Some(file?),
        };
        Ok(Self {
            v4: open("sockstat")?,
            v6,
        })
    }

    /// The numbers of this moment; None when the files do not have them.
    pub(crate) fn read(&self) -> Option<InUse> {
        let mut buffer = [0; BUFFER];
        let mut line = |file: &File, name| {
            let length = file.read_at(&mut buffer, 0).ok()?;
            numbers(&buffer[..length], name)
        };
        let (v4, time_wait) = line(&self.v4, "TCP:")?;
        let (v6, _) = match &self.v6 {
            Some(file) => line(file, "TCP6:")?,
            None => (0, 0),
        };
        Some(InUse {
            sockets: v4 + v6,
            time_wait,
        })
    }
}

/// `inuse` and `tw` (0 where it is missing) of the line that begins with `name`.
fn numbers(text: &[u8], name: &str) -> Option<(u64, u64)> {
    let line = std::str::from_utf8(text)
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix(name))?;
    let mut words = line.split_ascii_whitespace();
    let (mut in_use, mut time_wait) = (None, 0);
    while let (Some(key), Some(value)) = (words.next(), words.next()) {
        match key {
            "inuse" => in_use = Some(value.parse().ok()?),
            "tw" => time_wait = value.parse().ok()?,
            _ => {}
        }
    }
    Some((in_use?, time_wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_kernels_lines_are_read() {
        let v4 =
            b"sockets: used 20\nTCP: inuse 5 orphan 0 tw 7 alloc 10 mem 2\nUDP: inuse 1 mem 0\n";
        assert_eq!(numbers(v4, "TCP:"), Some((5, 7)));
        assert_eq!(
            numbers(b"TCP6: inuse 3\nUDP6: inuse 1\n", "TCP6:"),
            Some((3, 0))
        );
        assert_eq!(numbers(b"TCP: orphan 1\n", "TCP:"), None);
        assert_eq!(numbers(b"TCP: inuse x\n", "TCP:"), None);
        assert_eq!(numbers(b"UDP: inuse 1\n", "TCP:"), None);
    }

    #[test]
    fn this_namespace_has_the_listener_that_was_just_made() {
        let stat = SockStat::open().unwrap();
        let listeners: Vec<_> = (0..100)
            .map(|_| std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap())
            .collect();
        assert!(stat.read().unwrap().sockets >= listeners.len() as u64);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(TCP: )?[a-z0-9 \n]{0,40}") {
            numbers(text.as_bytes(), "TCP:");
        }
    }
}
