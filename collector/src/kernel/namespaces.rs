//! The host's network namespaces: which there are, and the sockets to read each one through.
//!
//! A namespace is known by the inode of its file in nsfs. It is found by a name (a file on which it is mounted, as
//! `ip netns` and container runtimes do) or by a process that lives in it. One that only an open descriptor or a mount
//! in another mount namespace holds is not found.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::closes::CloseSocket;
use super::dump::DumpSocket;
use super::host;
use super::sockstat::SockStat;

/// Where names of network namespaces are kept: iproute2's and Docker's directories.
pub(crate) const DIRECTORIES: [&str; 3] =
    ["/run/netns", "/run/docker/netns", "/var/run/docker/netns"];

/// Most namespaces that are read at once: each takes four descriptors.
pub(crate) const LIMIT: usize = 4096;

/// f_type of nsfs, include/uapi/linux/magic.h.
const NSFS_MAGIC: u64 = 0x6e73_6673;

/// Result of a look around.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// A path to each namespace, by inode.
    pub paths: BTreeMap<u64, PathBuf>,
    /// Processes whose namespace may not be read: that needs CAP_SYS_PTRACE for other users' processes.
    pub hidden_processes: u64,
}

/// Looks for every network namespace that has a name in one of the directories or a process.
pub(crate) fn find<'a>(directories: impl IntoIterator<Item = &'a str>) -> Found {
    let mut found = Found::default();
    for directory in directories {
        // A directory that is not there holds no names.
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if let Some(inode) = mounted_namespace(&path) {
                found.paths.entry(inode).or_insert(path);
            }
        }
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let path = entry.path().join("ns/net");
        match fs::metadata(&path) {
            Ok(metadata) => {
                found.paths.entry(metadata.ino()).or_insert(path);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                found.hidden_processes += 1;
            }
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    found
}

/// The inode, if a namespace is mounted there; an ordinary file is left behind where one was.
fn mounted_namespace(path: &Path) -> Option<u64> {
    let kind = rustix::fs::statfs(path).ok()?.f_type;
    (kind as u64 == NSFS_MAGIC).then_some(())?;
    Some(fs::metadata(path).ok()?.ino())
}

/// Sockets and files that a namespace is read through. Each of them keeps the namespace alive.
pub(crate) struct Handles {
    /// For dumps.
    pub dump: DumpSocket,
    /// For close events, when they are wanted.
    pub closes: Option<CloseSocket>,
    /// Reader of the number of sockets; None where /proc has no number.
    pub sockstat: Option<SockStat>,
}

impl Handles {
    /// Opens them in the network namespace of the calling thread; `close_buffer` is the size of the kernel's buffer for
    /// close events in bytes.
    pub(crate) fn open(close_buffer: Option<usize>) -> io::Result<Self> {
        Ok(Self {
            dump: DumpSocket::open()?,
            closes: close_buffer.map(CloseSocket::open).transpose()?,
            sockstat: SockStat::open().ok(),
        })
    }
}

/// A namespace that could be opened, or the path and what was wrong.
pub(crate) type Opened = Result<(u64, Handles), (PathBuf, io::Error)>;

/// Opens the namespaces in a thread that enters one after the other and ends; the caller's stays where it is. The inode
/// is that of the namespace which the path led to when it was opened.
pub(crate) fn open(paths: Vec<PathBuf>, close_buffer: Option<usize>) -> io::Result<Vec<Opened>> {
    let enter_all = move || {
        let open = |path: PathBuf| match enter(&path) {
            Ok(inode) => match Handles::open(close_buffer) {
                Ok(handles) => Ok((inode, handles)),
                Err(error) => Err((path, error)),
            },
            Err(error) => Err((path, error)),
        };
        paths.into_iter().map(open).collect()
    };
    let helper = thread::Builder::new()
        .name("netns".to_owned())
        .spawn(enter_all)?;
    helper
        .join()
        .map_err(|_| io::Error::other("the thread that enters network namespaces has panicked"))
}

/// Moves the calling thread into the namespace and returns its inode. Needs CAP_SYS_ADMIN.
fn enter(path: &Path) -> io::Result<u64> {
    let file = File::open(path)?;
    let inode = file.metadata()?.ino();
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(inode)
}

/// Whether this process may enter network namespaces; an error when that cannot be found out.
pub(crate) fn may_enter() -> io::Result<bool> {
    let helper = thread::Builder::new()
        .name("netns".to_owned())
        .spawn(|| enter(Path::new(host::OWN_NETNS)))?;
    match helper.join() {
        Ok(Ok(_)) => Ok(true),
        Ok(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the thread that was to try has panicked")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_namespace_is_found_once() {
        let own = host::netns().unwrap();
        let found = find(DIRECTORIES);
        assert!(found.paths.contains_key(&own));
    }

    #[test]
    fn an_ordinary_file_is_not_a_namespace() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("name"), "").unwrap();
        let without = find([]);
        let with = find([dir.path().to_str().unwrap()]);
        let of_the_file = fs::metadata(dir.path().join("name")).unwrap().ino();
        assert!(!with.paths.values().any(|path| path.starts_with(dir.path())));
        assert_eq!(
            with.paths.contains_key(&of_the_file),
            without.paths.contains_key(&of_the_file)
        );
    }
}
